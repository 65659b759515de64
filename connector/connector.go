package connector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/jsonrpc"
)

// Errors of Send, Action and Run, to be told apart with errors.Is.
var (
	// ErrUnknownGateway: no configured gateway has this URL.
	ErrUnknownGateway = errors.New("no such gateway")
	// ErrQueueFull: as many messages wait for this gateway as may wait.
	ErrQueueFull = errors.New("the gateway's queue is full")
	// ErrTooLarge: the message is larger than MaxSendBytes.
	ErrTooLarge = errors.New("the message is too large for the gateway")
	// ErrRunning: Run is already running.
	ErrRunning = errors.New("the connector is already running")
)

// Connector keeps one node connected to its gateways. Its methods are safe for concurrent use.
type Connector struct {
	config    Config
	links     []*link
	byURL     map[string]*link
	store     store
	admission admission
	presence  presence
	actions   actions
	running   atomic.Bool
	working   sync.WaitGroup // goroutines of handlers

	mu       sync.RWMutex
	handlers map[string]Handler
}

// New checks the configuration and returns a Connector that does nothing until [Connector.Run]. The error names
// everything that is wrong.
func New(c Config) (*Connector, error) {
	config, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	config.Gateways = append([]Gateway(nil), config.Gateways...)
	config.TLS = config.TLS.Clone()
	n := &Connector{config: config, byURL: make(map[string]*link), handlers: make(map[string]Handler)}
	n.admission.limits(config.MaxConcurrent, config.MaxConcurrentBytes)
	n.presence.changed = make(chan struct{})
	n.actions.most, n.actions.waiting = config.MaxActions, make(map[string]*actionWait)
	for _, g := range config.Gateways {
		l := newLink(n, g)
		n.links = append(n.links, l)
		n.byURL[g.URL] = l
	}
	return n, nil
}

// Handle makes h answer the gateways' requests with this method, such as "workflows.execute". It may be called at any
// time. As with http.ServeMux it panics on a programming error: an empty method, a nil handler, a method that has a
// handler already, or pull_workflow_metadata or http_action, which the Connector deals with itself.
func (c *Connector) Handle(method string, h Handler) {
	if method == "" || h == nil || method == methodPull || method == methodAction {
		panic(fmt.Sprintf("connector: no handler can be registered for %q", method))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.handlers[method]; ok {
		panic(fmt.Sprintf("connector: %q has a handler already", method))
	}
	c.handlers[method] = h
}

func (c *Connector) handler(method string) Handler {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.handlers[method]
}

// Run connects to every gateway and stays connected until ctx ends. It returns when every goroutine it started has
// ended, handlers included: their context ends with ctx, and one that ignores it holds Run up. The sessions are closed
// with code 1001. It returns nil, or at once [ErrRunning]. It may be called again after it has returned.
func (c *Connector) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return fmt.Errorf("connector: %w", ErrRunning)
	}
	defer c.running.Store(false)
	var links sync.WaitGroup
	for _, l := range c.links {
		links.Go(func() { l.run(ctx) })
	}
	links.Wait()
	c.working.Wait()
	return nil
}

// Send queues a message for a gateway without waiting: a second answer to a request, say. Answers of handlers need no
// Send. A message for a gateway that is not connected is kept until it is, for [Config.AnswerTTL] at most. The error
// wraps [ErrUnknownGateway], [ErrQueueFull] or [ErrTooLarge], or says what is wrong with r: it needs an id and exactly one
// of result and error.
func (c *Connector) Send(url string, r *jsonrpc.Response) error {
	l := c.byURL[url]
	if l == nil {
		return fmt.Errorf("connector: %w: %q", ErrUnknownGateway, url)
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("connector: send: %w", err)
	}
	if r.ID == "" {
		return errors.New("connector: send: the id is empty")
	}
	data := appendResponse(r)
	if !jsontext.Value(data).IsValid() {
		return errors.New("connector: send: the result or the error's data is not JSON")
	}
	if _, err := l.offer(data, c.config.AnswerTTL); err != nil {
		return fmt.Errorf("connector: %w", err)
	}
	return nil
}

func appendResponse(r *jsonrpc.Response) []byte {
	if r.Error != nil {
		return jsonrpc.AppendNodeError(nil, r.ID, r.Method, r.Error)
	}
	return jsonrpc.AppendResult(make([]byte, 0, len(r.Result)+len(r.ID)+len(r.Method)+64), r.ID, r.Method, r.Result)
}

// Connected reports whether the gateway with this URL has a session with the node. A session counts from the first
// frame the gateway sends after the handshake, because nothing else tells that it accepted the node's signature; gateways
// ping at once.
func (c *Connector) Connected(url string) bool {
	l := c.byURL[url]
	return l != nil && l.isConnected()
}

// WaitConnected waits until at least n gateways are connected at the same time. It returns ctx's cause when that ends
// first, and at once an error when fewer than n gateways are configured.
func (c *Connector) WaitConnected(ctx context.Context, n int) error {
	if n > len(c.links) {
		return fmt.Errorf("connector: cannot wait for %d gateways: %d are configured", n, len(c.links))
	}
	for {
		have, changed := c.presence.get()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("connector: %d of %d gateways are connected: %w", have, n, context.Cause(ctx))
		}
	}
}

// presence counts the connected gateways and wakes those who wait for them.
type presence struct {
	mu      sync.Mutex
	count   int
	changed chan struct{} // closed and replaced with every change
}

func (p *presence) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count += n
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *presence) get() (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.changed
}

// receive takes one message from a gateway, on the reading goroutine of its connection. data is the callee's.
func (c *Connector) receive(ctx context.Context, l *link, data []byte) {
	r, err := decode(data)
	if err != nil {
		l.malformed(err.Error())
		return
	}
	switch r.Method {
	case methodPull:
		l.startPull(r.ID)
		return
	case methodAction:
		if !c.actions.answered(r.ID, l, r.Params) {
			l.count(&l.stats.Unsolicited)
		}
		return
	}
	h := c.handler(r.Method)
	switch {
	case h == nil:
		l.count(&l.stats.Unhandled)
		if !strings.Contains(r.ID, "/") { // a request that somebody waits for, not the end of an exchange
			l.answer(&jsonrpc.Response{ID: r.ID, Method: r.Method, Error: errNoHandler})
		}
	case !c.admission.enter(int64(len(data))):
		l.count(&l.stats.Busy)
		l.answer(&jsonrpc.Response{ID: r.ID, Method: r.Method, Error: errBusy})
	default:
		c.working.Go(func() {
			defer c.admission.leave(int64(len(data)))
			c.serve(ctx, l, h, &r)
		})
	}
}

// answer queues what the node says about a request; if that is impossible, the gateway does without.
func (l *link) answer(r *jsonrpc.Response) {
	ttl := l.c.config.AnswerTTL
	_, err := l.offer(appendResponse(r), ttl)
	if errors.Is(err, ErrTooLarge) {
		_, err = l.offer(appendResponse(&jsonrpc.Response{ID: r.ID, Method: r.Method, Error: errAnswerTooLarge}), ttl)
	}
	if err != nil {
		l.log.Warn("an answer is lost", zap.String("id", r.ID), zap.Error(err))
	}
}
