package cache

import (
	"strings"
	"time"
)

// EntryOverhead is what an entry is charged besides the size that its fetch stated and the length of its owner's name: the cache's own structures, for
// an entry that is its owner's only one. Thus small entries cannot take more memory than MaxBytes says.
const EntryOverhead = 512

// minShrink is the number of entries below which maps are not worth shrinking.
const minShrink = 1024

// store holds the entries of a Cache and decides what stays. It is a pure value: no lock, no clock, no goroutine. Instants are durations since
// an epoch and do not run backwards; if they did, entries would only stay longer.
type store[V any] struct {
	ttl      time.Duration
	maxBytes int64

	entries map[Key]*entry[V]
	owners  map[string]*account[V]
	peak    int            // most entries since the maps were made
	byAge   ring[entry[V]] // the one stored last is first
	ranking ranking[V]
	bytes   int64 // charged, all entries

	evictions, expiries uint64
}

// entry is one stored value. Nothing in it changes but its places in the lists.
type entry[V any] struct {
	key   Key
	value V
	cost  int64
	at    time.Duration // when it was stored
	began uint64        // the number of its fetch: a higher one began later
	owner *account[V]
	age   ring[entry[V]] // in store.byAge
	use   ring[entry[V]] // in owner.byUse
}

// account is an owner with at least one entry.
type account[V any] struct {
	name  string
	bytes int64
	byUse ring[entry[V]] // the one used last is first
	rank  ring[account[V]]
	class int // set by ranking
}

func (s *store[V]) init(ttl time.Duration, maxBytes int64) {
	s.ttl, s.maxBytes = ttl, maxBytes
	s.entries, s.owners = map[Key]*entry[V]{}, map[string]*account[V]{}
	s.byAge.init()
	s.ranking.init(maxBytes)
}

// setBounds ranks every owner again when the bound changes, as the classes depend on it.
func (s *store[V]) setBounds(ttl time.Duration, maxBytes int64, now time.Duration) {
	s.ttl = ttl
	if maxBytes != s.maxBytes {
		s.maxBytes = maxBytes
		s.ranking.quarter = maxBytes / 4
		for _, a := range s.owners {
			s.ranking.update(a)
		}
	}
	s.evict(now)
}

// get returns the value under a key if it is younger than both maxAge and the time to live.
func (s *store[V]) get(key Key, now, maxAge time.Duration) (v V, ok bool) {
	e := s.entries[key]
	if e == nil {
		return v, false
	}
	age := now - e.at
	if age >= s.ttl {
		s.expire(e)
		return v, false
	}
	if age >= maxAge {
		return v, false
	}
	e.owner.byUse.moveToFront(&e.use)
	return e.value, true
}

// put stores a value and evicts what no longer fits. It refuses one whose fetch began before that of the live entry it would replace, and one larger
// than everything may be. Where no more than the owner's own entry is left to evict, that is what goes.
func (s *store[V]) put(key Key, owner string, v V, size int64, began uint64, now time.Duration) bool {
	size = max(size, 0)
	if s.ttl <= 0 || size > s.maxBytes || size+EntryOverhead+int64(len(owner)) > s.maxBytes {
		return false
	}
	if old := s.entries[key]; old != nil {
		switch {
		case now-old.at >= s.ttl:
			s.expire(old)
		case old.began > began:
			return false
		default:
			s.remove(old)
		}
	}
	a := s.owners[owner]
	if a == nil {
		a = &account[V]{name: strings.Clone(owner)} // cloned: it may be a piece of a large message
		a.rank.item = a
		a.byUse.init()
		s.owners[a.name] = a
		s.ranking.add(a)
	}
	e := &entry[V]{key: key, value: v, cost: size + EntryOverhead + int64(len(owner)), at: now, began: began, owner: a}
	e.age.item, e.use.item = e, e
	s.entries[key] = e
	s.peak = max(s.peak, len(s.entries))
	s.byAge.pushFront(&e.age)
	a.byUse.pushFront(&e.use)
	s.bytes += e.cost
	a.bytes += e.cost
	s.ranking.update(a)
	s.evict(now)
	return true
}

// evict makes the entries fit into maxBytes.
func (s *store[V]) evict(now time.Duration) {
	for s.bytes > s.maxBytes {
		if s.sweep(now, 1) == 0 {
			s.remove(s.ranking.largest().byUse.last())
			s.evictions++
		}
	}
}

// sweep removes expired entries, at most limit, and returns how many.
func (s *store[V]) sweep(now time.Duration, limit int) (n int) {
	for ; n < limit; n++ {
		e := s.byAge.last()
		if e == nil || now-e.at < s.ttl {
			break
		}
		s.expire(e)
	}
	return n
}

func (s *store[V]) expire(e *entry[V]) {
	s.remove(e)
	s.expiries++
}

func (s *store[V]) remove(e *entry[V]) {
	delete(s.entries, e.key)
	e.age.remove()
	e.use.remove()
	s.bytes -= e.cost
	a := e.owner
	a.bytes -= e.cost
	if a.byUse.empty() {
		s.ranking.remove(a)
		delete(s.owners, a.name)
	} else {
		s.ranking.update(a)
	}
	if s.peak >= minShrink && len(s.entries) < s.peak/2 {
		s.shrink()
	}
}

// shrink makes the maps anew, which costs no more than what was removed since they had their peak. Waiting longer would keep more memory than tiny
// entries are charged, once larger ones have taken their place.
func (s *store[V]) shrink() {
	entries, owners := make(map[Key]*entry[V], len(s.entries)), make(map[string]*account[V], len(s.owners))
	for k, e := range s.entries {
		entries[k] = e
	}
	for k, a := range s.owners {
		owners[k] = a
	}
	s.entries, s.owners, s.peak = entries, owners, len(entries)
}
