package connector_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dongate/connector"
	"dongate/jsonrpc"
	"dongate/workflow"
)

func testID(i int) string { return fmt.Sprintf("0x%064x", i) }

func testWorkflow(i, key int) workflow.Metadata {
	return workflow.Metadata{
		Selector: workflow.Selector{
			WorkflowID: testID(i), WorkflowOwner: fmt.Sprintf("0x%040x", i), WorkflowName: workflow.HashName(fmt.Sprint(i)), WorkflowTag: "v1",
		},
		AuthorizedKeys: []workflow.Key{{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: fmt.Sprintf("0x%040x", key)}},
	}
}

func testWorkflows(n int) (list []workflow.Metadata) {
	for i := range n {
		list = append(list, testWorkflow(i+1, 1))
	}
	return list
}

// decodeReport reads a message about workflows: the method, and the workflows it names.
func decodeReport(t testing.TB, r jsonrpc.Response) []workflow.Metadata {
	t.Helper()
	raws := []jsontext.Value{r.Result}
	if r.Result.Kind() == '[' {
		require.NoError(t, json.Unmarshal(r.Result, &raws))
	}
	var list []workflow.Metadata
	for _, raw := range raws {
		m, err := workflow.DecodeMetadata(raw)
		require.NoError(t, err)
		list = append(list, m)
	}
	return list
}

// As existing nodes do: 50 workflows a message, and no message at all when there are none.
// conformance: 6.pull.messages
func TestPull(t *testing.T) {
	t.Parallel()
	for n, sizes := range map[int][]int{0: nil, 1: {1}, 49: {49}, 50: {50}, 51: {50, 1}, 120: {50, 50, 20}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			c := newConnector(t, nil, d)
			want := testWorkflows(n)
			require.NoError(t, c.SetWorkflows(want))
			run(t, c)
			p := d.accept()
			p.send("pull_workflow_metadata/one", "pull_workflow_metadata", `null`)
			var got []workflow.Metadata
			for _, size := range sizes {
				_, r := p.read()
				require.Equal(t, "pull_workflow_metadata/one", r.ID)
				require.Equal(t, "pull_workflow_metadata", r.Method)
				part := decodeReport(t, r)
				require.Len(t, part, size)
				got = append(got, part...)
			}
			require.Equal(t, want, got)
			p.send("after", "unknown", `{}`)
			_, r := p.read()
			require.Equal(t, "after", r.ID, "nothing more")
			require.EqualValues(t, 1, c.Stats().Gateways[0].Pulls)
			require.Equal(t, n, c.Stats().Workflows)
		})
	}
}

// conformance: 6.push
func TestPutPushesAtOnceToEveryGatewayInOrder(t *testing.T) {
	t.Parallel()
	one, two := newDouble(t), newDouble(t)
	c, _ := start(t, nil, one, two)
	peers := []*peer{one.accept(), two.accept()}
	waitConnected(t, c, 2)
	order := []int{7, 3, 9, 1, 8}
	for _, i := range order {
		require.NoError(t, c.PutWorkflow(testWorkflow(i, 1)))
	}
	for _, p := range peers {
		for _, i := range order {
			_, r := p.read()
			prefix := "push_workflow_metadata/" + testID(i) + "/"
			hasPrefix(t, r.ID, prefix)
			_, err := uuid.Parse(strings.TrimPrefix(r.ID, prefix))
			require.NoError(t, err)
			require.Equal(t, "push_workflow_metadata", r.Method)
			require.Equal(t, byte('{'), byte(r.Result.Kind()))
			require.Equal(t, []workflow.Metadata{testWorkflow(i, 1)}, decodeReport(t, r))
		}
	}
	// Unchanged, it is pushed again when it is put again.
	require.NoError(t, c.PutWorkflow(testWorkflow(3, 1)))
	_, r := peers[0].read()
	hasPrefix(t, r.ID, "push_workflow_metadata/"+testID(3))
}

func TestSetWorkflowsPushesWhatChanged(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c := newConnector(t, nil, d)
	require.NoError(t, c.SetWorkflows(testWorkflows(4)))
	run(t, c)
	p := d.accept()
	waitConnected(t, c, 1)
	list := testWorkflows(5)[1:] // without the first, with a fifth
	list[1] = testWorkflow(3, 99)
	require.NoError(t, c.SetWorkflows(list))
	for _, want := range []workflow.Metadata{testWorkflow(3, 99), testWorkflow(5, 1)} {
		_, r := p.read()
		require.Equal(t, []workflow.Metadata{want}, decodeReport(t, r))
	}
	c.RemoveWorkflow(testID(2))
	c.RemoveWorkflow(testID(2))
	c.RemoveWorkflow("nonsense")
	p.send("pull_workflow_metadata/x", "pull_workflow_metadata", `null`)
	_, r := p.read()
	require.Equal(t, "pull_workflow_metadata/x", r.ID)
	require.Equal(t, []workflow.Metadata{testWorkflow(3, 99), testWorkflow(4, 1), testWorkflow(5, 1)}, decodeReport(t, r))
}

func TestInvalidWorkflowsChangeNothing(t *testing.T) {
	t.Parallel()
	c := newConnector(t, nil, newDouble(t))
	require.NoError(t, c.SetWorkflows(testWorkflows(2)))
	bad := testWorkflow(3, 1)
	bad.Selector.WorkflowTag = ""
	require.ErrorContains(t, c.PutWorkflow(bad), "connector: ")
	require.ErrorContains(t, c.SetWorkflows([]workflow.Metadata{testWorkflow(1, 1), bad}), "workflow 1: ")
	require.ErrorContains(t, c.SetWorkflows([]workflow.Metadata{testWorkflow(1, 1), testWorkflow(1, 2)}), "twice")
	require.Equal(t, 2, c.Stats().Workflows)

	// The caller's keys are not sorted under its hands.
	m := testWorkflow(4, 2)
	m.AuthorizedKeys = append(m.AuthorizedKeys, testWorkflow(4, 1).AuthorizedKeys...)
	first := m.AuthorizedKeys[0]
	require.NoError(t, c.PutWorkflow(m))
	require.Equal(t, first, m.AuthorizedKeys[0])
}

// Gateways limit what nodes send unasked: many changes at once are paced, and a pull overtakes them.
func TestPushesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newPipeDouble(t)
		c, _ := start(t, func(c *connector.Config) { c.PushRPS, c.PushBurst = 10, 5 }, d)
		p := d.accept()
		waitConnected(t, c, 1)
		began := time.Now()
		require.NoError(t, c.SetWorkflows(testWorkflows(8)))
		for i := range 7 {
			_, r := p.read()
			hasPrefix(t, r.ID, "push_workflow_metadata/"+testID(i+1)+"/")
			want := time.Duration(max(0, i-4)) * 100 * time.Millisecond
			require.InDelta(t, want, time.Since(began), float64(time.Millisecond), "push %d", i)
		}
		p.send("pull_workflow_metadata/x", "pull_workflow_metadata", `null`)
		_, r := p.read()
		require.Len(t, decodeReport(t, r), 8)
		require.Less(t, time.Since(began), 250*time.Millisecond, "the pull does not wait for the pace")
		time.Sleep(time.Minute)
		p.send("after", "unknown", `{}`)
		_, r = p.read()
		require.Equal(t, "after", r.ID, "what the pull named needs no push")
	})
}
