package gateway

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/auth"
)

// pendingOf is how many attempts of a node are pending.
func (r *rig) pendingOf(shard string, index int) int {
	n := r.srv.current().topology.shards[shard].nodes[index]
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pending
}

// handshakes is the count of one result of handshakes.
func (r *rig) handshakes(result string) int {
	return int(testutil.ToFloat64(r.srv.metrics.handshakes.WithLabelValues(result)))
}

// conformance: 4.compression
func TestNoCompression(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	d := websocket.Dialer{NetDialContext: r.dial(NodeListener), EnableCompression: true}
	h := authHeader(t, r.shards["don"][0], time.Now().Unix(), "don", testGatewayID)
	conn, resp, err := d.Dial("ws://gateway/node", http.Header{"Authorization": {h}})
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, 101, resp.StatusCode)
	require.Empty(t, resp.Header.Values("Sec-WebSocket-Extensions"))
}

// conformance: 4.header.alike
// conformance: 4.header.counted
// conformance: 4.header.refused
func TestRefusedHeadersLookAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{dons: []donSpec{{"don", 1, []int{4}}, {"other", 1, []int{4}}}})
	node, now := r.shards["don"][0], time.Now().Unix()
	// whole is everything of an answer that a stranger sees, but the date.
	whole := func(header string) string {
		conn, err := net.Dial("tcp", r.srv.Address(NodeListener))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /node HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: "+header+"\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		resp.Header.Del("Date")
		raw, err := httputil.DumpResponse(resp, true)
		require.NoError(t, err)
		return string(raw)
	}
	unknown := whole(authHeader(t, auth.NewKeySigner(key(12345)), now, "don", testGatewayID))
	require.Contains(t, unknown, "HTTP/1.1 401 ")
	require.NotContains(t, unknown, "Challenge")
	for cause, header := range map[string]string{
		"unknown_don":   authHeader(t, node, now-1, "nowhere", testGatewayID),
		"not_a_member":  authHeader(t, node, now-2, "other", testGatewayID),
		"wrong_gateway": authHeader(t, node, now-3, "don", "gateway-2"),
		"clock_skew":    authHeader(t, node, now-1000, "don", testGatewayID),
	} {
		require.Equal(t, unknown, whole(header), cause)
		require.Equal(t, 1, r.handshakes(cause), cause)
	}
	require.Equal(t, 1, r.handshakes("unknown_node"))
}

// conformance: 4.header.counted
func TestClockSkewIsAMetric(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		skew := func() string {
			var b strings.Builder
			families, err := r.srv.metrics.registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() == "dongate_node_clock_skew_seconds" {
					b.WriteString(f.String())
				}
			}
			return b.String()
		}
		node := r.shards["don"][0]
		require.Equal(t, 101, r.attempt(authHeader(t, node, time.Now().Unix()+4, "don", testGatewayID)))
		require.Regexp(t, `value:"don-n0".*?gauge:\{value:4\}`, skew())
		require.Equal(t, 401, r.attempt(authHeader(t, node, time.Now().Unix()-90, "don", testGatewayID)))
		require.Regexp(t, `value:"don-n0".*?gauge:\{value:-90\}`, skew(), "a clock that is off too far is told as well")
	})
}

// conformance: 4.header.clock
func TestClockTolerance(t *testing.T) {
	t.Parallel()
	for offset, status := range map[int64]int{-4: 401, -3: 101, 0: 101, 3: 101, 4: 401, 1 << 31: 401, -1 << 29: 401} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, rigSpec{bubble: true, manager: map[string]any{"authTimestampToleranceSec": 3}})
			require.Equal(t, status, r.attempt(authHeader(t, r.shards["don"][0], time.Now().Unix()+offset, "don", testGatewayID)), offset)
		})
	}
	// Where the 32 bits of a timestamp end nothing is close to what lies behind.
	for _, tt := range []struct {
		timestamp uint32
		now       int64
		inTime    bool
	}{
		{1<<32 - 1, 1, false}, {0, 1<<32 - 1, false}, {1, 1<<32 + 1, false}, {1<<32 - 1, 1<<32 + 1, true}, {0, 0, true},
	} {
		_, inTime := (&node{seconds: map[uint32]int64{}}).useSecond(tt.timestamp, time.Unix(tt.now, 0), 3*time.Second)
		require.Equal(t, tt.inTime, inTime, "%+v", tt)
	}
}

