package aggregation

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/workflow"
)

// owner names the DON that workflow number id belongs to, "" if it is not known.
func (w *world) ownerOf(id int) string {
	if known := w.View().ByID(meta(id, 0, 1).Selector.WorkflowID); known != nil {
		return known.DON
	}
	return ""
}

// named returns the id number that reference number ref leads to, -1 if to none.
func (w *world) named(ref int) int {
	key := keyOf(&[]workflow.Metadata{meta(0, ref, 1)}[0].Selector)
	known := w.View().ByReference(key.owner, key.nameHash, key.tag)
	if known == nil {
		return -1
	}
	var n int
	_, err := fmt.Sscanf(known.ID, "0x%x", &n)
	require.NoError(w.t, err)
	return n
}

func (w *world) shardsOf(id int) []string {
	return w.View().ByID(meta(id, 0, 1).Selector.WorkflowID).Shards
}

// withdraw lets nodes of a shard answer a pull with nothing.
func (w *world) withdrawAll(shard string, nodes ...int) {
	for _, n := range nodes {
		w.BeginPull(fmt.Sprint(shard, ".", n), at(w.now))
		w.EndPull(fmt.Sprint(shard, ".", n), at(w.now))
	}
}

// conformance: 6.merge.assigned
func TestMetadataAssignedShards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a_1", meta(1, 1, 1), 0, 1)
	require.Equal(t, []string{"a_1"}, w.shardsOf(1))
	w.say("a", meta(1, 1, 2), 0, 1)
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1), "other keys, but the same workflow")
	w.say("a", meta(1, 2, 2), 0, 1)
	require.Equal(t, []string{"a"}, w.shardsOf(1), "under another name it is not")
	w.say("a_1", meta(1, 2, 2), 0, 1)
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1))
	w.withdrawAll("a", 0, 1)
	require.Equal(t, []string{"a_1"}, w.shardsOf(1))
}

// conformance: 6.merge.newest
func TestMetadataKeyRotationInEitherOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"a", "a_1"}, {"a_1", "a"}} {
		w := newWorld(t)
		w.say("a", meta(1, 1, 1), 0, 1, 2, 3)
		w.say("a_1", meta(1, 1, 1), 0, 1, 2, 3)
		w.say(order[0], meta(1, 1, 2), 0)
		require.Equal(t, []int{1}, w.keysOf(1))
		w.say(order[0], meta(1, 1, 2), 1)
		require.Equal(t, []int{2}, w.keysOf(1), "at once with the first shard")
		require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1))
		w.say(order[1], meta(1, 1, 1), 0, 1, 2, 3)
		require.Equal(t, []int{2}, w.keysOf(1), "the other shard's repetitions are no news")
		w.say(order[1], meta(1, 1, 2), 0, 1)
		require.Equal(t, []int{2}, w.keysOf(1))
		w.say(order[0], meta(1, 1, 1), 2, 3)
		w.say(order[1], meta(1, 1, 1), 2, 3)
		require.Equal(t, []int{2}, w.keysOf(1))
	}
}

// conformance: 6.recency
func TestMetadataRepetitionDoesNotRenewRecency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a_1", meta(1, 1, 1), 0, 1)
	w.say("a", meta(1, 1, 2), 0, 1)
	w.withdrawAll("a_1", 0)
	require.Equal(t, []string{"a"}, w.shardsOf(1), "the laggards' shard lapses")
	w.say("a_1", meta(1, 1, 1), 0)
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1), "and comes back")
	require.Equal(t, []int{2}, w.keysOf(1), "with keys that are no newer than they were")
	w.withdrawAll("a_1", 0, 1)
	w.say("a_1", meta(1, 1, 1), 2, 3)
	require.Equal(t, []int{2}, w.keysOf(1), "nor are they in the mouth of other nodes of the shard")
}

