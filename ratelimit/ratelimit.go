// Package ratelimit holds sets of token buckets: one for everybody, one per sender, one per whatever else a caller counts by. A request takes a token
// from every bucket that concerns it or from none. Who the senders are is the caller's affair.
//
// Memory is bounded: a set holds at most MaxKeys buckets. Time is handed in. All types are safe for concurrent use.
package ratelimit

import (
	"math"
	"sync"
	"time"
)

// Rate is how fast a bucket refills and how much it holds. The zero value means unlimited.
type Rate struct {
	RPS   float64 // tokens per second; 0, negative or infinite: unlimited
	Burst int     // most tokens at a time; below 1 with a positive RPS nothing is ever allowed
}

// Unlimited reports whether the rate never refuses.
func (r Rate) Unlimited() bool { return !(r.RPS > 0) || math.IsInf(r.RPS, 1) }

// Forever is the wait of a request that no waiting helps: its bucket holds no token even when full.
const Forever = time.Duration(math.MaxInt64)

// DefaultMaxKeys bounds a tier whose MaxKeys is 0. A bucket takes about 250 bytes.
const DefaultMaxKeys = 16384

// Tier is one set of buckets of equal rate, one bucket for each key that was seen lately.
type Tier struct {
	Rate    Rate
	MaxKeys int // most buckets held at a time; 0 means DefaultMaxKeys
}

// Keyed limits requests by several keys at once, one for each tier. At MaxKeys a new key takes the place of a bucket that has become full again, which
// nobody can notice, else of the one least recently asked for, whose key then starts afresh with a full bucket.
type Keyed struct {
	mu    sync.Mutex // guards everything below
	tiers []tier
	now   time.Time // the latest instant seen: callers read the clock before they get the lock
}

// NewKeyed returns a limiter with a set of buckets for each tier.
func NewKeyed(tiers ...Tier) *Keyed {
	k := &Keyed{tiers: make([]tier, len(tiers))}
	for i, t := range tiers {
		k.tiers[i].init(t)
	}
	return k
}

// AllowKeys takes one token from the bucket of keys[i] in tier i, for every i, or none at all. If it refuses, retryAfter is the longest wait among the buckets
// that had none (after it the request is allowed, unless others are faster; Forever if it never is) and tier is the first that refused; else -1. Tiers without
// a key are not asked. An instant before the last one seen counts as that one. Nothing is allocated for keys already known.
func (k *Keyed) AllowKeys(now time.Time, keys ...string) (ok bool, retryAfter time.Duration, tier int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.now) {
		now = k.now
	}
	k.now = now
	keys = keys[:min(len(keys), len(k.tiers))]
	tier = -1
	for i, key := range keys {
		if wait := k.tiers[i].wait(key, now); wait > 0 {
			if tier < 0 {
				tier = i
			}
			retryAfter = max(retryAfter, wait)
		}
	}
	if tier >= 0 {
		return false, retryAfter, tier
	}
	for i, key := range keys {
		k.tiers[i].take(key, now)
	}
	return true, 0, -1
}

// SetRate changes a tier's rate for buckets that exist and those to come; what a bucket holds is kept, cut to the new burst. A tier that does not exist
// is ignored.
func (k *Keyed) SetRate(tier int, r Rate, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.now) {
		now = k.now
	}
	k.now = now
	if tier >= 0 && tier < len(k.tiers) {
		k.tiers[tier].setRate(r, now)
	}
}

// Len is the number of buckets held in a tier.
func (k *Keyed) Len(tier int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if tier < 0 || tier >= len(k.tiers) {
		return 0
	}
	return len(k.tiers[tier].buckets)
}

// Options of a Limiter.
type Options struct {
	Global, PerSender Rate
	MaxSenders        int // most senders remembered at a time; 0 means DefaultMaxKeys
}

// Limiter has one bucket for everybody and one per sender.
type Limiter struct{ keyed *Keyed }

