package gateway

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/auth/sqlclaims"
	"dongate/config"
	"dongate/jsonrpc"
	"dongate/storage"
)

// Benchmarks compare the gateway with a floor: a process that does the same
// exchange with the same libraries and no logic. Each runs in a process of its
// own, so that clients and nodes do not count.
const (
	benchRole   = "DONGATE_TEST_BENCH_ROLE"
	benchConfig = "DONGATE_TEST_BENCH_CONFIG"
)

// runBenchProcess serves, prints its addresses and then answers each line on
// stdin with its CPU time in µs and its memory in bytes, until stdin ends.
func runBenchProcess(role string) {
	var user, node string
	switch role {
	case "gateway":
		storage.MakeRoom() // as serve does on SQLite; here also where claims are in memory, so that the two are compared alike
		c, err := config.Parse("bench.json", []byte(os.Getenv(benchConfig)), nil)
		if err != nil {
			panic(err)
		}
		srv, err := New(Options{Config: c, Claims: openBenchClaims(c)})
		if err != nil {
			panic(err)
		}
		if err := srv.Start(); err != nil {
			panic(err)
		}
		user, node = srv.Address(UserListener), srv.Address(NodeListener)
	case "floor":
		user, node = serveFloor()
	case "origin":
		user, node = serveOrigin(), "-"
	}
	fmt.Println(user, node)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "memory" {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println(m.HeapInuse + m.StackInuse)
			continue
		}
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		fmt.Println((u.Utime.Sec+u.Stime.Sec)*1e6 + u.Utime.Usec + u.Stime.Usec)
	}
}

// openBenchClaims opens the claims of a configuration that names a database.
func openBenchClaims(c *config.Config) auth.Claims {
	if c.Storage.DSN == "" {
		return nil
	}
	ctx := context.Background()
	db, err := storage.Open(ctx, storage.Config{Driver: c.Storage.Driver, DSN: c.Storage.DSN.Reveal()})
	if err != nil {
		panic(err)
	}
	if err := db.Migrate(ctx, sqlclaims.Domain); err != nil {
		panic(err)
	}
	claims, err := sqlclaims.Open(ctx, db, sqlclaims.Options{})
	if err != nil {
		panic(err)
	}
	return claims
}

// floorServer is the exchange without the product: one HTTP exchange, one request
// digest, one signature recovery, a WebSocket write to and a read from each node.
type floorServer struct {
	mu      sync.Mutex
	conns   []*floorConn
	waiting map[string]chan struct{}
}

type floorConn struct {
	ws    *websocket.Conn
	write sync.Mutex
}

func serveFloor() (user, node string) {
	f := &floorServer{waiting: map[string]chan struct{}{}}
	pool := &sync.Pool{}
	up := websocket.Upgrader{WriteBufferPool: pool, WriteBufferSize: 4 << 10, ReadBufferSize: 1 << 10}
	nodes := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, http.Header{"Challenge": {base64.StdEncoding.EncodeToString(make([]byte, 164))}})
		if err != nil {
			return
		}
		c := &floorConn{ws: ws}
		f.mu.Lock()
		f.conns = append(f.conns, c)
		f.mu.Unlock()
		go f.read(c)
	})
	listen := func(h http.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		go func() { _ = http.Serve(l, h) }()
		return l.Addr().String()
	}
	return listen(http.HandlerFunc(f.exchange)), listen(nodes)
}

// read takes a node's answers; the id comes first in them.
func (f *floorServer) read(c *floorConn) {
	for {
		_, data, err := c.ws.ReadMessage()
		if err != nil {
			return
		}
		if i := strings.Index(string(data[:min(len(data), 80)]), `"id":"`); i >= 0 {
			id, _, _ := strings.Cut(string(data[i+6:min(len(data), i+80)]), `"`)
			f.mu.Lock()
			ch := f.waiting[id]
			f.mu.Unlock()
			if ch != nil {
				ch <- struct{}{}
			}
		}
	}
}

