package ratelimit

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func sec(s float64) time.Time { return start.Add(time.Duration(s * 1e9)) }

func TestLimiterTakesFromBothOrNeither(t *testing.T) {
	t.Parallel()
	l := New(Options{Global: Rate{RPS: 1, Burst: 3}, PerSender: Rate{RPS: 0.5, Burst: 2}})
	for range 2 {
		ok, wait := l.Allow("a", sec(0))
		require.True(t, ok)
		require.Zero(t, wait)
	}
	ok, wait := l.Allow("a", sec(0))
	require.False(t, ok, "the sender's bucket is empty")
	require.Equal(t, 2*time.Second, wait)
	ok, _ = l.Allow("b", sec(0))
	require.True(t, ok, "and did not cost the global one a token")
	for range 10 {
		ok, wait = l.Allow("b", sec(0))
		require.False(t, ok, "the global bucket is empty")
		require.Equal(t, time.Second, wait)
	}
	ok, wait = l.Allow("a", sec(0))
	require.False(t, ok)
	require.Equal(t, 2*time.Second, wait, "both are empty: the longer wait")
	ok, _ = l.Allow("b", sec(1))
	require.True(t, ok, "ten refusals by the global bucket cost b nothing")
}

// conformance: 4.rate.buckets
func TestNodeLimiterShardsAreSeparate(t *testing.T) {
	t.Parallel()
	l := NewNode(NodeOptions{PerNode: Rate{RPS: 1, Burst: 100}, PerShard: Rate{RPS: 1, Burst: 2}})
	for i := range 50 {
		ok, wait := l.Allow("noisy", "x", sec(0))
		require.Equal(t, i < 2, ok)
		require.Equal(t, i >= 2, wait > 0)
	}
	ok, _ := l.Allow("other", "x_1", sec(0))
	require.True(t, ok)
}

// conformance: 4.rate.give-back
func TestNodeLimiterGivesTokenBack(t *testing.T) {
	t.Parallel()
	l := NewNode(NodeOptions{PerNode: Rate{RPS: 0.001, Burst: 2}, PerShard: Rate{RPS: 1, Burst: 1}})
	ok, _ := l.Allow("a", "x", sec(0))
	require.True(t, ok)
	for range 20 {
		ok, wait := l.Allow("a", "x", sec(0))
		require.False(t, ok)
		require.Equal(t, time.Second, wait, "the shard's wait: the node has a token left")
	}
	ok, _ = l.Allow("a", "x", sec(1))
	require.True(t, ok)
	ok, wait := l.Allow("a", "x", sec(2))
	require.False(t, ok)
	require.InDelta(t, 998, wait.Seconds(), 0.01, "the node's own is used up now")
	l.SetRates(Rate{}, Rate{}, sec(2))
	ok, _ = l.Allow("a", "x", sec(2))
	require.True(t, ok)
}

func TestUserLimiterHasThreeBuckets(t *testing.T) {
	t.Parallel()
	l := NewUser(UserOptions{Global: Rate{RPS: 1, Burst: 5}, PerSender: Rate{RPS: 1, Burst: 4}, PerWorkflow: Rate{RPS: 1, Burst: 1}})
	allow := func(owner, id string) bool { ok, _ := l.Allow(owner, id, sec(0)); return ok }
	require.True(t, allow("a", "1"))
	require.False(t, allow("a", "1"))
	require.True(t, allow("a", "2"))
	require.True(t, allow("a", "3"))
	require.True(t, allow("a", "4"))
	require.False(t, allow("a", "5"), "the owner's")
	require.True(t, allow("b", "6"))
	require.False(t, allow("c", "7"), "everybody's")
	l.SetRates(Rate{}, Rate{}, Rate{}, sec(0))
	require.True(t, allow("c", "7"))
}

