package api

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// One caller looks for all: those who come meanwhile use the look before, or wait where there is none.
func TestQueueIsShared(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	q := f.queues[fhevm.KindPublicDecrypt]
	together := func() (looks map[*waiting]bool) {
		looks = map[*waiting]bool{}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 50 {
			wg.Go(func() {
				w, _, err := q.waiting(t.Context(), f.clock.now())
				mu.Lock()
				defer mu.Unlock()
				looks[w] = true
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return looks
	}
	require.Len(t, together(), 1)
	first := q.last.Load()
	f.clock.advance(queueAge - time.Millisecond)
	require.Equal(t, map[*waiting]bool{first: true}, together())
	f.clock.advance(queueAge)
	q.looking <- struct{}{} // somebody looks
	require.Equal(t, map[*waiting]bool{first: true}, together())
	<-q.looking
	again, _, err := q.waiting(t.Context(), f.clock.now())
	require.NoError(t, err)
	require.NotSame(t, first, again)
	f.clock.advance(-queueAge)
	back, _, err := q.waiting(t.Context(), f.clock.now())
	require.NoError(t, err)
	require.NotSame(t, again, back, "a clock that was set back does not freeze it")
}

// Who finds a look that is almost used up looks again, after its answer.
func TestQueueIsRenewed(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	e := fhevm.EndpointPublicDecrypt
	q := f.queues[e.Kind()]
	id := f.made(t, e, 1)
	first := q.last.Load()
	get := func() bool {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", string(e)+"/"+id, nil))
		require.Equal(t, 202, w.Code)
		return w.Flushed
	}
	f.clock.advance(queueDue - time.Millisecond)
	require.False(t, get())
	require.Same(t, first, q.last.Load())
	f.clock.advance(time.Millisecond)
	q.looking <- struct{}{} // somebody looks
	require.True(t, get())
	require.Same(t, first, q.last.Load())
	<-q.looking
	require.True(t, get())
	require.NotSame(t, first, q.last.Load())
	require.Equal(t, f.clock.now(), q.last.Load().at)
	require.False(t, get())
	f.clock.advance(queueDue)
	f.made(t, e, 2)
	require.Len(t, q.last.Load().Queued, 2)
}

// A caller that goes neither waits for a look nor spoils that of others, and a look that failed leaves nothing behind.
func TestQueueCallerGoes(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	q := f.queues[fhevm.KindPublicDecrypt]
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	q.looking <- struct{}{}
	_, _, err := q.waiting(gone, f.clock.now())
	require.ErrorIs(t, err, context.Canceled)
	<-q.looking
	for q.last.Load() == nil { // which of two ready cases is taken is up to chance
		_, _, err = q.waiting(gone, f.clock.now())
	}
	require.NoError(t, err)

	f.clock.advance(queueAge)
	require.NoError(t, f.db.Close())
	for range 2 {
		_, _, err = q.waiting(t.Context(), f.clock.now())
		require.Error(t, err)
		require.Empty(t, q.looking)
	}
}

// Positions are right although the look at the queue is older than the jobs.
func TestQueuePosition(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		e := fhevm.EndpointPublicDecrypt
		q := f.queues[e.Kind()]
		var ids []string
		position := func(n int) int {
			t.Helper()
			a := f.do(t, "GET", string(e)+"/"+ids[n], "")
			require.Equal(t, 202, a.status, a.raw)
			if a.body.State == string(fhevm.StateProcessing) {
				require.Less(t, *a.body.QueuePosition, *a.body.TxQueueSize)
			}
			return *a.body.QueuePosition
		}
		for n := range 3 {
			ids = append(ids, f.made(t, e, n))
		}
		f.clock.advance(queueAge)
		for n := range 3 {
			require.Equal(t, n, position(n), "of the look")
		}
		look := q.last.Load()
		require.Len(t, look.Queued, 3)
		for n := 3; n < 6; n++ {
			ids = append(ids, f.made(t, e, n))
		}
		for n := range 6 {
			require.Equal(t, n, position(n), "newer than the look")
		}
		f.walk(t, e.Kind(), ids[4], fhevm.StateProcessing, store.Cause{})
		f.walk(t, e.Kind(), ids[1], fhevm.StateProcessing, store.Cause{})
		require.Equal(t, 1, position(4), "in another state since")
		require.Equal(t, 0, position(1))
		require.Equal(t, 4, position(5), "who left among the newer is not counted")
		require.Same(t, look, q.last.Load())

		f.clock.advance(queueAge)
		require.Equal(t, 3, position(5))
		require.Equal(t, []int64{2, 5}, q.last.Load().Processing)
		f.walk(t, e.Kind(), ids[0], fhevm.StateProcessing, store.Cause{})
		require.Equal(t, 0, position(0), "older than all of the look")
		f.walk(t, e.Kind(), ids[2], fhevm.StateProcessing, store.Cause{})
		require.Equal(t, 1, position(2), "between two of the look")
		f.clock.advance(queueAge)
		for n, want := range []int{0, 1, 2, 0, 3, 1} {
			require.Equal(t, want, position(n))
		}
	})
}

// Nothing is counted beyond the most that is told.
func TestQueuePositionEnds(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	q := f.queues[fhevm.KindPublicDecrypt]
	require.NoError(t, f.db.Close())
	look := &waiting{Queue: store.Queue{Queued: make([]int64, store.MaxCount)}}
	for i := range look.Queued {
		look.Queued[i] = int64(2 * i)
	}
	for id, want := range map[int64]int64{0: 0, 1: 1, 2: 1, 19_999: 10_000, 39_998: store.MaxCount - 1, 39_999: store.MaxCount, 1 << 62: store.MaxCount} {
		n, err := q.before(t.Context(), look, store.Job{ID: id, Kind: q.kind, State: fhevm.StateQueued})
		require.NoError(t, err)
		require.Equal(t, want, n, id)
	}
	n, err := q.before(t.Context(), look, store.Job{ID: 5, Kind: q.kind, State: fhevm.StateReceiptReceived})
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = q.before(t.Context(), &waiting{}, store.Job{ID: 5, Kind: q.kind, State: fhevm.StateQueued})
	require.Error(t, err)
}
