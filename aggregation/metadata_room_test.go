package aggregation

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/workflow"
)

// manyKeys are as many keys as a workflow can have.
func manyKeys() []int {
	keys := make([]int, 100)
	for i := range keys {
		keys[i] = i + 1
	}
	return keys
}

// bigCost is what a DON uses for a workflow of manyKeys that one node reports.
var bigCost = aloneCost + formBytes(100)

// big is workflow number id with manyKeys, under a reference of its own.
func big(id int) workflow.Metadata { return meta(id, id, manyKeys()...) }

// crowd is a Metadata of DONs d0, d1, ... with one shard each, all of n nodes of which f may be faulty, with room for as many big workflows reported by one node.
func crowd(t *testing.T, dons, n, f, room int) *world {
	return newWorld(t, func(c *MetadataConfig) {
		c.DONs, c.MaxPerNode, c.MaxBytes = nil, 10_000, int64(room)*bigCost
		for d := range dons {
			sh := ShardSpec{ID: fmt.Sprint("d", d), F: f}
			for i := range n {
				sh.Nodes = append(sh.Nodes, fmt.Sprint("d", d, ".", i))
			}
			c.DONs = append(c.DONs, DONSpec{Name: sh.ID, Shards: []ShardSpec{sh}})
		}
	})
}

// fill lets a node report big workflows that no other node reports until one is refused or n are accepted, and returns how many were.
func (w *world) fill(node string, first, n int) int {
	for i := range n {
		if w.Report(node, big(first+i), at(w.now)) == RefusedBytesFull {
			return i
		}
	}
	return n
}

func (w *world) requireBounded() {
	w.t.Helper()
	require.LessOrEqual(w.t, w.Stats().Bytes, w.maxBytes)
	require.LessOrEqual(w.t, w.taken, w.maxBytes)
}

// TestMetadataFaultyNodesKeepNoRoom: one faulty node in each DON, as f allows, says as much as it can. It costs the honest ones nothing: neither a new workflow nor
// a rotation nor a whole DON's metadata is refused.
func TestMetadataFaultyNodesKeepNoRoom(t *testing.T) {
	t.Parallel()
	w := crowd(t, 5, 4, 1, 200) // a part is room for 20
	w.say("d0", meta(1, 1, 1), 0, 1, 2)
	for d := range 5 {
		w.fill(fmt.Sprint("d", d, ".3"), 1000*(d+1), 1000)
	}
	require.Greater(t, w.Stats().Bytes, w.maxBytes*8/10, "no room is left unused")
	refused := w.Stats().Refused
	require.GreaterOrEqual(t, refused, uint64(5))

	w.say("d0", big(2), 0, 1, 2)
	require.Equal(t, manyKeys(), w.keysOf(2), "a new workflow")
	for key := 2; key < 20; key++ {
		w.say("d0", meta(1, 1, key), 0)
		w.say("d0", meta(1, 1, key), 1)
		require.Equal(t, []int{key}, w.keysOf(1), "a rotation")
		w.say("d0", meta(1, 1, key), 2)
	}
	for id := 3; id < 100; id++ {
		w.say("d0", big(id), 0, 1, 2)
		require.NotNil(t, w.keysOf(id), "%d", id)
		w.requireBounded()
	}
	require.Equal(t, 99, w.View().Len(), "five times its part: what nobody agrees with gives way, wherever it is")
	require.Greater(t, w.Stats().Refused, refused)
}

// TestMetadataRestartAmongFaultyNodes: after a restart the first honest node says a lot that no other has said yet, and the faulty ones were first.
func TestMetadataRestartAmongFaultyNodes(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{"one node after the other": {0, 1, 2}, "the faulty node of the same DON between them": {0, 3, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			w := crowd(t, 5, 4, 1, 200)
			for d := range 5 {
				w.fill(fmt.Sprint("d", d, ".3"), 1000*(d+1), 1000)
			}
			for _, n := range order {
				if n == 3 {
					w.fill("d0.3", 9000, 1000)
					continue
				}
				for id := range 30 { // more than the DON's part
					w.say("d0", big(id), n)
				}
			}
			require.Equal(t, 30, w.View().Len())
			w.requireBounded()
		})
	}
}

