package gateway

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"dongate/auth"
)

// claimsThat is a store of claims with a fault: fail may return an error or panic
// before Used and Claim.
type claimsThat struct {
	auth.Claims
	fail func() error
}

func (c *claimsThat) Used(ctx context.Context, signer common.Address, id string) (bool, error) {
	if err := c.fail(); err != nil {
		return false, err
	}
	return c.Claims.Used(ctx, signer, id)
}

func (c *claimsThat) Claim(ctx context.Context, cl auth.Claim) (auth.Outcome, *auth.Previous, error) {
	if err := c.fail(); err != nil {
		return 0, nil, err
	}
	return c.Claims.Claim(ctx, cl)
}

// conformance: 2.order
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	stranger, both := auth.NewKeySigner(key(77)), auth.NewKeySigner(key(78))
	w1, w2 := testWorkflow(1, "one", "v1", clientSigner, both), testWorkflow(2, "two", "v1", clientSigner)
	r := newRig(t, rigSpec{user: map[string]any{"maxRequestBytes": 1024, "maxConcurrentRequests": 1},
		handler: map[string]any{"userRateLimiter": map[string]any{"perSenderRPS": 0.0001, "perSenderBurst": 1}}})
	r.connectAll(nil, w1, w2)
	signer := func(s auth.Signer, id, params string) signed { return sign(id, params, s, auth.TokenOptions{}) }
	const unknown, known = `{"input":{},"workflow":{"workflowID":"9"}}`, `{"input":{},"workflow":{"workflowID":"1"}}`
	bad := http.Header{"Authorization": {"Bearer bad"}}

	// used and its id are taken; the one token of the owner's bucket is spent.
	jti := "used"
	used := sign("used", known, both, auth.TokenOptions{ID: jti})
	require.Equal(t, 200, r.send(used).status)

	for _, tt := range []struct {
		name   string // what is wrong twice; the first must be reported
		body   string
		header http.Header
		full   bool // the gate is full
		reason string
	}{
		{"gate, header token", `{}`, bad, true, "overloaded"},
		{"header token, body too large", strings.Repeat(" ", 2000), bad, false, "unauthorized"},
		{"header token, body not JSON", `{`, bad, false, "unauthorized"},
		{"body too large, not JSON", strings.Repeat("{", 2000), nil, false, "too_large"},
		{"envelope, method", `{"jsonrpc":"2.0","id":"1","method":"workflows.stop"}`, nil, false, "invalid_request"},
		{"method, params", `{"jsonrpc":"2.0","id":"1","method":"workflows.stop","params":7}`, nil, false, "method_not_found"},
		{"params, workflow", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":{"input":7,"workflow":{"workflowID":"9"}}}`, nil, false, "invalid_params"},
		{"inexact number, workflow", `{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":{"input":[1e400],"workflow":{"workflowID":"9"}}}`, nil, false, "invalid_params"},
		{"workflow, no token", string(signer(clientSigner, "1", unknown).body), nil, false, "workflow_not_found"},
		{"workflow, token of other bytes", string(signer(clientSigner, "1", unknown).body), signer(clientSigner, "2", known).header(), false, "workflow_not_found"},
		{"workflow, signer without a right", string(signer(stranger, "1", unknown).body), signer(stranger, "1", unknown).header(), false, "workflow_not_found"},
		{"signature, replay", string(signer(both, "1", known).body), used.header(), false, "unauthorized"},
		{"authorisation, replay", string(sign("1", paramsFor(w2, []int{1}), both, auth.TokenOptions{ID: jti}).body),
			sign("1", paramsFor(w2, []int{1}), both, auth.TokenOptions{ID: jti}).header(), false, "unauthorized"},
		{"replay, rate limit", string(sign("1", known, both, auth.TokenOptions{ID: jti}).body),
			sign("1", known, both, auth.TokenOptions{ID: jti}).header(), false, "token_replayed"},
		{"replay, rate limit, id", string(used.body), used.header(), false, "token_replayed"},
		{"rate limit, id", string(signer(both, "used", known).body), signer(both, "used", known).header(), false, "rate_limited"},
	} {
		if tt.full {
			require.True(t, r.srv.clients.enter())
		}
		a, err := r.post(context.Background(), []byte(tt.body), tt.header)
		require.NoError(t, err)
		require.Equal(t, tt.reason, a.reason(), "%s: %s", tt.name, a.raw)
		if tt.full {
			r.srv.clients.leave()
		}
	}
}

