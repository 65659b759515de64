package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"go.uber.org/zap"

	"dongate/aggregation"
	"dongate/auth"
	"dongate/client"
	"dongate/config"
	"dongate/connector"
	"dongate/gateway"
	"dongate/internal/console"
	"dongate/internal/simdon"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// What the demo consists of.
const (
	demoDON       = "demo"
	demoGatewayID = "demo-gateway"
	demoShards    = 2
	demoNodes     = 4
	demoF         = 1
	demoName      = "payout"
	demoTag       = "v1"
)

// demoQuorum is how many equal answers of one shard decide.
var demoQuorum = aggregation.Threshold(demoNodes, demoF)

// thinkTimes are how long each node takes to answer, so that there is something
// to see.
var thinkTimes = [demoShards][demoNodes]time.Duration{
	{11 * time.Millisecond, 17 * time.Millisecond, 24 * time.Millisecond, 38 * time.Millisecond},
	{14 * time.Millisecond, 21 * time.Millisecond, 29 * time.Millisecond, 47 * time.Millisecond},
}

// demoPatience is how long the demo waits for what should take milliseconds.
const demoPatience = 5 * time.Second

// stage is a gateway, a simulated DON, a client and a web server, on real sockets. Only the
// fields below mu are used by several goroutines.
type stage struct {
	server      *gateway.Server
	configFile  jsontext.Value
	don         *simdon.DON
	origin      *origin
	client      *client.Client
	clientKey   *ecdsa.PrivateKey
	strangerKey *ecdsa.PrivateKey
	seed        string // of the nodes' keys
	workflow    workflow.Metadata
	connected   console.Elapsed // from the start until every node had a session
	callable    console.Elapsed // … until every node's word on the workflow had arrived

	mu     sync.Mutex
	acts   map[actKey]*act
	news   chan struct{} // closed and replaced with every change of acts
	onTold func(n *simdon.Node, a act)
}

type actKey struct {
	node      *simdon.Node
	requestID string
}

// act is what one node did with one request.
type act struct {
	requestID       string
	times           int // how often it was asked
	asked, answered time.Time
	said            string // in short
	vote            string // all of it
}

// newStage starts everything. Whatever it returns must be closed.
func newStage(ctx context.Context, log *zap.Logger) (*stage, error) {
	s := &stage{acts: map[actKey]*act{}, news: make(chan struct{})}
	err := s.open(ctx, log)
	if err != nil {
		return s, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) open(ctx context.Context, log *zap.Logger) (err error) {
	if s.clientKey, err = crypto.GenerateKey(); err != nil {
		return err
	}
	if s.strangerKey, err = crypto.GenerateKey(); err != nil {
		return err
	}
	signer := auth.NewKeySigner(s.clientKey)
	s.seed = uuid.NewString() // a secret: the listeners are real
	s.don, err = simdon.New(simdon.Config{Name: demoDON, Shards: demoShards, Nodes: demoNodes, F: demoF, Seed: s.seed})
	if err != nil {
		return err
	}
	s.workflow = simdon.NewWorkflow(simdon.Address(s.clientKey), demoName, demoTag, signer.Address())
	if err := s.don.SetWorkflows(s.workflow); err != nil {
		return err
	}
	s.everybodyHonest()

	if s.origin, err = newOrigin(); err != nil {
		return fail(exitStart, "the demo's web server cannot start: %w", err)
	}
	s.configFile = simdon.GatewayConfigFor(demoGatewayID, []netip.AddrPort{s.origin.address}, s.don)
	c, err := config.Parse("demo", s.configFile, nil)
	if err != nil {
		return err
	}
	if s.server, err = gateway.New(gateway.Options{Config: c, Log: log, Version: readVersion().Version}); err != nil {
		return err
	}
	start := time.Now()
	if err := s.server.Start(); err != nil {
		s.server = nil
		return fail(exitStart, "the demo's gateway cannot start: %w", err)
	}
	if s.client, err = client.New(client.Config{URLs: []string{s.url()}, Signer: signer}); err != nil {
		return err
	}
	if err := s.don.Start(connector.Gateway{URL: s.nodeURL(), ID: demoGatewayID}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*demoPatience)
	defer cancel()
	if err := s.don.WaitConnected(ctx); err != nil {
		return fmt.Errorf("the nodes do not connect: %w", err)
	}
	s.connected = console.Elapsed(time.Since(start))
	if err := s.awaitReports(ctx); err != nil {
		return fmt.Errorf("the workflow does not become callable: %w", err)
	}
	s.callable = console.Elapsed(time.Since(start))
	return nil
}

func (s *stage) close() error {
	var errs []error
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	if s.don != nil {
		errs = append(errs, s.don.Stop())
	}
	if s.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), demoPatience)
		defer cancel()
		errs = append(errs, s.server.Shutdown(ctx))
	}
	if s.origin != nil {
		s.origin.close()
	}
	return errors.Join(errs...)
}

