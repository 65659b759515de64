package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
)

// A removed node's session is closed with 1008, its metadata goes, its header is
// refused, and a new node is let in and vouches.
func TestReloadMembers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		nodes := r.connectAll(nil)["don"]
		for _, n := range nodes[2:] { // f+1 vouch for it
			n.send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		}
		r.awaitWorkflow(w.Selector.WorkflowID)
		old := r.shards["don"]
		staying := r.live("don", 0)
		removed := r.srv.current().topology.shards["don"].nodes[3]

		fresh := auth.NewKeySigner(key(100))
		now := []auth.Signer{old[0], old[1], old[2], fresh}
		out := r.reloaded(func(f testFile) { f.setNodes(0, 0, now...) })
		require.Equal(t, []string{"shardedDONs"}, out.Applied)
		require.Empty(t, out.NeedsRestart)
		<-nodes[3].ended
		require.True(t, websocket.IsCloseError(nodes[3].closeErr, websocket.ClosePolicyViolation), "%v", nodes[3].closeErr)
		require.False(t, r.known(w), "one node's word is left")
		require.Same(t, staying, r.live("don", 0), "who stays keeps its session")
		_, err := r.dialNode("don", 3, r.nextSecond())
		require.Error(t, err)
		require.Equal(t, 1, r.handshakes("unknown_node"))

		r.shards["don"] = now
		n := r.connect("don", 3, nil, nil)
		n.send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		r.awaitWorkflow(w.Selector.WorkflowID)
		require.Equal(t, 200, r.trigger(w, "").status)
		require.Equal(t, 1, n.seen())
		require.Equal(t, "new-n1", r.srv.current().topology.shards["don"].nodes[1].name(), "and may have another name")

		require.Nil(t, removed.live())
		r.reloaded(func(f testFile) { f.setNodes(0, 0, old...) })
		back := r.srv.current().topology.shards["don"].nodes[3]
		require.NotSame(t, removed, back, "who comes back is another node")
		require.NotEmpty(t, back.seconds, "whose used headers stay used")
		require.Len(t, r.srv.current().topology.former, 1)
		time.Sleep(time.Minute)
		r.reloaded(func(testFile) {})
		require.Empty(t, r.srv.current().topology.former)
	})
}

// An open request keeps its members and its threshold, save that the votes of the
// removed stop counting; later ones have the new.
//
// conformance: 5.members.dispatch
func TestReloadLeavesOpenRequests(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		answer := make([]chan struct{}, 4)
		var do []behave
		for i := range answer {
			answer[i] = make(chan struct{})
			do = append(do, func(n *testNode, req jsonrpc.Request) { go func() { <-answer[i]; n.accept(req) }() })
		}
		nodes := r.connectEach("don", nil, do...)
		for _, n := range nodes {
			n.send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		}
		r.awaitWorkflow(w.Selector.WorkflowID)
		done := make(chan *clientAnswer, 1)
		go func() { done <- r.trigger(w, "open") }()
		synctest.Wait()
		for _, i := range []int{0, 3} {
			close(answer[i])
		}
		synctest.Wait()
		require.Equal(t, 2, r.votes("don", 0))

		fresh := auth.NewKeySigner(key(100))
		r.reloaded(func(f testFile) { f.setNodes(0, 0, append([]auth.Signer{fresh}, r.shards["don"][:3]...)...) })
		close(answer[1])
		synctest.Wait()
		select {
		case <-done:
			require.Fail(t, "two of the three votes count, and three are needed")
		default:
		}
		close(answer[2])
		a := <-done
		require.Equal(t, 200, a.status, string(a.raw))
	})
}

