package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dongate/auth"
	"dongate/config"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// rig is a gateway under test with its simulated nodes: raw sockets, so that a
// test can say and do on them whatever it likes.
type rig struct {
	t      testing.TB
	srv    *Server
	cfg    *config.Config
	file   map[string]any // what cfg came from
	client *http.Client
	dial   func(listener string) func(ctx context.Context, network, addr string) (net.Conn, error)
	shards map[string][]auth.Signer // by shard id
	second atomic.Int64
}

// rigSpec describes the DONs and overrides of a rig.
type rigSpec struct {
	dons    []donSpec
	handler map[string]any // handler config members
	user    map[string]any // userServerConfig members
	node    map[string]any // nodeServerConfig members
	manager map[string]any // connectionManagerConfig members
	top     map[string]any // top-level members
	options Options
	bubble  bool // in a synctest bubble: listeners of pipes instead of ports
	log     bool
}

type donSpec struct {
	name   string
	f      int
	shards []int // nodes of each shard
}

const testGatewayID = "gateway-1"

// key is a deterministic private key.
func key(n int64) *ecdsa.PrivateKey {
	k, err := crypto.ToECDSA(crypto.Keccak256(big.NewInt(n).Bytes()))
	if err != nil {
		panic(err)
	}
	return k
}

var clientSigner = auth.NewKeySigner(key(999_999))

func address(s auth.Signer) string { return strings.ToLower(s.Address().Hex()) }

func merge(base, over map[string]any) map[string]any {
	for k, v := range over {
		base[k] = v
	}
	return base
}

func newRig(t testing.TB, spec rigSpec) *rig {
	t.Helper()
	if spec.dons == nil {
		spec.dons = []donSpec{{"don", 1, []int{4}}}
	}
	r := &rig{t: t, shards: map[string][]auth.Signer{}}
	var dons []any
	var names []string
	n := int64(1)
	for _, d := range spec.dons {
		var shards []any
		for i, size := range d.shards {
			id := d.name
			if i > 0 {
				id = fmt.Sprintf("%s_%d", d.name, i)
			}
			var nodes []any
			for j := range size {
				s := auth.NewKeySigner(key(n))
				n++
				r.shards[id] = append(r.shards[id], s)
				nodes = append(nodes, map[string]any{"name": fmt.Sprintf("%s-n%d", id, j), "address": s.Address().Hex()})
			}
			shards = append(shards, map[string]any{"nodes": nodes})
		}
		dons = append(dons, map[string]any{"donName": d.name, "f": d.f, "shards": shards})
		names = append(names, d.name)
	}
	file := merge(map[string]any{
		"userServerConfig":        merge(map[string]any{"host": "127.0.0.1", "port": 0, "path": "/"}, spec.user),
		"nodeServerConfig":        merge(map[string]any{"host": "127.0.0.1", "port": 0, "path": "/node"}, spec.node),
		"connectionManagerConfig": merge(map[string]any{"authGatewayId": testGatewayID}, spec.manager),
		"services": []any{map[string]any{"serviceName": "workflows", "dons": names,
			"handlers": []any{map[string]any{"name": "http-capabilities", "config": merge(map[string]any{}, spec.handler)}}}},
		"shardedDONs": dons,
		"admin":       map[string]any{"port": 0},
	}, spec.top)
	r.file = file
	raw, err := json.Marshal(file)
	require.NoError(t, err)
	r.cfg, err = config.Parse("test.json", raw, nil)
	require.NoError(t, err)

	o := spec.options
	o.Config = r.cfg
	if spec.log {
		o.Log = zaptest.NewLogger(t, zaptest.Level(zap.DebugLevel))
	}
	if spec.bubble {
		pipes := newPipeNet()
		o.Listen = pipes.listen
		r.dial = func(name string) func(context.Context, string, string) (net.Conn, error) {
			return func(context.Context, string, string) (net.Conn, error) { return pipes.dial(r.srv.Address(name)) }
		}
	} else {
		r.dial = func(name string) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", r.srv.Address(name))
			}
		}
	}
	r.srv, err = New(o)
	require.NoError(t, err)
	require.NoError(t, r.srv.Start())
	transport := &http.Transport{DialContext: r.dial(UserListener), MaxIdleConnsPerHost: 256}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // whatever is open is given up at once
		require.NoError(t, r.srv.Shutdown(ctx))
	})
	return r
}

