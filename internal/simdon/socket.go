package simdon

import (
	"context"
	"net"
	"net/url"
	"sync"

	"dongate/connector"
)

// frozenBuffer is the receive buffer of a frozen node's socket, so that it is full soon. The system may round it up.
const frozenBuffer = 4 << 10

// socket is a node's connection, which it stops reading while it is frozen.
type socket struct {
	net.Conn
	node   *Node
	url    string // of the gateway
	closed chan struct{}
	once   sync.Once
}

// dial opens sockets for a connector.
func (n *Node) dial(gateways []connector.Gateway) func(context.Context, string, string) (net.Conn, error) {
	urls := make(map[string]string)
	for _, g := range gateways {
		if u, err := url.Parse(g.URL); err == nil {
			urls[hostPort(u)] = g.URL
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s := &socket{Conn: conn, node: n, url: urls[address], closed: make(chan struct{})}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.sockets[s] = struct{}{}
		if n.behaviour.Kind == Frozen {
			s.shrink()
		}
		return s, nil
	}
}

// hostPort is the address that a gateway's URL is dialled at.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "wss" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

func (s *socket) shrink() {
	if tcp, ok := s.Conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(frozenBuffer)
	}
}

// Read reads, and then keeps what it has read to itself for as long as the node is frozen. Until the gateway has accepted
// the node everything is read, since a session is to be live to be frozen.
func (s *socket) Read(b []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	count, err := s.Conn.Read(b)
	if waited := s.wait(); waited != nil {
		return 0, waited
	}
	return count, err
}

// wait returns when the node is not frozen, or with an error when the connection is closed.
func (s *socket) wait() error {
	for {
		b, changed := s.node.state()
		if b.Kind != Frozen {
			return nil
		}
		if c := s.node.Connector(); c == nil || !c.Connected(s.url) {
			return nil
		}
		select {
		case <-changed:
		case <-s.closed:
			return net.ErrClosed
		}
	}
}

// Close closes the connection, frozen or not.
func (s *socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.node.mu.Lock()
		delete(s.node.sockets, s)
		s.node.mu.Unlock()
	})
	return s.Conn.Close()
}
