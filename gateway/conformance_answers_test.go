package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// conformance: 2.answer.json
func TestEveryAnswerHasTheConfiguredType(t *testing.T) {
	t.Parallel()
	const contentType = "application/json; charset=utf-8"
	r := newRig(t, rigSpec{user: map[string]any{"contentTypeHeader": contentType, "maxRequestBytes": 4096}})
	w := theWorkflow()
	r.connectAll(nil, w)
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	for name, tt := range map[string]struct {
		method, path, body string
		header             http.Header
		status             int
	}{
		"result":    {http.MethodPost, "/", string(s.body), s.header(), 200},
		"batch":     {http.MethodPost, "/", `[{}]`, nil, 200},
		"no JSON":   {http.MethodPost, "/", `{`, nil, 400},
		"token":     {http.MethodPost, "/", `{}`, http.Header{"Authorization": {"Bearer x"}}, 401},
		"path":      {http.MethodPost, "/nowhere", `{}`, nil, 404},
		"method":    {http.MethodPut, "/", `{}`, nil, 405},
		"too large": {http.MethodPost, "/", strings.Repeat(" ", 5000), nil, 413},
		"encoding":  {http.MethodPost, "/", `{}`, http.Header{"Content-Encoding": {"gzip"}}, 415},
	} {
		req, err := http.NewRequest(tt.method, "http://gateway"+tt.path, strings.NewReader(tt.body))
		require.NoError(t, err)
		if tt.header != nil {
			req.Header = tt.header
		}
		a, err := r.do(req)
		require.NoError(t, err)
		require.Equal(t, tt.status, a.status, "%s: %s", name, a.raw)
		require.Equal(t, []string{contentType}, a.header.Values("Content-Type"), name)
		require.True(t, json.Valid(a.raw), "%s: %s", name, a.raw)
		require.Contains(t, string(a.raw), `"jsonrpc":"2.0"`, name)
	}
}

// conformance: 2.http.invalid
func TestInvalidHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	refused := regexp.MustCompile(`^(HTTP/1\.[01] (4\d\d|501|505) |$)`)
	for _, raw := range []string{
		"nonsense\r\n\r\n",
		"POST / HTTP/1.1\r\n\r\n", // no host
		"POST / HTTP/3.0\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.x\r\nHost: x\r\n\r\n",
		"P\x00ST / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n", // TLS
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", r.srv.Address(UserListener))
		require.NoError(t, err)
		_, err = io.WriteString(conn, raw)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		got, err := io.ReadAll(conn)
		require.NoError(t, err, "%q: no answer and no close", raw)
		require.Regexp(t, refused, string(got), "%q", raw)
		require.NoError(t, conn.Close())
	}
}

// conformance: 2.params.unknown
func TestUnknownMembersAreSigned(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	const params = `{"input":[1],"workflow":{"workflowID":"1","more":1},"key":{"publicKey":"0x01"},"note":"a"}`
	for _, change := range []string{`"0x01"|"0x02"`, `"note":"a"|"note":"b"`, `"more":1|"more":2`, `"note":"a"|"mote":"a"`} {
		s := sign("", params, clientSigner, auth.TokenOptions{})
		from, to, _ := strings.Cut(change, "|")
		s.body = []byte(strings.Replace(string(s.body), from, to, 1))
		a := r.send(s)
		require.Equal(t, "unauthorized", a.reason(), "%s: %s", change, a.raw)
		require.Contains(t, a.body.Error.Message, "digest")
	}
	require.Equal(t, 200, r.send(sign("", params, clientSigner, auth.TokenOptions{})).status)
	r.eventually(func() bool { return nodes[0].seen()+nodes[1].seen() > 0 }, "the request is dispatched")
	for _, n := range nodes {
		n.mu.Lock()
		for _, raw := range n.raw {
			require.NotContains(t, string(raw), "note")
			require.NotContains(t, string(raw), "more")
			require.NotContains(t, string(raw), "0x01")
			require.Contains(t, string(raw), `"publicKey":"`+address(clientSigner)+`"`)
		}
		n.mu.Unlock()
	}
}

// conformance: 2.error.agreed
func TestAgreedErrorIsAnsweredAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(func(n *testNode, req jsonrpc.Request) {
		n.send(jsonrpc.AppendNodeError(nil, req.ID, req.Method, &jsonrpc.Error{Code: 1234, Message: "no such input", Data: []byte(`{"field":"n","got":1.50}`)}))
	}, w)
	a := r.trigger(w, "failing")
	require.Equal(t, 200, a.status)
	require.Equal(t, `{"jsonrpc":"2.0","id":"failing","method":"workflows.execute","error":{"code":1234,"message":"no such input","data":{"field":"n","got":1.50}}}`, string(a.raw))
}

