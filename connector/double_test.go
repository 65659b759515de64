package connector_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/auth"
	"dongate/connector"
	"dongate/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that would hang; no test waits for it to pass.
const patience = 20 * time.Second

const (
	donID     = "workflow_1"
	gatewayID = "gateway-1"
)

func testKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
	require.NoError(t, err)
	return key
}

// double is the least of a gateway: it shakes hands, pings once and hands the connection to the test as a peer.
type double struct {
	t   testing.TB
	url string
	id  string

	dials    atomic.Int32
	pipes    *pipeListener // nil: real sockets
	peers    chan *peer
	over     chan struct{} // closed at the test's end
	headers  chan *auth.AuthHeader
	silent   atomic.Bool                                                   // no ping after the handshake
	override atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // true: the request is dealt with
}

// peer is the gateway's end of one session.
type peer struct {
	t    testing.TB
	conn *websocket.Conn
	done chan struct{}
}

// newDouble serves on a real socket.
func newDouble(t testing.TB) *double {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &double{t: t, id: gatewayID, url: "ws://" + l.Addr().String() + "/node"}
	d.serve(l)
	return d
}

// newPipeDouble serves on in-memory connections, for bubbles. Its URL must be dialled with dial.
func newPipeDouble(t testing.TB) *double {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	d := &double{t: t, id: gatewayID, url: "ws://gateway.test/node", pipes: l}
	d.serve(l)
	return d
}

func (d *double) serve(l net.Listener) {
	d.peers = make(chan *peer, 16)
	d.headers = make(chan *auth.AuthHeader, 16)
	d.over = make(chan struct{})
	server := &http.Server{Handler: d, ReadHeaderTimeout: patience}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	d.t.Cleanup(func() {
		close(d.over)
		_ = server.Close()
		wg.Wait()
	})
}

func (d *double) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	if d.pipes == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	here, there := net.Pipe()
	select {
	case d.pipes.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.pipes.done:
		return nil, net.ErrClosed
	}
}

// answer makes the double answer upgrades with f until it is set to nil.
func (d *double) answer(f func(http.ResponseWriter, *http.Request) bool) {
	if f == nil {
		d.override.Store(nil)
		return
	}
	d.override.Store(&f)
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header, err := auth.ParseAuthHeader(r.Header.Get("Authorization"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case d.headers <- header:
	default:
	}
	if f := d.override.Load(); f != nil && (*f)(w, r) {
		return
	}
	challenge, _ := auth.NewChallenge(header.Timestamp, d.id, []byte("0123456789abcdef0123456789abcdef"))
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, http.Header{"Challenge": {base64.StdEncoding.EncodeToString(challenge)}})
	if err != nil {
		return
	}
	kind, sig, err := conn.ReadMessage()
	if signer, bad := auth.RecoverPersonal(challenge, sig); err != nil || bad != nil || kind != websocket.BinaryMessage || signer != header.Signer {
		_ = conn.Close()
		return
	}
	p := &peer{t: d.t, conn: conn, done: make(chan struct{})}
	if !d.silent.Load() {
		go func() { // a pipe's write waits for its reader
			_ = conn.WriteControl(websocket.PingMessage, []byte("first"), time.Now().Add(patience))
		}()
	}
	select {
	case d.peers <- p:
	case <-d.over:
	}
	select { // net/http forgets hijacked connections; this one ends with the test at the latest
	case <-p.done:
	case <-d.over:
	}
	_ = conn.Close()
}

// accept waits for the next session.
func (d *double) accept() *peer {
	d.t.Helper()
	select {
	case p := <-d.peers:
		d.t.Cleanup(p.close)
		return p
	case <-time.After(patience):
		d.t.Fatal("no session")
		return nil
	}
}

func (p *peer) close() {
	_ = p.conn.Close()
	select {
	case <-p.done:
	default:
		close(p.done)
	}
}

// send writes one request.
func (p *peer) send(id, method, params string) {
	p.t.Helper()
	p.write(websocket.BinaryMessage, string(jsonrpc.AppendRequest(nil, &jsonrpc.Request{ID: id, Method: method, Params: jsontext.Value(params)})))
}

func (p *peer) write(kind int, text string) {
	p.t.Helper()
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
	require.NoError(p.t, p.conn.WriteMessage(kind, []byte(text)))
}

// read returns the next message, as text and decoded.
func (p *peer) read() (string, jsonrpc.Response) {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	kind, data, err := p.conn.ReadMessage()
	require.NoError(p.t, err)
	require.Equal(p.t, websocket.BinaryMessage, kind)
	r, err := jsonrpc.DecodeResponse(data)
	require.NoError(p.t, err, "%s", data)
	require.NoError(p.t, r.Check(), "%s", data)
	return string(data), r
}

// ended waits for the end of the connection and returns its error.
func (p *peer) ended() error {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, _, err := p.conn.ReadMessage(); err != nil {
			return err
		}
	}
}

// start runs a connector to the doubles until the test ends or stop is called.
func start(t testing.TB, change func(*connector.Config), doubles ...*double) (c *connector.Connector, stop func()) {
	c = newConnector(t, change, doubles...)
	return c, run(t, c)
}

func newConnector(t testing.TB, change func(*connector.Config), doubles ...*double) *connector.Connector {
	config := connector.Config{DONID: donID, Signer: auth.NewKeySigner(testKey(t)), Backoff: connector.Backoff{Initial: time.Millisecond, Max: time.Millisecond}}
	for _, d := range doubles {
		config.Gateways = append(config.Gateways, connector.Gateway{URL: d.url, ID: d.id})
	}
	if len(doubles) > 0 {
		config.Dial = doubles[0].dial
	}
	if change != nil {
		change(&config)
	}
	c, err := connector.New(config)
	require.NoError(t, err)
	return c
}

// run runs c until the test ends or stop is called.
func run(t testing.TB, c *connector.Connector) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Error("Run does not return")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func waitConnected(t testing.TB, c *connector.Connector, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, c.WaitConnected(ctx, n))
}

// eventually waits for a condition that only counters show.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, patience, time.Millisecond, what)
}

// pipeListener hands out the far ends of pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// countingSigner counts what it is made to sign.
type countingSigner struct {
	auth.Signer
	signed atomic.Int32
}

func (s *countingSigner) SignPersonal(msg []byte) ([]byte, error) {
	s.signed.Add(1)
	return s.Signer.SignPersonal(msg)
}

func hasPrefix(t testing.TB, s, prefix string) {
	t.Helper()
	require.True(t, strings.HasPrefix(s, prefix), "%q does not start with %q", s, prefix)
}

func encode64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
