package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// counted serves h and counts how often.
func counted(h http.HandlerFunc) (http.HandlerFunc, *atomic.Int32) {
	n := new(atomic.Int32)
	return func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h(w, r)
	}, n
}

// acted is how many actions have had an outcome.
func (r *rig) acted(outcome string) int {
	return int(testutil.ToFloat64(r.srv.metrics.actions[outcome]))
}

// conformance: 7.cache.statuses
// conformance: 7.answer.status
func TestWhichAnswersAreStored(t *testing.T) {
	t.Parallel()
	for status, stored := range map[int]bool{
		200: true, 201: true, 204: true, 299: true, 300: false, 301: false, 304: false, 307: false, 308: false,
		400: true, 404: true, 429: true, 499: true, 500: false, 502: false, 503: false, 599: false, 600: false, 999: false,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				h, calls := counted(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
				_, nodes := acting(t, h, rigSpec{})
				for range 2 {
					nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}})
					_, a, _ := nodes[0].next()
					require.Equal(t, status, a.StatusCode)
				}
				require.EqualValues(t, map[bool]int{true: 1, false: 2}[stored], calls.Load())
			})
		})
	}
	t.Run("failures", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T) {
			h, calls := counted(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			_, nodes := acting(t, h, rigSpec{})
			for range 2 {
				nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "method": "POST", "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}})
				_, a, _ := nodes[0].next()
				require.True(t, a.External, "%+v", a)
			}
			require.EqualValues(t, 2, calls.Load())
		})
	})
}

// conformance: 7.cache.age
// conformance: 7.cache.ttl
// conformance: 7.request.read-from-cache
func TestAgeOfStoredAnswers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var calls atomic.Int32
		r, nodes := acting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, calls.Add(1)) },
			rigSpec{handler: map[string]any{"outboundRequestCacheTTLMs": 5000}}) // swept every ten minutes: not in this test
		ask := func(maxAgeMs int64, store bool) string {
			nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "cacheSettings": map[string]any{"maxAgeMs": maxAgeMs, "store": store, "readFromCache": false}})
			_, a, _ := nodes[0].next()
			return string(a.Body)
		}
		begin := time.Now()
		until := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
		require.Equal(t, "1", ask(1000, false))
		require.Equal(t, "2", ask(1000, true), "what nobody asked to keep is not kept")
		until(999 * time.Millisecond)
		require.Equal(t, "2", ask(1000, false))
		until(1000 * time.Millisecond)
		require.Equal(t, "3", ask(1000, false), "as old as maxAgeMs")
		require.Equal(t, "2", ask(1001, false), "but still there")
		require.Equal(t, "4", ask(0, false), "without maxAgeMs always fetched")
		require.Equal(t, "5", ask(-1, false))
		until(4999 * time.Millisecond)
		require.Equal(t, "2", ask(60_000, false))
		until(5000 * time.Millisecond)
		require.Equal(t, "6", ask(60_000, false), "as old as the time to live, without a sweep")
		require.Equal(t, "7", ask(0, true))
		require.Equal(t, "7", ask(60_000, false))
		require.Equal(t, "8", ask(0, true))
		require.Equal(t, "8", ask(1<<62, false), "the newest wins, and no age is too large")
		require.Equal(t, 5, r.acted(actionHit))
		require.Equal(t, 8, r.acted(actionFetched))
	})
}

// Of two calls at the same time the one that began later is the newest, whichever
// ends first.
//
// conformance: 7.cache.newest
func TestNewestAnswerIsKept(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var calls atomic.Int32
		_, nodes := acting(t, func(w http.ResponseWriter, _ *http.Request) {
			n := calls.Add(1)
			time.Sleep(time.Duration(10-n) * time.Second)
			_, _ = fmt.Fprint(w, n)
		}, rigSpec{})
		for range 2 {
			nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "timeoutMs": 60_000, "cacheSettings": map[string]any{"store": true}})
			synctest.Wait()
		}
		for _, want := range []string{"2", "1"} {
			_, a, _ := nodes[0].next()
			require.Equal(t, want, string(a.Body), a.ErrorMessage)
		}
		nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "cacheSettings": map[string]any{"maxAgeMs": 60_000}})
		_, a, _ := nodes[0].next()
		require.Equal(t, "2", string(a.Body))
	})
}

