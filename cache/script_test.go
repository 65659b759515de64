package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// scriptCall is one call of a random script. Instants never coincide: call i arrives i µs past a full millisecond, a timeout of its own ends 100 ns
// later, its fetch 200 ns.
type scriptCall struct {
	i        int
	key      int
	owner    string
	arrives  time.Duration
	maxAge   time.Duration
	timeout  time.Duration
	store    bool
	refuse   bool // by Admit
	takes    time.Duration
	fails    bool
	uncached bool
	panics   bool
}

// ended is how a call ended.
type ended struct {
	at    time.Duration
	value int // 1000 × the call that fetched it + 1; 0 with an error
	hit   bool
	err   string
}

func (s *scriptCall) deadline() time.Duration { return s.arrives + s.timeout + 100 }
func (s *scriptCall) fetched() time.Duration  { return s.arrives + s.takes + 200 }

const (
	scriptTTL    = 50 * time.Millisecond
	scriptLimit  = 3 // waiters per owner
	textTimeout  = "timeout"
	textRefused  = "refused"
	textFailed   = "failed"
	textPanicked = "panicked"
	textMany     = "many"
)

// play runs the script against a Cache, every other call by Start.
func play(t *testing.T, script []scriptCall) (ends []ended, stats Stats) {
	ends = make([]ended, len(script))
	synctest.Test(t, func(t *testing.T) {
		c := New[int](Config{TTL: scriptTTL, MaxBytes: 1 << 20, MaxWaitersPerOwner: scriptLimit})
		start := time.Now()
		var wg sync.WaitGroup
		for i, s := range script {
			wg.Go(func() {
				time.Sleep(s.arrives)
				if i%2 == 0 {
					v, hit, err := c.Do(t.Context(), s.call())
					ends[i] = ended{time.Since(start), v, hit, textOf(err)}
					return
				}
				told := make(chan struct{}) // closed twice it panics
				c.Start(t.Context(), s.call(), func(v int, hit bool, err error) {
					ends[i] = ended{time.Since(start), v, hit, textOf(err)}
					close(told)
				})
				require.Equal(t, s.arrives, time.Since(start))
				<-told
			})
		}
		wg.Wait()
		synctest.Wait()
		stats = c.Stats()
	})
	return ends, stats
}

var (
	errRefused = errors.New(textRefused)
	errFailed  = errors.New(textFailed)
)

func (s *scriptCall) call() Call[int] {
	return Call[int]{
		Key: Key{byte(s.key)}, Owner: s.owner, MaxAge: s.maxAge, Store: s.store, Timeout: s.timeout + 100,
		Admit: func() (func(), error) {
			if s.refuse {
				return nil, errRefused
			}
			return nil, nil
		},
		Fetch: func(ctx context.Context) (int, int64, bool, error) {
			select {
			case <-ctx.Done():
				return 0, 0, false, context.Cause(ctx)
			case <-time.After(s.takes + 200):
			}
			switch {
			case s.panics:
				panic(textPanicked)
			case s.fails:
				return 0, 0, false, errFailed
			}
			return 1000*s.i + 1, 10, !s.uncached, nil
		},
	}
}

func textOf(err error) string {
	var many *TooManyWaitersError
	var broke *PanicError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return textTimeout
	case errors.As(err, &many):
		return textMany
	case errors.As(err, &broke):
		return textPanicked
	}
	return err.Error()
}

// foretell says how the script must end, from the rules alone: each call in the order of arrival looks at those before it, whose fates it knows but for
// the fetches that go on as long as anyone waits. A fetch's end is found by looking at all who ever joined it.
func foretell(script []scriptCall) (ends []ended, fetches int) {
	ends = make([]ended, len(script))
	order := make([]*scriptCall, len(script))
	for i := range script {
		order[i] = &script[i]
	}
	slices.SortFunc(order, func(a, b *scriptCall) int { return int(a.arrives - b.arrives) })

	var flights []*told
	for _, s := range order {
		now := s.arrives
		end := &ends[s.i]
		if s.maxAge > 0 {
			if value, ok := storedAt(flights, s.key, now, min(s.maxAge, scriptTTL)); ok {
				*end = ended{now, value, true, ""}
				continue
			}
			if i := slices.IndexFunc(flights, func(f *told) bool { return f.leader.key == s.key && f.leader.maxAge > 0 && f.runs(now) }); i >= 0 {
				if waitersOf(flights, s.owner, now) >= scriptLimit {
					*end = ended{now, 0, false, textMany}
					continue
				}
				flights[i].joined = append(flights[i].joined, s)
				continue
			}
		}
		if s.refuse {
			*end = ended{now, 0, false, textRefused}
			continue
		}
		flights = append(flights, &told{leader: s, joined: []*scriptCall{s}})
	}
	for _, f := range flights {
		for _, s := range f.joined {
			switch {
			case s.deadline() < f.leader.fetched():
				ends[s.i] = ended{s.deadline(), 0, false, textTimeout}
			case f.leader.panics:
				ends[s.i] = ended{f.leader.fetched(), 0, false, textPanicked}
			case f.leader.fails:
				ends[s.i] = ended{f.leader.fetched(), 0, false, textFailed}
			default:
				ends[s.i] = ended{f.leader.fetched(), 1000*f.leader.i + 1, false, ""}
			}
		}
	}
	return ends, len(flights)
}

