package simchain

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
)

// maxSpoiled bounds the calls of a WebSocket whose answers are still to be spoiled.
const maxSpoiled = 4096

// socket is one WebSocket of a relayer and the one behind it.
type socket struct {
	p        *Proxy
	ctx      context.Context
	up, down *websocket.Conn // to the node, to the relayer
	write    sync.Mutex      // one writer to the relayer at a time

	mu      sync.Mutex
	pending map[string]spoiled // calls by their id
}

type spoiled struct {
	rule Rule
	r    *rand.Rand
}

// serveSocket passes messages until one side ends the connection or a fault does.
func (p *Proxy) serveSocket(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	dialer := websocket.Dialer{HandshakeTimeout: proxyDialWithin}
	up, _, err := dialer.DialContext(ctx, p.targetWS, nil)
	if err != nil {
		http.Error(w, "the node does not answer", http.StatusBadGateway)
		return
	}
	defer up.Close()
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	down, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer down.Close()
	up.SetReadLimit(maxProxied)
	down.SetReadLimit(maxProxied)
	if !p.keep(up, down) {
		return
	}
	defer p.release(up, down)
	s := &socket{p: p, ctx: ctx, up: up, down: down, pending: map[string]spoiled{}}
	var pumps sync.WaitGroup
	pumps.Go(func() {
		s.calls()
		cancel()
		_ = up.Close()
	})
	s.answers()
	cancel()
	_ = down.Close()
	pumps.Wait()
}

// keep remembers the connections for [Proxy.SetDown]; false where the node is away or the proxy closes.
func (p *Proxy) keep(conns ...*websocket.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down || p.ctx.Err() != nil {
		return false
	}
	p.done.Add(1)
	for _, c := range conns {
		p.sockets[c] = struct{}{}
	}
	return true
}

func (p *Proxy) release(conns ...*websocket.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Done()
	for _, c := range conns {
		delete(p.sockets, c)
	}
}

// calls passes what the relayer sends.
func (s *socket) calls() {
	for {
		_, body, err := s.down.ReadMessage()
		if err != nil {
			return
		}
		var call message
		if json.Unmarshal(body, &call) == nil && call.Method != "" {
			rule, hit, r := s.p.rule(call.Method)
			pass, ok := s.before(call, rule, hit, r)
			if !ok {
				return
			}
			if !pass {
				continue
			}
		}
		if s.up.WriteMessage(websocket.TextMessage, body) != nil {
			return
		}
	}
}

// before does what a fault does instead of a call. pass: the call goes on to the node; !ok: the connection ends.
func (s *socket) before(call message, rule Rule, hit bool, r *rand.Rand) (pass, ok bool) {
	if !hit {
		return true, true
	}
	switch rule.Fault {
	case FaultError:
		return false, s.toRelayer(mustJSON(errorReply(call.ID, rule))) == nil
	case FaultHang:
		return false, true
	case FaultCut, FaultStatus:
		return false, false
	case FaultSlow:
		return true, delay(s.ctx, rule.Delay) == nil
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.pending) < maxSpoiled {
			s.pending[string(call.ID)] = spoiled{rule, r}
		}
		return true, true
	}
}

// answers passes what the node sends.
func (s *socket) answers() {
	for {
		_, body, err := s.up.ReadMessage()
		if err != nil {
			return
		}
		var m message
		copies := 1
		if json.Unmarshal(body, &m) == nil {
			var ok bool
			if body, copies, ok = s.after(m, body); !ok {
				return
			}
		}
		for range copies {
			if s.toRelayer(body) != nil {
				return
			}
		}
	}
}

// after spoils an answer or notification.
func (s *socket) after(m message, body []byte) (out []byte, copies int, ok bool) {
	rule, hit, r := Rule{}, false, (*rand.Rand)(nil)
	if m.Method != "" {
		rule, hit, _ = s.p.rule(m.Method)
	} else {
		s.mu.Lock()
		var p spoiled
		p, hit = s.pending[string(m.ID)]
		delete(s.pending, string(m.ID))
		rule, r = p.rule, p.r
		s.mu.Unlock()
	}
	if !hit {
		return body, 1, true
	}
	switch notification := m.Method != ""; {
	case rule.Fault == FaultGarbage:
		return garbage(), 1, true
	case notification && rule.Fault == FaultRepeat:
		return body, 2, true
	case notification && rule.Fault == FaultSlow:
		return body, 1, delay(s.ctx, rule.Delay) == nil
	case notification && (rule.Fault == FaultDrop || rule.Fault == FaultHang):
		return nil, 0, true
	case notification || rule.Fault == FaultDrop:
		return nil, 0, false
	default:
		return spoil(rule, r, body), 1, true
	}
}

func (s *socket) toRelayer(body []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	return s.down.WriteMessage(websocket.TextMessage, body)
}
