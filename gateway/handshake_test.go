package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/workflow"
)

// attempt sends an upgrade request with the given header and returns its status.
func (r *rig) attempt(header string) int {
	d := websocket.Dialer{NetDialContext: r.dial(NodeListener)}
	conn, resp, err := d.Dial("ws://gateway"+r.cfg.NodeServer.Path, http.Header{"Authorization": {header}})
	if conn != nil {
		_ = conn.Close()
	}
	if resp == nil {
		require.NoError(r.t, err)
	}
	return resp.StatusCode
}

func authHeader(t *testing.T, s auth.Signer, ts int64, don, gw string) string {
	h, err := auth.NewAuthHeader(s, uint32(ts), don, gw)
	require.NoError(t, err)
	return h
}

// reSign replaces bytes of a header and signs it again: odd fields under a valid signature.
func reSign(t *testing.T, s auth.Signer, header string, change func([]byte)) string {
	raw, err := base64.StdEncoding.DecodeString(header)
	require.NoError(t, err)
	change(raw)
	sig, err := s.SignPersonal(raw[:196])
	require.NoError(t, err)
	copy(raw[196:], sig)
	return base64.StdEncoding.EncodeToString(raw)
}

// conformance: 4.header.refused
// conformance: 4.header.encoding
// conformance: 4.header.bytes
// conformance: 4.header.padding
// conformance: 4.header.clock
func TestHandshakeRefusals(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, dons: []donSpec{{"don", 1, []int{4, 4}}, {"other", 1, []int{4}}}})
		node := r.shards["don"][0]
		second := time.Now().Unix() - 5
		next := func() int64 { second++; return second } // each row its own second, all within tolerance
		good := func() string { return authHeader(t, node, next(), "don", testGatewayID) }
		type row struct {
			name, header string
			status       int
			cause        string
		}
		rows := func() []row { // made anew for each attempt, whose clock it is
			second = time.Now().Unix() - 6
			return []row{
				{"not base64", "!!!", 400, "header_encoding"},
				{"over 512 characters", strings.Repeat("A", 513), 400, "header_encoding"},
				{"empty", "", 401, "header_invalid"},
				{"too short", base64.StdEncoding.EncodeToString(make([]byte, 260)), 401, "header_invalid"},
				{"too long", base64.StdEncoding.EncodeToString(make([]byte, 262)), 401, "header_invalid"},
				{"all zeros", base64.StdEncoding.EncodeToString(make([]byte, 261)), 401, "header_invalid"},
				{"unknown don", authHeader(t, node, next(), "nodon", testGatewayID), 401, "unknown_don"},
				{"unknown node", authHeader(t, auth.NewKeySigner(key(12345)), next(), "don", testGatewayID), 401, "unknown_node"},
				{"member of another shard", authHeader(t, node, next(), "don_1", testGatewayID), 401, "not_a_member"},
				{"member of another DON", authHeader(t, node, next(), "other", testGatewayID), 401, "not_a_member"},
				{"another gateway", authHeader(t, node, next(), "don", "gateway-2"), 401, "wrong_gateway"},
				{"don id with junk after zeros", reSign(t, node, good(), func(b []byte) { b[4+63] = 'x' }), 401, "header_invalid"},
				{"don id all zeros", reSign(t, node, good(), func(b []byte) { clear(b[4:68]) }), 401, "header_invalid"},
				{"don id filled to its last byte", reSign(t, node, good(), func(b []byte) { copy(b[4:68], bytes.Repeat([]byte{'d'}, 64)) }), 401, "unknown_don"},
				{"gateway id with junk after zeros", reSign(t, node, good(), func(b []byte) { b[68+127] = 1 }), 401, "header_invalid"},
				{"gateway id all zeros", reSign(t, node, good(), func(b []byte) { clear(b[68:196]) }), 401, "header_invalid"},
				{"gateway id filled to its last byte", reSign(t, node, good(), func(b []byte) { copy(b[68:196], bytes.Repeat([]byte{'g'}, 128)) }), 401, "wrong_gateway"},
				{"too old", authHeader(t, node, time.Now().Unix()-6, "don", testGatewayID), 401, "clock_skew"},
				{"too new", authHeader(t, node, time.Now().Unix()+6, "don", testGatewayID), 401, "clock_skew"},
				{"wrap-around", authHeader(t, node, 1<<32-1, "don", testGatewayID), 401, "clock_skew"},
			}
		}
		for i := range rows() {
			tt := rows()[i]
			before := r.handshakes(tt.cause)
			require.Equal(t, tt.status, r.attempt(tt.header), tt.name)
			require.Equal(t, before+1, r.handshakes(tt.cause), "%s: %s", tt.name, tt.cause)
			time.Sleep(11 * time.Second) // all seconds are forgotten
		}
		second = time.Now().Unix() - 6
		require.Equal(t, 101, r.attempt(good()))
	})
}

