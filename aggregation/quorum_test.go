package aggregation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func result(b byte) Vote  { return Vote{Kind: Result, Digest: Digest{b}} }
func failure(b byte) Vote { return Vote{Kind: Failure, Digest: Digest{b}} }

// alphabet is enough votes for three groups, two results and an error with the digest of one of them.
var alphabet = []Vote{result(1), result(2), failure(1)}

// conformance: 5.threshold
func TestThreshold(t *testing.T) {
	t.Parallel()
	for f := range 40 {
		require.Equal(t, 2*f+1, Threshold(3*f+1, f))
		for n := 3*f + 1; n <= 3*f+40; n++ {
			threshold := Threshold(n, f)
			require.Greater(t, 2*threshold, n+f, "two groups of this size share an honest node")
			require.LessOrEqual(t, threshold, n-f, "the honest nodes suffice")
		}
	}
}

// conformance: 5.vote.one
// conformance: 5.vote.moves
func TestQuorumOneVotePerNode(t *testing.T) {
	t.Parallel()
	q := NewQuorum(4, 3)
	require.Equal(t, Counted, q.Vote(0, result(1)))
	require.Equal(t, Repeated, q.Vote(0, result(1)))
	require.Equal(t, Repeated, q.Vote(0, result(1)))
	require.Equal(t, []int{1}, q.Groups())
	require.Equal(t, Counted, q.Vote(1, result(1)))
	require.Equal(t, Moved, q.Vote(0, result(2)))
	require.Equal(t, []int{1, 1}, q.Groups())
	require.Equal(t, 2, q.Answered())
	require.Equal(t, Moved, q.Vote(0, failure(2)), "an error is another answer than a result, whatever its digest")
	require.Equal(t, []int{1, 1}, q.Groups())
	require.Equal(t, NotAMember, q.Vote(4, result(1)))
	require.Equal(t, NotAMember, q.Vote(-1, result(1)))
	require.True(t, q.Voted(0))
	require.False(t, q.Voted(3))
	require.False(t, q.Voted(4))
	require.Equal(t, Pending, q.State())
	q.Vote(2, result(1))
	q.Vote(3, result(1))
	require.Equal(t, Agreed, q.State())
	agreed, ok := q.Agreed()
	require.True(t, ok)
	require.Equal(t, result(1), agreed)
}

// conformance: 4.dropped.superfluous
func TestQuorumSuperfluousVotes(t *testing.T) {
	t.Parallel()
	q := NewQuorum(4, 3)
	for i := range MaxVotesPerNode {
		require.NotEqual(t, Superfluous, q.Vote(0, result(byte(i/2))))
	}
	before := q.Groups()
	for i := range 1000 {
		require.Equal(t, Superfluous, q.Vote(0, result(byte(i))))
	}
	require.Equal(t, before, q.Groups())
	require.LessOrEqual(t, len(q.groups), 2, "a node that keeps changing its mind takes no room")
	require.Equal(t, Counted, q.Vote(1, result(3)), "the others are not affected")
	require.Equal(t, []int{2}, q.Groups())
}

// conformance: 5.members.dispatch
func TestQuorumRemove(t *testing.T) {
	t.Parallel()
	q := NewQuorum(4, 3)
	for node := range 3 {
		q.Vote(node, result(1))
	}
	require.Equal(t, Agreed, q.State())
	q.Remove(2)
	q.Remove(2)
	q.Remove(-1)
	q.Remove(4)
	require.Equal(t, Pending, q.State(), "the fourth may still join")
	require.Equal(t, 3, q.Threshold())
	require.Equal(t, 2, q.Answered())
	require.Equal(t, NotAMember, q.Vote(2, result(1)))
	q.Remove(3)
	require.Equal(t, Impossible, q.State(), "a removed silent node is not waited for")
	require.False(t, q.CanAgreeOnResult())
}

func TestQuorumNeverHasTwoWinners(t *testing.T) {
	t.Parallel()
	q := NewQuorum(4, 1) // a configuration that is no majority
	require.Equal(t, 3, q.Threshold())
	require.Equal(t, Pending, NewQuorum(1, 1).State())
	require.Equal(t, Impossible, NewQuorum(-1, 0).State())
}

