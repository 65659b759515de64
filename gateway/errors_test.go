package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/workflow"
)

// errorRow is one row of the table of protocol §2.
type errorRow struct {
	name   string
	body   string
	header http.Header
	method string
	path   string
	code   int
	status int
	reason string
	id     any    // "": null
	text   string // prefix of the message
}

// conformance: 2.error.parse
// conformance: 2.error.too-large
// conformance: 2.error.envelope
// conformance: 2.error.params
// conformance: 2.error.method
// conformance: 2.error.http
// conformance: 2.error.workflow
// conformance: 2.error.unauthorized
// conformance: 2.error.texts
// conformance: 2.answer.json
// conformance: 1.content-encoding
// conformance: 1.limit.body
// conformance: 2.error.id
// conformance: 1.envelope.one
// conformance: 1.envelope.types
// conformance: 1.names.case
// conformance: 1.names.duplicates
// conformance: 1.text.unicode
// conformance: 1.nesting
// conformance: 1.limit.id
// conformance: 1.limit.method
// conformance: 1.limit.params
// conformance: 1.numbers.inexact
func TestErrorTable(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"maxRequestBytes": 4096}})
	w := theWorkflow()
	r.connectAll(nil, w)
	good := sign("id-1", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	stranger := auth.NewKeySigner(key(77))
	now := time.Now()
	signedParams := func(params string) errorRow {
		s := sign("id-1", params, clientSigner, auth.TokenOptions{})
		return errorRow{body: string(s.body), header: s.header(), id: "id-1"}
	}
	invalidParams := func(name, params string) errorRow {
		row := signedParams(params)
		row.name, row.code, row.status, row.reason = name, -32602, 400, "invalid_params"
		return row
	}
	tokenRow := func(name string, s signed) errorRow {
		return errorRow{name: name, body: string(s.body), header: s.header(), code: -32600, status: 401, reason: "unauthorized", text: "Auth failure: "}
	}
	parse := func(name, body string) errorRow {
		return errorRow{name: name, body: body, code: -32700, status: 400, reason: "parse_error"}
	}
	invalid := func(name, body string, id any) errorRow {
		return errorRow{name: name, body: body, code: -32600, status: 400, reason: "invalid_request", id: id}
	}
	wf := `"workflow":{"workflowID":"1"}`
	rows := []errorRow{
		parse("empty body", ""),
		parse("not JSON", "{"),
		parse("trailing data", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":{}} {}`),
		parse("invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"method\":\"m\",\"params\":{\"a\":\"\xff\"}}"),
		parse("lone surrogate", `{"jsonrpc":"2.0","id":"1","method":"m","params":{"a":"\ud83d"}}`),
		invalid("a number", `1`, nil),
		invalid("duplicate names", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":{"a":1,"a":2}}`, "1"),
		invalid("depth", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`}`, "1"),
		invalid("version", `{"jsonrpc":"1.0","id":"1","method":"workflows.execute","params":{}}`, "1"),
		invalid("params missing", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute"}`, "1"),
		invalid("params null", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":null}`, "1"),
		invalid("numeric id", `{"jsonrpc":"2.0","id":1,"method":"workflows.execute","params":{}}`, nil),
		invalid("empty id", `{"jsonrpc":"2.0","id":"","method":"workflows.execute","params":{}}`, ""),
		invalid("slash in id", `{"jsonrpc":"2.0","id":"a/b","method":"workflows.execute","params":{}}`, "a/b"),
		invalid("long id", `{"jsonrpc":"2.0","id":"`+strings.Repeat("x", 201)+`","method":"workflows.execute","params":{}}`, strings.Repeat("x", 201)),
		invalid("empty method", `{"jsonrpc":"2.0","id":"1","method":"","params":{}}`, "1"),
		invalid("wrong case of names", `{"jsonrpc":"2.0","ID":"1","method":"m","params":{}}`, nil),
		{name: "too large", body: strings.Repeat(" ", 5000), code: -32600, status: 413, reason: "too_large"},
		{name: "content encoding", body: string(good.body), header: http.Header{"Content-Encoding": {"gzip"}}, code: -32600, status: 415, reason: "invalid_request"},
		{name: "unknown method", body: `{"jsonrpc":"2.0","id":"1","method":"workflows.stop","params":{}}`, code: -32601, status: 400, reason: "method_not_found", id: "1"},
		{name: "unknown service", body: `{"jsonrpc":"2.0","id":"1","method":"vault.get","params":{}}`, code: -32601, status: 400, reason: "method_not_found", id: "1"},
		{name: "unknown path", path: "/other", body: string(good.body), code: -32600, status: 404, reason: "invalid_request"},
		{name: "GET", method: http.MethodGet, code: -32600, status: 405, reason: "invalid_request"},
		{name: "OPTIONS without CORS", method: http.MethodOptions, code: -32600, status: 405, reason: "invalid_request"},
		invalidParams("params an array", `[]`),
		invalidParams("no input", `{`+wf+`}`),
		invalidParams("input null", `{"input":null,`+wf+`}`),
		invalidParams("input scalar", `{"input":"x",`+wf+`}`),
		invalidParams("no workflow", `{"input":{}}`),
		invalidParams("empty selector", `{"input":{},"workflow":{}}`),
		invalidParams("name without owner", `{"input":{},"workflow":{"workflowName":"n","workflowTag":"t"}}`),
		invalidParams("upper-case id", `{"input":{},"workflow":{"workflowID":"0xAB"}}`),
		invalidParams("id of 65 digits", `{"input":{},"workflow":{"workflowID":"`+strings.Repeat("1", 65)+`"}}`),
		invalidParams("empty id", `{"input":{},"workflow":{"workflowID":"0x"}}`),
		invalidParams("name of 65 bytes", `{"input":{},"workflow":{"workflowOwner":"7","workflowName":"`+strings.Repeat("n", 65)+`","workflowTag":"t"}}`),
		invalidParams("tag of 33 bytes", `{"input":{},"workflow":{"workflowOwner":"7","workflowName":"n","workflowTag":"`+strings.Repeat("t", 33)+`"}}`),
		invalidParams("2^53+1", `{"input":{"n":9007199254740993},`+wf+`}`),
		invalidParams("1e400", `{"input":[1e400],`+wf+`}`),
		invalidParams("long fraction", `{"input":[3.141592653589793238462643383279],`+wf+`}`),
		{name: "workflow unknown", body: string(sign("id-1", `{"input":{},"workflow":{"workflowID":"2"}}`, clientSigner, auth.TokenOptions{}).body), id: "id-1",
			code: -32602, status: 404, reason: "workflow_not_found", text: "Workflow not found"},
		{name: "token missing", body: string(good.body), id: "id-1", code: -32600, status: 401, reason: "unauthorized", text: "Auth failure: "},
		{name: "token malformed", body: string(good.body), header: http.Header{"Authorization": {"Bearer x.y.z"}}, code: -32600, status: 401, reason: "unauthorized", text: "Auth failure: "},
		{name: "two tokens", body: string(good.body), header: http.Header{"Authorization": {"Bearer " + good.token, "Bearer " + good.token}}, code: -32600, status: 401, reason: "unauthorized", text: "Auth failure: "},
		tokenRow("token expired", sign("id-1", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{Now: now.Add(-10 * time.Minute)})),
		tokenRow("issued in the future", sign("id-1", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{Now: now.Add(6 * time.Minute)})),
	}
	other := sign("id-2", paramsFor(w, []int{2}), clientSigner, auth.TokenOptions{})
	wrongDigest := tokenRow("token of another request", signed{good.body, other.token})
	wrongDigest.id = "id-1"
	foreign := tokenRow("signer not authorised", sign("id-1", paramsFor(w, []int{1}), stranger, auth.TokenOptions{}))
	foreign.id = "id-1"
	rows = append(rows, wrongDigest, foreign)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			checkRow(t, r, row)
		})
	}
}

func checkRow(t *testing.T, r *rig, row errorRow) {
	t.Helper()
	method, path := row.method, row.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = r.cfg.UserServer.Path
	}
	req, err := http.NewRequest(method, "http://gateway"+path, strings.NewReader(row.body))
	require.NoError(t, err)
	if row.header != nil {
		req.Header = row.header
	}
	a, err := r.do(req)
	require.NoError(t, err)
	require.NotNil(t, a.body.Error, "%s", a.raw)
	require.Equal(t, row.code, a.body.Error.Code, "%s", a.raw)
	require.Equal(t, row.status, a.status, "%s", a.raw)
	require.Equal(t, row.reason, a.reason(), "%s", a.raw)
	require.Equal(t, "2.0", a.body.JSONRPC)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	if row.id == nil {
		require.Nil(t, a.body.ID, "%s", a.raw)
		require.Contains(t, string(a.raw), `"id":null`)
	} else {
		require.Equal(t, row.id, *a.body.ID)
	}
	require.True(t, strings.HasPrefix(a.body.Error.Message, row.text), a.body.Error.Message)
	require.NotEmpty(t, a.body.Error.Message)
	switch row.status {
	case http.StatusUnauthorized:
		require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
	case http.StatusMethodNotAllowed:
		require.Equal(t, "POST", a.header.Get("Allow"))
	}
}

