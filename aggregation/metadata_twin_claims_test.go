package aggregation

import (
	"cmp"
	"maps"
	"slices"

	"dongate/workflow"
)

func (t *metadataTwin) hold(st *twinStanding, said []workflow.Metadata, f int) {
	st.holdsID = st.current != nil || st.holdsID && len(said) > f
	var claimed *referenceKey
	if st.current != nil {
		r := keyOf(&st.current.Selector)
		claimed = &r
	} else if st.claimed != nil {
		under := 0
		for _, w := range said {
			if keyOf(&w.Selector) == *st.claimed {
				under++
			}
		}
		if under > f {
			claimed = st.claimed
		}
	}
	if claimed != nil && (st.claimed == nil || *st.claimed != *claimed) {
		t.claim++
		st.claimNumber = t.claim
	}
	st.claimed = claimed
}

// own releases what no shard of the owner holds, lets every claim try again in the order in which they were made, and notes under which name each id is shown.
func (t *metadataTwin) own(changed twinKey, before *workflow.Metadata) {
	for id, don := range t.idOwner {
		if !t.any(func(k twinKey, st *twinStanding) bool { return k.don == don && k.id == id && st.holdsID }) {
			delete(t.idOwner, id)
		}
	}
	for r, don := range t.refOwner {
		if !t.any(func(k twinKey, st *twinStanding) bool { return k.don == don && st.claimed != nil && *st.claimed == r }) {
			delete(t.refOwner, r)
		}
	}
	keys := slices.SortedFunc(maps.Keys(t.standings), func(a, b twinKey) int { return cmp.Compare(t.standings[a].claimNumber, t.standings[b].claimNumber) })
	for _, k := range keys {
		if st := t.standings[k]; st.current != nil {
			i, iOwned := t.idOwner[k.id]
			r, rOwned := t.refOwner[*st.claimed]
			if (!iOwned || i == k.don) && (!rOwned || r == k.don) {
				t.idOwner[k.id], t.refOwner[*st.claimed] = k.don, k.don
			}
		}
	}
	if st := t.standings[changed]; st.current != nil && (before == nil || before.Digest() != st.current.Digest()) && !t.mine(changed, st) {
		t.conflicts++
	}
	for id := range t.idOwner {
		if k := t.newest(id); k != nil {
			st := t.standings[*k]
			pair := [2]string{k.don, id}
			if p, ok := t.pairs[pair]; !ok || p.reference != *st.claimed {
				t.pairs[pair] = twinPair{*st.claimed, st.seq}
			}
		}
	}
}

func (t *metadataTwin) any(match func(twinKey, *twinStanding) bool) bool {
	for k, st := range t.standings {
		if match(k, st) {
			return true
		}
	}
	return false
}

func (t *metadataTwin) mine(k twinKey, st *twinStanding) bool {
	return t.idOwner[k.id] == k.don && t.refOwner[*st.claimed] == k.don
}

func (t *metadataTwin) newest(id string) *twinKey {
	var best *twinKey
	for k, st := range t.standings {
		if k.id == id && st.current != nil && t.mine(k, st) && (best == nil || st.seq > t.standings[*best].seq) {
			best = &k
		}
	}
	return best
}

// view lists the workflows by id, and the id that each name leads to.
func (t *metadataTwin) view() (map[string]Workflow, map[referenceKey]string) {
	byID, byName := map[string]Workflow{}, map[referenceKey]string{}
	for id := range t.idOwner {
		k := t.newest(id)
		if k == nil {
			continue
		}
		st := t.standings[*k]
		s := st.current.Selector
		w := Workflow{ID: id, Owner: s.WorkflowOwner, NameHash: s.WorkflowName, Tag: s.WorkflowTag, Keys: st.current.AuthorizedKeys, DON: k.don}
		for _, d := range t.dons {
			for _, sh := range d.Shards {
				if o := t.standings[twinKey{d.Name, sh.ID, id}]; d.Name == k.don && o != nil && o.current != nil && *o.claimed == *st.claimed {
					w.Shards = append(w.Shards, sh.ID)
				}
			}
		}
		byID[id] = w
		if other, ok := byName[*st.claimed]; !ok || t.pairs[[2]string{k.don, id}].seq > t.pairs[[2]string{k.don, other}].seq {
			byName[*st.claimed] = id
		}
	}
	return byID, byName
}

func (t *metadataTwin) observations() int {
	n := 0
	for _, node := range t.nodes {
		n += len(node.said)
	}
	return n
}