// A shard that is left out takes its workflows with it, and its counters; a DON that
// no service names is let in.
func TestReloadShards(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"a", 1, []int{4, 4}}, {"b", 0, []int{1}}}})
		w := theWorkflow()
		r.connect("b", 0, nil, nil)
		for i := range 4 {
			n := r.connect("a_1", i, nil, nil)
			n.send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		}
		r.awaitWorkflow(w.Selector.WorkflowID)
		require.Equal(t, 200, r.trigger(w, "").status)
		count := func(metric string) int {
			n, err := testutil.GatherAndCount(r.srv.metrics.registry, metric)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 3*5, count("dongate_trigger_sends_total"))
		all := slices.Clone(r.file["shardedDONs"].([]any))
		r.reloaded(func(f testFile) {
			f.don(0)["shards"] = f.don(0)["shards"].([]any)[:1]
			f["shardedDONs"] = append(f["shardedDONs"].([]any)[:1:1], map[string]any{"donName": "c", "f": 0,
				"shards": []any{map[string]any{"nodes": []any{map[string]any{"address": auth.NewKeySigner(key(100)).Address().Hex()}}}}})
			f["services"].([]any)[0].(map[string]any)["dons"] = []any{"a"}
		})
		synctest.Wait()
		a := r.trigger(w, "")
		require.Equal(t, "workflow_not_found", a.reason())
		require.Equal(t, 2*5, count("dongate_trigger_sends_total"))
		require.Equal(t, []string{"a"}, r.srv.Ready(t.Context()).Waiting)
		r.shards["c"] = []auth.Signer{auth.NewKeySigner(key(100))}
		r.connect("c", 0, nil, nil)

		out := r.reloaded(func(f testFile) {
			f["shardedDONs"] = all
			f["services"].([]any)[0].(map[string]any)["dons"] = []any{"a", "b"}
		})
		require.Empty(t, out.NeedsRestart)
		r.connect("b", 0, nil, nil)
		require.Equal(t, 2*5, count("dongate_trigger_sends_total"), "c is gone, b is back")
	})
}

// The limits and times of a handler, and the limit of a client's address, as of the
// next request.
func TestReloadLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{handler: map[string]any{"nodeRateLimiter": map[string]any{"perSenderRPS": 0.001, "perSenderBurst": 1}}})
	w := theWorkflow()
	r.connectAll(nil, w)
	require.Equal(t, 200, r.trigger(w, "").status)
	out := r.reloaded(func(f testFile) {
		f.handler()["userRateLimiter"] = map[string]any{"perSenderRPS": 0.001, "perSenderBurst": 1}
	})
	require.Equal(t, []string{"services[0].handlers[0].config.userRateLimiter.perSenderRPS", "services[0].handlers[0].config.userRateLimiter.perSenderBurst"}, out.Applied)
	require.Equal(t, 200, r.trigger(w, "").status, "what the bucket holds is cut to one")
	require.Equal(t, "rate_limited", r.trigger(w, "").reason())
	r.reloaded(func(f testFile) {
		f.handler()["userRateLimiter"] = map[string]any{"perSenderRPS": 1e6, "perSenderBurst": 100}
		f.handler()["maxOpenBytes"] = 10
	})
	require.Equal(t, "overloaded", r.trigger(w, "").reason())
	r.reloaded(func(f testFile) {
		delete(f.handler(), "maxOpenBytes")
		f.section("userServerConfig")["perAddressRPS"] = 0.001
	})
	require.Equal(t, 200, r.trigger(w, "").status)
	require.Equal(t, "rate_limited", r.trigger(w, "").reason())
	r.reloaded(func(f testFile) { f.section("userServerConfig")["trustedProxies"] = []string{"127.0.0.0/8"} })
	s := sign("", paramsFor(w, map[string]any{}), clientSigner, auth.TokenOptions{})
	h := s.header()
	h.Set("X-Forwarded-For", "192.0.2.1")
	a, err := r.post(t.Context(), s.body, h)
	require.NoError(t, err)
	require.Equal(t, 200, a.status, "another address")
	r.reloaded(func(f testFile) { delete(f.section("userServerConfig"), "perAddressRPS") })
	for range 3 {
		require.Equal(t, 200, r.trigger(w, "").status)
	}
	r.reloaded(func(f testFile) { f.handler()["jwtIssuedAtToleranceMs"] = 1000 })
	late := sign("", paramsFor(w, map[string]any{}), clientSigner, auth.TokenOptions{Now: time.Now().Add(time.Minute)})
	require.Equal(t, "unauthorized", r.send(late).reason())

	r.reloaded(func(f testFile) {
		merge(f.handler(), map[string]any{"maxConcurrentActions": 3, "maxCacheBytes": 4, "outboundRequestCacheTTLMs": 5000, "maxMetadataBytes": 6,
			"cleanUpPeriodMs": 20000, "metadataPullIntervalMs": 7000, "metadataAggregationIntervalMs": 8000})
	})
	svc := r.svc()
	require.Equal(t, 3, svc.actions.slots.most)
	require.Equal(t, 7*time.Second, svc.config().MetadataPullInterval)
	require.Equal(t, 200, r.trigger(w, "").status, "what was agreed on stays")
	n := r.connect("don", 0, nil, nil)
	n.send(jsonrpc.AppendResult(nil, methodPush+"/2", methodPush, mustJSON(testWorkflow(2, "other", "v1", clientSigner))))
	r.eventually(func() bool { return r.dropped("don", dropRefused) == 1 }, "past maxMetadataBytes")
}

