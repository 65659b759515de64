package gateway

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"go.uber.org/zap"
)

// closeGrace is how long a closing session may take to write its close frame.
const closeGrace = time.Second

// session is one live, authenticated WebSocket connection of a node.
//
// One goroutine reads (it did the handshake before) and one writes: messages,
// pings, pongs, metadata pulls and the close frame. Everything else talks to the
// writer through queue and the atomic fields. pull is guarded by the service's
// metaMu.
type session struct {
	server *Server
	node   *node
	conn   *websocket.Conn
	queue  *sendQueue

	pong     atomic.Pointer[string] // the payload of the latest ping, to be answered
	closing  atomic.Pointer[closeReason]
	done     chan struct{} // closed when the session is to end
	stopOnce sync.Once
	repace   atomic.Bool // the intervals of pulls may have changed

	malformed malformedWindow // of the reading goroutine

	pull string // id of the open metadata pull; "" when none is open
}

// closeReason is why a session ended: the frame's code (0: no frame is sent) and
// the label for log and metric.
type closeReason struct {
	code  int
	label string
}

func newSession(srv *Server, n *node, conn *websocket.Conn) *session {
	return &session{server: srv, node: n, conn: conn, queue: newSendQueue(), done: make(chan struct{})}
}

// send queues m without waiting. A queue that has been full for the write
// timeout ends the session.
func (s *session) send(m outgoing, now time.Time) error {
	fullFor, err := s.queue.push(m, now)
	if errors.Is(err, errQueueFull) && fullFor >= s.server.config.NodeServer.WriteTimeout {
		s.stop(websocket.ClosePolicyViolation, "queue_full")
	}
	return err
}

// stop ends the session; only the first reason counts. It does not wait: the
// writer sends the close frame if it can within closeGrace.
func (s *session) stop(code int, label string) {
	s.stopOnce.Do(func() {
		s.closing.Store(&closeReason{code: code, label: label})
		close(s.done)
		// Unblock a writer that is stuck in a full socket, and do not depend on it.
		_ = s.conn.NetConn().SetWriteDeadline(time.Now().Add(closeGrace))
		time.AfterFunc(2*closeGrace, func() { _ = s.conn.NetConn().Close() })
	})
}

// run makes the session live and returns when it has ended and everything it
// held is released. It is the reading goroutine.
func (s *session) run() {
	srv := s.server
	s.conn.SetReadLimit(srv.config.NodeServer.MaxRequestBytes)
	s.conn.SetPingHandler(func(payload string) error { // no sign of life: only pongs and messages are
		s.pong.Store(&payload) // the latest one: a flood of pings costs one pong
		s.queue.signal()
		return nil
	})
	s.conn.SetPongHandler(func(string) error { s.alive(); return nil })
	s.alive()

	srv.connected(s) // before the writer asks for metadata in the node's name
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		defer s.recovered("panic in a session's writer")
		s.write()
	}()
	err := s.read()
	s.stop(0, readEnd(err))
	srv.disconnected(s)
	for _, m := range s.queue.close() {
		if m.tracker != nil {
			m.tracker.dropped(m.attempt)
		}
	}
	<-writer
	_ = s.conn.Close()
}

// recovered ends the session that panicked, and nothing else.
func (s *session) recovered(what string) {
	if p := recover(); p != nil {
		s.server.log.Error(what, zap.Any("panic", p), zap.String("node", s.node.name()), zap.Stack("stack"))
		s.stop(websocket.CloseInternalServerErr, "panic")
		_ = s.conn.NetConn().Close()
	}
}

// alive puts off the moment at which the node counts as down.
func (s *session) alive() {
	_ = s.conn.SetReadDeadline(time.Now().Add(s.server.config.ConnectionManager.PongTimeout))
}

// bufferKept is the largest read buffer that is kept for the next message.
const bufferKept = 64 << 10

var readBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read hands every binary message to the server until the connection ends.
func (s *session) read() error {
	for {
		kind, r, err := s.conn.NextReader()
		if err != nil {
			return err
		}
		buf := readBuffers.Get().(*bytes.Buffer)
		buf.Reset()
		_, err = buf.ReadFrom(r)
		if err == nil {
			s.alive()
			if kind == websocket.BinaryMessage {
				s.server.route(s, buf.Bytes())
			} else {
				s.server.malformed(s, "text frame")
			}
		}
		if buf.Cap() <= bufferKept {
			readBuffers.Put(buf)
		}
		if err != nil {
			return err
		}
	}
}

// readEnd names the end of a session for log and metric.
func readEnd(err error) string {
	var ce *websocket.CloseError
	var ne net.Error
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return "too_large"
	case errors.As(err, &ce):
		return "closed_by_node"
	case errors.As(err, &ne) && ne.Timeout():
		return "pong_timeout"
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection_lost"
	default:
		return "read_error"
	}
}

// write is the writing goroutine: it ends after the close frame, or with the
// first write that fails.
func (s *session) write() {
	heartbeat := s.server.config.ConnectionManager.HeartbeatInterval
	pull := s.pullSchedule()
	// The first ping goes out at once; the schedule then starts anywhere in the
	// interval, so that sessions that came together do not ping together.
	nextPing := time.Now()
	phase := time.Duration(rand.Int64N(int64(heartbeat)/2 + 1))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.queue.wake:
		case <-timer.C:
		case <-s.done:
			s.writeClose()
			return
		}
		err := s.writeQueued()
		if s.closing.Load() != nil {
			continue // done is closed
		}
		if now := time.Now(); err == nil && !now.Before(nextPing) {
			err = s.conn.WriteControl(websocket.PingMessage, nil, now.Add(s.server.config.NodeServer.WriteTimeout))
			nextPing = now.Add(heartbeat - phase)
			phase = 0
		}
		if err == nil {
			if s.repace.Swap(false) {
				pull.repace(time.Now())
			}
			err = pull.run(time.Now())
		}
		if err != nil {
			s.stop(0, writeEnd(err))
			_ = s.conn.NetConn().Close() // the reader must not wait for the pong timeout
			return
		}
		next := nextPing
		if !pull.next.IsZero() && pull.next.Before(next) {
			next = pull.next
		}
		timer.Reset(time.Until(next))
	}
}

func writeEnd(err error) string {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "write_timeout"
	}
	return "write_error"
}

// writeBurst is how many messages are written before the heartbeat and the pull
// get a look in.
const writeBurst = 64

