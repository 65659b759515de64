package aggregation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/workflow"
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

// fullMetadata knows 100 000 workflows, agreed on by two nodes.
func fullMetadata(tb testing.TB) (*Metadata, []workflow.Metadata) {
	const workflows = 100_000
	m := NewMetadata(MetadataConfig{DONs: oneDON(1, 4, 1)})
	reports := make([]workflow.Metadata, workflows)
	for i := range reports {
		reports[i] = meta(i, i, 1, 2)
		m.Report(nodeName(0, 0), reports[i], start)
		m.Report(nodeName(0, 1), reports[i], start)
	}
	require.Equal(tb, workflows, m.View().Len())
	return m, reports
}

// TestMetadataReportIsCheap: among 100 000 workflows a report that changes the view, and the new view, cost far less than copying it would.
func TestMetadataReportIsCheap(t *testing.T) {
	m, reports := fullMetadata(t)
	i := 0
	rotate := func() {
		m.Report(nodeName(0, i%2), meta(i/2%len(reports), i/2%len(reports), 3), start) // every second one is an agreement
		m.View()
		i++
	}
	began := time.Now()
	const rounds = 1000
	for range rounds {
		rotate()
	}
	per := time.Since(began) / rounds
	t.Logf("%v for a report and the view", per)
	require.Less(t, per, 5*time.Millisecond)
	require.Less(t, testing.AllocsPerRun(100, rotate), 60.0)
}

func BenchmarkMetadataRotation(b *testing.B) {
	m, reports := fullMetadata(b)
	for i := range reports {
		reports[i] = meta(i, i, 3, 4)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Report(nodeName(0, i%2), reports[i/2%len(reports)], start)
		m.View()
	}
}

func BenchmarkMetadataRepetition(b *testing.B) {
	m, reports := fullMetadata(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Report(nodeName(0, 0), reports[i%len(reports)], start)
		m.View()
	}
}

// BenchmarkMetadataOneName is the worst case of names: 100 000 ids share one, and the newest goes and comes.
func BenchmarkMetadataOneName(b *testing.B) {
	const workflows = 100_000
	m := NewMetadata(MetadataConfig{DONs: oneDON(1, 4, 1)})
	for i := range workflows {
		m.Report(nodeName(0, 0), meta(i, 1, 1), start)
		m.Report(nodeName(0, 1), meta(i, 1, 1), start)
	}
	one, other := meta(workflows-1, 1, 1), meta(workflows-1, 2, 1)
	b.ReportAllocs()
	for b.Loop() {
		m.Report(nodeName(0, 0), other, start)
		m.Report(nodeName(0, 0), one, start)
		m.View()
	}
}

func BenchmarkViewByID(b *testing.B) {
	m, reports := fullMetadata(b)
	v := m.View()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if v.ByID(reports[i%len(reports)].Selector.WorkflowID) == nil {
			b.Fatal("not found")
		}
	}
}

func BenchmarkViewByReference(b *testing.B) {
	m, reports := fullMetadata(b)
	v := m.View()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := &reports[i%len(reports)].Selector
		if v.ByReference(s.WorkflowOwner, s.WorkflowName, s.WorkflowTag) == nil {
			b.Fatal("not found")
		}
	}
}

// BenchmarkMetadataCrowded is a round while nodes of eight DONs have filled the memory with what nobody agrees with: an honest node reports a workflow of 100 keys, for which
// some of that gives way, and withdraws it, and they fill the memory again.
func BenchmarkMetadataCrowded(b *testing.B) {
	c := MetadataConfig{MaxBytes: 8 << 20}
	for d := range 8 {
		sh := ShardSpec{ID: nodeName(d, 0), F: 1}
		for n := range 4 {
			sh.Nodes = append(sh.Nodes, nodeName(d, n))
		}
		c.DONs = append(c.DONs, DONSpec{Name: sh.ID, Shards: []ShardSpec{sh}})
	}
	m := NewMetadata(c)
	reports := make([]workflow.Metadata, 20_000)
	for i := range reports {
		reports[i] = meta(i, i, 1)
	}
	honest := meta(1<<20, 1<<20, manyKeys()...)
	next := 0
	fill := func(n int) {
		for range n {
			m.Report(nodeName(1+next%7, next/7%4), reports[next%len(reports)], start)
			next++
		}
	}
	fill(len(reports))
	b.ReportAllocs()
	before := m.refused
	for b.Loop() {
		if m.Report("a0", honest, start) != Accepted {
			b.Fatal("refused")
		}
		m.BeginPull("a0", start)
		m.EndPull("a0", start)
		fill(6)
	}
	b.ReportMetric(float64(m.refused-before)/float64(b.N), "withdrawn/op")
}