func (s *stage) url() string      { return "http://" + s.server.Address(gateway.UserListener) + "/" }
func (s *stage) nodeURL() string  { return "ws://" + s.server.Address(gateway.NodeListener) + "/node" }
func (s *stage) adminURL() string { return "http://" + s.server.Address(gateway.AdminListener) + "/" }

// observations is the metric that says how many nodes have reported.
var observations = regexp.MustCompile(fmt.Sprintf(`(?m)^dongate_metadata_observations\{service="workflows"\} %d$`, demoShards*demoNodes))

// awaitReports waits until the gateway has every node's word on the workflow: a
// request would otherwise go to the shards that were faster alone.
func (s *stage) awaitReports(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	once := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.adminURL()+"metrics", nil)
		if err != nil {
			return err
		}
		resp, err := once.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if observations.Match(body) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// thinker returns what a node says about a trigger; the node thinks first.
type thinker func(n *simdon.Node, t *connector.Trigger) execution

type execution = client.Execution

func honest(_ *simdon.Node, t *connector.Trigger) execution {
	return execution{WorkflowID: t.Workflow.ID, ExecutionID: workflow.ExecutionID(t.Workflow.ID, t.ID), Status: "ACCEPTED"}
}

// lying says what no other node says.
func lying(n *simdon.Node, t *connector.Trigger) execution {
	e := honest(n, t)
	e.ExecutionID = workflow.ExecutionID(t.Workflow.ID, n.Name())
	return e
}

// dissenting says what all other dissenters say.
func dissenting(n *simdon.Node, t *connector.Trigger) execution {
	e := honest(n, t)
	e.ExecutionID = workflow.ExecutionID(t.Workflow.ID, "another state of the world")
	return e
}

func (s *stage) everybodyHonest() {
	for i := range demoShards {
		for j := range demoNodes {
			s.cast(i, j, honest)
		}
	}
}

// cast gives a node its part.
func (s *stage) cast(shard, node int, think thinker) {
	n, delay := s.don.Node(shard, node), thinkTimes[shard][node]
	n.Set(simdon.Behaviour{})
	n.Handle(func(ctx context.Context, r *jsonrpc.Request) (any, error) {
		t, err := connector.DecodeTrigger(r)
		if err != nil {
			return nil, err
		}
		s.note(n, r.ID, func(a *act) { a.times++; a.asked = time.Now() })
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		e := think(n, t)
		raw, err := json.Marshal(e)
		// Noted before it is sent, so that no answer of the gateway can seem to
		// be earlier than what it rests on.
		s.note(n, r.ID, func(a *act) { a.answered, a.vote, a.said = time.Now(), string(raw), e.Status+" "+e.ExecutionID[:8] })
		return jsontext.Value(raw), err
	})
}

func (s *stage) note(n *simdon.Node, requestID string, change func(*act)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := actKey{n, requestID}
	if s.acts[k] == nil {
		s.acts[k] = &act{requestID: requestID}
	}
	change(s.acts[k])
	if s.onTold != nil {
		s.onTold(n, *s.acts[k])
	}
	close(s.news)
	s.news = make(chan struct{})
}

// act returns what a node did with a request so far.
func (s *stage) act(n *simdon.Node, requestID string) act {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.acts[actKey{n, requestID}]; a != nil {
		return *a
	}
	return act{}
}

// asked is how often a node was asked in all.
func (s *stage) asked(n *simdon.Node) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for k, a := range s.acts {
		if k.node == n {
			sum += a.times
		}
	}
	return sum
}

// await waits until ok, which is asked again whenever a node does something; it
// returns false when that takes too long.
func (s *stage) await(ctx context.Context, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if ok() {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ok()
		}
	}
}
