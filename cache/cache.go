package cache

import (
	"context"
	"sync"
	"time"
)

// DefaultMaxWaitersPerOwner is how many calls of one owner may share others' fetches at a time where Config names no number (protocol §7).
const DefaultMaxWaitersPerOwner = 1024

// Config is how a [Cache] is made.
type Config struct {
	TTL                time.Duration    // no entry is returned at this age or older; 0 or less: nothing is stored
	MaxBytes           int64            // bound of all entries' charged bytes, see EntryOverhead; 0 or less: nothing is stored
	MaxWaitersPerOwner int              // calls of one owner that share another's fetch at a time; 0 or less: DefaultMaxWaitersPerOwner
	Now                func() time.Time // the clock of ages, may be called under the lock; nil: time.Now. Timeouts always follow the real clock
	Go                 func(f func())   // runs a fetch's goroutine; called under the lock, so it must not wait for f; nil: the go statement
}

// Call is one request for a value.
type Call[V any] struct {
	// Key says which calls are the same. It covers whatever distinguishes answers, their owner included: the cache hands an answer to anyone with the key.
	Key Key

	// Owner is charged for the entry and for waiting. It need not be the owner that Key covers: where names can be made up, charge what they cannot be
	// made up for, like the node.
	Owner string

	// MaxAge is how old a stored value may be. Above 0 the call may also share a running fetch; 0 or less means a fetch of its own.
	MaxAge time.Duration

	// Store asks to keep what is fetched.
	Store bool

	// Timeout is how long the call waits; 0 or less: as long as its context allows.
	Timeout time.Duration

	// Limit is how long a fetch that this call starts may take, whoever waits; 0 or less: as long as anyone does. It is kept by bounding the waiting: this
	// call's to Limit, and a call that would wait beyond the end of a running fetch does not share it but starts the next one.
	Limit time.Duration

	// Late, if set, is asked for the outcome of those whose Timeout ends before the fetch that this call started; nil is a [TimeoutError]. It must neither
	// block nor call the cache.
	Late func() error

	// Admit, if set, is asked when the call is to start a fetch, not for a hit and not for sharing. An error is the outcome of this call alone, and
	// nothing is fetched. Release, if not nil, is called once, when the fetch has returned and before anyone has its outcome.
	//
	// Admit is called under the cache's lock, so that callers that will share do not compete for admission: it must neither block nor call the cache.
	Admit func() (release func(), err error)

	// Fetch gets the value. It must return soon after ctx is done, which happens when nobody waits any longer; until it does it keeps what Admit gave.
	// The value is shared by many and must never change. size is how many bytes of memory it holds; cacheable is whether it may be
	// stored. With an error the other results count for nothing. A panic is a [PanicError] for all who wait.
	Fetch func(ctx context.Context) (v V, size int64, cacheable bool, err error)
}

// Stats are a cache's counts since it was made and what it holds now.
type Stats struct {
	Hits      uint64 // calls answered with an entry
	Misses    uint64 // calls that started a fetch
	Shared    uint64 // calls that shared a running fetch
	Refused   uint64 // calls refused with TooManyWaitersError
	Stores    uint64 // values stored
	Evictions uint64 // entries removed for room
	Expired   uint64 // entries removed for their age

	Bytes   int64 // charged for the entries; at most MaxBytes
	Entries int
	Owners  int // with an entry
	Fetches int // running, those included that nobody waits for and that have not returned yet
	Waiters int // calls that share a fetch which another started
}

// Cache keeps and shares values; see the package's comment. Its methods may be called by several goroutines at once. It starts a goroutine for each
// fetch, which ends when Fetch returns; there is nothing to close unless that is to be soon.
type Cache[V any] struct {
	maxWaiters int
	epoch      time.Time
	clock      func() time.Time // nil: time.Now
	spawn      func(func())     // nil: the go statement

	mu      sync.Mutex // guards everything below and the changing fields of each flight
	store   store[V]
	flights map[Key]*flight[V] // running fetches that calls may join
	running ring[flight[V]]    // all of them
	closed  error              // why no fetch is started any more
	waiters map[string]int     // by owner, calls that joined; no zeros
	begun   uint64             // fetches begun; numbers them
	stats   Stats              // but what can be counted elsewhere
}

