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
		require.Equal(t, context.Canceled, cause)
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
		c.mu.Lock()
		for n := c.flights[Key{1}].seated.next; n != &c.flights[Key{1}].seated; n = n.next {
			held++
		}
		c.mu.Unlock()
		require.Equal(t, 1, held)
		cancel()
		synctest.Wait()
		require.Equal(t, 1001, ends)
		require.Empty(t, c.flights)
	})
}

// watched is a context that lives long and counts who watches it.
type watched struct {
	context.Context
	done     chan struct{}
	watching atomic.Int32
	hook     func() // called by whoever begins to watch
}

func (w *watched) Done() <-chan struct{} { return w.done }

func (w *watched) AfterFunc(func()) (stop func() bool) {
	w.watching.Add(1)
	if w.hook != nil {
		w.hook()
	}
	return sync.OnceValue(func() bool { w.watching.Add(-1); return true })
}

// However a call ends, its timer and its watch over the context end too, or they would hold it, the latter for as long as the process lives.
func TestStartStopsWhatItArms(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout, takes time.Duration
		endsFirst      bool // before Start has armed anything
	}{
		"by the fetch":                  {time.Hour, time.Second, false},
		"by its timeout":                {time.Second, time.Hour, false},
		"by the fetch, at once":         {time.Hour, time.Second, true},
		"by its timeout, while arming":  {time.Second, time.Hour, true},
		"by the fetch, with no timeout": {0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCache()
				ctx := &watched{Context: context.Background(), done: make(chan struct{})}
				var w *waiter[string]
				told := make(chan struct{})
				look := func() {
					c.mu.Lock()
					defer c.mu.Unlock()
					w = c.flights[Key{1}].seated.first()
				}
				if tt.endsFirst {
					ctx.hook = func() { look(); <-told }
				}
				c.Start(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: 1, Timeout: tt.timeout, Fetch: answer(tt.takes, "v", nil)},
					func(string, bool, error) { close(told) })
				if !tt.endsFirst {
					look()
				}
				<-told
				synctest.Wait()
				require.Zero(t, ctx.watching.Load())
				c.mu.Lock()
				defer c.mu.Unlock()
				if tt.timeout > 0 {
					require.False(t, w.timer.Stop(), "it was running still")
				}
			})
		})
	}
}

// As TestFetchEndsInTheLastInstant.
func TestStartFindsWhatWasStoredMeanwhile(t *testing.T) {
	t.Parallel()
	var c *Cache[string]
	reads := 0
	c = New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20, Now: func() time.Time {
		if reads++; reads == 3 {
			put(t, c, Key{1}, "o", "v")
		}
		return time.Now()
	}})
	told := 0
	c.Start(context.Background(), Call[string]{Key: Key{1}, MaxAge: second, Fetch: fails}, func(v string, hit bool, err error) {
		told++
		require.Equal(t, "v", v)
		require.True(t, hit)
		require.NoError(t, err)
	})
	require.Equal(t, 1, told)
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

// Config.Go runs the fetches, each on a goroutine that may be another's next.
func TestFetchesRunWhereConfigSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		jobs := make(chan func(), 9)
		c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20, Go: func(f func()) { jobs <- f }})
		told := make(chan string, 9)
		for i := range 3 {
			c.Start(t.Context(), Call[string]{Key: Key{byte(i)}, Fetch: answer(0, "v", nil)}, func(v string, _ bool, err error) {
				require.NoError(t, err)
				told <- v
			})
		}
		synctest.Wait()
		require.Empty(t, told)
		for range 3 {
			(<-jobs)()
		}
		require.Len(t, told, 3)
		require.Zero(t, c.Stats().Fetches)
	})
}