// TestMetadataLateShardIsNoNews: a shard that agrees for the first time, on what another shard has superseded, is late and not newer.
func TestMetadataLateShardIsNoNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a", meta(1, 1, 2), 0, 1)
	w.say("a_1", meta(1, 1, 1), 0, 1)
	require.Equal(t, []int{2}, w.keysOf(1))
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1))
	w.say("a_1", meta(1, 1, 3), 0, 1)
	require.Equal(t, []int{3}, w.keysOf(1), "unheard-of keys are news")
}

func TestMetadataRotateBack(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"a", "a_1"}, {"a_1", "a"}} {
		w := newWorld(t)
		for _, keys := range []int{1, 2, 1, 2, 3, 1} {
			for _, shard := range order {
				w.say(shard, meta(1, 1, keys), 0, 1, 2, 3)
				require.Equal(t, []int{keys}, w.keysOf(1), "all nodes of the first shard moved")
			}
		}
	}
}

// conformance: 6.merge.conflict
// conformance: 6.merge.owner
func TestMetadataForeignClaimsAreDropped(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]workflow.Metadata{
		"the id":                       meta(1, 9, 666),
		"the reference":                meta(9, 1, 666),
		"the keys":                     meta(1, 1, 666),
		"the keys, adding to them":     meta(1, 1, 1, 666),
		"the id under a name of a's":   meta(1, 2, 666),
		"a name of a's for a's own id": meta(2, 1, 666),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.say("a", meta(1, 1, 1), 0, 1)
			w.say("a_1", meta(2, 2, 2), 0, 1)
			w.say("b", claim, 0, 1, 2, 3)
			check := func() {
				require.Equal(t, 2, w.View().Len())
				require.Equal(t, []int{1}, w.keysOf(1))
				require.Equal(t, []int{2}, w.keysOf(2))
				require.Equal(t, 1, w.named(1))
				require.Equal(t, 2, w.named(2))
				require.Equal(t, -1, w.named(9))
				require.Equal(t, "a", w.ownerOf(1))
			}
			check()
			require.EqualValues(t, 1, w.Stats().Conflicts)
			w.withdrawAll("b", 0, 1, 2, 3)
			w.say("b", claim, 0, 1)
			check()
			require.EqualValues(t, 2, w.Stats().Conflicts)
		})
	}
}

// TestMetadataForeignClaimOwnsNothing: a claim that was dropped for one half does not keep the other half from its later, honest owner.
func TestMetadataForeignClaimOwnsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("b", meta(1, 7, 666), 0, 1)
	w.say("a", meta(7, 7, 1), 0, 1)
	require.Equal(t, 7, w.named(7))
	require.Equal(t, "a", w.ownerOf(7))
}

// TestMetadataRotationWithoutSpareNodes: with only f+1 nodes reporting there is a moment in a rotation at which neither keys have f+1. Nothing is known then, and a DON that lies in wait
// gets nothing.
func TestMetadataRotationWithoutSpareNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("b", meta(1, 9, 666), 0, 1)
	w.say("b", meta(9, 1, 666), 0, 1)
	w.say("a", meta(1, 1, 2), 0)
	require.Zero(t, w.View().Len())
	w.say("a", meta(1, 1, 2), 1)
	require.Equal(t, []int{2}, w.keysOf(1))
	require.Equal(t, "a", w.ownerOf(1))
	require.Equal(t, 1, w.named(1))
}

// conformance: 6.merge.owner
func TestMetadataTakeoverOnceUnsupported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a_1", meta(1, 1, 1), 0, 1)
	w.say("b", meta(1, 1, 5), 0, 1)
	w.say("b", meta(8, 1, 5), 0, 1)
	w.withdrawAll("a", 0, 1)
	require.Equal(t, "a", w.ownerOf(1), "one shard still supports it")
	w.withdrawAll("a_1", 1)
	require.Equal(t, "b", w.ownerOf(1), "the last one does not")
	require.Equal(t, []int{5}, w.keysOf(1))
	require.Equal(t, "b", w.ownerOf(8))
	require.Equal(t, []string{"b"}, w.shardsOf(8))
	require.Equal(t, 8, w.named(1))
	w.say("a", meta(1, 1, 1), 0, 1)
	require.Equal(t, "b", w.ownerOf(1), "and now it is b's")
}

