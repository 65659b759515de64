package gateway

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// delivery is the sending of one flight's request to one node. state is
// attempt<<2 | phase and changes atomically, because the node's writer and the
// flight's waiter race for it; the rest is guarded by the flight's mu.
type delivery struct {
	flight *flight
	shard  int
	node   int
	state  atomic.Uint32

	via      *session  // the session of the last attempt
	failures int       // sends that failed so far
	next     time.Time // when to try again; zero: not scheduled
	expires  time.Time // a queued send not written by then has failed
	answers  uint8     // answers of the node that were looked at
}

// The phases of a delivery.
const (
	phaseIdle    = iota // not sent: no session, or the last try failed
	phaseQueued         // in the session's queue
	phaseWriting        // being written
	phaseWritten        // on the wire
)

// word is a delivery's state.
func word(attempt, phase uint32) uint32 { return attempt<<2 | phase }

func (d *delivery) phase() uint32 { return d.state.Load() & 3 }

// wanted reports whether the queued attempt should still be written.
func (d *delivery) wanted(attempt uint32) bool {
	return !d.flight.answered.Load() && d.state.Load() == word(attempt, phaseQueued)
}

// beginWrite claims the queued attempt for the writer; false: skip it.
func (d *delivery) beginWrite(attempt uint32) bool {
	return d.wanted(attempt) && d.state.CompareAndSwap(word(attempt, phaseQueued), word(attempt, phaseWriting))
}

// endWrite records what became of a claimed attempt.
func (d *delivery) endWrite(attempt uint32, err error) {
	if err == nil {
		d.state.Store(word(attempt, phaseWritten))
		return
	}
	d.state.Store(word(attempt, phaseIdle))
	d.flight.sendFailed(d)
}

// dropped tells that the session ended with the attempt still queued.
func (d *delivery) dropped(attempt uint32) {
	if d.state.CompareAndSwap(word(attempt, phaseQueued), word(attempt, phaseIdle)) {
		d.flight.sendFailed(d)
	}
}

// sendLocked tries to queue the request for one node.
func (f *flight) sendLocked(d *delivery, now time.Time) {
	if f.answered.Load() || d.phase() != phaseIdle {
		return
	}
	fs := &f.shards[d.shard]
	if fs.roster.nodes[d.node].removed.Load() {
		d.next = time.Time{} // never again
		return
	}
	s := fs.roster.nodes[d.node].session.Load()
	if s == nil {
		fs.roster.m.sends.noSession.Inc()
		f.scheduleLocked(d, now)
		return
	}
	attempt := d.state.Load()>>2 + 1
	d.state.Store(word(attempt, phaseQueued))
	d.via = s
	d.next = time.Time{}
	d.expires = now.Add(f.config.NodeSendTimeout)
	if err := s.send(outgoing{prepared: f.prepared, size: f.size, tracker: d, attempt: attempt}, now); err != nil {
		d.state.Store(word(attempt, phaseIdle))
		fs.roster.m.sends.refused.Inc()
		f.scheduleLocked(d, now)
		return
	}
	f.dueLocked(d.expires)
}

// dueLocked wakes the waiter if it would look only after t.
func (f *flight) dueLocked(t time.Time) {
	if t.Before(f.armed) {
		f.look()
	}
}

// scheduleLocked sets the time of the next try: uniform between the initial
// interval and the step, which grows by the multiplier up to the maximum
// (protocol §5).
func (f *flight) scheduleLocked(d *delivery, now time.Time) {
	d.next = now.Add(backoff(f.config.Retry.InitialInterval, f.config.Retry.MaxInterval,
		f.config.Retry.Multiplier, d.failures, rand.Float64()))
	d.failures++
	f.dueLocked(d.next)
}

// backoff is the wait before retry number n (from 0), u uniform in [0, 1).
func backoff(initial, most time.Duration, multiplier float64, n int, u float64) time.Duration {
	step := float64(initial)
	for range n {
		step *= multiplier
		if step >= float64(most) {
			step = float64(most)
			break
		}
	}
	step = min(step, float64(most))
	if step <= float64(initial) {
		return time.Duration(step)
	}
	return initial + time.Duration(u*(step-float64(initial)))
}

// sendFailed arranges another try after a send that did not reach the wire: at
// once if the node has a newer session, else on the retry schedule.
func (f *flight) sendFailed(d *delivery) {
	if f.answered.Load() {
		return
	}
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.shards[d.shard].roster
	r.m.sends.failed.Inc()
	if d.phase() != phaseIdle {
		return
	}
	n := r.nodes[d.node]
	if s := n.session.Load(); n.removed.Load() || s != nil && s != d.via {
		f.sendLocked(d, now)
	} else {
		f.scheduleLocked(d, now)
	}
}

// lost tells that an attempt was written to a session that has ended or been
// replaced meanwhile: the node may never read it.
func (d *delivery) lost(attempt uint32) {
	f := d.flight
	f.mu.Lock()
	again := f.shards[d.shard].votes[d.node] == nil && d.state.CompareAndSwap(word(attempt, phaseWritten), word(attempt, phaseIdle))
	f.mu.Unlock()
	if again {
		f.sendFailed(d)
	}
}

// nodeConnected sends the request to a node that has just connected, unless that
// has happened in this session; a request that still waits in an older session,
// or went out on one without having been answered, is sent again.
func (f *flight) nodeConnected(n *node) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		fs := &f.shards[i]
		j := fs.roster.index(n)
		if j < 0 { // not a member when the request was dispatched
			continue
		}
		d := &fs.deliveries[j]
		if s := d.state.Load(); d.via != n.session.Load() && (s&3 == phaseQueued || s&3 == phaseWritten && fs.votes[j] == nil) {
			d.state.CompareAndSwap(s, word(s>>2, phaseIdle))
		}
		f.sendLocked(d, now)
		f.connectedLocked(i, now)
	}
}

// nodeDisconnected tells the decision how many of the shard are left.
func (f *flight) nodeDisconnected(sh *shard) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		if f.shards[i].roster.shard == sh {
			f.connectedLocked(i, now)
		}
	}
}

// nodeRemoved withdraws the votes of a node that the configuration no longer has;
// members and threshold stay as they were at dispatch (protocol §5).
func (f *flight) nodeRemoved(n *node) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		if j := f.shards[i].roster.index(n); j >= 0 {
			f.trigger.Remove(i, j, now)
			f.connectedLocked(i, now)
		}
	}
}

// retryLocked fails sends that were not written in time, tries those that are
// due and returns when to look next; zero: everything is delivered.
func (f *flight) retryLocked(now time.Time) (next time.Time) {
	for i := range f.shards {
		fs := &f.shards[i]
		for j := range fs.deliveries {
			d := &fs.deliveries[j]
			at := f.retryOneLocked(d, now)
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

func (f *flight) retryOneLocked(d *delivery, now time.Time) time.Time {
	state := d.state.Load()
	switch state & 3 {
	case phaseQueued:
		if now.Before(d.expires) {
			return d.expires
		}
		if !d.state.CompareAndSwap(state, word(state>>2, phaseIdle)) {
			return now.Add(f.config.Retry.InitialInterval) // being written
		}
		f.shards[d.shard].roster.m.sends.expired.Inc()
		f.scheduleLocked(d, now)
		return d.next
	case phaseIdle:
		if d.next.IsZero() || !d.next.After(now) {
			f.sendLocked(d, now)
		}
		if d.phase() == phaseQueued {
			return d.expires
		}
		return d.next
	case phaseWriting:
		return time.Time{} // endWrite reports a failure
	default:
		return time.Time{}
	}
}
