package aggregation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTriggerAllocations(t *testing.T) {
	var tr *Trigger
	fresh := func() { tr = newTestTrigger(2) }
	fresh()
	tr.Vote(0, 0, result(1), at(1))
	node := 0
	allocs := testing.AllocsPerRun(2, func() {
		node++
		tr.Vote(0, node%2, result(1), at(1))
		tr.Decide(at(1))
	})
	require.Zero(t, allocs, "a vote for a known group costs no allocation")
}

func BenchmarkQuorumVote(b *testing.B) {
	b.ReportAllocs()
	const n = 16
	q := NewQuorum(n, Threshold(n, 5))
	blank := make([]member, n)
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			copy(q.members, blank)
			q.groups, q.answered, q.silent = q.groups[:0], 0, n
		}
		q.Vote(i%n, result(byte(i%n/15)))
	}
}

// BenchmarkTrigger is one whole request over two shards of four: eight votes at most, a decision asked after each.
func BenchmarkTrigger(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		tr := newTestTrigger(2)
		for i := range 8 {
			tr.Vote(i%2, i/2, result(1), at(1))
			tr.Decide(at(1))
		}
	}
}

func BenchmarkTriggerDecide(b *testing.B) {
	b.ReportAllocs()
	tr := newTestTrigger(2)
	voteAll(tr, 0, result(1), 1, 0, 1)
	voteAll(tr, 1, result(2), 1, 0, 1)
	now := at(2)
	for b.Loop() {
		tr.Decide(now)
	}
}
