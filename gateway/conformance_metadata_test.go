package gateway

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// conformance: 6.pull.silent
func TestAbandonedPullWithdrawsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		var nodes []*testNode
		for i := range 4 {
			n := r.connect("don", i, nil, nil)
			synctest.Wait() // the session's first pull has begun
			n.push(w)
			nodes = append(nodes, n)
		}
		synctest.Wait()
		require.True(t, r.known(w))
		time.Sleep(70 * time.Second) // within the second pull, which nobody answers
		for i, n := range nodes {
			_ = n.conn.Close()
			<-n.ended
			synctest.Wait()
			r.connect("don", i, nil, silent)
		}
		synctest.Wait()
		require.True(t, r.known(w), "a session that ended within a pull has said nothing")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.False(t, r.known(w), "one that was silent throughout has")
	})
}

// conformance: 6.pull.silent
func TestReplacedSessionAbandonsItsPull(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		for i := range 4 {
			n := r.connect("don", i, nil, nil)
			synctest.Wait() // the session's first pull has begun
			n.push(w)
		}
		synctest.Wait()
		time.Sleep(70 * time.Second)
		// The newer session's pull begins before the older has ended.
		for _, n := range r.srv.current().topology.shards["don"].nodes {
			r.svc().beginPull(newSession(r.srv, n, nil), "pull_workflow_metadata/newer", time.Now())
		}
		synctest.Wait()
		require.True(t, r.known(w))
	})
}

// conformance: 6.pull.schedule
func TestPullSchedule(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"metadataPullIntervalMs": 45_000}})
		start := time.Now()
		type pull struct {
			at   time.Duration
			data string
		}
		pulls := make([][]pull, 4)
		var conns []*websocket.Conn
		var reading sync.WaitGroup
		for i := range pulls {
			time.Sleep(time.Second)
			n, err := r.dialNode("don", i, uint32(time.Now().Unix()))
			require.NoError(t, err)
			conns = append(conns, n.conn)
			reading.Go(func() {
				for {
					_, data, err := n.conn.ReadMessage()
					if err != nil {
						return
					}
					pulls[i] = append(pulls[i], pull{time.Since(start), string(data)})
				}
			})
		}
		time.Sleep(5 * time.Minute)
		for _, c := range conns {
			_ = c.Close()
		}
		reading.Wait()
		ids := map[string]bool{}
		for i, got := range pulls {
			require.Len(t, got, 7)
			for k, p := range got {
				require.InDelta(t, time.Duration(i+1)*time.Second+time.Duration(k)*45*time.Second, p.at, float64(10*time.Millisecond))
				m := regexp.MustCompile(`^\{"jsonrpc":"2.0","id":"(pull_workflow_metadata/[0-9a-f-]{36})","method":"pull_workflow_metadata","params":null\}$`).FindStringSubmatch(p.data)
				require.NotNil(t, m, p.data)
				require.False(t, ids[m[1]], "an id of its own")
				ids[m[1]] = true
			}
		}
	})
}

// puller is a node that reports the ids of its pulls instead of answering them.
func (r *rig) puller(shard string, index int) (n *testNode, ids chan string) {
	r.t.Helper()
	ids = make(chan string, 100)
	n, err := r.dialNode(shard, index, r.nextSecond())
	require.NoError(r.t, err)
	go func() {
		defer close(n.ended)
		for {
			_, data, err := n.conn.ReadMessage()
			if err != nil {
				return
			}
			if req, err := jsonrpc.DecodeNodeRequest(data); err == nil && req.Method == methodPull {
				ids <- req.ID
			}
		}
	}()
	r.t.Cleanup(func() { _ = n.conn.Close(); <-n.ended })
	return n, ids
}

