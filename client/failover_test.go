package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"dongate/client"
	"dongate/jsonrpc"
)

func TestFailoverSendsTheSameBytesToTheNextGateway(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, string){
		"draining":    refuse(503, -32603, "the gateway is shutting down; nothing was dispatched", `{"reason":"draining"}`),
		"overloaded":  refuse(503, -32603, "gate full", `{"reason":"overloaded"}`),
		"unavailable": refuse(503, -32603, "no storage", `{"reason":"unavailable"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newStub(t, answer), newStub(t, accept)
			c := newClient(t, unreachable(t), first.URL, second.URL)
			r, err := c.Trigger(context.Background(), byID("a"))
			require.NoError(t, err)
			require.Equal(t, second.URL, r.URL)
			require.Equal(t, first.seen()[0].token, second.seen()[0].token)
			require.Equal(t, first.seen()[0].body, second.seen()[0].body)

			// The one that answered is asked first from now on.
			_, err = c.Trigger(context.Background(), byID("b"))
			require.NoError(t, err)
			require.Len(t, first.seen(), 1)
			require.Len(t, second.seen(), 2)
		})
	}
}

func TestNoFailoverWhereTheAnswerIsFinal(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, string){
		"result":          accept,
		"rate_limited":    refuse(429, -32000, "rate limit exceeded", `{"reason":"rate_limited"}`),
		"unauthorized":    refuse(401, -32600, "Auth failure: x", `{"reason":"unauthorized"}`),
		"don_unavailable": refuse(503, -32603, "no node", `{"reason":"don_unavailable"}`),
		"timeout":         refuse(504, -32603, "no quorum", `{"reason":"timeout"}`),
		"given up":        refuse(503, -32603, "the gateway is shutting down; the request was dispatched and may have run", `{"reason":"draining"}`),
		"bare 503":        func(w http.ResponseWriter, _ string) { w.WriteHeader(503) },
		"bare 502":        func(w http.ResponseWriter, _ string) { w.WriteHeader(502) },
		"bare 429":        func(w http.ResponseWriter, _ string) { w.WriteHeader(429) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newStub(t, answer), newStub(t, accept)
			_, err := newClient(t, first.URL, second.URL).Trigger(context.Background(), byID("a"))
			require.Equal(t, name == "result", err == nil)
			require.Len(t, first.seen(), 1)
			require.Empty(t, second.seen())
			switch name {
			case "given up":
				require.ErrorIs(t, err, client.ErrDraining)
				require.ErrorIs(t, err, client.ErrUnknownOutcome)
			case "bare 502", "bare 503":
				require.ErrorIs(t, err, client.ErrUnknownOutcome)
			case "bare 429":
				require.ErrorIs(t, err, client.ErrRateLimited)
			}
		})
	}
}

// A gateway that has dispatched the bytes already says so, and that is what the caller hears.
func TestFailoverToAGatewayThatKnowsTheTokenOrTheID(t *testing.T) {
	t.Parallel()
	for want, answer := range map[error]func(http.ResponseWriter, string){
		client.ErrTokenReplayed: refuse(401, -32600, "Auth failure: JWT token has already been used", `{"reason":"token_replayed"}`),
		client.ErrConflict:      refuse(409, -32001, "in use", `{"reason":"conflict"}`),
	} {
		first, second := newStub(t, refuse(503, -32603, "x", `{"reason":"overloaded"}`)), newStub(t, answer)
		_, err := newClient(t, first.URL, second.URL).Trigger(context.Background(), byID("a"))
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, client.ErrOverloaded)
	}
}

func TestNoGatewayTakesIt(t *testing.T) {
	t.Parallel()
	full := newStub(t, func(w http.ResponseWriter, id string) {
		w.Header().Set("Retry-After", "3")
		refuse(503, -32603, "gate full", `{"reason":"overloaded"}`)(w, id)
	})
	_, err := newClient(t, unreachable(t), full.URL).Trigger(context.Background(), byID("a"))
	require.ErrorIs(t, err, client.ErrUnreachable)
	require.ErrorIs(t, err, client.ErrOverloaded)
	require.NotErrorIs(t, err, client.ErrUnknownOutcome)
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 3*time.Second, e.RetryAfter)
	require.NotContains(t, err.Error(), "\n")

	_, err = newClient(t, unreachable(t)).Trigger(context.Background(), byID("a"))
	require.ErrorIs(t, err, client.ErrUnreachable)
}

// hangUp takes the request and closes the connection without an answer.
func hangUp(t testing.TB) *stub {
	return newStub(t, func(w http.ResponseWriter, _ string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
}

func TestLostConnectionLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	first, second := hangUp(t), newStub(t, accept)
	_, err := newClient(t, first.URL, second.URL).Trigger(context.Background(), byID("a"))
	var e *client.UnknownOutcomeError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, client.ErrUnknownOutcome)
	require.NotErrorIs(t, err, client.ErrUnreachable)
	require.Equal(t, "a", e.RequestID)
	require.Equal(t, first.URL, e.URL)
	require.Len(t, first.seen(), 1, "it is not sent again behind the caller's back")
	require.Empty(t, second.seen())
}

func TestContextEnds(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	s := newStub(t, func(http.ResponseWriter, string) { close(arrived); <-release })
	defer close(release)
	c := newClient(t, s.URL, unreachable(t))

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Trigger(ended, byID("a"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, client.ErrUnknownOutcome, "nothing was sent")
	require.Empty(t, s.seen())

	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	_, err = c.Trigger(ctx, byID("b"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, client.ErrUnknownOutcome)
}

func TestTimeoutBoundsACall(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := newStub(t, func(http.ResponseWriter, string) { <-release })
	defer close(release)
	c := configured(t, client.Config{URLs: []string{s.URL}, Timeout: 50 * time.Millisecond})
	_, err := c.Trigger(context.Background(), byID("a"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, client.ErrUnknownOutcome)
}

// A gateway that cannot be dialled in time was not reached; one that hangs after it took the connection may have been.
func TestInterruptedBeforeAConnectionIsUnreachable(t *testing.T) {
	t.Parallel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	c := configured(t, client.Config{URLs: []string{"http://x/", "http://y/"}, Timeout: 20 * time.Millisecond, HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}})
	_, err := c.Trigger(context.Background(), byID("a"))
	require.ErrorIs(t, err, client.ErrUnreachable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, client.ErrUnknownOutcome)
}

// A transport of the caller's own that reports nothing leaves every failure in doubt.
func TestSilentTransport(t *testing.T) {
	t.Parallel()
	second := newStub(t, accept)
	c := configured(t, client.Config{URLs: []string{"http://x/", second.URL}, HTTPClient: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("something broke")
	})}})
	_, err := c.Trigger(context.Background(), byID("a"))
	require.ErrorIs(t, err, client.ErrUnknownOutcome)
	require.ErrorContains(t, err, "something broke")
	require.Empty(t, second.seen())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnswersThatAreNoAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"html":            {200, "<html>hello</html>", client.ErrUnknownOutcome},
		"empty":           {200, "", client.ErrUnknownOutcome},
		"cut off":         {200, `{"jsonrpc":"2.0","id":"a","method":"m","result":{"x`, client.ErrUnknownOutcome},
		"neither":         {200, `{"jsonrpc":"2.0","id":"a","method":"m"}`, client.ErrUnknownOutcome},
		"both":            {200, `{"jsonrpc":"2.0","id":"a","method":"m","result":1,"error":{"code":1,"message":"x"}}`, client.ErrUnknownOutcome},
		"another id":      {200, `{"jsonrpc":"2.0","id":"b","method":"m","result":1}`, client.ErrUnknownOutcome},
		"no id":           {200, `{"jsonrpc":"2.0","id":null,"method":"m","result":1}`, client.ErrUnknownOutcome},
		"result with 500": {500, `{"jsonrpc":"2.0","id":"a","method":"m","result":1}`, client.ErrUnknownOutcome},
		"large":           {200, `{"jsonrpc":"2.0","id":"a","method":"m","result":"` + strings.Repeat("x", 1000) + `"}`, client.ErrResponseTooLarge},
		"error, no id":    {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, client.ErrParse},
		"bare 404":        {404, `404 page not found`, client.ErrInvalidRequest},
		"bare 401":        {401, strings.Repeat("no\xff", 300), client.ErrUnauthorized},
		"bare 504":        {504, `upstream timed out`, client.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, func(w http.ResponseWriter, _ string) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, err := configured(t, client.Config{URLs: []string{s.URL}, MaxResponseBytes: 1000}).Trigger(context.Background(), byID("a"))
			require.ErrorIs(t, err, c.want)
			require.Less(t, len(err.Error()), 600)
			if c.want == client.ErrResponseTooLarge {
				require.ErrorIs(t, err, client.ErrUnknownOutcome)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := newStub(t, accept)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
		c := configured(t, client.Config{URLs: []string{s.URL}, HTTPClient: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}})
		_, err := c.Trigger(context.Background(), byID("a"))
		require.ErrorContains(t, err, "redirect")
		c.CloseIdleConnections()
		s.Close()
	}
	require.Empty(t, elsewhere.seen())
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	conflict := func(data string) func(http.ResponseWriter, string) { return refuse(409, -32001, "in use", data) }
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, string)
		want   client.Outcome // URLs left out
		err    error
	}{
		"open":   {answer: conflict(`{"reason":"conflict","state":"open","workflow_execution_id":"ab"}`), want: client.Outcome{State: "open", ExecutionID: "ab"}},
		"failed": {answer: conflict(`{"reason":"conflict","state":"failed","workflow_execution_id":"ab"}`), want: client.Outcome{State: "failed", ExecutionID: "ab"}},
		"result": {answer: conflict(`{"reason":"conflict","state":"answered","workflow_execution_id":"ab","response":{"jsonrpc":"2.0","id":"a","method":"m","result":{"n":1.0}}}`),
			want: client.Outcome{State: "answered", ExecutionID: "ab", Response: &client.Response{ID: "a", Method: "m", Result: jsontext.Value(`{"n":1.0}`)}}},
		"error": {answer: conflict(`{"reason":"conflict","state":"answered","workflow_execution_id":"ab","response":{"jsonrpc":"2.0","id":"a","error":{"code":5,"message":"x"}}}`),
			want: client.Outcome{State: "answered", ExecutionID: "ab", Err: &client.NodeError{RequestID: "a", Code: 5, Message: "x"}}},
		"no longer stored": {answer: conflict(`{"reason":"conflict","state":"answered","workflow_execution_id":"ab"}`), want: client.Outcome{State: "answered", ExecutionID: "ab"}},
		"nonsense stored":  {answer: conflict(`{"reason":"conflict","state":"answered","response":{"jsonrpc":"1.0"}}`), want: client.Outcome{State: "answered"}},
		"ran now":          {answer: accept, want: client.Outcome{State: "answered", Fresh: true, Response: &client.Response{ID: "a", Method: "workflows.execute", Result: jsontext.Value(`{"workflow_id":"0x01","workflow_execution_id":"ab","status":"ACCEPTED"}`)}}},
		"failed now": {answer: func(w http.ResponseWriter, id string) {
			_, _ = w.Write(jsonrpc.AppendNodeError(nil, id, "m", &jsonrpc.Error{Code: 5, Message: "x"}))
		}, want: client.Outcome{State: "answered", Fresh: true, Err: &client.NodeError{RequestID: "a", Code: 5, Message: "x"}}},
		"another signer": {answer: conflict(`{"reason":"conflict"}`), err: client.ErrConflict},
		"refused":        {answer: refuse(429, -32000, "rate limit exceeded", `{"reason":"rate_limited"}`), err: client.ErrRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, c.answer)
			got, err := newClient(t, s.URL).Outcome(context.Background(), byID("a"))
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			if c.want.Response != nil {
				c.want.Response.URL = s.URL
			}
			if c.want.Err != nil {
				c.want.Err.URL = s.URL
			}
			require.Equal(t, &c.want, got)
		})
	}
	s := newStub(t, accept)
	_, err := newClient(t, s.URL).Outcome(context.Background(), byID(""))
	require.ErrorIs(t, err, client.ErrInvalidRequest)
	require.Empty(t, s.seen())
}