// conformance: 2.order.header-token
func TestBadHeaderTokenBesideAGoodMember(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(nil, w)
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	expired := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{Now: time.Now().Add(-time.Hour)}).token
	for _, token := range []string{"", "x", expired, s.token + "=", strings.Repeat("a", 5000)} {
		a, err := r.post(context.Background(), []byte(s.inBody()), http.Header{"Authorization": {"Bearer " + token}})
		require.NoError(t, err)
		require.Equal(t, 401, a.status, "%s", a.raw)
		require.Equal(t, "unauthorized", a.reason())
	}
	require.Equal(t, 200, r.postBody(s.inBody()).status, "the token in the body is not used up")
}

// conformance: 2.order.claim
func TestClaimTakesBothOrNeither(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connectAll(nil, w)
	params := paramsFor(w, []int{1})
	first := sign("taken", params, clientSigner, auth.TokenOptions{ID: "jti"})
	require.Equal(t, 200, r.send(first).status)

	conflicting := sign("taken", params, clientSigner, auth.TokenOptions{})
	for range 3 { // the id is taken, so the token must not be
		require.Equal(t, "conflict", r.send(conflicting).reason())
	}
	replay := sign("free", params, clientSigner, auth.TokenOptions{ID: "jti"})
	require.Equal(t, "token_replayed", r.send(replay).reason())
	// The token was used, so the id must not have been taken.
	require.Equal(t, 200, r.send(sign("free", params, clientSigner, auth.TokenOptions{})).status)
	require.Equal(t, "token_replayed", r.send(sign("taken", params, clientSigner, auth.TokenOptions{ID: "jti"})).reason(), "jti before id")
	tokens, ids, err := r.srv.claims.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 2}, [2]int{tokens, ids})
}

// conformance: 2.order.unburnt
func TestRefusedRequestsKeepTheirToken(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	store := &claimsThat{auth.NewMemoryClaims(auth.MemoryOptions{}), func() error {
		if broken.Load() {
			return errors.New("disk full")
		}
		return nil
	}}
	late := auth.NewKeySigner(key(555))
	w := testWorkflow(1, "one", "v1", clientSigner)
	r := newRig(t, rigSpec{options: Options{Claims: store}, user: map[string]any{"maxConcurrentRequests": 1}, handler: map[string]any{"maxOpenBytes": 10_000}})
	nodes := r.connectAll(nil)["don"]
	push := func(w ...any) {
		for _, m := range w {
			for _, n := range nodes {
				n.send([]byte(`{"jsonrpc":"2.0","id":"push_workflow_metadata/1","method":"","result":` + string(mustJSON(m)) + `}`))
			}
		}
	}
	svc := r.svc()
	for _, tt := range []struct {
		name, reason string
		signer       auth.Signer
		cause, end   func()
	}{
		{"workflow not known yet", "workflow_not_found", clientSigner, func() {}, func() {
			push(w)
			r.awaitWorkflow(w.Selector.WorkflowID)
		}},
		{"signer not authorised yet", "unauthorized", late, func() {}, func() {
			push(testWorkflow(1, "one", "v1", clientSigner, late))
			r.eventually(func() bool {
				v := svc.view.Load().ByID(w.Selector.WorkflowID)
				return v != nil && v.Authorized("ecdsa_evm", address(late))
			}, "the new key counts")
		}},
		{"gate", "overloaded", clientSigner, func() { r.srv.clients.enter() }, func() { r.srv.clients.leave() }},
		{"open bytes", "overloaded", clientSigner, func() { svc.open.takeAnswer(10_000, true) }, func() { svc.open.giveAnswer(10_000) }},
		{"open requests", "rate_limited", clientSigner, func() {
			for range maxOpenPerWorkflow {
				svc.flights.reserve(w.Selector.WorkflowID)
			}
		}, func() {
			for range maxOpenPerWorkflow {
				svc.flights.unreserve(w.Selector.WorkflowID)
			}
		}},
		{"claims", "unavailable", clientSigner, func() { broken.Store(true) }, func() { broken.Store(false) }},
		{"draining", "draining", clientSigner, func() { r.srv.draining.Store(true) }, func() { r.srv.draining.Store(false) }},
	} {
		s := sign("", paramsFor(w, []int{1}), tt.signer, auth.TokenOptions{})
		tt.cause()
		a := r.send(s)
		require.Equal(t, tt.reason, a.reason(), "%s: %s", tt.name, a.raw)
		tt.end()
		a = r.send(s)
		require.Equal(t, 200, a.status, "%s: %s", tt.name, a.raw)
	}
}

