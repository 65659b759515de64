package egress

import (
	"net"
	"sync"
	"sync/atomic"
)

// How many bytes a connection may receive. A response needs far fewer: the caps on headers and body end most excesses; this one ends those that never
// become a header or a body, such as endless control frames of HTTP/2 on a connection nobody uses any more.
const (
	budgetBase    = 1 << 20  // handshake, framing, headers, 1xx responses; granted when dialled and again per request
	budgetPerByte = 8        // per byte of the body's cap: chunks of one byte take six, and may be compressed badly
	budgetMost    = 64 << 20 // what concurrent requests on one HTTP/2 connection can gather, unless a single one may have more
)

// conn is a connection that counts: itself, in open, and what it may still receive.
type conn struct {
	net.Conn
	budget atomic.Int64
	open   *atomic.Int64
	closed sync.Once
}

// newConn takes over a connection that is already counted in open.
func newConn(c net.Conn, open *atomic.Int64) *conn {
	own := &conn{Conn: c, open: open}
	own.budget.Store(budgetBase)
	return own
}

// grant lets the connection receive one more response with a body of at most maxBytes.
func (c *conn) grant(maxBytes int64) {
	more := budgetBase + budgetPerByte*maxBytes
	for {
		have := c.budget.Load()
		if c.budget.CompareAndSwap(have, min(have+more, max(more, budgetMost))) {
			return
		}
	}
}

func (c *conn) Read(p []byte) (int, error) {
	left := c.budget.Load()
	if left <= 0 {
		return 0, errFlood
	}
	if int64(len(p)) > left {
		p = p[:left]
	}
	n, err := c.Conn.Read(p)
	c.budget.Add(-int64(n))
	return n, err
}

func (c *conn) Close() error {
	c.closed.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// granter finds the counting connection under TLS; nil when c is not ours.
func granter(c net.Conn) *conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}
