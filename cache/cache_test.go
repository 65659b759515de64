package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const second = time.Second

// bubble runs a test with a clock that moves only when everybody waits, so that instants are exact.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, f)
}

func newCache() *Cache[string] { return New[string](Config{TTL: 10 * time.Minute, MaxBytes: 1 << 20}) }

// answer is a Fetch that takes so long and counts how often it was called. It ends early when nobody waits.
func answer(after time.Duration, v string, calls *atomic.Int32) func(context.Context) (string, int64, bool, error) {
	return func(ctx context.Context) (string, int64, bool, error) {
		if calls != nil {
			calls.Add(1)
		}
		select {
		case <-time.After(after):
			return v, int64(len(v)), true, nil
		case <-ctx.Done():
			return "", 0, false, context.Cause(ctx)
		}
	}
}

// fails is a Fetch that must not be called.
func fails(context.Context) (string, int64, bool, error) {
	return "", 0, false, errors.New("was fetched")
}

// get asks for what is stored.
func get(c *Cache[string], key Key, maxAge time.Duration) string {
	v, _ := c.Get(key, maxAge)
	return v
}

// put stores a value by a fetch that takes no time.
func put(t *testing.T, c *Cache[string], key Key, owner, v string) {
	got, hit, err := c.Do(t.Context(), Call[string]{Key: key, Owner: owner, Store: true, Fetch: answer(0, v, nil)})
	require.NoError(t, err)
	require.False(t, hit)
	require.Equal(t, v, got)
}

// conformance: 7.cache.one-call
func TestConcurrentIdenticalCallsFetchOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		var calls, admitted, released atomic.Int32
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				v, hit, err := c.Do(t.Context(), Call[string]{
					Key: Key{1}, Owner: fmt.Sprint("node", i%4), MaxAge: second, Timeout: 5 * second, Fetch: answer(second, "once", &calls),
					Admit: func() (func(), error) { admitted.Add(1); return func() { released.Add(1) }, nil },
				})
				require.NoError(t, err)
				require.False(t, hit, "a shared answer is no answer from the cache")
				require.Equal(t, "once", v)
				require.EqualValues(t, 1, released.Load(), "what the fetch took is free before anyone has its answer")
			})
		}
		synctest.Wait()
		s := c.Stats()
		require.Equal(t, Stats{Misses: 1, Shared: 99, Fetches: 1, Waiters: 99}, s)
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())
		require.EqualValues(t, 1, admitted.Load(), "who shares asks for no admission")
		s = c.Stats()
		require.Equal(t, Stats{Misses: 1, Shared: 99}, s, "nobody asked to store")
	})
}

func TestMustFetchSharesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		put(t, c, Key{1}, "o", "stored")
		var calls atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				maxAge := time.Duration(0)
				if i >= 6 {
					maxAge = time.Nanosecond // willing to share, and nothing stored is young enough
				}
				time.Sleep(time.Duration(i+1) * time.Millisecond) // in turn
				_, hit, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: maxAge, Fetch: answer(second, "v", &calls)})
				require.NoError(t, err)
				require.False(t, hit)
			})
		}
		wg.Wait()
		require.EqualValues(t, 7, calls.Load(), "six of their own and one that the two share")
		require.EqualValues(t, 1, c.Stats().Shared)
	})
}

// conformance: 7.cache.leader-timeout
func TestLeaderTimeoutFailsNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		var calls atomic.Int32
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: time.Millisecond, Fetch: answer(second, "v", &calls)})
			var timeout *TimeoutError
			require.ErrorAs(t, err, &timeout)
			require.Equal(t, time.Millisecond, timeout.After)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, timeout.Timeout())
			require.Equal(t, "no answer within 1ms", err.Error())
			require.Equal(t, time.Millisecond, time.Since(start))
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() {
				v, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: 2 * second, Fetch: fails})
				require.NoError(t, err)
				require.Equal(t, "v", v)
				require.Equal(t, second, time.Since(start))
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())
	})
}

// conformance: 7.cache.own-timeout
func TestFollowerLeavesOnTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			v, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: 10 * second, Fetch: answer(9*second, "v", nil)})
			require.NoError(t, err)
			require.Equal(t, "v", v)
			require.Equal(t, 9*second, time.Since(start))
		})
		synctest.Wait()
		wg.Go(func() {
			_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: 500 * time.Millisecond, Fetch: fails})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 500*time.Millisecond, time.Since(start))
		})
		wg.Go(func() {
			gone := errors.New("the client went away")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(300*time.Millisecond, func() { cancel(gone) })
			_, _, err := c.Do(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails})
			require.Equal(t, gone, err)
			require.Equal(t, 300*time.Millisecond, time.Since(start))
		})
		wg.Wait()
		require.Zero(t, c.Stats().Waiters)
	})
}

func TestFetchIsDetachedFromItsLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		type trace struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), trace{}, "id"), second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := c.Do(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: func(ctx context.Context) (string, int64, bool, error) {
				_, bounded := ctx.Deadline()
				require.False(t, bounded)
				time.Sleep(2 * second)
				require.NoError(t, ctx.Err(), "somebody waits")
				return ctx.Value(trace{}).(string), 2, true, nil
			}})
			require.Equal(t, context.DeadlineExceeded, err)
		})
		synctest.Wait()
		v, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails})
		require.NoError(t, err)
		require.Equal(t, "id", v, "values are kept")
		wg.Wait()
	})
}

// conformance: 7.cache.own-timeout
func TestLastOneOutCancels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		start := time.Now()
		var cancelled atomic.Int64
		var released atomic.Bool
		call := Call[string]{
			Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Timeout: 2 * second,
			Admit: func() (func(), error) { return func() { released.Store(true) }, nil },
			Fetch: func(ctx context.Context) (string, int64, bool, error) {
				<-ctx.Done()
				cancelled.Store(int64(time.Since(start)))
				require.Equal(t, context.Canceled, ctx.Err())
				time.Sleep(second) // slow to give up, and then it has an answer
				return "late", 4, true, nil
			},
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, _, err := c.Do(t.Context(), call)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 2*second+200*time.Millisecond, time.Duration(cancelled.Load()), "when the one with the latest deadline left")
		require.False(t, released.Load(), "the fetch has not returned")
		require.Equal(t, 1, c.Stats().Fetches)

		v, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: answer(2*second, "fresh", nil)})
		require.NoError(t, err)
		require.Equal(t, "fresh", v, "nobody joins what was cancelled")
		require.True(t, released.Load())
		require.Empty(t, get(c, Key{1}, time.Hour), "what came after nobody waited is dropped")
		require.Zero(t, c.Stats().Fetches)
	})
}

// Limit ends a fetch for which there is always somebody waiting. Who would wait longer than that starts the next fetch instead of sharing this one.
//
// conformance: 7.cache.leader-timeout
func TestLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		start := time.Now()
		ask := func(after, timeout time.Duration, v string, ends time.Duration) {
			time.Sleep(after)
			got, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: timeout, Limit: 10 * second,
				Fetch: func(ctx context.Context) (string, int64, bool, error) {
					require.NotEmpty(t, v, "it starts no fetch")
					<-ctx.Done()
					require.LessOrEqual(t, time.Since(start)-after, 10*second, v)
					return "", 0, false, ctx.Err()
				}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, got)
			require.Equal(t, ends, time.Since(start))
		}
		var wg sync.WaitGroup
		wg.Go(func() { ask(0, 0, "first", 10*second) })
		wg.Go(func() { ask(second, 9*second, "", 10*second) })          // may wait to its end
		wg.Go(func() { ask(4*second, time.Hour, "second", 14*second) }) // would wait longer
		wg.Go(func() { ask(5*second, 6*second, "", 11*second) })        // of the two that run it shares the later one
		wg.Go(func() { ask(6*second, 0, "third", 16*second) })
		wg.Go(func() { ask(17*second, 9*second, "fourth", 26*second) }) // nothing runs any more
		wg.Wait()
		synctest.Wait()
		require.EqualValues(t, 4, c.Stats().Misses)
		require.EqualValues(t, 2, c.Stats().Shared)
		require.Zero(t, c.Stats().Fetches)
	})
}

// Close ends all waiting with its cause, whatever the fetches do, and no fetch is started after it.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		put(t, c, Key{9}, "o", "stored")
		stopping := errors.New("stopping")
		told := make(chan error, 9)
		call := Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Fetch: func(ctx context.Context) (string, int64, bool, error) {
			<-ctx.Done()
			time.Sleep(second)
			return "late", 4, true, nil
		}}
		for i := range 3 { // two share a fetch, one has its own
			call := call
			if i == 2 {
				call.MaxAge = 0
			}
			c.Start(t.Context(), call, func(_ string, _ bool, err error) { told <- err })
			go func() {
				_, _, err := c.Do(t.Context(), call)
				told <- err
			}()
		}
		synctest.Wait()
		require.Equal(t, 3, c.Stats().Fetches)
		c.Close(stopping)
		for range 6 {
			require.Equal(t, stopping, <-told)
		}
		synctest.Wait()
		require.Zero(t, c.Stats().Waiters)
		_, _, err := c.Do(t.Context(), Call[string]{Key: Key{2}, Fetch: fails})
		require.Equal(t, stopping, err)
		c.Close(errors.New("again"))
		_, _, err = c.Do(t.Context(), Call[string]{Key: Key{2}, Fetch: fails})
		require.Equal(t, stopping, err)
		time.Sleep(second)
		synctest.Wait()
		require.Zero(t, c.Stats().Fetches)
		require.Empty(t, get(c, Key{1}, time.Hour), "what came late is dropped")
		require.Equal(t, "stored", get(c, Key{9}, time.Hour))
	})
}

