package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/auth"
	"dongate/client"
	"dongate/jsonrpc"
	"dongate/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func testSigner(t testing.TB) auth.Signer {
	key, err := crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
	require.NoError(t, err)
	return auth.NewKeySigner(key)
}

func newClient(t testing.TB, urls ...string) *client.Client {
	return configured(t, client.Config{URLs: urls, Timeout: patience})
}

func configured(t testing.TB, c client.Config) *client.Client {
	c.Signer = testSigner(t)
	out, err := client.New(c)
	require.NoError(t, err)
	t.Cleanup(out.CloseIdleConnections)
	return out
}

// stub is a gateway that answers as it is told and keeps what it was sent.
type stub struct {
	*httptest.Server
	mu    sync.Mutex
	calls []call
}

type call struct {
	token, body string
	header      http.Header
}

func newStub(t testing.TB, answer func(w http.ResponseWriter, id string)) *stub {
	s := &stub{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.calls = append(s.calls, call{r.Header.Get("Authorization"), string(body), r.Header.Clone()})
		s.mu.Unlock()
		request, _ := jsonrpc.DecodeRequest(body)
		answer(w, request.ID)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stub) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

func accept(w http.ResponseWriter, id string) {
	_, _ = w.Write(jsonrpc.AppendResult(nil, id, "workflows.execute", jsontext.Value(`{"workflow_id":"0x01","workflow_execution_id":"ab","status":"ACCEPTED"}`)))
}

// refuse answers with an error of the gateway.
func refuse(status, code int, message, data string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, id string) {
		w.WriteHeader(status)
		_, _ = w.Write(jsonrpc.AppendError(nil, &id, &jsonrpc.Error{Code: code, Message: message, Data: jsontext.Value(data)}))
	}
}

// unreachable is an address at which nobody listens.
func unreachable(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return "http://" + l.Addr().String()
}

func byID(id string) client.Request {
	return client.Request{ID: id, Workflow: workflow.Reference{ID: "0x1"}, Input: jsontext.Value(`{}`)}
}

func TestTriggerSendsOneSignedRequest(t *testing.T) {
	t.Parallel()
	s := newStub(t, accept)
	now := time.Unix(1764500000, 5)
	c := configured(t, client.Config{URLs: []string{s.URL}, TTL: time.Minute, Now: func() time.Time { return now }})
	r, err := c.Trigger(context.Background(), client.Request{
		Workflow: workflow.Reference{Owner: "0xaa", Name: "price \"feed\"", Tag: "v1"},
		Input:    struct{ N, A string }{"9007199254740993", "é"},
	})
	require.NoError(t, err)
	e, err := r.Execution()
	require.NoError(t, err)
	require.Equal(t, client.Execution{WorkflowID: "0x01", ExecutionID: "ab", Status: "ACCEPTED"}, e)
	require.Equal(t, s.URL, r.URL)
	require.Equal(t, "workflows.execute", r.Method)

	calls := s.seen()
	require.Len(t, calls, 1)
	require.Equal(t, `{"jsonrpc":"2.0","id":"`+r.ID+`","method":"workflows.execute","params":{"input":{"N":"9007199254740993","A":"é"},`+
		`"workflow":{"workflowOwner":"0xaa","workflowName":"price \"feed\"","workflowTag":"v1"}}}`, calls[0].body)
	require.Equal(t, "application/json", calls[0].header.Get("Content-Type"))
	require.Empty(t, calls[0].header.Get("Content-Encoding"))

	raw, ok := strings.CutPrefix(calls[0].token, "Bearer ")
	require.True(t, ok)
	token, err := auth.ParseToken(raw, now.Add(time.Second), 0)
	require.NoError(t, err)
	request, err := jsonrpc.DecodeRequest([]byte(calls[0].body))
	require.NoError(t, err)
	digest, err := request.Digest()
	require.NoError(t, err)
	require.NoError(t, token.CheckDigest(digest))
	signer, err := token.Signer()
	require.NoError(t, err)
	require.Equal(t, testSigner(t).Address(), signer)
	require.Equal(t, time.Minute, token.Expires.Sub(token.IssuedAt))

	_, err = c.Trigger(context.Background(), byID(r.ID))
	require.NoError(t, err)
	require.NotEqual(t, calls[0].token, s.seen()[1].token, "every request has a token of its own")
}

