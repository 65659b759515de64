package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// origin is an endpoint on loopback and the configuration that allows it.
func origin(t *testing.T, h http.HandlerFunc) (url string, cfg map[string]any) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL, allow(t, s.URL)
}

func allow(t *testing.T, urls ...string) map[string]any {
	var ports []int
	for _, raw := range urls {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		port, err := strconv.Atoi(u.Port())
		require.NoError(t, err)
		ports = append(ports, port)
	}
	return map[string]any{"httpClientConfig": map[string]any{"allowedIPs": []string{"127.0.0.1"}, "allowedPorts": append(ports, 80, 443)}}
}

// acted is the answer to an action.
type acted struct {
	ErrorMessage  string              `json:"errorMessage"`
	External      bool                `json:"isExternalEndpointError"`
	Validation    bool                `json:"isValidationError"`
	StatusCode    int                 `json:"statusCode"`
	Headers       map[string]string   `json:"headers"`
	MultiHeaders  map[string][]string `json:"multiHeaders"`
	Body          []byte              `json:"body"`
	LatencyNanosP *int64              `json:"externalEndpointLatency"`
}

var actionNumber atomic.Int64

// ask sends an action for w; more overrides members of the result.
func (n *testNode) ask(w workflow.Metadata, more map[string]any) (id string) {
	id = fmt.Sprintf("http_action/%s/%d", w.Selector.WorkflowID, actionNumber.Add(1))
	result := merge(map[string]any{"workflowId": w.Selector.WorkflowID, "workflowOwner": w.Selector.WorkflowOwner}, more)
	n.send(jsonrpc.AppendResult(nil, id, methodAction, mustJSON(result)))
	return id
}

// reply reads answers until the one for id.
func (n *testNode) reply(id string) acted {
	timeout := time.After(20 * time.Second)
	for {
		select {
		case req := <-n.got:
			if req.ID != id {
				continue
			}
			var a acted
			if err := json.Unmarshal(req.Params, &a); err != nil {
				n.r.t.Errorf("%s: %v", req.Params, err)
			}
			return a
		case <-timeout:
			n.r.t.Errorf("no answer to %s", id)
			return acted{}
		}
	}
}

// conformance: 7.answer.form
// conformance: 7.user-agent
// conformance: 7.request.headers
func TestActionReachesTheEndpoint(t *testing.T) {
	t.Parallel()
	u, cfg := origin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("X-Many", "a")
		w.Header().Add("X-Many", "b")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s %q %s", r.Method, r.URL.RequestURI(), body, r.Header["X-In"], r.UserAgent())
	})
	r := newRig(t, rigSpec{top: cfg, options: Options{Version: "1.2.3"}})
	w := theWorkflow()
	n := r.connect("don", 0, nil, nil)
	a := n.reply(n.ask(w, map[string]any{"url": u + "/p?q=1", "method": "POST", "body": []byte("hello"),
		"headers": map[string]string{"X-In": "lost"}, "multiHeaders": map[string][]string{"X-In": {"1", "2"}}}))
	require.False(t, a.External || a.Validation, a.ErrorMessage)
	require.Equal(t, http.StatusTeapot, a.StatusCode)
	require.Equal(t, `POST /p?q=1 hello ["1" "2"] dongate/1.2.3`, string(a.Body))
	require.Equal(t, "a,b", a.Headers["X-Many"])
	require.Equal(t, []string{"a", "b"}, a.MultiHeaders["X-Many"])
	require.Positive(t, *a.LatencyNanosP)
}

