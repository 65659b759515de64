package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// conformance: 6.pull.silent
func TestAbandonedPullWithdrawsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		var nodes []*testNode
		for i := range 4 {
			n := r.connect("don", i, nil, nil)
			synctest.Wait() // the session's first pull has begun
			n.push(w)
			nodes = append(nodes, n)
		}
		synctest.Wait()
		require.True(t, r.known(w))
		time.Sleep(70 * time.Second) // within the second pull, which nobody answers
		for i, n := range nodes {
			_ = n.conn.Close()
			<-n.ended
			synctest.Wait()
			r.connect("don", i, nil, silent)
		}
		synctest.Wait()
		require.True(t, r.known(w), "a session that ended within a pull has said nothing")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.False(t, r.known(w), "one that was silent throughout has")
	})
}

// conformance: 6.pull.silent
func TestReplacedSessionAbandonsItsPull(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		w := theWorkflow()
		for i := range 4 {
			n := r.connect("don", i, nil, nil)
			synctest.Wait() // the session's first pull has begun
			n.push(w)
		}
		synctest.Wait()
		time.Sleep(70 * time.Second)
		// The newer session's pull begins before the older has ended.
		for _, n := range r.srv.topology.shards["don"].nodes {
			r.svc().beginPull(newSession(r.srv, n, nil), "pull_workflow_metadata/newer", time.Now())
		}
		synctest.Wait()
		require.True(t, r.known(w))
	})
}