// conformance: 6.pull.closes
// conformance: 6.pull.withdrawn
func TestPullClosesInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 0, []int{1}}}}) // one node's word is enough
		w, gone := testWorkflow(1, "one", "v1", clientSigner), testWorkflow(2, "two", "v1", clientSigner)
		n, ids := r.puller("don", 0)
		array := func(id string, ws ...workflow.Metadata) {
			n.send(jsonrpc.AppendResult(nil, id, methodPull, mustJSON(ws)))
			synctest.Wait()
		}
		first := within(t, ids)
		synctest.Wait()
		array(first, w, gone)
		require.True(t, r.known(w) && r.known(gone))
		time.Sleep(30*time.Second - time.Millisecond) // metadataPullRequestTimeoutMs
		array(first, w)
		require.Zero(t, r.dropped("don", dropLate), "up to the timeout any number of messages")
		time.Sleep(2 * time.Millisecond)
		array(first, testWorkflow(3, "three", "v1", clientSigner))
		require.Equal(t, 1, r.dropped("don", dropLate), "what comes later does not count")
		require.False(t, r.known(testWorkflow(3, "three", "v1", clientSigner)))

		second := within(t, ids)
		require.NotEqual(t, first, second)
		array(first, gone)
		require.Equal(t, 2, r.dropped("don", dropLate), "an older pull's id")
		array(second, w)
		require.True(t, r.known(gone), "until the pull closes")
		time.Sleep(29 * time.Second)
		require.True(t, r.known(gone))
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, r.known(w))
		require.False(t, r.known(gone), "not named by the second pull")

		third := within(t, ids)
		n.push(gone) // named by a push since the pull began
		array(third, w)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.True(t, r.known(w) && r.known(gone))
	})
}

// conformance: 6.pull.closes
func TestPullClosesAtTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 0, []int{1}}}, handler: map[string]any{"metadataPullIntervalMs": 20_000, "metadataPullRequestTimeoutMs": 90_000}})
		w := theWorkflow()
		n, ids := r.puller("don", 0)
		first := within(t, ids)
		synctest.Wait()
		n.send(jsonrpc.AppendResult(nil, first, methodPull, mustJSON([]workflow.Metadata{w})))
		second := within(t, ids)
		synctest.Wait()
		require.True(t, r.known(w), "named by the first")
		n.send(jsonrpc.AppendResult(nil, first, methodPull, mustJSON([]workflow.Metadata{w})))
		synctest.Wait()
		require.Equal(t, 1, r.dropped("don", dropLate), "the first is closed")
		require.NotEqual(t, second, within(t, ids))
		synctest.Wait()
		require.False(t, r.known(w), "not named by the second")
	})
}

// conformance: 6.push
// conformance: 6.valid.lowered
// conformance: 6.valid.selector
// conformance: 6.valid.keys
func TestPushedMetadataIsValidated(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 0, []int{1}}}, handler: unlimited()})
		n := r.connect("don", 0, nil, nil)
		good := string(mustJSON(theWorkflow()))
		key := `{"keyType":"ecdsa_evm","publicKey":"` + address(clientSigner) + `"}`
		keys := func(count int) string {
			var b strings.Builder
			for i := range count {
				fmt.Fprintf(&b, `,{"keyType":"ecdsa_evm","publicKey":"0x%040x"}`, i)
			}
			return b.String()[1:]
		}
		tag, owner := `"workflowTag":"v1"`, strings.Repeat("0", 39)+"7"
		for _, tt := range []struct {
			name, from, to string
			ok             bool
		}{
			{"as it is", "", "", true},
			{"upper-case id", `"workflowID":"0x` + strings.Repeat("0", 63) + "1", `"workflowID":"0x` + strings.Repeat("0", 62) + "AB", true},
			{"upper-case owner", owner, strings.Repeat("0", 38) + "AB", true},
			{"upper-case key", address(clientSigner), "0x" + strings.ToUpper(address(clientSigner)[2:]), true},
			{"id a digit short", `"workflowID":"0x0`, `"workflowID":"0x`, false},
			{"id without 0x", `"workflowID":"0x0`, `"workflowID":"000`, false},
			{"id no hex", `"workflowID":"0x0`, `"workflowID":"0xg`, false},
			{"owner a digit long", owner, owner + "0", false},
			{"name in clear", theWorkflow().Selector.WorkflowName, "my workflow", false},
			{"name hash a digit short", `"workflowName":"0x` + theWorkflow().Selector.WorkflowName[2:3], `"workflowName":"0x`, false},
			{"tag empty", tag, `"workflowTag":""`, false},
			{"tag of 32 bytes", tag, `"workflowTag":"` + strings.Repeat("t", 32) + `"`, true},
			{"tag of 33 bytes", tag, `"workflowTag":"` + strings.Repeat("t", 33) + `"`, false},
			{"no key", key, "", false},
			{"a hundred keys", key, keys(100), true},
			{"a key more", key, keys(101), false},
			{"one key twice", key, key + "," + key, false},
			{"one key twice in another case", key, key + `,{"keyType":"ecdsa_evm","publicKey":"0x` + strings.ToUpper(address(clientSigner)[2:]) + `"}`, false},
			{"another key type", "ecdsa_evm", "ed25519", false},
			{"key a digit short", address(clientSigner), address(clientSigner)[:41], false},
			{"no selector", "WorkflowSelector", "Selector", false},
			{"an array", good, "[" + good + "]", false},
			{"a string", good, `"x"`, false},
			{"a number for the tag", tag, `"workflowTag":1`, false},
		} {
			body := good
			if tt.from != "" {
				require.Contains(t, good, tt.from, tt.name)
				body = strings.Replace(good, tt.from, tt.to, 1)
			}
			malformed, reports := r.dropped("don", dropMalformed), testutil.ToFloat64(r.srv.current().topology.shards["don"].m.reports)
			n.send(jsonrpc.AppendResult(nil, "push_workflow_metadata/1", methodPush, []byte(body)))
			synctest.Wait()
			if tt.ok {
				reports++
			} else {
				malformed++
			}
			require.Equal(t, malformed, r.dropped("don", dropMalformed), tt.name)
			require.Equal(t, reports, testutil.ToFloat64(r.srv.current().topology.shards["don"].m.reports), tt.name)
		}
		lowered := testWorkflow(0xab, "my workflow", "v1", clientSigner)
		require.True(t, r.known(lowered), "known under the lowered id")
	})
}

