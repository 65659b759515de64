package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// conformance: 7.cache.age
// conformance: 7.cache.ttl
func TestAgeLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := New[string](Config{TTL: 10 * second, MaxBytes: 1 << 20})
		_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Fetch: answer(5*second, "v", nil)})
		require.NoError(t, err)
		stored := time.Now() // age counts from here, not from the fetch's start
		for _, tt := range []struct{ at, maxAge time.Duration }{
			{0, 1}, {0, second}, {2*second - 1, 2 * second}, {2 * second, 2 * second}, {2 * second, 2*second + 1},
			{10*second - 1, 10 * second}, {10*second - 1, time.Hour}, {10*second - 1, 0}, {10*second - 1, -second},
		} {
			time.Sleep(time.Until(stored.Add(tt.at)))
			v, ok := c.Get(Key{1}, tt.maxAge)
			require.Equal(t, tt.at < tt.maxAge, ok, "age %v, at most %v", tt.at, tt.maxAge)
			require.Equal(t, ok, v == "v")
		}
		require.Equal(t, 1, c.Stats().Entries)
		time.Sleep(time.Nanosecond)
		require.Empty(t, get(c, Key{1}, time.Hour), "the time to live needs no sweep")
		require.Equal(t, Stats{Hits: 6, Misses: 1, Stores: 1, Expired: 1}, c.Stats(), "and the first to notice removes the entry")
	})
}

// conformance: 7.cache.swept
func TestSweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := New[string](Config{TTL: 10 * second, MaxBytes: 1 << 30})
		for i := range 1000 {
			put(t, c, Key{byte(i), byte(i >> 8)}, "o", "v")
		}
		time.Sleep(5 * second)
		put(t, c, Key{255, 255}, "o", "young")
		require.Zero(t, c.Sweep(time.Now()))
		time.Sleep(5*second - 1)
		require.Zero(t, c.Sweep(time.Now()))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1000, c.Sweep(time.Now()))
		s := c.Stats()
		require.EqualValues(t, 1000, s.Expired)
		require.Zero(t, s.Evictions)
		require.Equal(t, 1, s.Entries)
		require.EqualValues(t, EntryOverhead+len("o")+len("young"), s.Bytes)
		require.Equal(t, "young", get(c, Key{255, 255}, time.Hour))
	})
}

func TestOwnClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	c := New[string](Config{TTL: time.Minute, MaxBytes: 1 << 20, Now: func() time.Time { return now }})
	put(t, c, Key{1}, "o", "v")
	now = now.Add(-time.Hour) // set back: no younger than new, and no harm
	require.Equal(t, "v", get(c, Key{1}, 1))
	require.Empty(t, get(c, Key{1}, 0), "must fetch is must fetch")
	now = now.Add(time.Hour + time.Minute - 1)
	require.Equal(t, "v", get(c, Key{1}, time.Hour))
	now = now.Add(1)
	require.Equal(t, 1, c.Sweep(now))
}

// conformance: 7.cache.newest
func TestNewestWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		put(t, c, Key{1}, "o", "one")
		put(t, c, Key{1}, "o", "two")
		require.Equal(t, "two", get(c, Key{1}, second))

		var wg sync.WaitGroup
		for i, takes := range []time.Duration{5 * second, second, 3 * second} { // asked in this order, answered in another
			wg.Go(func() {
				time.Sleep(time.Duration(i))
				v := fmt.Sprint("asked ", i)
				got, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", Store: true, Fetch: answer(takes, v, nil)})
				require.NoError(t, err)
				require.Equal(t, v, got, "each gets what it fetched")
			})
		}
		time.Sleep(2 * second)
		require.Equal(t, "asked 1", get(c, Key{1}, time.Hour))
		time.Sleep(2 * second)
		require.Equal(t, "asked 2", get(c, Key{1}, time.Hour))
		wg.Wait()
		require.Equal(t, "asked 2", get(c, Key{1}, time.Hour), "the slow answer to the first question came last")
		require.EqualValues(t, 4, c.Stats().Stores)
		require.Zero(t, c.Stats().Evictions, "replaced is not evicted")
	})
}

