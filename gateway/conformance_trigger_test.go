package gateway

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
)

// conformance: 4.dropped.late
func TestAnswerAtTheDeadlineIsLate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		r.connectAll(silent, w)
		svc := r.svc()
		// A request whose waiter has not looked at the clock yet when the answer comes.
		c := &call{request: jsonrpc.Request{ID: "slow"}, deadline: time.Now().Add(time.Second)}
		f := svc.newFlight(c, svc.view.Load().ByID(w.Selector.WorkflowID), clientSigner.Address(), nil, 0)
		svc.flights.add(f)
		defer svc.flights.remove(f)
		time.Sleep(2 * time.Second)
		s := r.srv.topology.shards["don"].nodes[0].session.Load()
		svc.server.route(s, jsonrpc.AppendResult(nil, "slow", "", mustJSON(map[string]string{"workflow_id": w.Selector.WorkflowID})))
		m := r.srv.topology.shards["don"].m
		require.EqualValues(t, 1, testutil.ToFloat64(m.dropped[dropLate]))
		require.Zero(t, testutil.ToFloat64(m.dropped[dropMalformed]))
	})
}
