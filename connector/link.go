package connector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// link is the node's relation to one gateway, over all its connections.
//
// run dials and is then the connection's reading goroutine; a second goroutine writes. Everybody else reaches the writer
// through the fields that mu guards and a signal on wake.
type link struct {
	c       *Connector
	gateway Gateway
	log     *zap.Logger
	wake    chan struct{} // capacity 1: the writer has something to look at
	stamped uint32        // the second the latest handshake was signed for; run's own

	mu     sync.Mutex
	stats  GatewayStats
	outbox outbox

	// Of the current connection:
	open   bool // the handshake is through on our side
	pong   *string
	pushes pushes
	pull   *pull
}

func newLink(c *Connector, g Gateway) *link {
	l := &link{
		c: c, gateway: g, wake: make(chan struct{}, 1),
		log:    c.config.Log.With(zap.String("gateway", g.URL)),
		outbox: outbox{maxMessages: c.config.QueueMessages, maxBytes: c.config.QueueBytes},
	}
	l.pushes.limiter = rate.NewLimiter(rate.Limit(c.config.PushRPS), c.config.PushBurst)
	l.stats.Gateway = g
	return l
}

// run connects, again and again, until ctx ends.
func (l *link) run(ctx context.Context) {
	retry := backoff{Backoff: l.c.config.Backoff}
	for {
		second, ok := l.freshSecond(ctx)
		if !ok {
			return
		}
		began := time.Now()
		connected, err := l.attempt(ctx, second)
		if ctx.Err() != nil {
			return
		}
		if connected && time.Since(began) >= StableSession {
			retry.reset()
		}
		wait := retry.next(rand.Float64())
		l.failed(connected, err, wait)
		if !sleep(ctx, wait) {
			return
		}
	}
}

// freshSecond returns the second to sign the next handshake for. A signed header opens one session, so a second that was
// used is waited out (protocol §4).
func (l *link) freshSecond(ctx context.Context) (uint32, bool) {
	for {
		now := l.c.config.Now()
		if second := uint32(now.Unix()); second != l.stamped {
			l.stamped = second
			return second, ctx.Err() == nil
		}
		if !sleep(ctx, now.Truncate(time.Second).Add(time.Second).Sub(now)) {
			return 0, false
		}
	}
}

// attempt dials, shakes hands and serves the session to its end. connected: the gateway had accepted the node.
func (l *link) attempt(ctx context.Context, second uint32) (connected bool, err error) {
	l.count(&l.stats.Attempts)
	ws, err := l.dial(ctx, second)
	if err != nil {
		return false, err
	}
	return newSession(l, ws).serve(ctx)
}

// failed records why an attempt or a session ended, and says in the log what an operator can do about it.
func (l *link) failed(connected bool, err error, wait time.Duration) {
	var refused *refusedError
	l.mu.Lock()
	l.stats.LastError = err.Error()
	switch {
	case connected:
		l.stats.Lost++
	case errors.As(err, &refused):
		l.stats.Refused++
	default:
		l.stats.Failed++
	}
	l.mu.Unlock()
	fields := []zap.Field{zap.Error(err), zap.Duration("retry", wait)}
	switch {
	case connected:
		l.log.Warn("gateway disconnected", fields...)
	case refused == nil:
		l.log.Warn("gateway not reached", fields...)
	default:
		l.log.Warn("gateway refused the handshake", append(fields, zap.String("hint", refused.hint()))...)
	}
}

// refusedError is an HTTP answer to the upgrade other than 101.
type refusedError struct {
	status int
	text   string // from the body, bounded
}

func (e *refusedError) Error() string {
	s := fmt.Sprintf("the gateway answered %d %s", e.status, http.StatusText(e.status))
	if e.text != "" {
		s += ": " + e.text
	}
	return s
}

func (e *refusedError) hint() string {
	switch e.status {
	case http.StatusUnauthorized:
		return "check that DONID names the shard this key is a member of, that the gateway's ID is the configured one, and that both clocks agree"
	case http.StatusBadRequest:
		return "the gateway could not read the handshake: check that the URL is a gateway's node endpoint and nothing on the way changes headers"
	case http.StatusTooManyRequests:
		return "too many attempts of this node are pending: check that no other process uses its key"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return "the URL is not a node endpoint: check its path and port"
	default:
		return "the gateway may be starting, stopping or not a gateway at all"
	}
}

// opened makes the link take pushes and pulls, once the signed challenge is written.
func (l *link) opened() {
	l.mu.Lock()
	l.open = true
	l.mu.Unlock()
	l.signal() // answers may have waited
}

// established records that the gateway speaks to this node: it has accepted its signature.
func (l *link) established() {
	l.mu.Lock()
	l.stats.Connected = true
	l.stats.Since = time.Now()
	l.stats.Sessions++
	l.mu.Unlock()
	l.c.presence.add(1)
	l.log.Info("gateway connected")
}

// closed forgets what belonged to the connection. Reports are not kept: the gateway asks for all of them when the node
// is back. Answers are.
func (l *link) closed() (connected bool) {
	l.mu.Lock()
	connected = l.stats.Connected
	l.open, l.stats.Connected, l.stats.Since = false, false, time.Time{}
	l.pong, l.pull = nil, nil
	l.pushes.clear()
	l.mu.Unlock()
	if connected {
		l.c.presence.add(-1)
	}
	return connected
}

func (l *link) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats.Connected
}

// offer queues a message for the gateway, connected or not, for ttl at most.
func (l *link) offer(data []byte, ttl time.Duration) (*waiting, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(data) > l.c.config.MaxSendBytes {
		l.stats.TooLarge++
		return nil, ErrTooLarge
	}
	now := time.Now()
	w, expired := l.outbox.push(data, now, now.Add(ttl))
	l.stats.Expired += uint64(expired)
	if w == nil {
		l.stats.QueueFull++
		return nil, ErrQueueFull
	}
	l.signal()
	return w, nil
}

// withdraw takes back a message that nobody wants any more, unless it is written or being written.
func (l *link) withdraw(w *waiting) {
	l.mu.Lock()
	l.outbox.remove(w)
	l.mu.Unlock()
}

// malformed counts a message that was dropped. The first of a series is worth a line in the log, a flood of them is not.
func (l *link) malformed(why string) {
	l.mu.Lock()
	l.stats.Malformed++
	n := l.stats.Malformed
	l.mu.Unlock()
	level := zap.DebugLevel
	if n&(n-1) == 0 { // 1, 2, 4, 8, …
		level = zap.WarnLevel
	}
	l.log.Log(level, "dropped a malformed message of the gateway", zap.String("why", why), zap.Uint64("so_far", n))
}

// count adds one to a counter of l.stats.
func (l *link) count(counter *uint64) {
	l.mu.Lock()
	*counter++
	l.mu.Unlock()
}

// signal wakes the writer, if it sleeps.
func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
