package cache

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// heap is what is in use after collecting garbage.
func heap() int64 {
	runtime.GC()
	runtime.GC() // twice: what the first one's finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func numbered(n int) (k Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(n)+1)
	return k
}

// fill stores a value of so many bytes.
func fill(t *testing.T, c *Cache[[]byte], key Key, owner string, size int) {
	_, _, err := c.Do(t.Context(), Call[[]byte]{Key: key, Owner: owner, MaxAge: time.Second, Store: true, Timeout: time.Minute, Fetch: func(context.Context) ([]byte, int64, bool, error) {
		return make([]byte, size), int64(size), true, nil
	}})
	if err != nil {
		require.NoError(t, err)
	}
}

// Not parallel: it measures the heap.
//
// conformance: 7.cache.bound
func TestMemoryStaysWithinTheBound(t *testing.T) {
	const bound = 64 << 20
	for _, tt := range []struct {
		name     string
		requests int
		owner    func(i int) string
		size     int
		expired  int // entries of 1 byte stored before, each its own owner's, that have expired meanwhile
	}{
		{"200 000 distinct requests of 25 kB by one owner", 200_000 / floodDivisor, func(int) string { return "flood" }, 25_000, 0},
		{"25 kB after as many tiny entries as fit, each its own owner's", 4000, func(int) string { return "flood" }, 25_000, 150_000},
		{"tiny entries, each its own owner's", 150_000, func(i int) string { return fmt.Sprintf("unconfirmed 0x%040d", i) }, 1, 0},
		{"many owners of many entries", 40_000, func(i int) string { return fmt.Sprint("owner", i%1000) }, 3000, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := heap()
			now := time.Now()
			c := New[[]byte](Config{TTL: time.Hour, MaxBytes: bound, Now: func() time.Time { return now }})
			for i := range tt.expired {
				fill(t, c, numbered(1<<40+i), fmt.Sprint(i), 1)
			}
			now = now.Add(time.Hour)
			for i := range 10 {
				fill(t, c, numbered(1<<30+i), "victim", 100)
			}
			peak := int64(0)
			for i := range tt.requests {
				fill(t, c, numbered(i), tt.owner(i), tt.size)
				if i%(tt.requests/40) == 0 {
					peak = max(peak, heap()-before)
				}
			}
			peak = max(peak, heap()-before)
			s := c.Stats()
			require.LessOrEqual(t, s.Bytes, int64(bound))
			require.Greater(t, s.Bytes, int64(bound)*9/10, "and it is used")
			require.LessOrEqual(t, peak, int64(bound)*12/10)
			t.Logf("heap %.1f MB of %d MB, %d entries of %d owners, %d evictions", float64(peak)/(1<<20), bound>>20, s.Entries, s.Owners, s.Evictions)
			if s.Owners < 10_000 {
				for i := range 10 {
					_, ok := c.Get(numbered(1<<30+i), time.Hour)
					require.True(t, ok, "the other owner's entries survive")
				}
			}
		})
	}
}

// A flood by one owner against others that hold up to a quarter each, however long they have not used what they hold.
//
// conformance: 7.cache.quarter
func TestFloodCannotEvictAnothersQuarter(t *testing.T) {
	t.Parallel()
	const bound = 1 << 20
	put := func(s *store[int], n int, owner string, size int64) bool {
		return s.put(numbered(n), owner, n, size-EntryOverhead-int64(len(owner)), uint64(n), 0)
	}
	for quiet := range 4 {
		t.Run(fmt.Sprint(quiet, " others"), func(t *testing.T) {
			t.Parallel()
			var s store[int]
			s.init(time.Hour, bound)
			for o := range quiet {
				for i := range 256 {
					require.True(t, put(&s, o*1000+i, fmt.Sprint("quiet", o), bound/4/256))
				}
			}
			for i := range 20_000 {
				require.True(t, put(&s, 10_000+i, "flood", 700+int64(i%3)*1000))
				require.LessOrEqual(t, s.bytes, int64(bound))
			}
			for o := range quiet {
				require.EqualValues(t, bound/4, s.owners[fmt.Sprint("quiet", o)].bytes)
			}
			require.InDelta(t, bound-quiet*bound/4, s.owners["flood"].bytes, 3000, "what the others leave is the flooder's")
			for i := range 10 {
				_, ok := s.get(numbered(10_000+20_000-1-i), 0, time.Hour)
				require.True(t, ok, "of its own it keeps what it used last")
			}
		})
	}
}

