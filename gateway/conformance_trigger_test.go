package gateway

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/aggregation"
	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// conformance: 4.dropped.late
func TestAnswerAtTheDeadlineIsLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectAll(silent, w)
		svc := r.svc()
		// A request whose waiter has not looked at the clock yet when the answer comes.
		c := &call{snapshot: r.srv.current(), request: jsonrpc.Request{ID: "slow"}, deadline: time.Now().Add(time.Second)}
		f := svc.newFlight(c, svc.view.Load().ByID(w.Selector.WorkflowID), nil, 0)
		svc.flights.add(f)
		defer svc.flights.remove(f)
		time.Sleep(2 * time.Second)
		s := r.srv.current().topology.shards["don"].nodes[0].session.Load()
		svc.server.route(s, jsonrpc.AppendResult(nil, "slow", "", mustJSON(map[string]string{"workflow_id": w.Selector.WorkflowID})))
		m := r.srv.current().topology.shards["don"].m
		require.EqualValues(t, 1, testutil.ToFloat64(m.dropped[dropLate]))
		require.Zero(t, testutil.ToFloat64(m.dropped[dropMalformed]))
	})
}

// conformance: 5.threshold
func TestThresholdOfAnyShard(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ n, f, threshold int }{{1, 0, 1}, {2, 0, 2}, {4, 1, 3}, {5, 1, 4}, {6, 1, 4}, {7, 2, 5}, {8, 1, 5}, {10, 3, 7}} {
		for _, equal := range []int{tt.threshold - 1, tt.threshold} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", tt.f, []int{tt.n}}}, handler: map[string]any{"maxTriggerRequestDurationMs": 1500}})
				w := theWorkflow()
				do := make([]behave, tt.n)
				for i := range do {
					do[i] = silent
					if i < equal {
						do[i] = say("A")
					}
				}
				r.connectEach("don", []workflow.Metadata{w}, do...)
				r.awaitWorkflow(w.Selector.WorkflowID)
				a := r.trigger(w, "")
				if equal == tt.threshold {
					require.Equal(t, 200, a.status, "%+v: %s", tt, a.raw)
				} else {
					require.Equal(t, "timeout", a.reason(), "%+v: %s", tt, a.raw)
					require.Equal(t, tt.threshold, a.body.Error.Data.Shards[0].Threshold)
				}
			})
		}
	}
}

// conformance: 5.vote.one
func TestRepeatedAnswersAreOneVote(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"maxTriggerRequestDurationMs": 1500}})
		w := theWorkflow()
		thrice := func(n *testNode, req jsonrpc.Request) {
			for range 3 {
				n.accept(req)
			}
		}
		r.connectEach("don", []workflow.Metadata{w}, thrice, thrice, silent, silent)
		r.awaitWorkflow(w.Selector.WorkflowID)
		a := r.trigger(w, "")
		require.Equal(t, "timeout", a.reason())
		require.Equal(t, []shardState{{Threshold: 3, Connected: 4, Answered: 2, Groups: []int{2}}}, a.body.Error.Data.Shards)
		require.Equal(t, 2, r.votes("don", aggregation.Counted))
		require.Equal(t, 4, r.votes("don", aggregation.Repeated))
	})
}

// conformance: 5.result.bytes
// conformance: 1.numbers.votes
func TestAnswerHasTheFirstVotesBytes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		id := w.Selector.WorkflowID
		answer := func(wait time.Duration, result string) behave {
			return func(n *testNode, req jsonrpc.Request) {
				time.AfterFunc(wait, func() { n.send(jsonrpc.AppendResult(nil, req.ID, "workflows.execute", []byte(result))) })
			}
		}
		first := `{"z": [1.0, 10e-1, 0.1], "workflow_id":"` + id + `","a":"\u00e9"}`
		r.connectEach("don", []workflow.Metadata{w},
			answer(3*time.Second, `{"workflow_id":"`+id+`","a":"é","z":[1,1,1e-1]}`),
			answer(2*time.Second, `{"a":"\u00E9","workflow_id":"`+id+`","z":[1.00,1,0.10]}`),
			answer(time.Second, first),
			answer(500*time.Millisecond, `{"a":"another answer","workflow_id":"`+id+`"}`))
		r.awaitWorkflow(id)
		a, took := r.took(w)
		require.Equal(t, 200, a.status, "%s", a.raw)
		require.Equal(t, 3*time.Second, took)
		require.Equal(t, `{"jsonrpc":"2.0","id":"`+*a.body.ID+`","method":"workflows.execute","result":`+first+`}`, string(a.raw))
	})
}

