package cache

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// request is what the key of an outbound request of moderate size covers.
type request struct {
	header map[string][]string
	body   []byte
}

func newRequest() request {
	return request{
		header: map[string][]string{"accept": {"application/json"}, "content-type": {"application/json"}, "x-request": {"a", "b"}},
		body:   bytes.Repeat([]byte("b"), 256),
	}
}

func (r *request) key(h *Hasher) Key {
	h.Reset()
	h.String("don-mainnet-1")
	h.String("0x00000000000000000000000000000000000000aa")
	h.Bool(true)
	h.String("POST")
	h.String("https://api.example.com/v1/prices?base=eth&quote=usd")
	h.Map(r.header)
	h.Bytes(r.body)
	h.Int(1 << 20)
	h.Bytes(nil)
	return h.Sum()
}

// warm is a cache of so many entries, one of which is under the key, and a map of the same keys.
func warm(tb testing.TB, key Key, entries int) (*Cache[*request], map[Key]*request) {
	c := New[*request](Config{TTL: time.Hour, MaxBytes: 1 << 30})
	m := map[Key]*request{}
	for i := range entries {
		k := numbered(i)
		if i == 0 {
			k = key
		}
		v := &request{}
		m[k] = v
		require.True(tb, c.store.put(k, fmt.Sprint("owner", i%50), v, 100, uint64(i), c.now()))
	}
	return c, m
}

// BenchmarkHit is a hit with its key hashed, over the floor: hashing the key and one lookup in a map under a mutex. Both are measured in turns;
// the ratio is the median of the turns'.
func BenchmarkHit(b *testing.B) {
	r, h := newRequest(), NewHasher()
	c, m := warm(b, r.key(h), 10_000)
	var mu sync.Mutex
	call := Call[*request]{MaxAge: time.Minute, Store: true, Timeout: time.Second, Fetch: func(context.Context) (*request, int64, bool, error) { panic("a hit fetches nothing") }}
	ways := []func(){
		func() {
			k := r.key(h)
			mu.Lock()
			v := m[k]
			mu.Unlock()
			if v == nil {
				b.Fatal("no entry")
			}
		},
		func() {
			if _, ok := c.Get(r.key(h), time.Minute); !ok {
				b.Fatal("no hit")
			}
		},
		func() {
			call := call
			call.Key = r.key(h)
			if _, hit, _ := c.Do(b.Context(), call); !hit {
				b.Fatal("no hit")
			}
		},
	}
	const turn = 2000
	var took [3][]float64 // ns each, by way and turn
	for b.Loop() {
		for way, f := range ways {
			start := time.Now()
			for range turn {
				f()
			}
			took[way] = append(took[way], float64(time.Since(start).Nanoseconds())/turn)
		}
	}
	median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
	var ratio [3][]float64
	for way := range ways {
		for i := range took[way] {
			ratio[way] = append(ratio[way], took[way][i]/took[0][i])
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratio[1]), "ratio/Get")
	b.ReportMetric(median(ratio[2]), "ratio/Do")
	b.ReportMetric(median(took[0]), "ns/floor")
	b.ReportMetric(median(took[1]), "ns/Get")
	b.ReportMetric(median(took[2]), "ns/Do")
}

func BenchmarkGet(b *testing.B) {
	r := newRequest()
	key := r.key(NewHasher())
	c, _ := warm(b, key, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		c.Get(key, time.Minute)
	}
}

func BenchmarkKey(b *testing.B) {
	r, h := newRequest(), NewHasher()
	b.ReportAllocs()
	for b.Loop() {
		r.key(h)
	}
}

// BenchmarkMiss is a fetch that takes no time, stored in a full cache: the goroutine, the context and an eviction.
func BenchmarkMiss(b *testing.B) {
	c := New[*request](Config{TTL: time.Hour, MaxBytes: 10_000 * (EntryOverhead + 106)})
	call := Call[*request]{MaxAge: time.Minute, Store: true, Timeout: time.Second, Fetch: func(context.Context) (*request, int64, bool, error) { return nil, 100, true, nil }}
	owners := make([]string, 1000)
	for i := range owners {
		owners[i] = fmt.Sprint("own", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		call := call
		call.Key, call.Owner = numbered(i), owners[i%len(owners)]
		if _, _, err := c.Do(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEvict is a put into a full store among so many owners: as fast for many as for few.
func BenchmarkEvict(b *testing.B) {
	for _, owners := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprint(owners), func(b *testing.B) {
			names := make([]string, owners)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			var s store[int]
			s.init(time.Hour, 200_000*1024)
			n := 0
			put := func() {
				n++
				s.put(numbered(n), names[n%owners], n, int64(n%1024), uint64(n), 0)
			}
			for s.evictions == 0 {
				put()
			}
			for b.Loop() {
				put()
			}
		})
	}
}

// conformance: 7.cache.immutable
func TestHitAllocatesNothing(t *testing.T) {
	r := newRequest()
	key := r.key(NewHasher())
	c, _ := warm(t, key, 10)
	call := Call[*request]{Key: key, MaxAge: time.Minute, Timeout: time.Second, Fetch: func(context.Context) (*request, int64, bool, error) { return nil, 0, false, nil }}
	require.Zero(t, testing.AllocsPerRun(100, func() { c.Get(key, time.Minute) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = c.Do(t.Context(), call) }))
}
