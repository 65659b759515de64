package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/client"
	"dongate/connector"
	"dongate/internal/simdon"
	"dongate/internal/soak"
	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/workflow"
)

// A gateway on SQLite is killed at random moments under load and started again, over and over, while clients send every token until they
// know what became of it, and used ones again. No node is ever asked the same thing twice.
func TestSoakKilledGateway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, map[string]any{"driver": storage.DriverSQLite, "dsn": filepath.Join(t.TempDir(), "claims.db")})
	f.start(0)
	f.endure(func() {
		f.kill(0)
		f.start(0)
	})
}

// Two gateways share a PostgreSQL server, which is killed and started again while clients send every token to both at once. Each is
// dispatched by one of them, and none is let through while the server is away.
func TestSoakKilledPostgres(t *testing.T) {
	t.Parallel()
	cluster := storagetest.NewCluster(t)
	f := newFleet(t, 2, map[string]any{"driver": storage.DriverPostgres, "dsn": cluster.DSN()})
	f.start(0)
	f.start(1)
	f.endure(func() {
		cluster.Kill(t)
		f.unavailable()
		cluster.Start(t)
	})
}

// endure has clients load the gateways while something is killed again and again, and judges what was dispatched.
func (f *fleet) endure(kill func()) {
	f.Helper()
	stop := f.load(8)
	deadline := time.Now().Add(soak.For(2 * time.Second))
	rounds := 0
	for ; rounds < 2 || time.Now().Before(deadline); rounds++ {
		f.progress(20 + rand.IntN(100))
		kill()
	}
	f.progress(20)
	stop()
	f.judge()
	f.Logf("%d kills, %d requests dispatched, %d replays refused", rounds, f.dispatched(), f.refused.Load())
}

// One token sent to two gateways on one PostgreSQL server at the same instant is dispatched by one of them, in each of 200 rounds.
//
// conformance: 3.replay.shared
func TestTwoGatewaysOneToken(t *testing.T) {
	t.Parallel()
	const rounds = 200
	f := newFleet(t, 2, map[string]any{"driver": storage.DriverPostgres, "dsn": storagetest.Config(t, storage.DriverPostgres).DSN})
	f.start(0)
	f.start(1)
	clients := [2]*client.Client{f.client(0), f.client(1)}
	for round := range rounds {
		s, err := clients[0].Sign(client.Request{ID: fmt.Sprint("r", round), Workflow: f.reference, Input: jsontext.Value(`{}`)})
		require.NoError(t, err)
		var errs [2]error
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i, c := range clients {
			wg.Go(func() {
				<-start
				_, errs[i] = c.Send(t.Context(), s)
			})
		}
		close(start)
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				require.ErrorIs(t, err, client.ErrTokenReplayed)
			}
		}
		require.Equal(t, 1, won)
	}
	f.judge()
	require.GreaterOrEqual(t, f.dispatched(), rounds)
}

// fleet is some gateways, as processes, that share a database and serve one DON.
type fleet struct {
	*testing.T
	don       *simdon.DON
	signer    auth.Signer
	reference workflow.Reference
	storage   map[string]any
	environ   []string // of the gateways, besides what they need

	gateways []*fleetGateway
	refused  atomic.Int64 // replays
	answered atomic.Int64

	mu   sync.Mutex
	seen map[string]int // how often a node was asked a request, by node and id
	ids  map[string]bool
}

type fleetGateway struct {
	user, node, file string
	cmd              *exec.Cmd
}

func newFleet(t *testing.T, gateways int, storage map[string]any) *fleet {
	return newFleetOf(t, gateways, 4, storage)
}

// newFleetOf is newFleet with another number of nodes.
func newFleetOf(t *testing.T, gateways, nodes int, storage map[string]any) *fleet {
	f := &fleet{T: t, signer: auth.NewKeySigner(simdon.Key(t.Name(), "client")), storage: storage, seen: map[string]int{}, ids: map[string]bool{}}
	don, err := simdon.New(simdon.Config{Name: "don", Shards: 1, Nodes: nodes, F: 1, Seed: t.Name(), Observe: f.observe})
	require.NoError(t, err)
	f.don = don
	m := simdon.NewWorkflow(f.signer.Address(), "soak", "v1", f.signer.Address())
	f.reference = workflow.Reference{ID: m.Selector.WorkflowID}
	require.NoError(t, don.PutWorkflow(m))
	var dial []connector.Gateway
	for i := range gateways {
		g := &fleetGateway{user: freeAddress(t), node: freeAddress(t), file: filepath.Join(t.TempDir(), fmt.Sprintf("gateway%d.json", i))}
		f.gateways = append(f.gateways, g)
		dial = append(dial, simdon.NodeGateway(g.node, "gateway"))
		require.NoError(t, os.WriteFile(g.file, f.configuration(g), 0o600))
	}
	require.NoError(t, don.Start(dial...))
	t.Cleanup(func() { assert.NoError(t, don.Stop()) })
	for i := range f.gateways {
		t.Cleanup(func() { f.kill(i) })
	}
	return f
}

