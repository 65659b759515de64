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
// read without a lock.
type topology struct {
	dons   []*don
	shards map[string]*shard        // by shard id
	nodes  map[common.Address]*node // every node of the configuration
}

type don struct {
	name   string
	f      int
	shards []*shard
}

// shard is one group of a DON's nodes.
type shard struct {
	id        string
	don       *don
	index     int
	threshold int
	nodes     []*node
	service   *service // nil when no service names the DON

	connected atomic.Int32 // live sessions of its nodes
	m         *shardMetrics
}

// node is one configured capability node and what outlives its sessions.
// Safe for concurrent use.
type node struct {
	address common.Address
	key     string // lower-case hex with 0x; the name used by aggregation and ratelimit
	name    string
	shard   *shard
	index   int // in shard.nodes

	session atomic.Pointer[session] // the live session, or nil
	pulling *session                // whose metadata pull is open; guarded by the service's metaMu

	mu      sync.Mutex
	parked  []*nodeAnswer    // answers to actions that wait for a session
	pending int              // handshakes between the signature check and the live session
	seconds map[uint32]int64 // timestamps used up → unix second after which they may be forgotten
	skew    time.Duration    // node's clock minus ours at the last valid header
}

func newTopology(c *config.Config, m *metrics) *topology {
	t := &topology{shards: map[string]*shard{}, nodes: map[common.Address]*node{}}
	for _, cd := range c.DONs {
		d := &don{name: cd.Name, f: cd.F}
		for i, cs := range cd.Shards {
			s := &shard{id: cs.ID, don: d, index: i, threshold: aggregation.Threshold(len(cs.Nodes), cd.F)}
			s.m = m.forShard(s)
			for j, cn := range cs.Nodes {
				n := &node{
					address: cn.Address, key: strings.ToLower(cn.Address.Hex()), name: cn.Name,
					shard: s, index: j, seconds: map[uint32]int64{},
				}
				if n.name == "" || slices.ContainsFunc(s.nodes, func(o *node) bool { return o.name == n.name }) {
					n.name = n.key // a name is a metric's label: one node's in its shard
				}
				s.nodes = append(s.nodes, n)
				t.nodes[n.address] = n
			}
			d.shards = append(d.shards, s)
			t.shards[s.id] = s
		}
		t.dons = append(t.dons, d)
	}
	return t
}

// ready reports whether the DON has a shard with a quorum of nodes connected.
func (d *don) ready() bool {
	for _, s := range d.shards {
		if int(s.connected.Load()) >= s.threshold {
			return true
		}
	}
	return false
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
