package aggregation

import (
	"cmp"
	"slices"
)

// maxSuperseded is how many superseded digests a shard remembers of one workflow; the oldest that nobody reports any more are forgotten first.
const maxSuperseded = 64

// standing is what one shard says of a workflow.
//
// A form that f+1 of its nodes report becomes current. It stays so until fewer than f+1 report it, or until f+1 report one that was never current before: that one
// supersedes it. A superseded form returns only when the current one has fallen below f+1, so that laggards who repeat the old keys after a rotation cannot
// bring them back, while a rotation back by all nodes works.
//
// seq is when the shard agreed on its last form, over all shards and workflows: a form that lapses and comes back keeps it and is no newer than it was.
type standing struct {
	party      *party
	shard      *shard
	supports   []support // in the order of their first supporter
	current    *form
	last       Digest // the digest last agreed on; none while seq is 0
	seq        uint64
	superseded []superseded // the latest last

	holdsID bool       // see claim
	claimed *reference // the reference held, nil if none
	claim   uint64     // when claimed became what it is
	lined   *reference // whose open list it is in, nil if none, and where
	slot    int
}

type support struct {
	form  *form
	nodes int
	alone bool // as those who say it were last told, see weigh
}

type superseded struct {
	digest Digest
	seq    uint64
}

// change lets an observation of a node say another form, none before it first does or after it was withdrawn, as one step.
func (m *Metadata) change(n *node, o *observation, to *form) {
	from := o.form
	s := cmp.Or(to, from).subject
	p := s.party(n.shard.don)
	if p == nil {
		p = &party{don: n.shard.don, subject: s}
		s.parties = append(s.parties, p)
		m.bytes += partyCost
		m.use(p.don, subjectCost+partyCost)
	}
	st := p.standing(n.shard)
	if st == nil {
		st = &standing{party: p, shard: n.shard}
		p.standings = append(p.standings, st)
		m.bytes += standingCost
		m.use(p.don, standingCost)
	}
	if from != nil {
		n.setAlone(o, false)
		from.observers--
		p.observers--
		st.add(from, -1)
		m.unsay(p, from)
	}
	if to != nil {
		to.observers++
		p.observers++
		st.add(to, +1)
		m.say(p, to)
	}
	o.form = to
	st.weigh()
	if to != nil {
		n.setAlone(o, st.supportersOf(to.digest) <= n.shard.f)
	}
	m.settle(st)
	st.supports = slices.DeleteFunc(st.supports, func(e support) bool { return e.nodes == 0 })
	if from != nil && from.observers == 0 {
		m.drop(from)
	}
	if p.observers == 0 {
		m.forget(p)
	}
}

// forget drops a party none of whose nodes reports the subject, and the subject with the last.
func (m *Metadata) forget(p *party) {
	s := p.subject
	for _, st := range p.standings {
		m.dismiss(st)
	}
	s.parties = remove(s.parties, p)
	m.bytes -= partyCost
	m.use(p.don, -subjectCost-partyCost)
	if len(s.parties) == 0 {
		delete(m.subjects, s.id)
		m.bytes -= subjectCost
	}
}

// dismiss gives back what a standing takes.
func (m *Metadata) dismiss(st *standing) {
	bytes := standingCost + supersededCost*int64(len(st.superseded))
	m.bytes -= bytes
	m.use(st.party.don, -bytes)
}

func (st *standing) add(f *form, n int) {
	for i := range st.supports {
		if st.supports[i].form == f {
			st.supports[i].nodes += n
			return
		}
	}
	st.supports = append(st.supports, support{form: f, nodes: n, alone: n <= st.shard.f})
}

func (st *standing) supportersOf(digest Digest) int {
	for _, e := range st.supports {
		if e.form.digest == digest {
			return e.nodes
		}
	}
	return 0
}

// rank orders the forms of a standing: what was never superseded above what was, among these the latest superseded first.
func (st *standing) rank(digest Digest) int {
	i := slices.IndexFunc(st.superseded, func(e superseded) bool { return e.digest == digest })
	if i < 0 {
		return maxSuperseded
	}
	return i
}

// settle decides which form is current after supports or f have changed. When f was lowered several forms may have become eligible at once; they follow each other in
// the order of their first supporter.
func (m *Metadata) settle(st *standing) {
	for {
		f := st.choose()
		settled := f == st.current
		if f != nil && (st.seq == 0 || st.last != f.digest) {
			m.agree(st, f.digest)
		}
		m.claim(st, f)
		if settled {
			return
		}
	}
}

// choose returns the form that is to be current, or nil.
func (st *standing) choose() *form {
	holds := st.current != nil && st.supportersOf(st.current.digest) > st.shard.f
	var best *form
	bestRank := -1
	for _, e := range st.supports {
		if e.nodes <= st.shard.f || holds && e.form == st.current {
			continue
		}
		if r := st.rank(e.form.digest); r > bestRank {
			best, bestRank = e.form, r
		}
	}
	if holds && bestRank < maxSuperseded {
		return st.current
	}
	return best
}

// agree notes that a shard agrees on another digest than the last time, or for the first time.
func (m *Metadata) agree(st *standing, digest Digest) {
	seq := uint64(0)
	if st.seq == 0 {
		seq = st.party.known(digest)
	} else {
		m.supersede(st, digest)
	}
	if seq == 0 {
		m.agreements++
		seq = m.agreements
	}
	st.last, st.seq = digest, seq
}

// supersede moves the last digest to the superseded ones and the next out of them.
func (m *Metadata) supersede(st *standing, next Digest) {
	before := len(st.superseded)
	st.superseded = slices.DeleteFunc(st.superseded, func(e superseded) bool { return e.digest == next })
	if len(st.superseded) == maxSuperseded {
		i := max(0, slices.IndexFunc(st.superseded, func(e superseded) bool { return st.supportersOf(e.digest) == 0 }))
		st.superseded = slices.Delete(st.superseded, i, i+1)
	}
	st.superseded = append(st.superseded, superseded{st.last, st.seq})
	bytes := supersededCost * int64(len(st.superseded)-before)
	m.bytes += bytes
	m.use(st.party.don, bytes)
}

// known returns when a shard of the DON agreed on a digest, or 0. A shard that agrees for the first time takes that place in the order: nodes that come late and say
// what others said before a rotation are no newer than it.
func (p *party) known(digest Digest) uint64 {
	seq := uint64(0)
	for _, st := range p.standings {
		if st.seq > 0 && st.last == digest {
			seq = max(seq, st.seq)
		}
		for _, e := range st.superseded {
			if e.digest == digest {
				seq = max(seq, e.seq)
			}
		}
	}
	return seq
}
