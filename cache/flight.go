package cache

import (
	"context"
	"runtime/debug"
	"time"
)

// flight is one fetch and all who wait for it.
type flight[V any] struct {
	key    Key
	number uint64             // fetches that began later have higher ones
	cancel context.CancelFunc // the last one out calls it, and run at its end
	until  time.Time          // nobody waits longer; zero: no end
	late   func() error

	// Guarded by Cache.mu.
	waiting  int             // calls that wait; at 0 before the end the fetch is cancelled, and nobody joins any more
	store    bool            // whether any call asked to store
	payer    string          // owner of the first that did
	finished bool            // value and err are set
	done     chan struct{}   // closed when finished; nil as long as no call of Do waits
	seated   ring[waiter[V]] // calls of Start that wait; the one that came last is first
	place    ring[flight[V]] // in Cache.running until the fetch has returned

	// Set before finished, constant after.
	value V
	err   error
}

// seat is a call's place among those that wait for a flight.
type seat[V any] struct {
	flight *flight[V] // nil: the call need not wait
	joined bool       // another call started the flight
}

// outcome is what a Fetch returned.
type outcome[V any] struct {
	value     V
	size      int64
	cacheable bool
	err       error
}

// enter seats the call in a flight, one that runs or one that it starts. Without a flight there is the outcome of the call, a hit if it is no error.
// w, if it is not nil, is told when the flight ends.
func (c *Cache[V]) enter(ctx context.Context, call *Call[V], w *waiter[V]) (s seat[V], v V, err error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock() // Admit may panic
	if call.MaxAge > 0 {
		// Again, since a fetch may have ended after Get.
		if v, ok := c.store.get(call.Key, now, call.MaxAge); ok {
			c.stats.Hits++
			return s, v, nil
		}
		if f := c.flights[call.Key]; f != nil && f.outlasts(call.patience()) {
			if c.waiters[call.Owner] >= c.maxWaiters {
				c.stats.Refused++
				return s, v, &TooManyWaitersError{Limit: c.maxWaiters}
			}
			c.join(f, call)
			return f.seat(true, w), v, nil
		}
	}
	if ctx.Err() != nil {
		return s, v, context.Cause(ctx)
	}
	if c.closed != nil {
		return s, v, c.closed
	}
	var release func()
	if call.Admit != nil {
		if release, err = call.Admit(); err != nil {
			return s, v, err
		}
	}
	return c.start(ctx, call, release).seat(false, w), v, nil
}

// seat is a place in the flight; c.mu is held.
func (f *flight[V]) seat(joined bool, w *waiter[V]) seat[V] {
	s := seat[V]{f, joined}
	switch {
	case w != nil:
		w.seat, w.place.item = s, w
		f.seated.pushFront(&w.place)
	case f.done == nil:
		f.done = make(chan struct{})
	}
	return s
}

// patience is how long the call waits; 0: without end.
func (c *Call[V]) patience() time.Duration {
	if c.Limit > 0 && (c.Timeout <= 0 || c.Timeout > c.Limit) {
		return c.Limit
	}
	return max(c.Timeout, 0)
}

// outlasts reports whether the flight may go on for as long as a call waits that comes now.
func (f *flight[V]) outlasts(patience time.Duration) bool {
	return f.until.IsZero() || patience > 0 && time.Until(f.until) >= patience
}

// timedOut is the outcome of a call that waited for so long in vain.
func (f *flight[V]) timedOut(after time.Duration) error {
	if f.late != nil {
		if err := f.late(); err != nil {
			return err
		}
	}
	return &TimeoutError{After: after}
}

func (c *Cache[V]) join(f *flight[V], call *Call[V]) {
	c.waiters[call.Owner]++
	c.stats.Waiters++
	c.stats.Shared++
	f.waiting++
	f.ask(call)
}