func TestNamesOfStates(t *testing.T) {
	t.Parallel()
	require.Equal(t, "pending agreed impossible", fmt.Sprint(Pending, " ", Agreed, " ", Impossible))
	require.Equal(t, "result error", fmt.Sprint(Result, " ", Failure))
	require.Equal(t, "counted moved repeated superfluous not_a_member late unknown",
		fmt.Sprint(Counted, " ", Moved, " ", Repeated, " ", Superfluous, " ", NotAMember, " ", Late, " ", VoteStatus(9)))
	require.Equal(t, "undecided result error no_quorum timeout don_unavailable unknown",
		fmt.Sprint(Undecided, " ", AgreedResult, " ", AgreedError, " ", NoQuorum, " ", Timeout, " ", Unavailable, " ", Outcome(9)))
}

func requireSameQuorum(t require.TestingT, twin *quorumTwin, q *Quorum) {
	require.Equal(t, twin.state(), q.State())
	wantVote, wantOK := twin.agreed()
	gotVote, gotOK := q.Agreed()
	require.Equal(t, wantOK, gotOK)
	require.Equal(t, wantVote, gotVote)
	require.Equal(t, twin.canAgreeOnResult(), q.CanAgreeOnResult())
	require.Equal(t, twin.groups(), q.Groups())
	votes, _, spoke := twin.standing()
	require.Equal(t, len(votes), q.Answered())
	for node := -1; node <= twin.n; node++ {
		require.Equal(t, spoke[node] > 0, q.Voted(node))
	}
	require.LessOrEqual(t, len(q.groups), twin.n, "at most one group per member")
}

// TestQuorumAgainstTwin compares random histories of votes, moves, floods and removals with the dumb twin after every step.
func TestQuorumAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.IntRange(0, 4).Draw(t, "f")
		n := rapid.IntRange(max(1, f), 3*f+4).Draw(t, "n") // also shards too small for f
		q, twin := NewQuorum(n, Threshold(n, f)), &quorumTwin{n: n, threshold: Threshold(n, f)}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			node := rapid.IntRange(-1, n).Draw(t, "node")
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				q.Remove(node)
				twin.log = append(twin.log, event{what: "remove", node: node})
			} else {
				v := Vote{Kind: Kind(rapid.IntRange(0, 1).Draw(t, "kind")), Digest: Digest{rapid.Byte().Draw(t, "digest") % 5}}
				before, gone, spoke := twin.standing()
				want := Moved
				switch {
				case node < 0 || node >= n || gone[node]:
					want = NotAMember
				case spoke[node] == 0:
					want = Counted
				case spoke[node] >= MaxVotesPerNode:
					want = Superfluous
				case before[node] == v:
					want = Repeated
				}
				require.Equal(t, want, q.Vote(node, v))
				twin.log = append(twin.log, event{what: "vote", node: node, vote: v})
			}
			requireSameQuorum(t, twin, q)
		}
	})
}

// TestQuorumBruteForce goes through every N <= 10, every f and every way to split the nodes between silence and the votes of the alphabet. By symmetry the
// nodes' order does not matter for the state, which TestQuorumEveryOrder shows for small N.
//
// conformance: 5.no-quorum.when
func TestQuorumBruteForce(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 10; n++ {
		for f := 0; f <= n; f++ {
			threshold := Threshold(n, f)
			for a := 0; a <= n; a++ {
				for b := 0; a+b <= n; b++ {
					for c := 0; a+b+c <= n; c++ {
						q, node := NewQuorum(n, threshold), 0
						for i, count := range []int{a, b, c} {
							for range count {
								q.Vote(node, alphabet[i])
								node++
							}
						}
						silent := n - a - b - c
						completable, completableResult := false, false
						for i, count := range []int{a, b, c, 0} { // the last: a result nobody gave yet
							wins := count+silent >= threshold
							completable = completable || wins
							completableResult = completableResult || wins && i != 2
						}
						won := max(a, b, c) >= threshold
						require.Equal(t, won, q.State() == Agreed)
						require.Equal(t, !completable, q.State() == Impossible, "n=%d f=%d %d-%d-%d", n, f, a, b, c)
						require.Equal(t, completableResult, q.CanAgreeOnResult())
					}
				}
			}
		}
	}
}

