package aggregation

import (
	"fmt"
	"slices"
	"time"

	"dongate/workflow"
)

// metadataTwin is the dumb twin of Metadata: no interning, no indexes, no incremental anything. After every single change of an observation it counts all of them
// anew and goes through every shard, claim and name.
type metadataTwin struct {
	maxPerNode int
	maxBytes   int64
	expiry     time.Duration
	dons       []DONSpec
	nodes      map[string]*twinNode
	standings  map[twinKey]*twinStanding
	pairs      map[[2]string]twinPair // DON, id
	idOwner    map[string]string
	refOwner   map[referenceKey]string
	seq, claim int
	stamps     int
	clock      time.Time
	conflicts  uint64
	refused    uint64
}

type twinNode struct {
	said    []twinObservation // the one longest not repeated first
	pull    int
	pulling bool
}

type twinObservation struct {
	w    workflow.Metadata
	seen time.Time
	pull int

	alone bool // fewer than f+1 nodes of the shard say it
	since int  // a number that is higher the later it began to be alone or was repeated
}

type twinKey struct{ don, shard, id string }

type twinStanding struct {
	order       []Digest // with support, by when that began
	current     *workflow.Metadata
	last        Digest
	seq         int
	superseded  []Digest
	seqOf       map[Digest]int
	holdsID     bool
	claimed     *referenceKey
	claimNumber int
}

type twinPair struct {
	reference referenceKey
	seq       int
}

func newMetadataTwin(c MetadataConfig) *metadataTwin {
	t := &metadataTwin{
		maxPerNode: c.MaxPerNode, maxBytes: c.MaxBytes, expiry: c.Expiry, nodes: map[string]*twinNode{}, standings: map[twinKey]*twinStanding{},
		pairs: map[[2]string]twinPair{}, idOwner: map[string]string{}, refOwner: map[referenceKey]string{},
	}
	t.adopt(c.DONs)
	return t
}

func (t *metadataTwin) adopt(dons []DONSpec) {
	t.dons = dons
	for _, d := range dons {
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				if t.nodes[n] == nil {
					t.nodes[n] = &twinNode{}
				}
			}
		}
	}
}

func (t *metadataTwin) report(node string, w workflow.Metadata, now time.Time) ReportStatus {
	n := t.nodes[node]
	if n == nil {
		return UnknownNode
	}
	t.advance(now)
	i := slices.IndexFunc(n.said, func(o twinObservation) bool { return o.w.Selector.WorkflowID == w.Selector.WorkflowID })
	if i < 0 && len(n.said) >= t.maxPerNode {
		t.refused++
		return RefusedNodeFull
	}
	if (i < 0 || n.said[i].w.Digest() != w.Digest()) && !t.room(node, w) {
		t.refused++
		t.withdraw(n, func(o twinObservation) bool { return o.w.Selector.WorkflowID == w.Selector.WorkflowID })
		return RefusedBytesFull
	}
	t.place(node, w)
	return Accepted
}

// place takes a report for which there is room.
func (t *metadataTwin) place(node string, w workflow.Metadata) {
	n := t.nodes[node]
	n.said = slices.DeleteFunc(n.said, func(o twinObservation) bool { return o.w.Selector.WorkflowID == w.Selector.WorkflowID })
	n.said = append(n.said, twinObservation{w: w, seen: t.clock, pull: n.pull})
	t.recompute()
}

func (t *metadataTwin) advance(now time.Time) {
	if now.After(t.clock) {
		t.clock = now
	}
}

func (t *metadataTwin) beginPull(node string, now time.Time) {
	if n := t.nodes[node]; n != nil {
		t.endPull(node, now)
		n.pull++
		n.pulling = true
	}
}

func (t *metadataTwin) endPull(node string, now time.Time) {
	if n := t.nodes[node]; n != nil && n.pulling {
		t.advance(now)
		n.pulling = false
		t.withdraw(n, func(o twinObservation) bool { return o.pull != n.pull })
	}
}

func (t *metadataTwin) abandonPull(node string) {
	if n := t.nodes[node]; n != nil {
		n.pulling = false
	}
}

func (t *metadataTwin) withdraw(n *twinNode, which func(twinObservation) bool) {
	for {
		i := slices.IndexFunc(n.said, which)
		if i < 0 {
			return
		}
		n.said = slices.Delete(n.said, i, i+1)
		t.recompute()
	}
}

func (t *metadataTwin) expire(now time.Time) {
	t.advance(now)
	for _, d := range t.dons {
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				t.withdraw(t.nodes[n], func(o twinObservation) bool { return t.clock.Sub(o.seen) >= t.expiry })
			}
		}
	}
}

