package gateway

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dongate/aggregation"
	"dongate/auth"
)

// metrics are the gateway's own; every label has a bounded set of values (reasons
// of the protocol, shards and nodes of the configuration). Counters on the hot
// path are resolved beforehand. Safe for concurrent use.
type metrics struct {
	registry *prometheus.Registry

	requests    map[Reason]prometheus.Counter
	elements    map[Reason]prometheus.Counter
	latency     map[Reason]prometheus.Observer
	quorum      prometheus.Histogram
	throttled   *prometheus.CounterVec
	handshakes  *prometheus.CounterVec
	sessionEnds *prometheus.CounterVec
	firstView   prometheus.Gauge
	actions     map[string]prometheus.Counter
	upstream    prometheus.Histogram

	sends    *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	votes    *prometheus.CounterVec
	reports  *prometheus.CounterVec
	throttle *prometheus.CounterVec
}

// shardMetrics are one shard's counters.
type shardMetrics struct {
	sends     sendMetrics
	dropped   map[string]prometheus.Counter
	votes     map[aggregation.VoteStatus]prometheus.Counter
	reports   prometheus.Counter
	throttled prometheus.Counter
}

type sendMetrics struct {
	written, noSession, refused, failed, expired prometheus.Counter
}

// outcomes are the values of the outcome label.
var outcomes = []Reason{
	ReasonResult, ReasonNodeError, ReasonParseError, ReasonTooLarge, ReasonInvalidRequest, ReasonInvalidParams,
	ReasonMethodNotFound, ReasonWorkflowNotFound, ReasonUnauthorized, ReasonTokenReplayed, ReasonRateLimited,
	ReasonConflict, ReasonOverloaded, ReasonUnavailable, ReasonTimeout, ReasonNoQuorum, ReasonDONUnavailable,
	ReasonDraining, ReasonInternal, ReasonAbandoned, reasonBatch,
}

func newMetrics(registry *prometheus.Registry) *metrics {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	m := &metrics{registry: registry, requests: map[Reason]prometheus.Counter{},
		elements: map[Reason]prometheus.Counter{}, latency: map[Reason]prometheus.Observer{}}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "dongate", Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	requests := counter("requests_total", "HTTP requests of clients by outcome.", "outcome")
	elements := counter("batch_elements_total", "Elements of batches by outcome.", "outcome")
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "dongate", Name: "request_duration_seconds",
		Help: "Time from a client's request header to its answer, by outcome.", Buckets: buckets}, []string{"outcome"})
	m.quorum = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "dongate", Name: "quorum_duration_seconds",
		Help: "Time from dispatch to the decision.", Buckets: buckets})
	m.firstView = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "dongate", Name: "startup_to_first_view_seconds",
		Help: "Time from start until a first workflow was agreed on; 0 until then."})
	m.upstream = prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "dongate", Name: "upstream_duration_seconds",
		Help: "Time an endpoint took to answer an action.", Buckets: buckets})
	m.registry.MustRegister(latency, m.quorum, m.firstView, m.upstream)
	actions := counter("actions_total", "Outbound HTTP requests of nodes by outcome: hit (from the cache), shared (another's call), fetched, failed (the endpoint), refused (against the rules), throttled, busy.", "outcome")
	m.actions = map[string]prometheus.Counter{}
	for _, o := range actionOutcomes {
		m.actions[o] = actions.WithLabelValues(o)
	}
	for _, o := range outcomes {
		m.requests[o] = requests.WithLabelValues(string(o))
		m.elements[o] = elements.WithLabelValues(string(o))
		m.latency[o] = latency.WithLabelValues(string(o))
	}
	m.throttled = counter("client_throttled_total", "Client requests refused by a limit, by scope: address, rate (all, owner or workflow), open (the workflow's open requests).", "scope")
	for _, scope := range []string{"address", "rate", "open"} {
		m.throttled.WithLabelValues(scope)
	}
	m.handshakes = counter("node_handshakes_total", "Handshakes of nodes by result.", "result")
	m.sessionEnds = counter("node_session_ends_total", "Ended node sessions by reason.", "reason")
	m.sends = counter("trigger_sends_total", "Sends of a trigger to a node: written, no_session, refused (queue full or closed), failed (session lost before or while writing), expired (not written within nodeSendTimeoutMs).", "shard", "outcome")
	m.dropped = counter("node_messages_dropped_total", "Messages of nodes without effect: malformed, throttled, late, foreign, superfluous, refused.", "shard", "reason")
	m.votes = counter("votes_total", "Answers of nodes to open triggers by what they did to the vote.", "shard", "status")
	m.reports = counter("metadata_reports_total", "Workflow metadata accepted from nodes.", "shard")
	m.throttle = counter("node_throttled_total", "Messages that nodes sent unasked and that a rate limit refused.", "shard")
	return m
}

