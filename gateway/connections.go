package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// lastRequests is how long a listener that has closed waits for requests on the
// connections it has, before it closes those that have none. A request that is on
// its way when the gateway stops gets an answer, that it may be sent elsewhere,
// instead of a lost connection.
const lastRequests = 50 * time.Millisecond

// connections is a listener that bounds how many of its connections are open, and
// that can close them so that no request is lost of which the server has read
// anything: net/http alone closes a kept-alive connection also while the header of
// its next request is coming. Safe for concurrent use.
type connections struct {
	net.Listener
	served net.Listener // this one, or TLS on top of it

	mu       sync.Mutex
	room     sync.Cond // signalled when Accept may go on
	most     int       // 0: any number
	open     map[*connection]struct{}
	closed   bool
	draining bool          // connections without a request are to end
	fewer    chan struct{} // capacity 1: there is one less to wait for
}

// newConnections is l with at most most connections at a time, 0 for any number.
func newConnections(l net.Listener, most int) *connections {
	c := &connections{Listener: l, most: most, open: map[*connection]struct{}{}, fewer: make(chan struct{}, 1)}
	c.room.L = &c.mu
	c.served = c
	return c
}

// setMost changes the bound. Connections past a lower one stay.
func (l *connections) setMost(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = n
	l.room.Broadcast()
}

// Accept waits for room and then for a connection.
func (l *connections) Accept() (net.Conn, error) {
	l.mu.Lock()
	for l.most > 0 && len(l.open) >= l.most && !l.closed {
		l.room.Wait()
	}
	l.mu.Unlock()
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	c.sealed = l.draining
	return c, nil
}

// Close closes the listener, not its connections. A second time does nothing.
func (l *connections) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.room.Broadcast()
	return l.Listener.Close()
}

func (l *connections) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// drain closes the listener and then every connection that has no request, and
// returns when there is none left but those that are not HTTP/1.1 any more, or when
// ctx ends.
func (l *connections) drain(ctx context.Context) {
	_ = l.Close()
	if l.waitedFor() > 0 {
		timer := time.NewTimer(lastRequests)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.draining = true
	for c := range l.open {
		c.seal()
	}
	l.mu.Unlock()
	for l.waitedFor() > 0 {
		select {
		case <-l.fewer:
		case <-ctx.Done():
			return
		}
	}
}

// waitedFor counts the connections that end with their request.
func (l *connections) waitedFor() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for c := range l.open {
		if !c.isExempt() {
			n++
		}
	}
	return n
}

// state is told by the HTTP server what it does with a connection.
func (l *connections) state(conn net.Conn, s http.ConnState) {
	secure, ok := conn.(*tls.Conn)
	if ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	switch s {
	case http.StateActive:
		c.work(secure != nil && secure.ConnectionState().NegotiatedProtocol == "h2")
	case http.StateHijacked:
		c.work(true)
	case http.StateIdle:
		c.rest()
		l.mu.Lock()
		draining := l.draining
		l.mu.Unlock()
		if draining {
			c.seal()
		}
	}
}

func (l *connections) oneLess() {
	select {
	case l.fewer <- struct{}{}:
	default:
	}
}

// connection is one of a listener's. Its lock is held for no I/O.
type connection struct {
	net.Conn
	listener *connections

	mu     sync.Mutex
	begun  bool // something was read that nothing has been written after
	active bool // a request is being worked on
	exempt bool // no longer HTTP/1.1: others see to its end
	sealed bool // nothing is read any more
	closed bool
}

// Read implements net.Conn: what comes on a sealed connection is not looked at.
func (c *connection) Read(p []byte) (int, error) {
	if c.isSealed() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return 0, io.EOF
	}
	c.begun = c.begun || n > 0
	return n, err
}

func (c *connection) isSealed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sealed
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.begun = false
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if !closed {
		l := c.listener
		l.mu.Lock()
		delete(l.open, c)
		l.room.Signal()
		l.mu.Unlock()
		l.oneLess()
	}
	return c.Conn.Close()
}

// work notes that a request is being worked on, or that this is no HTTP/1.1.
func (c *connection) work(exempt bool) {
	c.mu.Lock()
	c.active = true
	c.exempt = c.exempt || exempt
	c.mu.Unlock()
	if exempt {
		c.listener.oneLess()
	}
}

func (c *connection) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = false
}

// seal ends a connection of whose next request nothing has been read. It may be
// called with the listener's lock held.
func (c *connection) seal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun || c.active || c.exempt {
		return
	}
	c.sealed = true
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // a Read that waits finds out
}

func (c *connection) isExempt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exempt
}
