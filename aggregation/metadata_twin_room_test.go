package aggregation

import (
	"maps"
	"slices"

	"dongate/workflow"
)

// room finds out what a report would take by trying it on a copy, and withdraws what has to give way.
func (t *metadataTwin) room(node string, w workflow.Metadata) bool {
	for t.maxBytes > 0 {
		after := t.clone()
		after.place(node, w)
		d := t.donOf(node)
		used := after.used(d)
		need := used - t.used(d)
		if need <= 0 {
			return true
		}
		taken := used
		for _, e := range t.dons {
			if e.Name != d.Name {
				taken += max(t.used(e), t.part(e))
			}
		}
		if taken <= t.maxBytes {
			return true
		}
		victim := ""
		for _, e := range t.dons {
			for _, s := range e.Shards {
				for _, n := range s.Nodes {
					if (e.Name == d.Name || t.used(e) > t.part(e)) && t.charge(n) > t.charge(victim) {
						victim = n
					}
				}
			}
		}
		i := slices.IndexFunc(after.nodes[node].said, func(o twinObservation) bool { return o.w.Selector.WorkflowID == w.Selector.WorkflowID })
		alone := after.alone(node, after.nodes[node].said[i])
		if victim == "" || alone && (victim == node || t.charge(victim) <= after.charge(node)) {
			return false
		}
		t.refused++
		oldest := -1
		n := t.nodes[victim]
		for i, o := range n.said {
			if t.alone(victim, o) && (oldest < 0 || o.since < n.said[oldest].since) {
				oldest = i
			}
		}
		id := n.said[oldest].w.Selector.WorkflowID
		t.withdraw(n, func(o twinObservation) bool { return o.w.Selector.WorkflowID == id })
	}
	return true
}

func (t *metadataTwin) clone() *metadataTwin {
	c := *t
	c.nodes, c.standings = map[string]*twinNode{}, map[twinKey]*twinStanding{}
	for k, n := range t.nodes {
		n := *n
		n.said = slices.Clone(n.said)
		c.nodes[k] = &n
	}
	for k, st := range t.standings {
		st := *st
		st.order, st.superseded, st.seqOf = slices.Clone(st.order), slices.Clone(st.superseded), maps.Clone(st.seqOf)
		c.standings[k] = &st
	}
	c.pairs, c.idOwner, c.refOwner = maps.Clone(t.pairs), maps.Clone(t.idOwner), maps.Clone(t.refOwner)
	return &c
}

func (t *metadataTwin) donOf(node string) DONSpec {
	for _, d := range t.dons {
		for _, s := range d.Shards {
			if slices.Contains(s.Nodes, node) {
				return d
			}
		}
	}
	panic(node)
}

func nodesOf(d DONSpec) (nodes int64) {
	for _, s := range d.Shards {
		nodes += int64(len(s.Nodes))
	}
	return nodes
}

func (t *metadataTwin) part(d DONSpec) int64 {
	all := int64(0)
	for _, e := range t.dons {
		all += nodesOf(e)
	}
	return t.maxBytes / (2 * all) * nodesOf(d)
}

// alone reports whether fewer than f+1 nodes of its shard say what the observation of a node says.
func (t *metadataTwin) alone(node string, o twinObservation) bool {
	for _, s := range t.donOf(node).Shards {
		if slices.Contains(s.Nodes, node) {
			same := 0
			for _, w := range t.support(s, o.w.Selector.WorkflowID) {
				if w.Digest() == o.w.Digest() {
					same++
				}
			}
			return same <= s.F
		}
	}
	panic(node)
}

func (t *metadataTwin) charge(node string) (bytes int64) {
	if node == "" {
		return 0
	}
	for _, o := range t.nodes[node].said {
		if t.alone(node, o) {
			bytes += observationCost + subjectCost + partyCost + standingCost + referenceCost + formCost + keyCost*int64(len(o.w.AuthorizedKeys))
		}
	}
	return bytes
}

// stamp numbers the observations of an id that have begun to be alone.
func (t *metadataTwin) stamp(id string) {
	for name, n := range t.nodes {
		for i := range n.said {
			o := &n.said[i]
			if o.w.Selector.WorkflowID != id {
				continue
			}
			alone := t.alone(name, *o)
			if alone && !o.alone {
				t.stamps++
				o.since = t.stamps
			}
			o.alone = alone
		}
	}
}

// used is what a DON uses: what would be counted if there were no other.
func (t *metadataTwin) used(d DONSpec) int64 {
	bytes, _, perID := t.memory([]DONSpec{d})
	return bytes + referenceCost*int64(perID) // the names of each id for themselves
}

// bytes is what is counted.
func (t *metadataTwin) bytes() int64 {
	bytes, names, _ := t.memory(t.dons)
	return bytes + referenceCost*int64(names)
}

type twinName struct {
	id   string
	name referenceKey
}

func (t *metadataTwin) memory(dons []DONSpec) (bytes int64, allNames, namesPerID int) {
	ids, forms, names := map[string]bool{}, map[Digest]bool{}, map[referenceKey]bool{}
	perID := map[twinName]bool{}
	for _, d := range dons {
		parties := map[string]bool{}
		for _, s := range d.Shards {
			for _, n := range s.Nodes {
				for _, o := range t.nodes[n].said {
					id, digest, name := o.w.Selector.WorkflowID, o.w.Digest(), keyOf(&o.w.Selector)
					bytes += observationCost
					if !forms[digest] {
						bytes += formCost + keyCost*int64(len(o.w.AuthorizedKeys))
					}
					ids[id], parties[id], forms[digest], names[name], perID[twinName{id, name}] = true, true, true, true, true
				}
			}
		}
		bytes += partyCost * int64(len(parties))
		for key, st := range t.standings {
			if key.don == d.Name {
				bytes += standingCost + supersededCost*int64(len(st.superseded))
			}
		}
	}
	bytes += subjectCost * int64(len(ids))
	return bytes, len(names), len(perID)
}
