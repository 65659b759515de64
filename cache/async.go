package cache

import (
	"context"
	"time"
)

// Start is Do for callers that need not stand and wait: it never blocks, and done is called exactly once with what Do would have returned. For a hit,
// a refusal of Admit and the like that is before Start returns. Else it is later, by another goroutine: the fetch's own when the fetch ends, which
// therefore must not be held up, or a timer's when Timeout or ctx ends first. done may call the cache; it must not panic, since nobody is there to recover.
func (c *Cache[V]) Start(ctx context.Context, call Call[V], done func(v V, hit bool, err error)) {
	if v, ok := c.Get(call.Key, call.MaxAge); ok {
		done(v, true, nil)
		return
	}
	w := &waiter[V]{cache: c, owner: call.Owner, done: done}
	s, v, err := c.enter(ctx, &call, w)
	if s.flight == nil {
		done(v, err == nil, err)
		return
	}
	// From here on the flight may end w at any time; what is armed after that does
	// nothing, and is stopped by arm itself.
	w.arm(ctx, call.patience())
}

// waiter is a call of Start that waits for a flight.
type waiter[V any] struct {
	cache *Cache[V]
	owner string
	done  func(v V, hit bool, err error)

	// Guarded by Cache.mu.
	seat  seat[V]
	place ring[waiter[V]] // in flight.seated until gone: a flight holds nothing of those who have left it
	gone  bool            // done is being called, or has been
	timer *time.Timer
	stop  func() bool // of the watch over ctx

	next *waiter[V] // whom to tell after this one, once the flight has ended
}

// arm sets what ends the wait before the flight does.
func (w *waiter[V]) arm(ctx context.Context, timeout time.Duration) {
	var timer *time.Timer
	if timeout > 0 {
		timer = time.AfterFunc(timeout, func() { w.giveUp(w.seat.flight.timedOut(timeout)) })
	}
	var stop func() bool
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, func() { w.giveUp(context.Cause(ctx)) })
	}
	w.cache.mu.Lock()
	w.timer, w.stop = timer, stop
	gone := w.gone
	w.cache.mu.Unlock()
	if gone {
		w.disarm()
	}
}

// disarm stops what arm has set, once gone: what is set after that, arm stops itself.
func (w *waiter[V]) disarm() {
	w.cache.mu.Lock() // arm may be setting them
	timer, stop := w.timer, w.stop
	w.cache.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	if stop != nil {
		stop()
	}
}

// leave gives the seat up; the cache's mu is held. abandoned: the flight is to be cancelled.
func (w *waiter[V]) leave() (abandoned bool) {
	w.gone = true
	w.place.remove()
	return w.cache.leaveLocked(w.seat, w.owner)
}

// giveUp ends the wait for its own reason, unless the flight has ended it.
func (w *waiter[V]) giveUp(err error) {
	c := w.cache
	c.mu.Lock()
	if w.gone {
		c.mu.Unlock()
		return
	}
	abandoned := w.leave()
	c.mu.Unlock()
	if abandoned {
		w.seat.flight.cancel()
	}
	w.disarm()
	var none V
	w.done(none, false, err)
}

// land ends the waits of those for whom the flight has ended; the cache's mu is held. They are told by tell, without it.
func (f *flight[V]) land() (first *waiter[V]) {
	for !f.seated.empty() {
		w := f.seated.first()
		w.leave()
		w.next, first = first, w // in the order in which they came
	}
	return first
}

// tell gives the outcome to those whose wait has ended with the flight.
func (f *flight[V]) tell(w *waiter[V]) {
	for ; w != nil; w = w.next {
		w.disarm()
		w.done(f.value, false, f.err)
	}
}
