package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// A node that connects while more requests are open than its queue holds gets
// them all: the retries of those that did not fit at first are not forgotten.
func TestReconnectWithMoreOpenThanTheQueueHolds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const open = 600
		r := newRig(t, rigSpec{bubble: true, handler: unlimited()})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept, silent, silent)
		r.awaitWorkflow(w.Selector.WorkflowID)
		outcomes := make(chan string, open)
		for i := range open {
			go func() { outcomes <- r.trigger(w, fmt.Sprintf("r%d", i)).reason() }()
		}
		time.Sleep(11 * time.Second) // all timers are far away by now
		honest := r.connect("don", 2, []workflow.Metadata{w}, nil)
		for range open {
			require.Equal(t, "ok", <-outcomes)
		}
		require.Equal(t, open, honest.seen())
	})
}

// A request that waits in, or went out on, a session that has been replaced goes
// to the new session at once.
func TestReplacedSessionGetsOpenRequestsAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept)
		r.awaitWorkflow(w.Selector.WorkflowID)
		// A session that does not read: over a pipe its writer is stuck at once.
		stuck, err := r.dialNode("don", 2, uint32(time.Now().Unix()))
		require.NoError(t, err)
		defer stuck.conn.Close()
		synctest.Wait()
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "") }()
		time.Sleep(2 * time.Second)
		start := time.Now()
		r.connect("don", 2, []workflow.Metadata{w}, nil)
		require.Equal(t, 200, (<-done).status)
		require.Less(t, time.Since(start), 50*time.Millisecond)
	})
}

// Bodies are accounted until they are dispatched, not until they are answered:
// one owner whose nodes are silent does not lock others out by padding.
func TestPaddingDoesNotHoldTheReadingBudget(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"maxOpenBytes": 4 << 20},
			dons: []donSpec{{"don", 1, []int{4}}, {"other", 1, []int{4}}}})
		slow, w := testWorkflow(1, "slow", "v1", clientSigner), testWorkflow(2, "fast", "v1", clientSigner)
		for i := range 4 {
			r.connect("don", i, []workflow.Metadata{slow}, silent)
			r.connect("other", i, []workflow.Metadata{w}, nil)
		}
		r.awaitWorkflow(slow.Selector.WorkflowID)
		r.awaitWorkflow(w.Selector.WorkflowID)
		padded := `{"workflow":{"workflowID":"1"},"input":[` + strings.Repeat(" ", 1<<20-1000) + `]}`
		for i := range 10 {
			s := sign(fmt.Sprintf("p%d", i), padded, clientSigner, auth.TokenOptions{})
			go func() {
				req, _ := http.NewRequest(http.MethodPost, "http://gateway/", strings.NewReader(strings.Replace(string(s.body), "[]", padded[strings.Index(padded, "["):len(padded)-1], 1)))
				req.Header = s.header()
				_, _ = r.do(req)
			}()
			time.Sleep(200 * time.Millisecond)
		}
		synctest.Wait()
		require.NotZero(t, r.srv.openRequests())
		require.Zero(t, r.srv.clients.reading.Load())
		require.Equal(t, "ok", r.trigger(w, "").reason())
	})
}

// Once half the open bytes are taken, one owner has at most a quarter of them.
func TestOneOwnerLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: merge(unlimited(), map[string]any{"maxOpenBytes": 1 << 20})})
		hog, w := testWorkflow(1, "hog", "v1", clientSigner), testWorkflow(2, "w", "v1", clientSigner)
		w.Selector.WorkflowOwner = fmt.Sprintf("0x%040x", 8)
		answer := func(n *testNode, req jsonrpc.Request) {
			if workflowOf(req) == w.Selector.WorkflowID {
				n.accept(req)
			}
		}
		r.connectAll(answer, hog, w)
		refused := make(chan string, 100)
		for range 30 {
			go func() {
				refused <- r.send(sign("", paramsFor(hog, []string{strings.Repeat("x", 50<<10)}), clientSigner, auth.TokenOptions{})).reason()
			}()
		}
		synctest.Wait()
		require.Equal(t, "overloaded", <-refused)
		require.Equal(t, "ok", r.send(sign("", paramsFor(w, []string{strings.Repeat("x", 50<<10)}), clientSigner, auth.TokenOptions{})).reason())
	})
}

// A client that stops sending before its answer came gets no empty success.
func TestHalfClosedClientGetsNoEmptyAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	nodes := r.connectAll(silent, w)["don"]
	s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	conn, err := net.Dial("tcp", r.srv.Address(UserListener))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", s.token, len(s.body), s.body)
	require.NoError(t, err)
	<-nodes[0].got
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	raw, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Empty(t, string(raw))
}

// While draining a node may come back: open requests may need it.
func TestNodeReconnectsWhileDraining(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept, silent)
		r.awaitWorkflow(w.Selector.WorkflowID)
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "") }()
		synctest.Wait()
		stopped := make(chan error, 1)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		go func() { stopped <- r.srv.Shutdown(ctx) }()
		synctest.Wait()
		n, err := r.dialNode("don", 3, uint32(time.Now().Unix()))
		require.NoError(t, err)
		go n.serve([]workflow.Metadata{w}, nil)
		require.Equal(t, 200, (<-done).status)
		require.NoError(t, <-stopped)
		<-n.ended
		_ = n.conn.Close()
	})
}

