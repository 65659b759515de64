package cache

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// twin is a store without any structure: a list that is searched and summed up anew each time.
type twin struct {
	ttl                 time.Duration
	max                 int64
	list                []twinEntry
	class, since        map[string]int // of owners with entries: their size class and the tick at which they entered it
	ticks               int
	evictions, expiries uint64
}

type twinEntry struct {
	key        Key
	owner      string
	value      int
	cost       int64
	at         time.Duration
	began      uint64
	born, used int // ticks
}

func (w *twin) tick() int { w.ticks++; return w.ticks }

func (w *twin) find(key Key) int {
	return slices.IndexFunc(w.list, func(e twinEntry) bool { return e.key == key })
}

func (w *twin) held(owner string) (bytes int64, entries int) {
	for _, e := range w.list {
		if owner == "" || e.owner == owner {
			bytes += e.cost
			entries++
		}
	}
	return bytes, entries
}

// classOf counts the classes' lower bounds: 0, 1, 2 … 15, then eight for each doubling.
func (w *twin) classOf(held int64) int {
	if held > w.max/4 {
		return classOver
	}
	class := -1
	for bound, step := int64(0), int64(1); bound <= held; bound += step {
		class++
		if class >= 16 && class%8 == 0 {
			step *= 2
		}
	}
	return class
}

func (w *twin) rerank(owner string) {
	held, entries := w.held(owner)
	class, ranked := w.class[owner]
	switch now := w.classOf(held); {
	case entries == 0:
		delete(w.class, owner)
		delete(w.since, owner)
	case !ranked || now != class:
		w.class[owner], w.since[owner] = now, w.tick()
	}
}

func (w *twin) remove(i int) {
	owner := w.list[i].owner
	w.list = slices.Delete(w.list, i, i+1)
	w.rerank(owner)
}

func (w *twin) get(key Key, now, maxAge time.Duration) (int, bool) {
	i := w.find(key)
	if i < 0 {
		return 0, false
	}
	if now-w.list[i].at >= w.ttl {
		w.remove(i)
		w.expiries++
		return 0, false
	}
	if now-w.list[i].at >= maxAge {
		return 0, false
	}
	w.list[i].used = w.tick()
	return w.list[i].value, true
}

func (w *twin) put(key Key, owner string, value int, size int64, began uint64, now time.Duration) bool {
	cost := size + EntryOverhead + int64(len(owner))
	if cost > w.max {
		return false
	}
	if i := w.find(key); i >= 0 {
		if now-w.list[i].at >= w.ttl {
			w.expiries++
		} else if w.list[i].began > began {
			return false
		}
		w.remove(i)
	}
	w.list = append(w.list, twinEntry{key, owner, value, cost, now, began, w.tick(), w.tick()})
	w.rerank(owner)
	for {
		if all, _ := w.held(""); all <= w.max {
			return true
		}
		if w.sweep(now, 1) == 0 {
			w.remove(w.victim())
			w.evictions++
		}
	}
}

func (w *twin) victim() int {
	var owners []string
	for o := range w.class {
		owners = append(owners, o)
	}
	owner := slices.MinFunc(owners, func(a, b string) int {
		if c := cmp.Compare(w.class[b], w.class[a]); c != 0 {
			return c
		}
		if w.class[a] == classOver {
			heldA, _ := w.held(a)
			heldB, _ := w.held(b)
			return cmp.Or(cmp.Compare(heldB, heldA), cmp.Compare(w.since[b], w.since[a]))
		}
		return cmp.Compare(w.since[a], w.since[b])
	})
	victim := -1
	for i, e := range w.list {
		if e.owner == owner && (victim < 0 || e.used < w.list[victim].used) {
			victim = i
		}
	}
	return victim
}

func (w *twin) sweep(now time.Duration, limit int) (n int) {
	for ; n < limit; n++ {
		oldest := -1
		for i, e := range w.list {
			if oldest < 0 || e.born < w.list[oldest].born {
				oldest = i
			}
		}
		if oldest < 0 || now-w.list[oldest].at < w.ttl {
			return n
		}
		w.remove(oldest)
		w.expiries++
	}
	return n
}

// holdings is what each owner holds.
func (s *store[V]) holdings() map[string]int64 {
	h := map[string]int64{}
	for name, a := range s.owners {
		h[name] = a.bytes
	}
	return h
}

