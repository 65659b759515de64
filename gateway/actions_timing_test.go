package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
)

// endpoint is the URL of pipeOrigin: no packet goes there.
const endpoint = "http://8.8.8.8/"

// pipeOrigin serves h over pipes, for tests in a bubble.
func pipeOrigin(t *testing.T, h http.HandlerFunc) func(context.Context, netip.AddrPort) (net.Conn, error) {
	pipes := newPipeNet()
	l, err := pipes.listen("", "")
	require.NoError(t, err)
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return func(context.Context, netip.AddrPort) (net.Conn, error) { return pipes.dial(l.Addr().String()) }
}

// acting is a gateway in a bubble whose actions go to h, its first node, and the
// workflow that all nodes have agreed on.
func acting(t *testing.T, h http.HandlerFunc, spec rigSpec) (*rig, []*testNode) {
	spec.bubble = true
	if spec.options.Connect == nil {
		spec.options.Connect = pipeOrigin(t, h)
	}
	if spec.handler == nil {
		spec.handler = map[string]any{}
	}
	merge(spec.handler, unlimited())
	r := newRig(t, spec)
	return r, r.connectAll(silent, theWorkflow())["don"]
}

// paths answers /after?<duration> then and everything else at once.
func paths(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/after" {
		d, err := time.ParseDuration(r.URL.RawQuery)
		if err != nil {
			panic(err)
		}
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "answer to "+r.URL.String())
}

// next is the next answer that a node gets, and when it came.
func (n *testNode) next() (id string, a acted, at time.Time) {
	select {
	case req := <-n.got:
		require.NoError(n.r.t, json.Unmarshal(req.Params, &a))
		return req.ID, a, time.Now()
	case <-time.After(10 * time.Minute):
		require.FailNow(n.r.t, "no answer came")
	}
	return "", a, time.Time{}
}

// share makes equal actions one call.
var share = map[string]any{"maxAgeMs": 1000}

// conformance: 7.timeout.default
// conformance: 7.timeout.clamp
func TestTimedOutActionIsReportedOnTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		given any
		want  time.Duration
	}{
		{nil, 5 * time.Second}, {0, 5 * time.Second}, {1, time.Millisecond}, {300, 300 * time.Millisecond}, {59_999, 59_999 * time.Millisecond},
		{60_000, time.Minute}, {60_001, time.Minute}, {uint32(1<<32 - 1), time.Minute},
	} {
		for name, cached := range map[string]any{"alone": nil, "shared": share} {
			t.Run(fmt.Sprint(name, tt.given), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					_, nodes := acting(t, paths, rigSpec{})
					ask := map[string]any{"url": endpoint + "after?1h", "cacheSettings": cached}
					if tt.given != nil {
						ask["timeoutMs"] = tt.given
					}
					start := time.Now()
					id := nodes[0].ask(theWorkflow(), ask)
					got, a, at := nodes[0].next()
					require.Equal(t, id, got)
					require.True(t, a.External, "%+v", a)
					require.False(t, a.Validation)
					require.Zero(t, a.StatusCode)
					require.Contains(t, a.ErrorMessage, "within "+tt.want.String())
					require.GreaterOrEqual(t, at.Sub(start), tt.want)
					require.Less(t, at.Sub(start), tt.want+100*time.Millisecond)
				})
			})
		}
	}
}

// A call that several nodes share is no other's than theirs: each gets the answer or
// its own timeout, however late it came.
//
// conformance: 7.cache.own-timeout
// conformance: 7.cache.leader-timeout
func TestSharedCallLastsAsLongAsAnybodyWaits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var calls atomic.Int32
		_, nodes := acting(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			paths(w, r)
		}, rigSpec{})
		start := time.Now()
		ask := func(n *testNode, timeoutMs int) {
			n.ask(theWorkflow(), map[string]any{"url": endpoint + "after?70s", "timeoutMs": timeoutMs, "cacheSettings": share})
			synctest.Wait()
		}
		late := func(n *testNode, within string, after time.Duration) {
			_, a, at := n.next()
			require.True(t, a.External, "%+v", a)
			require.Contains(t, a.ErrorMessage, "within "+within)
			require.Equal(t, after, at.Sub(start))
		}
		ask(nodes[0], 1000)   // the leader
		ask(nodes[1], 60_000) // longer than the leader
		late(nodes[0], "1s", time.Second)
		ask(nodes[2], 500)
		late(nodes[2], "500ms", 1500*time.Millisecond)
		time.Sleep(48 * time.Second)
		ask(nodes[3], 60_000) // longer than the first two
		late(nodes[1], "1m0s", time.Minute)
		_, a, at := nodes[3].next()
		require.Equal(t, "answer to /after?70s", string(a.Body), a.ErrorMessage)
		require.Equal(t, 70*time.Second, at.Sub(start))
		require.EqualValues(t, 1, calls.Load())
	})
}

// conformance: 7.cache.never-waits
func TestHangingEndpointDelaysNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, paths, rigSpec{})
		hanging := map[string]any{"url": endpoint + "after?1h", "timeoutMs": 60_000}
		for range 16 {
			nodes[0].ask(theWorkflow(), hanging)
			nodes[1].ask(theWorkflow(), merge(map[string]any{"cacheSettings": share}, hanging))
		}
		synctest.Wait()
		start := time.Now()
		for range 20 {
			for i, cached := range []any{nil, share} {
				nodes[i].ask(theWorkflow(), map[string]any{"url": endpoint + "quick", "cacheSettings": cached})
				_, a, at := nodes[i].next()
				require.Equal(t, "answer to /quick", string(a.Body), a.ErrorMessage)
				require.Zero(t, at.Sub(start), "not a moment")
			}
		}
	})
}