// conformance: 4.header.once
func TestHeaderIsRememberedUntilItIsTooOld(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		node := r.shards["don"][0]
		// Signed 5 s ahead of us, so that it stays acceptable for 10 s.
		h := authHeader(t, node, time.Now().Unix()+5, "don", testGatewayID)
		require.Equal(t, 101, r.attempt(h))
		for range 11 {
			require.Equal(t, 401, r.attempt(h))
			require.Zero(t, r.handshakes("clock_skew"))
			time.Sleep(time.Second)
		}
		require.Equal(t, 401, r.attempt(h))
		require.Equal(t, 1, r.handshakes("clock_skew"), "only now is it too old")
		require.Equal(t, 11, r.handshakes("header_replayed"))
	})
}

// conformance: 4.handshake.challenge
func TestChallengeOfTheGateway(t *testing.T) {
	t.Parallel()
	for _, length := range []int{10, 32, 1024} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, rigSpec{bubble: true, manager: map[string]any{"authChallengeLen": length}})
			seen := map[string]bool{}
			for i := range 3 {
				ts := uint32(time.Now().Unix() - int64(i)) // the node's clock, not ours
				conn, challenge, _, err := r.upgrade("don", r.shards["don"][0], ts)
				require.NoError(t, err)
				require.Len(t, challenge, 4+auth.GatewayIDBytes+length)
				require.Equal(t, ts, binary.BigEndian.Uint32(challenge))
				require.Equal(t, testGatewayID, string(bytes.TrimRight(challenge[4:4+auth.GatewayIDBytes], "\x00")))
				seen[string(challenge[4+auth.GatewayIDBytes:])] = true
				_ = conn.Close()
			}
			require.Len(t, seen, 3, "random every time")
		})
	}
}

// conformance: 4.handshake.answer
func TestAnswersToTheChallenge(t *testing.T) {
	t.Parallel()
	sign := func(t *testing.T, s auth.Signer, b []byte) []byte {
		sig, err := s.SignPersonal(b)
		require.NoError(t, err)
		return sig
	}
	for name, tt := range map[string]struct {
		live   bool
		kind   int
		answer func(t *testing.T, r *rig, challenge []byte) []byte
	}{
		"signed": {true, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][0], c) }},
		"signed, v from 27": {true, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte {
			s := sign(t, r.shards["don"][0], c)
			s[64] += 27
			return s
		}},
		"text frame":         {false, websocket.TextMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][0], c) }},
		"by another node":    {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][1], c) }},
		"of a part":          {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][0], c[:len(c)-1]) }},
		"of the nonce alone": {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][0], c[132:]) }},
		"of something else":  {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { c[131]++; return sign(t, r.shards["don"][0], c) }},
		"a byte short":       {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return sign(t, r.shards["don"][0], c)[:64] }},
		"a byte long":        {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte { return append(sign(t, r.shards["don"][0], c), 0) }},
		"base64": {false, websocket.BinaryMessage, func(t *testing.T, r *rig, c []byte) []byte {
			return []byte(base64.StdEncoding.EncodeToString(sign(t, r.shards["don"][0], c)))
		}},
		"empty": {false, websocket.BinaryMessage, func(*testing.T, *rig, []byte) []byte { return nil }},
		"zeros": {false, websocket.BinaryMessage, func(*testing.T, *rig, []byte) []byte { return make([]byte, 65) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true})
				conn, challenge, _, err := r.upgrade("don", r.shards["don"][0], uint32(time.Now().Unix()))
				require.NoError(t, err)
				defer conn.Close()
				require.NoError(t, conn.WriteMessage(tt.kind, tt.answer(t, r, challenge)))
				start := time.Now()
				_, _, err = conn.ReadMessage()
				require.Zero(t, time.Since(start), "decided at once, not at the deadline")
				synctest.Wait()
				require.Equal(t, tt.live, err == nil, "%v", err) // a live session is sent a pull
				require.Equal(t, tt.live, r.srv.current().topology.shards["don"].nodes[0].session.Load() != nil)
				require.Zero(t, r.pendingOf("don", 0))
			})
		})
	}
}