// conformance: 4.header.once
// conformance: 4.header.used-up
func TestHeaderIsGoodOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		node := r.shards["don"][0]
		now := time.Now().Unix()
		h := authHeader(t, node, now, "don", testGatewayID)
		require.Equal(t, 101, r.attempt(h))
		require.Equal(t, 401, r.attempt(h))
		require.Equal(t, 401, r.attempt(authHeader(t, node, now+1, "don", "gateway-2")))
		require.Equal(t, 401, r.attempt(authHeader(t, node, now+1, "don", testGatewayID)))
		require.Equal(t, 101, r.attempt(authHeader(t, node, now+2, "don", testGatewayID)), "the next second is good")
		require.Equal(t, 101, r.attempt(authHeader(t, r.shards["don"][1], now, "don", testGatewayID)), "another node's is not touched")
		time.Sleep(20 * time.Second)
		require.Equal(t, 401, r.attempt(h), "too old by now")
		require.Equal(t, 101, r.attempt(authHeader(t, node, now+20, "don", testGatewayID)))
		n := r.srv.current().topology.shards["don"].nodes[0]
		n.mu.Lock()
		defer n.mu.Unlock()
		require.LessOrEqual(t, len(n.seconds), 1, "old seconds are forgotten")
	})
}

// A node cannot fill memory with headers for seconds far away.
func TestSecondsAreBounded(t *testing.T) {
	t.Parallel()
	n := &node{seconds: map[uint32]int64{}}
	now := time.Unix(1_800_000_000, 0)
	for i := range uint32(100_000) {
		n.useSecond(1_800_000_000+1000+i, now, 5*time.Second)
	}
	require.LessOrEqual(t, len(n.seconds), 11+spareSeconds)
	fresh, inTime := n.useSecond(1_800_000_000, now, 5*time.Second)
	require.True(t, fresh && inTime)
	fresh, _ = n.useSecond(1_800_000_000, now, 5*time.Second)
	require.False(t, fresh)
}

// conformance: 4.handshake.pending
// conformance: 4.handshake.deadline
// conformance: 4.session.failed-attempt
func TestStalledHandshakes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, node: map[string]any{"handshakeTimeoutMillis": 3000}})
		live := r.connect("don", 0, nil, nil)
		time.Sleep(10 * time.Second)
		session := r.srv.current().topology.shards["don"].nodes[0].session.Load()
		now := time.Now().Unix()
		var open []*websocket.Conn
		for i := range int64(8) {
			conn, _, _, err := r.upgrade("don", r.shards["don"][0], uint32(now-4+i))
			require.NoError(t, err)
			open = append(open, conn)
		}
		require.Equal(t, 429, r.attempt(authHeader(t, r.shards["don"][0], now+4, "don", testGatewayID)))
		require.Equal(t, 101, r.attempt(authHeader(t, r.shards["don"][1], now, "don", testGatewayID)), "another node is not affected")
		start := time.Now()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		misbehave := []func(net *websocket.Conn){
			func(*websocket.Conn) {}, // silence
			func(c *websocket.Conn) { // a drip of one frame
				frame := []byte{0x82, 0x80 | 65, 0, 0, 0, 0}
				for i := 0; ; i++ {
					b := []byte{0}
					if i < len(frame) {
						b = frame[i : i+1]
					}
					if _, err := c.NetConn().Write(b); err != nil {
						return
					}
					select {
					case <-time.After(200 * time.Millisecond):
					case <-stop:
						return
					}
				}
			},
			func(c *websocket.Conn) { // pings
				for c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) == nil {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-stop:
						return
					}
				}
			},
			func(c *websocket.Conn) { _ = c.WriteMessage(websocket.TextMessage, make([]byte, 65)) },
			func(c *websocket.Conn) { _, _ = c.NetConn().Write([]byte{0x82, 0x80 | 65, 0, 0}) }, // half a frame
			func(c *websocket.Conn) { _ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 65)) },
			func(c *websocket.Conn) { _ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 64)) },
			func(c *websocket.Conn) { _ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 4096)) },
		}
		for i, c := range open {
			wg.Go(func() { misbehave[i](c) })
			wg.Go(func() {
				for {
					if _, _, err := c.ReadMessage(); err != nil {
						return
					}
				}
			})
		}
		r.eventually(func() bool {
			n := r.srv.current().topology.shards["don"].nodes[0]
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.pending == 0
		}, "attempts are forgotten")
		close(stop)
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), 3*time.Second+100*time.Millisecond)
		for _, c := range open {
			_ = c.Close()
		}
		// A failed attempt leaves the live session alone.
		require.Same(t, session, r.srv.current().topology.shards["don"].nodes[0].session.Load())
		select {
		case <-live.ended:
			t.Fatal("the live session ended")
		default:
		}
	})
}