// conformance: 7.cache.statuses
func TestOutcomesThatAreNotStored(t *testing.T) {
	down := errors.New("down")
	for name, fetch := range map[string]func(context.Context) (string, int64, bool, error){
		"error":            func(context.Context) (string, int64, bool, error) { return "", 0, false, down },
		"error and value":  func(context.Context) (string, int64, bool, error) { return "v", 1, true, down },
		"not cacheable":    func(context.Context) (string, int64, bool, error) { return "500", 3, false, nil },
		"larger than all":  func(context.Context) (string, int64, bool, error) { return "big", 1 << 20, true, nil },
		"absurdly large":   func(context.Context) (string, int64, bool, error) { return "big", 1<<63 - 1, true, nil },
		"panic":            func(context.Context) (string, int64, bool, error) { panic(down) },
		"panic of nothing": func(context.Context) (string, int64, bool, error) { panic(nil) },
		"end of goroutine": func(context.Context) (string, int64, bool, error) { runtime.Goexit(); return "", 0, true, nil },
		"no fetch at all":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, stored := range []string{"", "before"} {
				c := newCache()
				if stored != "" {
					put(t, c, Key{1}, "o", stored)
				}
				before := c.Stats()
				_, hit, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", Store: true, Fetch: fetch})
				require.False(t, hit)
				if name == "error" || name == "error and value" {
					require.Equal(t, down, err)
				}
				require.Equal(t, stored, get(c, Key{1}, time.Hour))
				require.Equal(t, before.Bytes, c.Stats().Bytes)
				require.Equal(t, before.Stores, c.Stats().Stores)
			}
		})
	}
}

func TestNegativeSizeIsNone(t *testing.T) {
	t.Parallel()
	c := newCache()
	_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Store: true, Fetch: func(context.Context) (string, int64, bool, error) { return "v", -1 << 40, true, nil }})
	require.NoError(t, err)
	require.EqualValues(t, EntryOverhead, c.Stats().Bytes)
}

func TestPanicEndsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		var released atomic.Int32
		admit := func() (func(), error) { return func() { released.Add(1) }, nil }
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				v, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Admit: admit, Fetch: func(context.Context) (string, int64, bool, error) {
					time.Sleep(second)
					panic("canary")
				}})
				var broke *PanicError
				require.ErrorAs(t, err, &broke)
				require.Equal(t, "canary", broke.Value)
				require.Contains(t, string(broke.Stack), "TestPanicEndsOneRequest")
				require.NotContains(t, err.Error(), "canary")
				require.Empty(t, v)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, released.Load())

		_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Admit: admit, Fetch: func(context.Context) (string, int64, bool, error) { runtime.Goexit(); panic("never") }})
		require.ErrorAs(t, err, new(*PanicError))
		require.EqualValues(t, 2, released.Load())

		_, _, err = c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: answer(0, "v", nil), Admit: func() (func(), error) { return func() { panic("release") }, nil }})
		require.ErrorAs(t, err, new(*PanicError))

		require.PanicsWithValue(t, "admit", func() {
			_, _, _ = c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails, Admit: func() (func(), error) { panic("admit") }})
		})
		put(t, c, Key{1}, "o", "well")
		require.Equal(t, "well", get(c, Key{1}, second))
		require.Zero(t, c.Stats().Fetches)
	})
}

func TestAdmitRefusesItsCallAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		full := errors.New("too many fetches")
		refuse := func() (func(), error) { return nil, full }
		for _, maxAge := range []time.Duration{0, second} {
			_, hit, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: maxAge, Fetch: fails, Admit: refuse})
			require.Equal(t, full, err)
			require.False(t, hit)
		}
		require.Equal(t, Stats{}, c.Stats())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Store: true, Fetch: answer(second, "v", nil), Admit: func() (func(), error) { return nil, nil }})
			require.NoError(t, err)
		})
		synctest.Wait()
		v, hit, err := c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails, Admit: refuse})
		require.NoError(t, err, "sharing is not asked for")
		require.False(t, hit)
		require.Equal(t, "v", v)
		_, hit, err = c.Do(t.Context(), Call[string]{Key: Key{1}, Owner: "o", MaxAge: second, Fetch: fails, Admit: refuse})
		require.NoError(t, err, "nor is a hit")
		require.True(t, hit)
		wg.Wait()
	})
}

