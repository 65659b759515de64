package api

import (
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of relayer reference §8 that concern HTTP. Every label has a bounded set of values.
type metrics struct {
	requests, responses *prometheus.CounterVec
	duration            *prometheus.HistogramVec
	posts, prechecks    *prometheus.CounterVec
	eta, spare          *prometheus.HistogramVec
	versions            versions
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		requests:  counter("relayer_http_requests_total", "HTTP requests.", "endpoint", "method", "version", "relayer_sdk_name", "relayer_sdk_version"),
		responses: counter("relayer_http_responses_total", "HTTP responses.", "endpoint", "method", "version", "status"),
		duration: histogram("relayer_http_request_duration_seconds", "Time from a request's header to its response.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, "endpoint", "method", "version"),
		posts:     counter("relayer_request_cache_total", "Accepted requests, new and repeated.", "req_type", "result"),
		prechecks: counter("relayer_user_decrypt_signature_precheck_total", "Signatures checked before a request is accepted.", "outcome"),
		eta: histogram("relayer_retry_after_raw_eta_seconds", "Estimates at POST, before margin and bounds.",
			[]float64{.5, 1, 2.5, 5, 7.5, 10, 20, 30, 60, 120, 300, 600}, "req_type"),
		spare: histogram("relayer_user_decrypt_spare_shares", "Shares above the threshold in an answer.", []float64{0, 1, 2, 3, 4, 6, 8}, "req_type"),
	}
	for _, c := range []prometheus.Collector{m.requests, m.responses, m.duration, m.posts, m.prechecks, m.eta, m.spare} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// begin counts a request and returns what is to be called with its answer.
func (m *metrics) begin(at *route, r *http.Request) func(status int, took time.Duration) {
	method := "other"
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodHead, http.MethodOptions:
		method = r.Method
	}
	name, version := m.versions.labels(r.Header.Get(sdkName), r.Header.Get(sdkVersion))
	m.requests.WithLabelValues(at.name, method, at.version, name, version).Inc()
	return func(status int, took time.Duration) {
		m.responses.WithLabelValues(at.name, method, at.version, strconv.Itoa(status)).Inc()
		m.duration.WithLabelValues(at.name, method, at.version).Observe(took.Seconds())
	}
}

// maxVersions bounds the versions of the SDK that are told apart.
const maxVersions = 32

var (
	knownSDKs   = map[string]bool{"@zama-fhe/relayer-sdk": true, "@zama-fhe/sdk": true}
	versionForm = regexp.MustCompile(`^\d{1,3}\.\d{1,3}\.\d{1,3}$`)
)

// versions remembers the first versions it sees; all others are one.
type versions struct {
	mu   sync.Mutex
	seen map[string]bool
}

// labels collapses what a caller says of itself: "" without a header, "unknown" for what is not known.
func (v *versions) labels(name, version string) (string, string) {
	if name != "" && !knownSDKs[name] {
		name, version = "unknown", "unknown"
	}
	if name == "" {
		return "", ""
	}
	if !versionForm.MatchString(version) {
		return name, "unknown"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.seen[version] && len(v.seen) >= maxVersions {
		return name, "unknown"
	}
	if v.seen == nil {
		v.seen = map[string]bool{}
	}
	v.seen[version] = true
	return name, version
}