// 500 stalled handshakes leave descriptors and goroutines where they were, and a
// live node unharmed.
// conformance: 4.handshake.exit
func TestStalledHandshakesLeaveNothing(t *testing.T) {
	r := newRig(t, rigSpec{dons: []donSpec{{"don", 21, []int{64}}}, node: map[string]any{"handshakeTimeoutMillis": 1500}})
	live := r.connect("don", 63, nil, nil)
	runtime.GC()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	var conns []*websocket.Conn
	now := time.Now().Unix()
	for i := range 500 {
		conn, _, _, err := r.upgrade("don", r.shards["don"][i%63], uint32(now+int64(i/63)%8-3))
		require.NoError(t, err, i)
		conns = append(conns, conn)
	}
	require.GreaterOrEqual(t, openFiles(t), files+500)
	for _, c := range conns {
		_, _, err := c.ReadMessage() // until the gateway gives up
		require.Error(t, err)
		_ = c.Close()
	}
	r.eventually(func() bool { return openFiles(t) <= files && runtime.NumGoroutine() <= goroutines }, "descriptors and goroutines are back")
	require.NotNil(t, r.srv.current().topology.shards["don"].nodes[63].session.Load())
	select {
	case <-live.ended:
		t.Fatal("the live session ended")
	default:
	}
	require.EqualValues(t, 500, testutil.ToFloat64(r.srv.metrics.handshakes.WithLabelValues("challenge_timeout")))
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: descriptors cannot be counted here")
	}
	return len(entries)
}

// conformance: 4.session.replaced
func TestNewerSessionReplacesOlder(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectEach("don", []workflow.Metadata{w}, (*testNode).accept, (*testNode).accept)
		old := r.connect("don", 2, []workflow.Metadata{w}, silent)
		time.Sleep(2 * time.Second)
		newer := r.connect("don", 2, []workflow.Metadata{w}, nil)
		<-old.ended
		require.EqualValues(t, 3, r.srv.current().topology.shards["don"].connected())
		require.Equal(t, 200, r.trigger(w, "").status)
		require.Equal(t, 1, newer.seen())
		require.Zero(t, old.seen())
	})
}

// conformance: 4.session.ping
// conformance: 4.ping.down
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, manager: map[string]any{"heartbeatIntervalSec": 10, "pongTimeoutSec": 25}})
		n, err := r.dialNode("don", 0, uint32(time.Now().Unix()))
		require.NoError(t, err)
		var pings []time.Duration
		start := time.Now()
		n.conn.SetPingHandler(func(string) error { pings = append(pings, time.Since(start)); return nil }) // no pong
		for {
			if _, _, err = n.conn.ReadMessage(); err != nil {
				break
			}
		}
		require.InDelta(t, 25*time.Second, time.Since(start), float64(100*time.Millisecond))
		require.Less(t, pings[0], 10*time.Millisecond)
		require.GreaterOrEqual(t, len(pings), 3)
		_ = n.conn.Close()

		healthy := r.connect("don", 1, nil, nil) // gorilla answers pings by itself
		time.Sleep(5 * time.Minute)
		select {
		case <-healthy.ended:
			t.Fatal("a healthy session was closed")
		default:
		}
	})
}

