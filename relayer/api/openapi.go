package api

import (
	_ "embed"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"dongate/relayer/fhevm"
)

// openAPI is the document that /openapi.yml serves. It is what [document] makes of the tables below; a test compares them.
//
//go:embed openapi.yml
var openAPI []byte

// schema is one JSON form.
type schema struct {
	kind    string // object, array, string, integer, boolean
	about   string
	pattern string
	enum    []string
	members []member // of object, in order
	entries *schema  // of array and of objects with any names
	filled  bool     // of array: not empty
}

type member struct {
	name     string
	optional bool
	schema
}

func text(about, pattern string) schema {
	return schema{kind: "string", about: about, pattern: pattern}
}
func fixed(values ...string) schema { return schema{kind: "string", enum: values} }
func list(about string, filled bool, entry schema) schema {
	return schema{kind: "array", about: about, filled: filled, entries: &entry}
}
func object(members ...member) schema        { return schema{kind: "object", members: members} }
func with(name string, s schema) member      { return member{name, false, s} }
func sometimes(name string, s schema) member { return member{name, true, s} }

const (
	patternAddress = "^0x[0-9a-fA-F]{40}$"
	patternHandle  = "^0x[0-9a-fA-F]{64}$"
	patternHex     = "^([0-9a-fA-F]{2})+$"
	patternNumber  = "^(0x[0-9a-fA-F]+|[0-9]+)$"
	patternDecimal = "^[0-9]+$"
)

func address(about string) schema { return text(about, patternAddress) }

var (
	handle       = text("32 bytes; bytes 22 to 29 are the id of the host chain, which must be served.", patternHandle)
	chainID      = text("64 bits, decimal or hex after 0x; a JSON number is taken, too.", patternNumber)
	startTime    = text("Unix seconds, decimal or hex after 0x; not in the future.", patternNumber)
	durationDays = text("32 bits.", patternDecimal)
	signature65  = text("65 bytes without 0x.", "^[0-9a-fA-F]{130}$")
	publicKey    = text("Hex without 0x.", patternHex)
	extraData    = text("0x00; or 0x01 and a contextId; or 0x02, a contextId and an epochId. Each id is 32 bytes, a contextId begins with 07, an epochId with 08.",
		"^0x(00|0107[0-9a-fA-F]{62}|0207[0-9a-fA-F]{62}08[0-9a-fA-F]{62})$")
	pairs     = list("", true, object(with("handle", handle), with("contractAddress", address(""))))
	contracts = list("", true, address(""))
)

// requests is the body of every POST.
var requests = map[fhevm.Endpoint]schema{
	fhevm.EndpointInputProof: object(
		with("contractChainId", chainID), with("contractAddress", address("")), with("userAddress", address("")),
		with("ciphertextWithInputVerification", text("Ciphertext with its proof: hex without 0x.", patternHex)), with("extraData", fixed("0x00"))),
	fhevm.EndpointPublicDecrypt: object(with("ciphertextHandles", list("", true, handle)), with("extraData", extraData)),
	fhevm.EndpointUserDecrypt: object(
		with("handleContractPairs", pairs), with("requestValidity", object(with("startTimestamp", startTime), with("durationDays", durationDays))),
		with("contractsChainId", chainID), with("contractAddresses", contracts), with("userAddress", address("")),
		with("signature", signature65), with("publicKey", publicKey), with("extraData", extraData)),
	fhevm.EndpointDelegatedUserDecrypt: object(
		with("handleContractPairs", pairs), with("contractsChainId", chainID), with("contractAddresses", contracts),
		with("delegatorAddress", address("Who owns the values.")), with("delegateAddress", address("Who may see them.")),
		with("startTimestamp", startTime), with("durationDays", durationDays),
		with("signature", signature65), with("publicKey", publicKey), with("extraData", extraData)),
	fhevm.EndpointUserDecryptV3: object(
		with("attestationType", fixed("eip712-unified-user-decrypt-v1")),
		with("signature", text("Hex with 0x; empty where the user is a contract that approved the hash before (ERC-1271).", "^(0x([0-9a-fA-F]{2})*)?$")),
		with("attestedPayload", object(
			with("version", fixed("2.0")), with("type", fixed("user_decryption")),
			with("handles", list("All of one host chain.", true, object(with("ctHandle", handle), with("contractAddress", address("")), with("ownerAddress", address(""))))),
			with("userAddress", address("")), with("allowedContracts", list("Empty: any contract.", false, address(""))),
			with("requestValidity", object(with("startTimestamp", text("Unix seconds; not in the future.", patternDecimal)),
				with("durationSeconds", text("64 bits; start and duration must not be over.", patternDecimal)))),
			with("publicKey", text("Hex with 0x.", "^0x([0-9a-fA-F]{2})+$")), with("extraData", extraData)))),
}