// conformance: 4.handshake.read-limit
func TestReadLimitBeforeTheSession(t *testing.T) {
	t.Parallel()
	for size, took := range map[uint16]time.Duration{1024: 10 * time.Second, 1025: 0, 65535: 0} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, rigSpec{bubble: true})
			conn, _, _, err := r.upgrade("don", r.shards["don"][0], uint32(time.Now().Unix()))
			require.NoError(t, err)
			defer conn.Close()
			// The head of one frame says how long it will be; not a byte of it follows.
			_, err = conn.NetConn().Write([]byte{0x82, 0x80 | 126, byte(size >> 8), byte(size), 0, 0, 0, 0})
			require.NoError(t, err)
			start := time.Now()
			_, _, err = conn.ReadMessage()
			require.Error(t, err)
			require.Equal(t, took, time.Since(start), "%d bytes", size)
		})
	}
}

// conformance: 4.handshake.exit
func TestEveryExitForgetsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, r *rig, conn *websocket.Conn){
		"silence":      func(*testing.T, *rig, *websocket.Conn) { time.Sleep(11 * time.Second) },
		"closed":       func(_ *testing.T, _ *rig, c *websocket.Conn) { _ = c.Close() },
		"close frame":  func(_ *testing.T, _ *rig, c *websocket.Conn) { _ = c.WriteMessage(websocket.CloseMessage, nil) },
		"wrong answer": func(_ *testing.T, _ *rig, c *websocket.Conn) { _ = c.WriteMessage(websocket.BinaryMessage, nil) },
		"too long": func(_ *testing.T, _ *rig, c *websocket.Conn) {
			_ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 5000))
		},
		"broken frame":  func(_ *testing.T, _ *rig, c *websocket.Conn) { _, _ = c.NetConn().Write([]byte{0xff, 0xff}) },
		"half a frame":  func(_ *testing.T, _ *rig, c *websocket.Conn) { _, _ = c.NetConn().Write([]byte{0x82}); _ = c.Close() },
		"shutting down": func(t *testing.T, r *rig, _ *websocket.Conn) { require.NoError(t, r.srv.Shutdown(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, rigSpec{bubble: true})
				conn, _, _, err := r.upgrade("don", r.shards["don"][0], uint32(time.Now().Unix()))
				require.NoError(t, err)
				require.Equal(t, 1, r.pendingOf("don", 0))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, _, _ = conn.ReadMessage() // until the gateway closes the socket
					_, _ = conn.NetConn().Read(make([]byte, 1))
				}()
				leave(t, r, conn)
				synctest.Wait()
				require.Zero(t, r.pendingOf("don", 0))
				select {
				case <-gone:
				default:
					t.Error("the socket is still open")
				}
				_ = conn.Close()
				require.Empty(t, r.srv.nodes.pending)
				require.Nil(t, r.srv.current().topology.shards["don"].nodes[0].session.Load())
			})
		})
	}
	t.Run("no upgrade at all", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, rigSpec{bubble: true})
			transport := &http.Transport{DialContext: r.dial(NodeListener), DisableKeepAlives: true}
			for i := range int64(9) { // one more than may be pending
				req, err := http.NewRequest(http.MethodGet, "http://gateway/node", nil)
				require.NoError(t, err)
				req.Header.Set("Authorization", authHeader(t, r.shards["don"][0], time.Now().Unix()-4+i, "don", testGatewayID))
				resp, err := transport.RoundTrip(req)
				require.NoError(t, err)
				_ = resp.Body.Close()
				require.Equal(t, 400, resp.StatusCode)
				require.Zero(t, r.pendingOf("don", 0))
			}
		})
	})
}
