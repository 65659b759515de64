package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// push sends one workflow unasked.
func (n *testNode) push(w workflow.Metadata) {
	n.send(jsonrpc.AppendResult(nil, "push_workflow_metadata/"+w.Selector.WorkflowID+"/1", methodPush, mustJSON(w)))
}

func (r *rig) known(w workflow.Metadata) bool {
	return r.svc().view.Load().ByID(w.Selector.WorkflowID) != nil
}

// conformance: 6.agreement
// conformance: 6.view.at-once
func TestPushMakesAWorkflowCallable(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		nodes := r.connectEach("don", nil, (*testNode).accept, (*testNode).accept, (*testNode).accept, (*testNode).accept)
		synctest.Wait()
		nodes[0].push(w)
		nodes[0].push(w) // one node twice is still one node
		synctest.Wait()
		require.False(t, r.known(w))
		require.Equal(t, 404, r.trigger(w, "").status)
		nodes[1].push(w)
		start := time.Now()
		synctest.Wait()
		require.True(t, r.known(w))
		require.Equal(t, 200, r.trigger(w, "").status)
		require.Less(t, time.Since(start), 100*time.Millisecond)
	})
}

// conformance: 6.withdrawal
// conformance: 6.pull.silent
func TestWithdrawal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		var nodes []*testNode
		for i := range 4 { // nothing in answer to pulls: existing nodes without workflows send no message
			nodes = append(nodes, r.connect("don", i, nil, nil))
		}
		synctest.Wait()
		for _, n := range nodes {
			n.push(w)
		}
		synctest.Wait()
		require.True(t, r.known(w))
		time.Sleep(2 * time.Minute) // two pull intervals
		synctest.Wait()
		require.False(t, r.known(w))
	})
}

// conformance: 6.pull.messages
// conformance: 6.valid.element
func TestPullInSeveralMessages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		var all []workflow.Metadata
		for i := range 120 {
			all = append(all, testWorkflow(i+1, fmt.Sprintf("w%d", i), "v1", clientSigner))
		}
		for i := range 2 {
			n, err := r.dialNode("don", i, uint32(time.Now().Unix()))
			require.NoError(t, err)
			t.Cleanup(func() { _ = n.conn.Close(); <-n.ended })
			go func() {
				defer close(n.ended)
				for {
					_, data, err := n.conn.ReadMessage()
					if err != nil {
						return
					}
					req, err := jsonrpc.DecodeNodeRequest(data)
					if err != nil || !strings.HasPrefix(req.ID, pullPrefix) {
						t.Errorf("node got %s", data)
						return
					}
					for at := 0; at < len(all); at += 50 {
						var batch []json.RawMessage
						for _, w := range all[at:min(at+50, len(all))] {
							batch = append(batch, mustJSON(w))
						}
						batch = append(batch, json.RawMessage(`{"WorkflowSelector":{}}`))
						n.send(jsonrpc.AppendResult(nil, req.ID, methodPull, mustJSON(batch)))
					}
				}
			}()
		}
		for range 10 { // over several pulls nothing flickers
			time.Sleep(30 * time.Second)
			synctest.Wait()
			require.Equal(t, len(all), r.svc().view.Load().Len())
		}
	})
}

// conformance: 6.withdrawal
// conformance: 6.merge.newest
// conformance: 6.superseded
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"don", "don_1"}, {"don_1", "don"}} {
		t.Run(order[0]+" first", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}}})
				next := auth.NewKeySigner(key(4242))
				old, rotated := testWorkflow(1, "w", "v1", clientSigner), testWorkflow(1, "w", "v1", next)
				nodes := r.connectAll(nil, old)
				r.awaitShards(old.Selector.WorkflowID, 2)
				call := func(s auth.Signer) string {
					return r.send(sign("", paramsFor(old, []int{1}), s, auth.TokenOptions{})).reason()
				}
				require.Equal(t, "ok", call(clientSigner))
				require.Equal(t, "unauthorized", call(next))
				nodes[order[0]][0].push(rotated)
				synctest.Wait()
				require.Equal(t, "ok", call(clientSigner))
				nodes[order[0]][1].push(rotated)
				synctest.Wait()
				require.Equal(t, "unauthorized", call(clientSigner))
				require.Equal(t, "ok", call(next))
				nodes[order[0]][2].push(old) // a laggard says the old set again
				nodes[order[1]][2].push(old)
				nodes[order[1]][3].push(old)
				synctest.Wait()
				require.Equal(t, "unauthorized", call(clientSigner))
				for _, n := range nodes[order[1]][:2] {
					n.push(rotated)
				}
				synctest.Wait()
				require.Equal(t, "unauthorized", call(clientSigner))
				require.Equal(t, "ok", call(next))
			})
		})
	}
}

