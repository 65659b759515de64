package gateway

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"dongate/aggregation"
	"dongate/config"
)

// topology is who may connect: immutable after construction, so that it is
// read without a lock. A reload puts another in its place, in which the shards and
// nodes that stay are the same as before.
type topology struct {
	dons   []*don
	shards map[string]*roster       // by shard id
	nodes  map[common.Address]*node // every node of the configuration
	// former are nodes that were removed so lately that headers they have used up
	// might still be accepted.
	former map[common.Address]*node
}

// don is one DON of a topology. Immutable.
type don struct {
	name    string
	f       int
	service *service // nil when no service names the DON
	shards  []*roster
}

// shard is one group of a DON's nodes, for as long as the configuration has it.
type shard struct {
	id      string
	don     string
	service *service // that of the DON
	m       *shardMetrics
}

// roster is who belongs to a shard in one topology. Immutable: a request keeps the
// one it began with.
type roster struct {
	*shard
	threshold int
	nodes     []*node
	names     []string // of the nodes, for people: no two alike
}

// node is one configured capability node and what outlives its sessions. One that
// a reload removes, or moves to another shard, does not come back: should the
// configuration name its address again, that is another node.
// Safe for concurrent use.
type node struct {
	address common.Address
	key     string // lower-case hex with 0x; the name used by aggregation and ratelimit
	shard   *shard

	label   atomic.Pointer[string]  // for log lines; see name
	removed atomic.Bool             // no longer in the configuration: set before its session is ended
	session atomic.Pointer[session] // the live session, or nil
	pulling *session                // whose metadata pull is open; guarded by the service's metaMu

	mu      sync.Mutex
	parked  []*nodeAnswer    // answers to actions that wait for a session
	pending int              // handshakes between the signature check and the live session
	seconds map[uint32]int64 // timestamps used up → unix second after which they may be forgotten
	skew    time.Duration    // node's clock minus ours at the last valid header
}

// name is what people call the node.
func (n *node) name() string { return *n.label.Load() }

// live is the node's session if it has one and is still in the configuration.
func (n *node) live() *session {
	if n.removed.Load() {
		return nil
	}
	return n.session.Load()
}

// newTopology is the topology of c. What before, which may be nil, has in the same
// place is taken over, and not changed.
func newTopology(c *config.Config, before *topology, services map[string]*service, m *metrics) *topology {
	t := &topology{shards: map[string]*roster{}, nodes: map[common.Address]*node{}}
	for _, cd := range c.DONs {
		d := &don{name: cd.Name, f: cd.F, service: services[cd.Name]}
		for _, cs := range cd.Shards {
			r := &roster{shard: before.shard(cd.Name, cs.ID), threshold: aggregation.Threshold(len(cs.Nodes), cd.F)}
			if r.shard == nil {
				r.shard = &shard{id: cs.ID, don: cd.Name, service: d.service, m: m.forShard(cs.ID)}
			}
			for _, cn := range cs.Nodes {
				n := before.member(r.shard, cn.Address)
				if n == nil {
					n = newNode(r.shard, cn.Address)
					if old := before.known(cn.Address); old != nil {
						n.seconds = old.usedUp() // a signed header is good once, whoever it is for
					}
				}
				name := cn.Name
				if name == "" || slices.Contains(r.names, name) {
					name = n.key // a name is a metric's label: one node's in its shard
				}
				r.nodes, r.names = append(r.nodes, n), append(r.names, name)
				t.nodes[n.address] = n
			}
			d.shards = append(d.shards, r)
			t.shards[r.id] = r
		}
		t.dons = append(t.dons, d)
	}
	t.former = before.gone(t)
	return t
}

// known is the node with that address, or the one that was removed lately.
func (t *topology) known(address common.Address) *node {
	switch {
	case t == nil:
		return nil
	case t.nodes[address] != nil:
		return t.nodes[address]
	}
	return t.former[address]
}

// gone are the nodes that next has not, as long as a header that they have used up
// might still be accepted.
func (t *topology) gone(next *topology) map[common.Address]*node {
	if t == nil {
		return nil
	}
	former := map[common.Address]*node{}
	for _, nodes := range []map[common.Address]*node{t.former, t.nodes} {
		for address, n := range nodes {
			if next.nodes[address] == nil && len(n.usedUp()) > 0 {
				former[address] = n
			}
		}
	}
	return former
}

func newNode(s *shard, address common.Address) *node {
	n := &node{address: address, key: strings.ToLower(address.Hex()), shard: s, seconds: map[uint32]int64{}}
	n.label.Store(&n.key)
	return n
}

// setNames lets the nodes be called in the log what the topology calls them.
func (t *topology) setNames() {
	for _, r := range t.shards {
		for i, n := range r.nodes {
			n.label.Store(&r.names[i])
		}
	}
}

// shard is the shard with that id if it belongs to that DON; else nil.
func (t *topology) shard(don, id string) *shard {
	if t == nil || t.shards[id] == nil || t.shards[id].don != don {
		return nil
	}
	return t.shards[id].shard
}

// member is the shard's node with that address; nil when it has none.
func (t *topology) member(s *shard, address common.Address) *node {
	if t == nil || t.nodes[address] == nil || t.nodes[address].shard != s {
		return nil
	}
	return t.nodes[address]
}

// index is the node's place among the members, -1 when it is none of them.
func (r *roster) index(n *node) int { return slices.Index(r.nodes, n) }

// connected is how many members have a live session.
func (r *roster) connected() int {
	count := 0
	for _, n := range r.nodes {
		if n.live() != nil {
			count++
		}
	}
	return count
}

// ready reports whether the DON has a shard with a quorum of nodes connected.
func (d *don) ready() bool {
	for _, r := range d.shards {
		if r.connected() >= r.threshold {
			return true
		}
	}
	return false
}

// specs are the DONs of a service as metadata knows them.
func (t *topology) specs(svc *service) []aggregation.DONSpec {
	var specs []aggregation.DONSpec
	for _, d := range t.dons {
		if d.service != svc {
			continue
		}
		spec := aggregation.DONSpec{Name: d.name}
		for _, r := range d.shards {
			nodes := make([]string, len(r.nodes))
			for i, n := range r.nodes {
				nodes[i] = n.key
			}
			spec.Shards = append(spec.Shards, aggregation.ShardSpec{ID: r.id, F: d.f, Nodes: nodes})
		}
		specs = append(specs, spec)
	}
	return specs
}

// maxMalformed messages within malformedPeriod close a session with 1008.
const (
	maxMalformed    = 100
	malformedPeriod = time.Minute
)

// malformedWindow remembers when the last maxMalformed malformed messages of a
// session came. The zero value is ready; one goroutine uses it.
type malformedWindow struct {
	times []time.Time // ring, allocated with the first malformed message
	next  int
}

// add records one and reports whether it is the hundredth within a minute.
func (w *malformedWindow) add(now time.Time) bool {
	if w.times == nil {
		w.times = make([]time.Time, maxMalformed)
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % maxMalformed
	oldest := w.times[w.next] // the one maxMalformed-1 before this
	return !oldest.IsZero() && now.Sub(oldest) < malformedPeriod
}
