package relayer

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// metrics are the dispatcher's; the names that the network's own relayer has are the same (relayer reference §8).
type metrics struct {
	requests      *prometheus.GaugeVec     // by kind and state
	transitions   *prometheus.CounterVec   // by kind and states
	durations     *prometheus.HistogramVec // in the state before, by kind and state
	failures      *prometheus.CounterVec   // by kind and cause
	sends         *prometheus.CounterVec   // by what the node said
	events        *prometheus.CounterVec   // by kind and outcome
	lockHeld      prometheus.Gauge
	head, cursor  prometheus.Gauge
	headTime      prometheus.Gauge
	reorgs        prometheus.Counter
	malformed     prometheus.Counter
	nonceOccupied prometheus.Counter
	replacements  prometheus.Counter
	claimLost     prometheus.Counter
	earlyDropped  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "relayer_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "relayer_" + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "relayer_" + name, Help: help}, labels)
	}
	m := &metrics{
		requests: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "relayer_request_count", Help: "Requests by kind and state, counted in the database when this process becomes the dispatcher and with every sweep for timeouts, and by their moves in between."}, []string{"req_type", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "relayer_request_status_duration_seconds", Help: "Seconds a request spent in the state it left.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600}}, []string{"req_type", "previous_status"}),
		transitions:   counters("transitions_total", "Moves of requests from one state to another that this process made.", "req_type", "from", "to"),
		failures:      counters("failures_total", "Requests that failed, by cause.", "req_type", "cause"),
		sends:         counters("transaction_sends_total", "Transactions handed to a node, by what it said.", "answer"),
		events:        counters("gateway_events_total", "Events of the gateway chain, by what they did.", "req_type", "outcome"),
		lockHeld:      gauge("dispatcher_lock_held", "1 while this process is the dispatcher."),
		head:          gauge("gateway_head_block", "The gateway chain's newest block."),
		headTime:      gauge("gateway_head_timestamp_seconds", "The time of the gateway chain's newest block, by the chain's clock."),
		cursor:        gauge("gateway_cursor_block", "The last block whose events are all stored."),
		reorgs:        counter("gateway_reorganisations_total", "Re-organisations of the gateway chain that reached blocks already read."),
		malformed:     counter("gateway_malformed_events_total", "Events of the contracts that could not be read and were left out."),
		nonceOccupied: counter("transaction_nonce_occupied_total", "Nonces that another transaction had."),
		replacements:  counter("transaction_replacements_total", "Transactions replaced by one with a higher fee or by a cancellation."),
		claimLost:     counter("claim_lost_total", "Rows that had become another's, or had moved, when this process wanted to move them."),
		earlyDropped:  gauge("early_events_dropped", "Events that were dropped because too many waited for their request."),
	}
	if r != nil {
		r.MustRegister(m.requests, m.transitions, m.durations, m.failures, m.sends, m.events, m.lockHeld, m.head, m.headTime, m.cursor, m.reorgs, m.malformed,
			m.nonceOccupied, m.replacements, m.claimLost, m.earlyDropped)
	}
	return m
}

// seed counts what the database holds.
func (m *metrics) seed(ctx context.Context, s *store.Store) error {
	for _, k := range fhevm.Kinds {
		counts, err := s.Counts(ctx, k)
		if err != nil {
			return err
		}
		for _, state := range fhevm.States {
			m.requests.WithLabelValues(string(k), string(state)).Set(0)
		}
		for _, c := range counts {
			m.requests.WithLabelValues(string(k), string(c.State)).Set(float64(c.Count))
		}
	}
	return nil
}

// moved counts a move of a row from the state it was read in.
func (m *metrics) moved(now time.Time, j store.Job, to fhevm.State) {
	m.counted(j.Kind, j.State, to)
	m.durations.WithLabelValues(string(j.Kind), string(j.State)).Observe(now.Sub(j.StateSince).Seconds())
}

func (m *metrics) completed(k fhevm.Kind) {
	m.counted(k, fhevm.StateReceiptReceived, fhevm.StateCompleted)
}

func (m *metrics) counted(k fhevm.Kind, from, to fhevm.State) {
	m.transitions.WithLabelValues(string(k), string(from), string(to)).Inc()
	m.requests.WithLabelValues(string(k), string(from)).Dec()
	m.requests.WithLabelValues(string(k), string(to)).Inc()
}
