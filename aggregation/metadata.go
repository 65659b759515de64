package aggregation

import (
	"time"

	"dongate/workflow"
)

// DONSpec is a DON whose nodes report workflows. Names are unique.
type DONSpec struct {
	Name   string
	Shards []ShardSpec
}

// ShardSpec is one shard of a DON: f+1 equal reports of its nodes make metadata known. A node belongs to one shard of the whole configuration.
type ShardSpec struct {
	ID    string
	F     int
	Nodes []string // lower-case addresses
}

// MetadataConfig bounds what nodes may report.
type MetadataConfig struct {
	DONs       []DONSpec
	MaxPerNode int           // maxWorkflowsPerNode: workflows one node may hold; 0 or less means no bound
	MaxBytes   int64         // maxMetadataBytes: memory of all reports together, as counted in MetadataStats.Bytes, and how it is shared; 0 or less means no bound
	Expiry     time.Duration // cleanUpPeriodMs: a report that is not repeated for this long is dropped; 0 or less means never
}

// ReportStatus says what became of a report.
type ReportStatus uint8

// What can become of a report. Everything but Accepted is to be counted; the refusals are in MetadataStats.Refused too.
const (
	Accepted         ReportStatus = iota
	RefusedNodeFull               // the node holds MaxPerNode other workflows
	RefusedBytesFull              // of MaxBytes nothing is left for it (see makeRoom); what the node said earlier of this workflow is withdrawn, it does not hold any more
	UnknownNode                   // not a node of the configuration
)

