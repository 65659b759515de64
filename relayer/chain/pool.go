package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// DefaultCallTimeout is how long one node may take for one call.
const DefaultCallTimeout = 10 * time.Second

// maxNodes bounds how many nodes a pool tries, and so how long a call can last: nodes × timeout.
const maxNodes = 16

// How long a node that failed is passed over: doubled with each failure in a row.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// PoolOptions describe a chain and the nodes that serve it.
type PoolOptions struct {
	Name        string        // of the chain, for logs and error texts, such as "gateway chain"
	URLs        []string      // 1 to 16 nodes, http or https; the first is preferred at the start
	ChainID     uint64        // nodes of another chain are not used; never 0
	CallTimeout time.Duration // for each node; 0: DefaultCallTimeout
	Log         *zap.Logger   // nil: none
	// Observe is told of every call to every node. The outcome is "ok", "error" (an answer that is an error), "malformed", "timeout",
	// "failed" or "canceled". It must not block. nil: nobody is told.
	Observe func(method, outcome string, took time.Duration)
	HTTP    *http.Client // nil: one of the pool's own, without the environment's proxy and without redirects
}

// Pool is JSON-RPC to one chain through several nodes. Each call goes to the node that answered last; where that one fails (no connection,
// no answer in time, status 5xx or 429, not JSON-RPC, a result of another form), or answers that it is over its limit of calls or failed within
// ([Busy]), the call goes to the next. Any other error that a node answers with is an answer, and so is that of the last node. A node that failed comes
// last for a while, from a second to a minute; one that did not answer is asked for its chain again before its next call.
//
// Since a send may go to several nodes too, only signed transactions are sent: they have one effect however often they arrive.
type Pool struct {
	name    string
	chainID uint64
	timeout time.Duration
	log     *zap.Logger
	observe func(method, outcome string, took time.Duration)
	http    *http.Client
	own     bool // the client is the pool's own
	nodes   []*node
	ids     atomic.Uint64

	dialContext func(ctx context.Context, network, addr string) (net.Conn, error) // of subscriptions

	mu        sync.Mutex // guards preferred and the nodes' state
	preferred *node
}

// node is one of a pool's nodes. Its state is guarded by the pool's mutex.
type node struct {
	url  string // may hold a key: goes nowhere but to the HTTP client
	host string // for logs

	verified bool      // it is known to be of our chain
	noSync   bool      // it has no eth_sendRawTransactionSync
	fails    int       // in a row
	failed   time.Time // the last time
	until    time.Time // comes last
}

// NewPool returns a pool and does no I/O. The error says which URL is wrong, without its text.
func NewPool(o PoolOptions) (*Pool, error) {
	p := &Pool{name: o.Name, chainID: o.ChainID, timeout: o.CallTimeout, log: o.Log, observe: o.Observe, http: o.HTTP,
		dialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext}
	switch {
	case o.ChainID == 0:
		return nil, fmt.Errorf("%s: the chain id is missing", o.Name)
	case len(o.URLs) == 0:
		return nil, fmt.Errorf("%s: no node is named", o.Name)
	case len(o.URLs) > maxNodes:
		return nil, fmt.Errorf("%s: %d nodes are more than %d", o.Name, len(o.URLs), maxNodes)
	}
	for i, raw := range o.URLs {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, fmt.Errorf("%s: node %d: not an http or https URL", o.Name, i+1)
		}
		p.nodes = append(p.nodes, &node{url: raw, host: u.Host})
	}
	p.preferred = p.nodes[0]
	if p.timeout <= 0 {
		p.timeout = DefaultCallTimeout
	}
	if p.log == nil {
		p.log = zap.NewNop()
	}
	p.log = p.log.With(zap.String("chain", o.Name))
	if p.observe == nil {
		p.observe = func(string, string, time.Duration) {}
	}
	if p.http == nil {
		p.http, p.own = newHTTPClient(), true
	}
	return p, nil
}

// Close drops the idle connections of the pool's own HTTP client. Calls that are open end by their contexts.
func (p *Pool) Close() {
	if p.own {
		p.http.CloseIdleConnections()
	}
}

// Name returns the chain's name, as it stands in error texts.
func (p *Pool) Name() string { return p.name }

// request is one call, the same for each node.
type request struct {
	method string
	params []any
	limit  int64 // most bytes of an answer; 0: maxReply
	// decode takes the result, which is JSON; an error of its means that the node does not work.
	decode func(result []byte) error
	// tooLarge is returned where the answer is larger than limit; nil: the node counts as failed.
	tooLarge error
	sync     bool // it is eth_sendRawTransactionSync
	// moveOn tells for which answers that are errors the next node is asked, if there is one; nil: [RPCError.busy].
	moveOn func(*RPCError) bool
}