// conformance: 7.limit.waiters
func TestWaitersPerOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCache()
		var wg sync.WaitGroup
		ask := func(key Key, owner string, timeout time.Duration) {
			wg.Go(func() {
				_, _, _ = c.Do(t.Context(), Call[string]{Key: key, Owner: owner, MaxAge: second, Timeout: timeout, Fetch: answer(time.Minute, "v", nil)})
			})
			synctest.Wait()
		}
		for i := range 3 {
			ask(Key{byte(i)}, "flood", time.Hour) // who starts a fetch is not counted
		}
		for i := range DefaultMaxWaitersPerOwner {
			ask(Key{byte(i % 3)}, "flood", second+time.Duration(i))
		}
		require.Equal(t, DefaultMaxWaitersPerOwner, c.Stats().Waiters)
		refused := Call[string]{Key: Key{1}, Owner: "flood", MaxAge: second, Fetch: fails}
		_, _, err := c.Do(t.Context(), refused)
		var many *TooManyWaitersError
		require.ErrorAs(t, err, &many)
		require.Equal(t, DefaultMaxWaitersPerOwner, many.Limit)
		require.True(t, strings.Contains(err.Error(), "1024"))
		require.EqualValues(t, 1, c.Stats().Refused)
		ask(Key{1}, "other", second)
		require.Equal(t, DefaultMaxWaitersPerOwner+1, c.Stats().Waiters, "another owner's may wait")
		ask(Key{9}, "flood", second)
		require.Equal(t, 4, c.Stats().Fetches, "and fetches of one's own are not this limit's affair")

		time.Sleep(second) // the first of the waiters leaves
		synctest.Wait()
		ask(Key{1}, "flood", time.Hour)
		_, _, err = c.Do(t.Context(), refused)
		require.ErrorAs(t, err, &many, "one place, one more")
		wg.Wait()
		require.Zero(t, c.Stats().Waiters)
		require.Empty(t, c.waiters)
		require.Empty(t, c.flights)
	})
}

func TestNothingIsKeptWithoutRoomOrTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, cfg := range []Config{{}, {TTL: second}, {MaxBytes: 1 << 20}, {TTL: -second, MaxBytes: 1 << 20}, {TTL: second, MaxBytes: -1}} {
			c := New[string](cfg)
			put(t, c, Key{1}, "o", "v")
			require.Empty(t, get(c, Key{1}, time.Hour))
			var calls atomic.Int32
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					_, _, err := c.Do(t.Context(), Call[string]{Key: Key{1}, MaxAge: second, Store: true, Fetch: answer(second, "v", &calls)})
					require.NoError(t, err)
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, calls.Load(), "fetches are shared nevertheless")
			require.Zero(t, c.Stats().Bytes)
		}
	})
}

// Bounds that change while running: what is past them goes, and owners over the new quarter go first.
func TestSetBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := New[string](Config{})
		put(t, c, Key{1}, "o", "v")
		require.Empty(t, get(c, Key{1}, time.Hour), "nothing is kept yet")
		c.SetBounds(10*second, 100*(EntryOverhead+2))
		for i := range 60 {
			put(t, c, Key{byte(i)}, "o", "v")
		}
		for i := range 20 {
			put(t, c, Key{100, byte(i)}, "p", "v")
		}
		require.Equal(t, 80, c.Stats().Entries)
		c.SetBounds(10*second, 40*(EntryOverhead+2))
		require.Equal(t, 40, c.Stats().Entries)
		require.LessOrEqual(t, c.Stats().Bytes, int64(40*(EntryOverhead+2)))
		require.EqualValues(t, 40, c.Stats().Evictions)
		require.Equal(t, "v", get(c, Key{100, 0}, time.Hour), "the larger owner's went first")
		time.Sleep(5 * second)
		c.SetBounds(5*second, 100*(EntryOverhead+2))
		require.Empty(t, get(c, Key{100, 1}, time.Hour), "too old by the new time to live")
		require.Equal(t, 39, c.Sweep(time.Now()))
		require.Zero(t, c.Stats().Bytes)
	})
}