// 100 concurrent identical requests from 4 nodes are one upstream call; the next
// round is served from the cache, with latency 0.
//
// conformance: 7.cache.one-call
// conformance: 7.answer.latency
func TestSharedCallAndHit(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	release := make(chan struct{})
	u, cfg := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		<-release
		_, _ = io.WriteString(w, "answer")
	})
	r := newRig(t, rigSpec{top: cfg})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	ask := map[string]any{"url": u, "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}}
	ids := map[*testNode][]string{}
	for range 25 {
		for _, n := range nodes {
			ids[n] = append(ids[n], n.ask(w, ask))
		}
	}
	r.eventually(func() bool { return r.svc().actions.cache.Stats().Waiters == 99 }, "99 wait for one call")
	close(release)
	for n, list := range ids {
		got := map[string]acted{}
		for range list {
			req := <-n.got
			var a acted
			require.NoError(t, json.Unmarshal(req.Params, &a))
			got[req.ID] = a
		}
		for _, id := range list {
			require.Equal(t, "answer", string(got[id].Body))
		}
	}
	require.EqualValues(t, 1, calls.Load())
	for _, n := range nodes {
		a := n.reply(n.ask(w, ask))
		require.Equal(t, "answer", string(a.Body))
		require.Zero(t, *a.LatencyNanosP)
	}
	require.EqualValues(t, 1, calls.Load())
	require.EqualValues(t, 4, testutil.ToFloat64(r.srv.metrics.actions[actionHit]))
}

// A leader with a 1 ms timeout does not fail followers, a follower with 500 ms
// leaves a long leader on time, and a timeout is told within 100 ms of its deadline.
//
// conformance: 7.cache.own-timeout
func TestWaitersHaveTheirOwnTimeouts(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 10), make(chan struct{})
	u, cfg := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "late but good")
	})
	r := newRig(t, rigSpec{top: cfg})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	ask := func(n *testNode, timeoutMs int) string {
		return n.ask(w, map[string]any{"url": u, "timeoutMs": timeoutMs, "cacheSettings": map[string]any{"maxAgeMs": 1000}})
	}
	leader := ask(nodes[0], 300)
	<-entered
	long := ask(nodes[1], 10_000)
	r.eventually(func() bool { return r.svc().actions.cache.Stats().Waiters == 1 }, "it joins")
	a := nodes[0].reply(leader)
	require.True(t, a.External, a.ErrorMessage)
	require.Contains(t, a.ErrorMessage, "300ms")
	short := ask(nodes[2], 200)
	a = nodes[2].reply(short)
	require.True(t, a.External, a.ErrorMessage)
	close(release)
	a = nodes[1].reply(long)
	require.Equal(t, "late but good", string(a.Body), a.ErrorMessage)
	require.Len(t, entered, 0, "one call only")
}

// What may not be asked is refused as isValidationError, and nothing is sent.
//
// conformance: 7.answer.refused
// conformance: 7.request.scheme
// conformance: 7.refused.method
// conformance: 7.refused.port
// conformance: 7.refused.headers
// conformance: 7.refused.control
// conformance: 7.refused.address
// conformance: 7.request.body
func TestRefusedActions(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var reached atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	r := newRig(t, rigSpec{top: map[string]any{"httpClientConfig": map[string]any{"allowedPorts": []any{json.Number(port), 80, 443}}}})
	w, known := testWorkflow(0x77, "unknown", "v1", clientSigner), theWorkflow()
	n := r.connectAll(nil, known)["don"][0]
	target := "http://127.0.0.1:" + port
	for name, more := range map[string]map[string]any{
		"loopback":         {"url": target},
		"cloud metadata":   {"url": "http://169.254.169.254/latest/meta-data/"},
		"localhost":        {"url": "http://localhost:" + port},
		"hex host":         {"url": "http://0x7f000001:" + port},
		"scheme":           {"url": "ftp://example.org/"},
		"no url":           {},
		"method":           {"url": "http://example.org/", "method": "TRACE"},
		"header":           {"url": "http://example.org/", "headers": map[string]string{"Host": "x"}},
		"unused header":    {"url": "http://example.org/", "headers": map[string]string{"Host": "x"}, "multiHeaders": map[string][]string{"X": {"1"}}},
		"header value":     {"url": "http://example.org/", "headers": map[string]string{"X": "a\r\nB: c"}},
		"port":             {"url": "http://example.org:22/"},
		"client key off":   {"url": "https://example.org/", "mtlsAuth": map[string]any{"privateKey": []byte("x"), "certificate": []byte("y")}},
		"other workflow":   {"url": "http://example.org/", "workflowId": known.Selector.WorkflowID},
		"no workflow":      {"url": "http://example.org/", "workflowId": ""},
		"no owner":         {"url": "http://example.org/", "workflowOwner": "nobody"},
		"wrong type":       {"url": 17},
		"negative timeout": {"url": "http://example.org/", "timeoutMs": -1},
		"bad base64":       {"url": "http://example.org/", "body": "!"},
	} {
		a := n.reply(n.ask(w, more))
		require.True(t, a.Validation, "%s: %+v", name, a)
		require.False(t, a.External, name)
		require.NotEmpty(t, a.ErrorMessage, name)
	}
	a := n.reply(n.ask(known, map[string]any{"url": "http://example.org/", "workflowOwner": fmt.Sprintf("0x%040x", 8)}))
	require.True(t, a.Validation)
	require.Contains(t, a.ErrorMessage, "not the owner")
	require.Zero(t, reached.Load())
}

