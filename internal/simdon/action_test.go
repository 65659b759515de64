package simdon_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/config"
	"dongate/connector"
	"dongate/internal/simdon"
	"dongate/workflow"
)

// origin is an endpoint on loopback, whose every answer is another one.
func origin(t *testing.T, before func(*http.Request)) (url string, allow func(*config.Config), calls *atomic.Int32) {
	calls = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil {
			before(r)
		}
		fmt.Fprintf(w, "answer %d", calls.Add(1))
	}))
	t.Cleanup(s.Close)
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	d, err := simdon.New(simdon.Config{})
	require.NoError(t, err)
	loaded, err := config.Parse("with an origin", simdon.GatewayConfigFor(gatewayID, []netip.AddrPort{at}, d), nil)
	require.NoError(t, err)
	require.Empty(t, loaded.Warnings)
	return s.URL, func(c *config.Config) { c.HTTPClient = loaded.HTTPClient }, calls
}

func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// Every node that runs a workflow asks for the same page: one call, and none in the next round.
func TestNodesActWhenTheyRunAWorkflow(t *testing.T) {
	t.Parallel()
	url, allow, calls := origin(t, nil)
	outcomes := make(chan simdon.ActionOutcome, 64)
	w := newWorld(t, allow, func(d *simdon.DON) {
		for _, n := range d.Nodes() {
			n.SetAction(&simdon.Action{
				Request: connector.ActionRequest{URL: url + "/price", Cache: connector.ActionCache{MaxAge: time.Minute, Store: true}},
				Done:    func(o simdon.ActionOutcome) { outcomes <- o },
			})
		}
	})
	w.don.Node(1, 1).Set(simdon.Behaviour{Kind: simdon.Silent})
	w.don.Node(1, 2).Set(simdon.Behaviour{Kind: simdon.Error})
	for round, id := range []string{"r1", "r2"} {
		r, err := w.trigger(id)
		w.accepted(id, r, err)
		// At least the shard whose quorum answered; the others may be spared a request that is answered already.
		seen := map[string]bool{}
		for range 3 {
			o := await(t, outcomes)
			require.NoError(t, o.Err)
			require.Equal(t, "answer 1", string(o.Response.Body))
			require.Equal(t, flow.Selector.WorkflowID, o.WorkflowID)
			require.Contains(t, []string{workflow.ExecutionID(o.WorkflowID, "r1"), workflow.ExecutionID(o.WorkflowID, id)}, o.ExecutionID)
			require.NotContains(t, []string{"node-1-1", "node-1-2"}, o.Node.Name())
			if round > 0 && o.ExecutionID == workflow.ExecutionID(o.WorkflowID, id) {
				require.Zero(t, o.Response.Latency, "from the cache")
			}
			seen[o.Node.Name()+o.ExecutionID] = true
		}
		require.Len(t, seen, 3)
	}
	require.EqualValues(t, 1, calls.Load())
	for _, e := range w.log.wait(t, simdon.Acting, "", 6) {
		require.True(t, strings.HasPrefix(e.RequestID, "http_action/"+flow.Selector.WorkflowID+"/"), e.RequestID)
	}
	w.log.wait(t, simdon.Acted, "", 6)
}

func TestAct(t *testing.T) {
	t.Parallel()
	url, allow, calls := origin(t, nil)
	w := newWorld(t, allow, nil)
	n := w.don.Node(0, 0)
	r, err := n.Act(w.context(), connector.ActionRequest{URL: url})
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)
	require.Positive(t, r.Latency)

	var refused *connector.ActionError
	_, err = n.Act(w.context(), connector.ActionRequest{URL: "http://169.254.169.254/latest/meta-data/"})
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.Validation)
	require.Contains(t, refused.Message, "169.254.169.254")
	_, err = n.Act(w.context(), connector.ActionRequest{URL: url, MaxBytes: 3})
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.External, "the body is longer")
	require.EqualValues(t, 2, calls.Load())

	_, err = n.Act(w.context(), connector.ActionRequest{URL: url, WorkflowID: "0x1"})
	require.ErrorContains(t, err, "does not know who owns")
	n.RemoveWorkflow(flow.Selector.WorkflowID)
	_, err = n.Act(w.context(), connector.ActionRequest{URL: url})
	require.ErrorContains(t, err, "supports no workflow")
	stopped, err := simdon.NewNode(simdon.NodeConfig{Key: userKey})
	require.NoError(t, err)
	_, err = stopped.Act(w.context(), connector.ActionRequest{})
	require.ErrorContains(t, err, "does not run")
}

// The outcome of an action reaches a node that was away when it was known.
func TestOutcomeFollowsAReconnectedNode(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	url, allow, calls := origin(t, func(*http.Request) { close(entered); <-release })
	w := newWorld(t, allow, nil)
	n := w.don.Node(0, 0)
	done := make(chan error, 1)
	go func() {
		r, err := n.Act(context.Background(), connector.ActionRequest{URL: url, Timeout: patience})
		if err == nil && string(r.Body) != "answer 1" {
			err = fmt.Errorf("got %q", r.Body)
		}
		done <- err
	}()
	await(t, entered)
	n.Set(simdon.Behaviour{Kind: simdon.Absent})
	require.Eventually(t, func() bool { return !n.Connector().Connected(w.gateway().URL) }, patience, time.Millisecond)
	close(release)
	require.Eventually(t, func() bool { return calls.Load() == 1 }, patience, time.Millisecond)
	n.Set(simdon.Behaviour{})
	require.NoError(t, await(t, done))
}
