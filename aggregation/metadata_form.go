package aggregation

import (
	"slices"
	"strings"
	"unsafe"

	"dongate/workflow"
)

// subject is everything known of one workflow id. It lives while any node says anything of it.
type subject struct {
	id      string
	forms   []*form
	parties []*party // the DONs whose nodes report it
	owner   *don

	published     *Workflow // in the view
	publishedForm *form
	publishedSeq  uint64 // order among several ids of one reference
}

// form is one digest of a subject's metadata, kept once however many nodes report it.
type form struct {
	digest    Digest
	subject   *subject
	reference *reference
	keys      []workflow.Key
	observers int
}

// reference is a name (owner, name, tag) of workflows.
type reference struct {
	key    referenceKey
	owner  *don
	uses   int         // forms that carry it and parties whose pair it is
	claims []*standing // the shards that hold it
	best   *subject    // the subject that the view returns for it
}

// party is a DON's part in a subject. It lives while any of its nodes reports the subject in any form, and with it the memory of what was superseded.
type party struct {
	don       *don
	subject   *subject
	standings []*standing
	observers int

	pair    *reference // the reference under which the subject was last in the view
	pairSeq uint64     // and when that began
}

// What things cost in memory, from above, headers and map entries included. TestMetadataBytes holds them against the heap.
const (
	observationCost = 48 + 40
	supersededCost  = 2 * int64(unsafe.Sizeof(superseded{}))
	formCost        = 2*int64(unsafe.Sizeof(form{})) + 32
	keyCost         = int64(unsafe.Sizeof(workflow.Key{})) + 48
	subjectCost     = int64(unsafe.Sizeof(subject{})) + 160 + 2*int64(unsafe.Sizeof(Workflow{})) // its place in the view included
	referenceCost   = int64(unsafe.Sizeof(reference{})) + 256
	partyCost       = int64(unsafe.Sizeof(party{})) + 16
	standingCost    = int64(unsafe.Sizeof(standing{})) + 48
)

// cost is by how much a report would raise m.bytes. s is the subject if it exists, o what the node says of it so far if anything.
func (m *Metadata) cost(s *subject, n *node, o *observation, digest Digest, w *workflow.Metadata) int64 {
	var c int64
	if o == nil {
		c += observationCost
	} else if o.form.observers == 1 {
		c -= o.form.bytes()
		if r := o.form.reference; r.uses == 1 && r.key != keyOf(&w.Selector) {
			c -= r.bytes()
		}
	}
	if s == nil {
		return c + subjectCost + partyCost + standingCost + m.newFormCost(w)
	}
	switch p := s.party(n.shard.don); {
	case p == nil:
		c += partyCost + standingCost
	case p.standing(n.shard) == nil:
		c += standingCost
	}
	if s.form(digest) == nil {
		c += m.newFormCost(w)
	}
	return c
}

func (m *Metadata) newFormCost(w *workflow.Metadata) int64 {
	c := formCost + keyCost*int64(len(w.AuthorizedKeys))
	if m.references[keyOf(&w.Selector)] == nil {
		c += referenceCost
	}
	return c
}

func (f *form) bytes() int64      { return formCost + keyCost*int64(len(f.keys)) }
func (r *reference) bytes() int64 { return referenceCost }

func keyOf(s *workflow.Selector) referenceKey {
	return referenceKey{s.WorkflowOwner, s.WorkflowName, s.WorkflowTag}
}

// intern returns the form of w, made where it is new. Nothing of w's memory is kept.
func (m *Metadata) intern(digest Digest, w *workflow.Metadata) *form {
	s := m.subjects[w.Selector.WorkflowID]
	if s == nil {
		s = &subject{id: strings.Clone(w.Selector.WorkflowID)}
		m.subjects[s.id] = s
		m.bytes += subjectCost
	}
	if f := s.form(digest); f != nil {
		return f
	}
	key := keyOf(&w.Selector)
	r := m.references[key]
	if r == nil {
		r = &reference{key: key.clone()}
		m.references[r.key] = r
		m.bytes += r.bytes()
	}
	r.uses++
	f := &form{digest: digest, subject: s, reference: r, keys: cloneKeys(w.AuthorizedKeys)}
	s.forms = append(s.forms, f)
	m.bytes += f.bytes()
	return f
}

// drop forgets a form that nobody reports any more.
func (m *Metadata) drop(f *form) {
	f.subject.forms = remove(f.subject.forms, f)
	m.bytes -= f.bytes()
	m.unuse(f.reference)
}

// unuse ends one use of a reference, which may be nil, and forgets it with the last.
func (m *Metadata) unuse(r *reference) {
	if r == nil {
		return
	}
	if r.uses--; r.uses == 0 {
		delete(m.references, r.key)
		m.bytes -= r.bytes()
	}
}

func (k referenceKey) clone() referenceKey {
	all := k.owner + k.nameHash + k.tag // one allocation for the three
	a, b := len(k.owner), len(k.owner)+len(k.nameHash)
	return referenceKey{all[:a], all[a:b], all[b:]}
}

// cloneKeys copies normalised keys into two allocations, however many there are.
func cloneKeys(keys []workflow.Key) []workflow.Key {
	var text []byte
	for _, k := range keys {
		text = append(text, k.PublicKey...)
	}
	rest := string(text)
	out := make([]workflow.Key, len(keys))
	for i, k := range keys {
		n := len(k.PublicKey)
		// The one key type there is (protocol §6), not the sender's copy of it.
		out[i] = workflow.Key{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: rest[:n]}
		rest = rest[n:]
	}
	return out
}

func (s *subject) form(digest Digest) *form {
	for _, f := range s.forms {
		if f.digest == digest {
			return f
		}
	}
	return nil
}

func (s *subject) party(d *don) *party {
	for _, p := range s.parties {
		if p.don == d {
			return p
		}
	}
	return nil
}

func (p *party) standing(sh *shard) *standing {
	for _, st := range p.standings {
		if st.shard == sh {
			return st
		}
	}
	return nil
}

// holdsID reports whether any shard of the DON holds the id.
func (p *party) holdsID() bool {
	return slices.ContainsFunc(p.standings, func(st *standing) bool { return st.holdsID })
}

// remove takes one element out and keeps the order of the others.
func remove[T comparable](list []T, e T) []T {
	if i := slices.Index(list, e); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
