package connector

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// methodAction is the method of an action and of its answer (protocol §7).
const methodAction = "http_action"

// answerOverhead is what an answer to an action has besides the body: up to 64 kB of headers, twice, escaped.
const answerOverhead = 512 << 10

// maxActionMessage bounds ActionError.Message, in bytes.
const maxActionMessage = 1 << 10

// wireAction is the result of the node's message.
type wireAction struct {
	URL          string            `json:"url"`
	Method       string            `json:"method,omitzero"`
	Headers      map[string]string `json:"headers,omitzero"`
	MultiHeaders http.Header       `json:"multiHeaders,omitzero"`
	Body         []byte            `json:"body,omitempty"`
	TimeoutMs    int64             `json:"timeoutMs,omitzero"`
	MaxBytes     int64             `json:"maxBytes,omitzero"`
	Cache        wireCache         `json:"cacheSettings,omitzero"`
	MTLS         *wireMTLS         `json:"mtlsAuth,omitzero"`
	WorkflowID   string            `json:"workflowId"`
	Owner        string            `json:"workflowOwner"`
}

type wireCache struct {
	MaxAgeMs int64 `json:"maxAgeMs"`
	Store    bool  `json:"store"`
}

type wireMTLS struct {
	PrivateKey  []byte `json:"privateKey"`
	Certificate []byte `json:"certificate"`
}

// encodeAction checks what the connector can check, and encodes the message. The gateway is asked for no larger body than
// fits into a message of maxRead bytes: a longer message ends the connection.
func encodeAction(a *ActionRequest, maxRead int64) (id string, data []byte, refused *ActionError) {
	refuse := func(format string, args ...any) *ActionError {
		return &ActionError{Validation: true, Message: fmt.Sprintf(format, args...)}
	}
	w := wireAction{URL: a.URL, Method: a.Method, Body: a.Body, TimeoutMs: milliseconds(min(a.Timeout, MaxActionTimeout)),
		Cache: wireCache{milliseconds(a.Cache.MaxAge), a.Cache.Store}}
	var err error
	if w.WorkflowID, err = workflow.NormalizeID(strings.ToLower(a.WorkflowID)); err != nil {
		return "", nil, refuse("WorkflowID: %v", err)
	}
	if w.Owner, err = workflow.NormalizeOwner(strings.ToLower(a.WorkflowOwner)); err != nil {
		return "", nil, refuse("WorkflowOwner: %v", err)
	}
	switch {
	case a.URL == "":
		return "", nil, refuse("URL is empty")
	case a.Timeout < 0 || a.MaxBytes < 0 || a.Cache.MaxAge < 0:
		return "", nil, refuse("Timeout, MaxBytes or Cache.MaxAge is negative")
	case !isSegment(a.ExecutionID):
		return "", nil, refuse("ExecutionID is not 0 to %d visible ASCII characters without '/'", MaxExecutionIDBytes)
	}
	w.MaxBytes = readableBody(maxRead)
	if a.MaxBytes > 0 {
		w.MaxBytes = min(w.MaxBytes, a.MaxBytes)
	}
	w.Headers, w.MultiHeaders = wireHeader(a.Header)
	if c := a.ClientCertificate; c != nil {
		w.MTLS = &wireMTLS{PrivateKey: c.KeyPEM, Certificate: c.CertPEM}
	}
	result, err := json.Marshal(&w, json.Deterministic(true))
	if err != nil { // nothing else can fail; the error's text would quote a header
		return "", nil, refuse("URL, Method or Header is not valid UTF-8")
	}
	id = methodAction + "/" + w.WorkflowID
	if a.ExecutionID != "" {
		id += "/" + a.ExecutionID
	}
	id += "/" + uuid.NewString()
	return id, jsonrpc.AppendResult(make([]byte, 0, len(result)+2*len(id)), id, methodAction, result), nil
}

// milliseconds rounds up, so that a little is not nothing.
func milliseconds(d time.Duration) int64 {
	return int64(d/time.Millisecond) + min(1, int64(d%time.Millisecond))
}

// readableBody is the longest body, in base64 in the message, that a connector reading maxRead bytes can take.
func readableBody(maxRead int64) int64 {
	room := maxRead - answerOverhead
	if room < maxRead/2 {
		room = maxRead / 2
	}
	return min(max(room/4*3, 1), math.MaxUint32)
}

func isSegment(s string) bool {
	return len(s) <= MaxExecutionIDBytes && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

// wireHeader uses the form with one value per name, which gateways of every age read, unless a name has several.
func wireHeader(h http.Header) (single map[string]string, multi http.Header) {
	several := false
	for name, values := range h {
		switch {
		case len(values) == 0:
			continue
		case single == nil:
			single, multi = map[string]string{}, http.Header{}
		}
		single[name], multi[name] = values[0], values
		several = several || len(values) > 1
	}
	if several {
		return nil, multi
	}
	return single, nil
}

// wireAnswer is the params of the gateway's message.
type wireAnswer struct {
	ErrorMessage string              `json:"errorMessage"`
	External     bool                `json:"isExternalEndpointError"`
	Validation   bool                `json:"isValidationError"`
	StatusCode   int                 `json:"statusCode"`
	Headers      map[string]string   `json:"headers"`
	MultiHeaders map[string][]string `json:"multiHeaders"`
	Body         []byte              `json:"body"`
	Latency      int64               `json:"externalEndpointLatency"`
}

// decodeActionAnswer reads the params of a gateway's answer. The error is an *ActionError or wraps ErrUnreadableAnswer,
// without anything of what the endpoint sent.
func decodeActionAnswer(params jsontext.Value) (*ActionResponse, error) {
	var w *wireAnswer
	if err := json.Unmarshal(params, &w); err != nil {
		return nil, fmt.Errorf("connector: %w: its params are not an object with the protocol's members", ErrUnreadableAnswer)
	}
	switch {
	case w == nil:
		return nil, fmt.Errorf("connector: %w: it has no params", ErrUnreadableAnswer)
	case w.Validation, w.External, w.StatusCode == 0 && w.ErrorMessage != "":
		message := w.ErrorMessage
		if len(message) > maxActionMessage {
			message = strings.ToValidUTF8(message[:maxActionMessage-3], "") + "..."
		}
		return nil, &ActionError{Validation: w.Validation, External: w.External, Message: message}
	case w.StatusCode < 100 || w.StatusCode > 999:
		return nil, fmt.Errorf("connector: %w: its status is %d", ErrUnreadableAnswer, w.StatusCode)
	}
	r := &ActionResponse{StatusCode: w.StatusCode, Header: http.Header{}, Body: w.Body, Latency: time.Duration(max(w.Latency, 0))}
	if len(w.MultiHeaders) == 0 {
		for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
			r.Header.Add(name, w.Headers[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.MultiHeaders)) { // sorted: two spellings of one name end up in one order
		for _, value := range w.MultiHeaders[name] {
			r.Header.Add(name, value)
		}
	}
	return r, nil
}