// New returns an empty Cache.
func New[V any](cfg Config) *Cache[V] {
	c := &Cache[V]{
		maxWaiters: cfg.MaxWaitersPerOwner, clock: cfg.Now, spawn: cfg.Go,
		flights: map[Key]*flight[V]{}, waiters: map[string]int{},
	}
	if c.maxWaiters <= 0 {
		c.maxWaiters = DefaultMaxWaitersPerOwner
	}
	c.epoch = time.Now()
	if c.clock != nil {
		c.epoch = c.clock()
	}
	c.running.init()
	c.store.init(cfg.TTL, cfg.MaxBytes)
	return c
}

// now is the time since the epoch.
func (c *Cache[V]) now() time.Duration {
	if c.clock == nil {
		return time.Since(c.epoch)
	}
	return c.clock().Sub(c.epoch)
}

// Get returns the stored value if it is younger than maxAge and the time to live, and counts a hit then and only then. It allocates nothing: asking it
// before making the closures of a [Call] saves those of a hit.
func (c *Cache[V]) Get(key Key, maxAge time.Duration) (v V, ok bool) {
	if maxAge <= 0 {
		return v, false
	}
	now := c.now()
	c.mu.Lock()
	v, ok = c.store.get(key, now, maxAge)
	if ok {
		c.stats.Hits++
	}
	c.mu.Unlock()
	return v, ok
}

// Do returns the value of a call: stored (then hit is true, and ctx and Timeout are not asked), shared or fetched. An error is the fetch's, Admit's, a
// [*TimeoutError] at the end of Timeout, the cause of ctx's end, or a [*TooManyWaitersError].
func (c *Cache[V]) Do(ctx context.Context, call Call[V]) (v V, hit bool, err error) {
	if v, ok := c.Get(call.Key, call.MaxAge); ok {
		return v, true, nil
	}
	s, v, err := c.enter(ctx, &call, nil)
	if s.flight == nil {
		return v, err == nil, err
	}
	v, err = c.wait(ctx, s, &call)
	return v, false, err
}

// Close ends what is under way: all calls that wait get cause, and so do later ones that would start a fetch; the fetches are cancelled, and not waited
// for. What is stored stays. Closing again changes nothing.
func (c *Cache[V]) Close(cause error) {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = cause
	}
	var ended []*flight[V]
	var told []*waiter[V]
	for n := c.running.next; n != &c.running; n = n.next {
		if f := n.item; f.waiting > 0 && !f.finished {
			ended, told = append(ended, f), append(told, c.conclude(f, cause))
		}
	}
	c.mu.Unlock()
	for i, f := range ended {
		f.cancel()
		f.tell(told[i])
	}
}

// Sweep removes the entries that have reached the time to live at now and returns how many. It never holds the lock for long.
func (c *Cache[V]) Sweep(now time.Time) (removed int) {
	const batch = 256
	for {
		c.mu.Lock()
		n := c.store.sweep(now.Sub(c.epoch), batch)
		c.mu.Unlock()
		removed += n
		if n < batch {
			return removed
		}
	}
}

// SetBounds replaces TTL and MaxBytes of the Config. What is past them goes: too large a store at once, what is too old as if it had expired.
func (c *Cache[V]) SetBounds(ttl time.Duration, maxBytes int64) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.setBounds(ttl, maxBytes, now)
}

// Stats returns the counts as of one instant.
func (c *Cache[V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Evictions, s.Expired = c.store.evictions, c.store.expiries
	s.Bytes, s.Entries, s.Owners = c.store.bytes, len(c.store.entries), len(c.store.owners)
	return s
}
