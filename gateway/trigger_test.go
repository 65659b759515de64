package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// say answers with a status of the node's own.
func say(status string) behave {
	return func(n *testNode, req jsonrpc.Request) { n.result(req, status, "") }
}

func failing(n *testNode, req jsonrpc.Request) { n.fail(req, "boom") }

// bubble runs a test with fake time: the timers of the gateway are exact in it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// connectEach connects the nodes of a shard with a behaviour each; nil: absent.
func (r *rig) connectEach(shard string, workflows []workflow.Metadata, do ...behave) []*testNode {
	out := make([]*testNode, len(do))
	for i, b := range do {
		if b != nil {
			out[i] = r.connect(shard, i, workflows, b)
		}
	}
	return out
}

// took runs one trigger and returns its answer and how long it took.
func (r *rig) took(w workflow.Metadata) (*clientAnswer, time.Duration) {
	start := time.Now()
	a := r.trigger(w, "")
	return a, time.Since(start)
}

// conformance: 5.no-quorum.when
// conformance: 5.no-quorum.grace
// conformance: 2.error.no-quorum
// conformance: 2.data.shards
func TestNoQuorumAfterTheGrace(t *testing.T) {
	t.Parallel()
	for name, do := range map[string][]behave{
		"1-1-1 and one silent": {say("A"), say("B"), say("C"), silent},
		"2-2":                  {say("A"), say("A"), say("B"), say("B")},
		"2-1-1":                {say("A"), say("A"), say("B"), say("C")},
		"2 results, 2 errors":  {say("A"), say("A"), failing, failing},
		"1-1-1 and one absent": {say("A"), say("B"), say("C"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true})
				w := theWorkflow()
				r.connectEach("don", []workflow.Metadata{w}, do...)
				r.awaitWorkflow(w.Selector.WorkflowID)
				a, took := r.took(w)
				require.Equal(t, "no_quorum", a.reason(), "%s", a.raw)
				require.Equal(t, 502, a.status)
				require.Equal(t, -32603, a.body.Error.Code)
				require.InDelta(t, time.Second, took, float64(10*time.Millisecond))
				require.Len(t, a.body.Error.Data.Shards, 1)
				st := a.body.Error.Data.Shards[0]
				require.Equal(t, 3, st.Threshold)
				total := 0
				for i, g := range st.Groups {
					total += g
					require.True(t, i == 0 || g <= st.Groups[i-1], "largest first")
				}
				require.Equal(t, st.Answered, total)
			})
		})
	}
}

// conformance: 5.no-quorum.grace
// conformance: 5.vote.moves
func TestChangedVoteInsideTheGraceWins(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		flip := func(n *testNode, req jsonrpc.Request) {
			n.result(req, "B", "")
			time.AfterFunc(500*time.Millisecond, func() { n.result(req, "A", "") })
		}
		r.connectEach("don", []workflow.Metadata{w}, say("A"), say("A"), say("B"), flip)
		r.awaitWorkflow(w.Selector.WorkflowID)
		a, took := r.took(w)
		require.Equal(t, 200, a.status, "%s", a.raw)
		require.Contains(t, string(a.body.Result), `"status":"A"`)
		require.InDelta(t, 500*time.Millisecond, took, float64(10*time.Millisecond))
	})
}

// conformance: 2.error.timeout
// conformance: 2.timeout.request
// conformance: 2.data.shards
func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]rigSpec{
		"maxTriggerRequestDurationMs": {handler: map[string]any{"maxTriggerRequestDurationMs": 7000}},
		"requestTimeoutMillis":        {user: map[string]any{"requestTimeoutMillis": 7000}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				spec.bubble = true
				r := newRig(t, spec)
				w := theWorkflow()
				r.connectEach("don", []workflow.Metadata{w}, say("A"), say("A"), silent, silent)
				r.awaitWorkflow(w.Selector.WorkflowID)
				a, took := r.took(w)
				require.Equal(t, "timeout", a.reason(), "%s", a.raw)
				require.Equal(t, 504, a.status)
				require.InDelta(t, 7*time.Second, took, float64(20*time.Millisecond))
				require.Equal(t, []shardState{{Threshold: 3, Connected: 4, Answered: 2, Groups: []int{2}}}, a.body.Error.Data.Shards)
			})
		})
	}
}