// conformance: 6.merge.conflict
func TestForeignDONCannotTakeOver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4}}, {"evil", 1, []int{4}}}})
		thief := auth.NewKeySigner(key(666))
		w := theWorkflow()
		for i := range 4 {
			r.connect("don", i, []workflow.Metadata{w}, nil)
		}
		r.awaitWorkflow(w.Selector.WorkflowID)
		sameID, sameName := testWorkflow(1, "my workflow", "v1", thief), testWorkflow(9, "my workflow", "v1", thief)
		for i := range 4 {
			n := r.connect("evil", i, nil, say("STOLEN"))
			n.push(sameID)
			n.push(sameName)
		}
		synctest.Wait()
		byID := r.send(sign("", paramsFor(w, []int{1}), thief, auth.TokenOptions{}))
		require.Equal(t, "unauthorized", byID.reason())
		byName := map[string]any{"input": []int{1}, "workflow": map[string]any{
			"workflowOwner": w.Selector.WorkflowOwner, "workflowName": "my workflow", "workflowTag": "v1"}}
		require.Equal(t, "unauthorized", r.send(sign("", byName, thief, auth.TokenOptions{})).reason())
		a := r.send(sign("", byName, clientSigner, auth.TokenOptions{}))
		require.Equal(t, 200, a.status, "%s", a.raw)
		require.Contains(t, string(a.raw), "ACCEPTED")
		svc := r.svc()
		svc.metaMu.Lock()
		defer svc.metaMu.Unlock()
		require.NotZero(t, svc.metadata.Stats().Conflicts)
	})
}

// conformance: 6.expiry
func TestDisconnectedNodesExpire(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		for _, n := range r.connectAll(nil, w)["don"] {
			_ = n.conn.Close()
			<-n.ended
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		require.True(t, r.known(w))
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		require.False(t, r.known(w))
	})
}

// A restarted gateway serves as soon as a quorum of nodes has reconnected and
// answered one pull.
func TestRestartServesAfterOnePull(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		w := theWorkflow()
		for range 2 {
			r := newRig(t, rigSpec{bubble: true})
			start := time.Now()
			for i := range 3 {
				r.connect("don", i, []workflow.Metadata{w}, nil)
			}
			synctest.Wait()
			require.Equal(t, 200, r.trigger(w, "").status)
			require.Less(t, time.Since(start), 100*time.Millisecond)
		}
	})
}

// conformance: 4.throttle.action
// conformance: 4.throttle.other
// conformance: 4.rate.buckets
func TestThrottledNodeMessages(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{
			"nodeRateLimiter": map[string]any{"globalRPS": 0.01, "globalBurst": 4, "perSenderRPS": 0.01, "perSenderBurst": 3}}})
		nodes := r.connectEach("don", nil, silent, silent)
		synctest.Wait()
		w := theWorkflow()
		for range 3 {
			nodes[0].push(w)
		}
		synctest.Wait()
		m := r.srv.current().topology.shards["don"].m
		require.Zero(t, testutil.ToFloat64(m.dropped[dropThrottled]))
		nodes[0].push(w)
		synctest.Wait()
		require.EqualValues(t, 1, testutil.ToFloat64(m.dropped[dropThrottled]))
		nodes[0].send([]byte(`{"jsonrpc":"2.0","id":"http_action/0x1/u1","method":"http_action","result":{"url":"https://example.org"}}`))
		req := <-nodes[0].got
		require.Equal(t, "http_action/0x1/u1", req.ID)
		require.Equal(t, "http_action", req.Method)
		require.JSONEq(t, `{"errorMessage":"rate limit exceeded: the node, or its shard, sends too many messages","isExternalEndpointError":false,"isValidationError":true,"externalEndpointLatency":0}`, string(req.Params))

		nodes[1].push(w) // the shard's fourth and last
		nodes[1].push(w)
		synctest.Wait()
		require.EqualValues(t, 3, testutil.ToFloat64(m.dropped[dropThrottled]))
	})
}

// conformance: 4.rate.answers
// conformance: 4.dropped.late
func TestAnswersNeverDrawOnABucket(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{handler: map[string]any{
		"userRateLimiter": map[string]any{"globalRPS": 1e6, "globalBurst": 1000000, "perSenderRPS": 1e6, "perSenderBurst": 1000000},
		"nodeRateLimiter": map[string]any{"globalRPS": 0.01, "globalBurst": 2, "perSenderRPS": 0.01, "perSenderBurst": 2}}})
	w := theWorkflow()
	release := make(chan struct{})
	slow := func(n *testNode, req jsonrpc.Request) { go func() { <-release; n.accept(req) }() }
	nodes := r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept, (*testNode).accept, slow)
	r.awaitWorkflow(w.Selector.WorkflowID)
	for range 300 {
		require.Equal(t, 200, r.trigger(w, "").status)
	}
	close(release) // the honest slow node's answers are all late
	r.eventually(func() bool {
		return int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropLate])) >= nodes[3].seen()
	}, "late answers are counted")
	for range 2 {
		nodes[3].push(testWorkflow(3, "pushed", "v1", clientSigner))
	}
	nodes[0].push(testWorkflow(3, "pushed", "v1", clientSigner))
	r.eventually(func() bool {
		return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropThrottled]) == 1
	}, "three pushes on two tokens of the shard")
	require.Zero(t, testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropMalformed]))
}