var (
	prefixedHex = text("Hex with 0x.", "^0x([0-9a-fA-F]{2})*$")
	plainHex    = text("Hex without 0x.", "^([0-9a-fA-F]{2})*$")
	id          = schema{kind: "string", about: "A UUID.", pattern: "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
)

// results is the result of a job, by kind.
var results = map[fhevm.Kind]schema{
	fhevm.KindInputProof: object(
		with("accepted", schema{kind: "boolean", about: "A rejected proof is an answer, too; it has neither handles nor signatures."}),
		with("extraData", fixed("0x00")), sometimes("handles", list("", false, text("", patternHandle))), sometimes("signatures", list("", false, prefixedHex))),
	fhevm.KindPublicDecrypt: object(with("decryptedValue", plainHex), with("signatures", list("", false, plainHex)), with("extraData", prefixedHex)),
	fhevm.KindUserDecrypt: object(with("result", list("The shares of the nodes.", false,
		object(with("payload", plainHex), with("signature", plainHex), with("extraData", prefixedHex))))),
}

var (
	accepted = object(with("status", fixed("queued")), with("requestId", id), with("result", object(with("jobId", id))))
	pending  = object(with("status", fixed("queued")), with("requestId", id), with("state", fixed(states(false)...)),
		with("updatedAt", text("Since when the job is in its state: RFC 3339, milliseconds.", "")),
		sometimes("queuePosition", schema{kind: "integer", about: "Older jobs of the same kind and state, counted up to 20 000, as of at most a second ago."}),
		sometimes("txQueueSize", schema{kind: "integer", about: "Jobs of the kind that wait for their transaction, counted up to 20 000, as of at most a second ago."}))
	material = object(with("dataId", text("", patternHandle)), with("urls", list("", false, text("", ""))))
	keyURLs  = object(with("status", fixed("succeeded")), with("response", object(
		with("fheKeyInfo", list("", true, object(with("fhePublicKey", material)))), with("crs", object(with("2048", material))))))
	healthy = object(with("status", fixed("healthy", "unhealthy", "shutting_down")),
		sometimes("dependencies", schema{kind: "object", entries: &schema{kind: "string", enum: []string{"ok", "fail"}}}))
)

// states lists the states in which a job has no answer of its own yet, or those in which it failed.
func states(failed bool) (out []string) {
	for _, s := range fhevm.States {
		if failed == (s == fhevm.StateTimedOut || s == fhevm.StateFailure) {
			out = append(out, string(s))
		}
	}
	return out
}

func succeeded(result schema) schema {
	return object(with("status", fixed("succeeded")), with("requestId", id), with("result", result))
}

// failedWith is the body of an error.
func failedWith(labels []fhevm.Label, ofJob bool) schema {
	names := make([]string, len(labels))
	detailed := false
	for i, l := range labels {
		names[i] = string(l)
		detailed = detailed || l == fhevm.LabelMissingFields || l == fhevm.LabelValidationFailed
	}
	body := object(with("label", fixed(names...)), with("message", text("For people.", "")))
	if detailed {
		body.members = append(body.members, sometimes("details", list("", true, object(with("field", text("", "")), with("issue", text("", ""))))))
	}
	out := object(with("status", fixed("failed")), with("requestId", id), with("error", body))
	if ofJob {
		out.members = append(out.members, sometimes("jobId", id), sometimes("state", fixed(states(true)...)))
	}
	return out
}

// operation is one method of one path.
type operation struct {
	method, path, about string
	open                bool
	body                *schema
	responses           []response // by status
}

type response struct {
	status     int
	about      string
	labels     []fhevm.Label // of an error
	media      string        // "": JSON
	schema     schema
	retryAfter bool
}

func errorResponse(status int, ofJob bool, labels ...fhevm.Label) response {
	retry := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && !ofJob
	return response{status: status, about: http.StatusText(status), labels: labels, schema: failedWith(labels, ofJob), retryAfter: retry}
}

// operations lists all of the API.
func operations() []operation {
	var out []operation
	for _, e := range fhevm.Endpoints {
		body := requests[e]
		out = append(out,
			operation{method: "post", path: string(e), about: titles[e], body: &body, responses: postResponses(e.Kind())},
			operation{method: "get", path: string(e) + jobSuffix, about: "What became of it", responses: jobResponses(e.Kind())})
	}
	ok := func(about string, s schema) response {
		return response{status: http.StatusOK, about: about, schema: s}
	}
	unhealthy := ok("Something fails, or the relayer is shutting down.", healthy)
	unhealthy.status = http.StatusServiceUnavailable
	return append(out,
		operation{method: "get", path: "/v2/keyurl", about: "Where the network's public key and CRS are", responses: []response{
			ok("The locations.", keyURLs), errorResponse(http.StatusUnauthorized, false, fhevm.LabelUnauthorized),
			errorResponse(http.StatusServiceUnavailable, false, fhevm.LabelGatewayNotReachable)}},
		operation{method: "get", path: "/liveness", about: "Whether the process runs", open: true, responses: []response{ok("It does.", object(with("status", fixed("alive"))))}},
		operation{method: "get", path: "/healthz", about: "Whether what the relayer depends on works", open: true, responses: []response{ok("All of it does.", healthy), unhealthy}},
		operation{method: "get", path: "/version", about: "What runs", open: true,
			responses: []response{ok("The version.", object(with("name", text("", "")), with("version", text("", "")), with("build", text("", ""))))}},
		operation{method: "get", path: "/docs", about: "This document for people", open: true, responses: []response{{status: http.StatusOK, about: "A page.", media: "text/html", schema: text("", "")}}},
		operation{method: "get", path: "/openapi.yml", about: "This document", open: true, responses: []response{{status: http.StatusOK, about: "The document.", media: "application/yaml", schema: text("", "")}}})
}

var titles = map[fhevm.Endpoint]string{
	fhevm.EndpointInputProof:           "Verify encrypted input",
	fhevm.EndpointPublicDecrypt:        "Decrypt for everybody",
	fhevm.EndpointUserDecrypt:          "Decrypt for a user",
	fhevm.EndpointDelegatedUserDecrypt: "Decrypt for a user's delegate",
	fhevm.EndpointUserDecryptV3:        "Decrypt for a user or a delegate, with one signature over EIP-712 data",
}

func postResponses(k fhevm.Kind) []response {
	bad := []fhevm.Label{fhevm.LabelMalformedJSON, fhevm.LabelMissingFields, fhevm.LabelValidationFailed, fhevm.LabelRequestError}
	if k != fhevm.KindInputProof {
		bad = append(bad, fhevm.LabelHostChainNotSupported)
	}
	return []response{
		{status: http.StatusAccepted, about: "The job, new or, for a request that repeats a live or completed one, the same.", schema: accepted, retryAfter: true},
		errorResponse(http.StatusBadRequest, false, bad...),
		errorResponse(http.StatusUnauthorized, false, fhevm.LabelUnauthorized),
		errorResponse(http.StatusRequestEntityTooLarge, false, fhevm.LabelRequestError),
		errorResponse(http.StatusTooManyRequests, false, fhevm.LabelRateLimited),
		errorResponse(http.StatusInternalServerError, false, fhevm.LabelInternalServerError),
		errorResponse(http.StatusServiceUnavailable, false, fhevm.LabelProtocolPaused, fhevm.LabelInsufficientBalance, fhevm.LabelInsufficientAllowance, fhevm.LabelGatewayNotReachable),
	}
}

// jobResponses gathers what a job of the kind can end with from the table of states and causes.
func jobResponses(k fhevm.Kind) []response {
	labels := map[int][]fhevm.Label{
		http.StatusBadRequest:          {fhevm.LabelValidationFailed},
		http.StatusUnauthorized:        {fhevm.LabelUnauthorized},
		http.StatusNotFound:            {fhevm.LabelNotFound},
		http.StatusInternalServerError: {fhevm.LabelInternalServerError},
	}
	for _, row := range fhevm.StatusTable() {
		decryptOnly := row.Cause == fhevm.CauseReadinessTimedOut || row.Cause == fhevm.CauseNotAllowedOnHostACL || row.Cause == fhevm.CauseHostACLFailed
		if decryptOnly && k == fhevm.KindInputProof {
			continue
		}
		for _, o := range []fhevm.Outcome{row.Outcome, row.SDK} {
			if o.Label != "" && !slices.Contains(labels[o.Status], o.Label) {
				labels[o.Status] = append(labels[o.Status], o.Label)
			}
		}
	}
	out := []response{
		{status: http.StatusOK, about: "The result.", schema: succeeded(results[k])},
		{status: http.StatusAccepted, about: "Not yet.", schema: pending, retryAfter: true},
	}
	for _, status := range []int{400, 401, 404, 500, 503, 504} {
		ofJob := status == http.StatusBadRequest || status >= http.StatusServiceUnavailable
		out = append(out, errorResponse(status, ofJob, labels[status]...))
	}
	return out
}

const aboutAPI = `Takes requests for decryptions and input proofs, sends them to the gateway chain and hands out the results.

POST a request, which answers with a job id; GET the job until it answers 200 or an error, each time after as many seconds as Retry-After says.
A request that repeats one that is live or completed gets its job id. After a failure or timeout it makes a new job.

Every answer below /v2 and /v3 is a JSON envelope; an unknown path is 404 not_found, another method 405 request_error. To callers that send the
header zama-sdk-name, statuses and labels that its SDK does not know are replaced: 405 and 413 by 400, 504 by 503, host_chain_id_not_supported by
validation_failed with a detail, host_acl_failed by internal_server_error.

A body may have 1048576 bytes. Where the operator asks for API keys, send yours in the header x-api-key, as a bearer token or in the cookie x-api-key.`

// document makes the OpenAPI document.
func document() []byte {
	paths, shared := mapping{}, sharedResponses()
	for _, op := range operations() {
		responses := mapping{}
		for _, r := range op.responses {
			responses = append(responses, field{strconv.Itoa(r.status), mapping{{"$ref", "#/components/responses/" + shared.name(r)}}})
		}
		body := mapping{{"summary", op.about}}
		if op.open {
			body = append(body, field{"security", []any{}})
		}
		if strings.HasSuffix(op.path, jobSuffix) {
			body = append(body, field{"parameters", []any{mapping{{"name", "job_id"}, {"in", "path"}, {"required", true}, {"schema", mapping{{"type", "string"}, {"format", "uuid"}}}}}})
		}
		if op.body != nil {
			body = append(body, field{"requestBody", mapping{{"required", true}, {"content", mapping{{"application/json", mapping{{"schema", op.body.yaml()}}}}}}})
		}
		body = append(body, field{"responses", responses})
		paths = append(paths, field{op.path, mapping{{op.method, body}}})
	}
	key := func(in string) mapping { return mapping{{"type", "apiKey"}, {"in", in}, {"name", apiKeyHeader}} }
	var out strings.Builder
	mapping{
		{"openapi", "3.0.3"},
		{"info", mapping{{"title", "Relayer"}, {"version", "2"}, {"description", aboutAPI}}},
		{"security", []any{mapping{}, mapping{{"header", []any{}}}, mapping{{"bearer", []any{}}}, mapping{{"cookie", []any{}}}}},
		{"paths", paths},
		{"components", mapping{
			{"responses", mapping(shared)},
			{"securitySchemes", mapping{{"header", key("header")}, {"bearer", mapping{{"type", "http"}, {"scheme", "bearer"}}}, {"cookie", key("cookie")}}}}},
	}.write(&out, 0)
	return []byte(out.String())
}

// responsesByName holds every response once.
type responsesByName mapping

func sharedResponses() (out responsesByName) {
	for _, op := range operations() {
		for _, r := range op.responses {
			if out.name(r) != "" {
				continue
			}
			name := fmt.Sprintf("Status%d", r.status)
			for n := 2; slices.ContainsFunc(out, func(f field) bool { return f.name == name }); n++ {
				name = fmt.Sprintf("Status%d_%d", r.status, n)
			}
			out = append(out, field{name, r.yaml()})
		}
	}
	return out
}

// name returns the name of a response, "" where it is not there.
func (s responsesByName) name(r response) string {
	i := slices.IndexFunc(s, func(f field) bool {
		return strings.HasPrefix(f.name, fmt.Sprintf("Status%d", r.status)) && reflect.DeepEqual(f.value, r.yaml())
	})
	if i < 0 {
		return ""
	}
	return s[i].name
}

func (r *response) yaml() mapping {
	out := mapping{{"description", r.about}}
	if r.retryAfter {
		out = append(out, field{"headers", mapping{{"Retry-After", mapping{{"description", "Seconds."}, {"schema", mapping{{"type", "integer"}, {"minimum", 1}}}}}}})
	}
	media := "application/json"
	if r.media != "" {
		media = r.media
	}
	return append(out, field{"content", mapping{{media, mapping{{"schema", r.schema.yaml()}}}}})
}

func (s *schema) yaml() mapping {
	out := mapping{{"type", s.kind}}
	if s.about != "" {
		out = append(out, field{"description", s.about})
	}
	if s.pattern != "" {
		out = append(out, field{"pattern", s.pattern})
	}
	if s.enum != nil {
		var values []any
		for _, v := range s.enum {
			values = append(values, v)
		}
		out = append(out, field{"enum", values})
	}
	if s.kind == "array" {
		if s.filled {
			out = append(out, field{"minItems", 1})
		}
		return append(out, field{"items", s.entries.yaml()})
	}
	if s.entries != nil {
		return append(out, field{"additionalProperties", s.entries.yaml()})
	}
	if len(s.members) == 0 {
		return out
	}
	var required []any
	properties := mapping{}
	for _, m := range s.members {
		if !m.optional {
			required = append(required, m.name)
		}
		properties = append(properties, field{m.name, m.schema.yaml()})
	}
	return append(out, field{"required", required}, field{"properties", properties})
}

// mapping is a YAML mapping in order. Values are mappings, []any, string, int and bool.
type mapping []field

type field struct {
	name  string
	value any
}

// write writes YAML of the plainest kind: block mappings and lists, and every string quoted as in JSON but names of letters alone.
func (m mapping) write(b *strings.Builder, indent int) {
	for _, f := range m {
		name := f.name
		if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
			name = strconv.Quote(name)
		}
		fmt.Fprintf(b, "%s%s:", strings.Repeat("  ", indent), name)
		writeYAML(b, f.value, indent+1)
	}
}

func writeYAML(b *strings.Builder, v any, indent int) {
	switch v := v.(type) {
	case mapping:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		b.WriteByte('\n')
		v.write(b, indent)
	case []any:
		if len(v) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteByte('\n')
		for _, entry := range v {
			fmt.Fprintf(b, "%s-", strings.Repeat("  ", indent))
			writeYAML(b, entry, indent+1)
		}
	case string:
		fmt.Fprintf(b, " %s\n", strconv.Quote(v))
	default:
		fmt.Fprintf(b, " %v\n", v)
	}
}