// conformance: 2.error.don-unavailable
func TestDONUnavailable(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		nodes := r.connectEach("don", []workflow.Metadata{w}, silent, silent, silent, silent)
		r.awaitWorkflow(w.Selector.WorkflowID)
		for _, n := range nodes {
			_ = n.conn.Close()
		}
		synctest.Wait()
		a, took := r.took(w)
		require.Equal(t, "don_unavailable", a.reason(), "%s", a.raw)
		require.Equal(t, 503, a.status)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.InDelta(t, 2*time.Second, took, float64(10*time.Millisecond))

		// Counted from the last disconnect when that is later than the dispatch.
		n := r.connect("don", 0, []workflow.Metadata{w}, silent)
		time.AfterFunc(5*time.Second, func() { _ = n.conn.Close() })
		a, took = r.took(w)
		require.Equal(t, "don_unavailable", a.reason(), "%s", a.raw)
		require.InDelta(t, 7*time.Second, took, float64(10*time.Millisecond))
	})
}

// conformance: 5.error.held
// conformance: 5.result.first
// conformance: 5.error.connected
func TestErrorsAreHeld(t *testing.T) {
	t.Parallel()
	four := func(b behave) []behave { return []behave{b, b, b, b} }
	late := func(n *testNode, req jsonrpc.Request) {
		time.AfterFunc(600*time.Millisecond, func() { n.accept(req) })
	}
	absent := []behave{silent, silent, nil, nil}
	lateError := func(n *testNode, req jsonrpc.Request) {
		time.AfterFunc(300*time.Millisecond, func() { n.fail(req, "boom") })
	}
	for name, tt := range map[string]struct {
		a, b  []behave
		error bool
		took  time.Duration
	}{
		"other shard silent":               {four(silent), four(failing), true, time.Second},
		"other shard's result comes later": {four(late), four(failing), false, 600 * time.Millisecond},
		"other shard below quorum":         {absent, four(failing), true, 0},
		"both errors":                      {four(lateError), four(failing), true, 300 * time.Millisecond},
		"other shard split":                {[]behave{say("A"), say("A"), say("B"), say("B")}, four(lateError), true, 300 * time.Millisecond},
		"result first":                     {four((*testNode).accept), four(lateError), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}}})
				w := theWorkflow()
				r.connectEach("don", []workflow.Metadata{w}, tt.a...)
				r.connectEach("don_1", []workflow.Metadata{w}, tt.b...)
				r.awaitShards(w.Selector.WorkflowID, 2)
				a, took := r.took(w)
				require.Equal(t, 200, a.status, "%s", a.raw)
				require.InDelta(t, tt.took, took, float64(10*time.Millisecond))
				if tt.error {
					require.NotNil(t, a.body.Error)
					require.Equal(t, "boom", a.body.Error.Message)
				} else {
					require.Contains(t, string(a.body.Result), "ACCEPTED")
				}
			})
		})
	}
}

