package aggregation

import (
	"cmp"
	"slices"
)

// claim makes f, or nothing, the current form of a shard, and with it the shard's claim to an id and a reference. It acquires them if they are free or its DON's
// own, and hands on what the DON does not hold any more.
//
// A claim once made is held while f+1 nodes of the shard report the id, or the id under that reference, in whatever form: during a rotation that few nodes take part in,
// there may be a moment at which neither the old nor the new keys have f+1, and another DON that lies in wait must not profit from it.
func (m *Metadata) claim(st *standing, f *form) {
	p, old := st.party, st.claimed
	s, d := p.subject, p.don
	holdsID, claimed := st.holds(f)
	if f == st.current && holdsID == st.holdsID && claimed == old {
		return
	}
	st.current, st.holdsID = f, holdsID
	if claimed != old {
		if old != nil {
			old.hold(d, -1)
		}
		if claimed != nil {
			claimed.hold(d, +1)
			m.claims++
			st.claim = m.claims
		}
		st.claimed = claimed
	}
	st.line()
	if f != nil && !m.acquire(st) {
		m.conflicts++
	}
	var waiting []*standing
	if s.owner == d && !p.holdsID() {
		s.setOwner(nil)
		for _, q := range s.parties {
			waiting = append(waiting, q.standings...)
		}
	}
	if claimed != old && old != nil && old.owner == d && !old.heldBy(d) {
		old.owner = nil
		waiting = append(waiting, old.open...)
	}
	m.publish(s)
	m.handOver(waiting)
}

// holds returns what a shard holds once f, or nothing, is its current form.
func (st *standing) holds(f *form) (id bool, r *reference) {
	if f != nil {
		return true, f.reference
	}
	all, under := 0, 0
	for _, e := range st.supports {
		all += e.nodes
		if e.form.reference == st.claimed {
			under += e.nodes
		}
	}
	if under > st.shard.f {
		r = st.claimed
	}
	return st.holdsID && all > st.shard.f, r
}

// handOver lets the claims that waited for something that became free have it, in the order in which they were made.
func (m *Metadata) handOver(waiting []*standing) {
	waiting = slices.DeleteFunc(waiting, func(st *standing) bool { return st.current == nil })
	slices.SortFunc(waiting, func(a, b *standing) int { return cmp.Compare(a.claim, b.claim) })
	for _, st := range waiting {
		m.acquire(st)
	}
	for _, st := range waiting {
		m.publish(st.party.subject)
	}
}

// acquire makes the claim's DON the owner of its id and its reference, unless another DON owns one of them: then it gets neither, so that f+1 colluding nodes of one DON
// take over nothing of another's. What a DON owns it keeps as long as any of its shards holds it (see claim), also in a form that is dropped for a conflict.
func (m *Metadata) acquire(st *standing) bool {
	d, s, r := st.party.don, st.party.subject, st.current.reference
	if s.owner != nil && s.owner != d || r.owner != nil && r.owner != d {
		return false
	}
	r.owner = d
	if s.owner != d {
		s.setOwner(d)
	}
	return true
}

func (s *subject) setOwner(d *don) {
	s.owner = d
	for _, p := range s.parties {
		for _, st := range p.standings {
			st.line()
		}
	}
}

// publish brings the view's entry of a subject up to date.
func (m *Metadata) publish(s *subject) {
	newest := s.newest()
	if newest == nil {
		if s.published != nil {
			m.put(s, nil, nil)
		}
		return
	}
	f := newest.current
	shards := newest.party.assigned(f.reference)
	if s.publishedForm == f && s.published.DON == newest.party.don.name && slices.Equal(s.published.Shards, shards) {
		return
	}
	if p := newest.party; p.pairSeq == 0 || p.pair != f.reference.hash {
		p.pair, p.pairSeq = f.reference.hash, newest.seq
	}
	s.publishedSeq = newest.party.pairSeq
	key := f.reference.key
	m.put(s, f, &Workflow{
		ID: s.id, Owner: key.owner, NameHash: key.nameHash, Tag: key.tag, Keys: f.keys, DON: newest.party.don.name, Shards: shards,
	})
}

// newest is the owner's latest agreement on the subject whose reference is the owner's too; nil if there is none.
func (s *subject) newest() *standing {
	var newest *standing
	if s.owner == nil {
		return nil
	}
	for _, st := range s.party(s.owner).standings {
		if st.current != nil && st.current.reference.owner == s.owner && (newest == nil || st.seq > newest.seq) {
			newest = st
		}
	}
	return newest
}

// assigned lists the shards that agree on the subject under the reference, in the order of the configuration.
func (p *party) assigned(r *reference) []string {
	agree := func(sh *shard) bool {
		st := p.standing(sh)
		return st != nil && st.current != nil && st.current.reference == r
	}
	ids := make([]string, 0, len(p.standings))
	for _, sh := range p.don.shards {
		if agree(sh) {
			ids = append(ids, sh.id)
		}
	}
	return ids
}

// put replaces the subject's entry in both tables of the view.
func (m *Metadata) put(s *subject, f *form, w *Workflow) {
	m.view = nil
	old, oldForm := s.published, s.publishedForm
	m.ids.replace(hashID(s.id), old, w)
	s.published, s.publishedForm = w, f
	if old != nil {
		m.workflows--
		m.keys -= len(old.Keys)
	}
	if w != nil {
		m.workflows++
		m.keys += len(w.Keys)
	}
	if old != nil && (f == nil || oldForm.reference != f.reference) {
		m.show(oldForm.reference, s, true, false)
	}
	if w != nil {
		m.show(f.reference, s, old != nil && oldForm.reference == f.reference, true)
	}
}
