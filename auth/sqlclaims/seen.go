package sqlclaims

import (
	"sync"
	"time"
)

// Bounds of seen: a generation ends after seenPeriod, which is the longest that a token can be good for, or with maxSeen tokens of about
// 60 bytes each.
const (
	seenPeriod = 10 * time.Minute
	maxSeen    = 1 << 18
)

// seen remembers used tokens without asking the database, so that who sends one again and again costs it nothing. It may forget: the
// database decides. It is safe for concurrent use.
type seen struct {
	mu         sync.Mutex    // guards what follows
	young, old map[key]int64 // when a token expires, in ms since 1970, by its generation
	turn       time.Time     // when the young become old
}

// add remembers a token until it expires.
func (s *seen) add(k key, until, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.young) >= maxSeen || !now.Before(s.turn) {
		s.young, s.old, s.turn = make(map[key]int64), s.young, now.Add(seenPeriod)
	}
	s.young[k] = ceil(until)
}

// remove forgets a token.
func (s *seen) remove(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, k)
	delete(s.old, k)
}

// has reports whether a token is known to be used.
func (s *seen) has(k key, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.young[k], s.old[k]) > floor(now)
}