// freeAddress is a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// configuration is a gateway's file: the DON's with its own ports, the shared database and no limits in the way.
func (f *fleet) configuration(g *fleetGateway) []byte {
	var c map[string]any
	require.NoError(f, json.Unmarshal(simdon.GatewayConfig("gateway", f.don), &c))
	port := func(address string) int {
		_, text, _ := net.SplitHostPort(address)
		n, err := strconv.Atoi(text)
		require.NoError(f, err)
		return n
	}
	c["userServerConfig"] = map[string]any{"host": "127.0.0.1", "port": port(g.user)}
	c["nodeServerConfig"] = map[string]any{"host": "127.0.0.1", "port": port(g.node)}
	c["admin"] = map[string]any{"port": -1}
	c["storage"] = f.storage
	handler := c["services"].([]any)[0].(map[string]any)["handlers"].([]any)[0].(map[string]any)
	handler["config"] = map[string]any{"userRateLimiter": map[string]any{"globalRPS": 1e5, "globalBurst": 100_000, "perSenderRPS": 1e5, "perSenderBurst": 100_000}}
	text, err := json.Marshal(c)
	require.NoError(f, err)
	return text
}

// observe counts what nodes are asked.
func (f *fleet) observe(e simdon.Event) {
	if e.Kind != simdon.Asked {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[e.Node.Name()+" "+e.RequestID]++
	f.ids[e.RequestID] = true
}

// judge fails if a node was asked a request twice.
func (f *fleet) judge() {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, n := range f.seen {
		if n > 1 {
			f.Errorf("%s was dispatched %d times", what, n)
		}
	}
}

func (f *fleet) dispatched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ids)
}

// start starts a gateway and waits until it answers a trigger.
func (f *fleet) start(i int) {
	f.Helper()
	g := f.gateways[i]
	self, err := os.Executable()
	require.NoError(f, err)
	g.cmd = exec.Command(self)
	g.cmd.Args = []string{leakCheckedGateway, "serve", "--config", g.file}
	g.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")} // no DONGATE_… of the tests' own
	g.cmd.Env = append(g.cmd.Env, f.environ...)
	log, err := os.OpenFile(g.file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f, err)
	defer log.Close()
	g.cmd.Stderr = log
	require.NoError(f, g.cmd.Start())
	c := f.client(i)
	var last error
	f.wait(func() bool { last = f.try(c); return last == nil }, &last)
}

// kill kills a gateway, if it runs, with SIGKILL.
func (f *fleet) kill(i int) {
	g := f.gateways[i]
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.cmd = nil
}

// client is a client of some gateways, in that order.
func (f *fleet) client(gateways ...int) *client.Client {
	var urls []string
	for _, i := range gateways {
		urls = append(urls, "http://"+f.gateways[i].user)
	}
	c, err := client.New(client.Config{URLs: urls, Signer: f.signer, Timeout: 10 * time.Second})
	require.NoError(f, err)
	f.Cleanup(c.CloseIdleConnections)
	return c
}

// try sends a new request once.
func (f *fleet) try(c *client.Client) error {
	_, err := c.Trigger(f.Context(), client.Request{Workflow: f.reference, Input: jsontext.Value(`{}`)})
	return err
}

// load sends requests from some clients until stop is called. Each token is sent to all gateways at once until one gives an answer that says what
// became of it, and then once more.
func (f *fleet) load(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	each := make([]*client.Client, len(f.gateways))
	for i := range each {
		each[i] = f.client(i)
	}
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				s, err := each[0].Sign(client.Request{Workflow: f.reference, Input: jsontext.Value(`{}`)})
				if err != nil {
					f.Error(err)
					return
				}
				for !f.known(ctx, each, s) && ctx.Err() == nil {
				}
				f.answered.Add(1)
				_, err = each[0].Send(ctx, s)
				switch {
				case errors.Is(err, client.ErrTokenReplayed):
					f.refused.Add(1)
				case err == nil:
					f.Error("a used token was answered again")
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// known sends a token to all gateways at once and reports whether one of them said what became of it.
func (f *fleet) known(ctx context.Context, gateways []*client.Client, s *client.Signed) bool {
	errs := make([]error, len(gateways))
	var wg sync.WaitGroup
	for i, c := range gateways {
		wg.Go(func() { _, errs[i] = c.Send(ctx, s) })
	}
	wg.Wait()
	won := 0
	known := false
	for _, err := range errs {
		switch {
		case err == nil:
			won++
			known = true
		case errors.Is(err, client.ErrTokenReplayed):
			known = true
		}
	}
	if won > 1 {
		f.Error("two gateways answered one token")
	}
	return known
}

// progress waits until the clients have learnt of n more requests.
func (f *fleet) progress(n int) {
	f.Helper()
	target := f.answered.Load() + int64(n)
	f.wait(func() bool { return f.answered.Load() >= target }, nil)
}

// unavailable waits until every gateway refuses a request because it cannot record it.
func (f *fleet) unavailable() {
	f.Helper()
	for i := range f.gateways {
		c := f.client(i)
		var last error
		f.wait(func() bool { last = f.try(c); return errors.Is(last, client.ErrUnavailable) }, &last)
	}
}

// wait waits until something is so, and shows the last error and the gateways' logs if it never is.
func (f *fleet) wait(so func() bool, last *error) {
	f.Helper()
	if assert.Eventually(f, so, patience, 2*time.Millisecond) {
		return
	}
	if last != nil {
		f.Logf("last error: %v", *last)
	}
	for _, g := range f.gateways {
		log, _ := os.ReadFile(g.file + ".log")
		f.Logf("%s: %s", g.file, log[max(0, len(log)-4000):])
	}
	f.FailNow()
}
