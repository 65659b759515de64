package connector

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// closeGrace is how long a session that ends may take to say so.
const closeGrace = time.Second

// bufferKept is the largest write buffer a session keeps for the next message.
const bufferKept = 64 << 10

var errGoingAway = errors.New("the connector stops")

// session is one connection after the handshake. The goroutine that called serve reads, a second one writes; the library
// itself writes only when it refuses a frame, just before the connection ends.
type session struct {
	link *link
	ws   *websocket.Conn
	conn net.Conn
	buf  []byte // of the writing goroutine

	established bool // of the reading goroutine

	mu      sync.Mutex
	closing bool // the write deadline is the last one
}

func newSession(l *link, ws *websocket.Conn) *session {
	return &session{link: l, ws: ws, conn: ws.NetConn()}
}

// serve runs the session to its end and releases everything it held. Handlers get ctx. The error says why it ended.
func (s *session) serve(ctx context.Context) (connected bool, err error) {
	alive, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(alive, s.hurry)
	defer stop()
	s.link.opened()
	var writer sync.WaitGroup
	readerGone := make(chan struct{})
	writer.Go(func() {
		if err := s.write(alive); err != nil {
			end(err)
			_ = s.ws.Close() // nothing sensible can follow half a frame
			return
		}
		s.close(readerGone, context.Cause(alive))
	})
	end(s.read(ctx))
	close(readerGone)
	writer.Wait()
	err = context.Cause(alive)
	if ctx.Err() != nil {
		err = errGoingAway
	}
	return s.link.closed(), err
}

// hurry makes sure that no write outlives the session by more than closeGrace.
func (s *session) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	_ = s.conn.SetWriteDeadline(time.Now().Add(closeGrace))
}

// read hands every message to the connector until the connection ends.
func (s *session) read(ctx context.Context) error {
	l := s.link
	s.ws.SetReadLimit(l.c.config.MaxReadBytes)
	s.ws.SetPingHandler(func(payload string) error {
		s.heard()
		l.mu.Lock()
		l.pong = &payload // the latest one: a flood of pings costs one pong
		l.mu.Unlock()
		l.signal()
		return nil
	})
	s.ws.SetPongHandler(func(string) error { s.heard(); return nil })
	s.ws.SetCloseHandler(func(int, string) error { return nil }) // the writer answers
	_ = s.ws.SetReadDeadline(time.Now().Add(l.c.config.ReadTimeout))
	for {
		kind, data, err := s.ws.ReadMessage()
		if err != nil {
			return err
		}
		s.heard()
		l.count(&l.stats.Received)
		if kind != websocket.BinaryMessage {
			l.malformed("text frame")
			continue
		}
		if observe := l.c.config.Observe; observe != nil {
			observe(Message{Gateway: l.gateway, Data: data})
		}
		l.c.receive(ctx, l, data)
	}
}

// heard puts off the moment at which the gateway counts as gone.
func (s *session) heard() {
	_ = s.ws.SetReadDeadline(time.Now().Add(s.link.c.config.ReadTimeout))
	if !s.established {
		s.established = true
		s.link.established()
	}
}

// write is the writing goroutine. It returns nil when ctx has ended, or the first error.
func (s *session) write(ctx context.Context) error {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		wait, err := s.flush(ctx)
		if err != nil {
			return err
		}
		pace.Stop()
		if wait > 0 {
			pace.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.link.wake:
		case <-pace.C:
		}
	}
}

// flush writes until there is nothing to write now. Reports and answers take turns, so that neither starves the other.
func (s *session) flush(ctx context.Context) (wait time.Duration, err error) {
	l := s.link
	for ctx.Err() == nil {
		idle := true
		if payload := l.takePong(); payload != nil {
			if err := s.frame(websocket.PongMessage, []byte(*payload)); err != nil {
				return 0, err
			}
		}
		var report []byte
		if report, wait = l.nextReport(time.Now()); report != nil {
			if err := s.message(report); err != nil {
				return 0, err
			}
			idle = false
		}
		if answer := l.firstAnswer(); answer != nil {
			if err := s.message(answer.data); err != nil {
				return 0, err // it stays in the outbox, for the next connection
			}
			l.answered(answer)
			idle = false
		}
		if idle {
			return wait, nil
		}
	}
	return 0, nil
}

func (l *link) takePong() *string {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pong
	l.pong = nil
	return p
}

func (l *link) firstAnswer() *waiting {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, expired := l.outbox.first(time.Now())
	l.stats.Expired += uint64(expired)
	return w
}

func (l *link) answered(w *waiting) {
	l.mu.Lock()
	l.outbox.remove(w)
	l.mu.Unlock()
}

func (s *session) message(data []byte) error {
	if err := s.frame(websocket.BinaryMessage, data); err != nil {
		return err
	}
	l := s.link
	l.count(&l.stats.Sent)
	if observe := l.c.config.Observe; observe != nil {
		observe(Message{Gateway: l.gateway, Sent: true, Data: data})
	}
	return nil
}

// frame writes one frame with one call.
func (s *session) frame(opcode int, data []byte) error {
	b := appendFrame(s.buf[:0], opcode, data)
	if s.buf = b; cap(b) > bufferKept {
		s.buf = nil
	}
	s.mu.Lock()
	if !s.closing {
		_ = s.conn.SetWriteDeadline(time.Now().Add(s.link.c.config.WriteTimeout))
	}
	s.mu.Unlock()
	_, err := s.conn.Write(b)
	return err
}

// close says goodbye as far as the socket takes it, waits a moment for the gateway's own goodbye, so that what was
// written is not lost to a reset, and closes the socket, which ends the reader.
func (s *session) close(readerGone <-chan struct{}, cause error) {
	code := websocket.CloseGoingAway
	var ce *websocket.CloseError
	if errors.As(cause, &ce) && ce.Code != websocket.CloseAbnormalClosure {
		code = ce.Code
	}
	s.hurry()
	if err := s.frame(websocket.CloseMessage, websocket.FormatCloseMessage(code, "")); err == nil {
		t := time.NewTimer(closeGrace)
		defer t.Stop()
		select {
		case <-readerGone:
		case <-t.C:
		}
	}
	_ = s.ws.Close()
}