// The leader of a shared call need not be the one that wants it kept.
//
// conformance: 7.cache.store
func TestSharedAnswerIsStoredIfAnyAsked(t *testing.T) {
	t.Parallel()
	for _, stores := range []struct{ leader, follower bool }{{false, false}, {false, true}, {true, false}} {
		t.Run(fmt.Sprint(stores), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				h, calls := counted(paths)
				_, nodes := acting(t, h, rigSpec{})
				for i, store := range []bool{stores.leader, stores.follower} {
					nodes[i].ask(theWorkflow(), map[string]any{"url": endpoint + "after?1s", "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": store}})
					synctest.Wait()
				}
				nodes[0].next()
				nodes[1].next()
				require.EqualValues(t, 1, calls.Load())
				nodes[2].ask(theWorkflow(), map[string]any{"url": endpoint + "after?1s", "cacheSettings": map[string]any{"maxAgeMs": 60_000}})
				nodes[2].next()
				require.Equal(t, !stores.leader && !stores.follower, calls.Load() == 2)
			})
		})
	}
}

// conformance: 7.cache.swept
func TestStoredAnswersAreSwept(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, nodes := acting(t, paths, rigSpec{handler: map[string]any{"outboundRequestCacheTTLMs": 1000, "cleanUpPeriodMs": 120_000}})
		for i := range 20 {
			nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint + strconv.Itoa(i), "cacheSettings": map[string]any{"store": true}})
			nodes[0].next()
		}
		require.Equal(t, 20, r.svc().actions.cache.Stats().Entries)
		time.Sleep(100 * time.Second)
		require.Equal(t, 20, r.svc().actions.cache.Stats().Entries)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Zero(t, r.svc().actions.cache.Stats().Entries)
	})
}

// conformance: 7.limit.global
// conformance: 7.limit.at-once
// conformance: 7.limit.waiters
func TestActionsPastABoundAreAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, nodes := acting(t, paths, rigSpec{handler: map[string]any{"maxConcurrentActions": 2}})
		start := time.Now()
		n := nodes[0]
		busy := func(more map[string]any, why string) {
			t.Helper()
			id := n.ask(theWorkflow(), more)
			got, a, at := n.next()
			require.Equal(t, id, got)
			require.True(t, a.Validation, "%+v", a)
			require.Contains(t, a.ErrorMessage, why)
			require.Equal(t, start, at, "at once")
		}
		n.ask(theWorkflow(), map[string]any{"url": endpoint + "after?1h", "timeoutMs": 60_000})
		shared := map[string]any{"url": endpoint + "after?1h", "timeoutMs": 60_000, "cacheSettings": share}
		n.ask(theWorkflow(), shared)
		synctest.Wait()
		busy(map[string]any{"url": endpoint}, "maxConcurrentActions")
		busy(map[string]any{"url": endpoint, "cacheSettings": share}, "maxConcurrentActions")
		for range 1024 { // are not counted
			n.ask(theWorkflow(), shared)
		}
		synctest.Wait()
		require.Equal(t, 1024, r.svc().actions.cache.Stats().Waiters)
		require.Equal(t, 2, r.svc().actions.slots.underWay())
		busy(shared, "1024")
		require.Equal(t, 3, r.acted(actionBusy))
	})
}

// A node that makes up workflows of another's owner, however many and under however
// many owners, takes room from itself alone: what the owner has stored stays.
//
// conformance: 7.cache.bound
// conformance: 7.cache.quarter
func TestUnconfirmedOwnersEvictNobody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var calls atomic.Int32
		const bound = 1 << 20
		r, nodes := acting(t, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		}, rigSpec{handler: map[string]any{"maxCacheBytes": bound}})
		stored := map[string]any{"maxAgeMs": 60_000, "store": true}
		victim := func(i int) acted {
			nodes[0].ask(theWorkflow(), map[string]any{"url": fmt.Sprint(endpoint, "own/", i), "cacheSettings": stored})
			_, a, _ := nodes[0].next()
			return a
		}
		for i := range 15 { // nearly a quarter
			victim(i)
		}
		for i := range 500 {
			made := testWorkflow(0x1000+i, "made up", "v1", clientSigner) // the same owner
			if i%2 > 0 {
				made.Selector.WorkflowOwner = fmt.Sprintf("0x%040x", 0x1000+i)
			}
			nodes[1].ask(made, map[string]any{"url": fmt.Sprint(endpoint, "flood/", i), "cacheSettings": stored})
			_, a, _ := nodes[1].next()
			require.Equal(t, 200, a.StatusCode, a.ErrorMessage)
		}
		before := calls.Load()
		require.EqualValues(t, 515, before)
		for i := range 15 {
			victim(i)
		}
		require.Equal(t, before, calls.Load(), "all hits")
		s := r.svc().actions.cache.Stats()
		require.LessOrEqual(t, s.Bytes, int64(bound))
		require.Greater(t, s.Bytes, int64(bound)*9/10)
		require.NotZero(t, s.Evictions)
	})
}

