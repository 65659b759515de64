package aggregation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/workflow"
)

// meta is normalised metadata of workflow number id under reference number ref, authorising the given keys.
func meta(id, ref int, keys ...int) workflow.Metadata {
	w := workflow.Metadata{Selector: workflow.Selector{
		WorkflowID: fmt.Sprintf("0x%064x", id), WorkflowOwner: fmt.Sprintf("0x%040x", ref), WorkflowName: workflow.HashName(fmt.Sprint(ref)), WorkflowTag: "v1",
	}}
	for _, k := range keys {
		w.AuthorizedKeys = append(w.AuthorizedKeys, workflow.Key{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: fmt.Sprintf("0x%040x", k)})
	}
	if err := w.Normalize(); err != nil {
		panic(err)
	}
	return w
}

// reloads are the configurations that the random histories switch between: nodes and shards come, go and move, f changes, a DON disappears.
var reloads = [][]DONSpec{
	{
		{Name: "a", Shards: []ShardSpec{{ID: "a", F: 1, Nodes: []string{"n0", "n1", "n2", "n3"}}, {ID: "a_1", F: 1, Nodes: []string{"n4", "n5", "n6"}}}},
		{Name: "b", Shards: []ShardSpec{{ID: "b", F: 0, Nodes: []string{"n7", "n8"}}}},
	},
	{
		{Name: "a", Shards: []ShardSpec{{ID: "a_1", F: 0, Nodes: []string{"n4", "n5", "n6"}}, {ID: "a", F: 1, Nodes: []string{"n0", "n1", "n2"}}}},
		{Name: "b", Shards: []ShardSpec{{ID: "b", F: 1, Nodes: []string{"n7", "n8", "n3"}}}},
	},
	{
		{Name: "b", Shards: []ShardSpec{{ID: "b", F: 0, Nodes: []string{"n7", "n8"}}, {ID: "b_1", F: 0, Nodes: []string{"n6"}}}},
		{Name: "a", Shards: []ShardSpec{{ID: "a", F: 2, Nodes: []string{"n0", "n1", "n2", "n3", "n4"}}}},
	},
	{
		{Name: "a", Shards: []ShardSpec{{ID: "a", F: 0, Nodes: []string{"n0", "n1", "n2", "n3"}}, {ID: "a_1", F: 1, Nodes: []string{"n4", "n5", "n6"}}}},
	},
}

func requireSameView(t require.TestingT, twin *metadataTwin, m *Metadata) {
	byID, byName := twin.view()
	v := m.View()
	require.Equal(t, len(byID), v.Len())
	keys := 0
	for id, want := range byID {
		got := v.ByID(id)
		require.NotNil(t, got, id)
		require.Equal(t, want, *got)
		keys += len(want.Keys)
	}
	listed := 0
	for w := range v.All() {
		require.Same(t, v.ByID(w.ID), w)
		listed++
	}
	require.Equal(t, len(byID), listed)
	for ref := range 4 {
		key := keyOf(&[]workflow.Metadata{meta(0, ref, 1)}[0].Selector)
		got := v.ByReference(key.owner, key.nameHash, key.tag)
		if want, ok := byName[key]; ok {
			require.NotNil(t, got)
			require.Equal(t, want, got.ID)
			require.Same(t, v.ByID(want), got)
		} else {
			require.Nil(t, got)
		}
	}
	require.Equal(t, MetadataStats{
		Workflows: len(byID), Keys: keys, Observations: twin.observations(), Conflicts: twin.conflicts, Refused: twin.refused, Bytes: twin.bytes(),
	}, m.Stats())
	for i, d := range twin.dons {
		require.Equal(t, twin.used(d), m.dons[i].used, d.Name)
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				require.Equal(t, twin.charge(n), m.nodes[n].charge, n)
			}
		}
	}
}

// TestMetadataAgainstTwin plays random histories of reports, pulls, expiry and reloads to Metadata and to its dumb twin and compares view and counts after each step. A second
// Metadata that gets the same calls must come to the same: its maps iterate in another order.
func TestMetadataAgainstTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := MetadataConfig{DONs: reloads[0], MaxPerNode: 3, Expiry: 50 * time.Millisecond}
		c.MaxBytes = rapid.SampledFrom([]int64{0, 0, 2_000, 5_000, 10_000, 20_000}).Draw(t, "bytes")
		reloaded := false
		m, again, twin := NewMetadata(c), NewMetadata(c), newMetadataTwin(c)
		both := []*Metadata{m, again}
		ms := 0
		// A history keeps to few forms, so that shards agree often.
		ids, refs, sets := rapid.IntRange(1, 4).Draw(t, "ids"), rapid.IntRange(1, 3).Draw(t, "refs"), rapid.IntRange(1, 4).Draw(t, "sets")
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			ms += max(0, rapid.IntRange(-20, 5).Draw(t, "pause"))
			now := at(ms)
			node := fmt.Sprint("n", rapid.IntRange(0, 9).Draw(t, "node"))
			switch rapid.IntRange(0, 24).Draw(t, "what") {
			case 0:
				each(both, func(m *Metadata) { m.BeginPull(node, now) })
				twin.beginPull(node, now)
			case 1:
				each(both, func(m *Metadata) { m.EndPull(node, now) })
				twin.endPull(node, now)
			case 2:
				each(both, func(m *Metadata) { m.AbandonPull(node) })
				twin.abandonPull(node)
			case 3:
				each(both, func(m *Metadata) { m.Expire(now) })
				twin.expire(now)
			case 4:
				reloaded = true
				dons := reloads[rapid.IntRange(0, len(reloads)-1).Draw(t, "reload")]
				each(both, func(m *Metadata) { m.SetDONs(dons, now) })
				twin.setDONs(dons, now)
			default:
				keys := []int{1, 2, 3, 4, 5, 6, 7, 8}[:rapid.IntRange(1, sets).Draw(t, "keys")]
				w := meta(rapid.IntRange(1, ids).Draw(t, "id"), rapid.IntRange(1, refs).Draw(t, "ref"), keys...)
				want := twin.report(node, w, now)
				each(both, func(m *Metadata) { require.Equal(t, want, reportAsEstimated(t, m, node, w, now)) })
			}
			requireSameView(t, twin, m)
			if c.MaxBytes > 0 && !reloaded {
				require.LessOrEqual(t, m.Stats().Bytes, c.MaxBytes)
			}
		}
		requireSameView(t, twin, again)
		var one, two []*Workflow
		one, two = slices.Collect(m.View().All()), slices.Collect(again.View().All())
		require.ElementsMatch(t, one, two)
	})
}

// reportAsEstimated reports w and compares what that takes with what was foretold.
func reportAsEstimated(t require.TestingT, m *Metadata, node string, w workflow.Metadata, now time.Time) ReportStatus {
	n := m.nodes[node]
	if n == nil {
		return m.Report(node, w, now)
	}
	d := n.shard.don
	o := n.observations[m.subjects[w.Selector.WorkflowID]]
	same := o != nil && o.form.digest == w.Digest()
	bytes, charge := m.estimate(n, w.Digest(), &w)
	used, refused := d.used, m.refused
	status := m.Report(node, w, now)
	if status != Accepted || same || m.refused != refused {
		return status
	}
	require.Equal(t, bytes, d.used-used)
	if o = n.observations[m.subjects[w.Selector.WorkflowID]]; o.alone {
		require.Equal(t, charge, n.charge)
	} else {
		require.Zero(t, charge)
	}
	return status
}

func each(all []*Metadata, do func(*Metadata)) {
	for _, m := range all {
		do(m)
	}
}
