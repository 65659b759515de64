package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Time limits of the stages of a new connection; a request's own limit is often shorter.
const (
	connectTimeout   = 10 * time.Second // DNS and TCP together
	handshakeTimeout = 10 * time.Second // TLS
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// attempt is one request under way. It is the request's context too, by which net/http hands it to the dial. net/http cuts dials off from their request's
// context, so that others may use the connection; here a dial ends with its request, else a stranger's short requests would leave long dials behind.
type attempt struct {
	context.Context // the caller's, with the request's deadline
	maxBytes        int64
	stage           atomic.Pointer[Stage]
	trace           httptrace.ClientTrace // part of this for the sake of one allocation
}

func newAttempt(ctx context.Context, maxBytes int64) *attempt {
	a := &attempt{Context: ctx, maxBytes: maxBytes}
	a.trace.GotConn = a.gotConn
	a.reached(StageConnect)
	return a
}

type attemptKey struct{}

// Value is the attempt itself under attemptKey.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// stages are those that an attempt can be at.
var stages = [...]Stage{StageDNS, StageConnect, StageTLS, StageHeaders}

func (a *attempt) reached(s Stage) { a.stage.Store(&stages[slices.Index(stages[:], s)]) }

func (a *attempt) at() Stage { return *a.stage.Load() }

// gotConn is told of the connection on which the request is sent.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.reached(StageHeaders)
	if own := granter(info.Conn); own != nil {
		own.grant(a.maxBytes)
	}
}

// dial opens a TCP connection. Its errors are *Refused or *External, except where the request's context ended.
func (c *Client) dial(ctx context.Context, _, address string) (_ net.Conn, err error) {
	defer c.recovered(&err) // net/http calls this on a goroutine of its own
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	host, _, splitErr := net.SplitHostPort(address)
	if a == nil || splitErr != nil {
		return nil, errors.New("egress: a dial without its request")
	}
	start := time.Now()
	if err := c.reserve(a); err != nil {
		return nil, failed(a, StageConnect, host, time.Since(start), err)
	}
	var raw net.Conn
	defer func() {
		if raw == nil {
			c.open.Add(-1)
		}
	}()
	if raw, err = c.connect(a, address); err != nil {
		return nil, failed(a, a.at(), host, time.Since(start), err)
	}
	return newConn(raw, &c.open), nil
}

// reserve counts a connection before it is opened. At the bound the idle ones give way, for one dial at a time: while somebody else closes them they are
// neither idle any more nor closed yet, and whoever looked then would be refused for nothing.
func (c *Client) reserve(ctx context.Context) error {
	if c.claim() {
		return nil
	}
	select {
	case c.makingRoom <- struct{}{}:
		defer func() { <-c.makingRoom }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.claim() {
		return nil
	}
	c.Close()
	if c.claim() {
		return nil
	}
	return errBusy
}

// claim takes one of the connections that there may be, if one is left. Who gets none counts at no moment, or two could refuse each other.
func (c *Client) claim() bool {
	for {
		open := c.open.Load()
		if open >= c.maxConns {
			return false
		}
		if c.open.CompareAndSwap(open, open+1) {
			return true
		}
	}
}

func (c *Client) connect(a *attempt, address string) (net.Conn, error) {
	a.reached(StageDNS)
	if c.dialer != nil {
		return c.dialer(a, "tcp", address)
	}
	host, _, _ := net.SplitHostPort(address)
	var s seen
	if c.connector != nil {
		return c.connectLiteral(a, &s, host, address)
	}
	d := net.Dialer{Timeout: connectTimeout, Resolver: c.resolver}
	d.ControlContext = func(_ context.Context, network, address string, _ syscall.RawConn) error {
		a.reached(StageConnect)
		return c.guard.control(&s, network, address)
	}
	conn, err := d.DialContext(a, "tcp", address)
	if err != nil {
		return nil, s.outcome(host, err)
	}
	return conn, nil
}

// connectLiteral is connect by Config.Connect.
func (c *Client) connectLiteral(a *attempt, s *seen, host, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, &net.DNSError{IsNotFound: true}
	}
	a.reached(StageConnect)
	if err := c.guard.control(s, "tcp", address); err != nil {
		return nil, s.outcome(host, err)
	}
	return c.connector(a, to)
}

// dialTLS opens a TLS connection for the shared client or, with a certificate, for one request.
func (c *Client) dialTLS(ctx context.Context, network, address string, base *tls.Config) (_ net.Conn, err error) {
	defer c.recovered(&err)
	raw, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	a := ctx.Value(attemptKey{}).(*attempt)
	a.reached(StageTLS)
	start := time.Now()
	host, _, _ := net.SplitHostPort(address)
	config := base.Clone()
	config.ServerName = host
	conn := tls.Client(raw, config)
	limited, cancel := context.WithTimeout(a, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(limited); err != nil {
		raw.Close()
		return nil, failed(a, StageTLS, host, time.Since(start), err)
	}
	return conn, nil
}

// recovered turns a panic into an error, so that it ends one request and not the process.
func (c *Client) recovered(err *error) {
	if v := recover(); v != nil {
		if c.onPanic != nil {
			c.onPanic(debug.Stack())
		}
		*err = fail(StagePanic, "the gateway failed to handle this request; nothing is known about its outcome")
	}
}

// systemResolver asks the system's name servers with Go's own resolver, whose lookups can be broken off: each of its sockets is unblocked as soon as
// the lookup's context ends, instead of after the resolver's own timeout.
func systemResolver() *net.Resolver {
	var d net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		}
		return conn, err
	}}
}