// conformance: 6.cap.node
// conformance: 6.cap.bytes
func TestReportsPastABoundAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler map[string]any
		fits    int
	}{
		"maxWorkflowsPerNode": {map[string]any{"maxWorkflowsPerNode": 3}, 3},
		"maxMetadataBytes":    {map[string]any{"maxMetadataBytes": 1 << 20}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 0, []int{2}}}, handler: merge(tt.handler, unlimited())})
				n, other := r.connect("don", 0, nil, nil), r.connect("don", 1, nil, nil)
				synctest.Wait()
				var signers []auth.Signer
				for i := range 100 {
					signers = append(signers, auth.NewKeySigner(key(int64(1000+i))))
				}
				const pushes = 200
				for i := range pushes {
					n.push(testWorkflow(i+1, fmt.Sprint("w", i), "v1", signers...))
				}
				synctest.Wait()
				accepted, refused := int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.reports)), r.dropped("don", dropRefused)
				require.Equal(t, pushes, accepted+refused)
				require.Equal(t, accepted, r.svc().view.Load().Len())
				require.GreaterOrEqual(t, accepted, tt.fits)
				require.Positive(t, refused)
				require.Zero(t, r.dropped("don", dropMalformed), "it is no fault of the form")
				require.True(t, r.known(testWorkflow(1, "w0", "v1", signers...)), "what is there stays")
				svc := r.svc()
				svc.metaMu.Lock()
				require.EqualValues(t, refused, svc.metadata.Stats().Refused)
				svc.metaMu.Unlock()
				if name == "maxWorkflowsPerNode" {
					require.Equal(t, 3, accepted)
					other.push(testWorkflow(500, "of another", "v1", signers...))
					synctest.Wait()
					require.True(t, r.known(testWorkflow(500, "of another", "v1", signers...)), "another node has its own room")
				}
			})
		})
	}
}

// conformance: 6.view.at-once
func TestViewIsRebuiltEveryInterval(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 0, []int{1}}}, handler: map[string]any{
			"metadataAggregationIntervalMs": 7000, "cleanUpPeriodMs": 600_000}})
		w := theWorkflow()
		time.Sleep(6900 * time.Millisecond)
		n := r.connect("don", 0, []workflow.Metadata{w}, nil)
		synctest.Wait()
		require.True(t, r.known(w), "at once, not at the next interval")
		_ = n.conn.Close()
		within(t, n.ended)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.True(t, r.known(w), "expired, but still in the view")
		time.Sleep(7 * time.Second)
		synctest.Wait()
		require.False(t, r.known(w))
	})
}