// conformance: 4.read.limit
// conformance: 4.frames.broken
// conformance: 4.malformed.hundredth
func TestSessionCloseCodes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		code int
		do   func(*testNode)
	}{
		"too large": {websocket.CloseMessageTooBig, func(n *testNode) { n.send(make([]byte, 5000)) }},
		"reserved bits": {websocket.CloseProtocolError, func(n *testNode) {
			_, _ = n.conn.NetConn().Write([]byte{0xf2, 0x80, 0, 0, 0, 0})
		}},
		"unmasked": {websocket.CloseProtocolError, func(n *testNode) { _, _ = n.conn.NetConn().Write([]byte{0x82, 0x01, 'x'}) }},
		"malformed": {websocket.ClosePolicyViolation, func(n *testNode) {
			for range maxMalformed {
				n.send([]byte(`{"jsonrpc":"2.0"}`))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigSpec{node: map[string]any{"maxRequestBytes": 4096}})
			n := r.connect("don", 0, nil, nil)
			tt.do(n)
			<-n.ended
			require.True(t, websocket.IsCloseError(n.closeErr, tt.code), "%v", n.closeErr)
		})
	}
}

// conformance: 4.malformed.counted
// conformance: 4.frames.binary
// conformance: 1.envelope.null-result
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	nodes := r.connectAll(nil, w)["don"]
	messages := malformedMessages()
	for _, m := range messages {
		nodes[0].send([]byte(m))
	}
	require.NoError(t, nodes[0].conn.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":"x","result":1}`)))
	r.eventually(func() bool {
		return int(testutil.ToFloat64(r.srv.current().topology.shards["don"].m.dropped[dropMalformed])) == len(messages)+1
	}, "each is counted")
	require.Equal(t, 200, r.trigger(w, "").status)
	require.NotNil(t, r.srv.current().topology.shards["don"].nodes[0].session.Load())
}

// malformedMessages is one of each kind that means nothing.
func malformedMessages() []string {
	return []string{
		``, `{`, `[]`, `1`, `null`, `"x"`, "\xff\xfe", `{"jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":"","result":1}`,
		`{"jsonrpc":"2.0","id":1,"result":1}`,
		`{"jsonrpc":"2.0","id":"x"}`,
		`{"jsonrpc":"2.0","id":"x","result":null}`,
		`{"jsonrpc":"2.0","id":"x","result":1,"error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"1.0","id":"x","result":1}`,
		`{"jsonrpc":"2.0","id":"x","error":"text"}`,
		`{"jsonrpc":"2.0","id":"x","method":7,"result":1}`,
		`{"jsonrpc":"2.0","id":"x","result":{"a":1,"a":2}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":\"\xff\"}",
		`{"jsonrpc":"2.0","id":"x","result":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`{"jsonrpc":"2.0","id":"/","result":1}`,
		`{"jsonrpc":"2.0","id":"unknown_method/x","result":1}`,
		`{"jsonrpc":"2.0","id":"push_workflow_metadata/","result":1}`,
		`{"jsonrpc":"2.0","id":"push_workflow_metadata/x","result":[]}`,
		`{"jsonrpc":"2.0","id":"push_workflow_metadata/x","result":{}}`,
		`{"jsonrpc":"2.0","id":"push_workflow_metadata/x","error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 2000) + `","result":1}`,
		`{"jsonrpc":"2.0","id":"x","result":1} {}`,
	}
}

// conformance: 4.shutdown
func TestShutdownClosesSessions(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		n := r.connect("don", 0, nil, nil)
		require.NoError(t, r.srv.Shutdown(context.Background()))
		<-n.ended
		require.True(t, websocket.IsCloseError(n.closeErr, websocket.CloseGoingAway), "%v", n.closeErr)
		synctest.Wait()
	})
}