// conformance: 5.retry.backoff
// conformance: 5.retry.connect
// conformance: 5.retry.never-after
// conformance: 5.send.fails
func TestRetrySchedule(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		nodes := r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept, nil, nil)
		r.awaitWorkflow(w.Selector.WorkflowID)
		tries := func() int {
			return int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.sends.noSession))
		}
		done := make(chan *clientAnswer, 1)
		start := time.Now()
		go func() { done <- r.trigger(w, "retried") }()
		synctest.Wait()
		require.Equal(t, 2, tries(), "both absent nodes are tried at once")
		// Retry k waits between 100 ms and 100·2^k ms: the first exactly 100 ms.
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 4, tries())
		time.Sleep(100 * time.Millisecond) // 100 to 200 ms later
		synctest.Wait()
		second := tries()
		require.GreaterOrEqual(t, second, 4)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.GreaterOrEqual(t, tries(), 6)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		// Steps of at most 0.1·2^k s: after 20 s neither fewer tries than doubling allows nor many more.
		require.GreaterOrEqual(t, tries(), 2*7)
		require.LessOrEqual(t, tries(), 2*20)

		connected := time.Now()
		late := r.connect("don", 2, []workflow.Metadata{w}, (*testNode).accept)
		a := <-done
		require.Equal(t, 200, a.status)
		require.Less(t, time.Since(connected), 50*time.Millisecond, "sent as soon as the node connected")
		require.Greater(t, time.Since(start), 20*time.Second)
		require.Equal(t, nodes[0].raw[0], late.raw[0], "the same bytes")

		before := tries()
		never := r.connect("don", 3, []workflow.Metadata{w}, (*testNode).accept)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, before, tries())
		require.Zero(t, never.seen(), "nothing is sent after the answer")
	})
}

// conformance: 3.replay.once
func TestOneOfManyCopiesIsDispatched(t *testing.T) {
	t.Parallel()
	rounds := 200
	r := newRig(t, rigSpec{handler: unlimited()})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	for round := range rounds {
		s := sign(fmt.Sprintf("round-%d", round), paramsFor(w, []int{round}), clientSigner, auth.TokenOptions{})
		var ok, refused atomic.Int32
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range 64 {
			wg.Go(func() {
				<-gate
				a, err := r.post(context.Background(), s.body, s.header())
				switch {
				case err != nil:
					t.Error(err)
				case a.status == 200:
					ok.Add(1)
				case a.reason() == "token_replayed":
					refused.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.raw)
				}
			})
		}
		close(gate)
		wg.Wait()
		require.EqualValues(t, 1, ok.Load())
		require.EqualValues(t, 63, refused.Load())
	}
	total := 0
	for _, n := range nodes {
		n.mu.Lock()
		seen := map[string]bool{}
		for _, req := range n.requests {
			require.False(t, seen[req.ID], "%s dispatched twice", req.ID)
			seen[req.ID] = true
		}
		total += len(n.requests)
		n.mu.Unlock()
	}
	// The fourth node may be spared a request that three have decided.
	require.GreaterOrEqual(t, total, 3*rounds)
}

// unlimited raises every limit so that a test's own load is not refused.
func unlimited() map[string]any {
	high := map[string]any{"globalRPS": 1e6, "globalBurst": 1000000, "perSenderRPS": 1e6, "perSenderBurst": 1000000}
	return map[string]any{"userRateLimiter": high, "nodeRateLimiter": high}
}

// conformance: 2.order.unburnt
// conformance: 2.error.rate
// conformance: 2.retry-after
func TestRateLimitedRequestIsAcceptedLater(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{
			"userRateLimiter": map[string]any{"perSenderRPS": 0.5, "perSenderBurst": 1}}})
		w := theWorkflow()
		r.connectAll(nil, w)
		require.Equal(t, 200, r.trigger(w, "").status)
		s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		a := r.send(s)
		require.Equal(t, 429, a.status)
		require.Equal(t, "rate_limited", a.reason())
		require.Equal(t, -32000, a.body.Error.Code)
		require.Regexp(t, "^rate limit exceeded", a.body.Error.Message)
		wait, err := time.ParseDuration(a.header.Get("Retry-After") + "s")
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, wait)
		time.Sleep(wait)
		a = r.send(s)
		require.Equal(t, 200, a.status, "%s", a.raw)
	})
}

