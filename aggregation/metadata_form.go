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
	place         int    // in that reference's shown
}

// form is one digest of a subject's metadata, kept once however many nodes report it.
type form struct {
	digest    Digest
	subject   *subject
	reference *reference
	keys      []workflow.Key
	observers int
}

// party is a DON's part in a subject. It lives while any of its nodes reports the subject in any form, and with it the memory of what was superseded.
type party struct {
	don       *don
	subject   *subject
	standings []*standing
	observers int
	said      []said // what its nodes say, each once

	pair    uint64 // the hash of the reference under which the subject was last in the view
	pairSeq uint64 // and when that began
}

// What things cost in memory, from above, headers and map entries included. TestMetadataBytes holds them against the heap.
const (
	observationCost = 64 + 40
	supersededCost  = 2 * int64(unsafe.Sizeof(superseded{}))
	formCost        = 2*int64(unsafe.Sizeof(form{})) + 32
	keyCost         = int64(unsafe.Sizeof(workflow.Key{})) + 48
	subjectCost     = int64(unsafe.Sizeof(subject{})) + 176 + 2*int64(unsafe.Sizeof(Workflow{})) // its place in the view included
	referenceCost   = int64(unsafe.Sizeof(reference{})) + 256
	partyCost       = int64(unsafe.Sizeof(party{})) + 48
	standingCost    = int64(unsafe.Sizeof(standing{})) + 72
)

func (f *form) bytes() int64 { return formBytes(len(f.keys)) }

func formBytes(keys int) int64 { return formCost + keyCost*int64(keys) }

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
		r = &reference{key: key.clone(), hash: key.hash()}
		m.references[r.key] = r
		m.bytes += referenceCost
	}
	r.forms++
	f := &form{digest: digest, subject: s, reference: r, keys: cloneKeys(w.AuthorizedKeys)}
	s.forms = append(s.forms, f)
	m.bytes += f.bytes()
	return f
}

// drop forgets a form that nobody reports any more.
func (m *Metadata) drop(f *form) {
	f.subject.forms = remove(f.subject.forms, f)
	m.bytes -= f.bytes()
	r := f.reference
	if r.forms--; r.forms == 0 {
		delete(m.references, r.key)
		m.bytes -= referenceCost
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
