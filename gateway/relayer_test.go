package gateway

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// relayerStub is a relayer that answers with its name, and holds requests whose path says so.
type relayerStub struct {
	entered, release chan struct{}
	status           RelayerStatus
}

func newRelayerStub() *relayerStub {
	return &relayerStub{entered: make(chan struct{}, 10), release: make(chan struct{})}
}

func (s *relayerStub) relayer(listen string) *Relayer {
	return &Relayer{
		Listen: listen, Paths: []string{"/v2/", "/liveness"},
		Overloaded: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }),
		Status:     func(context.Context) RelayerStatus { return s.status },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if strings.HasSuffix(r.URL.Path, "/hold") {
				s.entered <- struct{}{}
				select {
				case <-s.release:
				case <-r.Context().Done():
					return
				}
			}
			if strings.HasSuffix(r.URL.Path, "/panic") {
				panic("on purpose")
			}
			w.Header().Set("X-Read", http.StatusText(http.StatusOK))
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = w.Write(append([]byte("relayer "+r.Method+" "+r.URL.Path+" "), body...))
		}),
	}
}

func (r *rig) fetch(listener, method, path, body string) (status int, text string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.srv.Address(listener)+path, strings.NewReader(body))
	require.NoError(r.t, err)
	transport := &http.Transport{DialContext: r.dial(listener), DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(data)
}

func TestRelayerPaths(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"", "127.0.0.1:0"} {
		s := newRelayerStub()
		r := newRig(t, rigSpec{options: Options{Relayer: s.relayer(listen)}})
		at := UserListener
		if listen != "" {
			at = RelayerListener
			require.NotEqual(t, r.srv.Address(UserListener), r.srv.Address(at))
		} else {
			require.Empty(t, r.srv.Address(RelayerListener))
		}
		for path, want := range map[string]string{"/v2/x": "relayer POST /v2/x {}", "/v2/": "relayer POST /v2/ {}", "/liveness": "relayer POST /liveness {}"} {
			status, text := r.fetch(at, "POST", path, "{}")
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, want, text)
		}
		for _, path := range []string{"/v2", "/", "/livenessx", "/liveness/x", "//v2/x"} { // JSON-RPC's, where it shares the listener
			_, text := r.fetch(UserListener, "POST", path, "{}")
			require.Contains(t, text, "jsonrpc", path)
		}
		if listen != "" {
			_, text := r.fetch(UserListener, "POST", "/v2/x", "{}")
			require.Contains(t, text, "jsonrpc")
		}
	}
}

// As many requests as maxConcurrentRequests says are worked on; probes always are, and JSON-RPC has its own places.
func TestRelayerOverload(t *testing.T) {
	t.Parallel()
	s := newRelayerStub()
	r := newRig(t, rigSpec{user: map[string]any{"maxConcurrentRequests": 1}, options: Options{Relayer: s.relayer("")}})
	held := make(chan int, 1)
	go func() {
		resp, err := r.client.Get("http://" + r.srv.Address(UserListener) + "/v2/hold")
		if err != nil {
			held <- 0
			return
		}
		resp.Body.Close()
		held <- resp.StatusCode
	}()
	<-s.entered
	status, _ := r.fetch(UserListener, "GET", "/v2/x", "")
	require.Equal(t, http.StatusTooManyRequests, status)
	status, _ = r.fetch(UserListener, "GET", "/liveness", "")
	require.Equal(t, http.StatusOK, status)
	_, text := r.fetch(UserListener, "POST", "/", "{}")
	require.Contains(t, text, `"reason":"invalid_request"`)
	close(s.release)
	require.Equal(t, http.StatusOK, <-held)
	status, _ = r.fetch(UserListener, "GET", "/v2/x", "")
	require.Equal(t, http.StatusOK, status)
}

// A body has to come within the read timeout, and what follows it may take longer.
func TestRelayerReadTimeout(t *testing.T) {
	t.Parallel()
	s := newRelayerStub()
	r := newRig(t, rigSpec{user: map[string]any{"readTimeoutMillis": 100}, options: Options{Relayer: s.relayer("")}})
	conn, err := net.Dial("tcp", r.srv.Address(UserListener))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v2/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	resp.Body.Close()

	late := time.AfterFunc(300*time.Millisecond, func() { close(s.release) })
	defer late.Stop()
	status, text := r.fetch(UserListener, "POST", "/v2/hold", "body")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "relayer POST /v2/hold body", text)
}

func TestRelayerPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{options: Options{Relayer: newRelayerStub().relayer("")}})
	_, err := r.client.Get("http://" + r.srv.Address(UserListener) + "/v2/panic")
	require.Error(t, err)
	status, _ := r.fetch(UserListener, "GET", "/v2/x", "")
	require.Equal(t, http.StatusOK, status)
}

// The relayer's tables are needed to be ready; who dispatches is told.
func TestRelayerReady(t *testing.T) {
	t.Parallel()
	s := newRelayerStub()
	s.status = RelayerStatus{Dispatcher: true, Epoch: 7, Paused: true}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "relayer_stub"}))
	r := newRig(t, rigSpec{options: Options{Relayer: s.relayer(""), ReadyWithoutNodes: true, Metrics: registry}})
	status, text := r.fetch(AdminListener, "GET", "/readyz", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `"relayer":{"dispatcher":true,"epoch":7,"paused":true}`)
	s.status = RelayerStatus{Storage: "no such table"}
	status, text = r.fetch(AdminListener, "GET", "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "no such table")
	_, text = r.fetch(AdminListener, "GET", "/metrics", "")
	require.Contains(t, text, "relayer_stub 0")
	require.Contains(t, text, "dongate_requests_total")
}

func TestRelayerListenerInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	first := newRig(t, rigSpec{})
	srv, err := New(Options{Config: first.cfg, Relayer: newRelayerStub().relayer(l.Addr().String())})
	require.NoError(t, err)
	require.ErrorContains(t, srv.Start(), "relayer listener")
}