// String names the status for logs and metric labels.
func (s ReportStatus) String() string {
	names := [...]string{"accepted", "refused_node_full", "refused_bytes_full", "unknown_node"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// MetadataStats counts what Metadata holds now (the first four) and what happened since it was made (the others).
type MetadataStats struct {
	Workflows    int    // in the view
	Keys         int    // authorised keys of these
	Observations int    // (node, workflow) pairs
	Bytes        int64  // memory that reports take, an estimate from above
	Conflicts    uint64 // agreements dropped because another DON owns the id or the reference
	Refused      uint64 // reports over a bound, when they came or later, when others needed the room
}

// Metadata is the workflow metadata aggregator (protocol §6): it takes what each node says of each workflow and keeps the view of what enough nodes agree on.
//
//   - Every shard agrees for itself, by f+1 equal reports (see standing).
//   - A DON's newest agreement counts; shards that agree on the same id and reference are all assigned.
//   - The first DON to agree on an id or on a reference owns it until none of its shards supports it (see acquire).
//   - When MaxBytes is short, what fewer than f+1 nodes of a shard say gives way, and every DON has its part (see makeRoom).
//
// The state depends on the order of the calls alone: no map is ever iterated over. An instant before the last one seen counts as that one. Not safe for
// concurrent use; the View is.
type Metadata struct {
	maxPerNode int
	maxBytes   int64
	expiry     time.Duration

	epoch time.Time // the first instant seen; later ones are kept as distances from it
	clock time.Duration

	dons       []*don
	nodes      map[string]*node
	subjects   map[string]*subject
	references map[referenceKey]*reference

	agreements uint64 // so far, over everything: the order of agreement
	claims     uint64

	ids, names   table
	view         *View // nil when something changed since
	workflows    int
	keys         int
	observations int
	bytes        int64
	taken        int64 // what each DON uses or has set aside, whichever is more, added up
	conflicts    uint64
	refused      uint64
}

type don struct {
	name   string
	shards []*shard
	part   int64 // of MaxBytes, set aside for it
	used   int64 // by what its nodes report
}

type shard struct {
	id    string
	f     int
	don   *don
	nodes []*node
}

// node holds the reports of one node.
type node struct {
	address      string
	shard        *shard
	observations map[*subject]*observation
	all          queue  // by when they were last repeated
	alone        queue  // those that fewer than f+1 nodes of the shard agree with
	charge       int64  // bytes, for the latter
	pull         uint32 // how many pulls were begun
	pulling      bool
}

// observation is what a node says of a workflow.
type observation struct {
	form  *form
	links [2]links
	seen  time.Duration // when last repeated
	pull  uint32        // the pull during or after which it was last repeated
	alone bool          // see setAlone
}

// NewMetadata returns an aggregator that knows no workflow.
func NewMetadata(c MetadataConfig) *Metadata {
	m := &Metadata{
		maxPerNode: c.MaxPerNode, maxBytes: c.MaxBytes, expiry: c.Expiry,
		nodes: map[string]*node{}, subjects: map[string]*subject{}, references: map[referenceKey]*reference{},
	}
	m.configure(c.DONs)
	return m
}

// Report takes what a node says of one workflow, by a push or in an answer to a pull. w is normalised (workflow.Metadata.Normalize) and copied. It replaces what
// the node said of that workflow before; saying the same again renews its expiry alone.
func (m *Metadata) Report(address string, w workflow.Metadata, now time.Time) ReportStatus {
	n := m.nodes[address]
	if n == nil {
		return UnknownNode
	}
	m.advance(now)
	digest := w.Digest()
	s := m.subjects[w.Selector.WorkflowID]
	var o *observation
	if s != nil {
		o = n.observations[s]
	}
	if o != nil && o.form.digest == digest {
		m.renew(n, o)
		return Accepted
	}
	if o == nil && m.maxPerNode > 0 && len(n.observations) >= m.maxPerNode {
		m.refused++
		return RefusedNodeFull
	}
	if !m.makeRoom(n, digest, &w) {
		m.refused++
		if o := n.observations[m.subjects[w.Selector.WorkflowID]]; o != nil {
			m.withdraw(n, o)
		}
		return RefusedBytesFull
	}
	f := m.intern(digest, &w)
	if o = n.observations[f.subject]; o == nil { // making room may have withdrawn it
		o = &observation{}
		n.observations[f.subject] = o
		n.all.push(o)
		m.observations++
		m.bytes += observationCost
		m.use(n.shard.don, observationCost)
	}
	m.change(n, o, f)
	m.renew(n, o)
	return Accepted
}

// BeginPull notes that the node was asked for all its workflows. A pull that is still open is closed first.
func (m *Metadata) BeginPull(address string, now time.Time) {
	n := m.nodes[address]
	if n == nil {
		return
	}
	m.EndPull(address, now)
	n.pull++
	n.pulling = true
}

// EndPull closes the node's pull and withdraws what was not reported since it began, neither in its answers, however many, nor by a push. A node that said nothing
// has reported an empty list. Without an open pull it does nothing.
func (m *Metadata) EndPull(address string, now time.Time) {
	n := m.nodes[address]
	if n == nil || !n.pulling {
		return
	}
	m.advance(now)
	n.pulling = false
	// Reports are ordered by when they were last repeated, so those not named are at the front.
	for n.all.oldest != nil && n.all.oldest.pull != n.pull {
		m.withdraw(n, n.all.oldest)
	}
}

// AbandonPull closes the node's pull and withdraws nothing: the session ended, the node's silence means nothing.
func (m *Metadata) AbandonPull(address string) {
	if n := m.nodes[address]; n != nil {
		n.pulling = false
	}
}

// Expire withdraws the reports that have not been repeated for MetadataConfig.Expiry. It costs nothing for those that have been.
func (m *Metadata) Expire(now time.Time) {
	m.advance(now)
	if m.expiry <= 0 {
		return
	}
	for _, d := range m.dons {
		for _, s := range d.shards {
			for _, n := range s.nodes {
				for n.all.oldest != nil && m.clock-n.all.oldest.seen >= m.expiry {
					m.withdraw(n, n.all.oldest)
				}
			}
		}
	}
}

// View returns the workflows known now. It is the same value as long as nothing changes, so callers may compare pointers.
func (m *Metadata) View() *View {
	if m.view == nil {
		m.view = &View{ids: m.ids.freeze(), references: m.names.freeze(), count: m.workflows}
	}
	return m.view
}

// Stats returns the counts, in constant time.
func (m *Metadata) Stats() MetadataStats {
	return MetadataStats{
		Workflows: m.workflows, Keys: m.keys, Observations: m.observations, Bytes: m.bytes, Conflicts: m.conflicts, Refused: m.refused,
	}
}

func (m *Metadata) advance(now time.Time) {
	if m.epoch.IsZero() {
		m.epoch = now
	}
	m.clock = max(m.clock, now.Sub(m.epoch))
}

func (m *Metadata) renew(n *node, o *observation) {
	n.all.remove(o)
	n.all.push(o)
	if o.alone {
		n.alone.remove(o)
		n.alone.push(o)
	}
	o.seen, o.pull = m.clock, n.pull
}

// withdraw drops what a node says of a workflow.
func (m *Metadata) withdraw(n *node, o *observation) {
	n.all.remove(o)
	delete(n.observations, o.form.subject)
	m.observations--
	m.bytes -= observationCost
	m.use(n.shard.don, -observationCost)
	m.change(n, o, nil)
}
