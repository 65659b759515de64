package aggregation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var start = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

func shardsOf(n, f int, count int) []ShardSize {
	shards := make([]ShardSize, count)
	for i := range shards {
		shards[i] = ShardSize{N: n, Threshold: Threshold(n, f)}
	}
	return shards
}

// newTestTrigger has shards of 4 with f = 1, a grace of 1 s, 2 s for unavailability and a deadline after a minute; everybody is connected.
func newTestTrigger(shards int) *Trigger {
	connected := make([]int, shards)
	for i := range connected {
		connected[i] = 4
	}
	return NewTrigger(TriggerConfig{
		Shards: shardsOf(4, 1, shards), Start: start, Deadline: at(60_000), Grace: time.Second, Unavailable: 2 * time.Second,
	}, connected)
}

func voteAll(t *Trigger, shard int, v Vote, ms int, nodes ...int) {
	for _, node := range nodes {
		t.Vote(shard, node, v, at(ms))
	}
}

func undecided(wakeMs int) Decision { return Decision{Shard: -1, Wake: at(wakeMs)} }

// conformance: 5.result.first
func TestTriggerFirstResultWins(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	voteAll(tr, 0, result(1), 1, 0, 1)
	voteAll(tr, 1, result(2), 2, 0, 1, 2)
	want := Decision{Outcome: AgreedResult, Shard: 1, Vote: result(2)}
	require.Equal(t, want, tr.Decide(at(2)))
	require.Equal(t, Late, tr.Vote(0, 2, result(1), at(3)))
	tr.Remove(1, 0, at(4))
	tr.Connected(0, 0, at(4))
	require.Equal(t, want, tr.Decide(at(100_000)), "once decided it stays decided")
}

// conformance: 5.shard.aggregator
func TestTriggerVotesNeverCrossShards(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(3)
	for shard := range 3 {
		voteAll(tr, shard, result(1), 1, 0, 1) // six equal votes, two in each shard
	}
	require.Equal(t, undecided(60_000), tr.Decide(at(1)))
	require.Equal(t, NotAMember, tr.Vote(3, 0, result(1), at(1)))
	require.Equal(t, NotAMember, tr.Vote(-1, 0, result(1), at(1)))
	require.Equal(t, NotAMember, tr.Vote(0, 4, result(1), at(1)))
	require.Equal(t, []int{2}, tr.Shard(2).Groups())
	require.Nil(t, tr.Shard(3))
	require.Equal(t, 4, tr.ConnectedCount(0))
	require.Zero(t, tr.ConnectedCount(-1))
}

// conformance: 5.error.held
func TestTriggerHeldError(t *testing.T) {
	t.Parallel()
	errorFrom0 := Decision{Outcome: AgreedError, Shard: 0, Vote: failure(1)}
	latched := func() *Trigger {
		tr := newTestTrigger(2)
		voteAll(tr, 0, failure(1), 100, 0, 1, 2)
		require.Equal(t, undecided(1100), tr.Decide(at(100)))
		return tr
	}
	t.Run("released after the grace", func(t *testing.T) {
		tr := latched()
		require.Equal(t, undecided(1100), tr.Decide(at(1099)))
		require.Equal(t, errorFrom0, tr.Decide(at(1100)))
	})
	t.Run("a later result of the other shard wins", func(t *testing.T) {
		tr := latched()
		voteAll(tr, 1, result(1), 1099, 0, 1, 2)
		require.Equal(t, Decision{Outcome: AgreedResult, Shard: 1, Vote: result(1)}, tr.Decide(at(1099)))
	})
	t.Run("a result after the grace comes too late even if nobody asked in between", func(t *testing.T) {
		tr := latched()
		require.Equal(t, Late, tr.Vote(1, 0, result(1), at(1100)))
		require.Equal(t, errorFrom0, tr.Decide(at(1100)))
	})
	t.Run("a faulty node cannot undo it", func(t *testing.T) {
		tr := latched()
		voteAll(tr, 0, result(9), 200, 0, 1)
		require.Equal(t, errorFrom0, tr.Decide(at(1100)))
	})
	t.Run("its own shard may still turn to a result", func(t *testing.T) {
		tr := latched()
		voteAll(tr, 0, result(9), 200, 0, 1, 3)
		require.Equal(t, Decision{Outcome: AgreedResult, Shard: 0, Vote: result(9)}, tr.Decide(at(200)))
	})
	t.Run("released when the other shard cannot agree on a result", func(t *testing.T) {
		tr := latched()
		voteAll(tr, 1, failure(2), 300, 0)
		require.Equal(t, undecided(1100), tr.Decide(at(300)))
		voteAll(tr, 1, failure(3), 300, 1)
		require.Equal(t, errorFrom0, tr.Decide(at(300)))
	})
	t.Run("two errors: the earlier one", func(t *testing.T) {
		tr := latched()
		voteAll(tr, 1, failure(2), 300, 0, 1, 2)
		require.Equal(t, errorFrom0, tr.Decide(at(300)))
	})
	t.Run("three shards: the grace counts from the earliest error", func(t *testing.T) {
		tr := newTestTrigger(3)
		voteAll(tr, 2, failure(2), 100, 0, 1, 2)
		voteAll(tr, 0, failure(1), 300, 0, 1, 2)
		require.Equal(t, undecided(1100), tr.Decide(at(300)))
		require.Equal(t, Decision{Outcome: AgreedError, Shard: 2, Vote: failure(2)}, tr.Decide(at(1100)))
	})
	t.Run("a single shard's error is the answer at once", func(t *testing.T) {
		tr := newTestTrigger(1)
		voteAll(tr, 0, failure(1), 100, 0, 1, 2)
		require.Equal(t, errorFrom0, tr.Decide(at(100)))
	})
}

