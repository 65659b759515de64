package simchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	maxProxied      = 64 << 20 // bytes of one request or answer
	proxyDialWithin = 10 * time.Second
)

// Proxy passes JSON-RPC over HTTP and WebSocket to a node and spoils some of it. One proxy is one node to a relayer: tests of
// failover start several before one chain. All methods may be used from any goroutine.
type Proxy struct {
	target, targetWS string
	seed             uint64
	server           *http.Server
	address          string
	client           *http.Client
	ctx              context.Context // ends with Close
	cancel           context.CancelFunc
	done             sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	rules   []*ruleState
	down    bool
	calls   map[string]int
	faults  map[Fault]int
	changed chan struct{} // closed and replaced with every fault
	sockets map[*websocket.Conn]struct{}
	conns   map[net.Conn]struct{}
}

// NewProxy starts a proxy to a chain, on a free port of the loopback interface. Decisions by chance follow from seed.
func NewProxy(target Config, seed uint64, rules ...Rule) (*Proxy, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("simchain: proxy: %w", err)
	}
	p := &Proxy{
		target: target.HTTP, targetWS: target.WS, seed: seed, address: listener.Addr().String(),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		calls:  map[string]int{}, faults: map[Fault]int{}, changed: make(chan struct{}),
		sockets: map[*websocket.Conn]struct{}{}, conns: map[net.Conn]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.SetRules(rules...)
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: proxyDialWithin, ConnState: p.connState}
	p.done.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

// HTTP returns the URL for JSON-RPC over HTTP.
func (p *Proxy) HTTP() string { return "http://" + p.address }

// WS returns the URL for JSON-RPC over WebSocket.
func (p *Proxy) WS() string { return "ws://" + p.address }

// Close stops the proxy; whoever waits for an answer loses the connection. A second call does nothing.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.server.Close()
	p.cut()
	p.done.Wait()
	p.client.CloseIdleConnections()
}

// SetRules replaces the rules; each counts from here on.
func (p *Proxy) SetRules(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
	for _, r := range rules {
		p.rules = append(p.rules, &ruleState{Rule: r})
	}
}

// SetDown takes the node away: every connection is closed, and new ones are as soon as they ask something.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

// Calls returns how often each method was called so far, spoiled or not.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// Counts returns how often each fault has happened so far.
func (p *Proxy) Counts() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Wait returns once a fault has happened n times, or with the context's error.
func (p *Proxy) Wait(ctx context.Context, f Fault, n int) error {
	return p.wait(ctx, func() bool { return p.faults[f] >= n })
}

// WaitCall returns once a method was called n times, or with the context's error.
func (p *Proxy) WaitCall(ctx context.Context, method string, n int) error {
	return p.wait(ctx, func() bool { return p.calls[method] >= n })
}

func (p *Proxy) wait(ctx context.Context, reached func() bool) error {
	for {
		p.mu.Lock()
		ok, changed := reached(), p.changed
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("simchain: proxy: %w", ctx.Err())
		}
	}
}

// rule counts a call and returns the rule that hits it.
func (p *Proxy) rule(method string) (rule Rule, hit bool, r *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[method]++
	close(p.changed)
	p.changed = make(chan struct{})
	for i, s := range p.rules {
		if hit, r := s.decide(p.seed, i, method); hit {
			p.faults[s.Fault]++
			return s.Rule, true, r
		}
	}
	return Rule{}, false, nil
}

// connState keeps the connections that a node which goes away closes.
func (p *Proxy) connState(c net.Conn, s http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s {
	case http.StateNew:
		p.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.conns, c)
	}
}

func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	for c := range p.sockets {
		_ = c.Close()
	}
}

func (p *Proxy) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// errCut says that the caller's connection is to be closed.
var errCut = errors.New("cut")

// statusError says that the answer is an HTTP status.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// ServeHTTP answers one request of a relayer.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.isDown() {
		panic(http.ErrAbortHandler) // closes the connection without a word
	}
	if websocket.IsWebSocketUpgrade(r) {
		p.serveSocket(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProxied))
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	answer, err := p.exchange(ctx, body)
	var status statusError
	switch {
	case errors.As(err, &status):
		http.Error(w, "no", int(status))
	case errors.Is(err, errCut), p.ctx.Err() != nil, r.Context().Err() != nil, p.isDown():
		panic(http.ErrAbortHandler)
	case err != nil:
		http.Error(w, "the node does not answer", http.StatusBadGateway)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}
}

// exchange answers a body, which is one call or a list.
func (p *Proxy) exchange(ctx context.Context, body []byte) ([]byte, error) {
	if !isBatch(body) {
		return p.one(ctx, body)
	}
	var calls []json.RawMessage
	if err := json.Unmarshal(body, &calls); err != nil {
		return p.forward(ctx, body)
	}
	var answers []json.RawMessage
	for _, c := range calls {
		answer, err := p.one(ctx, c)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return mustJSON(answers), nil
}

// one answers one call.
func (p *Proxy) one(ctx context.Context, body []byte) ([]byte, error) {
	var call message
	if err := json.Unmarshal(body, &call); err != nil {
		return p.forward(ctx, body)
	}
	rule, hit, r := p.rule(call.Method)
	if !hit {
		return p.forward(ctx, body)
	}
	switch rule.Fault {
	case FaultError:
		return mustJSON(errorReply(call.ID, rule)), nil
	case FaultStatus:
		if rule.Code == 0 {
			return nil, statusError(http.StatusServiceUnavailable)
		}
		return nil, statusError(rule.Code)
	case FaultHang:
		<-ctx.Done()
		return nil, ctx.Err()
	case FaultCut:
		return nil, errCut
	case FaultSlow:
		if err := delay(ctx, rule.Delay); err != nil {
			return nil, err
		}
	}
	answer, err := p.forward(ctx, body)
	if err != nil {
		return nil, err
	}
	switch rule.Fault {
	case FaultDrop:
		return nil, errCut
	case FaultGarbage:
		return garbage(), nil
	}
	return spoil(rule, r, answer), nil
}

func garbage() []byte { return []byte("<html>not JSON</html>") }

// spoil alters the result in an answer; an answer that is an error stays as it is.
func spoil(rule Rule, r *rand.Rand, answer []byte) []byte {
	var m message
	if json.Unmarshal(answer, &m) != nil || m.Result == nil {
		return answer
	}
	m.Result = alter(rule, r, m.Result)
	return mustJSON(m)
}

// forward asks the node.
func (p *Proxy) forward(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxProxied))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return answer, nil
}

func delay(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
