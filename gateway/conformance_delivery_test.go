package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/workflow"
)

// conformance: 5.fanout
func TestFanOutToEveryAssignedShard(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4, 4}}}})
		w, warm := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", clientSigner)
		freeze, thaw := freezer()
		defer thaw()
		assigned := []*testNode{}
		for _, shard := range []string{"don", "don_1"} {
			behaviours := []behave{silent, silent, silent, freeze}
			assigned = append(assigned, r.connectEach(shard, []workflow.Metadata{w, warm}, behaviours...)...)
		}
		others := r.connectEach("don_2", nil, silent, silent, silent, silent)
		r.awaitShards(w.Selector.WorkflowID, 2)
		r.awaitShards(warm.Selector.WorkflowID, 2)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		start := time.Now()
		for i, wf := range []workflow.Metadata{warm, w} { // the first one freezes a node of each shard
			s := sign(fmt.Sprint(i), paramsFor(wf, []int{1}), clientSigner, auth.TokenOptions{})
			go func() { _, _ = r.post(ctx, s.body, s.header()) }()
			synctest.Wait()
		}
		require.Zero(t, time.Since(start), "all at once, though two do not read")
		for i, n := range assigned {
			want := 2
			if i%4 == 3 {
				want = 1
			}
			require.Equal(t, want, n.seen(), "node %d", i)
		}
		for _, n := range others {
			require.Zero(t, n.seen(), "the shard is not assigned")
		}
	})
}

// conformance: 5.send.fails
func TestSendThatIsNotWrittenInTimeIsTriedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"nodeSendTimeoutMs": 2000}})
		w := theWorkflow()
		freeze, thaw := freezer()
		defer thaw()
		slow := after(30 * time.Second)
		nodes := r.connectEach("don", []workflow.Metadata{w}, slow, slow, slow, freeze)
		r.awaitWorkflow(w.Selector.WorkflowID)
		sends := &r.srv.current().topology.shards["don"].m.sends
		var done sync.WaitGroup
		ask := func(id string) {
			done.Go(func() {
				if a := r.trigger(w, id); a.status != 200 {
					t.Errorf("%s: %s", id, a.raw)
				}
			})
			synctest.Wait()
		}
		ask("freezes the node")
		ask("is being written") // its first byte waits in the socket
		ask("waits in the queue")
		time.Sleep(2*time.Second - time.Millisecond)
		synctest.Wait()
		require.Zero(t, testutil.ToFloat64(sends.expired))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 1, testutil.ToFloat64(sends.expired), "not written within nodeSendTimeoutMs")
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.Greater(t, int(testutil.ToFloat64(sends.expired)), 1, "and again")
		thaw()
		synctest.Wait()
		require.Equal(t, 3, nodes[3].seen(), "each once, however often it was queued")
		done.Wait()
	})
}

// conformance: 5.send.fails
// conformance: 4.queue.bounds
func TestSendIntoAFullQueueIsTriedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		freeze, thaw := freezer()
		defer thaw()
		slow := after(5 * time.Second)
		nodes := r.connectEach("don", []workflow.Metadata{w}, slow, slow, slow, freeze)
		r.awaitWorkflow(w.Selector.WorkflowID)
		require.Equal(t, 200, r.trigger(w, "freezes the node").status)
		s := r.live("don", 3)
		m, err := websocket.NewPreparedMessage(websocket.BinaryMessage, []byte(`{"jsonrpc":"2.0","id":"http_action/x","method":"http_action","params":{}}`))
		require.NoError(t, err)
		for range 1 + maxQueueMessages { // the first waits in the socket
			err = s.send(outgoing{prepared: m, size: 80}, time.Now())
			synctest.Wait()
		}
		require.NoError(t, err)
		sends := &r.srv.current().topology.shards["don"].m.sends
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "meets a full queue") }()
		synctest.Wait()
		require.EqualValues(t, 1, testutil.ToFloat64(sends.refused))
		thaw() // the queue empties; the next try succeeds
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, nodes[3].seen())
		require.Equal(t, 200, within(t, done).status)
	})
}

// conformance: 5.retry.duration
func TestRetriesEndWithTheRequest(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"maxTriggerRequestDurationMs": 5000, "retryConfig": map[string]any{"initialIntervalMs": 100, "maxIntervalTimeMs": 100}}})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, silent, silent, silent, nil)
		r.awaitWorkflow(w.Selector.WorkflowID)
		tries := func() int { return int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.sends.noSession)) }
		a, took := r.took(w)
		require.Equal(t, "timeout", a.reason())
		require.Equal(t, 5*time.Second, took)
		require.InDelta(t, 50, tries(), 1)
		before := tries()
		time.Sleep(time.Minute)
		require.Equal(t, before, tries())
	})
}

// conformance: 5.retry.never-after
func TestNothingIsSentAfterTheAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		freeze, thaw := freezer()
		defer thaw()
		soon := after(time.Second)
		nodes := r.connectEach("don", []workflow.Metadata{w}, soon, soon, soon, freeze)
		r.awaitWorkflow(w.Selector.WorkflowID)
		require.Equal(t, 200, r.trigger(w, "freezes the node").status)
		require.Equal(t, 200, r.trigger(w, "is being written").status)
		for i := range 20 {
			require.Equal(t, 200, r.trigger(w, fmt.Sprintf("waits in the queue %d", i)).status)
		}
		thaw()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, nodes[3].seen(), "what was not begun is not sent any more")
		require.NotNil(t, r.live("don", 3))
	})
}

// conformance: 5.slow-node
func TestSlowAndDeadNodesCostNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 2, []int{7}}}, handler: unlimited()})
		w := theWorkflow()
		freeze, thaw := freezer()
		defer thaw()
		now := (*testNode).accept
		r.connectEach("don", []workflow.Metadata{w}, now, now, now, now, now, freeze, nil)
		r.awaitWorkflow(w.Selector.WorkflowID)
		for range 300 { // more than the frozen node's queue holds
			a, took := r.took(w)
			require.Equal(t, 200, a.status, "%s", a.raw)
			require.Zero(t, took)
		}
		require.NotNil(t, r.live("don", 5), "still there, though it reads nothing")
	})
}

// conformance: 5.client-gone
func TestClientThatGoesAwayEndsTheWork(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, silent, silent, silent, nil)
		r.awaitWorkflow(w.Selector.WorkflowID)
		ctx, cancel := context.WithCancel(context.Background())
		s := sign("gone", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		done := make(chan error, 1)
		go func() { _, err := r.post(ctx, s.body, s.header()); done <- err }()
		time.Sleep(3 * time.Second)
		cancel()
		require.Error(t, within(t, done))
		synctest.Wait()
		require.Zero(t, r.srv.openRequests(), "at once")
		tries := testutil.ToFloat64(r.srv.current().topology.shards["don"].m.sends.noSession)
		late := r.connect("don", 3, []workflow.Metadata{w}, silent)
		time.Sleep(30 * time.Second)
		require.Equal(t, tries, testutil.ToFloat64(r.srv.current().topology.shards["don"].m.sends.noSession))
		require.Zero(t, late.seen(), "a node that connects is not sent it")
		a := r.send(sign("gone", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{}))
		require.Equal(t, "conflict", a.reason())
		require.Equal(t, "failed", a.body.Error.Data.State)
		require.Equal(t, "token_replayed", r.send(s).reason())
	})
}