// TestMetadataHandOverInOrder: of several DONs in wait the one that agreed first gets what becomes free.
// conformance: 6.merge.owner
func TestMetadataHandOverInOrder(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"b", "c"} {
		second := map[string]string{"b": "c", "c": "b"}[first]
		w := newWorld(t, func(c *MetadataConfig) {
			c.DONs = append(c.DONs, DONSpec{Name: "c", Shards: []ShardSpec{{ID: "c", F: 1, Nodes: []string{"c.0", "c.1"}}}})
		})
		w.say("a", meta(1, 1, 1), 0, 1)
		w.say(first, meta(1, 2, 1), 0, 1)
		w.say(second, meta(1, 3, 1), 0, 1)
		w.say(second, meta(4, 1, 1), 0, 1)
		w.withdrawAll("a", 0)
		require.Equal(t, first, w.ownerOf(1))
		require.Equal(t, second, w.ownerOf(4), "each gets what is free")
		require.Equal(t, -1, w.named(3))
	}
}

// conformance: 6.merge.reference
func TestMetadataOneReferenceTwoIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a_1", meta(2, 1, 2), 0, 1)
	require.Equal(t, 2, w.named(1))
	require.Equal(t, []int{1}, w.keysOf(1))
	require.Equal(t, []int{2}, w.keysOf(2))
	w.say("a", meta(1, 1, 3), 0, 1)
	require.Equal(t, 2, w.named(1), "new keys do not make the older version the newer one")
	w.say("a", meta(3, 1, 1), 0, 1)
	require.Equal(t, 3, w.named(1))
	w.withdrawAll("a_1", 0, 1)
	require.Equal(t, 3, w.named(1))
	require.Nil(t, w.keysOf(2))
	w.BeginPull("a.0", at(1))
	w.say("a", meta(1, 1, 3), 0)
	w.EndPull("a.0", at(1))
	require.Equal(t, 1, w.named(1), "the newest that is left")
	w.withdrawAll("a", 0)
	require.Equal(t, -1, w.named(1))
}

// conformance: 6.view.whole
func TestMetadataViewIsImmutable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Nil(t, w.View().ByID("0x"))
	require.Nil(t, w.View().ByReference("", "", ""))
	require.Empty(t, slices.Collect(w.View().All()))
	sent := meta(1, 1, 1)
	w.say("a", sent, 0, 1)
	before := w.View()
	require.Same(t, before, w.View())
	sent.AuthorizedKeys[0].PublicKey = "altered by the caller"
	w.say("a", meta(1, 1, 1), 2, 3)
	require.Same(t, before, w.View(), "nothing changed")
	known := before.ByID(sent.Selector.WorkflowID)
	copied := *known
	copied.Keys, copied.Shards = slices.Clone(known.Keys), slices.Clone(known.Shards)

	w.say("a", meta(1, 1, 2), 0, 1, 2, 3)
	w.say("a_1", meta(1, 1, 2), 0, 1)
	for i := 2; i < 500; i++ {
		w.say("a", meta(i, i, 1), 0, 1)
	}
	require.Equal(t, 1, before.Len())
	require.Same(t, known, before.ByID(known.ID))
	require.Same(t, known, before.ByReference(known.Owner, known.NameHash, known.Tag))
	require.Equal(t, copied, *known)
	require.Equal(t, []*Workflow{known}, slices.Collect(before.All()))
	require.Equal(t, 499, w.View().Len())
	for range w.View().All() {
		break
	}
}

