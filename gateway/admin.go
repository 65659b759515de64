package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"dongate/auth"
)

// adminHandler serves the operator: /healthz, /readyz, /metrics, /reload, and pprof
// where the configuration says so.
func (srv *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", srv.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(srv.metrics.registry, promhttp.HandlerOpts{}))
	if srv.options.Reload != nil {
		mux.HandleFunc("POST /reload", srv.serveReload)
	}
	if srv.config.Admin.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Readiness says whether the gateway can serve, and if not, why.
type Readiness struct {
	Ready    bool `json:"ready"`
	Draining bool `json:"draining"`
	// Waiting are the served DONs of which no shard has a quorum of nodes connected.
	Waiting []string `json:"waiting,omitempty"`
	// Storage says why used tokens cannot be recorded; "" when they can.
	Storage string `json:"storage,omitempty"`
	// Relayer is nil where none runs.
	Relayer *RelayerStatus `json:"relayer,omitempty"`
}

// pingTimeout bounds how long a readiness check waits for the database.
const pingTimeout = time.Second

// Ready reports whether the server listens, was not told to stop, can record used
// tokens and, for each served DON, has a shard with a quorum of nodes connected
// (unless ReadyWithoutNodes), and whether the relayer, if there is one, can use
// its tables.
func (srv *Server) Ready(ctx context.Context) Readiness {
	r := Readiness{Draining: srv.leaving.Load()}
	for _, d := range srv.current().topology.dons {
		if d.service != nil && !d.ready() {
			r.Waiting = append(r.Waiting, d.name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if stored, ok := srv.claims.(auth.StoredClaims); ok {
		if err := stored.Ping(ctx); err != nil {
			r.Storage = err.Error()
		}
	}
	if srv.options.Relayer != nil {
		status := srv.options.Relayer.Status(ctx)
		r.Relayer = &status
	}
	r.Ready = !r.Draining && r.Storage == "" && (r.Relayer == nil || r.Relayer.Storage == "") && (len(r.Waiting) == 0 || srv.options.ReadyWithoutNodes)
	return r
}

func (srv *Server) readyz(w http.ResponseWriter, req *http.Request) {
	r := srv.Ready(req.Context())
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(r)
}
