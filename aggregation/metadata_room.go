package aggregation

import (
	"slices"

	"dongate/workflow"
)

// Who may use MaxBytes, so that what one node or one DON says keeps no room from the others:
//
//   - Half of it is set aside for the DONs, to each in proportion to its nodes: its part. The rest is common: what a DON uses past its part it takes from there, first
//     come, first served. So a DON that keeps to its part finds room whatever other DONs do, were all their nodes faulty.
//   - What fewer than f+1 nodes of its shard say is charged to each node that says it, in full, and only borrows its room. When a report finds none, such reports
//     are withdrawn until it does, the oldest of the node with the highest charge first: that can be any node of the same DON, or of a DON past its part, which
//     holds room that the report may take. If that node would be the reporting one itself, its report is refused instead. So f faulty nodes keep no room from
//     what f+1 nodes agree on, and none from a node that is charged less than they are.
//
// What a DON uses follows from its own nodes' reports alone, and what a node is charged from its own and from how many of its shard say the same, counted as though
// no other DON and no other node said it. So nothing is gained by sharing, by speaking first nor by withdrawing and saying it again. The price is that what
// several DONs report is counted for each of them.

// newcomerCost is what a DON uses for a workflow that none of its nodes reported before, without its form.
const newcomerCost = subjectCost + partyCost + standingCost + referenceCost

// allot divides half of MaxBytes among the DONs.
func (m *Metadata) allot() {
	nodes := int64(0)
	for _, d := range m.dons {
		nodes += d.size()
	}
	m.taken = 0
	for _, d := range m.dons {
		d.part = m.maxBytes / max(1, 2*nodes) * d.size()
		m.taken += max(d.used, d.part)
	}
}

func (d *don) size() (nodes int64) {
	for _, sh := range d.shards {
		nodes += int64(len(sh.nodes))
	}
	return nodes
}

// use notes that a DON uses more room, or less.
func (m *Metadata) use(d *don, bytes int64) {
	m.taken -= max(d.used, d.part)
	d.used += bytes
	m.taken += max(d.used, d.part)
}

// fits reports whether a DON may use that much more: together with what the others use, and with what they do not use of their parts, it must not come to more than
// MaxBytes. That is so for a DON that keeps to its part, unless a reload has made others' parts smaller than what they use.
func (m *Metadata) fits(d *don, bytes int64) bool {
	others := m.taken - max(d.used, d.part)
	return bytes <= 0 || others+d.used+bytes <= m.maxBytes
}

// makeRoom finds room for a report that is new or other than the node's last, and says whether there is any. Each report that is withdrawn for it gives back an observation
// at least, so that there are hardly more than formBytes(100)/observationCost, about a hundred, and each was accepted at some time.
func (m *Metadata) makeRoom(n *node, digest Digest, w *workflow.Metadata) bool {
	if m.maxBytes <= 0 {
		return true
	}
	for {
		bytes, charge := m.estimate(n, digest, w)
		if m.fits(n.shard.don, bytes) {
			return true
		}
		v := m.greediest(n.shard.don)
		if v == nil || charge > 0 && (v == n || v.charge <= charge) {
			return false
		}
		m.refused++
		m.withdraw(v, v.alone.oldest)
	}
}

// greediest is the node with the highest charge whose reports take up room that a DON could use, the first in the configuration of several; nil if none has a charge.
func (m *Metadata) greediest(d *don) *node {
	var greediest *node
	highest := int64(0)
	for _, e := range m.dons {
		if e != d && e.used <= e.part {
			continue
		}
		for _, sh := range e.shards {
			for _, n := range sh.nodes {
				if n.charge > highest {
					greediest, highest = n, n.charge
				}
			}
		}
	}
	return greediest
}