// reload changes the file and reloads it.
func (r *rig) reload(change func(f testFile)) (*Reloaded, error) {
	r.t.Helper()
	change(testFile(r.file))
	raw, err := json.Marshal(r.file)
	require.NoError(r.t, err)
	cfg, err := config.Parse("test.json", raw, nil)
	require.NoError(r.t, err)
	return r.srv.Reload(cfg)
}

// reloaded is reload of what cannot fail.
func (r *rig) reloaded(change func(f testFile)) *Reloaded {
	r.t.Helper()
	out, err := r.reload(change)
	require.NoError(r.t, err)
	require.True(r.t, out.OK)
	return out
}

// testFile is a configuration file under test.
type testFile map[string]any

func (f testFile) section(name string) map[string]any {
	if f[name] == nil {
		f[name] = map[string]any{}
	}
	return f[name].(map[string]any)
}

func (f testFile) handler() map[string]any {
	return f["services"].([]any)[0].(map[string]any)["handlers"].([]any)[0].(map[string]any)["config"].(map[string]any)
}

func (f testFile) don(i int) map[string]any { return f["shardedDONs"].([]any)[i].(map[string]any) }

// setNodes makes signers the nodes of a shard.
func (f testFile) setNodes(don, shard int, signers ...auth.Signer) {
	var nodes []any
	for i, s := range signers {
		nodes = append(nodes, map[string]any{"name": fmt.Sprintf("new-n%d", i), "address": s.Address().Hex()})
	}
	f.don(don)["shards"].([]any)[shard] = map[string]any{"nodes": nodes}
}

// pipeNet is a network of net.Pipe connections for synctest bubbles.
type pipeNet struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