func TestUnlimitedAndNever(t *testing.T) {
	t.Parallel()
	l := New(Options{})
	for i := range 1000 {
		ok, wait := l.Allow(fmt.Sprint(i), start)
		require.True(t, ok)
		require.Zero(t, wait)
	}
	require.Zero(t, l.Senders(), "what is unlimited needs no buckets")
	for _, r := range []Rate{{RPS: -1, Burst: 1}, {RPS: math.NaN()}, {RPS: math.Inf(1)}} {
		require.True(t, r.Unlimited(), "%v", r)
	}
	ok, wait := New(Options{PerSender: Rate{RPS: 1}}).Allow("a", start)
	require.False(t, ok, "a bucket of size 0")
	require.Equal(t, Forever, wait)

	slow := New(Options{PerSender: Rate{RPS: 1e-12, Burst: 1}})
	slow.Allow("a", start)
	ok, wait = slow.Allow("a", start)
	require.False(t, ok)
	require.Equal(t, Forever, wait, "no overflow into a short wait")
}

func TestAllowKeysNamesTheTier(t *testing.T) {
	t.Parallel()
	k := NewKeyed(Tier{Rate: Rate{RPS: 1, Burst: 2}}, Tier{Rate: Rate{RPS: 1, Burst: 1}})
	ok, _, tier := k.AllowKeys(start, "a", "x")
	require.True(t, ok)
	require.Equal(t, -1, tier)
	_, _, tier = k.AllowKeys(start, "a", "x")
	require.Equal(t, 1, tier)
	ok, _, _ = k.AllowKeys(start, "a")
	require.True(t, ok, "tiers without a key are not asked")
	_, _, tier = k.AllowKeys(start, "a", "x", "no such tier")
	require.Equal(t, 0, tier)
	require.Equal(t, 1, k.Len(0))
	require.Zero(t, k.Len(2))
	k.SetRate(2, Rate{RPS: 1, Burst: 1}, start)
	require.Zero(t, k.Len(-1))
}

func TestClockBackwards(t *testing.T) {
	t.Parallel()
	l := New(Options{PerSender: Rate{RPS: 1, Burst: 2}})
	allowed := 0
	for i := range 100 {
		if ok, _ := l.Allow("a", sec(float64(10-i%2*5))); ok { // 10 s, 5 s, 10 s, 5 s, …
			allowed++
		}
	}
	require.Equal(t, 2, allowed, "going back and forth in time yields no tokens")
}

// TestFullBucketGoesFirst: the least recently used bucket stays as long as it is not full while another one is.
func TestFullBucketGoesFirst(t *testing.T) {
	t.Parallel()
	l := New(Options{PerSender: Rate{RPS: 1, Burst: 3}, MaxSenders: 2})
	for range 3 {
		l.Allow("drained", sec(0))
	}
	l.Allow("full again", sec(0.5))
	l.Allow("new", sec(2))
	ok, _ := l.Allow("drained", sec(2))
	require.True(t, ok)
	ok, _ = l.Allow("drained", sec(2))
	require.True(t, ok)
	ok, _ = l.Allow("drained", sec(2))
	require.False(t, ok, "two tokens in two seconds: it was not forgotten")
}

func TestSetRateKeepsWhatIsInTheBucket(t *testing.T) {
	t.Parallel()
	l := New(Options{PerSender: Rate{RPS: 1, Burst: 4}})
	for range 4 {
		l.Allow("drained", sec(0))
	}
	l.Allow("fresh", sec(0))
	l.SetRates(Rate{}, Rate{RPS: 2, Burst: 2}, sec(0))
	ok, wait := l.Allow("drained", sec(0))
	require.False(t, ok, "a reload is no way to a full bucket")
	require.Equal(t, 500*time.Millisecond, wait)
	for i := range 3 {
		ok, _ = l.Allow("fresh", sec(0))
		require.Equal(t, i < 2, ok, "three tokens left are cut to the new burst")
	}
}