// conformance: 2.error.replayed
// conformance: 2.order.jti-first
// conformance: 2.token.member-wins
func TestReplayAndAuthMember(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	accept := (*testNode).accept // three of four: each is needed, so each is sent every request
	nodes := r.connectEach("don", []workflow.Metadata{w}, accept, accept, accept, nil)
	r.awaitWorkflow(w.Selector.WorkflowID)
	s := sign("id-1", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	require.Equal(t, 200, r.send(s).status)
	a := r.send(s)
	require.Equal(t, 401, a.status)
	require.Equal(t, "token_replayed", a.reason())
	require.True(t, strings.HasPrefix(a.body.Error.Message, "Auth failure: JWT token has already been used"))

	other := sign("id-2", paramsFor(w, []int{2}), clientSigner, auth.TokenOptions{})
	inBody := bytes.Replace(other.body, []byte(`{"jsonrpc"`), []byte(`{"auth":"`+other.token+`","jsonrpc"`), 1)
	got, err := r.post(context.Background(), inBody, s.header()) // header: a used token for another request
	require.NoError(t, err)
	require.Equal(t, 200, got.status, "%s", got.raw)
	r.eventually(func() bool { return nodes[0].seen() == 2 }, "both dispatched")
}

// conformance: 1.batch.answer
// conformance: 1.batch.element
// conformance: 1.batch.refused
func TestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"maxBatch": 5}, handler: map[string]any{
		"userRateLimiter": map[string]any{"perSenderRPS": 0.001, "perSenderBurst": 2}}})
	w := theWorkflow()
	r.connectAll(nil, w)
	withAuth := func(s signed) string {
		return strings.Replace(string(s.body), `{"jsonrpc"`, `{"auth":"`+s.token+`","jsonrpc"`, 1)
	}
	one := func(id string) string {
		return withAuth(sign(id, paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{}))
	}
	body := "[" + strings.Join([]string{one("a"), `{"jsonrpc":"2.0","id":"b","method":"x","params":{}}`, `7`,
		`{"jsonrpc":"2.0","id":"c","method":"m","params":{"a":1,"a":1}}`, one("d")}, ",") + "]"
	a, err := r.post(context.Background(), []byte(body), nil)
	require.NoError(t, err)
	require.Equal(t, 200, a.status)
	require.Regexp(t, `^\[\{.*"id":"a".*"result".*\},\{.*"id":"b".*-32601.*\},\{.*"id":null.*-32600.*\},\{.*"id":"c".*-32600.*\},\{.*"id":"d".*"result".*\}\]$`, string(a.raw))

	a, err = r.post(context.Background(), []byte("["+one("e")+"]"), nil)
	require.NoError(t, err)
	require.Equal(t, 200, a.status)
	require.Contains(t, string(a.raw), `"reason":"rate_limited"`)
	require.Contains(t, string(a.raw), `"retryAfterMs":`)
	require.Empty(t, a.header.Get("Retry-After"))

	s := sign("id-1", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	for name, tt := range map[string]struct {
		body   string
		header http.Header
	}{
		"empty":        {"[]", nil},
		"nested":       {"[" + one("f") + ",[]]", nil},
		"oversize":     {"[1,2,3,4,5,6]", nil},
		"header token": {"[" + one("g") + "]", s.header()},
	} {
		a, err := r.post(context.Background(), []byte(tt.body), tt.header)
		require.NoError(t, err)
		require.Equal(t, 400, a.status, name)
		require.Equal(t, -32600, a.body.Error.Code, name)
		require.Nil(t, a.body.ID, name)
	}
	a, err = r.post(context.Background(), []byte(`[{"jsonrpc":"2.0"},`), nil)
	require.NoError(t, err)
	require.Equal(t, 400, a.status)
	require.Equal(t, -32700, a.body.Error.Code)
}

