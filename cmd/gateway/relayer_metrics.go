package main

import (
	"math/big"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dongate/relayer/chain"
)

// chainMetrics are those of calls to chains. Chains are those of the configuration, methods those that the relayer uses.
type chainMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newChainMetrics(r prometheus.Registerer) *chainMetrics {
	m := &chainMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "relayer_rpc_calls_total",
			Help: "Calls to nodes by chain (gateway, or a host chain's id), method and outcome: ok, error (an answer), malformed, timeout, failed, canceled."}, []string{"chain", "method", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "relayer_rpc_call_duration_seconds",
			Help: "Time a node took for a call, by chain.", Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"chain"}),
	}
	r.MustRegister(m.calls, m.duration)
	return m
}

func (m *chainMetrics) observe(chain, method, outcome string, took time.Duration) {
	m.calls.WithLabelValues(chain, method, outcome).Inc()
	m.duration.WithLabelValues(chain).Observe(took.Seconds())
}

// signerCollector shows what the signer had when that was last read; nothing before.
type signerCollector struct{ account *chain.Account }

var (
	signerBalance   = prometheus.NewDesc("relayer_signer_balance", "The signer's native balance in coins of 10^18.", nil, nil)
	signerTokens    = prometheus.NewDesc("relayer_signer_fee_tokens", "The signer's balance of the fee token in tokens of 10^18.", nil, nil)
	signerAllowance = prometheus.NewDesc("relayer_signer_fee_allowance", "How much of the fee token may be taken from the signer, in tokens of 10^18.", nil, nil)
	signerRead      = prometheus.NewDesc("relayer_signer_read_timestamp_seconds", "When the signer's means were last read, in Unix seconds.", nil, nil)
	signerBlocked   = prometheus.NewDesc("relayer_signer_blocked", "1 while POST is answered 503 because the signer cannot pay.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *signerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{signerBalance, signerTokens, signerAllowance, signerRead, signerBlocked} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *signerCollector) Collect(ch chan<- prometheus.Metric) {
	m := c.account.Snapshot()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	for d, n := range map[*prometheus.Desc]*big.Int{signerBalance: m.Balance, signerTokens: m.Token, signerAllowance: m.Allowance} {
		if n != nil {
			gauge(d, coins(n))
		}
	}
	if !m.Read.IsZero() {
		gauge(signerRead, float64(m.Read.UnixMilli())/1000)
	}
	blocked := 0.0
	if _, yes := c.account.Label(); yes {
		blocked = 1
	}
	gauge(signerBlocked, blocked)
}

// coins is an amount in units of 10^18.
func coins(n *big.Int) float64 {
	f, _ := new(big.Rat).SetFrac(n, big.NewInt(1e18)).Float64()
	return f
}