// TestMetadataFaultyDONKeepsNoRoom: DONs whose nodes all collude, so that what they say is agreed on, take what is common, and nobody's part. Nor does it help them that a faulty
// node of the honest DON has filled its part before.
func TestMetadataFaultyDONKeepsNoRoom(t *testing.T) {
	t.Parallel()
	for _, helped := range []bool{false, true} {
		t.Run(fmt.Sprint("helped=", helped), func(t *testing.T) {
			w := crowd(t, 4, 4, 1, 160) // a part is room for 20
			if helped {
				w.fill("d0.3", 9000, 60)
			}
			full := 0
			for d := 1; d < 4; d++ {
				for id := 1000 * d; id < 1000*d+200; id++ {
					for _, n := range [][]int{{0, 1}, {2, 3}}[id%2] {
						if w.Report(fmt.Sprint("d", d, ".", n), big(id), at(0)) == RefusedBytesFull {
							full++
						}
					}
				}
			}
			require.Positive(t, full)
			require.Greater(t, w.View().Len(), 120, "they have all but d0's part")
			before := w.View().Len()
			for id := 1; id <= 18; id++ {
				w.say("d0", big(id), 0, 1, 2)
				require.NotNil(t, w.keysOf(id))
				w.say("d0", big(id), 0, 1, 2)
			}
			keys := append(manyKeys()[:99], 1000)
			w.say("d0", meta(1, 1, keys...), 0, 1, 2)
			require.Equal(t, keys, w.keysOf(1), "a rotation")
			require.Equal(t, before+18, w.View().Len(), "and nothing that was agreed on had to go")
			w.requireBounded()

			require.Less(t, w.fill("d0.0", 100, 10), 3, "past its part it finds nothing")
			require.Equal(t, before+18, w.View().Len())
		})
	}
}

// TestMetadataSharersArePaidForInFull: f colluding nodes of a shard say the same, withdraw it and say it again; that gives them no more room.
func TestMetadataSharersArePaidForInFull(t *testing.T) {
	t.Parallel()
	w := crowd(t, 1, 7, 2, 100)
	for id := 1000; id < 1100; id++ {
		for _, n := range []string{"d0.5", "d0.6"} {
			w.Report(n, big(id), at(0))
		}
	}
	require.EqualValues(t, w.nodes["d0.5"].charge, w.nodes["d0.6"].charge)
	require.Greater(t, w.nodes["d0.5"].charge, 90*bigCost)
	for id := range 88 {
		w.say("d0", big(id), 0, 1, 2, 3, 4)
		require.NotNil(t, w.keysOf(id))
		w.Report("d0.5", big(2000+id), at(0))
		w.Report("d0.6", big(2000+id), at(0))
		w.withdrawAll("d0", 5)
		w.Report("d0.5", big(3000+id), at(0))
		w.requireBounded()
	}
	require.Equal(t, 88, w.View().Len())
}

// TestMetadataGreediestNodeIsRefused: the node that has most of what nobody agrees with is refused, and takes nothing from others, whatever it withdraws and repeats.
func TestMetadataGreediestNodeIsRefused(t *testing.T) {
	t.Parallel()
	w := crowd(t, 2, 4, 1, 100)
	w.say("d0", big(1), 0)
	w.say("d0", big(2), 1, 2)
	w.say("d1", big(3), 0)
	w.fill("d0.3", 1000, 1000)
	held := w.Stats().Observations
	for i := range 200 {
		require.Equal(t, RefusedBytesFull, w.Report("d0.3", big(2000+i), at(0)))
	}
	require.Equal(t, held, w.Stats().Observations)
	require.EqualValues(t, 201, w.Stats().Refused)
	for range 3 {
		w.withdrawAll("d0", 3)
		w.fill("d0.3", 3000, 1000)
	}
	w.say("d0", big(1), 2)
	require.NotNil(t, w.keysOf(1), "the first one's word was still there")
	w.say("d1", big(3), 1)
	require.NotNil(t, w.keysOf(3))

	// Two of them end up with as much each.
	w.fill("d1.3", 5000, 1000)
	require.InDelta(t, w.nodes["d0.3"].charge, w.nodes["d1.3"].charge, float64(2*bigCost))
}