// forShard are the counters of the shard with that id, the same ones every time.
func (m *metrics) forShard(id string) *shardMetrics {
	send := func(outcome string) prometheus.Counter { return m.sends.WithLabelValues(id, outcome) }
	sm := &shardMetrics{
		sends: sendMetrics{written: send("written"), noSession: send("no_session"), refused: send("refused"),
			failed: send("failed"), expired: send("expired")},
		dropped:   map[string]prometheus.Counter{},
		votes:     map[aggregation.VoteStatus]prometheus.Counter{},
		reports:   m.reports.WithLabelValues(id),
		throttled: m.throttle.WithLabelValues(id),
	}
	for _, why := range []string{dropMalformed, dropThrottled, dropLate, dropForeign, dropSuperfluous, dropRefused} {
		sm.dropped[why] = m.dropped.WithLabelValues(id, why)
	}
	for _, st := range []aggregation.VoteStatus{aggregation.Counted, aggregation.Moved, aggregation.Repeated} {
		sm.votes[st] = m.votes.WithLabelValues(id, st.String())
	}
	return sm
}

// dropShard forgets the counters of a shard that is no longer in the configuration,
// so that they do not become more with every reload.
func (m *metrics) dropShard(id string) {
	for _, v := range []*prometheus.CounterVec{m.sends, m.dropped, m.votes, m.reports, m.throttle} {
		v.DeletePartialMatch(prometheus.Labels{"shard": id})
	}
}

func (m *metrics) request(outcome Reason, d time.Duration) {
	m.requests[outcome].Inc()
	m.latency[outcome].Observe(d.Seconds())
}

func (m *metrics) element(outcome Reason) { m.elements[outcome].Inc() }

// stateCollector reads gauges from the server's state when scraped.
type stateCollector struct{ server *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dongate_"+name, help, labels, nil)
}