// conformance: 5.error.connected
func TestTriggerHeldErrorNeedsOthersConnected(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	tr.Connected(1, 3, at(200))
	require.Equal(t, undecided(1100), tr.Decide(at(200)))
	tr.Connected(1, 2, at(300))
	require.Equal(t, Decision{Outcome: AgreedError, Shard: 0, Vote: failure(1)}, tr.Decide(at(300)))

	tr = NewTrigger(TriggerConfig{Shards: shardsOf(4, 1, 2), Start: start, Deadline: at(60_000), Grace: time.Second}, []int{4})
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	require.Equal(t, AgreedError, tr.Decide(at(100)).Outcome, "a shard nobody of which is connected is not waited for")
}

// conformance: 5.error.deadline
func TestTriggerDeadline(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	voteAll(tr, 0, failure(1), 59_500, 0, 1, 2)
	require.Equal(t, undecided(60_000), tr.Decide(at(59_999)))
	require.Equal(t, Decision{Outcome: AgreedError, Shard: 0, Vote: failure(1)}, tr.Decide(at(60_000)))

	tr = newTestTrigger(2)
	voteAll(tr, 0, result(1), 1, 0, 1)
	require.Equal(t, undecided(60_000), tr.Decide(at(1)))
	require.Equal(t, Decision{Outcome: Timeout, Shard: -1}, tr.Decide(at(60_000)))
	require.Equal(t, Decision{Outcome: Timeout, Shard: -1}, tr.Decide(at(1)), "time does not run backwards")

	tr = NewTrigger(TriggerConfig{Shards: shardsOf(4, 1, 1), Start: start}, []int{4})
	require.Equal(t, Decision{Shard: -1}, tr.Decide(at(1_000_000)), "no deadline: nothing to wake up for")
}

