package simdon_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/auth"
	"dongate/client"
	"dongate/config"
	"dongate/connector"
	"dongate/gateway"
	"dongate/internal/simdon"
	"dongate/jsonrpc"
	"dongate/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience  = 20 * time.Second
	gatewayID = "gateway-1"
)

var (
	owner    = common.HexToAddress("0xaa")
	userKey  = simdon.Key("tests", "user")
	flow     = simdon.NewWorkflow(owner, "payout", "v1", simdon.Address(userKey))
	byID     = workflow.Reference{ID: flow.Selector.WorkflowID}
	anyInput = jsontext.Value(`{"n":1}`)
)

// world is a gateway, a DON and a client, over real sockets.
type world struct {
	t      testing.TB
	don    *simdon.DON
	server *gateway.Server
	client *client.Client
	log    *log
}

// log keeps what nodes do.
type log struct {
	mu      sync.Mutex
	events  []simdon.Event
	changed chan struct{}
}

func (l *log) observe(e simdon.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait returns once n events of a kind were seen for a request ("": any), with all of them.
func (l *log) wait(t testing.TB, kind simdon.EventKind, request string, n int) []simdon.Event {
	t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		var got []simdon.Event
		for _, e := range l.events {
			if e.Kind == kind && (request == "" || e.RequestID == request) {
				got = append(got, e)
			}
		}
		changed := l.changed
		l.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%d %s events, want %d", len(got), kind, n)
		}
	}
}

// newWorld starts everything and waits until the workflow can be triggered.
func newWorld(t testing.TB, change func(*config.Config), prepare func(*simdon.DON)) *world {
	w := &world{t: t, log: &log{changed: make(chan struct{})}}
	var err error
	w.don, err = simdon.New(simdon.Config{Seed: "tests", Observe: w.log.observe})
	require.NoError(t, err)
	require.NoError(t, w.don.SetWorkflows(flow))
	if prepare != nil {
		prepare(w.don)
	}
	c, err := simdon.ParseConfig(gatewayID, w.don)
	require.NoError(t, err)
	c.Admin = config.Admin{Host: "127.0.0.1"}
	if change != nil {
		change(c)
	}
	w.server, err = gateway.New(gateway.Options{Config: c})
	require.NoError(t, err)
	require.NoError(t, w.server.Start())
	t.Cleanup(func() {
		require.NoError(t, w.don.Stop())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.server.Shutdown(ctx))
	})
	require.NoError(t, w.don.Start(w.gateway()))
	require.NoError(t, w.don.WaitConnected(w.context()))
	w.client, err = client.New(client.Config{URLs: []string{w.url()}, Signer: auth.NewKeySigner(userKey)})
	require.NoError(t, err)
	t.Cleanup(w.client.CloseIdleConnections)
	w.waitReported()
	return w
}

// waitReported waits until so many nodes have reported the workflow that every shard with f+1 nodes agrees on it, and a request goes to
// all of them.
func (w *world) waitReported() {
	connected := 0
	for _, n := range w.don.Nodes() {
		if n.Connector().Connected(w.gateway().URL) {
			connected++
		}
	}
	want := float64(min(6, connected-1)) // one may be frozen
	require.Eventually(w.t, func() bool {
		resp, err := http.Get("http://" + w.server.Address("admin") + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		found := regexp.MustCompile(`(?m)^dongate_metadata_observations\S* (\d+)$`).FindSubmatch(text)
		if err != nil || found == nil {
			return false
		}
		n, err := strconv.ParseFloat(string(found[1]), 64)
		return err == nil && n >= want
	}, patience, 5*time.Millisecond)
	http.DefaultClient.CloseIdleConnections()
}

func (w *world) url() string { return "http://" + w.server.Address("user") + "/" }

func (w *world) gateway() connector.Gateway {
	return simdon.NodeGateway(w.server.Address("node"), gatewayID)
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// trigger sends a request once the gateway knows the workflow: one that it does not know is refused before its token is
// used, so the same bytes can be sent again.
func (w *world) trigger(id string) (*client.Response, error) {
	w.t.Helper()
	signed, err := w.client.Sign(client.Request{ID: id, Workflow: byID, Input: anyInput})
	require.NoError(w.t, err)
	var r *client.Response
	require.Eventually(w.t, func() bool {
		r, err = w.client.Send(w.context(), signed)
		return !errors.Is(err, client.ErrWorkflowNotFound)
	}, patience, 5*time.Millisecond)
	return r, err
}

// held triggers a request that no node answers before n nodes have read it and during has run: after the answer a gateway
// sends nothing more.
func (w *world) held(id string, n int, during func(asked []simdon.Event)) {
	w.t.Helper()
	release := make(chan struct{})
	for _, node := range w.don.Nodes() {
		node.Handle(func(ctx context.Context, r *jsonrpc.Request) (any, error) {
			select {
			case <-release:
				return rightAnswer(r.ID), nil
			case <-ctx.Done():
				return nil, connector.ErrNoAnswer
			}
		})
	}
	var triggering sync.WaitGroup
	var r *client.Response
	var err error
	triggering.Go(func() { r, err = w.trigger(id) })
	asked := w.log.wait(w.t, simdon.Asked, id, n)
	if during != nil {
		during(asked)
	}
	close(release)
	triggering.Wait()
	w.accepted(id, r, err)
	for _, node := range w.don.Nodes() {
		node.Handle(nil)
	}
}

func rightAnswer(id string) client.Execution {
	return client.Execution{WorkflowID: flow.Selector.WorkflowID, ExecutionID: workflow.ExecutionID(flow.Selector.WorkflowID, id), Status: "ACCEPTED"}
}

// accepted demands the right answer.
func (w *world) accepted(id string, r *client.Response, err error) {
	w.t.Helper()
	require.NoError(w.t, err)
	e, err := r.Execution()
	require.NoError(w.t, err)
	require.Equal(w.t, rightAnswer(id), e)
}