func TestResultThatIsNoExecution(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(w http.ResponseWriter, id string) {
		_, _ = w.Write(jsonrpc.AppendResult(nil, id, "", jsontext.Value(`[1.0]`)))
	})
	r, err := newClient(t, s.URL).Trigger(context.Background(), byID("a"))
	require.NoError(t, err)
	require.Equal(t, `[1.0]`, string(r.Result))
	_, err = r.Execution()
	require.Error(t, err)
}

func TestEveryReasonHasItsError(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]struct {
		err          error
		status, code int
	}{
		"parse_error":        {client.ErrParse, 400, -32700},
		"too_large":          {client.ErrTooLarge, 413, -32600},
		"invalid_request":    {client.ErrInvalidRequest, 400, -32600},
		"invalid_params":     {client.ErrInvalidParams, 400, -32602},
		"method_not_found":   {client.ErrMethodNotFound, 400, -32601},
		"workflow_not_found": {client.ErrWorkflowNotFound, 404, -32602},
		"unauthorized":       {client.ErrUnauthorized, 401, -32600},
		"token_replayed":     {client.ErrTokenReplayed, 401, -32600},
		"rate_limited":       {client.ErrRateLimited, 429, -32000},
		"conflict":           {client.ErrConflict, 409, -32001},
		"overloaded":         {client.ErrOverloaded, 503, -32603},
		"unavailable":        {client.ErrUnavailable, 503, -32603},
		"timeout":            {client.ErrTimeout, 504, -32603},
		"no_quorum":          {client.ErrNoQuorum, 502, -32603},
		"don_unavailable":    {client.ErrDONUnavailable, 503, -32603},
		"draining":           {client.ErrDraining, 503, -32603},
		"internal":           {client.ErrInternal, 500, -32603},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, refuse(want.status, want.code, "Some text", `{"reason":"`+reason+`","shards":[{"threshold":3,"connected":4,"answered":2,"groups":[1,1]}],"more":1}`))
			_, err := newClient(t, s.URL).Trigger(context.Background(), byID("a"))
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, want.err)
			for _, other := range []error{client.ErrParse, client.ErrTooLarge, client.ErrInvalidRequest, client.ErrInvalidParams, client.ErrMethodNotFound,
				client.ErrWorkflowNotFound, client.ErrUnauthorized, client.ErrTokenReplayed, client.ErrRateLimited, client.ErrConflict, client.ErrOverloaded,
				client.ErrUnavailable, client.ErrTimeout, client.ErrNoQuorum, client.ErrDONUnavailable, client.ErrDraining, client.ErrInternal,
				client.ErrUnreachable, client.ErrUnknownOutcome, client.ErrResponseTooLarge, nil} {
				if other != want.err {
					require.False(t, e.Is(other), "%v", other)
				}
			}
			require.Equal(t, want.status, e.HTTPStatus)
			require.Equal(t, want.code, e.Code)
			require.Equal(t, reason, e.Reason)
			require.Equal(t, "Some text", e.Message)
			require.Equal(t, s.URL, e.URL)
			require.Equal(t, "a", e.RequestID)
			require.Equal(t, []client.Shard{{Threshold: 3, Connected: 4, Answered: 2, Groups: []int{1, 1}}}, e.Shards)
			require.Contains(t, string(e.Data), `"more":1`)
			require.Contains(t, err.Error(), "Some text")
		})
	}
}

// The network's own gateway gives no reasons and has two codes of its own.
func TestGatewayWithoutReasons(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status, code int
		message      string
		want         error
	}{
		"auth":       {401, -32600, "Auth failure: signer is not authorised", client.ErrUnauthorized},
		"replay":     {401, -32600, "Auth failure: JWT token has already been used", client.ErrTokenReplayed},
		"limit":      {429, -32002, "rate limit exceeded", client.ErrRateLimited},
		"limit code": {400, -32000, "slow down", client.ErrRateLimited},
		"conflict":   {409, -32003, "request id in use", client.ErrConflict},
		"workflow":   {400, -32600, "Workflow not found", client.ErrWorkflowNotFound},
		"params":     {400, -32602, "bad input", client.ErrInvalidParams},
		"method":     {400, -32601, "no such method", client.ErrMethodNotFound},
		"parse":      {400, -32700, "bad JSON", client.ErrParse},
		"large":      {413, -32600, "too big", client.ErrTooLarge},
		"timeout":    {504, -32603, "timed out", client.ErrTimeout},
		"internal":   {500, -32603, "oh", client.ErrInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newStub(t, refuse(c.status, c.code, c.message, `"no object"`)), newStub(t, accept)
			_, err := newClient(t, first.URL, second.URL).Trigger(context.Background(), byID("a"))
			require.ErrorIs(t, err, c.want)
			require.Empty(t, second.seen())
		})
	}
	// A 503 that does not say why may come from anybody on the way, after anything.
	first, second := newStub(t, refuse(503, -32603, "try later", `{}`)), newStub(t, accept)
	_, err := newClient(t, first.URL, second.URL).Trigger(context.Background(), byID("a"))
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Empty(t, e.Reason)
	require.Empty(t, second.seen())
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999": 0, "4000000000": 24 * time.Hour,
		"Mon, 01 Jan 2001 00:00:00 GMT": 0, "Fri, 01 Jan 2100 00:00:00 GMT": 24 * time.Hour} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, id string) {
				w.Header().Set("Retry-After", header)
				refuse(429, -32000, "rate limit exceeded", `{"reason":"rate_limited"}`)(w, id)
			})
			_, err := newClient(t, s.URL).Trigger(context.Background(), byID("a"))
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, want, e.RetryAfter)
		})
	}
	for ms, want := range map[string]time.Duration{"1500": 1500 * time.Millisecond, "1e300": 24 * time.Hour, "-5": 0, "0.2": 0} {
		t.Run("ms "+ms, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, refuse(429, -32000, "rate limit exceeded", `{"reason":"rate_limited","retryAfterMs":`+ms+`}`))
			_, err := newClient(t, s.URL).Trigger(context.Background(), byID("a"))
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, want, e.RetryAfter)
		})
	}
}