// TestMetadataOldestGivesWay: of the greediest node's reports the one that was longest not repeated goes first, and one that the others agree with stays.
func TestMetadataOldestGivesWay(t *testing.T) {
	t.Parallel()
	w := crowd(t, 1, 4, 1, 10)
	w.say("d0", big(1), 3, 0)
	accepted := w.fill("d0.3", 100, 20)
	w.say("d0", big(100), 3)          // repeated, so 101 is the oldest
	w.say("d0", meta(101, 101, 1), 1) // in other words
	require.Equal(t, 2+accepted+1, w.Stats().Observations)
	holds := func(id int) bool {
		return w.nodes["d0.3"].observations[w.subjects[big(id).Selector.WorkflowID]] != nil
	}
	w.say("d0", big(2), 0)
	require.False(t, holds(101))
	require.True(t, holds(100) && holds(1) && holds(102))
	require.NotNil(t, w.keysOf(1))
	w.say("d0", big(2), 1)
	require.NotNil(t, w.keysOf(2))
}

// TestMetadataRefusedReplacement: a node whose replacement finds no room does not hold its old word any more, and the others' words are untouched by that.
func TestMetadataRefusedReplacement(t *testing.T) {
	t.Parallel()
	w := crowd(t, 1, 4, 1, 10)
	w.say("d0", meta(1, 1, 1), 0, 1, 2, 3)
	for id := 2; w.Report("d0.0", big(id), at(0)) == Accepted && w.Report("d0.1", big(id), at(0)) == Accepted; id++ {
	}
	require.Greater(t, w.View().Len(), 8, "full of what is agreed on")
	require.Equal(t, RefusedBytesFull, w.Report("d0.3", meta(1, 1, manyKeys()...), at(0)))
	require.Equal(t, []int{1}, w.keysOf(1))
	require.Equal(t, RefusedBytesFull, w.Report("d0.2", meta(1, 1, manyKeys()...), at(0)))
	require.Equal(t, []int{1}, w.keysOf(1), "two are left")
	require.Equal(t, RefusedBytesFull, w.Report("d0.1", meta(1, 1, manyKeys()...), at(0)))
	require.Nil(t, w.keysOf(1), "the old keys do not stay valid for want of room")
	w.requireBounded()
}

// TestMetadataRoomAfterReload: the parts follow the configuration. A DON that finds the memory full of what others agreed on waits until they use less.
func TestMetadataRoomAfterReload(t *testing.T) {
	t.Parallel()
	w := crowd(t, 2, 4, 1, 100)
	two := []DONSpec{{Name: "d0", Shards: []ShardSpec{{ID: "d0", F: 1, Nodes: w.nodesOf("d0")}}}, {Name: "d1", Shards: []ShardSpec{{ID: "d1", F: 1, Nodes: w.nodesOf("d1")}}}}
	w.SetDONs(two[:1], at(1))
	require.Equal(t, w.maxBytes/8*4, w.dons[0].part)
	for id := range 90 {
		w.say("d0", big(id), 0, 1)
	}
	w.fill("d0.3", 1000, 100)
	w.SetDONs(two, at(2))
	require.Equal(t, w.maxBytes/16*4, w.dons[0].part)
	w.say("d1", big(500), 0, 1)
	require.NotNil(t, w.keysOf(500), "what d0.3 said gives way")
	require.Less(t, w.fill("d1.3", 2000, 100), 10)
	require.LessOrEqual(t, w.Stats().Bytes, w.maxBytes)
	w.withdrawAll("d0", 0, 1)
	for id := 501; id < 520; id++ {
		w.say("d1", big(id), 0, 1)
	}
	require.Equal(t, 20, w.View().Len())
	w.SetDONs(two[:1], at(3))
	require.Zero(t, w.Stats().Workflows)

	for id := range 78 {
		w.say("d0", big(id), 0, 1)
	}
	w.SetDONs(two, at(3))
	require.Greater(t, w.taken, w.maxBytes, "what d0 uses and d1's part")
	for id := 500; id < 515; id++ {
		w.say("d1", big(id), 0, 1) // there is enough left all the same
	}
	w.SetDONs(two[:1], at(3))
	w.SetDONs(nil, at(4))
	require.Zero(t, w.taken)
}

func (w *world) nodesOf(don string) (nodes []string) {
	for n := range 4 {
		nodes = append(nodes, fmt.Sprint(don, ".", n))
	}
	return nodes
}