// TestQuorumImpossibleIsTrue lets the silent nodes really vote: Impossible is said exactly when none of their completions agrees.
func TestQuorumImpossibleIsTrue(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		for f := 0; f <= n/3; f++ {
			forEachAssignment(n, len(alphabet)+1, func(votes []int) {
				start := func() *Quorum {
					q := NewQuorum(n, Threshold(n, f))
					for node, v := range votes {
						if v > 0 {
							q.Vote(node, alphabet[v-1])
						}
					}
					return q
				}
				some, someResult := false, false
				forEachAssignment(n, len(alphabet), func(completion []int) {
					q := start()
					for node, v := range votes {
						if v == 0 {
							q.Vote(node, alphabet[completion[node]])
						}
					}
					agreed, ok := q.Agreed()
					some = some || ok
					someResult = someResult || ok && agreed.Kind == Result
				})
				require.Equal(t, !some, start().State() == Impossible)
				require.Equal(t, someResult, start().CanAgreeOnResult())
			})
		}
	}
}

// TestQuorumEveryOrder sends every assignment of votes in every order: the end is always the same.
func TestQuorumEveryOrder(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		forEachAssignment(n, len(alphabet), func(votes []int) {
			var state State
			var groups []int
			first := true
			forEachPermutation(n, func(order []int) {
				q := NewQuorum(n, Threshold(n, (n-1)/3))
				for _, node := range order {
					q.Vote(node, alphabet[votes[node]])
				}
				if first {
					state, groups, first = q.State(), q.Groups(), false
					return
				}
				if q.State() != state || !slices.Equal(groups, q.Groups()) {
					require.Fail(t, "order matters", "%v %v", votes, order)
				}
			})
		})
	}
}

// TestQuorumSafety: whatever f liars say and however often, in whatever order the votes come, over the whole history at most one vote ever has the threshold
// when every honest node votes once; and an agreement always rests on threshold distinct nodes.
func TestQuorumSafety(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.IntRange(0, 4).Draw(t, "f")
		n := 3*f + 1 + rapid.IntRange(0, 4).Draw(t, "spare")
		q := NewQuorum(n, Threshold(n, f))
		winners := map[Vote]bool{}
		standing := map[int]Vote{}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			node := rapid.IntRange(0, n-1).Draw(t, "node")
			v := alphabet[rapid.IntRange(0, len(alphabet)-1).Draw(t, "vote")]
			if old, ok := standing[node]; ok && node >= f {
				v = old // nodes f.. are honest: they never contradict themselves
			}
			if s := q.Vote(node, v); s == Counted || s == Moved {
				standing[node] = v
			}
			if agreed, ok := q.Agreed(); ok {
				winners[agreed] = true
				behind := 0
				for _, w := range standing {
					if w == agreed {
						behind++
					}
				}
				require.GreaterOrEqual(t, behind, q.Threshold())
			}
		}
		require.LessOrEqual(t, len(winners), 1)
	})
}

// TestQuorumLiveness: with at most f nodes silent, lying or changing their minds and the others equal, the shard agrees with the others.
func TestQuorumLiveness(t *testing.T) {
	t.Parallel()
	for f := range 4 {
		for n := 3*f + 1; n <= 10; n++ {
			for faulty := 0; faulty <= f; faulty++ {
				forEachAssignment(faulty, 4, func(behaviour []int) {
					q := NewQuorum(n, Threshold(n, f))
					for node, b := range behaviour {
						switch b {
						case 1:
							q.Vote(node, result(2))
						case 2:
							q.Vote(node, failure(byte(node)))
						case 3:
							for i := range 20 {
								q.Vote(node, result(byte(i)))
							}
						}
					}
					for node := faulty; node < n; node++ {
						require.NotEqual(t, Impossible, q.State())
						q.Vote(node, result(1))
					}
					agreed, ok := q.Agreed()
					require.True(t, ok)
					require.Equal(t, result(1), agreed)
				})
			}
		}
	}
}

// forEachAssignment calls visit with every vector of length n over 0..k-1. The vector is reused.
func forEachAssignment(n, k int, visit func([]int)) {
	vector := make([]int, n)
	var fill func(int)
	fill = func(i int) {
		if i == n {
			visit(vector)
			return
		}
		for v := range k {
			vector[i] = v
			fill(i + 1)
		}
	}
	fill(0)
}

// forEachPermutation calls visit with every order of 0..n-1. The slice is reused.
func forEachPermutation(n int, visit func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var permute func(int)
	permute = func(i int) {
		if i == n {
			visit(order)
			return
		}
		for j := i; j < n; j++ {
			order[i], order[j] = order[j], order[i]
			permute(i + 1)
			order[i], order[j] = order[j], order[i]
		}
	}
	permute(0)
}