var (
	descSessions     = desc("node_sessions", "Live node sessions per shard.", "shard")
	descMargin       = desc("shard_quorum_margin", "Connected nodes minus the shard's threshold: below 0 it cannot answer.", "shard")
	descSkew         = desc("node_clock_skew_seconds", "The node's clock minus ours, as of its last validly signed header.", "shard", "node")
	descUp           = desc("node_up", "1 when the node has a live session.", "shard", "node")
	descOpen         = desc("open_requests", "Triggers dispatched and not yet answered.", "service")
	descOpenBytes    = desc("open_bytes", "Bytes held by open requests and their answers.", "service")
	descWorkflows    = desc("metadata_workflows", "Workflows that can be called.", "service")
	descKeys         = desc("metadata_keys", "Authorised keys of those workflows.", "service")
	descObservations = desc("metadata_observations", "What nodes currently report: pairs of node and workflow.", "service")
	descMetaBytes    = desc("metadata_bytes", "Bytes accounted to observations, bounded by maxMetadataBytes.", "service")
	descConflicts    = desc("metadata_conflicts_total", "Claims of a DON on another DON's workflow or name, dropped.", "service")
	descRefused      = desc("metadata_refused_total", "Reports refused at a bound, or withdrawn later to make room for others.", "service")
	descActing       = desc("actions_under_way", "Upstream calls under way, bounded by maxConcurrentActions.", "service")
	descCacheEntries = desc("cache_entries", "Stored responses.", "service")
	descCacheBytes   = desc("cache_bytes", "Bytes of stored responses, bounded by maxCacheBytes.", "service")
	descEvictions    = desc("cache_evictions_total", "Stored responses removed for room.", "service")
	descClaims       = desc("claims_held", "Used tokens remembered.")
	descIDs          = desc("request_ids_reserved", "Request ids open or used lately.")
	descStored       = desc("claim_transactions_total", "Transactions of used tokens and request ids, on a database: committed or failed.", "outcome")
	descStoredClaims = desc("claims_written_total", "Claims in the transactions that were committed; several share one when many come together.")
	descStoredTime   = desc("claim_transaction_seconds_total", "Time spent in those transactions.")
	descStoredQueue  = desc("claims_waiting", "Claims and ends of requests that wait to be written.")
	descConcurrent   = desc("concurrent_requests", "Client requests being worked on, bounded by maxConcurrentRequests.")
	descDraining     = desc("draining", "1 while shutting down.")
)

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSessions, descMargin, descSkew, descUp, descOpen, descOpenBytes, descWorkflows,
		descKeys, descObservations, descMetaBytes, descConflicts, descRefused, descActing, descCacheEntries, descCacheBytes, descEvictions, descClaims, descIDs,
		descStored, descStoredClaims, descStoredTime, descStoredQueue, descConcurrent, descDraining} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	srv := c.server
	for _, d := range srv.current().topology.dons {
		for _, sh := range d.shards {
			n := float64(sh.connected())
			gauge(descSessions, n, sh.id)
			gauge(descMargin, n-float64(sh.threshold), sh.id)
			for i, nd := range sh.nodes {
				nd.mu.Lock()
				skew := nd.skew
				nd.mu.Unlock()
				gauge(descSkew, skew.Seconds(), sh.id, sh.names[i])
				gauge(descUp, truth(nd.live() != nil), sh.id, sh.names[i])
			}
		}
	}
	for _, svc := range srv.services {
		svc.metaMu.Lock()
		st := svc.metadata.Stats()
		svc.metaMu.Unlock()
		gauge(descOpen, float64(svc.flights.len()), svc.name)
		gauge(descOpenBytes, float64(svc.open.held()), svc.name)
		gauge(descWorkflows, float64(st.Workflows), svc.name)
		gauge(descKeys, float64(st.Keys), svc.name)
		gauge(descObservations, float64(st.Observations), svc.name)
		gauge(descMetaBytes, float64(st.Bytes), svc.name)
		ch <- prometheus.MustNewConstMetric(descConflicts, prometheus.CounterValue, float64(st.Conflicts), svc.name)
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(st.Refused), svc.name)
		cs := svc.actions.cache.Stats()
		gauge(descActing, float64(svc.actions.slots.underWay()), svc.name)
		gauge(descCacheEntries, float64(cs.Entries), svc.name)
		gauge(descCacheBytes, float64(cs.Bytes), svc.name)
		ch <- prometheus.MustNewConstMetric(descEvictions, prometheus.CounterValue, float64(cs.Evictions), svc.name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	if claims, ids, err := srv.claims.Stats(ctx); err == nil { // a figure that cannot be had is left out
		gauge(descClaims, float64(claims))
		gauge(descIDs, float64(ids))
	}
	if stored, ok := srv.claims.(auth.StoredClaims); ok {
		a := stored.Activity()
		count := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
		}
		count(descStored, float64(a.Transactions), "committed")
		count(descStored, float64(a.Failed), "failed")
		count(descStoredClaims, float64(a.Claims))
		count(descStoredTime, a.Time.Seconds())
		gauge(descStoredQueue, float64(a.Waiting))
	}
	gauge(descConcurrent, float64(srv.clients.gate.Load()))
	gauge(descDraining, truth(srv.draining.Load()))
}

// statsTimeout bounds how long a scrape waits for the store of used tokens.
const statsTimeout = 2 * time.Second

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
