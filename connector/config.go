package connector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.uber.org/zap"

	"dongate/auth"
)

// Gateway is one gateway to stay connected to.
type Gateway struct {
	// URL is the node endpoint, ws:// or wss:// with host and path. It identifies the gateway within a Connector.
	URL string
	// ID is the name the gateway is configured with (authGatewayId), 1 to 128 bytes. The node signs for it, so that its
	// handshake is worth nothing to anybody else.
	ID string
}

// Config says who the node is, which gateways it serves and within which bounds. Fields left at zero get the default
// named with them. A Config is copied by [New]; what it points to must not change afterwards.
type Config struct {
	// DONID is the id of the shard the node belongs to, 1 to 64 bytes: "x" for shard 0 of DON x, "x_n" for shard n > 0.
	DONID string
	// Signer holds the node's key. Required.
	Signer auth.Signer
	// Gateways has at least one element; URLs must differ.
	Gateways []Gateway

	// TLS is used for wss:// gateways; nil: the system's roots and TLS 1.2 or later.
	TLS *tls.Config
	// Log gets structured entries, never a message's content; nil: none are written.
	Log *zap.Logger

	// HandshakeTimeout bounds one attempt from dialling to the signed challenge. Default 10 s.
	HandshakeTimeout time.Duration
	// ReadTimeout is how long a gateway may be silent before its connection counts as dead. Gateways ping, every 20 s
	// unless configured otherwise. Default 70 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds one write to the socket; one that takes longer ends the connection. Default 10 s.
	WriteTimeout time.Duration
	// Backoff is the wait between attempts to connect.
	Backoff Backoff

	// QueueMessages and QueueBytes bound the answers and actions waiting for one gateway. Default 256 and 8 MB.
	QueueMessages int
	QueueBytes    int
	// AnswerTTL is how long an answer is kept for a gateway that is not connected; afterwards the gateway has given its
	// client up. Default 60 s.
	AnswerTTL time.Duration
	// PushRPS and PushBurst pace the reports of single workflows to one gateway, so that many changes at once do not run
	// into its limit on what nodes send unasked (100 per second by default); one too many would be dropped there, and be
	// missing until the next pull. Default 50 per second and 50.
	PushRPS   float64
	PushBurst int
	// MaxSendBytes bounds one message to a gateway, whose own limit ends the session of a node that exceeds it; a larger
	// answer is replaced by an error. Default 1 MB, as the gateway's.
	MaxSendBytes int
	// MaxReadBytes bounds one message from a gateway. Default 4 MB. Actions ask for no longer bodies than fit.
	MaxReadBytes int64
	// MaxConcurrent and MaxConcurrentBytes bound the requests being handled at a time, over all gateways. Default 1024
	// and 64 MB.
	MaxConcurrent      int
	MaxConcurrentBytes int64
	// MaxActions bounds the actions waiting for their answers, over all gateways. Gateways make at most 64 at a time for
	// one node. Default 256.
	MaxActions int

	// Dial opens the TCP connection; nil: a net.Dialer. For tests and for proxies; the environment's proxies are not
	// used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock that handshakes are stamped with; nil: time.Now.
	Now func() time.Time
	// Observe, when set, is called with every message as it was read from or written to a gateway, on the goroutine
	// that did so: it must be quick, and must neither keep nor change the bytes. For tests, demonstrations and debugging.
	Observe func(Message)
}

// Message is what [Config.Observe] sees: one binary frame.
type Message struct {
	Gateway Gateway
	// Sent is true for a message to the gateway (called once it is written) and false for one from it.
	Sent bool
	Data []byte
}

// Backoff is the wait after a failed attempt: uniform between half a step and the step, which grows from Initial by
// Multiplier up to Max. The step starts over once a session has lasted [StableSession]. Whatever it says, no attempt is
// made in the clock second of the one before, because a signed second is good once (protocol §4).
type Backoff struct {
	Initial    time.Duration // default 500 ms
	Max        time.Duration // default 30 s
	Multiplier float64       // default 2, at least 1
}

// StableSession is how long a session must last for the next loss to count as the first: a gateway that takes nodes in
// and drops them at once is not hammered.
const StableSession = 10 * time.Second

// withDefaults fills in what is zero and checks everything; the error names every problem.
func (c Config) withDefaults() (Config, error) {
	or(&c.HandshakeTimeout, 10*time.Second)
	or(&c.ReadTimeout, 70*time.Second)
	or(&c.WriteTimeout, 10*time.Second)
	or(&c.Backoff.Initial, 500*time.Millisecond)
	or(&c.Backoff.Max, 30*time.Second)
	or(&c.Backoff.Multiplier, 2)
	or(&c.QueueMessages, 256)
	or(&c.QueueBytes, 8<<20)
	or(&c.AnswerTTL, time.Minute)
	or(&c.PushRPS, 50)
	or(&c.PushBurst, 50)
	or(&c.MaxSendBytes, 1<<20)
	or(&c.MaxReadBytes, 4<<20)
	or(&c.MaxConcurrent, 1024)
	or(&c.MaxConcurrentBytes, 64<<20)
	or(&c.MaxActions, 256)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return c, c.check()
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) check() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Signer == nil {
		add("Signer is missing: give the node's key")
	}
	if n := len(c.DONID); n == 0 || n > auth.DONIDBytes {
		add("DONID has %d bytes: give 1 to %d", n, auth.DONIDBytes)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"HandshakeTimeout", int64(c.HandshakeTimeout)}, {"ReadTimeout", int64(c.ReadTimeout)},
		{"WriteTimeout", int64(c.WriteTimeout)}, {"Backoff.Initial", int64(c.Backoff.Initial)},
		{"QueueMessages", int64(c.QueueMessages)}, {"QueueBytes", int64(c.QueueBytes)}, {"AnswerTTL", int64(c.AnswerTTL)},
		{"PushBurst", int64(c.PushBurst)}, {"MaxSendBytes", int64(c.MaxSendBytes)}, {"MaxReadBytes", c.MaxReadBytes},
		{"MaxConcurrent", int64(c.MaxConcurrent)}, {"MaxConcurrentBytes", c.MaxConcurrentBytes},
		{"MaxActions", int64(c.MaxActions)},
	} {
		if f.value < 0 {
			add("%s is negative", f.name)
		}
	}
	if c.PushRPS < 0 {
		add("PushRPS is negative")
	}
	if c.Backoff.Max < c.Backoff.Initial || c.Backoff.Multiplier < 1 {
		add("Backoff: Max is less than Initial, or Multiplier less than 1")
	}
	if len(c.Gateways) == 0 {
		add("Gateways is empty: give at least one")
	}
	seen := make(map[string]bool)
	for i, g := range c.Gateways {
		if err := g.check(); err != nil {
			add("Gateways[%d]: %w", i, err)
		}
		if seen[g.URL] {
			add("Gateways[%d]: its URL is there twice", i)
		}
		seen[g.URL] = true
	}
	if len(errs) > 0 {
		return fmt.Errorf("connector: %w", errors.Join(errs...))
	}
	return nil
}

func (g Gateway) check() error {
	if n := len(g.ID); n == 0 || n > auth.GatewayIDBytes {
		return fmt.Errorf("ID has %d bytes: give 1 to %d", n, auth.GatewayIDBytes)
	}
	u, err := url.Parse(g.URL)
	if err != nil || (u.Scheme != "ws" && u.Scheme != "wss") || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("URL is not the ws:// or wss:// address of a node endpoint, such as wss://gateway.example.com:5003/node")
	}
	return nil
}