// check holds the twin against the store, and the store's structures against each other.
func (w *twin) check(t require.TestingT, s *store[int]) {
	all, entries := w.held("")
	require.Equal(t, all, s.bytes)
	require.Len(t, s.entries, entries)
	require.Equal(t, w.evictions, s.evictions)
	require.Equal(t, w.expiries, s.expiries)
	require.Len(t, s.owners, len(w.class))
	for _, e := range w.list {
		got := s.entries[e.key]
		require.NotNil(t, got, "an entry that the twin has")
		require.Equal(t, e, twinEntry{got.key, got.owner.name, got.value, got.cost, got.at, got.began, e.born, e.used})
		require.Same(t, s.owners[e.owner], got.owner)
		held, _ := w.held(e.owner)
		require.Equal(t, held, got.owner.bytes)
		require.Equal(t, w.class[e.owner], got.owner.class)
	}
	aged := 0
	for n := s.byAge.next; n != &s.byAge; n = n.next {
		aged++
	}
	require.Equal(t, entries, aged)
	for class := range s.ranking.classes {
		present := s.ranking.present[class/64]>>(class%64)&1 == 1
		require.Equal(t, !s.ranking.classes[class].empty(), present)
	}
}

func TestStoreAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 100 * time.Millisecond
		maxBytes := rapid.Int64Range(2000, 60_000).Draw(t, "maxBytes")
		w := &twin{ttl: ttl, max: maxBytes, class: map[string]int{}, since: map[string]int{}}
		var s store[int]
		s.init(ttl, maxBytes)
		owners := rapid.IntRange(1, 9).Draw(t, "owners")
		sizes := rapid.SampledFrom([]int64{100, 2000, 20_000, 100_000}).Draw(t, "sizes")
		keys := rapid.IntRange(1, 60).Draw(t, "keys")
		key := rapid.Custom(func(t *rapid.T) Key { return Key{byte(rapid.IntRange(1, keys).Draw(t, "key"))} })
		now := time.Duration(0)
		puts := 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { w.check(t, &s) },
			"put": func(t *rapid.T) {
				puts++
				k, owner := key.Draw(t, "k"), fmt.Sprint("owner", rapid.IntRange(1, owners).Draw(t, "owner"))
				size, began := rapid.Int64Range(0, sizes).Draw(t, "size"), uint64(max(0, puts-rapid.IntRange(0, 10).Draw(t, "earlier")))
				before, expiries, evictions := s.holdings(), s.expiries, s.evictions
				if old := s.entries[k]; old != nil {
					delete(before, old.owner.name) // who loses this entry because it is replaced
				}
				require.Equal(t, w.put(k, owner, puts, size, began, now), s.put(k, owner, puts, size, began, now))
				require.LessOrEqual(t, s.bytes, maxBytes)
				if s.evictions > evictions && s.expiries == expiries {
					checkFair(t, before, s.holdings(), owner, maxBytes)
				}
			},
			"get": func(t *rapid.T) {
				k, maxAge := key.Draw(t, "k"), time.Duration(rapid.Int64Range(1, int64(2*ttl)).Draw(t, "maxAge"))
				want, wantOK := w.get(k, now, maxAge)
				got, ok := s.get(k, now, maxAge)
				require.Equal(t, wantOK, ok)
				require.Equal(t, want, got)
			},
			"sweep": func(t *rapid.T) {
				limit := rapid.IntRange(1, 5).Draw(t, "limit")
				require.Equal(t, w.sweep(now, limit), s.sweep(now, limit))
			},
			"wait": func(t *rapid.T) { now += time.Duration(rapid.Int64Range(0, int64(ttl)/2).Draw(t, "d")) },
		})
	})
}

// checkFair holds what eviction promises whatever its structures: who lost something to another's entry held within an eighth of the most that anybody
// holds now, and if it held no more than a quarter nobody holds more now.
func checkFair(t require.TestingT, before, after map[string]int64, putter string, maxBytes int64) {
	most := int64(0)
	for _, held := range after {
		most = max(most, held)
	}
	for owner, held := range before {
		if owner == putter || after[owner] == held {
			continue
		}
		require.GreaterOrEqual(t, held+held/8+1, most, "%s held %d", owner, held)
		if held <= maxBytes/4 {
			require.LessOrEqual(t, most, maxBytes/4, "%s held no more than a quarter", owner)
		}
	}
}

func TestSizeClass(t *testing.T) {
	t.Parallel()
	w := twin{max: 1 << 62}
	last := 0
	for held := int64(0); held < 5000; held++ {
		require.Equal(t, w.classOf(held), sizeClass(held, w.max/4), held)
	}
	for held := int64(1); held < w.max/4; held += 1 + held/100 {
		class := sizeClass(held, w.max/4)
		require.True(t, class == last || class == last+1, held)
		last = class
	}
	require.Less(t, sizeClass(1<<62, 1<<62), classOver)
	require.Equal(t, classOver, sizeClass(26, 25))
	require.Less(t, sizeClass(25, 25), classOver)
}