// Whoever comes to a cache that one owner fills gets room at the other's cost, up to an equal part.
//
// conformance: 7.cache.quarter
func TestNewcomersGetRoom(t *testing.T) {
	t.Parallel()
	const bound, cost = 1 << 20, 1024
	var s store[int]
	s.init(time.Hour, bound)
	n := 0
	more := func(owner string, entries int) {
		for range entries {
			n++
			require.True(t, s.put(numbered(n), owner, n, cost-EntryOverhead-int64(len(owner)), uint64(n), 0))
		}
	}
	more("a", 2000)
	require.EqualValues(t, bound, s.owners["a"].bytes, "alone, it may have everything")
	more("b", 256)
	require.EqualValues(t, bound/4, s.owners["b"].bytes, "another gets its quarter whole")
	more("c", 256)
	require.EqualValues(t, bound/4, s.owners["b"].bytes)
	require.EqualValues(t, bound/4, s.owners["c"].bytes)
	require.EqualValues(t, bound/2, s.owners["a"].bytes)
	for o := range 12 {
		more(fmt.Sprint("d", o), 2000)
	}
	for name, a := range s.owners {
		require.InDelta(t, bound/15, a.bytes, bound/15/4, name)
	}
}

func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	t.Parallel()
	var s store[int]
	s.init(time.Hour, 4*EntryOverhead)
	for i := range 4 {
		require.True(t, s.put(numbered(i), "", i, 0, uint64(i), 0))
	}
	_, ok := s.get(numbered(0), 0, time.Hour)
	require.True(t, ok)
	_, ok = s.get(numbered(1), 5, 5)
	require.False(t, ok, "too old for this one: not a use")
	for i, gone := range []int{1, 2, 3, 0} {
		require.True(t, s.put(numbered(10+i), "", i, 0, uint64(10+i), 0))
		require.NotContains(t, s.entries, numbered(gone))
		require.Len(t, s.entries, 4)
	}
}

func TestLargestEntry(t *testing.T) {
	t.Parallel()
	var s store[int]
	s.init(time.Hour, 10_000)
	require.False(t, s.put(numbered(1), "me", 1, 10_000-EntryOverhead-1, 1, 0))
	require.True(t, s.put(numbered(1), "me", 1, 10_000-EntryOverhead-2, 1, 0))
	require.EqualValues(t, 10_000, s.bytes)
	require.False(t, s.put(numbered(1), "me", 2, 10_000, 2, 0), "too large, and replaces nothing")
	v, ok := s.get(numbered(1), 0, 1)
	require.True(t, ok)
	require.Equal(t, 1, v)
}

func TestExpiredGoBeforeLive(t *testing.T) {
	t.Parallel()
	var s store[int]
	s.init(10, 4*EntryOverhead+4)
	require.True(t, s.put(numbered(0), "x", 0, 0, 0, 0))
	for i := range 3 {
		require.True(t, s.put(numbered(1+i), "y", 0, 0, 0, 9))
	}
	require.True(t, s.put(numbered(9), "y", 0, 0, 0, 10))
	require.NotContains(t, s.entries, numbered(0), "although y holds more and used its own less lately")
	require.EqualValues(t, 0, s.evictions)
	require.EqualValues(t, 1, s.expiries)
}

// TestManyAtOnce is for the race detector: everything at once, in real time.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const bound = 20_000
	c := New[*Key](Config{TTL: 2 * time.Millisecond, MaxBytes: bound, MaxWaitersPerOwner: 4})
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 400 {
				key := numbered(r.IntN(30))
				v, _, err := c.Do(t.Context(), Call[*Key]{
					Key: key, Owner: fmt.Sprint(r.IntN(4)), MaxAge: time.Duration(r.IntN(3)) * time.Millisecond, Store: r.IntN(3) > 0,
					Timeout: time.Duration(r.IntN(2000)) * time.Microsecond,
					Fetch: func(ctx context.Context) (*Key, int64, bool, error) {
						switch r := rand.IntN(10); {
						case r == 0:
							panic("now and then")
						case r < 5:
							select {
							case <-ctx.Done():
								return nil, 0, false, ctx.Err()
							case <-time.After(time.Duration(rand.IntN(1500)) * time.Microsecond):
							}
						}
						return &key, rand.Int64N(3000), true, nil
					},
				})
				if err == nil && *v != key {
					t.Errorf("asked for %v, got %v", key, *v)
				}
				if s := c.Stats(); s.Bytes > bound || s.Bytes < int64(s.Entries*EntryOverhead) {
					t.Errorf("%+v", s)
				}
				if r.IntN(50) == 0 {
					c.Sweep(time.Now())
				}
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return c.Stats().Fetches == 0 }, 10*time.Second, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(t, c.flights)
	require.Empty(t, c.waiters)
	require.Zero(t, c.stats.Waiters)
}