// conformance: 3.replay.signers
// conformance: 5.id.workflows
// conformance: 4.dropped.late
// conformance: 4.dropped.foreign
// conformance: 5.match.several
// conformance: 5.match.other
func TestSharedJTIAndSharedID(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	second := auth.NewKeySigner(key(555))
	w1, w2 := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", second)
	release := make(chan struct{})
	hold := func(n *testNode, req jsonrpc.Request) {
		go func() { <-release; n.accept(req) }()
	}
	nodes := r.connectAll(hold, w1, w2)["don"]
	jti := uuid.NewString()
	answers := make(chan *clientAnswer, 2)
	for _, s := range []signed{
		sign("same", paramsFor(w1, []int{1}), clientSigner, auth.TokenOptions{ID: jti}),
		sign("same", paramsFor(w2, []int{2}), second, auth.TokenOptions{ID: jti}),
	} {
		go func() { answers <- r.send(s) }()
	}
	for _, n := range nodes {
		<-n.got
		<-n.got
	}
	// An error without a workflow counts for none of several open requests.
	nodes[0].send([]byte(`{"jsonrpc":"2.0","id":"same","method":"","error":{"code":1,"message":"whose?"}}`))
	r.eventually(func() bool {
		return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropForeign]) == 1
	}, "foreign answer counted")
	// An answer naming another workflow is dropped and counted.
	nodes[0].send([]byte(`{"jsonrpc":"2.0","id":"same","method":"","result":{"workflow_id":"0x3"}}`))
	r.eventually(func() bool {
		return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropForeign]) == 2
	}, "foreign answer counted")
	close(release)
	got := map[string]bool{}
	for range 2 {
		a := <-answers
		require.Equal(t, 200, a.status, "%s", a.raw)
		got[string(a.body.Result)] = true
	}
	require.Len(t, got, 2)
	for _, w := range []workflow.Metadata{w1, w2} {
		require.True(t, got[fmt.Sprintf(`{"workflow_id":%q,"workflow_execution_id":%q,"status":"ACCEPTED"}`,
			w.Selector.WorkflowID, workflow.ExecutionID(w.Selector.WorkflowID, "same"))])
	}
	// A late answer reaches nothing.
	nodes[0].send([]byte(`{"jsonrpc":"2.0","id":"same","method":"","result":{"workflow_id":"0x1"}}`))
	r.eventually(func() bool {
		return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropLate]) >= 1
	}, "late answer counted")
}

// conformance: 5.id.reserved
// conformance: 5.id.text
// conformance: 2.error.conflict
// conformance: 2.data.conflict
// conformance: 2.data.conflict-other
// conformance: 5.client-gone
func TestConflict(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		second := auth.NewKeySigner(key(555))
		w := testWorkflow(1, "one", "v1", clientSigner, second)
		hold := func(n *testNode, req jsonrpc.Request) {
			if req.ID == "slow" {
				time.AfterFunc(3*time.Second, func() { n.accept(req) })
			} else if req.ID != "dead" {
				n.accept(req)
			}
		}
		r.connectAll(hold, w)
		ask := func(id string, s auth.Signer) *clientAnswer {
			return r.send(sign(id, paramsFor(w, []int{2}), s, auth.TokenOptions{}))
		}
		done := make(chan *clientAnswer, 1)
		go func() { done <- ask("slow", clientSigner) }()
		synctest.Wait()
		a := ask("slow", clientSigner)
		require.Equal(t, 409, a.status, "%s", a.raw)
		require.Equal(t, "conflict", a.reason())
		require.Equal(t, -32001, a.body.Error.Code)
		require.Equal(t, "open", a.body.Error.Data.State)
		require.Equal(t, workflow.ExecutionID(w.Selector.WorkflowID, "slow"), a.body.Error.Data.ExecutionID)
		require.Nil(t, a.body.Error.Data.Response)
		require.Contains(t, a.body.Error.Message, "may still run")
		first := <-done
		require.Equal(t, 200, first.status)
		a = ask("slow", clientSigner)
		require.Equal(t, "answered", a.body.Error.Data.State)
		require.JSONEq(t, string(first.raw), string(a.body.Error.Data.Response))
		a = ask("slow", second)
		require.Equal(t, 409, a.status)
		require.Empty(t, a.body.Error.Data.State)
		require.Empty(t, a.body.Error.Data.ExecutionID)

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s := sign("dead", paramsFor(w, []int{2}), clientSigner, auth.TokenOptions{})
		_, err := r.post(ctx, s.body, s.header())
		require.Error(t, err)
		synctest.Wait()
		// The client going away cancels the work, the id stays reserved.
		require.Zero(t, r.srv.openRequests())
		a = ask("dead", clientSigner)
		require.Equal(t, "failed", a.body.Error.Data.State)

		time.Sleep(10*time.Minute + time.Second)
		require.Equal(t, 200, ask("slow", second).status)
	})
}

