package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// notice is what a call of Start was told.
type notice struct {
	v   string
	hit bool
	err error
	at  time.Duration
}

func TestStartTellsEachCallOnceAndOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20})
		begin := time.Now()
		var calls atomic.Int32
		tell := make(chan notice, 100)
		start := func(ctx context.Context, timeout time.Duration, store bool) {
			c.Start(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: time.Minute, Store: store, Timeout: timeout,
				Fetch: func(ctx context.Context) (string, int64, bool, error) {
					calls.Add(1)
					select {
					case <-time.After(3 * time.Second):
						return "v", 1, true, nil
					case <-ctx.Done():
						return "", 0, false, context.Cause(ctx)
					}
				}}, func(v string, hit bool, err error) { tell <- notice{v, hit, err, time.Since(begin)} })
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		start(context.Background(), time.Millisecond, false) // the leader, with little time
		start(context.Background(), 10*time.Second, true)
		start(context.Background(), 0, false)
		start(ctx, 0, false)
		synctest.Wait()
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		first := <-tell
		require.ErrorIs(t, first.err, context.DeadlineExceeded)
		require.Equal(t, time.Millisecond, first.at)
		require.Equal(t, notice{err: gone, at: time.Second}, <-tell)
		for range 2 {
			require.Equal(t, notice{v: "v", at: 3 * time.Second}, <-tell)
		}
		start(context.Background(), 0, false)
		require.Equal(t, notice{v: "v", hit: true, at: 3 * time.Second}, <-tell)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, tell, "nobody is told twice")
		require.EqualValues(t, 1, calls.Load())
		require.Zero(t, c.Stats().Waiters)
		require.Zero(t, c.Stats().Fetches)
	})
}

// The last one out cancels the fetch, whose outcome is dropped.
func TestStartAbandonsTheFetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20})
		var cause error
		var ends atomic.Int32
		for range 3 {
			c.Start(context.Background(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: 1, Timeout: time.Second,
				Fetch: func(ctx context.Context) (string, int64, bool, error) {
					<-ctx.Done()
					cause = context.Cause(ctx)
					return "", 0, false, cause
				}}, func(_ string, _ bool, err error) {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				ends.Add(1)
			})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.ErrorIs(t, cause, ErrAbandoned)
		require.EqualValues(t, 3, ends.Load())
		require.Zero(t, c.Stats().Fetches)
	})
}

// A flight keeps nothing of those who have left it: however many come and go while one waits, no more is held than for those who wait.
func TestStartKeepsNothingOfThoseWhoLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20})
		ctx, cancel := context.WithCancel(context.Background())
		ends := 0
		ask := func(timeout time.Duration) {
			c.Start(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: 1, Timeout: timeout, Fetch: answer(time.Hour, "v", nil)},
				func(string, bool, error) { ends++ })
		}
		ask(0)
		for range 1000 {
			ask(time.Millisecond)
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 1000, ends)
		held := 0
		for n := c.flights[Key{1}].seated.next; n != &c.flights[Key{1}].seated; n = n.next {
			held++
		}
		require.Equal(t, 1, held)
		cancel()
		synctest.Wait()
		require.Equal(t, 1001, ends)
		require.Empty(t, c.flights)
	})
}

// Timeouts and contexts that end while Start is still arming them, which the race detector looks at.
func TestStartRacesWithGivingUp(t *testing.T) {
	t.Parallel()
	c := New[int](Config{TTL: time.Minute, MaxBytes: 1 << 20})
	const n = 2000
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	wg.Add(n)
	for i := range n {
		if i == n/2 {
			cancel()
		}
		c.Start(ctx, Call[int]{Key: Key{byte(i)}, MaxAge: 1, Timeout: 1, Fetch: func(ctx context.Context) (int, int64, bool, error) {
			<-ctx.Done()
			return 0, 0, false, context.Cause(ctx)
		}}, func(_ int, _ bool, err error) {
			if err == nil {
				t.Error("nothing was fetched")
			}
			wg.Done() // which panics when somebody is told twice
		})
	}
	wg.Wait()
	require.Zero(t, c.Stats().Waiters)
}

// What is decided at once is told before Start returns.
func TestStartTellsRefusalsAtOnce(t *testing.T) {
	t.Parallel()
	c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20})
	full := errors.New("full")
	var got error
	c.Start(context.Background(), Call[string]{Key: Key{1}, Admit: func() (func(), error) { return nil, full }},
		func(_ string, _ bool, err error) { got = err })
	require.ErrorIs(t, got, full)
}

// Fetches that end while their waiters are being armed tell everybody once.
func TestStartRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	c := New[int](Config{TTL: time.Minute, MaxBytes: 1 << 20})
	const n = 2000
	var ends atomic.Int32
	done := make(chan struct{})
	for i := range n {
		c.Start(context.Background(), Call[int]{Key: Key{byte(i), byte(i >> 8)}, MaxAge: 1, Timeout: time.Hour,
			Fetch: func(context.Context) (int, int64, bool, error) { return i, 1, false, nil }},
			func(v int, _ bool, err error) {
				if v != i || err != nil {
					t.Errorf("%d: %v, %v", i, v, err)
				}
				if ends.Add(1) == n {
					close(done)
				}
			})
	}
	<-done
	require.Zero(t, c.Stats().Waiters)
}