// conformance: 2.data.conflict-other
func TestConflictTellsAnotherSignerNothing(t *testing.T) {
	t.Parallel()
	second := auth.NewKeySigner(key(555))
	w := testWorkflow(1, "one", "v1", clientSigner, second)
	r := newRig(t, rigSpec{})
	r.connectAll(say("SECRET"), w)
	params := paramsFor(w, []int{1})
	require.Equal(t, 200, r.send(sign("id", params, clientSigner, auth.TokenOptions{})).status)
	a := r.send(sign("id", params, second, auth.TokenOptions{}))
	require.Equal(t, 409, a.status)
	require.Equal(t, -32001, a.body.Error.Code)
	require.Contains(t, string(a.raw), `"data":{"reason":"conflict"}}}`)
	require.NotContains(t, string(a.raw), "SECRET")
	require.NotContains(t, string(a.raw), address(clientSigner))
}

// conformance: 2.timeout.complete
func TestTimeoutAnswerIsComplete(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]map[string]any{
		"maxTriggerRequestDurationMs": {"writeTimeoutMillis": 100},
		"requestTimeoutMillis":        {"writeTimeoutMillis": 1, "requestTimeoutMillis": 9000, "readTimeoutMillis": 50},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true, user: user, handler: map[string]any{"maxTriggerRequestDurationMs": 30_000}})
				require.NotEmpty(t, r.cfg.Warnings)
				w := theWorkflow()
				r.connectAll(silent, w)
				a, took := r.took(w)
				require.Equal(t, 504, a.status)
				require.Equal(t, "timeout", a.reason())
				require.Equal(t, []shardState{{Threshold: 3, Connected: 4, Groups: []int{}}}, a.body.Error.Data.Shards)
				require.GreaterOrEqual(t, took, 9*time.Second)
			})
		})
	}
}

// wrongRequests is one request for each way to be refused, with a piece of what
// its message must say.
func wrongRequests(w map[string]any) []struct{ body, says string } {
	execute := func(params string) string {
		return `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":` + params + `}`
	}
	long := strings.Repeat("y", 3000)
	selector := func(members string) string { return execute(`{"input":{},"workflow":{` + members + `}}`) }
	return []struct{ body, says string }{
		{`{`, "byte 1"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}", "UTF-8"},
		{`{"jsonrpc":"1.0","id":"1","method":"m","params":{}}`, `jsonrpc is not "2.0"`},
		{`{"jsonrpc":"2.0","id":17,"method":"m","params":{}}`, "id"},
		{`{"jsonrpc":"2.0","id":"a/b","method":"m","params":{}}`, "contains '/'"},
		{`{"jsonrpc":"2.0","id":"1","method":"m","params":{"aa":1,"aa":2}}`, "aa"},
		{`{"jsonrpc":"2.0","id":"1","method":"m","params":` + nest(70) + `}`, "71"},
		{`{"jsonrpc":"2.0","id":"1","method":"workflows.stop","params":{}}`, `"workflows.stop": use workflows.execute`},
		{`{"jsonrpc":"2.0","id":"1","method":"` + long + `","params":{}}`, "yyy"},
		{execute(`[]`), "array"},
		{execute(`{"input":17,"workflow":{"workflowID":"1"}}`), "17"},
		{execute(`{"input":[9007199254740993],"workflow":{"workflowID":"1"}}`), "9007199254740993"},
		{selector(`"workflowID":"XYZ"`), "XYZ"},
		{selector(`"workflowID":17`), "17"},
		{selector(`"workflowID":{"a":1}`), "object"},
		{selector(`"workflowID":"` + long + `"`), "3000"},
		{selector(`"workflowOwner":"7","workflowName":"` + long + `","workflowTag":"t"`), "3000"},
		{selector(`"workflowOwner":"7","workflowName":"n","workflowTag":""`), "workflowTag"},
		{selector(`"workflowID":"abcdef"`), "abcdef"},
		{selector(`"workflowOwner":"7","workflowName":"some name","workflowTag":"some tag"`), `"some name"`},
		{execute(string(mustJSON(w))), "JWT missing"},
	}
}

// conformance: 2.error.says
func TestMessagesSayWhatWasWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"maxRequestBytes": 5000}})
	w := theWorkflow()
	r.connectAll(nil, w)
	for _, tt := range wrongRequests(paramsFor(w, []int{1})) {
		a := r.postBody(tt.body)
		require.NotNil(t, a.body.Error, "%s", a.raw)
		require.Contains(t, a.body.Error.Message, tt.says)
	}
	a := r.postBody(strings.Repeat(" ", 6000))
	require.Contains(t, a.body.Error.Message, "5000 bytes (maxRequestBytes)")
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	other := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	a = r.send(signed{s.body, other.token})
	require.Regexp(t, `^Auth failure: JWT digest 0x[0-9a-f]{64} does not match the request, whose digest is 0x[0-9a-f]{64}: sign`, a.body.Error.Message)
	stranger := auth.NewKeySigner(key(77))
	a = r.send(sign("", paramsFor(w, []int{1}), stranger, auth.TokenOptions{}))
	require.Contains(t, a.body.Error.Message, address(stranger))
}