// conformance: 5.shard.aggregator
func TestVotesOfTwoShardsDoNotAddUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}}})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, say("A"), say("A"), say("B"), say("B"))
		r.connectEach("don_1", []workflow.Metadata{w}, say("A"), say("A"), say("C"), say("C"))
		r.awaitShards(w.Selector.WorkflowID, 2)
		a := r.trigger(w, "")
		require.Equal(t, "no_quorum", a.reason(), "four say A, but two in each shard: %s", a.raw)
		require.Len(t, a.body.Error.Data.Shards, 2)
		for _, s := range a.body.Error.Data.Shards {
			require.Equal(t, shardState{Threshold: 3, Connected: 4, Answered: 4, Groups: []int{2, 2}}, s)
		}
	})
}

// conformance: 5.members.assigned
// conformance: 4.dropped.foreign
func TestOnlyNodesOfAssignedShardsCount(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}, {"other", 1, []int{4}}}})
		w := theWorkflow()
		soon := after(time.Second)
		r.connectEach("don", []workflow.Metadata{w}, soon, soon, soon, soon)
		strangers := append(r.connectEach("don_1", nil, silent, silent, silent, silent), r.connectEach("other", nil, silent, silent, silent, silent)...)
		r.awaitWorkflow(w.Selector.WorkflowID)
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "id") }()
		synctest.Wait()
		for _, n := range strangers {
			n.send(jsonrpc.AppendResult(nil, "id", "workflows.execute", []byte(`{"workflow_id":"`+w.Selector.WorkflowID+`","status":"FORGED"}`)))
			n.send(jsonrpc.AppendNodeError(nil, "id", "workflows.execute", &jsonrpc.Error{Code: 1, Message: "FORGED"}))
		}
		synctest.Wait()
		require.Empty(t, done)
		require.Equal(t, 8, r.dropped("don_1", dropForeign))
		require.Equal(t, 8, r.dropped("other", dropForeign))
		a := within(t, done)
		require.Equal(t, 200, a.status)
		require.NotContains(t, string(a.raw), "FORGED")
	})
}

// conformance: 5.answer.normalised
func TestNodesMaySpellTheWorkflowsIDShort(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := testWorkflow(0xab, "one", "v1", clientSigner)
		var spelling atomic.Value
		r.connectAll(func(n *testNode, req jsonrpc.Request) {
			n.send(jsonrpc.AppendResult(nil, req.ID, "", mustJSON(map[string]any{"workflow_id": spelling.Load()})))
		}, w)
		for _, s := range []string{w.Selector.WorkflowID, w.Selector.WorkflowID[2:], "ab", "0xab", "0x00ab"} {
			spelling.Store(s)
			a := r.trigger(w, "")
			require.Equal(t, 200, a.status, "%s: %s", s, a.raw)
		}
		for _, s := range []string{"ac", "0x0ab0", strings.Repeat("0", 63) + "ab", "not hex", "0x"} {
			spelling.Store(s)
			before := r.dropped("don", dropForeign)
			done := make(chan *clientAnswer, 1)
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				signed := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
				a, _ := r.post(ctx, signed.body, signed.header())
				done <- a
			}()
			synctest.Wait()
			require.Equal(t, before+4, r.dropped("don", dropForeign), "%s", s)
			cancel()
			require.Nil(t, within(t, done), "%s", s)
		}
	})
}