// told is a fetch and all who have joined it so far.
type told struct {
	leader *scriptCall
	joined []*scriptCall
}

// runs reports whether the fetch goes on: it has not ended, and somebody waits.
func (f *told) runs(now time.Duration) bool {
	return now < f.leader.fetched() && slices.ContainsFunc(f.joined, func(s *scriptCall) bool { return now < s.deadline() })
}

// stores reports whether the fetch has left an entry by now.
func (f *told) stores(now time.Duration) bool {
	l := f.leader
	return l.fetched() < now && f.runs(l.fetched()-1) && !l.fails && !l.panics && !l.uncached &&
		slices.ContainsFunc(f.joined, func(s *scriptCall) bool { return s.store })
}

// storedAt is the value of the live entry: that of the fetch that began last. Entries never expire while a later fetch of the same key that would
// give way to them runs, for no fetch takes as long as the time to live.
func storedAt(flights []*told, key int, now, maxAge time.Duration) (int, bool) {
	for _, f := range slices.Backward(flights) {
		if f.leader.key == key && f.stores(now) {
			return 1000*f.leader.i + 1, now-f.leader.fetched() < maxAge
		}
	}
	return 0, false
}

func waitersOf(flights []*told, owner string, now time.Duration) (n int) {
	for _, f := range flights {
		for _, s := range f.joined[1:] {
			if s.owner == owner && now < s.deadline() && now < f.leader.fetched() {
				n++
			}
		}
	}
	return n
}

func TestCallsAgainstTwin(t *testing.T) {
	t.Parallel()
	total := Stats{}
	ways := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		ms := func(lo, hi int, name string) time.Duration {
			return time.Duration(rapid.IntRange(lo, hi).Draw(rt, name)) * time.Millisecond
		}
		script := make([]scriptCall, rapid.IntRange(1, 60).Draw(rt, "calls"))
		keys := rapid.IntRange(1, 4).Draw(rt, "keys")
		for i := range script {
			odds := rapid.IntRange(0, 99).Draw(rt, "odds")
			script[i] = scriptCall{
				i: i, key: rapid.IntRange(1, keys).Draw(rt, "key"), owner: fmt.Sprint("owner", rapid.IntRange(1, 3).Draw(rt, "owner")),
				arrives: ms(0, 120, "arrives") + time.Duration(i)*time.Microsecond,
				maxAge:  ms(0, 70, "maxAge"), timeout: ms(0, 40, "timeout"), takes: ms(0, 30, "takes"), store: rapid.Bool().Draw(rt, "store"),
				refuse: odds < 5, fails: odds >= 5 && odds < 20, uncached: odds >= 20 && odds < 30, panics: odds >= 30 && odds < 33,
			}
			if odds%3 == 0 {
				script[i].maxAge = 0
			}
		}
		want, fetches := foretell(script)
		got, stats := play(t, script)
		for i, s := range script {
			require.Equal(rt, want[i], got[i], "call %d: %+v", i, s)
			ways[got[i].err]++
		}
		require.EqualValues(rt, fetches, stats.Misses)
		require.Zero(rt, stats.Fetches)
		require.Zero(rt, stats.Waiters)
		total.Hits += stats.Hits
		total.Shared += stats.Shared
		total.Misses += stats.Misses
	})
	require.Positive(t, total.Hits, "the scripts must try everything")
	require.Positive(t, total.Shared)
	for _, way := range []string{"", textTimeout, textRefused, textFailed, textPanicked, textMany} {
		require.Positive(t, ways[way], way)
	}
}