type pipeListener struct {
	addr  pipeAddr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

func newPipeNet() *pipeNet { return &pipeNet{listeners: map[string]*pipeListener{}} }

func (p *pipeNet) listen(string, string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{addr: pipeAddr(fmt.Sprintf("127.0.0.1:%d", len(p.listeners)+1)), conns: make(chan net.Conn), done: make(chan struct{})}
	p.listeners[string(l.addr)] = l
	return l, nil
}

func (p *pipeNet) dial(addr string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[addr]
	p.mu.Unlock()
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return l.addr }

// testNode is one raw connection of a node.
type testNode struct {
	r      *rig
	shard  string
	index  int
	signer auth.Signer
	conn   *websocket.Conn
	write  sync.Mutex

	mu       sync.Mutex
	requests []jsonrpc.Request // triggers received
	raw      [][]byte          // their bytes
	got      chan jsonrpc.Request
	ended    chan struct{} // the read loop has ended
	closeErr error
}

// behave is what a node does with a trigger; nil answers ACCEPTED.
type behave func(n *testNode, req jsonrpc.Request)

// nextSecond is a timestamp that no earlier header of this rig used.
func (r *rig) nextSecond() uint32 {
	for {
		last, now := r.second.Load(), time.Now().Unix()
		// Several nodes may share a second; a node that connects again needs another.
		if r.second.CompareAndSwap(last, max(now, last)) {
			return uint32(max(now, last))
		}
	}
}

// upgrade performs the HTTP part of the handshake only.
func (r *rig) upgrade(shard string, s auth.Signer, ts uint32) (*websocket.Conn, []byte, *http.Response, error) {
	header, err := auth.NewAuthHeader(s, ts, shard, testGatewayID)
	require.NoError(r.t, err)
	d := websocket.Dialer{NetDialContext: r.dial(NodeListener), ReadBufferSize: 1024, WriteBufferSize: 1024}
	conn, resp, err := d.Dial("ws://gateway"+r.cfg.NodeServer.Path, http.Header{"Authorization": {header}})
	if err != nil {
		return nil, nil, resp, err
	}
	challenge, err := base64.StdEncoding.DecodeString(resp.Header.Get("Challenge"))
	require.NoError(r.t, err)
	require.Equal(r.t, ts, binary.BigEndian.Uint32(challenge))
	return conn, challenge, resp, nil
}

// dialNode opens an authenticated connection without reading from it.
func (r *rig) dialNode(shard string, index int, ts uint32) (*testNode, error) {
	s := r.shards[shard][index]
	conn, challenge, _, err := r.upgrade(shard, s, ts)
	if err != nil {
		return nil, err
	}
	sig, err := s.SignPersonal(challenge)
	require.NoError(r.t, err)
	if err := conn.WriteMessage(websocket.BinaryMessage, sig); err != nil {
		return nil, err
	}
	return &testNode{r: r, shard: shard, index: index, signer: s, conn: conn,
		got: make(chan jsonrpc.Request, 4096), ended: make(chan struct{})}, nil
}

// connect opens a live session that answers pulls with workflows and triggers
// with do, and waits until the gateway has it.
func (r *rig) connect(shard string, index int, workflows []workflow.Metadata, do behave) *testNode {
	r.t.Helper()
	var n *testNode
	target := r.srv.current().topology.shards[shard].nodes[index]
	old := target.session.Load()
	for offset := uint32(0); ; offset++ { // a used second is refused: take the next
		var err error
		if n, err = r.dialNode(shard, index, r.nextSecond()+offset); err == nil {
			break
		}
		require.Less(r.t, offset, uint32(5), "connect: %v", err)
	}
	go n.serve(workflows, do)
	r.t.Cleanup(func() { _ = n.conn.Close(); <-n.ended })
	r.eventually(func() bool { s := target.session.Load(); return s != nil && s != old }, "node has no session")
	return n
}

// serve is the node's read loop.
func (n *testNode) serve(workflows []workflow.Metadata, do behave) {
	defer close(n.ended)
	for {
		kind, data, err := n.conn.ReadMessage()
		if err != nil {
			n.mu.Lock()
			n.closeErr = err
			n.mu.Unlock()
			return
		}
		req, err := jsonrpc.DecodeNodeRequest(data)
		if err != nil || kind != websocket.BinaryMessage {
			n.r.t.Errorf("node got %q: %v", data, err)
			continue
		}
		switch req.Method {
		case methodPull:
			if len(workflows) > 0 {
				n.send(jsonrpc.AppendResult(nil, req.ID, req.Method, mustJSON(workflows)))
			}
		case methodAction:
			n.got <- req
		default:
			n.mu.Lock()
			n.requests = append(n.requests, req)
			n.raw = append(n.raw, data)
			n.mu.Unlock()
			if do == nil {
				do = (*testNode).accept
			}
			do(n, req)
			n.got <- req
		}
	}
}

func (n *testNode) send(data []byte) {
	n.write.Lock()
	defer n.write.Unlock()
	_ = n.conn.WriteMessage(websocket.BinaryMessage, data)
}

func workflowOf(req jsonrpc.Request) string {
	var p struct {
		Workflow struct {
			ID string `json:"workflowID"`
		} `json:"workflow"`
	}
	_ = json.Unmarshal(req.Params, &p)
	return p.Workflow.ID
}

// accept answers the way existing nodes do.
func (n *testNode) accept(req jsonrpc.Request) { n.result(req, "ACCEPTED", "") }

// result answers with a status and one more raw member.
func (n *testNode) result(req jsonrpc.Request, status, extra string) {
	id := workflowOf(req)
	n.send([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"workflows.execute","result":{"workflow_id":%q,"workflow_execution_id":%q,"status":%q%s}}`,
		mustJSON(req.ID), id, workflow.ExecutionID(id, req.ID), status, extra)))
}

func (n *testNode) fail(req jsonrpc.Request, message string) {
	n.send(jsonrpc.AppendNodeError(nil, req.ID, req.Method, &jsonrpc.Error{Code: -32603, Message: message}))
}

func silent(*testNode, jsonrpc.Request) {}

func (n *testNode) seen() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.requests)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// theWorkflow is the workflow most tests call.
func theWorkflow() workflow.Metadata { return testWorkflow(1, "my workflow", "v1", clientSigner) }

func testWorkflow(n int, name, tag string, signers ...auth.Signer) workflow.Metadata {
	w := workflow.Metadata{Selector: workflow.Selector{
		WorkflowID: fmt.Sprintf("0x%064x", n), WorkflowOwner: fmt.Sprintf("0x%040x", 7), WorkflowName: workflow.HashName(name), WorkflowTag: tag,
	}}
	for _, s := range signers {
		w.AuthorizedKeys = append(w.AuthorizedKeys, workflow.Key{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: address(s)})
	}
	if err := w.Normalize(); err != nil {
		panic(err)
	}
	return w
}

// connectAll connects every node of every shard with the same workflows.
func (r *rig) connectAll(do behave, workflows ...workflow.Metadata) map[string][]*testNode {
	out := map[string][]*testNode{}
	for shard, signers := range r.shards {
		for i := range signers {
			out[shard] = append(out[shard], r.connect(shard, i, workflows, do))
		}
	}
	for _, w := range workflows {
		r.awaitWorkflow(w.Selector.WorkflowID)
	}
	return out
}

func (r *rig) svc() *service { return r.srv.services["workflows"] }

func (r *rig) awaitWorkflow(id string) {
	r.t.Helper()
	r.eventually(func() bool {
		w := r.svc().view.Load().ByID(id)
		return w != nil
	}, "workflow "+id+" never became callable")
}

// awaitShards waits until a workflow is assigned to n shards.
func (r *rig) awaitShards(id string, n int) {
	r.t.Helper()
	r.eventually(func() bool {
		w := r.svc().view.Load().ByID(id)
		return w != nil && len(w.Shards) == n
	}, "workflow is not assigned to all shards")
}

// eventually waits for a condition without sleeping a fixed time: it looks again
// every millisecond (fake time inside a bubble).
func (r *rig) eventually(ok func() bool, why string) {
	r.t.Helper()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout.C:
			require.FailNow(r.t, why)
		}
	}
}

// answer is what a client got.
type clientAnswer struct {
	status int
	header http.Header
	raw    []byte
	body   struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      *string         `json:"id"`
		Method  *string         `json:"method"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Reason       string          `json:"reason"`
				RetryAfterMs int64           `json:"retryAfterMs"`
				Shards       []shardState    `json:"shards"`
				State        string          `json:"state"`
				ExecutionID  string          `json:"workflow_execution_id"`
				Response     json.RawMessage `json:"response"`
			} `json:"data"`
		} `json:"error"`
	}
}

