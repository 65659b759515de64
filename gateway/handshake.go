package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"dongate/auth"
)

const (
	// maxPendingHandshakes bounds the attempts of one node between its signed
	// header and its live session (protocol §4).
	maxPendingHandshakes = 8
	// handshakeReadLimit is the largest message before the session is live.
	handshakeReadLimit = 1 << 10
	// spareSeconds bounds how many used-up seconds outside the accepted window
	// are remembered per node, besides those inside.
	spareSeconds = 64
)

// nodeEndpoint authenticates nodes (protocol §4) and turns their connections
// into sessions.
type nodeEndpoint struct {
	server   *Server
	upgrader websocket.Upgrader

	mu       sync.Mutex
	pending  map[*websocket.Conn]struct{} // upgraded, challenge not yet answered
	sessions map[*session]struct{}
	closed   bool
	live     sync.WaitGroup // a goroutine per upgraded connection
}

func newNodeEndpoint(s *Server) *nodeEndpoint {
	return &nodeEndpoint{
		server:   s,
		pending:  map[*websocket.Conn]struct{}{},
		sessions: map[*session]struct{}{},
		upgrader: websocket.Upgrader{
			HandshakeTimeout: s.config.NodeServer.HandshakeTimeout,
			ReadBufferSize:   1 << 10,
			WriteBufferSize:  4 << 10,
			WriteBufferPool:  &sync.Pool{},
			// The signature authenticates, not the browser's origin.
			CheckOrigin: func(*http.Request) bool { return true },
		},
	}
}

// ServeHTTP answers the upgrade request: 404 and 405 for what is not one, 400 for
// an unreadable header, 401 for one that does not authenticate, 429 for too many
// attempts, 503 while draining.
func (e *nodeEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	srv := e.server
	switch {
	case r.URL.Path != srv.config.NodeServer.Path:
		w.Header().Set("Connection", "close") // whoever is refused keeps no connection
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet:
		w.Header().Set("Connection", "close")
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "the node endpoint takes GET with a WebSocket upgrade", http.StatusMethodNotAllowed)
		return
	case e.isClosed(): // not while draining: open requests may need the node
		e.refuse(w, "draining", http.StatusServiceUnavailable, "shutting down")
		return
	}
	n, header, status, cause := e.authenticate(r.Header.Values("Authorization"))
	if cause != "" {
		srv.log.Warn("node refused", zap.String("reason", cause), zap.Int("status", status), zap.String("remote", r.RemoteAddr))
		e.refuse(w, cause, status, http.StatusText(status))
		return
	}
	defer func() {
		if cause != "" {
			n.release()
		}
	}()
	challenge, err := e.challenge(header)
	if err != nil {
		cause = "internal"
		srv.log.Error("no challenge for a node", zap.Error(err))
		e.refuse(w, cause, http.StatusInternalServerError, "no challenge")
		return
	}
	upgraded := time.Now()
	conn, err := e.upgrader.Upgrade(w, r, http.Header{"Challenge": {base64.StdEncoding.EncodeToString(challenge)}})
	if err != nil { // answered by the upgrader
		cause = "not_websocket"
		srv.metrics.handshakes.WithLabelValues(cause).Inc()
		return
	}
	if !e.track(conn) {
		cause = "draining"
		_ = conn.Close()
		return
	}
	// A goroutine of its own: the HTTP handler's, with its buffers, can go.
	go e.finish(n, conn, challenge, upgraded)
}

func (e *nodeEndpoint) refuse(w http.ResponseWriter, label string, status int, text string) {
	e.server.metrics.handshakes.WithLabelValues(label).Inc()
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

func (e *nodeEndpoint) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// authenticate checks the Authorization header. When cause is "" the node has a
// pending attempt that must be released. The status does not tell an unknown DON
// from an unknown node.
func (e *nodeEndpoint) authenticate(values []string) (n *node, h *auth.AuthHeader, status int, cause string) {
	if len(values) != 1 {
		return nil, nil, http.StatusUnauthorized, "header_missing"
	}
	h, err := auth.ParseAuthHeader(values[0])
	switch {
	case errors.Is(err, auth.ErrHandshakeEncoding):
		return nil, nil, http.StatusBadRequest, "header_encoding"
	case err != nil:
		return nil, nil, http.StatusUnauthorized, "header_invalid"
	}
	t := e.server.current().topology
	n = t.nodes[h.Signer]
	if n == nil {
		return nil, nil, http.StatusUnauthorized, "unknown_node"
	}
	cm := &e.server.config.ConnectionManager
	now := time.Now()
	fresh, inTime := n.useSecond(h.Timestamp, now, cm.AuthTimestampTolerance)
	switch sh := t.shards[h.DONID]; {
	case sh == nil:
		return nil, nil, http.StatusUnauthorized, "unknown_don"
	case n.shard != sh.shard:
		return nil, nil, http.StatusUnauthorized, "not_a_member"
	case h.GatewayID != cm.AuthGatewayID:
		return nil, nil, http.StatusUnauthorized, "wrong_gateway"
	case !inTime:
		return nil, nil, http.StatusUnauthorized, "clock_skew"
	case !fresh:
		return nil, nil, http.StatusUnauthorized, "header_replayed"
	case !n.acquire():
		return nil, nil, http.StatusTooManyRequests, "too_many_attempts"
	}
	return n, h, 0, ""
}

// useSecond uses up the node's header of that second. fresh: it was not used
// before; inTime: it is within tolerance of now.
func (n *node) useSecond(timestamp uint32, now time.Time, tolerance time.Duration) (fresh, inTime bool) {
	ts, tol := int64(timestamp), int64(tolerance/time.Second)
	skew := ts - now.Unix()
	inTime = skew >= -tol && skew <= tol
	n.mu.Lock()
	defer n.mu.Unlock()
	n.skew = time.Duration(skew) * time.Second
	for t, until := range n.seconds {
		if until < now.Unix() {
			delete(n.seconds, t)
		}
	}
	if _, used := n.seconds[timestamp]; used {
		return false, inTime
	}
	// Seconds too far off are refused anyhow; remembering a few of them keeps the
	// promise that a signed header is good once, within a bound.
	if inTime || (skew > 0 && len(n.seconds) < int(2*tol+1)+spareSeconds) {
		n.seconds[timestamp] = ts + tol
	}
	return true, inTime
}

// usedUp are the seconds that the node has used and that could still be in time.
func (n *node) usedUp() map[uint32]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	seconds := maps.Clone(n.seconds)
	maps.DeleteFunc(seconds, func(_ uint32, until int64) bool { return until < time.Now().Unix() })
	return seconds
}