// A request on a kept-alive connection is answered while draining, not cut.
func TestKeptAliveConnectionIsAnsweredWhileDraining(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectAll(silent, w)
		conn, err := r.dial(UserListener)(context.Background(), "", "")
		require.NoError(t, err)
		defer conn.Close()
		ask := func() string {
			go func() { _, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}") }()
			buf := make([]byte, 4096)
			n, err := conn.Read(buf)
			require.NoError(t, err)
			return string(buf[:n])
		}
		require.Contains(t, ask(), "400 Bad Request")
		go func() { _ = r.trigger(w, "open") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- r.srv.Shutdown(ctx) }()
		synctest.Wait()
		answer := ask()
		require.Contains(t, answer, "503 Service Unavailable")
		require.Contains(t, answer, "Connection: close")
		require.NoError(t, <-stopped)
	})
}

// One refused request does not end an HTTP/2 connection that others share.
func TestRefusalKeepsTheHTTP2Connection(t *testing.T) {
	t.Parallel()
	cert, keyFile, pool := selfSigned(t)
	r := newRig(t, rigSpec{user: map[string]any{"tlsEnabled": true, "tlsCertPath": cert, "tlsKeyPath": keyFile}})
	client := http2Client(t, pool)
	var first net.Addr
	for i := range 3 {
		req, err := http.NewRequest(http.MethodPost, "https://"+r.srv.Address(UserListener)+"/", strings.NewReader(`{"jsonrpc":"2.0"}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer x.y.z")
		var used net.Addr
		resp, err := client.Do(traceConn(req, &used))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 401, resp.StatusCode)
		require.Equal(t, 2, resp.ProtoMajor)
		if i == 0 {
			first = used
		}
		require.Equal(t, first.String(), used.String(), "the same connection")
	}
}

// A refused connection to the node listener is closed, not kept.
func TestRefusedNodeConnectionIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	for _, request := range []string{"GET /node HTTP/1.1\r\nHost: x\r\n\r\n", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "PUT /node HTTP/1.1\r\nHost: x\r\n\r\n"} {
		conn, err := net.Dial("tcp", r.srv.Address(NodeListener))
		require.NoError(t, err)
		_, err = io.WriteString(conn, request)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		raw, err := io.ReadAll(conn) // to the end: the gateway closes
		require.NoError(t, err)
		require.Contains(t, string(raw), "HTTP/1.1 40")
		require.NoError(t, conn.Close())
	}
}

// Late answers, however large, are dropped before anything in them is looked at,
// and a node's ninth answer is not digested.
func TestLateAnswersAreCheap(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	r.connect("don", 0, []workflow.Metadata{w}, silent)
	s := r.srv.current().topology.shards["don"].nodes[0].session.Load()
	resp, err := jsonrpc.DecodeResponse([]byte(`{"jsonrpc":"2.0","id":"unknown","method":"","result":{"workflow_id":17}}`))
	require.NoError(t, err)
	r.svc().answer(s, &resp)
	require.EqualValues(t, 1, testutil.ToFloat64(s.node.shard.m.dropped[dropLate]), "late, not foreign: the result was not read")
}

// The pull that a session begins with is open by the time the node can answer it,
// however fast that is: no node's word gets lost until the next pull.
func TestEveryFirstPullCounts(t *testing.T) {
	t.Parallel()
	const nodes = 200
	r := newRig(t, rigSpec{dons: []donSpec{{"don", 66, []int{nodes}}}})
	w := theWorkflow()
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { r.connect("don", i, []workflow.Metadata{w}, nil) })
	}
	wg.Wait()
	r.eventually(func() bool { return testutil.ToFloat64(r.srv.current().topology.shards["don"].m.reports) == nodes }, "a node's report is missing")
	require.Zero(t, testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropLate]))
}

// A refused request whose declared body never comes does not hold its connection.
func TestRefusedRequestsAreClosedThoughTheirBodyNeverComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	for name, tt := range map[string]struct{ listener, head, want string }{
		"bad token":    {UserListener, "POST / HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 1000", "401"},
		"path":         {UserListener, "POST /other HTTP/1.1\r\nContent-Length: 1000", "404"},
		"encoding":     {UserListener, "POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1000", "415"},
		"chunked":      {UserListener, "POST / HTTP/1.1\r\nAuthorization: Bearer x\r\nTransfer-Encoding: chunked", "401"},
		"health":       {UserListener, "GET /health HTTP/1.1\r\nConnection: close\r\nContent-Length: 1000", "200"},
		"node":         {NodeListener, "GET /node HTTP/1.1\r\nContent-Length: 1000", "401"},
		"node, path":   {NodeListener, "GET /x HTTP/1.1\r\nContent-Length: 1000", "404"},
		"admin":        {AdminListener, "GET /healthz HTTP/1.1\r\nConnection: close\r\nContent-Length: 1000", "200"},
		"admin, chunk": {AdminListener, "POST /x HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked", "404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", r.srv.Address(tt.listener))
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, tt.head+"\r\nHost: x\r\n\r\n")
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
			raw, err := io.ReadAll(conn) // ends when the gateway closes
			require.NoError(t, err)
			require.Contains(t, string(raw), "HTTP/1.1 "+tt.want)
		})
	}
}

// Two nodes of one name do not take the metrics down.
func TestNodesOfOneNameKeepTheMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	cfg := *r.cfg
	cfg.DONs[0].Shards[0].Nodes[1].Name = cfg.DONs[0].Shards[0].Nodes[0].Name
	srv, err := New(Options{Config: &cfg})
	require.NoError(t, err)
	_, err = srv.metrics.registry.Gather()
	require.NoError(t, err)
}

// Throttled requests are counted by scope.
func TestThrottlesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{handler: map[string]any{"userRateLimiter": map[string]any{"perSenderRPS": 0.001, "perSenderBurst": 1}}})
	w := theWorkflow()
	r.connectAll(nil, w)
	require.Equal(t, 200, r.trigger(w, "").status)
	require.Equal(t, 429, r.trigger(w, "").status)
	require.EqualValues(t, 1, testutil.ToFloat64(r.srv.metrics.throttled.WithLabelValues("rate")))
}