// conformance: 2.order.header-token
func TestBadHeaderTokenIsRefusedBeforeTheBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	expired := sign("a", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{Now: time.Now().Add(-time.Hour)}).token
	wrongAlg := "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9" + expired[strings.Index(expired, "."):]
	for name, token := range map[string]string{"malformed": "abc", "expired": expired, "alg": wrongAlg} {
		conn, err := net.Dial("tcp", r.srv.Address(UserListener))
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n", token)
		require.NoError(t, err)
		// Not a byte of the body is sent: the answer must come all the same.
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		raw, err := io.ReadAll(conn)
		require.NoError(t, err, name)
		require.Contains(t, string(raw), "HTTP/1.1 401 ", name)
		require.Contains(t, string(raw), `"reason":"unauthorized"`, name)
		require.NoError(t, conn.Close())
	}
}

// conformance: 2.http.headers
// conformance: 2.http.invalid
func TestHeaderCap(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	for size, want := range map[int]int{31 << 10: 405, 33 << 10: 431} {
		req, err := http.NewRequest(http.MethodGet, "http://gateway/", nil)
		require.NoError(t, err)
		req.Header.Set("X-Fill", strings.Repeat("x", size))
		resp, err := r.client.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, size)
	}
	conn, err := net.Dial("tcp", r.srv.Address(UserListener))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "this is not HTTP\r\n\r\n")
	require.NoError(t, err)
	raw, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(raw), "400 Bad Request")
}