// conformance: 5.match.error
// conformance: 4.dropped.foreign
func TestErrorCountsOnlyWhereItWasAskedFor(t *testing.T) {
	t.Parallel()
	fault := func(id string) []byte {
		return jsonrpc.AppendNodeError(nil, id, "", &jsonrpc.Error{Code: 7, Message: "fault"})
	}
	nameless := func(id string) []byte { return jsonrpc.AppendResult(nil, id, "", []byte(`{"status":"ACCEPTED"}`)) }
	for name, answer := range map[string]func(string) []byte{"error": fault, "result without workflow": nameless} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true})
				w := theWorkflow()
				freeze, thaw := freezer()
				defer thaw()
				nodes := r.connectEach("don", []workflow.Metadata{w}, silent, silent, silent, freeze)
				r.awaitWorkflow(w.Selector.WorkflowID)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ask := func(id string) <-chan *clientAnswer {
					done := make(chan *clientAnswer, 1)
					s := sign(id, paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
					go func() {
						a, _ := r.post(ctx, s.body, s.header())
						done <- a
					}()
					synctest.Wait()
					return done
				}
				ask("freezes the fourth")
				ask("is being written to the fourth")
				done := ask("id")
				expect := func(why string, foreign, counted int) {
					synctest.Wait()
					require.Equal(t, foreign, r.dropped("don", dropForeign), why)
					require.Equal(t, counted, r.votes("don", aggregation.Counted), why)
				}
				nodes[3].send(answer("id"))
				expect("the fourth was not sent it yet", 1, 0)
				nodes[0].send(answer("id"))
				expect("the first was", 1, 1)
				nodes[0].send(answer("id"))
				expect("and has answered now", 2, 1)
				nodes[1].accept(jsonrpc.Request{ID: "id", Params: []byte(`{"workflow":{"workflowID":"` + w.Selector.WorkflowID + `"}}`)})
				expect("the second says otherwise", 2, 2)
				nodes[1].send(answer("id"))
				expect("and cannot take it back without naming the workflow", 3, 2)
				nodes[2].send(answer("never asked"))
				expect("another id", 3, 2)
				require.Equal(t, 1, r.dropped("don", dropLate))
				require.Empty(t, done)
			})
		})
	}
}

// conformance: 5.id.reserved
func TestIDIsReservedAfterItsEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w, other := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", clientSigner)
		r.connectAll(after(5*time.Second), w, other)
		ask := func(w workflow.Metadata) string {
			return r.send(sign("id", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})).reason()
		}
		require.Equal(t, "ok", ask(w))
		require.Equal(t, "ok", ask(other), "per workflow")
		time.Sleep(10*time.Minute - 5*time.Second - time.Second) // cleanUpPeriodMs after the first one's end
		require.Equal(t, "conflict", ask(w))
		time.Sleep(2 * time.Second)
		require.Equal(t, "ok", ask(w))
	})
}

// conformance: 5.open.bytes
// conformance: 2.error.open-bytes
func TestBodiesAndAnswersCountTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"maxOpenBytes": 400_000}})
		w := theWorkflow()
		big := strings.Repeat("x", 20_000)
		hold := func(n *testNode, req jsonrpc.Request) {
			if strings.HasPrefix(req.ID, "held") {
				n.result(req, fmt.Sprint("by ", n.index), `,"more":"`+big+`"`) // all differ
			} else {
				n.accept(req)
			}
		}
		r.connectAll(hold, w)
		ask := func(id string, input any) *clientAnswer {
			return r.send(sign(id, paramsFor(w, input), clientSigner, auth.TokenOptions{}))
		}
		large := []string{strings.Repeat("y", 110_000)}
		require.Equal(t, 200, ask("alone", large).status)
		done := make(chan *clientAnswer, 1)
		go func() { done <- ask("held", []string{strings.Repeat("y", 20_000)}) }()
		synctest.Wait()
		// 20 kB of body and 80 kB of answers are held until the grace is over: with
		// the next body that is over half, of which one owner may not have so much.
		require.InDelta(t, 100_000, r.svc().open.held(), 5_000)
		a := ask("too much beside it", large)
		require.Equal(t, 503, a.status, "%s", a.raw)
		require.Equal(t, "overloaded", a.reason())
		require.Equal(t, -32603, a.body.Error.Code)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Equal(t, 200, ask("small", []string{"y"}).status)
		require.Equal(t, "no_quorum", within(t, done).reason())
		require.Equal(t, 200, ask("too much beside it", large).status, "neither id nor room was lost")
		require.Zero(t, r.svc().open.held())
	})
}
