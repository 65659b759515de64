package simdon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/client"
	"dongate/config"
	"dongate/connector"
	"dongate/gateway"
	"dongate/internal/simdon"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// The main job over real sockets: one signed trigger in, every node of both shards asked with the same bytes, one agreed
// answer out, by id and by name.
func TestTriggerEndToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.held("r1", 8, func(asked []simdon.Event) {
		require.Len(t, asked, 8)
		for _, e := range asked {
			require.Equal(t, string(asked[0].Data), string(e.Data))
		}
		request, err := jsonrpc.DecodeNodeRequest(asked[0].Data)
		require.NoError(t, err)
		got, err := connector.DecodeTrigger(&request)
		require.NoError(t, err)
		require.Equal(t, workflow.Reference{ID: flow.Selector.WorkflowID}, got.Workflow)
		require.Equal(t, strings.ToLower(simdon.Address(userKey).Hex()), got.Key.PublicKey)
	})
	for _, e := range w.log.wait(t, simdon.Answered, "r1", 8) {
		require.Contains(t, string(e.Data), rightAnswer("r1").ExecutionID)
	}

	r, err := w.client.Trigger(w.context(), client.Request{
		ID: "r2", Workflow: workflow.Reference{Owner: "aa", Name: "payout", Tag: "v1"}, Input: jsontext.Value(`{"z":1.50,"a":[1e3]}`),
	})
	w.accepted("r2", r, err)
	require.Contains(t, string(w.log.wait(t, simdon.Asked, "r2", 1)[0].Data), `"input":{"a":[1e3],"z":1.50}`)
}

func TestBehaviours(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	set := func(all simdon.Behaviour, few ...simdon.Behaviour) func(*simdon.DON) {
		return func(d *simdon.DON) {
			for _, n := range d.Nodes() {
				n.Set(all)
			}
			for i, b := range few {
				d.Node(0, i).Set(b)
				d.Node(1, i).Set(b)
			}
		}
	}
	kind := func(k simdon.Kind) simdon.Behaviour { return simdon.Behaviour{Kind: k} }
	for name, c := range map[string]struct {
		prepare func(*simdon.DON)
		want    error // nil: the right answer
	}{
		"one of each shard lies":      {set(kind(simdon.Accept), kind(simdon.Conflict)), nil},
		"one of each shard is silent": {set(kind(simdon.Accept), kind(simdon.Silent)), nil},
		"one of each shard is frozen": {set(kind(simdon.Accept), kind(simdon.Frozen)), nil},
		"one of each shard is absent": {set(kind(simdon.Accept), kind(simdon.Absent)), nil},
		"one of each shard fails":     {set(kind(simdon.Accept), kind(simdon.Error)), nil},
		"all are slow":                {set(simdon.Behaviour{Kind: simdon.Slow, Delay: 50 * time.Millisecond}), nil},
		"all flip":                    {set(simdon.Behaviour{Kind: simdon.Flip, Delay: 20 * time.Millisecond}), nil},
		"all lie":                     {set(kind(simdon.Conflict)), client.ErrNoQuorum},
		"half of each shard lies":     {set(kind(simdon.Accept), kind(simdon.Conflict), kind(simdon.Conflict)), client.ErrNoQuorum},
		"one shard works":             {func(d *simdon.DON) { set(kind(simdon.Silent))(d); set4(d, 1, simdon.Accept) }, nil},
		"all are silent":              {set(kind(simdon.Silent)), client.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *config.Config) {
				c.Services[0].Handler.NoQuorumGrace = grace
				c.Services[0].Handler.MaxTriggerRequestDuration = 2 * time.Second
			}, c.prepare)
			r, err := w.trigger("r")
			if c.want == nil {
				w.accepted("r", r, err)
				return
			}
			require.ErrorIs(t, err, c.want)
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Len(t, e.Shards, 2)
			require.Equal(t, 3, e.Shards[0].Threshold)
		})
	}
}

func set4(d *simdon.DON, shard int, k simdon.Kind) {
	for _, n := range d.Shard(shard) {
		n.Set(simdon.Behaviour{Kind: k})
	}
}

func TestNodesAgreeOnAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(d *simdon.DON) {
		set4(d, 0, simdon.Error)
		set4(d, 1, simdon.Error)
	})
	_, err := w.trigger("r")
	var e *client.NodeError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "the workflow engine has failed", e.Message)
}

// A node that connects late gets the open request at once, and completes the quorum.
func TestLateNodeIsAskedWhenItConnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(d *simdon.DON) {
		set4(d, 1, simdon.Silent)
		d.Node(0, 0).Set(simdon.Behaviour{Kind: simdon.Absent})
		d.Node(0, 1).Set(simdon.Behaviour{Kind: simdon.Silent})
	})
	var wg sync.WaitGroup
	var r *client.Response
	var err error
	wg.Go(func() { r, err = w.trigger("r") })
	w.log.wait(t, simdon.Answered, "r", 2)
	w.don.Node(0, 0).Set(simdon.Behaviour{})
	wg.Wait()
	w.accepted("r", r, err)
}

// A frozen node that thaws reads what waited in its socket; one that becomes absent loses it, and comes back.
func TestFrozenNodeThawsAndAbsentNodeComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	n := w.don.Node(0, 0)
	n.Set(simdon.Behaviour{Kind: simdon.Frozen})
	require.True(t, n.Connector().Connected(w.gateway().URL))
	w.held("r1", 7, func(asked []simdon.Event) {
		for _, e := range asked {
			require.NotSame(t, n, e.Node)
		}
		n.Set(simdon.Behaviour{})
		w.log.wait(t, simdon.Asked, "r1", 8)
	})
	n.Set(simdon.Behaviour{Kind: simdon.Absent})
	require.Eventually(t, func() bool { return !n.Connector().Connected(w.gateway().URL) }, patience, time.Millisecond)
	r, err := w.trigger("r2")
	w.accepted("r2", r, err)
	n.Set(simdon.Behaviour{})
	require.NoError(t, n.WaitConnected(w.context()))
	w.held("r3", 8, nil)
}

func TestReplayConflictAndOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	_, err := w.trigger("warm")
	require.NoError(t, err)
	request := client.Request{ID: "r", Workflow: byID, Input: anyInput}
	signed, err := w.client.Sign(request)
	require.NoError(t, err)
	first, err := w.client.Send(w.context(), signed)
	w.accepted("r", first, err)
	_, err = w.client.Send(w.context(), signed)
	require.ErrorIs(t, err, client.ErrTokenReplayed)

	got, err := w.client.Outcome(w.context(), request)
	require.NoError(t, err)
	require.False(t, got.Fresh)
	require.Equal(t, "answered", got.State)
	require.Equal(t, rightAnswer("r").ExecutionID, got.ExecutionID)
	require.Equal(t, string(first.Result), string(got.Response.Result))

	// Another signer, authorised as well, learns no more than that the id is taken.
	other := simdon.Key("tests", "other")
	require.NoError(t, w.don.PutWorkflow(simdon.NewWorkflow(owner, "payout", "v1", simdon.Address(userKey), simdon.Address(other))))
	c, err := client.New(client.Config{URLs: []string{w.url()}, Signer: auth.NewKeySigner(other)})
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	require.Eventually(t, func() bool {
		_, err = c.Trigger(w.context(), request)
		return !errors.Is(err, client.ErrUnauthorized)
	}, patience, 5*time.Millisecond)
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, client.ErrConflict)
	require.Empty(t, e.State)
	require.Nil(t, e.Response)

	fresh, err := w.client.Outcome(w.context(), client.Request{ID: "never sent", Workflow: byID, Input: anyInput})
	require.NoError(t, err)
	require.True(t, fresh.Fresh)
}