// call tries the nodes in turn. The error is an *RPCError, the request's tooLarge, ErrNoSync, the context's own or wraps ErrUnavailable.
func (p *Pool) call(ctx context.Context, r request) error {
	var last error
	moveOn := r.moveOn
	if moveOn == nil {
		moveOn = (*RPCError).busy
	}
	nodes := p.order()
	for i, n := range nodes {
		start := time.Now()
		err := p.try(ctx, n, r)
		var answer *RPCError
		switch {
		case err == nil:
			p.answered(n, start)
			return nil
		case errors.As(err, &answer) && moveOn(answer) && len(nodes) > 1:
			p.pass(n, r.method, err)
			if i == len(nodes)-1 {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			continue
		case errors.As(err, &answer), r.tooLarge != nil && errors.Is(err, r.tooLarge):
			p.answered(n, start)
			return fmt.Errorf("%s: %w", p.name, err)
		case errors.Is(err, ErrNoSync):
			return err
		case ctx.Err() != nil:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				p.failed(n, r.method, err) // too slow for its caller, so the next one asks somebody else
			}
			return fmt.Errorf("%s: %s: %w", p.name, r.method, ctx.Err())
		}
		p.failed(n, r.method, err)
		last = err
	}
	return fmt.Errorf("%s: %w: %s", p.name, ErrUnavailable, brief(last))
}

// try puts the call to one node, after its chain where that is not known.
func (p *Pool) try(ctx context.Context, n *node, r request) error {
	verified, noSync := p.state(n)
	if !verified {
		id, err := p.nodeChainID(ctx, n)
		if err != nil {
			return err
		}
		if id != p.chainID {
			return errOtherChain
		}
		p.verified(n)
	}
	if r.sync && noSync {
		return ErrNoSync
	}
	err := p.post(ctx, n, r)
	var answer *RPCError
	if r.sync && errors.As(err, &answer) && answer.noMethod(r.method) {
		p.mu.Lock()
		n.noSync = true
		p.mu.Unlock()
		return ErrNoSync
	}
	return err
}

// nodeChainID asks one node for its chain. An answer that is an error counts as none: every node has this call.
func (p *Pool) nodeChainID(ctx context.Context, n *node) (uint64, error) {
	var id uint64
	err := p.post(ctx, n, request{method: "eth_chainId", decode: decodeUint64(&id)})
	var answer *RPCError
	if errors.As(err, &answer) {
		return 0, fmt.Errorf("%w: eth_chainId: %s", errMalformed, answer.Message)
	}
	return id, err
}

// order returns the nodes as they are to be tried: the one that answered last, the others as configured, then those that failed lately, the
// one that may be tried soonest first.
func (p *Pool) order() []*node {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	out := slices.Clone(p.nodes)
	rank := func(n *node) int {
		switch {
		case n.until.After(now):
			return 2
		case n == p.preferred:
			return 0
		default:
			return 1
		}
	}
	slices.SortStableFunc(out, func(a, b *node) int {
		if ra, rb := rank(a), rank(b); ra != rb || ra != 2 {
			return ra - rb
		}
		return a.until.Compare(b.until)
	})
	return out
}

func (p *Pool) state(n *node) (verified, noSync bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n.verified, n.noSync
}

func (p *Pool) verified(n *node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n.verified = true
}

// answered prefers the node from now on, unless it has failed since the call was made: of calls under way together, a node that is over its limit
// still answers some.
func (p *Pool) answered(n *node, start time.Time) {
	p.mu.Lock()
	if start.Before(n.failed) {
		p.mu.Unlock()
		return
	}
	moved, recovered := p.preferred != n, n.fails > 0
	p.preferred, n.fails, n.until = n, 0, time.Time{}
	p.mu.Unlock()
	if moved || recovered {
		p.log.Info("node in use", zap.String("host", n.host))
	}
}

// failed passes the node over for a while and forgets what it was like: another node may answer under the same name next time.
func (p *Pool) failed(n *node, method string, err error) {
	p.pass(n, method, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	n.verified, n.noSync = false, false
}

// pass passes the node over for a while. Calls that fail together count once.
func (p *Pool) pass(n *node, method string, err error) {
	p.mu.Lock()
	now := time.Now()
	n.failed = now
	counted := !n.until.After(now)
	if counted {
		n.until = now.Add(min(minBackoff<<min(n.fails, 10), maxBackoff))
		n.fails++
	}
	p.mu.Unlock()
	if counted {
		p.log.Warn("node failed", zap.String("host", n.host), zap.String("method", method), zap.String("cause", detail(err)))
	}
}
