package aggregation

import (
	"slices"
	"time"
)

// SetDONs replaces the configuration, as a whole. A node that stays in its shard keeps its reports; a removed node's go, and so do those of a node that moved to another
// shard. What agreement, assignment and ownership come to under the new configuration is in the view at once.
func (m *Metadata) SetDONs(dons []DONSpec, now time.Time) {
	m.advance(now)
	stays := map[string]string{} // node -> its shard in the new configuration
	for _, d := range dons {
		for _, s := range d.Shards {
			for _, address := range s.Nodes {
				stays[address] = d.Name + "\x00" + s.ID
			}
		}
	}
	for _, d := range m.dons {
		for _, s := range d.shards {
			for _, n := range s.nodes {
				if stays[n.address] == d.name+"\x00"+s.id {
					continue
				}
				for n.all.oldest != nil {
					m.withdraw(n, n.all.oldest)
				}
				delete(m.nodes, n.address)
			}
		}
	}
	m.configure(dons)
	m.settleAll()
}

// SetBounds replaces the bounds of MetadataConfig. What is held past a bound that was lowered stays until it is withdrawn or expires, and nothing is taken in
// its stead meanwhile. Under a shorter expiry a report has as long left as it had before, and at most the new expiry: nodes that repeat their reports at the old
// pace have time to learn the new one.
func (m *Metadata) SetBounds(maxPerNode int, maxBytes int64, expiry time.Duration, now time.Time) {
	m.advance(now)
	sooner := m.expiry - expiry
	if m.expiry <= 0 { // never
		sooner = m.clock
	}
	if expiry > 0 && sooner > 0 {
		for _, d := range m.dons {
			for _, s := range d.shards {
				for _, n := range s.nodes {
					for o := n.all.oldest; o != nil; o = o.links[queueAll].next {
						o.seen = min(m.clock, o.seen+sooner)
					}
				}
			}
		}
	}
	m.maxPerNode, m.maxBytes, m.expiry = maxPerNode, maxBytes, expiry
	m.allot()
}

// configure builds the structure, with the DONs, shards and nodes that exist already where the new one has them too.
func (m *Metadata) configure(specs []DONSpec) {
	before := m.dons
	m.dons = nil
	for _, spec := range specs {
		d := find(before, func(d *don) bool { return d.name == spec.Name })
		if d == nil {
			d = &don{name: spec.Name}
		}
		shards := d.shards
		d.shards = nil
		for _, spec := range spec.Shards {
			sh := find(shards, func(sh *shard) bool { return sh.id == spec.ID })
			if sh == nil {
				sh = &shard{id: spec.ID, don: d}
			}
			sh.f = max(spec.F, 0)
			sh.nodes = nil
			for _, address := range spec.Nodes {
				n := m.nodes[address]
				if n == nil {
					n = &node{address: address, shard: sh, observations: map[*subject]*observation{}, all: queue{kind: queueAll}, alone: queue{kind: queueAlone}}
					m.nodes[address] = n
				}
				sh.nodes = append(sh.nodes, n)
			}
			d.shards = append(d.shards, sh)
		}
		m.dons = append(m.dons, d)
	}
	m.allot()
}

// settleAll decides every standing anew, since f may have changed, and brings every entry of the view up to date, since shards may have been reordered. The order is that of
// the configuration and, within a node, of its reports.
func (m *Metadata) settleAll() {
	done := map[*subject]bool{}
	for _, d := range m.dons {
		for _, sh := range d.shards {
			for _, n := range sh.nodes {
				for o := n.all.oldest; o != nil; o = o.links[queueAll].next {
					if s := o.form.subject; !done[s] {
						done[s] = true
						m.settleSubject(s)
					}
				}
			}
		}
	}
}

func (m *Metadata) settleSubject(s *subject) {
	for _, d := range m.dons {
		p := s.party(d)
		if p == nil {
			continue
		}
		p.standings = slices.DeleteFunc(p.standings, func(st *standing) bool {
			gone := !slices.Contains(d.shards, st.shard)
			if gone {
				m.dismiss(st)
			}
			return gone
		})
		for _, sh := range d.shards {
			if st := p.standing(sh); st != nil {
				st.weigh()
				m.settle(st)
			}
		}
	}
	m.publish(s)
}

func find[T any](list []*T, match func(*T) bool) *T {
	if i := slices.IndexFunc(list, match); i >= 0 {
		return list[i]
	}
	return nil
}