func (f *floorServer) exchange(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req, err := jsonrpc.DecodeRequest(body)
	if err != nil {
		panic(err)
	}
	if _, err := req.Digest(); err != nil {
		panic(err)
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	cut := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[cut+1:])
	if err != nil {
		panic(err)
	}
	if _, err := auth.RecoverPersonal([]byte(token[:cut]), sig); err != nil {
		panic(err)
	}
	f.mu.Lock()
	conns := f.conns
	ch := make(chan struct{}, len(conns))
	f.waiting[req.ID] = ch
	f.mu.Unlock()
	m, err := websocket.NewPreparedMessage(websocket.BinaryMessage, body)
	if err != nil {
		panic(err)
	}
	for _, c := range conns {
		c.write.Lock()
		_ = c.ws.WritePreparedMessage(m)
		c.write.Unlock()
	}
	for range conns {
		<-ch
	}
	f.mu.Lock()
	delete(f.waiting, req.ID)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":"`+req.ID+`","method":"workflows.execute","result":{"workflow_id":"0x0000000000000000000000000000000000000000000000000000000000000001","workflow_execution_id":"0000000000000000000000000000000000000000000000000000000000000000","status":"ACCEPTED"}}`)
}

// benchProcess is a gateway or a floor running beside the benchmark.
type benchProcess struct {
	tb         testing.TB
	cmd        *exec.Cmd
	in         io.WriteCloser
	out        *bufio.Reader
	user, node string
}

func startBenchProcess(tb testing.TB, role, cfg string) *benchProcess {
	tb.Helper()
	p := &benchProcess{tb: tb, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), benchRole+"="+role, benchConfig+"="+cfg)
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(tb, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(tb, err)
	p.out = bufio.NewReader(stdout)
	require.NoError(tb, p.cmd.Start())
	tb.Cleanup(func() { _ = p.in.Close(); _ = p.cmd.Wait() })
	_, err = fmt.Fscanln(p.out, &p.user, &p.node)
	require.NoError(tb, err)
	return p
}

// ask sends a question and returns the number that answers it.
func (p *benchProcess) ask(question string) int64 {
	_, err := io.WriteString(p.in, question+"\n")
	require.NoError(p.tb, err)
	var n int64
	_, err = fmt.Fscanln(p.out, &n)
	require.NoError(p.tb, err)
	return n
}

// connectNodes opens a node's session to a process for each signer; do gets each
// request and returns the answer's bytes, or nil.
func (p *benchProcess) connectNodes(shard string, signers []auth.Signer, do func(i int, c *websocket.Conn, data []byte) []byte) []*websocket.Conn {
	conns := make([]*websocket.Conn, len(signers))
	for i, s := range signers {
		ts := uint32(time.Now().Unix())
		header, err := auth.NewAuthHeader(s, ts, shard, testGatewayID)
		require.NoError(p.tb, err)
		d := websocket.Dialer{ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10}
		conn, resp, err := d.DialContext(context.Background(), "ws://"+p.node+"/node", http.Header{"Authorization": {header}})
		require.NoError(p.tb, err)
		challenge, err := base64.StdEncoding.DecodeString(resp.Header.Get("Challenge"))
		require.NoError(p.tb, err)
		sig, err := s.SignPersonal(challenge)
		require.NoError(p.tb, err)
		require.NoError(p.tb, conn.WriteMessage(websocket.BinaryMessage, sig))
		conns[i] = conn
		p.tb.Cleanup(func() { _ = conn.Close() })
		if do == nil {
			continue
		}
		go func() {
			for {
				_, data, err := conn.ReadMessage()
				if err != nil {
					return
				}
				if out := do(i, conn, data); out != nil {
					_ = conn.WriteMessage(websocket.BinaryMessage, out)
				}
			}
		}()
	}
	return conns
}

// serveOrigin is an endpoint that answers GET /<n> with n bytes, and /hang never.
func serveOrigin() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	body := []byte(strings.Repeat("x", 1<<20))
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hang" {
				<-r.Context().Done()
				return
			}
			n, _ := strconv.Atoi(r.URL.Path[1:])
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(n))
			_, _ = w.Write(body[:n])
		}))
	}()
	return l.Addr().String()
}
