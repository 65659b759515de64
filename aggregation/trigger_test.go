package aggregation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	t.Run("three shards: one that has an error of its own is not waited for, even if its nodes turn to a result", func(t *testing.T) {
		tr := newTestTrigger(3)
		voteAll(tr, 0, failure(1), 100, 0, 1, 2)
		voteAll(tr, 1, failure(1), 100, 0, 1, 2)
		voteAll(tr, 1, result(1), 200, 0, 1)
		require.True(t, tr.Shard(1).CanAgreeOnResult())
		require.Equal(t, undecided(1100), tr.Decide(at(200)))
		tr.Connected(2, 0, at(300))
		require.Equal(t, errorFrom0, tr.Decide(at(300)))
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
	tr.Connected(1, 0, at(500))
	tr.Vote(0, 0, result(1), at(1000)) // the answer of a node that went away at once
	require.Equal(t, undecided(2000), tr.Decide(at(1000)), "the clock goes on")

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

// TestTriggerLostAgreementStartsTheGrace: while an error was held there was an agreement, so that no quorum counts from when a removal ended it.
func TestTriggerLostAgreementStartsTheGrace(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	voteAll(tr, 0, result(1), 150, 0, 1)
	voteAll(tr, 0, failure(2), 150, 3)
	require.Equal(t, Impossible, tr.Shard(0).State())
	for node := range 2 {
		tr.Vote(1, node, result(byte(node)), at(200))
	}
	tr.Remove(1, 2, at(250)) // now impossible here too, which releases the error
	require.Equal(t, AgreedError, tr.Decide(at(250)).Outcome)

	tr = newTestTrigger(3)
	for shard := range 2 { // both will be impossible; shard 0 holds an error
		voteAll(tr, shard, failure(1), 100, 0, 1)
	}
	voteAll(tr, 0, failure(1), 100, 2)
	voteAll(tr, 0, result(1), 150, 0, 1)
	voteAll(tr, 0, failure(2), 150, 3)
	voteAll(tr, 1, failure(2), 200, 2)
	voteAll(tr, 1, failure(3), 200, 3)
	voteAll(tr, 2, result(1), 300, 0, 1) // shard 2 keeps the error back
	require.Equal(t, undecided(1100), tr.Decide(at(300)))
	tr.Remove(0, 2, at(400))
	require.Equal(t, undecided(60_000), tr.Decide(at(400)), "shard 2 is open")
	tr.Vote(2, 2, failure(1), at(500))
	tr.Vote(2, 3, failure(2), at(500))
	require.Equal(t, undecided(1500), tr.Decide(at(500)))
}

// TestTriggerSameInstant: where two things fall on one instant the client gets the more telling one.
func TestTriggerSameInstant(t *testing.T) {
	t.Parallel()
	config := TriggerConfig{Shards: shardsOf(4, 1, 1), Start: start, Deadline: at(1000), Grace: time.Second, Unavailable: time.Second}
	tr := NewTrigger(config, nil)
	require.Equal(t, Unavailable, tr.Decide(at(1000)).Outcome, "rather than Timeout")

	for _, connected := range []int{0, 4} {
		tr = NewTrigger(config, []int{connected})
		voteAll(tr, 0, result(1), 0, 0, 1)
		voteAll(tr, 0, result(2), 0, 2, 3)
		require.Equal(t, NoQuorum, tr.Decide(at(1000)).Outcome, "rather than Unavailable or Timeout")
	}
}

func TestTriggerClockBackwards(t *testing.T) {
	t.Parallel()
	tr := newTestTrigger(2)
	require.Equal(t, undecided(60_000), tr.Decide(at(500)))
	voteAll(tr, 0, failure(1), 100, 0, 1, 2)
	require.Equal(t, undecided(1500), tr.Decide(at(100)), "latched at 500, not before")
}