// conformance: 2.error.private
func TestMessagesCarryNothingPrivate(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	tenant := testWorkflow(2, "another tenant's", "v1", auth.NewKeySigner(key(4711)))
	r.connectAll(nil, w, tenant)
	private := regexp.MustCompile(`goroutine |\.go\b|/(src|usr|root|home|var|tmp|go)/|\bdongate\b|\bjson: |jsontext|jsonwire|jwt\.|runtime|reflect|unmarshal|Go (struct|value|type)|map\[|&\{|%!|\berr(or)?: `)
	var secrets []string
	for _, nodes := range r.shards {
		for _, s := range nodes {
			secrets = append(secrets, address(s))
		}
	}
	secrets = append(secrets, "another tenant", address(auth.NewKeySigner(key(4711))))
	check := func(a *clientAnswer, token string) {
		require.NotNil(t, a.body.Error, "%s", a.raw)
		message := a.body.Error.Message
		require.NotRegexp(t, private, message)
		require.LessOrEqual(t, len(message), 400, message)
		for _, secret := range secrets {
			require.NotContains(t, strings.ToLower(string(a.raw)), secret)
		}
		for _, part := range strings.Split(token, ".") {
			if len(part) > 10 {
				require.NotContains(t, string(a.raw), part)
			}
		}
	}
	for _, tt := range wrongRequests(paramsFor(w, []int{1})) {
		check(r.postBody(tt.body), "")
	}
	good := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	parts := strings.Split(good.token, ".")
	for _, token := range []string{
		good.token + "A", good.token + "=", parts[0] + "." + parts[1], parts[1] + "." + parts[0] + "." + parts[2],
		parts[0] + "." + parts[1][1:] + "." + parts[2], parts[0] + "." + parts[1] + "." + parts[2][:40],
		parts[0] + "." + parts[1] + "." + strings.Repeat("_", 87),
		sign("x", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{}).token,
		craft(clientSigner, `{"alg":"ETH","typ":"JWT","alg":"ETH"}`, `{}`),
		craft(clientSigner, `{"alg":"ETH"}`, `{"digest":7}`),
		craft(clientSigner, `{"alg":"ETH"}`, `[{"digest":7}]`),
		craft(clientSigner, `{"alg":"ETH"}`, `{"iat":"now","exp":1e999}`),
		craft(clientSigner, `{"alg":{}}`, `{}`),
	} {
		a := r.send(signed{good.body, token})
		require.Equal(t, "unauthorized", a.reason(), "%s", a.raw)
		check(a, token)
	}
	stranger := sign("", `{"input":{},"workflow":{"workflowID":"2"}}`, clientSigner, auth.TokenOptions{})
	check(r.send(stranger), stranger.token)

	split := newRig(t, rigSpec{handler: map[string]any{"noQuorumGraceMs": 1}})
	for i := range 4 {
		split.connect("don", i, []workflow.Metadata{w}, say(fmt.Sprint("SECRET", i)))
	}
	split.awaitWorkflow(w.Selector.WorkflowID)
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	a, err := split.post(context.Background(), s.body, s.header())
	require.NoError(t, err)
	require.Equal(t, "no_quorum", a.reason())
	require.NotContains(t, string(a.raw), "SECRET")
	check(a, s.token)
}

// conformance: 2.cors.vary
// conformance: 2.cors.disallowed
func TestEveryAnswerVariesByOrigin(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"corsEnabled": true, "corsAllowedOrigins": []string{"https://app.example.org", "https://*.example.com"}}})
	w := theWorkflow()
	r.connectAll(nil, w)
	for origin, allowed := range map[string]bool{
		"": false, "https://app.example.org": true, "https://a.example.com": true, "https://example.com": false, "https://evilexample.com": false, "null": false,
	} {
		for _, good := range []bool{true, false} {
			s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
			h, status := s.header(), 200
			if !good {
				h, status = http.Header{}, 401
			}
			if origin != "" {
				h.Set("Origin", origin)
			}
			a, err := r.post(context.Background(), s.body, h)
			require.NoError(t, err)
			require.Equal(t, status, a.status, "a request is served whatever its origin")
			require.Contains(t, strings.Join(a.header.Values("Vary"), ","), "Origin", origin)
			for name := range a.header {
				if !allowed {
					require.False(t, strings.HasPrefix(name, "Access-Control"), "%s: %s", origin, name)
				}
			}
			if allowed {
				require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"))
			}
		}
	}
}