// Late says what those get whose time is up; the fetch goes on for the others.
func TestLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		queued := errors.New("still in a queue")
		var inQueue atomic.Bool
		late := func() error {
			if inQueue.Load() {
				return queued
			}
			return nil
		}
		call := func(timeout time.Duration) Call[string] {
			return Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Timeout: timeout, Fetch: answer(5*second, "v", nil), Late: late}
		}
		told := make(chan error, 9)
		tell := func(_ string, _ bool, err error) { told <- err }
		inQueue.Store(true)
		c.Start(t.Context(), call(second), tell)
		for i, timeout := range []time.Duration{second, 2 * second, 9 * second} {
			follower := call(timeout)
			follower.Late = func() error { return errors.New("its fetch was never started") }
			if i == 2 {
				c.Start(t.Context(), follower, tell)
				continue
			}
			go func() {
				_, _, err := c.Do(t.Context(), follower)
				if i == 0 {
					require.Equal(t, queued, err)
				} else {
					require.Equal(t, &TimeoutError{After: timeout}, err)
				}
			}()
		}
		time.Sleep(second)
		synctest.Wait()
		require.Equal(t, queued, <-told)
		inQueue.Store(false)
		require.NoError(t, <-told)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, told)
	})
}

// A fetch may end between a call's look at the entries and its look at the fetches, and in the instant in which its time is up. Both count for the call.
func TestFetchEndsInTheLastInstant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var meanwhile func()
		reads := 0
		c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20, Now: func() time.Time {
			if reads++; reads == 3 { // New, the look at the entries, and now the look at the fetches
				meanwhile()
			}
			return time.Now()
		}})
		meanwhile = func() { put(t, c, Key{1}, "o", "v") }
		v, hit, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails})
		require.NoError(t, err)
		require.True(t, hit)
		require.Equal(t, "v", v)
		require.EqualValues(t, 1, c.Stats().Hits)

		for range 50 { // of two things that have happened, select takes either
			ctx, cancel := context.WithCancel(t.Context())
			call := &Call[string]{Key: Key{2}, Owner: "o", MaxAge: second, Fetch: answer(0, "v", nil)}
			s, _, err := c.enter(ctx, call, nil)
			require.NoError(t, err)
			<-s.flight.done
			cancel()
			v, err := c.wait(ctx, s, call)
			require.NoError(t, err)
			require.Equal(t, "v", v)
		}
	})
}

func TestContextEndsWithTheFetch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var of context.Context
		_, _, err := newCache().Do(t.Context(), Call[string]{Fetch: func(ctx context.Context) (string, int64, bool, error) { of = ctx; return "", 0, false, nil }})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, context.Canceled, of.Err(), "what the fetch left behind under it ends too")
	})
}

func TestEndedContextStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		put(t, c, Key{1}, "o", "v")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := c.Do(ctx, Call[string]{Key: Key{2}, Owner: "o", MaxAge: second, Fetch: fails})
		require.Equal(t, context.Canceled, err)
		require.EqualValues(t, 1, c.Stats().Misses)
		v, hit, err := c.Do(ctx, Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails})
		require.NoError(t, err, "a hit waits for nothing")
		require.True(t, hit)
		require.Equal(t, "v", v)
	})
}

// conformance: 7.cache.store
func TestStoredIfAnyParticipantAsked(t *testing.T) {
	for _, c := range []struct {
		name             string
		leader, follower bool
		followerLeaves   bool
		payer            string
	}{
		{"nobody", false, false, false, ""},
		{"the leader", true, false, false, "leader"},
		{"a follower", false, true, false, "follower"},
		{"a follower that has left", false, true, true, "follower"},
		{"both: the first pays", true, true, false, "leader"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cache := newCache()
				var wg sync.WaitGroup
				wg.Go(func() {
					_, _, err := cache.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "leader", MaxAge: second, Store: c.leader, Fetch: answer(2*second, "v", nil)})
					require.NoError(t, err)
				})
				synctest.Wait()
				timeout := time.Minute
				if c.followerLeaves {
					timeout = second
				}
				_, _, err := cache.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "follower", MaxAge: second, Store: c.follower, Timeout: timeout, Fetch: fails})
				require.Equal(t, c.followerLeaves, err != nil)
				wg.Wait()
				if c.payer == "" {
					require.Empty(t, get(cache, Key{1}, time.Hour))
					return
				}
				require.Equal(t, "v", get(cache, Key{1}, time.Hour))
				require.Equal(t, c.payer, cache.store.entries[Key{1}].owner.name)
			})
		})
	}
}

// conformance: 7.cache.never-waits
func TestHangingFetchDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Timeout: 60 * second, Fetch: answer(time.Hour, "", nil)})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 60*second, time.Since(start))
			})
		}
		synctest.Wait()
		for i := range 200 {
			put(t, c, Key{2, byte(i)}, "o", "v")
			require.Equal(t, "v", get(c, Key{2, byte(i)}, second))
			_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", Fetch: answer(0, "must fetch", nil)})
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(start))
		require.Zero(t, c.Sweep(time.Now()))
		wg.Wait()
	})
}