// New returns a Limiter.
func New(o Options) *Limiter {
	return &Limiter{NewKeyed(Tier{Rate: o.Global, MaxKeys: 1}, Tier{Rate: o.PerSender, MaxKeys: o.MaxSenders})}
}

// Allow takes a token from both buckets or from neither. A refused sender is told how long to wait; see AllowKeys.
func (l *Limiter) Allow(sender string, now time.Time) (ok bool, retryAfter time.Duration) {
	ok, retryAfter, _ = l.keyed.AllowKeys(now, "", sender)
	return ok, retryAfter
}

// SetRates changes both rates (see Keyed.SetRate).
func (l *Limiter) SetRates(global, perSender Rate, now time.Time) {
	l.keyed.SetRate(0, global, now)
	l.keyed.SetRate(1, perSender, now)
}

// Senders is the number of senders remembered.
func (l *Limiter) Senders() int { return l.keyed.Len(1) }

// UserLimiter limits clients' requests: one bucket for all, one per owner, one per workflow (protocol §8, userRateLimiter).
type UserLimiter struct{ keyed *Keyed }

// UserOptions of a UserLimiter. MaxKeys bounds owners and workflows alike; 0 means DefaultMaxKeys.
type UserOptions struct {
	Global, PerSender, PerWorkflow Rate
	MaxKeys                        int
}

// NewUser returns a UserLimiter.
func NewUser(o UserOptions) *UserLimiter {
	return &UserLimiter{NewKeyed(Tier{o.Global, 1}, Tier{o.PerSender, o.MaxKeys}, Tier{o.PerWorkflow, o.MaxKeys})}
}

// Allow takes a token from all three buckets or from none; see AllowKeys.
func (l *UserLimiter) Allow(owner, workflowID string, now time.Time) (ok bool, retryAfter time.Duration) {
	ok, retryAfter, _ = l.keyed.AllowKeys(now, "", owner, workflowID)
	return ok, retryAfter
}

// SetRates changes all rates (see Keyed.SetRate).
func (l *UserLimiter) SetRates(global, perSender, perWorkflow Rate, now time.Time) {
	for tier, r := range []Rate{global, perSender, perWorkflow} {
		l.keyed.SetRate(tier, r, now)
	}
}

// NodeLimiter limits what nodes send unasked: one bucket per node, then one per shard (protocol §4). A busy shard cannot starve another, and a message
// that the shard's bucket refuses costs its node nothing.
type NodeLimiter struct{ keyed *Keyed }

// NodeOptions of a NodeLimiter. MaxKeys must be at least the number of nodes, which are configured and therefore few; 0 means DefaultMaxKeys.
type NodeOptions struct {
	PerNode, PerShard Rate
	MaxKeys           int
}

// NewNode returns a NodeLimiter.
func NewNode(o NodeOptions) *NodeLimiter {
	return &NodeLimiter{NewKeyed(Tier{o.PerNode, o.MaxKeys}, Tier{o.PerShard, o.MaxKeys})}
}

// SetMaxKeys changes the most nodes and shards remembered (see Tier.MaxKeys). Where more are held than n, their number no longer grows.
func (l *NodeLimiter) SetMaxKeys(n int) {
	l.keyed.mu.Lock()
	defer l.keyed.mu.Unlock()
	for i := range l.keyed.tiers {
		l.keyed.tiers[i].setMaxKeys(n)
	}
}

// Allow takes a token from the node's and from the shard's bucket or from neither; see AllowKeys.
func (l *NodeLimiter) Allow(node, shard string, now time.Time) (ok bool, retryAfter time.Duration) {
	ok, retryAfter, _ = l.keyed.AllowKeys(now, node, shard)
	return ok, retryAfter
}

// SetRates changes both rates (see Keyed.SetRate).
func (l *NodeLimiter) SetRates(perNode, perShard Rate, now time.Time) {
	l.keyed.SetRate(0, perNode, now)
	l.keyed.SetRate(1, perShard, now)
}