// conformance: 5.no-quorum.when
// conformance: 5.no-quorum.grace
func TestTriggerNoQuorum(t *testing.T) {
	t.Parallel()
	noQuorum := Decision{Outcome: NoQuorum, Shard: -1}
	t.Run("one against one against one with one silent", func(t *testing.T) {
		tr := newTestTrigger(1)
		tr.Vote(0, 0, result(1), at(10))
		tr.Vote(0, 1, result(2), at(20))
		require.Equal(t, undecided(60_000), tr.Decide(at(20)))
		tr.Vote(0, 2, result(3), at(30))
		require.Equal(t, undecided(1030), tr.Decide(at(30)))
		require.Equal(t, noQuorum, tr.Decide(at(1030)))
	})
	t.Run("a changed vote inside the grace wins", func(t *testing.T) {
		tr := newTestTrigger(1)
		voteAll(tr, 0, result(1), 10, 0, 1)
		voteAll(tr, 0, result(2), 10, 2, 3)
		require.Equal(t, undecided(1010), tr.Decide(at(10)))
		require.Equal(t, Moved, tr.Vote(0, 3, result(1), at(1009)))
		require.Equal(t, Decision{Outcome: AgreedResult, Shard: 0, Vote: result(1)}, tr.Decide(at(1009)))
	})
	t.Run("a changed vote that reopens the shard stops the clock", func(t *testing.T) {
		tr := newTestTrigger(1)
		for node := range 3 {
			tr.Vote(0, node, result(byte(node)), at(10))
		}
		tr.Vote(0, 1, result(0), at(500))
		require.Equal(t, undecided(60_000), tr.Decide(at(1500)))
		tr.Vote(0, 1, result(1), at(2000))
		require.Equal(t, undecided(3000), tr.Decide(at(2000)))
		require.Equal(t, noQuorum, tr.Decide(at(3000)))
	})
	t.Run("every shard counts", func(t *testing.T) {
		tr := newTestTrigger(2)
		voteAll(tr, 0, result(1), 10, 0, 1)
		voteAll(tr, 0, result(2), 10, 2, 3)
		require.Equal(t, undecided(60_000), tr.Decide(at(10)))
		voteAll(tr, 1, result(1), 20, 0, 1)
		voteAll(tr, 1, result(2), 20, 2, 3)
		require.Equal(t, noQuorum, tr.Decide(at(1020)))
	})
	t.Run("removals can bring it about", func(t *testing.T) {
		tr := newTestTrigger(1)
		tr.Vote(0, 0, result(1), at(10))
		tr.Remove(0, 1, at(20))
		tr.Remove(0, 2, at(30))
		require.Equal(t, undecided(1030), tr.Decide(at(40)))
		require.Equal(t, NotAMember, tr.Vote(0, 2, result(1), at(40)))
		require.Equal(t, noQuorum, tr.Decide(at(1030)))
	})
}

// conformance: 2.error.don-unavailable
func TestTriggerUnavailable(t *testing.T) {
	t.Parallel()
	unavailable := Decision{Outcome: Unavailable, Shard: -1}
	config := TriggerConfig{Shards: shardsOf(4, 1, 2), Start: start, Deadline: at(60_000), Grace: time.Second, Unavailable: 2 * time.Second}

	tr := NewTrigger(config, nil)
	require.Equal(t, undecided(2000), tr.Decide(at(1999)))
	require.Equal(t, unavailable, tr.Decide(at(2000)))

	tr = NewTrigger(config, nil)
	tr.Connected(1, 1, at(1999))
	require.Equal(t, undecided(60_000), tr.Decide(at(5000)))
	tr.Connected(0, 2, at(5100))
	tr.Connected(1, 0, at(5200))
	require.Equal(t, undecided(60_000), tr.Decide(at(5300)))
	tr.Connected(0, 0, at(6000))
	require.Equal(t, undecided(8000), tr.Decide(at(6000)))
	require.Equal(t, unavailable, tr.Decide(at(8000)))
}

// conformance: 5.members.dispatch
func TestTriggerRemoveTakesVotesOutOfHeldError(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	tr.Remove(0, 1, at(200))
	require.Equal(t, undecided(60_000), tr.Decide(at(1100)), "two votes are no agreement")
	tr.Vote(0, 3, failure(1), at(1200))
	require.Equal(t, undecided(2200), tr.Decide(at(1200)), "agreed anew with the fourth")

	tr = newTestTrigger(2)
	voteAll(tr, 0, failure(1), 100, 0, 1, 2, 3)
	tr.Vote(0, 0, result(1), at(150)) // changing its mind leaves its support in place
	tr.Remove(0, 1, at(200))
	require.Equal(t, undecided(1100), tr.Decide(at(300)))
	tr.Remove(0, 7, at(300))
	tr.Remove(7, 0, at(300))
	require.Equal(t, AgreedError, tr.Decide(at(1100)).Outcome)

	tr = newTestTrigger(2)
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	voteAll(tr, 0, failure(2), 200, 0, 1, 3)
	tr.Remove(0, 2, at(300))
	require.Equal(t, undecided(1300), tr.Decide(at(300)), "another error stands behind it")
	require.Equal(t, Decision{Outcome: AgreedError, Shard: 0, Vote: failure(2)}, tr.Decide(at(1300)))
}