// TestSenderFlood is the attack of a sender who makes up names: the memory stays bounded, and full buckets go before drained ones.
func TestSenderFlood(t *testing.T) {
	t.Parallel()
	l := New(Options{PerSender: Rate{RPS: 1, Burst: 1}, MaxSenders: 8})
	l.Allow("drained", sec(0))
	for i := range 7 {
		l.Allow(fmt.Sprint("old", i), sec(0))
	}
	for i := range 500 { // one new name every two seconds: all earlier buckets are full again but the one that keeps asking
		now := sec(float64(2 * i))
		l.Allow("drained", now)
		ok, _ := l.Allow(fmt.Sprint("flood", i), now)
		require.True(t, ok)
		ok, _ = l.Allow("drained", now)
		require.False(t, ok, "was not forgotten")
		require.LessOrEqual(t, l.Senders(), 8)
	}
	for i := range 500 { // all at once: nothing is full
		l.Allow(fmt.Sprint("burst", i), sec(2000))
	}
	require.Equal(t, 8, l.Senders())
	ok, _ := l.Allow("burst499", sec(2000))
	require.False(t, ok, "the least recent went first")
}

func TestRefusedSenderTakesNoRoom(t *testing.T) {
	t.Parallel()
	l := New(Options{Global: Rate{RPS: 1, Burst: 1}, PerSender: Rate{RPS: 1, Burst: 1}})
	for i := range 100 {
		l.Allow(fmt.Sprint(i), start)
	}
	require.Equal(t, 1, l.Senders())
}

// twin is the dumb twin of Keyed: it replays a log of takes for every question, in whole tokens' 512ths. An instant is a number of ticks of 1/512 s and rates are whole, so
// that the floating-point arithmetic of the real buckets is exact.
type twin struct {
	rps, burst, maxKeys []int
	takes               []map[string][]int // per tier and key: the ticks of takes
	used                []map[string]int   // per tier and key: when last asked for, as a count
	clock               int
}

const scale = 512

func (w *twin) tokens(tier int, key string, tick int) int {
	tokens, last := w.burst[tier]*scale, 0
	for _, take := range append(append([]int(nil), w.takes[tier][key]...), -1) {
		at := take
		if take < 0 {
			at = tick
		}
		tokens = min(w.burst[tier]*scale, tokens+(at-last)*w.rps[tier])
		last = at
		if take >= 0 {
			tokens -= scale
		}
	}
	return tokens
}

func (w *twin) allow(tick int, keys []string) (bool, int) {
	refused, wait := false, 0
	for tier, key := range keys {
		if _, known := w.takes[tier][key]; known {
			w.clock++
			w.used[tier][key] = w.clock
		}
		if missing := scale - w.tokens(tier, key, tick); missing > 0 {
			refused = true
			wait = max(wait, (missing+w.rps[tier]-1)/w.rps[tier])
		}
	}
	if refused {
		return false, wait
	}
	for tier, key := range keys {
		if _, known := w.takes[tier][key]; !known {
			w.forget(tier, tick)
			w.clock++
			w.used[tier][key] = w.clock
		}
		w.takes[tier][key] = append(w.takes[tier][key], tick)
	}
	return true, 0
}

// forget drops full buckets, which makes no difference, and if that is not enough the least recently used one.
func (w *twin) forget(tier, tick int) {
	oldest := ""
	for key := range w.takes[tier] {
		if w.tokens(tier, key, tick) == w.burst[tier]*scale {
			delete(w.takes[tier], key)
		}
	}
	for key := range w.takes[tier] {
		if oldest == "" || w.used[tier][key] < w.used[tier][oldest] {
			oldest = key
		}
	}
	if len(w.takes[tier]) >= w.maxKeys[tier] {
		delete(w.takes[tier], oldest)
	}
}

func TestKeyedAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{}
		var tiers []Tier
		for range rapid.IntRange(1, 3).Draw(t, "tiers") {
			rps, burst, maxKeys := rapid.IntRange(1, 60).Draw(t, "rps"), rapid.IntRange(1, 4).Draw(t, "burst"), rapid.IntRange(1, 6).Draw(t, "max")
			tiers = append(tiers, Tier{Rate{float64(rps), burst}, maxKeys})
			w.rps, w.burst, w.maxKeys = append(w.rps, rps), append(w.burst, burst), append(w.maxKeys, maxKeys)
			w.takes, w.used = append(w.takes, map[string][]int{}), append(w.used, map[string]int{})
		}
		k := NewKeyed(tiers...)
		instant := func(tick int) time.Time { return start.Add(time.Duration(tick) * (time.Second / scale)) }
		tick := 0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			tick += max(0, rapid.IntRange(-60, 40).Draw(t, "pause"))
			keys := make([]string, len(tiers))
			for i := range keys {
				keys[i] = fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "key"))
			}
			wantOK, wantTicks := w.allow(tick, keys)
			ok, wait, _ := k.AllowKeys(instant(tick), keys...)
			require.Equal(t, wantOK, ok)
			require.InDelta(t, wantTicks, float64(wait)/float64(time.Second/scale), 1)
			for i := range tiers {
				require.LessOrEqual(t, k.Len(i), tiers[i].MaxKeys)
			}
		}
	})
}

// TestRetryAfterIsEnough: a refused request is allowed exactly retryAfter later if nobody else comes, whatever the rates. The client is told no other number.
//
// conformance: 2.retry-after
func TestRetryAfterIsEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Rate {
			return Rate{RPS: rapid.Float64Range(1e-6, 1e6).Draw(t, name), Burst: rapid.IntRange(1, 5).Draw(t, name+"Burst")}
		}
		l := NewUser(UserOptions{Global: draw("global"), PerSender: draw("sender"), PerWorkflow: draw("workflow")})
		now := start.Add(time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "at")))
		for range 40 {
			now = now.Add(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "pause")))
			ok, wait := l.Allow("o", "w", now)
			if ok {
				continue
			}
			require.Positive(t, wait)
			now = now.Add(wait)
			ok, _ = l.Allow("o", "w", now)
			require.True(t, ok)
		}
	})
}

func TestConcurrentUseTakesExactly(t *testing.T) {
	t.Parallel()
	l := New(Options{Global: Rate{RPS: 1, Burst: 300}, PerSender: Rate{RPS: 1, Burst: 50}})
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 400 {
				if ok, _ := l.Allow(fmt.Sprint((g+i)%5), start); ok {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 5*50, allowed.Load())
}

func TestKnownKeysCostNoAllocation(t *testing.T) {
	l := NewUser(UserOptions{Global: Rate{1, 1000}, PerSender: Rate{1, 500}, PerWorkflow: Rate{1, 500}})
	l.Allow("owner", "workflow", start)
	require.Zero(t, testing.AllocsPerRun(900, func() { l.Allow("owner", "workflow", start) }), "allowed and refused alike")
}

func BenchmarkUserLimiter(b *testing.B) {
	b.ReportAllocs()
	l := NewUser(UserOptions{Global: Rate{1e9, 1e9}, PerSender: Rate{1e9, 1e9}, PerWorkflow: Rate{1e9, 1e9}})
	now := start
	for b.Loop() {
		now = now.Add(time.Microsecond)
		l.Allow("owner", "workflow", now)
	}
}

// BenchmarkFlood is a new sender with every request, at the bound.
func BenchmarkFlood(b *testing.B) {
	b.ReportAllocs()
	l := New(Options{PerSender: Rate{0.001, 2}, MaxSenders: 1024})
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	now := start
	for i := 0; b.Loop(); i++ {
		l.Allow(names[i%len(names)], now)
	}
}

func TestSetMaxKeys(t *testing.T) {
	t.Parallel()
	l := NewNode(NodeOptions{PerNode: Rate{RPS: 0.001, Burst: 1}, MaxKeys: 1})
	allow := func(node string) bool { ok, _ := l.Allow(node, "x", sec(0)); return ok }
	require.True(t, allow("a"))
	require.True(t, allow("b"))
	require.True(t, allow("a"), "b took its place")
	l.SetMaxKeys(3)
	require.True(t, allow("b"))
	require.True(t, allow("c"))
	require.False(t, allow("a"))
	l.SetMaxKeys(1)
	require.True(t, allow("d"))
	require.Equal(t, 3, l.keyed.Len(0), "no more than there were")
	l.SetMaxKeys(0)
	require.True(t, allow("e"))
	require.Equal(t, 4, l.keyed.Len(0))
}
