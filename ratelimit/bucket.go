package ratelimit

import (
	"math"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// evictionScan is how many of the least recently used buckets are looked at for a full one when a tier is at its bound: constant work per request, however
// many keys an outsider makes up.
const evictionScan = 16

// tier holds the buckets of one Tier in a map and, by recency, in a ring. Guarded by Keyed.mu.
type tier struct {
	rate    Rate
	maxKeys int
	buckets map[string]*bucket
	ring    bucket // sentinel: ring.next is the most, ring.prev the least recently used
}

// bucket wraps the token bucket of golang.org/x/time/rate. A key without one has a full bucket.
type bucket struct {
	key        string
	limiter    *rate.Limiter
	prev, next *bucket
}

func (t *tier) init(o Tier) {
	t.rate, t.buckets = o.Rate, map[string]*bucket{}
	t.setMaxKeys(o.MaxKeys)
	t.ring.prev, t.ring.next = &t.ring, &t.ring
}

func (t *tier) setMaxKeys(n int) {
	t.maxKeys = n
	if n <= 0 {
		t.maxKeys = DefaultMaxKeys
	}
}

// wait returns how long the key has to wait for a token; 0 if it has one.
func (t *tier) wait(key string, now time.Time) time.Duration {
	if t.rate.Unlimited() {
		return 0
	}
	if t.rate.Burst < 1 {
		return Forever
	}
	b := t.buckets[key]
	if b == nil {
		return 0
	}
	t.touch(b) // also when refused: who keeps asking must not be forgotten and start afresh
	missing := 1 - b.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	// Rounded up until the bucket itself, with its floating-point arithmetic, agrees that then there is a token.
	seconds := missing / t.rate.RPS
	if seconds >= Forever.Seconds()/2 {
		return Forever
	}
	wait := time.Duration(math.Ceil(seconds * 1e9))
	for step := time.Nanosecond; b.limiter.TokensAt(now.Add(wait)) < 1 && step < time.Second; step *= 2 {
		wait += step
	}
	return wait
}

// take takes the token that wait found.
func (t *tier) take(key string, now time.Time) {
	if t.rate.Unlimited() {
		return
	}
	b := t.buckets[key]
	if b == nil {
		b = t.insert(key, now)
	}
	b.limiter.AllowN(now, 1)
}

func (t *tier) insert(key string, now time.Time) *bucket {
	if len(t.buckets) >= t.maxKeys {
		t.evict(now)
	}
	// Cloned: the key may be a piece of a large message.
	b := &bucket{key: strings.Clone(key), limiter: rate.NewLimiter(rate.Limit(t.rate.RPS), t.rate.Burst)}
	t.buckets[b.key] = b
	b.link(&t.ring)
	return b
}

// evict makes room for one bucket.
func (t *tier) evict(now time.Time) {
	victim := t.ring.prev
	for b, n := victim, 0; b != &t.ring && n < evictionScan; b, n = b.prev, n+1 {
		if b.limiter.TokensAt(now) >= float64(t.rate.Burst) {
			victim = b
			break
		}
	}
	victim.unlink()
	delete(t.buckets, victim.key)
}

func (t *tier) setRate(r Rate, now time.Time) {
	t.rate = r
	if r.Unlimited() {
		clear(t.buckets)
		t.ring.prev, t.ring.next = &t.ring, &t.ring
		return
	}
	for b := t.ring.next; b != &t.ring; b = b.next {
		b.limiter.SetLimitAt(now, rate.Limit(r.RPS))
		b.limiter.SetBurstAt(now, r.Burst)
	}
}

func (t *tier) touch(b *bucket) {
	if t.ring.next != b {
		b.unlink()
		b.link(&t.ring)
	}
}

func (b *bucket) link(ring *bucket) {
	b.prev, b.next = ring, ring.next
	ring.next.prev = b
	ring.next = b
}

func (b *bucket) unlink() {
	b.prev.next, b.next.prev = b.next, b.prev
}