func (t *metadataTwin) setDONs(dons []DONSpec, now time.Time) {
	t.advance(now)
	stays := map[string]bool{}
	for _, d := range dons {
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				stays[fmt.Sprint(d.Name, "/", s.ID, "/", n)] = true
			}
		}
	}
	var gone []string
	for _, d := range t.dons {
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				if !stays[fmt.Sprint(d.Name, "/", s.ID, "/", n)] {
					t.withdraw(t.nodes[n], func(twinObservation) bool { return true })
					gone = append(gone, n)
				}
			}
		}
	}
	for _, n := range gone {
		delete(t.nodes, n)
	}
	t.adopt(dons)
	for key := range t.standings {
		if t.shard(key.don, key.shard) == nil {
			delete(t.standings, key)
		}
	}
	// One subject after the other, in the order of the nodes' lists.
	var ids []string
	for _, d := range t.dons {
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				for _, o := range t.nodes[n].said {
					if id := o.w.Selector.WorkflowID; !slices.Contains(ids, id) {
						ids = append(ids, id)
					}
				}
			}
		}
	}
	for _, id := range ids {
		t.stamp(id)
		for _, d := range t.dons {
			for _, s := range d.Shards {
				t.settle(twinKey{d.Name, s.ID, id})
			}
		}
	}
}

func (t *metadataTwin) shard(don, id string) *ShardSpec {
	for _, d := range t.dons {
		for i := range d.Shards {
			if d.Name == don && d.Shards[i].ID == id {
				return &d.Shards[i]
			}
		}
	}
	return nil
}

// recompute settles every shard on every id that anyone has ever spoken of.
func (t *metadataTwin) recompute() {
	ids := map[string]bool{}
	for _, n := range t.nodes {
		for _, o := range n.said {
			ids[o.w.Selector.WorkflowID] = true
		}
	}
	for key := range t.standings {
		ids[key.id] = true
	}
	for id := range ids { // one of them changed
		t.stamp(id)
	}
	for _, d := range t.dons {
		for _, s := range d.Shards {
			for id := range ids {
				t.settle(twinKey{d.Name, s.ID, id})
			}
		}
	}
	for key := range t.standings { // forget what nobody of the DON speaks of
		spoken := false
		for _, d := range t.dons {
			for _, s := range d.Shards {
				spoken = spoken || d.Name == key.don && len(t.support(s, key.id)) > 0
			}
		}
		if !spoken {
			delete(t.standings, key)
			delete(t.pairs, [2]string{key.don, key.id})
		}
	}
}

// support lists what the nodes of a shard say of an id.
func (t *metadataTwin) support(s ShardSpec, id string) []workflow.Metadata {
	var said []workflow.Metadata
	for _, n := range s.Nodes {
		for _, o := range t.nodes[n].said {
			if o.w.Selector.WorkflowID == id {
				said = append(said, o.w)
			}
		}
	}
	return said
}

func (t *metadataTwin) settle(key twinKey) {
	spec := t.shard(key.don, key.shard)
	said := t.support(*spec, key.id)
	st := t.standings[key]
	if st == nil {
		if len(said) == 0 {
			return
		}
		st = &twinStanding{seqOf: map[Digest]int{}}
		t.standings[key] = st
	}
	counts, forms := map[Digest]int{}, map[Digest]workflow.Metadata{}
	for _, w := range said {
		d := w.Digest()
		counts[d]++
		forms[d] = w
		if !slices.Contains(st.order, d) {
			st.order = append(st.order, d)
		}
	}
	st.order = slices.DeleteFunc(st.order, func(d Digest) bool { return counts[d] == 0 })

	var next *workflow.Metadata
	best := -1
	for _, d := range st.order {
		w := forms[d]
		rank := slices.Index(st.superseded, d)
		if rank < 0 {
			rank = 1000
		}
		if st.current != nil && st.current.Digest() == d {
			rank = 999 // only what was never current beats what is
		}
		if counts[d] >= spec.F+1 && rank > best {
			next, best = &w, rank
		}
	}
	before := st.current
	if next != nil {
		d := next.Digest()
		first := st.last == Digest{}
		if first {
			for other, o := range t.standings {
				if other.don == key.don && other.id == key.id {
					st.seq = max(st.seq, o.seqOf[d])
				}
			}
		}
		if st.seq == 0 || !first && st.last != d {
			t.seq++
			st.seq = t.seq
		}
		if !first && st.last != d {
			st.superseded = append(slices.DeleteFunc(st.superseded, func(e Digest) bool { return e == d }), st.last)
		}
		st.last, st.seqOf[d] = d, st.seq
	}
	st.current = next
	t.hold(st, said, spec.F)
	t.own(key, before)
	if before != nil && (next == nil || next.Digest() != before.Digest()) || before == nil && next != nil {
		t.settle(key) // another may follow
	}
}