// TestTriggerAgainstTwin plays random histories to Trigger and to the dumb twin. Decide is asked at random, which must not matter: a second Trigger that is asked
// only at the end comes to the same.
func TestTriggerAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := TriggerConfig{Start: start, Grace: time.Duration(rapid.IntRange(0, 12).Draw(t, "grace")) * time.Millisecond,
			Unavailable: time.Duration(rapid.IntRange(0, 15).Draw(t, "unavailable")) * time.Millisecond}
		if rapid.IntRange(0, 5).Draw(t, "hasDeadline") > 0 {
			c.Deadline = at(rapid.IntRange(0, 50).Draw(t, "deadline"))
		}
		var connected []int
		for range rapid.IntRange(1, 3).Draw(t, "shards") {
			f := rapid.IntRange(0, 1).Draw(t, "f")
			n := 3*f + 1 + rapid.IntRange(0, 2).Draw(t, "spare")
			c.Shards = append(c.Shards, ShardSize{N: n, Threshold: Threshold(n, f)})
			connected = append(connected, rapid.IntRange(0, n).Draw(t, "connected"))
		}
		asked, unasked := NewTrigger(c, connected), NewTrigger(c, connected)
		twin := &triggerTwin{c: c, connected: connected}
		ms := 0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			ms += max(0, rapid.IntRange(-6, 4).Draw(t, "pause"))
			e := event{what: "vote", shard: rapid.IntRange(0, len(c.Shards)-1).Draw(t, "shard"), at: at(ms)}
			n := c.Shards[e.shard].N
			e.node = rapid.IntRange(0, n-1).Draw(t, "node")
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0:
				e.what = "remove"
				asked.Remove(e.shard, e.node, e.at)
				unasked.Remove(e.shard, e.node, e.at)
			case 1, 2:
				e.what, e.count = "connected", rapid.IntRange(0, n).Draw(t, "count")
				asked.Connected(e.shard, e.count, e.at)
				unasked.Connected(e.shard, e.count, e.at)
			default:
				e.vote = []Vote{failure(1), failure(1), result(1), result(2), failure(2)}[rapid.IntRange(0, 4).Draw(t, "vote")]
				asked.Vote(e.shard, e.node, e.vote, e.at)
				unasked.Vote(e.shard, e.node, e.vote, e.at)
			}
			twin.log = append(twin.log, e)
			if rapid.Bool().Draw(t, "ask") {
				requireSameDecision(t, twin, asked, ms)
			}
		}
		ms += rapid.IntRange(0, 60).Draw(t, "end")
		requireSameDecision(t, twin, asked, ms)
		requireSameDecision(t, twin, unasked, ms)
	})
}

// requireSameDecision also holds Wake to its word: just before it nothing changes, at it the request is decided.
func requireSameDecision(t *rapid.T, twin *triggerTwin, tr *Trigger, ms int) {
	got := tr.Decide(at(ms))
	wake := got.Wake
	got.Wake = time.Time{}
	require.Equal(t, twin.decide(at(ms)), got)
	switch {
	case got.Outcome != Undecided:
		require.Zero(t, wake)
	case wake.IsZero():
		require.Equal(t, Undecided, twin.decide(at(ms+200)).Outcome)
	default:
		require.True(t, wake.After(at(ms)))
		require.Equal(t, Undecided, twin.decide(wake.Add(-time.Millisecond)).Outcome)
		require.NotEqual(t, Undecided, twin.decide(wake).Outcome)
	}
}

// TestTriggerEveryOrder sends every assignment of votes to two shards of two nodes (both must agree) in every order: a result is the answer if and only if a shard
// agreed on one, an error only where no result could stand beside it.
func TestTriggerEveryOrder(t *testing.T) {
	t.Parallel()
	forEachAssignment(4, len(alphabet)+1, func(votes []int) {
		agreed := func(shard int, k Kind) bool {
			a, b := votes[2*shard], votes[2*shard+1]
			return a == b && a > 0 && alphabet[a-1].Kind == k
		}
		want := Timeout
		switch {
		case agreed(0, Result) || agreed(1, Result):
			want = AgreedResult
		case agreed(0, Failure) || agreed(1, Failure):
			want = AgreedError
		case votes[0] > 0 && votes[1] > 0 && votes[2] > 0 && votes[3] > 0:
			want = NoQuorum
		}
		forEachPermutation(4, func(order []int) {
			tr := NewTrigger(TriggerConfig{Shards: shardsOf(2, 0, 2), Start: start, Deadline: at(100), Grace: 10 * time.Millisecond}, []int{2, 2})
			for _, i := range order {
				if votes[i] > 0 {
					tr.Vote(i/2, i%2, alphabet[votes[i]-1], at(1))
				}
			}
			require.Equal(t, want, tr.Decide(at(100)).Outcome, "votes %v order %v", votes, order)
		})
	})
}
