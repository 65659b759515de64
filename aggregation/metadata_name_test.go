package aggregation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneName is a Metadata in which two nodes of a, colluding, have put ids under one name. The second then repeated them, that which the name leads to first: its next
// empty pull withdraws them in that order within one call.
func oneName(ids int) *Metadata {
	m := NewMetadata(MetadataConfig{DONs: worldDONs()})
	for i := range ids {
		m.Report("a.0", meta(i, 1, 1), start)
		m.Report("a.1", meta(i, 1, 1), start)
	}
	for i := range ids {
		m.Report("a.1", meta(ids-1-i, 1, 1), start)
	}
	m.BeginPull("a.1", at(1))
	return m
}

// twoDONsOneName is a Metadata in which two nodes of a, and after them two of b, have put ids under one name. An empty pull of a.1 withdraws a's, the first first.
func twoDONsOneName(ids int) *Metadata {
	m := NewMetadata(MetadataConfig{DONs: worldDONs()})
	for i := range ids {
		m.Report("a.0", meta(i, 1, 1), start)
		m.Report("a.1", meta(i, 1, 1), start)
	}
	for i := range ids {
		m.Report("b.0", meta(ids+i, 1, 1), start)
		m.Report("b.1", meta(ids+i, 1, 1), start)
	}
	m.BeginPull("a.1", at(1))
	return m
}

// vainClaims is a Metadata in which a owns ids, b claims them under a name that c owns with another id, and c gives the name up and takes it again as often as b has claims:
// these could not have it even then.
func vainClaims(ids int) *Metadata {
	m := NewMetadata(MetadataConfig{DONs: append(worldDONs(), DONSpec{Name: "c", Shards: []ShardSpec{{ID: "c", F: 1, Nodes: []string{"c.0", "c.1"}}}})})
	m.Report("c.0", meta(ids, 1, 1), start)
	m.Report("c.1", meta(ids, 1, 1), start)
	for i := range ids {
		for _, n := range []string{"a.0", "a.1"} {
			m.Report(n, meta(i, 2, 1), start)
		}
		for _, n := range []string{"b.0", "b.1"} {
			m.Report(n, meta(i, 1, 1), start)
		}
	}
	return m
}

// hostileNames are ways to make one name costly, each a preparation with a number of ids and what is then done under the lock.
var hostileNames = map[string]struct {
	prepare func(ids int) *Metadata
	do      func(m *Metadata, ids int)
}{
	"newest withdrawn first": {oneName, func(m *Metadata, _ int) { m.EndPull("a.1", at(2)) }},
	"claims of two DONs":     {twoDONsOneName, func(m *Metadata, _ int) { m.EndPull("a.1", at(2)) }},
	"claims that wait in vain": {vainClaims, func(m *Metadata, ids int) {
		for range ids / 2 {
			m.Report("c.1", meta(ids, 3, 1), start)
			m.Report("c.1", meta(ids, 1, 1), start)
		}
	}},
}

// TestMetadataNameLeadsToTheNewestLeft withdraws many ids of one name in random order, and brings some back.
func TestMetadataNameLeadsToTheNewestLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ids = 300
	random := rand.New(rand.NewPCG(1, 2))
	order := map[int]int{} // id -> when it came under the name
	for i := range ids {
		w.say("a", meta(i, 1, 1), 0, 1)
		order[i] = i
	}
	for step := range 2 * ids {
		id := random.IntN(ids)
		switch _, there := order[id]; {
		case there && step%3 > 0:
			w.say("a", meta(id, 2, 1), 1) // under another name, with one node
			delete(order, id)
		case there:
			w.say("a", meta(id, 1, 1, 2), 0, 1) // a rotation
		default:
			w.say("a", meta(id, 3, 1), 0, 1)
			w.say("a", meta(id, 1, 1), 0, 1)
			order[id] = ids + step
		}
		newest := -1
		for id, when := range order {
			if newest < 0 || when > order[newest] {
				newest = id
			}
		}
		require.Equal(t, newest, w.named(1), "step %d", step)
	}
}

// TestMetadataNameGivesMemoryBack: a name that once had many ids and claims does not keep the room for them, which is not counted.
func TestMetadataNameGivesMemoryBack(t *testing.T) {
	t.Parallel()
	m := oneName(5000)
	one := meta(0, 1, 1)
	key := keyOf(&one.Selector)
	r := m.references[key]
	require.Len(t, r.shown, 5000)
	require.Len(t, r.open, 5000)
	m.Report("a.1", meta(7, 1, 1), at(2))
	m.EndPull("a.1", at(3))
	require.Len(t, r.shown, 1)
	require.Less(t, cap(r.shown), 32)
	require.Less(t, cap(r.open), 32)
	require.Equal(t, fmt.Sprintf("0x%064x", 7), m.View().ByReference(key.owner, key.nameHash, key.tag).ID)
}

// BenchmarkMetadataHostileName is each of hostileNames with 10 000 ids.
func BenchmarkMetadataHostileName(b *testing.B) {
	for name, c := range hostileNames {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m := c.prepare(10_000)
				b.StartTimer()
				c.do(m, 10_000)
			}
		})
	}
}
