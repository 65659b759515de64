package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
)

// inBody is the request with its token in the member `auth`.
func (s signed) inBody() string {
	return strings.Replace(string(s.body), `{"jsonrpc"`, `{"auth":"`+s.token+`","jsonrpc"`, 1)
}

// postBody sends a body without any header of ours.
func (r *rig) postBody(body string) *clientAnswer {
	r.t.Helper()
	a, err := r.post(context.Background(), []byte(body), nil)
	require.NoError(r.t, err)
	return a
}

// elements decodes the answer to a batch.
func elements(t *testing.T, a *clientAnswer) []clientAnswer {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, "%s", a.raw)
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal(a.raw, &raw), "%s", a.raw)
	out := make([]clientAnswer, len(raw))
	for i, el := range raw {
		out[i].raw = el
		require.NoError(t, json.Unmarshal(el, &out[i].body))
	}
	return out
}

// nest is n arrays inside each other.
func nest(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// conformance: 1.limit.id
func TestRequestIDBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(nil, w)
	for id, status := range map[string]int{
		"x":                            200,
		strings.Repeat("x", 200):       200,
		strings.Repeat("é", 100):       200, // 200 bytes
		strings.Repeat("x", 201):       400,
		strings.Repeat("é", 100) + "x": 400, // 101 characters, 201 bytes
		"a/b":                          400,
		"/":                            400,
	} {
		a := r.trigger(w, id)
		require.Equal(t, status, a.status, "%s", a.raw)
		require.Equal(t, id, *a.body.ID)
		if status != 200 {
			require.Equal(t, "invalid_request", a.reason())
		}
	}
}

// conformance: 1.limit.body
// conformance: 2.error.too-large
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	const limit = 2048
	r := newRig(t, rigSpec{user: map[string]any{"maxRequestBytes": limit}})
	w := theWorkflow()
	r.connectAll(nil, w)
	for _, chunked := range []bool{false, true} {
		for size, status := range map[int]int{limit: 200, limit + 1: 413} {
			s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
			var body io.Reader = bytes.NewReader(append(s.body, bytes.Repeat([]byte{' '}, size-len(s.body))...))
			if chunked {
				body = io.MultiReader(body) // of unknown length
			}
			req, err := http.NewRequest(http.MethodPost, "http://gateway/", body)
			require.NoError(t, err)
			req.Header = s.header()
			a, err := r.do(req)
			require.NoError(t, err)
			require.Equal(t, status, a.status, "%d bytes, chunked %v: %s", size, chunked, a.raw)
			if status == 413 {
				require.Equal(t, "too_large", a.reason())
				require.Equal(t, -32600, a.body.Error.Code)
				require.Nil(t, a.body.ID)
			}
		}
	}
}

// conformance: 1.nesting
func TestNestingIsCountedFromTheEnvelope(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(nil, w)
	// The envelope is level 1, params 2, so input may have 62 levels.
	request := func(id string, levels int) signed {
		return sign(id, `{"input":`+nest(levels)+`,"workflow":{"workflowID":"1"}}`, clientSigner, auth.TokenOptions{})
	}
	require.Equal(t, 200, r.send(request("at the limit", 62)).status)
	a := r.send(request("deeper", 63))
	require.Equal(t, 400, a.status)
	require.Equal(t, "invalid_request", a.reason())
	require.Equal(t, "deeper", *a.body.ID)

	// The array around a batch is no level of any element's.
	got := elements(t, r.postBody("["+request("first", 62).inBody()+","+request("second", 63).inBody()+"]"))
	require.Equal(t, "ok", got[0].reason(), "%s", got[0].raw)
	require.Equal(t, "invalid_request", got[1].reason())
}

// conformance: 1.content-encoding
func TestContentEncodingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(nil, w)
	for _, encoding := range []string{"gzip", "identity", "br, gzip", ""} {
		s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		h := s.header()
		h["Content-Encoding"] = []string{encoding}
		a, err := r.post(context.Background(), s.body, h)
		require.NoError(t, err)
		require.Equal(t, 415, a.status, "%q: %s", encoding, a.raw)
		require.Equal(t, "invalid_request", a.reason())
		require.Equal(t, -32600, a.body.Error.Code)
		require.Equal(t, 200, r.send(s).status, "the token is not used up")
	}
}

// conformance: 1.batch.concurrent
func TestBatchElementsRunConcurrently(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		slow := func(n *testNode, req jsonrpc.Request) { time.AfterFunc(5*time.Second, func() { n.accept(req) }) }
		r.connectAll(slow, w)
		var batch []string
		for i := range 10 {
			batch = append(batch, sign(fmt.Sprint(i), paramsFor(w, []int{i}), clientSigner, auth.TokenOptions{}).inBody())
		}
		start := time.Now()
		got := elements(t, r.postBody("["+strings.Join(batch, ",")+"]"))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Len(t, got, 10)
		for i := range got {
			require.Equal(t, "ok", got[i].reason(), "%s", got[i].raw)
			require.Equal(t, fmt.Sprint(i), *got[i].body.ID)
		}
	})
}

// conformance: 1.batch.element
func TestBatchElementsCarryTheirOwnTokens(t *testing.T) {
	t.Parallel()
	second := auth.NewKeySigner(key(555))
	w1, w2 := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", second)
	r := newRig(t, rigSpec{})
	r.connectAll(nil, w1, w2)
	mine := sign("mine", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{})
	theirs := sign("theirs", paramsFor(w2, []int{1}), second, auth.TokenOptions{})
	wrong := sign("wrong", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{})
	wrong.token = sign("other", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{}).token
	foreign := sign("foreign", paramsFor(w2, []int{1}), clientSigner, auth.TokenOptions{})
	none := sign("none", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{})
	got := elements(t, r.postBody("["+strings.Join([]string{mine.inBody(), theirs.inBody(), wrong.inBody(), foreign.inBody(), string(none.body)}, ",")+"]"))
	for i, want := range []struct{ id, reason string }{
		{"mine", "ok"}, {"theirs", "ok"}, {"wrong", "unauthorized"}, {"foreign", "unauthorized"}, {"none", "unauthorized"},
	} {
		require.Equal(t, want.id, *got[i].body.ID)
		require.Equal(t, want.reason, got[i].reason(), "%s", got[i].raw)
	}
	// One token twice in a batch: it is claimed once.
	twice := sign("twice", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{}).inBody()
	got = elements(t, r.postBody("["+twice+","+twice+"]"))
	require.ElementsMatch(t, []string{"ok", "token_replayed"}, []string{got[0].reason(), got[1].reason()})
}
