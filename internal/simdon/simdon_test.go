package simdon_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/internal/simdon"
	"dongate/workflow"
)

func TestParseBehaviour(t *testing.T) {
	t.Parallel()
	for _, k := range simdon.Kinds() {
		b, err := simdon.ParseBehaviour(string(k))
		require.NoError(t, err)
		require.Equal(t, simdon.Behaviour{Kind: k}, b)
		require.Equal(t, string(k), b.String())
	}
	for _, s := range []string{"slow:2s", "flip:150ms"} {
		b, err := simdon.ParseBehaviour(s)
		require.NoError(t, err)
		require.Equal(t, s, b.String())
	}
	for s, want := range map[string]string{"": "accept, slow", "lying": "no behaviour", "accept:2s": "takes no delay", "slow:": "no delay", "slow:-1s": "no delay", "slow:2": "no delay"} {
		_, err := simdon.ParseBehaviour(s)
		require.ErrorContains(t, err, want, s)
	}
	require.Equal(t, "accept", simdon.Behaviour{}.String())
}

func TestKeysComeFromTheSeed(t *testing.T) {
	t.Parallel()
	one, err := simdon.New(simdon.Config{})
	require.NoError(t, err)
	same, err := simdon.New(simdon.Config{Seed: "dongate"})
	require.NoError(t, err)
	other, err := simdon.New(simdon.Config{Seed: "other"})
	require.NoError(t, err)
	seen := make(map[string]bool)
	for i, n := range one.Nodes() {
		require.Equal(t, n.Address(), same.Nodes()[i].Address())
		require.NotEqual(t, n.Address(), other.Nodes()[i].Address())
		require.False(t, seen[n.Address().Hex()])
		seen[n.Address().Hex()] = true
	}
	require.Len(t, seen, 8)
	require.Equal(t, "0x", simdon.NewWorkflow(owner, "a", "b").Selector.WorkflowID[:2])
	w := simdon.NewWorkflow(owner, "a", "b", owner)
	require.NoError(t, w.Normalize())
}

func TestNewRefusesTooFewNodes(t *testing.T) {
	t.Parallel()
	_, err := simdon.New(simdon.Config{Nodes: 6, F: 2})
	require.ErrorContains(t, err, "3f+1")
	d, err := simdon.New(simdon.Config{Nodes: 1, F: -1, Shards: 3})
	require.NoError(t, err)
	require.Equal(t, 0, d.F())
	require.Equal(t, "workflow_1_2", d.Node(2, 0).ShardID())
	_, err = simdon.NewNode(simdon.NodeConfig{})
	require.ErrorContains(t, err, "key")
}

func TestGatewayConfigLoads(t *testing.T) {
	t.Parallel()
	a, err := simdon.New(simdon.Config{Name: "a"})
	require.NoError(t, err)
	b, err := simdon.New(simdon.Config{Name: "b", Shards: 1, Nodes: 7, F: 2})
	require.NoError(t, err)
	c, err := simdon.ParseConfig("g", a, b)
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.Zero(t, c.UserServer.Port)
	require.Zero(t, c.NodeServer.Port)
	require.Zero(t, c.Admin.Port)
	require.Equal(t, []string{"a", "b"}, c.Services[0].DONs)
	require.Equal(t, 2, c.DONs[1].F)
	require.Equal(t, b.Node(0, 6).Address(), c.DONs[1].Shards[0].Nodes[6].Address)
	require.Equal(t, "a_1", c.DONs[0].Shards[1].ID)
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	d, err := simdon.New(simdon.Config{Shards: 1})
	require.NoError(t, err)
	require.NoError(t, d.Stop(), "stopping what never ran does nothing")
	g := simdon.NodeGateway("127.0.0.1:1", "g") // nobody listens there
	for range 2 {
		require.NoError(t, d.Start(g))
		require.ErrorContains(t, d.Start(g), "running")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		require.ErrorIs(t, d.WaitConnected(ctx), context.DeadlineExceeded)
		cancel()
		require.NoError(t, d.Stop())
		require.NoError(t, d.Stop())
	}
	require.NoError(t, d.Start())
	require.ErrorContains(t, d.Stop(), "Gateways is empty")
	bad := simdon.NewWorkflow(owner, "a", "")
	require.NoError(t, d.SetWorkflows(bad), "checked when it runs")
	require.NoError(t, d.Start(g))
	require.ErrorContains(t, d.Stop(), "Tag")
	d.Node(0, 0).RemoveWorkflow(bad.Selector.WorkflowID)
	require.NoError(t, d.SetWorkflows([]workflow.Metadata{}...))
}