// An answer, of an expired action too, has five seconds of its own to reach a node
// that is away, and goes to the session it comes back with.
//
// conformance: 7.answer.own-limit
// conformance: 7.answer.new-session
func TestAnswerHasFiveSecondsToReachTheNode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path      string
		timeoutMs int
		known     time.Duration // when the outcome is known
		away      time.Duration // from then on
		arrives   bool
	}{
		"fetched, back in time":     {"after?1s", 10_000, time.Second, 4900 * time.Millisecond, true},
		"fetched, back too late":    {"after?1s", 10_000, time.Second, 5100 * time.Millisecond, false},
		"expired, back in time":     {"after?1h", 60_000, time.Minute, 4900 * time.Millisecond, true},
		"expired, back too late":    {"after?1h", 60_000, time.Minute, 5100 * time.Millisecond, false},
		"fetched, back before that": {"after?10s", 60_000, 10 * time.Second, -time.Second, true},
	} {
		for _, cached := range []any{nil, share} {
			t.Run(fmt.Sprint(name, cached), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					r, nodes := acting(t, paths, rigSpec{})
					n := nodes[0]
					start := time.Now()
					id := n.ask(theWorkflow(), map[string]any{"url": endpoint + tt.path, "timeoutMs": tt.timeoutMs, "cacheSettings": cached})
					synctest.Wait()
					_ = n.conn.Close()
					r.eventually(func() bool { return r.live("don", 0) == nil }, "it is away")
					time.Sleep(time.Until(start.Add(tt.known + tt.away)))
					again := r.connect("don", 0, nil, nil)
					if !tt.arrives {
						time.Sleep(time.Minute)
						synctest.Wait()
						require.Empty(t, again.got)
						return
					}
					got, a, at := again.next()
					require.Equal(t, id, got)
					require.Equal(t, tt.path == "after?1h", a.External, "%+v", a)
					require.LessOrEqual(t, at.Sub(start), tt.known+max(tt.away, 0)+100*time.Millisecond)
				})
			})
		}
	}
}

// A node that came back while its old session seemed alive gets its answers on the
// new one, and none twice.
func TestAnswersGoToTheNewestSession(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, nodes := acting(t, paths, rigSpec{})
		const actions = 50
		for i := range actions {
			nodes[0].ask(theWorkflow(), map[string]any{"url": fmt.Sprint(endpoint, "after?", i, "ms"), "cacheSettings": share})
		}
		time.Sleep(24*time.Millisecond + 500*time.Microsecond)
		again := r.connect("don", 0, nil, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		seen := map[string]int{}
		for _, ch := range []chan jsonrpc.Request{nodes[0].got, again.got} {
			for len(ch) > 0 {
				seen[(<-ch).ID]++
			}
		}
		require.Len(t, seen, actions)
		for id, times := range seen {
			require.Equal(t, 1, times, id)
		}
	})
}

// What waits behind a session that takes nothing more goes to the next one.
//
// conformance: 7.answer.new-session
func TestAnswersLeaveAStuckSession(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, nodes := acting(t, paths, rigSpec{})
		_ = nodes[0].conn.Close()
		r.eventually(func() bool { return r.live("don", 0) == nil }, "it is away")
		stuck, err := r.dialNode("don", 0, r.nextSecond()+1) // reads nothing: over a pipe the gateway's first write is stuck
		require.NoError(t, err)
		defer stuck.conn.Close()
		const actions = 20
		asked := map[string]bool{}
		for i := range actions {
			asked[stuck.ask(theWorkflow(), map[string]any{"url": fmt.Sprint(endpoint, i)})] = true
		}
		time.Sleep(time.Second)
		again := r.connect("don", 0, nil, nil)
		for range actions {
			id, a, _ := again.next()
			require.True(t, asked[id], "%s, or twice", id)
			delete(asked, id)
			require.Equal(t, 200, a.StatusCode)
		}
	})
}

// conformance: 7.mtls.slot
func TestWaitingForAPlaceEndsWithTheActionsOwnTime(t *testing.T) {
	t.Parallel()
	cert, key := clientCertificate(t)
	for name, cached := range map[string]any{"alone": nil, "shared": share} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				hang := func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				r, nodes := acting(t, nil, rigSpec{options: Options{Connect: hang}, top: map[string]any{
					"httpClientConfig": map[string]any{"mtlsRPS": 1, "mtlsBurst": 100, "mtlsMaxConcurrent": 1},
				}})
				ask := func(n *testNode, url string, timeoutMs int) {
					n.ask(theWorkflow(), map[string]any{"url": url, "timeoutMs": timeoutMs, "cacheSettings": cached,
						"mtlsAuth": map[string]any{"certificate": cert, "privateKey": key}})
					synctest.Wait()
				}
				start := time.Now()
				ask(nodes[0], "https://8.8.8.8/", 30_000) // has the place
				require.Equal(t, 1, r.srv.current().egress.Stats().MTLS)
				ask(nodes[1], "https://8.8.4.4/", 1000)
				ask(nodes[2], "https://8.8.4.4/", 2000)
				for i, want := range []time.Duration{time.Second, 2 * time.Second} {
					_, a, at := nodes[1+i].next()
					require.True(t, a.Validation, "%+v", a)
					require.False(t, a.External)
					require.Contains(t, a.ErrorMessage, "client certificate")
					require.Equal(t, want, at.Sub(start))
				}
			})
		})
	}
}