func (a *clientAnswer) reason() string {
	if a.body.Error == nil {
		return "ok"
	}
	return a.body.Error.Data.Reason
}

// post sends bytes to the client endpoint.
func (r *rig) post(ctx context.Context, body []byte, header http.Header) (*clientAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway"+r.cfg.UserServer.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

func (r *rig) do(req *http.Request) (*clientAnswer, error) {
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &clientAnswer{status: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if len(a.raw) > 0 && a.raw[0] == '{' {
		if err := json.Unmarshal(a.raw, &a.body); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// signed is a request with its token.
type signed struct {
	body  []byte
	token string
}

func (s signed) header() http.Header { return http.Header{"Authorization": {"Bearer " + s.token}} }

// sign makes a request for params with a fresh token.
func sign(id string, params any, signer auth.Signer, o auth.TokenOptions) signed {
	raw, ok := params.(string)
	if !ok {
		raw = string(mustJSON(params))
	}
	if id == "" {
		id = uuid.NewString()
	}
	req := jsonrpc.Request{ID: id, Method: "workflows.execute", Params: []byte(raw)}
	digest, err := req.Digest()
	if err != nil { // duplicates and the like: sign something
		digest = [32]byte{1}
	}
	token, err := auth.NewToken(signer, digest, o)
	if err != nil {
		panic(err)
	}
	return signed{jsonrpc.AppendRequest(nil, &req), token}
}

// paramsFor selects a workflow by id.
func paramsFor(w workflow.Metadata, input any) map[string]any {
	return map[string]any{"input": input, "workflow": map[string]any{"workflowID": w.Selector.WorkflowID}}
}

// trigger signs and sends a request for the workflow.
func (r *rig) trigger(w workflow.Metadata, id string) *clientAnswer {
	r.t.Helper()
	s := sign(id, paramsFor(w, map[string]any{"n": 1}), clientSigner, auth.TokenOptions{})
	return r.send(s)
}

func (r *rig) send(s signed) *clientAnswer {
	r.t.Helper()
	a, err := r.post(context.Background(), s.body, s.header())
	require.NoError(r.t, err)
	return a
}