// A node that claims an owner whom metadata does not confirm neither fills the
// owner's slots nor reads its entries.
//
// conformance: 7.owner.unconfirmed
func TestUnconfirmedOwnerIsAnother(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	u, cfg := origin(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "secret of the owner")
	})
	r := newRig(t, rigSpec{top: cfg})
	known, made := theWorkflow(), testWorkflow(0x77, "made up", "v1", clientSigner) // the same owner
	nodes := r.connectAll(nil, known)["don"]
	cached := map[string]any{"url": u, "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}}
	require.Equal(t, 200, nodes[0].reply(nodes[0].ask(known, cached)).StatusCode)
	require.Equal(t, 200, nodes[0].reply(nodes[0].ask(known, cached)).StatusCode)
	require.EqualValues(t, 1, calls.Load())
	require.Equal(t, 200, nodes[1].reply(nodes[1].ask(made, cached)).StatusCode)
	require.EqualValues(t, 2, calls.Load(), "an entry of the confirmed owner is not for it")

	for range 40 {
		nodes[1].ask(made, map[string]any{"url": u + "/hang", "timeoutMs": 60_000})
	}
	r.eventually(func() bool { return r.svc().actions.slots.underWay() == maxActionsPerNodeAndOwner }, "half of an owner's slots are the most for one node")
	a := nodes[0].reply(nodes[0].ask(known, map[string]any{"url": u + "/other"}))
	require.Equal(t, 200, a.StatusCode, a.ErrorMessage)
}

// Past its bounds a node is answered at once.
//
// conformance: 7.limit.global
// conformance: 7.limit.node
// conformance: 7.limit.owner
func TestActionSlots(t *testing.T) {
	t.Parallel()
	s := newActionSlots(100)
	a, b, c := &node{}, &node{}, &node{}
	own := func(i int) actionOwner { return actionOwner{don: "d", address: fmt.Sprint(i), confirmed: true} }
	var release []func()
	take := func(n *node, o actionOwner) bool {
		r, _ := s.take(n, o)
		if r != nil {
			release = append(release, r)
		}
		return r != nil
	}
	for range 32 {
		require.True(t, take(a, own(1)))
	}
	require.False(t, take(a, own(1)), "half of the owner's")
	for range 32 {
		require.True(t, take(b, own(1)))
	}
	require.False(t, take(c, own(1)), "the owner's 64")
	for range 32 {
		require.True(t, take(a, own(2)))
	}
	require.False(t, take(a, own(3)), "the node's 64")
	for i := range 4 {
		require.True(t, take(c, own(10+i)))
	}
	require.False(t, take(c, own(20)), "the gateway's 100")
	for _, f := range release {
		f()
	}
	require.Zero(t, s.underWay())
	require.Empty(t, s.nodes)
	require.Empty(t, s.owners)
}

// The answer reaches a node that reconnected meanwhile, on its new session.
//
// conformance: 7.answer.new-session
func TestActionAnswerFollowsTheNode(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	u, cfg := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "found you")
	})
	r := newRig(t, rigSpec{top: cfg})
	w := theWorkflow()
	n := r.connect("don", 0, nil, nil)
	id := n.ask(w, map[string]any{"url": u})
	<-entered
	_ = n.conn.Close()
	r.eventually(func() bool { return r.srv.current().topology.shards["don"].nodes[0].session.Load() == nil }, "gone")
	close(release)
	r.eventually(func() bool { return r.svc().actions.slots.underWay() == 0 }, "the call has ended")
	again := r.connect("don", 0, nil, nil)
	require.Equal(t, "found you", string(again.reply(id).Body))
}