// writeQueued writes pongs and messages until the queue is empty, or has signalled
// that it is not after a burst.
func (s *session) writeQueued() error {
	timeout := s.server.config.NodeServer.WriteTimeout
	for n := 0; s.closing.Load() == nil; n++ {
		if n == writeBurst {
			s.queue.signal()
			return nil
		}
		if p := s.pong.Swap(nil); p != nil {
			if err := s.conn.WriteControl(websocket.PongMessage, []byte(*p), time.Now().Add(timeout)); err != nil {
				return err
			}
		}
		m, ok := s.queue.pop()
		if !ok {
			return nil
		}
		if m.tracker != nil && !m.tracker.beginWrite(m.attempt) {
			continue
		}
		_ = s.conn.SetWriteDeadline(time.Now().Add(timeout))
		var err error
		if m.prepared != nil {
			err = s.conn.WritePreparedMessage(m.prepared)
		} else {
			err = s.conn.WriteMessage(websocket.BinaryMessage, m.data)
		}
		if m.tracker != nil {
			if err == nil {
				s.node.shard.m.sends.written.Inc()
			}
			m.tracker.endWrite(m.attempt, err)
			if err == nil && s.closing.Load() != nil {
				m.tracker.lost(m.attempt)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeClose sends the close frame, as far as the socket takes it, and closes.
func (s *session) writeClose() {
	if r := s.closing.Load(); r != nil && r.code != 0 {
		_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(r.code, r.label), time.Now().Add(closeGrace))
	}
	_ = s.conn.Close()
}

// pullSchedule asks the node for its workflows: at once and then at every
// interval. A pull closes at the next one or after its timeout (protocol §6).
// It belongs to the writing goroutine.
type pullSchedule struct {
	session *session
	service *service
	every   time.Duration
	begin   time.Time // next pull
	end     time.Time // when the open pull times out; zero: none open
	next    time.Time // the earlier of both; zero: the node's DON has no service
}

func (s *session) pullSchedule() *pullSchedule {
	p := &pullSchedule{session: s, service: s.node.shard.service}
	if p.service != nil {
		p.begin = time.Now()
		p.next = p.begin
	}
	return p
}

// repace follows a changed interval: with a pull at once, or, as a pull that is open
// is to have its time, the new interval after now. So that what a node reports lives
// on though it now expires sooner.
func (p *pullSchedule) repace(now time.Time) {
	if p.service == nil || p.every == p.service.config().MetadataPullInterval {
		return
	}
	p.every = p.service.config().MetadataPullInterval
	p.begin = now
	if !p.end.IsZero() {
		p.begin = now.Add(p.every)
		p.next = p.end
	}
	if p.end.IsZero() || p.begin.Before(p.next) {
		p.next = p.begin
	}
}

func (p *pullSchedule) run(now time.Time) error {
	if p.service == nil || now.Before(p.next) {
		return nil
	}
	s, cfg := p.session, p.service.config()
	if !p.end.IsZero() && (!now.Before(p.end) || !now.Before(p.begin)) {
		p.service.endPull(s, now)
		p.end = time.Time{}
	}
	if !now.Before(p.begin) {
		id := pullPrefix + uuid.NewString()
		p.every = cfg.MetadataPullInterval
		p.begin = now.Add(p.every)
		p.next = p.begin
		if !p.service.beginPull(s, id, now) {
			return nil // replaced: this session is about to end
		}
		p.end = now.Add(cfg.MetadataPullRequestTimeout)
		_ = s.conn.SetWriteDeadline(now.Add(s.server.config.NodeServer.WriteTimeout))
		if err := s.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"jsonrpc":"2.0","id":"`+id+`","method":"`+methodPull+`","params":null}`)); err != nil {
			return err
		}
	}
	p.next = p.begin
	if !p.end.IsZero() && p.end.Before(p.next) {
		p.next = p.end
	}
	return nil
}

// endRemoved ends the session of a node that a reload took out of the configuration.
const endRemoved = "removed"

// connected makes s the node's live session, ending an older one, and gives it
// the requests that are open.
func (srv *Server) connected(s *session) {
	n := s.node
	old := n.session.Swap(s)
	if old != nil {
		old.stop(websocket.CloseNormalClosure, "replaced")
	}
	srv.log.Info("node connected", zap.String("shard", n.shard.id), zap.String("node", n.name()))
	if n.shard.service != nil {
		n.shard.service.nodeConnected(n)
	}
	n.unpark()
	if n.removed.Load() { // by a reload during the handshake
		s.stop(websocket.ClosePolicyViolation, endRemoved)
	}
}

// disconnected forgets s unless a newer session has replaced it.
func (srv *Server) disconnected(s *session) {
	n := s.node
	label := s.closing.Load().label
	srv.metrics.sessionEnds.WithLabelValues(label).Inc()
	replaced := !n.session.CompareAndSwap(s, nil)
	if svc := n.shard.service; svc != nil {
		svc.abandonPull(s)
	}
	if !replaced && n.shard.service != nil {
		n.shard.service.nodeDisconnected(n)
	}
	srv.log.Info("node disconnected", zap.String("shard", n.shard.id), zap.String("node", n.name()), zap.String("reason", label))
}
