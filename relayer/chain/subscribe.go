package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/gorilla/websocket"
	"go.uber.org/zap"
)

// Limits of a subscription.
const (
	maxNotification = 16 << 20         // bytes; a larger one ends the connection, and the next one begins with a hint
	pingEvery       = 20 * time.Second // so that a connection that is gone is noticed
	pongWait        = time.Minute
	silentFor       = 10 * time.Minute // a subscription without any notification is made anew: nodes forget them
	healthyAfter    = time.Minute      // how long a connection has to last for the back-off to begin anew
	writeWait       = 5 * time.Second
	minReconnect    = 500 * time.Millisecond
	maxReconnect    = 30 * time.Second
)

// Subscribe keeps a subscription for new blocks and for logs as in [Pool.Logs] at a node's WebSocket URL (ws or wss), until ctx ends, whose
// error it returns; or at once with an error where the URL is none. It connects again whenever the connection is lost, after half a second to half a
// minute. hint is called after each connecting and at each notification, from one goroutine; it must not block. A hint only says that
// reading the chain may be worth while: notifications can be lost, repeated, or of blocks that are no more.
func (p *Pool) Subscribe(ctx context.Context, wsURL string, addrs []common.Address, topics []common.Hash, hint func()) error {
	host, err := subscriptionHost(wsURL)
	if err != nil {
		return fmt.Errorf("%s: listener: %w", p.name, err)
	}
	log := p.log.With(zap.String("host", host))
	for wait := minReconnect; ; {
		start := time.Now()
		err := p.follow(ctx, wsURL, addrs, topics, hint, log)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(start) > healthyAfter {
			wait = minReconnect
		}
		log.Warn("subscription lost; connecting again", zap.String("cause", detail(err)), zap.Duration("in", wait))
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, maxReconnect)
	}
}

func subscriptionHost(wsURL string) (string, error) {
	u, err := url.Parse(wsURL)
	if err != nil || u.Host == "" || (u.Scheme != "ws" && u.Scheme != "wss") {
		return "", errors.New("not a ws or wss URL")
	}
	return u.Host, nil
}

// follow is one connection's life.
func (p *Pool) follow(ctx context.Context, wsURL string, addrs []common.Address, topics []common.Hash, hint func(), log *zap.Logger) error {
	s, err := p.connect(ctx, wsURL, addrs, topics)
	if err != nil {
		return err
	}
	defer s.end()
	log.Info("subscribed")
	hint()
	for {
		if err := s.notification(); err != nil {
			return err
		}
		hint()
	}
}

// connect dials and subscribes, within the pool's timeout.
func (p *Pool) connect(ctx context.Context, wsURL string, addrs []common.Address, topics []common.Hash) (*subscription, error) {
	deadline := time.Now().Add(p.timeout)
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	s, err := p.dial(limited, wsURL)
	if err != nil {
		return nil, err
	}
	filter := map[string]any{}
	if len(addrs) > 0 {
		filter["address"] = addrs
	}
	if len(topics) > 0 {
		filter["topics"] = []any{topics}
	}
	for _, params := range [][]any{{"newHeads"}, {"logs", filter}} {
		if err := s.call("eth_subscribe", params, deadline, func([]byte) error { return nil }); err != nil {
			s.end()
			if limited.Err() != nil { // the context closed it: say so rather than that it is closed
				err = limited.Err()
			}
			return nil, err
		}
	}
	s.keepAlive(ctx)
	return s, nil
}

// subscription is a WebSocket connection to a node. One goroutine reads and calls; another, once kept alive, pings and closes it.
type subscription struct {
	conn  *websocket.Conn
	ids   uint64
	heard time.Time // when the last message came; the reader's

	once   sync.Once
	stop   chan struct{} // closed by close
	unhook func() bool   // stops the context's hook, which closes the connection
}

// dial connects and makes sure that the node is of the pool's chain. The connection is closed when ctx ends until keepAlive takes over.
func (p *Pool) dial(ctx context.Context, wsURL string) (*subscription, error) {
	u, err := url.Parse(wsURL)
	if err != nil {
		return nil, errors.New("not a ws or wss URL")
	}
	header := http.Header{}
	if u.User != nil { // the WebSocket client does not do this itself
		password, _ := u.User.Password()
		r := http.Request{Header: header}
		r.SetBasicAuth(u.User.Username(), password)
		u.User = nil
	}
	dialer := websocket.Dialer{NetDialContext: p.dialContext, HandshakeTimeout: p.timeout}
	conn, resp, err := dialer.DialContext(ctx, u.String(), header)
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if err != nil {
		if resp != nil {
			return nil, statusError(resp.StatusCode)
		}
		return nil, err
	}
	conn.SetReadLimit(maxNotification)
	s := &subscription{conn: conn, stop: make(chan struct{})}
	s.unhook = context.AfterFunc(ctx, s.close)
	var id uint64
	err = s.call("eth_chainId", []any{}, time.Now().Add(p.timeout), decodeUint64(&id))
	if err == nil && id != p.chainID {
		err = errOtherChain
	}
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// call makes one call and waits for its answer; notifications that come before it are passed over, since a hint follows anyway.
func (s *subscription) call(method string, params []any, deadline time.Time, decode func([]byte) error) error {
	s.ids++
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.ids, "method": method, "params": params})
	if err != nil {
		return err
	}
	s.conn.SetWriteDeadline(deadline)
	if err := s.conn.WriteMessage(websocket.TextMessage, body); err != nil {
		return err
	}
	s.conn.SetReadDeadline(deadline)
	for {
		_, message, err := s.conn.ReadMessage()
		if err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(message, &m); err != nil {
			return fmt.Errorf("%w: not JSON-RPC", errMalformed)
		}
		if m.Method != "" {
			continue
		}
		if string(m.ID) != strconv.FormatUint(s.ids, 10) {
			return fmt.Errorf("%w: it answers another call", errMalformed)
		}
		return decodeReply(message, s.ids, decode)
	}
}

// keepAlive lets the connection live as long as ctx, with pings.
func (s *subscription) keepAlive(ctx context.Context) {
	s.unhook()
	s.unhook = context.AfterFunc(ctx, s.close)
	s.heard = time.Now()
	s.extend()
	s.conn.SetPongHandler(func(string) error { s.extend(); return nil }) // runs within reading
	go func() {
		for t := time.NewTicker(pingEvery); ; {
			select {
			case <-t.C:
				if s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeWait)) != nil {
					s.close()
				}
			case <-s.stop:
				t.Stop()
				return
			}
		}
	}()
}

// extend sets by when the node must be heard of again: soon in any way, and in a while with a notification.
func (s *subscription) extend() {
	by := time.Now().Add(pongWait)
	if silent := s.heard.Add(silentFor); silent.Before(by) {
		by = silent
	}
	s.conn.SetReadDeadline(by)
}

// notification waits for the next message. What it says does not matter: the chain itself is read.
func (s *subscription) notification() error {
	if _, _, err := s.conn.NextReader(); err != nil {
		return err
	}
	s.heard = time.Now()
	s.extend()
	return nil
}

// end closes the connection for who owns it.
func (s *subscription) end() {
	s.unhook()
	s.close()
}

// close may be called any number of times, from any goroutine.
func (s *subscription) close() {
	s.once.Do(func() {
		close(s.stop)
		s.conn.Close()
	})
}

// briefSubscription is [brief] for what a WebSocket connection fails with.
func briefSubscription(err error) string {
	var answer *RPCError
	if errors.As(err, &answer) {
		return answer.Error()
	}
	return brief(err)
}