// estimate says what would follow from a report: how many bytes more its DON would use, and what its node would be charged, 0 if f+1 nodes would say the same.
func (m *Metadata) estimate(n *node, digest Digest, w *workflow.Metadata) (bytes, charge int64) {
	size := formBytes(len(w.AuthorizedKeys))
	var p *party
	s := m.subjects[w.Selector.WorkflowID]
	if s != nil {
		p = s.party(n.shard.don)
	}
	if p == nil {
		bytes = observationCost + newcomerCost + size
		if n.shard.f > 0 {
			charge = n.charge + aloneCost + size
		}
		return bytes, charge
	}
	o := n.observations[s]
	var left *form // what nobody of the DON would say any more
	if o == nil {
		bytes += observationCost
	} else if p.nodes(o.form.digest) == 1 {
		left = o.form
		bytes -= left.bytes()
	}
	name := m.references[keyOf(&w.Selector)]
	if left != nil && left.reference != name && !p.carries(left.reference, left) {
		bytes -= referenceCost
	}
	if p.nodes(digest) == 0 {
		bytes += size
		if !p.carries(name, nil) {
			bytes += referenceCost
		}
	}
	supporters := 0
	switch st := p.standing(n.shard); {
	case st == nil:
		bytes += standingCost
	default:
		supporters = st.supportersOf(digest)
		if supporters == n.shard.f && st.supersedes(digest) {
			bytes += supersededCost
		}
	}
	if supporters < n.shard.f {
		charge = n.charge + aloneCost + size
		if o != nil && o.alone {
			charge -= o.cost()
		}
	}
	return bytes, charge
}

// supersedes reports whether agreement on a digest would add to the memory of what was superseded.
func (st *standing) supersedes(digest Digest) bool {
	return st.seq > 0 && st.last != digest && len(st.superseded) < maxSuperseded &&
		!slices.ContainsFunc(st.superseded, func(e superseded) bool { return e.digest == digest })
}

// aloneCost is the part of an observation's charge that is the same for all.
const aloneCost = observationCost + newcomerCost

// cost is what a node is charged for an observation while fewer than f+1 nodes of its shard say the same.
func (o *observation) cost() int64 { return aloneCost + o.form.bytes() }

// setAlone notes whether fewer than f+1 nodes of its shard say what o says. Each that begins to be alone, or is repeated, counts as the newest.
func (n *node) setAlone(o *observation, alone bool) {
	if o.alone == alone {
		return
	}
	o.alone = alone
	if alone {
		n.alone.push(o)
		n.charge += o.cost()
	} else {
		n.alone.remove(o)
		n.charge -= o.cost()
	}
}

// weigh charges the nodes of a shard anew for what has got f+1 supporters or does not have them any more.
func (st *standing) weigh() {
	s := st.party.subject
	for i := range st.supports {
		e := &st.supports[i]
		alone := e.nodes <= st.shard.f
		if alone == e.alone || e.nodes == 0 {
			continue
		}
		e.alone = alone
		for _, n := range st.shard.nodes {
			if o := n.observations[s]; o != nil && o.form == e.form {
				n.setAlone(o, alone)
			}
		}
	}
}

// said is a form that nodes of a DON report, and how many do.
type said struct {
	form  *form
	nodes int
}

func (p *party) nodes(digest Digest) int {
	for _, e := range p.said {
		if e.form.digest == digest {
			return e.nodes
		}
	}
	return 0
}

// carries reports whether what nodes of a DON say of a subject is under a reference, leaving out one form.
func (p *party) carries(r *reference, except *form) bool {
	return slices.ContainsFunc(p.said, func(e said) bool { return e.form != except && e.form.reference == r })
}

// say notes that one node more says f.
func (m *Metadata) say(p *party, f *form) {
	for i := range p.said {
		if p.said[i].form == f {
			p.said[i].nodes++
			return
		}
	}
	bytes := f.bytes()
	if !p.carries(f.reference, nil) {
		bytes += referenceCost
	}
	p.said = append(p.said, said{f, 1})
	m.use(p.don, bytes)
}

// unsay notes that one node less says f.
func (m *Metadata) unsay(p *party, f *form) {
	i := slices.IndexFunc(p.said, func(e said) bool { return e.form == f })
	if p.said[i].nodes--; p.said[i].nodes > 0 {
		return
	}
	p.said = slices.Delete(p.said, i, i+1)
	bytes := f.bytes()
	if !p.carries(f.reference, nil) {
		bytes += referenceCost
	}
	m.use(p.don, -bytes)
}
