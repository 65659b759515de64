package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/aggregation"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// dropped is how many messages of a shard's nodes were dropped for a reason.
func (r *rig) dropped(shard, why string) int {
	return int(testutil.ToFloat64(r.srv.current().topology.shards[shard].m.dropped[why]))
}

// votes is how many answers of a shard's nodes did that to a vote.
func (r *rig) votes(shard string, status aggregation.VoteStatus) int {
	return int(testutil.ToFloat64(r.srv.current().topology.shards[shard].m.votes[status]))
}

// within waits for ch at most a minute, which in a bubble is over at once.
func within[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing came")
	}
	return v
}

// live is the session of a node, nil when it has none.
func (r *rig) live(shard string, index int) *session {
	return r.srv.current().topology.shards[shard].nodes[index].session.Load()
}

// after accepts a trigger some time after it came, so that every node has it by then.
func after(d time.Duration) behave {
	return func(n *testNode, req jsonrpc.Request) { time.AfterFunc(d, func() { n.accept(req) }) }
}

// freezer returns the behaviour of a node that takes one trigger and then stops
// reading until thaw is called, which a test must do before it ends.
func freezer() (freeze behave, thaw func()) {
	ch := make(chan struct{})
	return func(*testNode, jsonrpc.Request) { <-ch }, sync.OnceFunc(func() { close(ch) })
}

// conformance: 4.frames.roles
// conformance: 4.frames.binary
func TestOnlyRequestsOneWayAndResponsesTheOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, silent, silent)
		n, err := r.dialNode("don", 2, uint32(time.Now().Unix()))
		require.NoError(t, err)
		var mu sync.Mutex
		seen := map[string]bool{}
		go func() {
			defer close(n.ended)
			for {
				kind, data, err := n.conn.ReadMessage()
				if err != nil {
					return
				}
				var m map[string]json.RawMessage
				if json.Unmarshal(data, &m) != nil || kind != websocket.BinaryMessage || m["params"] == nil || m["id"] == nil || m["result"] != nil || m["error"] != nil {
					t.Errorf("no request in a binary frame: %d %s", kind, data)
				}
				mu.Lock()
				seen[string(m["method"])] = true
				mu.Unlock()
			}
		}()
		defer func() { _ = n.conn.Close(); <-n.ended }()
		synctest.Wait()
		go func() { _ = r.trigger(w, "") }()
		n.send([]byte(`{"jsonrpc":"2.0","id":"http_action/0x1/u","method":"http_action","result":{}}`))
		synctest.Wait()
		mu.Lock()
		require.Equal(t, map[string]bool{`"workflows.execute"`: true, `"pull_workflow_metadata"`: true, `"http_action"`: true}, seen)
		mu.Unlock()

		// What comes from a node in the form of a request means nothing, whatever it asks.
		for i, request := range []string{
			`{"jsonrpc":"2.0","id":"1","method":"workflows.execute","params":{}}`,
			`{"jsonrpc":"2.0","id":"push_workflow_metadata/1","method":"push_workflow_metadata","params":` + string(mustJSON(testWorkflow(2, "x", "v1", clientSigner))) + `}`,
			`{"jsonrpc":"2.0","id":"http_action/0x1/u","method":"http_action","params":{}}`,
		} {
			n.send([]byte(request))
			synctest.Wait()
			require.Equal(t, i+1, r.dropped("don", dropMalformed))
		}
		require.NoError(t, n.conn.WriteMessage(websocket.TextMessage, jsonrpc.AppendResult(nil, "push_workflow_metadata/1", "", mustJSON(theWorkflow()))))
		synctest.Wait()
		require.Equal(t, 4, r.dropped("don", dropMalformed))
	})
}