// conformance: 2.retry-after
func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Nanosecond: "1", time.Second - 1: "1", time.Second: "1", time.Second + 1: "2", 2 * time.Second: "2", 2*time.Second + time.Millisecond: "3", time.Hour: "3600",
	} {
		require.Equal(t, want, retryAfterSeconds(d), d)
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"userRateLimiter": map[string]any{"perSenderRPS": 0.4, "perSenderBurst": 1}}})
		w := theWorkflow()
		r.connectAll(nil, w)
		require.Equal(t, 200, r.trigger(w, "").status)
		a := r.trigger(w, "") // the next token comes in 2.5 s
		require.Equal(t, 429, a.status)
		require.Equal(t, "3", a.header.Get("Retry-After"))
		require.Zero(t, a.body.Error.Data.RetryAfterMs)
		s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		got := elements(t, r.postBody("["+s.inBody()+"]"))
		require.EqualValues(t, 2500, got[0].body.Error.Data.RetryAfterMs)
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, 200, r.send(s).status)
	})
}

// conformance: 2.error.open-requests
func TestTooManyOpenRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: unlimited()})
		w, other := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", clientSigner)
		r.connectAll(silent, w, other)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var ended atomic.Int32
		for range 1000 {
			s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
			go func() { _, _ = r.post(ctx, s.body, s.header()); ended.Add(1) }()
		}
		synctest.Wait()
		require.Equal(t, 1000, r.srv.openRequests())
		a := r.trigger(w, "")
		require.Equal(t, 429, a.status)
		require.Equal(t, -32000, a.body.Error.Code)
		require.Equal(t, "rate_limited", a.reason())
		require.Regexp(t, "^rate limit exceeded", a.body.Error.Message)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		go func() { _ = r.trigger(other, "") }()
		synctest.Wait()
		require.Equal(t, 1000+1, r.srv.openRequests(), "another workflow has its own thousand")
		cancel()
		synctest.Wait()
		require.EqualValues(t, 1000, ended.Load())
	})
}

// conformance: 2.error.unavailable
func TestClaimsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	store := &claimsThat{auth.NewMemoryClaims(auth.MemoryOptions{}), func() error { return errors.New("open /var/lib/claims.db: disk full") }}
	r := newRig(t, rigSpec{options: Options{Claims: store}})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	a := r.trigger(w, "")
	require.Equal(t, 503, a.status)
	require.Equal(t, -32603, a.body.Error.Code)
	require.Equal(t, "unavailable", a.reason())
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.NotContains(t, string(a.raw), "disk full")
	for _, n := range nodes {
		require.Zero(t, n.seen())
	}
	require.Zero(t, r.svc().open.held())
	require.Empty(t, r.svc().flights.workflows)
}

// conformance: 2.error.internal
func TestPanicIsInternal(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	store := &claimsThat{auth.NewMemoryClaims(auth.MemoryOptions{}), func() error {
		if calls.Add(1) == 1 {
			panic("a bug in /src/claims.go:7")
		}
		return nil
	}}
	for _, batch := range []bool{false, true} {
		calls.Store(0)
		r := newRig(t, rigSpec{options: Options{Claims: store}})
		w := theWorkflow()
		r.connectAll(nil, w)
		s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		a := new(clientAnswer)
		if batch {
			got := elements(t, r.postBody(`[`+s.inBody()+`,{"jsonrpc":"2.0","id":"2","method":"m","params":{}}]`))
			a = &got[0]
			require.Equal(t, "method_not_found", got[1].reason(), "the other element is not harmed")
		} else {
			a = r.send(s)
			require.Equal(t, 500, a.status)
			require.Equal(t, "application/json", a.header.Get("Content-Type"))
		}
		require.Equal(t, -32603, a.body.Error.Code)
		require.Equal(t, "internal", a.reason())
		require.False(t, bytes.Contains(a.raw, []byte("claims.go")), "%s", a.raw)
		require.Equal(t, 200, r.trigger(w, "").status, "the gateway lives on")
		require.Zero(t, r.svc().open.held(), "everything is given back")
		require.Empty(t, r.svc().flights.workflows)
		r.eventually(func() bool { return r.srv.clients.gate.Load() == 0 }, "the gate is empty")
	}
}