// conformance: 1.numbers.votes
func TestExactNumbersDecide(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		extra := func(s string) behave {
			return func(n *testNode, req jsonrpc.Request) { n.result(req, "A", `,"n":`+s) }
		}
		r.connectEach("don", []workflow.Metadata{w}, extra("9007199254740992"), extra("9007199254740993"),
			extra("9007199254740992.0"), extra("9007199254740993"))
		r.awaitWorkflow(w.Selector.WorkflowID)
		a := r.trigger(w, "")
		require.Equal(t, "no_quorum", a.reason(), "%s", a.raw)
		require.Equal(t, []int{2, 2}, a.body.Error.Data.Shards[0].Groups)
	})
}

// conformance: 4.dropped.superfluous
func TestSuperfluousVotes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	flood := func(n *testNode, req jsonrpc.Request) {
		for i := range 20 {
			n.result(req, fmt.Sprintf("S%d", i), "")
		}
	}
	release := make(chan struct{})
	hold := func(n *testNode, req jsonrpc.Request) { go func() { <-release; n.accept(req) }() }
	r.connectEach("don", []workflow.Metadata{w}, flood, hold, hold, hold)
	r.awaitWorkflow(w.Selector.WorkflowID)
	done := make(chan *clientAnswer, 1)
	go func() { done <- r.trigger(w, "") }()
	r.eventually(func() bool {
		return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropSuperfluous]) == 12
	}, "12 superfluous")
	close(release)
	require.Equal(t, 200, (<-done).status)
}

// conformance: 5.open.workflow
func TestOpenRequestsPerWorkflow(t *testing.T) {
	t.Parallel()
	reg := newFlightRegistry()
	for range maxOpenPerWorkflow {
		require.True(t, reg.reserve("w"))
	}
	require.False(t, reg.reserve("w"))
	require.True(t, reg.reserve("other"))
	reg.unreserve("w")
	require.True(t, reg.reserve("w"))
	for range maxOpenPerWorkflow {
		reg.unreserve("w")
	}
	reg.unreserve("other")
	require.Empty(t, reg.workflows)
}

// conformance: 2.error.gate
// conformance: 5.open.bytes
// conformance: 2.error.open-bytes
func TestOverloaded(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{user: map[string]any{"maxConcurrentRequests": 1}})
	w := theWorkflow()
	nodes := r.connectAll(silent, w)["don"]
	ctx, cancel := context.WithCancel(context.Background())
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = r.post(ctx, s.body, s.header()) }()
	<-nodes[0].got
	a := r.trigger(w, "")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "overloaded", a.reason())
	require.Equal(t, "1", a.header.Get("Retry-After"))
	cancel()
	<-ended
	r.eventually(func() bool { return r.srv.clients.gate.Load() == 0 }, "the gate opens again")

	small := newRig(t, rigSpec{handler: map[string]any{"maxOpenBytes": 1000}})
	small.connectAll(nil, w)
	a = small.send(sign("", paramsFor(w, []string{fmt.Sprintf("%01000d", 1)}), clientSigner, auth.TokenOptions{}))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "overloaded", a.reason())
	require.Equal(t, 200, small.trigger(w, "").status)
	require.Zero(t, small.svc().open.held(), "everything is given back")
	require.Zero(t, small.srv.clients.reading.Load())
}
