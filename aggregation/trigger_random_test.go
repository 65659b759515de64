package aggregation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

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
			connected = append(connected, max(0, rapid.IntRange(-2, n).Draw(t, "connected")))
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
				e.what, e.count = "connected", max(0, rapid.IntRange(-n, n).Draw(t, "count"))
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