func (n *node) acquire() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending >= maxPendingHandshakes {
		return false
	}
	n.pending++
	return true
}

func (n *node) release() {
	n.mu.Lock()
	n.pending--
	n.mu.Unlock()
}

func (e *nodeEndpoint) challenge(h *auth.AuthHeader) ([]byte, error) {
	random := make([]byte, e.server.config.ConnectionManager.AuthChallengeLen)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	return auth.NewChallenge(h.Timestamp, h.GatewayID, random)
}

// track registers an upgraded connection; false: the endpoint is closed.
func (e *nodeEndpoint) track(conn *websocket.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.pending[conn] = struct{}{}
	e.live.Add(1)
	return true
}

// finish waits for the signed challenge and then runs the session to its end.
func (e *nodeEndpoint) finish(n *node, conn *websocket.Conn, challenge []byte, upgraded time.Time) {
	defer e.live.Done()
	cause := e.verify(n, conn, challenge, upgraded)
	n.release()
	var s *session
	if cause == "" {
		s = newSession(e.server, n, conn)
	}
	e.mu.Lock()
	delete(e.pending, conn)
	if s != nil && e.closed {
		cause = "draining"
	} else if s != nil {
		e.sessions[s] = struct{}{}
	}
	e.mu.Unlock()
	if cause == "" {
		e.server.metrics.handshakes.WithLabelValues("ok").Inc()
		s.run()
		e.mu.Lock()
		delete(e.sessions, s)
		e.mu.Unlock()
		return
	}
	e.server.metrics.handshakes.WithLabelValues(cause).Inc()
	e.server.log.Warn("handshake failed", zap.String("reason", cause), zap.String("shard", n.shard.id), zap.String("node", n.name()))
	_ = conn.Close()
}

// verify reads the one message a node sends before its session is live. The
// deadline is absolute: whatever trickles in does not move it.
func (e *nodeEndpoint) verify(n *node, conn *websocket.Conn, challenge []byte, upgraded time.Time) (cause string) {
	deadline := upgraded.Add(e.server.config.NodeServer.HandshakeTimeout)
	_ = conn.SetReadDeadline(deadline)
	_ = conn.SetWriteDeadline(deadline)
	conn.SetReadLimit(handshakeReadLimit)
	ignore := func(string) error { return nil }
	conn.SetPingHandler(ignore)
	conn.SetPongHandler(ignore)
	kind, r, err := conn.NextReader()
	if err != nil {
		return handshakeEnd(err)
	}
	sig, err := io.ReadAll(io.LimitReader(r, handshakeReadLimit+1))
	if err != nil {
		return handshakeEnd(err)
	}
	if kind != websocket.BinaryMessage || len(sig) != auth.SignatureBytes {
		return "challenge_malformed"
	}
	signer, err := auth.RecoverPersonal(challenge, sig)
	if err != nil || signer != n.address {
		return "challenge_signature"
	}
	return ""
}

func handshakeEnd(err error) string {
	if readEnd(err) == "pong_timeout" {
		return "challenge_timeout"
	}
	return "challenge_lost"
}

// close ends every session with 1001 and every pending handshake, and waits until
// their goroutines are gone.
func (e *nodeEndpoint) close() {
	e.mu.Lock()
	e.closed = true
	for conn := range e.pending {
		_ = conn.NetConn().Close()
	}
	for s := range e.sessions {
		s.stop(websocket.CloseGoingAway, "shutdown")
	}
	e.mu.Unlock()
	e.live.Wait()
}