// flooding answers 25 kB to each request on a connection, without net/http's server.
func flooding(context.Context, netip.AddrPort) (net.Conn, error) {
	ours, theirs := net.Pipe()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25000\r\n\r\n" + strings.Repeat("x", 25_000))
	go func() {
		defer theirs.Close()
		in := bufio.NewReader(theirs)
		for {
			for line := ""; line != "\r\n"; {
				var err error
				if line, err = in.ReadString('\n'); err != nil {
					return
				}
			}
			if _, err := theirs.Write(answer); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// heapInUse is what is reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // twice: what the first one's finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// 200 000 distinct requests of one owner, whose answers of 25 kB are all to be kept,
// take the bound and a fifth at most of the process's heap, and nothing of another
// owner. Not parallel: it measures the heap.
//
// conformance: 7.cache.bound
func TestFloodOfStoredAnswersStaysWithinTheBound(t *testing.T) {
	const bound, workers = 64 << 20, 8
	requests := 200_000
	if raceEnabled {
		requests = 5000
	}
	r := newRig(t, rigSpec{options: Options{Connect: flooding}, handler: map[string]any{"maxCacheBytes": bound, "outboundRequestCacheTTLMs": 3_600_000}})
	flood, victim := testWorkflow(1, "flood", "v1", clientSigner), testWorkflow(2, "victim", "v1", clientSigner)
	victim.Selector.WorkflowOwner = fmt.Sprintf("0x%040x", 8)
	r.connectAll(nil, flood, victim)
	x, n := r.svc().actions, r.srv.current().topology.shards["don"].nodes[0]
	act := func(w workflow.Metadata, path string) {
		resp, err := jsonrpc.DecodeResponse(jsonrpc.AppendResult(nil, "http_action/"+w.Selector.WorkflowID+"/1", methodAction, mustJSON(map[string]any{
			"url": endpoint + path, "cacheSettings": map[string]any{"maxAgeMs": 3_600_000, "store": true},
			"workflowId": w.Selector.WorkflowID, "workflowOwner": w.Selector.WorkflowOwner,
		})))
		require.NoError(t, err)
		a, err := x.prepare(n, &resp)
		require.NoError(t, err)
		require.True(t, a.owner.confirmed)
		done := make(chan []byte, 1)
		x.start(a, func(message []byte) { done <- message })
		require.Greater(t, len(<-done), 25_000)
	}
	act(flood, "warm") // pools, the connection
	before := heapInUse()
	for i := range 10 {
		act(victim, fmt.Sprint("victim/", i))
	}
	peak := int64(0)
	for part := range 20 {
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for i := worker; i < requests/20; i += workers {
					act(flood, fmt.Sprint(part, "/", i))
				}
			})
		}
		wg.Wait()
		peak = max(peak, heapInUse()-before)
	}
	s := x.cache.Stats()
	t.Logf("heap %.1f MB of %d MB, %d entries, %d evictions", float64(peak)/(1<<20), bound>>20, s.Entries, s.Evictions)
	require.LessOrEqual(t, s.Bytes, int64(bound))
	require.Greater(t, s.Bytes, int64(bound)*9/10, "and it is used")
	require.LessOrEqual(t, peak, int64(bound)*12/10)
	hits := r.acted(actionHit)
	for i := range 10 {
		act(victim, fmt.Sprint("victim/", i))
	}
	require.Equal(t, hits+10, r.acted(actionHit), "the other owner's entries survive")
}