func (c *Cache[V]) start(ctx context.Context, call *Call[V], release func()) *flight[V] {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	c.begun++
	f := &flight[V]{key: call.Key, number: c.begun, late: call.Late, waiting: 1}
	ctx, f.cancel = context.WithCancel(ctx)
	if call.Limit > 0 {
		f.until = time.Now().Add(call.Limit)
	}
	f.seated.init()
	f.ask(call)
	if call.MaxAge > 0 {
		c.flights[call.Key] = f
	}
	f.place.item = f
	c.running.pushFront(&f.place)
	c.stats.Misses++
	c.stats.Fetches++
	if c.spawn == nil {
		go c.run(ctx, f, call.Fetch, release)
	} else {
		fetch := call.Fetch
		c.spawn(func() { c.run(ctx, f, fetch, release) })
	}
	return f
}

func (f *flight[V]) ask(call *Call[V]) {
	if call.Store && !f.store {
		f.store, f.payer = true, call.Owner
	}
}

// wait returns the outcome of the flight or, when the call's own time is up before, the reason.
func (c *Cache[V]) wait(ctx context.Context, s seat[V], call *Call[V]) (v V, err error) {
	var timeout <-chan time.Time
	patience := call.patience()
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-s.flight.done:
	case <-timeout:
		err = s.flight.timedOut(patience)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if c.leave(s, call.Owner) {
		return s.flight.value, s.flight.err
	}
	return v, err
}

// leave gives the seat up and reports whether the flight has finished. The last one out cancels it.
func (c *Cache[V]) leave(s seat[V], owner string) (finished bool) {
	c.mu.Lock()
	abandoned := c.leaveLocked(s, owner)
	finished = s.flight.finished
	c.mu.Unlock()
	if abandoned {
		s.flight.cancel()
	}
	return finished
}

// leaveLocked is leave under c.mu; abandoned: the flight is to be cancelled.
func (c *Cache[V]) leaveLocked(s seat[V], owner string) (abandoned bool) {
	f := s.flight
	if s.joined {
		c.stats.Waiters--
		if c.waiters[owner]--; c.waiters[owner] == 0 {
			delete(c.waiters, owner)
		}
	}
	f.waiting--
	if abandoned = f.waiting == 0 && !f.finished; abandoned {
		c.close(f)
	}
	return abandoned
}

// close lets nobody join the flight any more.
func (c *Cache[V]) close(f *flight[V]) {
	if c.flights[f.key] == f { // not if it never was open, nor if another has taken its place
		delete(c.flights, f.key)
	}
}

// run is the goroutine of a flight.
func (c *Cache[V]) run(ctx context.Context, f *flight[V], fetch func(context.Context) (V, int64, bool, error), release func()) {
	o := outcome[V]{err: &PanicError{Value: "runtime.Goexit was called"}} // unless attempt returns
	defer func() {
		c.finish(f, o)
		f.cancel()
	}()
	o = attempt(ctx, fetch, release)
}

// attempt calls fetch and then release, and turns a panic of either into an error.
func attempt[V any](ctx context.Context, fetch func(context.Context) (V, int64, bool, error), release func()) (o outcome[V]) {
	defer func() {
		if r := recover(); r != nil {
			o = outcome[V]{err: &PanicError{Value: r, Stack: debug.Stack()}}
		}
	}()
	if release != nil {
		defer release()
	}
	o.value, o.size, o.cacheable, o.err = fetch(ctx)
	return o
}

// finish stores the outcome if it may be and hands it to all who wait.
func (c *Cache[V]) finish(f *flight[V], o outcome[V]) { f.tell(c.settle(f, o)) }

// settle is finish but for telling those that Start has seated, of whom it returns the first.
func (c *Cache[V]) settle(f *flight[V], o outcome[V]) *waiter[V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Fetches--
	f.place.remove()
	if f.waiting == 0 || f.finished {
		return nil // and what it got late is dropped
	}
	if o.err == nil {
		f.value = o.value
		if f.store && o.cacheable && c.store.put(f.key, f.payer, o.value, o.size, f.number, c.now()) {
			c.stats.Stores++
		}
	}
	return c.conclude(f, o.err)
}

// conclude ends the waits for a flight whose value is set if err is nil; c.mu is held.
func (c *Cache[V]) conclude(f *flight[V], err error) *waiter[V] {
	f.err, f.finished = err, true
	c.close(f)
	if f.done != nil {
		close(f.done)
	}
	return f.land()
}