// conformance: 4.ping.schedule
func TestEverySessionPingsOnItsOwnSchedule(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const heartbeat = 20 * time.Second
		r := newRig(t, rigSpec{bubble: true, manager: map[string]any{"heartbeatIntervalSec": 20}})
		start := time.Now()
		pings := make([][]time.Duration, 4)
		var conns []*websocket.Conn
		var reading sync.WaitGroup
		for i := range pings {
			n, err := r.dialNode("don", i, uint32(time.Now().Unix()))
			require.NoError(t, err)
			n.conn.SetPingHandler(func(payload string) error {
				pings[i] = append(pings[i], time.Since(start))
				return n.conn.WriteControl(websocket.PongMessage, []byte(payload), time.Now().Add(time.Second))
			})
			conns = append(conns, n.conn)
			reading.Go(func() {
				for {
					if _, _, err := n.conn.ReadMessage(); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(5 * time.Minute)
		for _, c := range conns {
			_ = c.Close()
		}
		reading.Wait()
		second := map[time.Duration]bool{}
		for _, at := range pings {
			require.GreaterOrEqual(t, len(at), 15)
			require.Less(t, at[0], time.Millisecond, "at once")
			require.GreaterOrEqual(t, at[1], heartbeat/2)
			require.LessOrEqual(t, at[1], heartbeat)
			for i := 2; i < len(at); i++ {
				require.Equal(t, heartbeat, at[i]-at[i-1])
			}
			second[at[1]] = true
		}
		require.Len(t, second, 4, "sessions that began together do not ping together")
	})
}

// conformance: 4.write.timeout
func TestSlowWriteClosesTheSession(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, node: map[string]any{"writeTimeoutMillis": 3000}})
		w := theWorkflow()
		freeze, thaw := freezer()
		defer thaw()
		soon := after(time.Millisecond)
		r.connectEach("don", []workflow.Metadata{w}, soon, soon, soon, freeze)
		r.awaitWorkflow(w.Selector.WorkflowID)
		require.Equal(t, 200, r.trigger(w, "read").status)
		go func() { _ = r.trigger(w, "not read") }()
		time.Sleep(3*time.Second - time.Millisecond)
		require.NotNil(t, r.live("don", 3))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Nil(t, r.live("don", 3), "it counts as down at once")
		require.EqualValues(t, 3, r.srv.current().topology.shards["don"].connected())
		require.EqualValues(t, 1, testutil.ToFloat64(r.srv.metrics.sessionEnds.WithLabelValues("write_timeout")))
		require.Equal(t, 200, r.trigger(w, "").status)
	})
}

// conformance: 4.queue.bounds
func TestQueueHolds8MB(t *testing.T) {
	t.Parallel()
	q := newSendQueue()
	for _, size := range []int{8<<20 - 10, 10} {
		_, err := q.push(outgoing{size: size}, time.Time{})
		require.NoError(t, err)
	}
	_, err := q.push(outgoing{size: 1}, time.Time{})
	require.ErrorIs(t, err, errQueueFull)
}

// conformance: 4.queue.bounds
// conformance: 4.queue.full
func TestQueueThatStaysFullClosesTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{node: map[string]any{"writeTimeoutMillis": 3000}})
	r.connect("don", 0, nil, nil)
	// A session whose writer does nothing at all.
	s := newSession(r.srv, r.srv.current().topology.shards["don"].nodes[1], r.live("don", 0).conn)
	now := time.Now()
	for range 256 {
		require.NoError(t, s.send(outgoing{size: 1}, now))
	}
	for _, after := range []time.Duration{0, time.Second, 3*time.Second - 1} {
		require.ErrorIs(t, s.send(outgoing{size: 1}, now.Add(after)), errQueueFull)
		require.Nil(t, s.closing.Load(), after)
	}
	_, ok := s.queue.pop() // room again: the time starts anew with the next refusal
	require.True(t, ok)
	require.NoError(t, s.send(outgoing{size: 1}, now.Add(4*time.Second)))
	require.ErrorIs(t, s.send(outgoing{size: 1}, now.Add(5*time.Second)), errQueueFull)
	require.Nil(t, s.closing.Load())
	require.ErrorIs(t, s.send(outgoing{size: 1}, now.Add(8*time.Second)), errQueueFull)
	require.Equal(t, &closeReason{websocket.ClosePolicyViolation, "queue_full"}, s.closing.Load())
}

