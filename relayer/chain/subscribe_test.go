package chain

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// wsServer is a stub over WebSocket, reached through pipes.
type wsServer struct {
	stub *stub

	mu     sync.Mutex
	status int // with which connections are refused; 0: they are not
	auth   string
	conns  []*websocket.Conn
}

// newWSServer lets a pool's subscriptions end at the stub.
func newWSServer(t *testing.T, p *Pool, s *stub) *wsServer {
	w := &wsServer{stub: s}
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: w}
	served := make(chan struct{})
	go func() { srv.Serve(l); close(served) }()
	t.Cleanup(func() { srv.Close(); w.drop(); <-served })
	p.dialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case l.conns <- theirs:
			return ours, nil
		case <-l.done:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w
}

func (w *wsServer) refuse(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// drop closes all connections.
func (w *wsServer) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// notify sends a text on the last connection.
func (w *wsServer) notify(text string) {
	w.mu.Lock()
	c := w.conns[len(w.conns)-1]
	w.mu.Unlock()
	c.WriteMessage(websocket.TextMessage, []byte(text))
}

func (w *wsServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	status := w.status
	w.auth = r.Header.Get("Authorization")
	w.mu.Unlock()
	if status != 0 {
		rw.WriteHeader(status)
		return
	}
	conn, err := (&websocket.Upgrader{}).Upgrade(rw, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	w.mu.Lock()
	w.conns = append(w.conns, conn)
	w.mu.Unlock()
	for {
		_, text, err := conn.ReadMessage()
		if err != nil {
			return
		}
		var c call
		if json.Unmarshal(text, &c) != nil {
			return
		}
		reply := httptest.NewRecorder()
		w.stub.find(c)(reply, r, c)
		if conn.WriteMessage(websocket.TextMessage, reply.Body.Bytes()) != nil {
			return
		}
	}
}

// pipes is a listener for net.Pipe.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestSubscribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 1)
		w := newWSServer(t, p, s[0])
		s[0].on("eth_subscribe", result("0x1"))
		var hints atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- p.Subscribe(ctx, "ws://user:"+secret+"@ws.test/"+secret, []common.Address{addr(1)}, []common.Hash{hash(2)}, func() { hints.Add(1) })
		}()
		synctest.Wait()
		require.EqualValues(t, 1, hints.Load(), "after connecting")
		require.Equal(t, []string{
			`eth_subscribe["newHeads"]`,
			`eth_subscribe["logs",{"address":["0x0000000000000000000000000000000000000001"],"topics":[["` + hash(2).Hex() + `"]]}]`,
		}, callText(s[0].seen()))
		require.Equal(t, "Basic dXNlcjpzM2NyM3Qta2V5", w.auth)

		w.notify(`{"jsonrpc":"2.0","method":"eth_subscription","params":{}}`)
		w.notify(`not even JSON`)
		synctest.Wait()
		require.EqualValues(t, 3, hints.Load())

		// Pings keep a silent connection, for a while.
		time.Sleep(silentFor - time.Second)
		synctest.Wait()
		require.Empty(t, s[0].seen())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, s[0].seen(), 2, "made anew")
		require.EqualValues(t, 4, hints.Load())

		// Back-off while nobody takes the connection: 0.5, 1, 2, 4 s …
		w.refuse(503)
		w.drop()
		time.Sleep(8 * time.Second)
		w.refuse(0)
		synctest.Wait()
		require.EqualValues(t, 4, hints.Load())
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 5, hints.Load())

		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestSubscribeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 1)
		newWSServer(t, p, s[0])
		require.ErrorContains(t, p.Subscribe(t.Context(), "http://x/"+secret, nil, nil, nil), "not a ws or wss URL")
		for _, a := range []answer{fail(-32601, "notifications not supported", nil), body("no JSON"), body(`{"id":77}`)} {
			s[0].on("eth_subscribe", a).times(1)
		}
		s[0].on("eth_subscribe", func(http.ResponseWriter, *http.Request, call) { time.Sleep(time.Minute) }).times(1)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		require.ErrorIs(t, p.Subscribe(ctx, "ws://ws.test", nil, nil, func() { t.Error("a hint") }), context.DeadlineExceeded)
		var causes []string
		for _, l := range logs.FilterMessageSnippet("subscription lost").All() {
			causes = append(causes, l.ContextMap()["cause"].(string))
		}
		require.Equal(t, []string{
			"the node answers with error -32601: notifications not supported", "malformed answer: not JSON-RPC", "malformed answer: it answers another call",
			"no answer in time",
		}, causes)
		time.Sleep(time.Minute)
	})
}

// A notification past the bound ends the connection, not the process.
func TestSubscribeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 1)
		w := newWSServer(t, p, s[0])
		s[0].on("eth_subscribe", result("0x1"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Subscribe(ctx, "ws://ws.test", nil, nil, func() {}) }()
		synctest.Wait()
		w.notify(string(make([]byte, maxNotification+1)))
		synctest.Wait()
		require.Equal(t, 1, logs.FilterMessageSnippet("subscription lost").Len())
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