// conformance: 2.health
func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	get := func() (int, string) {
		resp, err := r.client.Get("http://gateway/health")
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	status, body := get()
	require.Equal(t, 200, status)
	require.Equal(t, "OK", body)
	r.srv.leave()
	r.srv.draining.Store(true)
	status, _ = get()
	require.Equal(t, 503, status)
	a, err := r.post(context.Background(), []byte(`{}`), nil)
	require.NoError(t, err)
	require.Equal(t, 503, a.status)
	require.Equal(t, "draining", a.reason())
	require.NotEmpty(t, a.header.Get("Retry-After"))
}

// conformance: 2.cors.vary
// conformance: 2.cors.disallowed
// conformance: 2.cors.preflight
func TestCORS(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"corsEnabled": true, "corsAllowedOrigins": []string{"https://app.example.org"}}})
	preflight := func(origin string) *http.Response {
		req, err := http.NewRequest(http.MethodOptions, "http://gateway/", nil)
		require.NoError(t, err)
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type,traceparent,x-request-id")
		resp, err := r.client.Do(req)
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp
	}
	resp := preflight("https://app.example.org")
	require.Equal(t, "https://app.example.org", resp.Header.Get("Access-Control-Allow-Origin"))
	for _, h := range []string{"authorization", "content-type", "x-request-id", "traceparent"} {
		require.Contains(t, strings.ToLower(resp.Header.Get("Access-Control-Allow-Headers")), h)
	}
	require.Contains(t, resp.Header.Get("Vary"), "Origin")
	resp = preflight("https://evil.example")
	for h := range resp.Header {
		require.False(t, strings.HasPrefix(h, "Access-Control"), h)
	}
	a, err := r.post(context.Background(), []byte(`{}`), http.Header{"Origin": {"https://app.example.org"}})
	require.NoError(t, err)
	require.Equal(t, "https://app.example.org", a.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, a.header.Get("Vary"), "Origin")
	a, err = r.post(context.Background(), []byte(`{}`), http.Header{"Origin": {"https://evil.example"}})
	require.NoError(t, err)
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}