// A caller that goes away learns that it does not know, and then what became of its request.
func TestOutcomeOfALostConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	_, err := w.trigger("warm")
	require.NoError(t, err)
	for _, n := range w.don.Nodes() {
		n.Set(simdon.Behaviour{Kind: simdon.Silent})
	}
	ctx, cancel := context.WithCancel(w.context())
	request := client.Request{ID: "r", Workflow: byID, Input: anyInput}
	var wg sync.WaitGroup
	var lost error
	wg.Go(func() { _, lost = w.client.Trigger(ctx, request) })
	w.log.wait(t, simdon.Asked, "r", 8)
	open, err := w.client.Outcome(w.context(), request)
	require.NoError(t, err)
	require.Equal(t, "open", open.State)
	cancel()
	wg.Wait()
	require.ErrorIs(t, lost, client.ErrUnknownOutcome)
	require.Eventually(t, func() bool {
		failed, err := w.client.Outcome(w.context(), request)
		require.NoError(t, err)
		require.Equal(t, rightAnswer("r").ExecutionID, failed.ExecutionID)
		return failed.State == "failed"
	}, patience, 10*time.Millisecond)
}

// One node serves two gateways; a client whose first gateway drains is served by the other.
func TestTwoGateways(t *testing.T) {
	t.Parallel()
	d, err := simdon.New(simdon.Config{Seed: "two", Shards: 1})
	require.NoError(t, err)
	require.NoError(t, d.SetWorkflows(flow))
	var nodes []connector.Gateway
	var urls []string
	var servers []*gateway.Server
	for i := range 2 {
		id := fmt.Sprintf("gateway-%d", i)
		c, err := simdon.ParseConfig(id, d)
		require.NoError(t, err)
		s, err := gateway.New(gateway.Options{Config: c})
		require.NoError(t, err)
		require.NoError(t, s.Start())
		servers = append(servers, s)
		nodes = append(nodes, simdon.NodeGateway(s.Address("node"), id))
		urls = append(urls, "http://"+s.Address("user")+"/")
	}
	require.NoError(t, d.Start(nodes...))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, d.WaitConnected(ctx))
	c, err := client.New(client.Config{URLs: urls, Signer: auth.NewKeySigner(userKey)})
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	send := func(id string) (r *client.Response) {
		signed, err := c.Sign(client.Request{ID: id, Workflow: byID, Input: anyInput})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			r, err = c.Send(ctx, signed)
			return !errors.Is(err, client.ErrWorkflowNotFound)
		}, patience, 5*time.Millisecond)
		require.NoError(t, err)
		return r
	}
	require.Equal(t, urls[0], send("r0").URL)
	require.NoError(t, servers[0].Shutdown(ctx))
	c.CloseIdleConnections() // one that the gateway has just closed would leave an outcome unknown
	require.Equal(t, urls[1], send("r1").URL)
	require.NoError(t, d.Stop())
	require.NoError(t, servers[1].Shutdown(ctx))
}

func TestRawSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(d *simdon.DON) { d.Node(0, 0).Set(simdon.Behaviour{Kind: simdon.Absent}) })
	n := w.don.Node(0, 0)
	now := uint32(time.Now().Unix())
	conn, err := simdon.DialRawAt(w.context(), w.gateway().URL, n.Signer(), n.ShardID(), gatewayID, now)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	_, data, err := conn.ReadMessage() // the session is live: the gateway asks for its workflows
	require.NoError(t, err)
	require.Contains(t, string(data), "pull_workflow_metadata/")

	header, err := auth.NewAuthHeader(n.Signer(), now, n.ShardID(), gatewayID)
	require.NoError(t, err)
	_, _, resp, err := simdon.Upgrade(w.context(), w.gateway().URL, header)
	require.Error(t, err)
	require.Equal(t, 401, resp.StatusCode, "the second is used up")
	_, _, resp, err = simdon.Upgrade(w.context(), w.gateway().URL, "")
	require.Error(t, err)
	require.Equal(t, 401, resp.StatusCode)
	header, err = auth.NewAuthHeader(n.Signer(), now+1, n.ShardID(), gatewayID)
	require.NoError(t, err)
	half, challenge, _, err := simdon.Upgrade(w.context(), w.gateway().URL, header)
	require.NoError(t, err)
	require.NotEmpty(t, challenge)
	_ = half.Close()
}
