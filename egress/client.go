package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync/atomic"
	"time"
)

// Limits of the connection pool and of what an origin may send.
const (
	// MaxResponseHeaderBytes bounds a response's headers, 1xx responses before it included (protocol §7).
	MaxResponseHeaderBytes = 64 << 10

	idlePerHost = 16
	idleTotal   = 256
	idleTimeout = 30 * time.Second // shorter than most servers', so that a request rarely meets a connection that is just being closed

	// What an HTTP/2 origin may send ahead of our reading, kept in memory: per stream and per connection.
	h2StreamBuffer = 256 << 10
	h2ConnBuffer   = 1 << 20
	// How long an HTTP/2 connection may be silent before it is asked for a sign of life, how long it has to give one, and how long a write may take.
	h2Silence = 15 * time.Second
	h2Pong    = 5 * time.Second
	h2Write   = 10 * time.Second
)

// Client sends what Prepare accepted. It follows no redirect, keeps no cookie, asks no proxy. Safe for concurrent use.
//
// Connections without a client certificate are pooled and shared by all callers. A pooled connection passed the address check when it was made; a new
// configuration is a new Client, and Close ends what the old one keeps.
type Client struct {
	guard      *guard
	headers    *headerRules
	methods    map[string]bool
	methodList []string
	schemes    []string
	timeout    time.Duration
	maxBytes   int64
	maxConns   int64
	userAgent  []string
	rootCAs    *x509.CertPool
	resolver   *net.Resolver
	onPanic    func([]byte)
	mtls       *quota
	dialer     dialFunc // tests
	connector  func(context.Context, netip.AddrPort) (net.Conn, error)

	transport http.RoundTripper
	pool      *http.Transport // nil when a test replaced transport
	open      atomic.Int64    // connections, those being opened included

	seed    maphash.Seed
	checked [checkedURLs]atomic.Pointer[checkedURL] // by hash

	makingRoom chan struct{} // capacity 1: held by the dial that has idle connections closed
}

// checkedURLs is how many URLs are remembered at most.
const checkedURLs = 256

// Response is what the origin answered, any status from 200 to 999; redirects and errors are answers too. It belongs to the caller.
type Response struct {
	StatusCode int
	Header     map[string][]string // valid UTF-8; canonical names
	Body       []byte              // not nil; decompressed unless the request set Accept-Encoding or Range
	Latency    time.Duration       // from the start of sending to the last byte of the body

	buffer *buffer // holds Body
}

// Free gives the body's memory back, for other responses: nothing may use Body afterwards. Without it the garbage collector does.
func (r *Response) Free() {
	r.buffer.free()
	r.Body, r.buffer = nil, nil
}

// Stats are gauges.
type Stats struct {
	Connections int64 // open, idle and those being opened included
	MTLS        int   // requests with a client certificate under way
}

// Stats returns the current gauges.
func (c *Client) Stats() Stats { return Stats{Connections: c.open.Load(), MTLS: len(c.mtls.slots)} }

// TakeOver makes c, which was not used yet, the successor of old: the tokens for client certificates that old has handed out are not handed out again, and
// nor are its places where both have the same number. Old's idle connections are closed; its requests under way go on.
func (c *Client) TakeOver(old *Client) {
	limit, burst := c.mtls.limiter.Limit(), c.mtls.limiter.Burst()
	c.mtls.limiter = old.mtls.limiter
	c.mtls.limiter.SetLimit(limit)
	c.mtls.limiter.SetBurst(burst)
	if cap(c.mtls.slots) == cap(old.mtls.slots) {
		c.mtls.slots = old.mtls.slots
	}
	old.Close()
}

// Close closes the idle connections. Requests under way go on, and the Client stays usable.
func (c *Client) Close() {
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
}

// Do sends p and reads the whole response. It ends when ctx does or p's time limit is over, whichever is first. Its error is a *Refused when nothing was
// sent: the host's addresses are all forbidden, or the quota of client certificates is used up; else an *External.
func (c *Client) Do(ctx context.Context, p *Prepared) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return c.send(ctx, p, nil)
}

// DoShared is Do for a call that several wait for, each as long as its own time allows: only ctx bounds it, which has to end when nobody waits any more.
// g, if it is not nil, can be asked meanwhile.
func (c *Client) DoShared(ctx context.Context, p *Prepared, g *Progress) (*Response, error) {
	return c.send(ctx, p, g)
}

// Progress tells how far a request is. The zero value is ready, for one call. Safe for concurrent use.
type Progress struct {
	queued atomic.Pointer[Refused] // while the request waits for a place among those with a client certificate
}

// Refusal is the outcome, a *Refused, for whoever waits no longer now, as nothing was sent yet for want of a place among requests with a client
// certificate; else nil.
func (g *Progress) Refusal() error {
	if r := g.queued.Load(); r != nil {
		return r
	}
	return nil
}

func (c *Client) send(ctx context.Context, p *Prepared, g *Progress) (*Response, error) {
	if p.cert == nil {
		return c.exchange(ctx, c.transport, p)
	}
	leave, err := c.mtls.enter(ctx, g)
	if err != nil {
		return nil, err
	}
	defer leave()
	own := c.newTransport(p.cert)
	defer own.CloseIdleConnections()
	return c.exchange(ctx, own, p)
}

// exchange is one request and its response over rt.
func (c *Client) exchange(ctx context.Context, rt http.RoundTripper, p *Prepared) (_ *Response, err error) {
	defer c.recovered(&err)
	start := time.Now()
	a := newAttempt(ctx, p.maxBytes)
	resp, err := rt.RoundTrip(p.request(a))
	if err != nil {
		return nil, failed(ctx, a.at(), p.host, time.Since(start), err)
	}
	defer resp.Body.Close()
	if err := checkResponse(resp, p.host); err != nil {
		return nil, err
	}
	r := &Response{StatusCode: resp.StatusCode, buffer: newBuffer()}
	if r.Body, err = r.buffer.read(resp, p); err != nil {
		r.Free()
		return nil, failed(ctx, StageBody, p.host, time.Since(start), err)
	}
	r.Header, r.Latency = resp.Header, time.Since(start)
	return r, nil
}

// request makes the http.Request of one attempt. Header and URL are shared; net/http does not change them.
func (p *Prepared) request(a *attempt) *http.Request {
	r := &http.Request{
		Method: p.method, URL: p.url, Host: p.url.Host, Header: p.header, Close: p.oneShot,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if len(p.body) > 0 {
		r.ContentLength = int64(len(p.body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r.WithContext(httptrace.WithClientTrace(a, &a.trace))
}

// newTransport makes the pool of all requests without a client certificate, or, with cert, a transport for one request and no reuse.
func (c *Client) newTransport(cert *tls.Certificate) *http.Transport {
	base := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.rootCAs, NextProtos: []string{"h2", "http/1.1"}}
	if cert != nil {
		// Presented whatever authorities the origin names, as the node asked for it.
		base.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return &http.Transport{
		Proxy:       nil, // not even the environment's
		DialContext: c.dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.dialTLS(ctx, network, address, base)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // readBody does it, counting
		DisableKeepAlives:      cert != nil,
		MaxResponseHeaderBytes: MaxResponseHeaderBytes,
		MaxIdleConns:           idleTotal,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: h2StreamBuffer, MaxReceiveBufferPerConnection: h2ConnBuffer,
			SendPingTimeout: h2Silence, PingTimeout: h2Pong, WriteByteTimeout: h2Write,
		},
	}
}