// What was refused before its dispatch is accepted when it is sent again, byte for byte.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	var once sync.Once
	s := newStub(t, func(w http.ResponseWriter, id string) {
		answer := accept
		once.Do(func() { answer = refuse(429, -32000, "rate limit exceeded", `{"reason":"rate_limited"}`) })
		answer(w, id)
	})
	c := newClient(t, s.URL)
	signed, err := c.Sign(byID("a"))
	require.NoError(t, err)
	_, err = c.Send(context.Background(), signed)
	require.ErrorIs(t, err, client.ErrRateLimited)
	_, err = c.Send(context.Background(), signed)
	require.NoError(t, err)
	calls := s.seen()
	require.Equal(t, calls[0].token, calls[1].token)
	require.Equal(t, calls[0].body, calls[1].body)
}

func TestNodeError(t *testing.T) {
	t.Parallel()
	s := newStub(t, func(w http.ResponseWriter, id string) {
		_, _ = w.Write(jsonrpc.AppendNodeError(nil, id, "workflows.execute", &jsonrpc.Error{Code: -32000, Message: "rate limit exceeded", Data: jsontext.Value(`{"reason":"rate_limited"}`)}))
	})
	_, err := newClient(t, s.URL).Trigger(context.Background(), byID("a"))
	var e *client.NodeError
	require.ErrorAs(t, err, &e)
	require.Equal(t, &client.NodeError{RequestID: "a", URL: s.URL, Code: -32000, Message: "rate limit exceeded", Data: jsontext.Value(`{"reason":"rate_limited"}`)}, e)
	require.NotErrorIs(t, err, client.ErrRateLimited, "the nodes' words are theirs")
}

func TestNewNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{URLs: []string{"gateway:5002", "ftp://x", "https://user:secret@x/"}, TTL: time.Hour, Timeout: -1})
	for _, want := range []string{"Signer", "URLs[0]", "URLs[1]", "URLs[2]", "TTL", "Timeout"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "secret")
	_, err = client.New(client.Config{Signer: testSigner(t), TTL: 1500 * time.Millisecond})
	require.ErrorContains(t, err, "URLs is empty")
	require.ErrorContains(t, err, "TTL")
}

func TestSignerThatFails(t *testing.T) {
	t.Parallel()
	s := newStub(t, accept)
	c, err := client.New(client.Config{URLs: []string{s.URL}, Signer: failingSigner{testSigner(t)}})
	require.NoError(t, err)
	_, err = c.Trigger(context.Background(), byID("a"))
	require.ErrorContains(t, err, "the key store is locked")
	require.Empty(t, s.seen())
}

type failingSigner struct{ auth.Signer }

func (failingSigner) SignPersonal([]byte) ([]byte, error) {
	return nil, errors.New("the key store is locked")
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	down := unreachable(t)
	s := newStub(t, accept)
	c := newClient(t, down, s.URL)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r, err := c.Trigger(context.Background(), byID(fmt.Sprint(i)))
			if err != nil || r.ID != fmt.Sprint(i) {
				t.Errorf("%d: %v %v", i, r, err)
			}
		})
	}
	wg.Wait()
	require.Len(t, s.seen(), 32)
}
