package gateway

import (
	"errors"
	"time"
)

const (
	// answerLife is how long the answer to an action may take to reach its node,
	// from when it is known: an action that used up its own time still gets one
	// (protocol §7).
	answerLife = 5 * time.Second
	// answerRetry is when an answer is tried again that a full queue refused.
	answerRetry = 100 * time.Millisecond
	// maxParked and maxParkedBytes bound the answers that wait for one node to
	// come back.
	maxParked      = 1024
	maxParkedBytes = 8 << 20
)

// nodeAnswer is the answer to an action on its way to a node: over the node's
// session, or its next one, within answerLife. It is a tracker.
type nodeAnswer struct {
	node    *node
	message outgoing
	expires time.Time
}

// deliver sends data, which must not change, to the node now, or as soon as it has a
// session that takes it.
func (n *node) deliver(data []byte) {
	a := &nodeAnswer{node: n, expires: time.Now().Add(answerLife)}
	a.message = outgoing{data: data, size: len(data), tracker: a}
	a.send()
}

func (a *nodeAnswer) expired() bool { return !time.Now().Before(a.expires) }

// send queues the answer, parks it until the node connects, or tries again later
// when the queue is full.
func (a *nodeAnswer) send() {
	if a.expired() {
		return
	}
	s := a.node.session.Load()
	if s == nil {
		a.node.park(a)
		return
	}
	switch err := s.send(a.message, time.Now()); {
	case errors.Is(err, errQueueFull):
		a.node.shard.m.sends.refused.Inc()
		time.AfterFunc(answerRetry, a.send)
	case err != nil: // the session is ending; its successor takes what is parked
		a.node.park(a)
	}
}

// park keeps the answer for the node's next session. One that has begun meanwhile
// is given it at once.
func (n *node) park(a *nodeAnswer) {
	n.mu.Lock()
	kept, bytes := n.parked[:0], a.message.size
	for _, p := range n.parked {
		if !p.expired() {
			kept = append(kept, p)
			bytes += p.message.size
		}
	}
	clear(n.parked[len(kept):])
	n.parked = kept
	if len(kept) < maxParked && bytes <= maxParkedBytes {
		n.parked = append(n.parked, a)
	}
	n.mu.Unlock()
	if s := n.session.Load(); s != nil && s.closing.Load() == nil {
		n.unpark()
	}
}

// unpark sends what waited for a session.
func (n *node) unpark() {
	n.mu.Lock()
	parked := n.parked
	n.parked = nil
	n.mu.Unlock()
	for _, a := range parked {
		a.send()
	}
}

func (a *nodeAnswer) wanted(uint32) bool     { return !a.expired() }
func (a *nodeAnswer) beginWrite(uint32) bool { return !a.expired() }
func (a *nodeAnswer) dropped(uint32)         { a.send() }
func (a *nodeAnswer) endWrite(_ uint32, err error) {
	if err != nil {
		a.send()
	}
}

// lost sends it again: the node waits for it, and drops a second one.
func (a *nodeAnswer) lost(uint32) { a.send() }
