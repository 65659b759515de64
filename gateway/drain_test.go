package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
)

// conformance: 2.error.draining
func TestDrainFinishesOpenRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		slow := func(n *testNode, req jsonrpc.Request) { time.AfterFunc(3*time.Second, func() { n.accept(req) }) }
		r.connectAll(slow, w)
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "open") }()
		synctest.Wait()
		stopped := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		start := time.Now()
		go func() { stopped <- r.srv.Shutdown(ctx) }()
		synctest.Wait()
		a := r.trigger(w, "new")
		require.Equal(t, 503, a.status)
		require.Equal(t, "draining", a.reason())
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Equal(t, 200, (<-done).status)
		require.NoError(t, <-stopped)
		require.Less(t, time.Since(start), 6*time.Second)
	})
}

// conformance: 2.error.draining
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectAll(silent, w)
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "open") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		start := time.Now()
		require.NoError(t, r.srv.Shutdown(ctx))
		require.InDelta(t, 2*time.Second, time.Since(start), float64(time.Second))
		a := <-done
		require.Equal(t, 503, a.status)
		require.Equal(t, "draining", a.reason())
		require.Contains(t, a.body.Error.Message, "may have run")
	})
}

// A request that takes longer than readTimeoutMillis is not mistaken for a client
// that went away.
func TestLongRequestOutlivesReadTimeout(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, user: map[string]any{"readTimeoutMillis": 1000, "writeTimeoutMillis": 2000}})
		w := theWorkflow()
		slow := func(n *testNode, req jsonrpc.Request) { time.AfterFunc(30*time.Second, func() { n.accept(req) }) }
		r.connectAll(slow, w)
		require.Equal(t, 200, r.trigger(w, "").status)
	})
}

// A body that stalls is given up at readTimeoutMillis, with an answer.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		pr, pw := io.Pipe()
		defer pw.Close()
		req, err := http.NewRequest(http.MethodPost, "http://gateway/", pr)
		require.NoError(t, err)
		start := time.Now()
		go func() { _, _ = pw.Write([]byte(`{"jsonrpc"`)) }()
		a, err := r.do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, a.status)
		require.Equal(t, "invalid_request", a.reason())
		require.InDelta(t, 10*time.Second, time.Since(start), float64(100*time.Millisecond))
	})
}

// /healthz says alive, /readyz says a quorum of each served DON is connected.
func TestAdmin(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	client := &http.Client{Transport: &http.Transport{DialContext: r.dial(AdminListener), DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		resp, err := client.Get("http://admin" + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	status, _ := get("/healthz")
	require.Equal(t, 200, status)
	for i := range 2 {
		r.connect("don", i, nil, nil)
	}
	status, body := get("/readyz")
	require.Equal(t, 503, status)
	require.JSONEq(t, `{"ready":false,"draining":false,"waiting":["don"]}`, body)
	r.connect("don", 2, nil, nil)
	status, body = get("/readyz")
	require.Equal(t, 200, status, body)
	status, body = get("/metrics")
	require.Equal(t, 200, status)
	require.Contains(t, body, `dongate_shard_quorum_margin{shard="don"} 0`)
	require.Contains(t, body, `dongate_node_clock_skew_seconds{node="don-n0",shard="don"}`)
	status, _ = get("/debug/pprof/")
	require.Equal(t, 404, status)
	r.srv.leave()
	status, body = get("/readyz")
	require.Equal(t, 503, status)
	var ready Readiness
	require.NoError(t, json.Unmarshal([]byte(body), &ready))
	require.True(t, ready.Draining)
}