// New intervals count from the reload, and one that stays is not put off by it.
func TestReloadIntervals(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"metadataPullIntervalMs": 60_000, "cleanUpPeriodMs": 120_000, "metadataAggregationIntervalMs": 60_000}})
		w := theWorkflow()
		nodes := r.connectAll(nil)["don"]
		for _, n := range nodes[:2] {
			n.send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		}
		r.awaitWorkflow(w.Selector.WorkflowID)
		for _, n := range nodes[:2] {
			_ = n.conn.Close()
		}
		for range 300 {
			time.Sleep(400 * time.Millisecond)
			r.reloaded(func(f testFile) { f.handler()["maxOpenBytes"] = time.Now().Unix()%7 + 100_000 })
		}
		time.Sleep(time.Minute)
		require.False(t, r.known(w), "expired, however often it was reloaded")

		r.connect("don", 0, nil, nil).send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		r.connect("don", 1, nil, nil).send(jsonrpc.AppendResult(nil, methodPush+"/1", methodPush, mustJSON(w)))
		r.awaitWorkflow(w.Selector.WorkflowID)
		for i := range 2 {
			_ = r.live("don", i).conn.Close()
		}
		r.reloaded(func(f testFile) {
			merge(f.handler(), map[string]any{"metadataPullIntervalMs": 1000, "cleanUpPeriodMs": 2000, "metadataAggregationIntervalMs": 1000})
		})
		time.Sleep(4 * time.Second)
		require.False(t, r.known(w))
	})
}

// Shorter lives of what nodes report come with shorter pulls at once: nothing is
// forgotten that connected nodes still say.
func TestReloadKeepsWhatIsReported(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: map[string]any{"metadataPullIntervalMs": 60_000, "cleanUpPeriodMs": 300_000}})
		w := theWorkflow()
		r.connectAll(nil, w)
		for round := range 30 {
			time.Sleep(50 * time.Second)
			synctest.Wait()
			pull := 1000 + 59_000*(round%2)
			r.reloaded(func(f testFile) {
				merge(f.handler(), map[string]any{"metadataPullIntervalMs": pull, "cleanUpPeriodMs": 2 * pull, "metadataAggregationIntervalMs": 500})
			})
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				require.True(t, r.known(w), "round %d", round)
			}
		}
	})
}

func TestReloadCORS(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	allowed := func() string {
		a, err := r.post(t.Context(), []byte("{}"), http.Header{"Origin": {"https://app.example.com"}})
		require.NoError(t, err)
		return a.header.Get("Access-Control-Allow-Origin")
	}
	require.Empty(t, allowed())
	r.reloaded(func(f testFile) {
		merge(f.section("userServerConfig"), map[string]any{"corsEnabled": true, "corsAllowedOrigins": []string{"https://app.example.com"}})
	})
	require.Equal(t, "https://app.example.com", allowed())
	r.reloaded(func(f testFile) {
		f.section("userServerConfig")["corsAllowedOrigins"] = []string{"https://other.example.com"}
	})
	require.Empty(t, allowed())
}