// TestMetadataViewConcurrentReaders is for the race detector: readers hold views while the writer goes on.
func TestMetadataViewConcurrentReaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	views := make(chan *View)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for v := range views {
				n := 0
				for known := range v.All() {
					n++
					if v.ByID(known.ID) != known || v.ByReference(known.Owner, known.NameHash, known.Tag) != known {
						t.Errorf("half a view: %s", known.ID)
					}
				}
				if n != v.Len() {
					t.Errorf("%d workflows listed, %d counted", n, v.Len())
				}
			}
		})
	}
	for i := range 300 {
		w.say("a", meta(i%50, i%50, i), 0, 1)
		if i%7 == 0 {
			w.withdrawAll("a", 0)
		}
		views <- w.View()
	}
	close(views)
	wg.Wait()
}

// conformance: 6.merge.deterministic
func TestMetadataIsDeterministic(t *testing.T) {
	t.Parallel()
	play := func() (out []string) {
		w := newWorld(t)
		// Many contested ids and names, then everything of a's goes at once: what others get depends on the order in which it is handed on.
		for i := range 40 {
			w.say("a", meta(i, i, 1), 0, 1)
			w.say("a_1", meta(i, i, i), 0, 1)
			w.say("b", meta(i, (i+1)%40, 2), 0, 1)
			w.say("b", meta(100+i, i, 2), 2, 3)
		}
		w.SetDONs(worldDONs()[1:], at(1))
		for known := range w.View().All() {
			out = append(out, fmt.Sprint(*known, " ", w.View().ByReference(known.Owner, known.NameHash, known.Tag).ID))
		}
		require.NotEmpty(t, out)
		slices.Sort(out)
		return out
	}
	want := play()
	for range 10 {
		require.Equal(t, want, play())
	}
}

func TestMetadataReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a_1", meta(1, 1, 1), 0, 1, 2)
	w.say("b", meta(1, 1, 2), 0, 1)
	w.say("b", meta(2, 2, 2), 0, 1)

	dons := worldDONs()
	w.SetDONs(dons, at(1))
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1), "nothing changed")

	dons[0].Shards[0].Nodes = dons[0].Shards[0].Nodes[1:] // a.0 removed
	w.SetDONs(dons, at(2))
	require.Equal(t, []string{"a_1"}, w.shardsOf(1))
	require.Equal(t, UnknownNode, w.Report("a.0", meta(1, 1, 1), at(2)))

	dons[0].Shards[0].Nodes = append(dons[0].Shards[0].Nodes, "a_1.0") // moved to the other shard
	dons[0].Shards[1].Nodes = dons[0].Shards[1].Nodes[1:]
	w.SetDONs(dons, at(3))
	require.Equal(t, []string{"a_1"}, w.shardsOf(1), "what it said in the old shard does not count in the new")
	require.Equal(t, Accepted, w.Report("a_1.0", meta(1, 1, 1), at(3)))
	require.Equal(t, []string{"a", "a_1"}, w.shardsOf(1))

	dons[0].Shards[0].F, dons[0].Shards[1].F = 2, 2
	w.SetDONs(dons, at(4))
	require.Equal(t, "b", w.ownerOf(1), "with a greater f nobody of a supports it")
	dons[0].Shards[0].F, dons[0].Shards[1].F = 1, 1
	w.SetDONs(dons, at(5))
	require.Equal(t, "b", w.ownerOf(1))

	w.SetDONs(dons[:1], at(6))
	require.Equal(t, "a", w.ownerOf(1), "DON b is gone and with it its claims")
	require.Nil(t, w.keysOf(2))

	dons[0].Shards[0], dons[0].Shards[1] = dons[0].Shards[1], dons[0].Shards[0]
	w.SetDONs(dons[:1], at(7))
	require.Equal(t, []string{"a_1", "a"}, w.shardsOf(1), "the order of the configuration")

	w.SetDONs(nil, at(8))
	require.Zero(t, w.View().Len())
	s := w.Stats()
	require.Zero(t, s.Bytes)
	require.Zero(t, s.Observations)
}