// TestMetadataDONsDoNotDisturbEachOther plays what the nodes of a DON say once by itself and once among other DONs that say anything, the same included. As long as it keeps
// to its part, every report fares the same.
func TestMetadataDONsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		room := rapid.IntRange(1, 40).Draw(rt, "room")
		alone, among := crowd(t, 3, 4, 1, room), crowd(t, 3, 4, 1, room)
		within := true
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			don, n := rapid.IntRange(0, 2).Draw(rt, "don"), rapid.IntRange(0, 3).Draw(rt, "node")
			node := fmt.Sprint("d", don, ".", n)
			keys := manyKeys()[:rapid.SampledFrom([]int{1, 10, 100}).Draw(rt, "keys")]
			m := meta(rapid.IntRange(1, 10).Draw(rt, "id"), rapid.IntRange(1, 3).Draw(rt, "ref"), keys...)
			if don > 0 {
				among.Report(node, m, at(0))
				continue
			}
			if rapid.IntRange(0, 9).Draw(rt, "withdraw") == 0 {
				alone.withdrawAll("d0", n)
				among.withdrawAll("d0", n)
				continue
			}
			want := alone.Report(node, m, at(0))
			within = within && alone.Metadata.dons[0].used <= alone.Metadata.dons[0].part && want == Accepted
			got := among.Report(node, m, at(0))
			if !within {
				return
			}
			require.Equal(rt, want, got)
			require.Equal(rt, alone.Metadata.dons[0].used, among.Metadata.dons[0].used)
			require.LessOrEqual(rt, among.Stats().Bytes, among.maxBytes)
		}
	})
}

// TestMetadataHonestNodesAreNeverRefused lets a faulty node in each of two DONs say, repeat and withdraw anything in between what the honest nodes say. As long as that fits, none of
// it is refused, and all is known as soon as two nodes have said it.
func TestMetadataHonestNodesAreNeverRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const fits = 6 // big workflows of each DON
		w := crowd(t, 2, 4, 1, 2*(fits+2))
		faulty := func() {
			for range rapid.IntRange(0, 4).Draw(rt, "faulty reports") {
				d := rapid.IntRange(0, 1).Draw(rt, "faulty of")
				if rapid.IntRange(0, 9).Draw(rt, "withdraw") == 0 {
					w.withdrawAll(fmt.Sprint("d", d), 3)
				}
				keys := manyKeys()[:rapid.SampledFrom([]int{1, 99, 100}).Draw(rt, "keys")]
				id := rapid.IntRange(0, 40).Draw(rt, "faulty id")
				w.Report(fmt.Sprintf("d%d.3", d), meta(id, id, keys...), at(0))
			}
		}
		// What each DON's honest nodes agree on: ids d*20, d*20+1, ... of which some go again.
		known := [2]map[int]bool{{}, {}}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			d := rapid.IntRange(0, 1).Draw(rt, "don")
			don, id := fmt.Sprint("d", d), 20*d+rapid.IntRange(0, 19).Draw(rt, "id")
			if !known[d][id] && len(known[d]) == fits {
				for n := range 3 {
					w.BeginPull(fmt.Sprint(don, ".", n), at(0))
					for other := range 40 {
						if known[d][other] && other%2 > 0 {
							require.Equal(rt, Accepted, w.Report(fmt.Sprint(don, ".", n), big(other), at(0)))
						}
					}
					w.EndPull(fmt.Sprint(don, ".", n), at(0))
				}
				for other := range 40 {
					if other%2 == 0 {
						delete(known[d], other)
					}
				}
				continue
			}
			known[d][id] = true
			for i, n := range rapid.Permutation([]int{0, 1, 2}).Draw(rt, "order") {
				require.Equal(rt, Accepted, w.Report(fmt.Sprint(don, ".", n), big(id), at(0)))
				if i == 0 {
					faulty()
					continue
				}
				st := w.subjects[big(id).Selector.WorkflowID].party(w.Metadata.dons[d]).standings[0]
				require.NotNil(rt, st.current)
				require.Len(rt, st.current.keys, 100)
			}
			faulty()
			require.LessOrEqual(rt, w.Stats().Bytes, w.maxBytes)
		}
	})
}