// Egress rules count for the next action, on the same client where they stay.
func TestReloadEgress(t *testing.T) {
	t.Parallel()
	u, cfg := origin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	r := newRig(t, rigSpec{top: cfg})
	w := theWorkflow()
	n := r.connect("don", 0, nil, nil)
	ask := func() acted { return n.reply(n.ask(w, map[string]any{"url": u})) }
	require.Equal(t, "hello", string(ask().Body))
	stored := map[string]any{"url": u, "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}}
	for range 2 {
		require.Equal(t, "hello", string(n.reply(n.ask(w, stored)).Body))
	}
	require.Equal(t, 1, r.acted(actionHit))
	client := r.srv.current().egress
	r.reloaded(func(f testFile) { f.handler()["noQuorumGraceMs"] = 5 })
	require.Same(t, client, r.srv.current().egress)
	out := r.reloaded(func(f testFile) { f.section("httpClientConfig")["allowedMethods"] = []string{"POST"} })
	require.Equal(t, []string{"httpClientConfig.allowedMethods"}, out.Applied)
	require.True(t, ask().Validation)
	r.reloaded(func(f testFile) { delete(f.section("httpClientConfig"), "allowedMethods") })
	require.Equal(t, "hello", string(ask().Body))
	r.reloaded(func(f testFile) { delete(f.section("httpClientConfig"), "allowedIPs") })
	a := ask()
	require.True(t, a.Validation, "%+v", a)
	require.True(t, n.reply(n.ask(w, stored)).Validation, "an answer that came under the old rules is not handed out")
	require.Equal(t, 1, r.acted(actionHit))
}

// A certificate is replaced also where its file keeps its name, for connections made
// from then on.
func TestReloadCertificate(t *testing.T) {
	t.Parallel()
	cert, keyFile, pool := selfSigned(t)
	files := map[string]any{"tlsEnabled": true, "tlsCertPath": cert, "tlsKeyPath": keyFile}
	r := newRig(t, rigSpec{user: files, node: files})
	reach := func(listener string) error {
		c, err := tls.Dial("tcp", r.srv.Address(listener), &tls.Config{RootCAs: pool})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	client := http2Client(t, pool)
	get := func() error {
		resp, err := client.Get("https://" + r.srv.Address(UserListener) + "/health")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	require.NoError(t, get())
	newCert, newKey, newPool := selfSigned(t)
	for from, to := range map[string]string{newCert: cert, newKey: keyFile} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	out := r.reloaded(func(testFile) {})
	require.Equal(t, []string{"userServerConfig.tlsCertPath", "nodeServerConfig.tlsCertPath"}, out.Applied)
	for _, listener := range []string{UserListener, NodeListener} {
		require.Error(t, reach(listener), "the old one is not presented any more")
	}
	require.NoError(t, get(), "connections that are there go on")
	pool = newPool
	for _, listener := range []string{UserListener, NodeListener} {
		require.NoError(t, reach(listener))
	}
	require.Empty(t, r.reloaded(func(testFile) {}).Applied)
}

// A file of which one thing cannot be applied changes nothing at all.
func TestReloadAllOrNothing(t *testing.T) {
	t.Parallel()
	cert, keyFile, _ := selfSigned(t)
	r := newRig(t, rigSpec{user: map[string]any{"tlsEnabled": true, "tlsCertPath": cert, "tlsKeyPath": keyFile}})
	n := r.connect("don", 3, nil, nil)
	before := r.srv.current()
	for name, member := range map[string][2]string{
		"certificate": {"userServerConfig", "tlsCertPath"},
		"authorities": {"httpClientConfig", "caPath"},
	} {
		out, err := r.reload(func(f testFile) {
			f.setNodes(0, 0, auth.NewKeySigner(key(100)), auth.NewKeySigner(key(101)), auth.NewKeySigner(key(102)), auth.NewKeySigner(key(103)))
			f.section("userServerConfig")["tlsCertPath"] = cert
			f.section(member[0])[member[1]] = filepath.Join(t.TempDir(), "missing.pem")
		})
		require.ErrorContains(t, err, "missing.pem", name)
		require.Nil(t, out)
		require.Same(t, before, r.srv.current(), name)
	}
	require.NotNil(t, r.live("don", 3))
	select {
	case <-n.ended:
		require.Fail(t, "its session goes on")
	default:
	}
}

// What needs a restart is said, with what was applied beside it, and said again.
func TestReloadSaysWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	change := func(f testFile) {
		f.section("userServerConfig")["port"] = 1
		f["shutdownTimeoutMs"] = 1
		f["shardedDONs"] = append(f["shardedDONs"].([]any)[:1:1], map[string]any{"donName": "more", "f": 0,
			"shards": []any{map[string]any{"nodes": []any{map[string]any{"address": auth.NewKeySigner(key(100)).Address().Hex()}}}}})
		f["services"] = append(f["services"].([]any)[:1:1], map[string]any{"serviceName": "more", "dons": []any{"more"},
			"handlers": []any{map[string]any{"name": "http-capabilities"}}})
		f.section("userServerConfig")["corsEnabled"] = true
		f.section("log")["level"] = "debug"
	}
	restart := []string{"userServerConfig.port", "shutdownTimeoutMs", "services"}
	out := r.reloaded(change)
	require.Equal(t, []string{"userServerConfig.corsEnabled", "shardedDONs", "log.level"}, out.Applied)
	require.Equal(t, restart, out.NeedsRestart)
	out = r.reloaded(func(testFile) {})
	require.Empty(t, out.Applied)
	require.Equal(t, restart, out.NeedsRestart)
	require.Equal(t, "debug", r.srv.Config().Log.Level)
	require.Zero(t, r.srv.Config().UserServer.Port)
	require.Len(t, r.srv.services, 1)
}

func TestReloadIsRefusedWhileLeaving(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	r.srv.Leave()
	_, err := r.reload(func(testFile) {})
	require.ErrorIs(t, err, ErrLeaving)
}

// POST /reload answers what came of it, and only to who may ask.
func TestReloadRequest(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	bearer := http.Header{"Authorization": {"Bearer 0123456789abcdef"}}
	for name, tt := range map[string]struct {
		admin  map[string]any
		host   string
		header http.Header
		status int
		text   string
	}{
		"loopback":             {host: "127.0.0.1:5004", status: 200, text: `"applied":["log.level"]`},
		"localhost":            {host: "LocalHost", status: 200},
		"IPv6":                 {host: "[::1]:5004", status: 200},
		"IPv6 without port":    {host: "[::1]", status: 200},
		"another name":         {host: "gateway.example.org", status: 403, text: "Host"},
		"looks like loopback":  {host: "127.0.0.1.example.org", status: 403},
		"no host":              {host: "", status: 403},
		"a web page":           {host: "127.0.0.1", header: http.Header{"Origin": {"http://127.0.0.1:5004"}}, status: 403, text: "Origin"},
		"a page without name":  {host: "127.0.0.1", header: http.Header{"Origin": {"null"}}, status: 403},
		"token missing":        {admin: map[string]any{"tokenFile": token}, host: "127.0.0.1", status: 401, text: "admin.tokenFile"},
		"token wrong":          {admin: map[string]any{"tokenFile": token}, host: "127.0.0.1", header: http.Header{"Authorization": {"Bearer 0123456789abcdeg"}}, status: 401},
		"token without scheme": {admin: map[string]any{"tokenFile": token}, host: "127.0.0.1", header: http.Header{"Authorization": {"0123456789abcdef"}}, status: 401},
		"token":                {admin: map[string]any{"tokenFile": token}, host: "127.0.0.1", header: bearer, status: 200},
		"open to others":       {admin: map[string]any{"host": "0.0.0.0"}, host: "127.0.0.1", status: 403, text: "not on a loopback address"},
		"open, with token":     {admin: map[string]any{"host": "0.0.0.0", "tokenFile": token}, host: "127.0.0.1", header: bearer, status: 200},
		"open, token missing":  {admin: map[string]any{"host": "0.0.0.0", "tokenFile": token}, host: "127.0.0.1", status: 401},
		"unreadable token":     {admin: map[string]any{"tokenFile": token + "x"}, host: "127.0.0.1", header: bearer, status: 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			r := newRig(t, rigSpec{top: map[string]any{"admin": merge(map[string]any{"port": 0}, tt.admin)}, options: Options{
				Reload: func() *Reloaded { calls++; return &Reloaded{OK: true, Applied: []string{"log.level"}} },
			}})
			client := &http.Client{Transport: &http.Transport{DialContext: r.dial(AdminListener), DisableKeepAlives: true}}
			req, err := http.NewRequest(http.MethodPost, "http://admin/reload", nil)
			require.NoError(t, err)
			req.Host, req.Header = tt.host, tt.header.Clone()
			if tt.host == "" {
				req.Host = "admin"
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tt.status, resp.StatusCode, string(body))
			require.Contains(t, string(body), tt.text)
			require.Equal(t, tt.status == 200, calls == 1)
			require.False(t, strings.Contains(string(body), token), "no path")
		})
	}
}

func TestReloadRequestOutcomes(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, rigSpec{options: Options{Reload: func() *Reloaded {
		close(begun)
		<-release
		return &Reloaded{Problems: []ReloadProblem{{Path: "log.level", Line: 3, Column: 4, Text: "no"}}}
	}}})
	client := &http.Client{Transport: &http.Transport{DialContext: r.dial(AdminListener), DisableKeepAlives: true}}
	post := func(method string) (int, string) {
		req, err := http.NewRequestWithContext(context.Background(), method, "http://localhost/reload", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, _ := post(http.MethodGet)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		status, body := post(http.MethodPost)
		require.Equal(t, http.StatusUnprocessableEntity, status)
		require.JSONEq(t, `{"ok":false,"applied":null,"needsRestart":null,"problems":[{"path":"log.level","line":3,"column":4,"text":"no"}]}`, body)
	}()
	<-begun
	status, _ = post(http.MethodPost)
	require.Equal(t, http.StatusConflict, status)
	close(release)
	<-ended
}