// conformance: 4.route.method
// conformance: 4.route.answer
func TestRouting(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		n := r.connect("don", 0, nil, silent)
		w := testWorkflow(1, "one", "v1", clientSigner)
		reports := func() int { return int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.reports)) }
		id := w.Selector.WorkflowID
		for _, tt := range []struct {
			id, effect string
		}{
			{"http_action/" + id + "/u1", "action"},
			{"http_action/" + id + "/" + strings.Repeat("e", 64) + "/u2", "action"},
			{"push_workflow_metadata/" + id + "/u3", "report"},
			{"push_workflow_metadata/x", "report"},
			{"pull_workflow_metadata/never-asked", dropLate},
			{"http_action", dropLate}, // no slash: an answer to a trigger that is not open
			{"push_workflow_metadata", dropLate},
			{"pull_workflow_metadata", dropLate},
			{"a-client's-id", dropLate},
			{"HTTP_ACTION/" + id + "/u", dropMalformed},
			{"workflows.execute/x", dropMalformed},
			{"/http_action/x", dropMalformed},
			{"push_workflow_metadata/", dropMalformed},
			{"http_action_more/x", dropMalformed},
		} {
			drops := map[string]int{}
			for _, why := range []string{dropLate, dropMalformed, dropForeign, dropRefused, dropThrottled} {
				drops[why] = r.dropped("don", why)
			}
			before := reports()
			n.send(jsonrpc.AppendResult(nil, tt.id, "", mustJSON(w)))
			synctest.Wait()
			for why, count := range drops {
				if tt.effect == why {
					count++
				}
				require.Equal(t, count, r.dropped("don", why), "%s: %s", tt.id, why)
			}
			wantReports := before
			switch tt.effect {
			case "report":
				wantReports++
			case "action":
				require.Equal(t, tt.id, within(t, n.got).ID)
			}
			require.Equal(t, wantReports, reports(), tt.id)
			require.Empty(t, n.got, tt.id)
		}
	})
}

// conformance: 4.rate.buckets
func TestBusyShardDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}}, handler: map[string]any{
			"nodeRateLimiter": map[string]any{"globalRPS": 0.001, "globalBurst": 5, "perSenderRPS": 0.001, "perSenderBurst": 3}}})
		busy := r.connectEach("don", nil, silent, silent)
		idle := r.connectEach("don_1", nil, silent, silent)
		w := theWorkflow()
		for range 10 {
			busy[0].push(w)
		}
		synctest.Wait()
		require.Equal(t, 7, r.dropped("don", dropThrottled), "three of the node's own")
		for range 10 {
			busy[1].push(w)
		}
		synctest.Wait()
		require.Equal(t, 7+8, r.dropped("don", dropThrottled), "two more of the shard's")
		for range 3 {
			idle[0].push(w)
		}
		for range 3 {
			idle[1].push(w)
		}
		synctest.Wait()
		require.Equal(t, 1, r.dropped("don_1", dropThrottled), "the other shard has its own five")
	})
}

// conformance: 4.throttle.action
// conformance: 7.limit.at-once
func TestThrottledActionOfAShard(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{
			"nodeRateLimiter": map[string]any{"globalRPS": 0.001, "globalBurst": 1, "perSenderRPS": 100, "perSenderBurst": 100}}})
		n := r.connect("don", 0, nil, silent)
		n.push(theWorkflow()) // the shard's one token
		for i := range 5 {
			id := fmt.Sprintf("http_action/0x1/%d", i)
			start := time.Now()
			n.send(jsonrpc.AppendResult(nil, id, "http_action", []byte(`{"url":"https://example.org/"}`)))
			got := within(t, n.got)
			require.Zero(t, time.Since(start), "at once")
			require.Equal(t, id, got.ID)
			require.JSONEq(t, `{"errorMessage":"rate limit exceeded: the node, or its shard, sends too many messages","isExternalEndpointError":false,"isValidationError":true,"externalEndpointLatency":0}`, string(got.Params))
		}
	})
}

// conformance: 4.malformed.hundredth
func TestMalformedMessagesStartAtZeroWithTheNextSession(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		n := r.connect("don", 0, nil, nil)
		other := r.connect("don", 1, nil, nil)
		for range 2 {
			for range 99 {
				n.send([]byte(`{}`))
			}
			synctest.Wait()
			require.NotNil(t, r.live("don", 0), "ninety-nine are tolerated")
			n.send([]byte(`{}`))
			synctest.Wait()
			within(t, n.ended)
			require.True(t, websocket.IsCloseError(n.closeErr, websocket.ClosePolicyViolation), "%v", n.closeErr)
			require.Nil(t, r.live("don", 0))
			n = r.connect("don", 0, nil, nil)
		}
		require.NotNil(t, r.live("don", 0))
		require.Equal(t, 2*100, r.dropped("don", dropMalformed))
		select {
		case <-other.ended:
			t.Fatal("another node's session ended")
		default:
		}
	})
}
