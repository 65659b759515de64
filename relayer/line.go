package relayer

import (
	"context"
	"slices"
	"sync"
)

// line holds the rows that wait to be sent, oldest first.
type line struct {
	mu   sync.Mutex
	ids  []int64       // in order
	wake chan struct{} // one token: there is one
}

func newLine() *line { return &line{wake: make(chan struct{}, 1)} }

func (l *line) enter(id int64) {
	l.mu.Lock()
	at, found := slices.BinarySearch(l.ids, id)
	if !found {
		l.ids = slices.Insert(l.ids, at, id)
	}
	l.mu.Unlock()
	poke(l.wake)
}

// next returns the oldest row, waiting for one; false when ctx ends.
func (l *line) next(ctx context.Context) (int64, bool) {
	for {
		l.mu.Lock()
		if len(l.ids) > 0 {
			id := l.ids[0]
			l.ids = l.ids[1:]
			l.mu.Unlock()
			return id, ctx.Err() == nil
		}
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// nonces hands out the account's nonces, the lowest free one first. Each is taken once: the database refuses a second request with it.
type nonces struct {
	mu   sync.Mutex
	next uint64
	free []uint64 // below next, in order
}

func (n *nonces) take() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) > 0 {
		nonce := n.free[0]
		n.free = n.free[1:]
		return nonce
	}
	n.next++
	return n.next - 1
}

// giveBack makes a nonce free that no stored transaction has.
func (n *nonces) giveBack(nonce uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if nonce >= n.next {
		return
	}
	if at, found := slices.BinarySearch(n.free, nonce); !found {
		n.free = slices.Insert(n.free, at, nonce)
	}
}

// atLeast makes every nonce below one taken.
func (n *nonces) atLeast(nonce uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = max(n.next, nonce)
	at, _ := slices.BinarySearch(n.free, nonce)
	n.free = n.free[at:]
}

// takeFree takes the lowest free nonce if it is below a bound.
func (n *nonces) takeFree(below uint64) (uint64, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) == 0 || n.free[0] >= below {
		return 0, false
	}
	nonce := n.free[0]
	n.free = n.free[1:]
	return nonce, true
}
