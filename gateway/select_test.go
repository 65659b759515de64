package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// conformance: 2.select.either
// conformance: 2.select.agree
// conformance: 2.select.hash
// conformance: 2.params.unknown
// conformance: 5.request.workflow
func TestSelectWorkflow(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := testWorkflow(0xabc, "my workflow", "v1", clientSigner)
	accept := (*testNode).accept // three of four: each is needed, so each is sent every request
	nodes := r.connectEach("don", []workflow.Metadata{w}, accept, accept, accept, nil)
	r.awaitWorkflow(w.Selector.WorkflowID)
	for name, sel := range map[string]map[string]any{
		"full id":           {"workflowID": w.Selector.WorkflowID},
		"without 0x":        {"workflowID": strings.TrimPrefix(w.Selector.WorkflowID, "0x")},
		"short":             {"workflowID": "0xabc"},
		"short, without 0x": {"workflowID": "abc"},
		"owner, name, tag":  {"workflowOwner": w.Selector.WorkflowOwner, "workflowName": "my workflow", "workflowTag": "v1"},
		"short owner":       {"workflowOwner": "7", "workflowName": "my workflow", "workflowTag": "v1"},
		"id and the rest":   {"workflowID": "abc", "workflowOwner": "0x7", "workflowName": "my workflow", "workflowTag": "v1"},
		"id and tag":        {"workflowID": "abc", "workflowTag": "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sign("", map[string]any{"input": []int{1}, "workflow": sel, "key": map[string]any{"publicKey": "0xff"}, "more": 1}, clientSigner, auth.TokenOptions{})
			a := r.send(s)
			require.Equal(t, 200, a.status, "%s", a.raw)
			require.Contains(t, string(a.body.Result), `"status":"ACCEPTED"`)
			// Workflow always carries the resolved 66-character workflowID to nodes.
			req := <-nodes[0].got
			require.Equal(t, w.Selector.WorkflowID, workflowOf(req))
			want := fmt.Sprintf(`{"input":[1],"key":{"keyType":"ecdsa_evm","publicKey":%q},"workflow":{"workflowID":%q`, address(clientSigner), w.Selector.WorkflowID)
			if _, ok := sel["workflowName"]; ok {
				want += `,"workflowName":"my workflow"`
			}
			if _, ok := sel["workflowOwner"]; ok {
				want += fmt.Sprintf(`,"workflowOwner":%q`, w.Selector.WorkflowOwner)
			}
			if _, ok := sel["workflowTag"]; ok {
				want += `,"workflowTag":"v1"`
			}
			require.Equal(t, want+"}}", string(req.Params))
		})
	}
	for name, sel := range map[string]map[string]any{
		"unknown id":        {"workflowID": "abd"},
		"id of other tag":   {"workflowID": "abc", "workflowTag": "v2"},
		"id of other name":  {"workflowID": "abc", "workflowName": "other"},
		"id of other owner": {"workflowID": "abc", "workflowOwner": "8"},
		"unknown name":      {"workflowOwner": "7", "workflowName": "other", "workflowTag": "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.send(sign("", map[string]any{"input": []int{1}, "workflow": sel}, clientSigner, auth.TokenOptions{}))
			require.Equal(t, 404, a.status)
			require.Equal(t, -32602, a.body.Error.Code)
			require.Equal(t, "workflow_not_found", a.reason())
			require.True(t, strings.HasPrefix(a.body.Error.Message, "Workflow not found"))
		})
	}
}

// conformance: 5.request.bytes
// conformance: 2.error.agreed
func TestNodesGetTheSameBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	w := theWorkflow()
	release := make(chan struct{}) // an answered request is not sent to the rest
	nodes := r.connectAll(func(n *testNode, req jsonrpc.Request) { go func() { <-release; n.accept(req) }() }, w)["don"]
	params := `{"workflow":{"workflowID":"1"},"input":{"z":1.0,"a":[1e3,0.1,{"y":-0,"x":"é\u00e9"}],"big":100000000000000000000}}`
	answer := make(chan *clientAnswer, 1)
	go func() { answer <- r.send(sign("req-1", params, clientSigner, auth.TokenOptions{})) }()
	for _, n := range nodes {
		<-n.got
	}
	close(release)
	a := <-answer
	require.Equal(t, 200, a.status, "%s", a.raw)
	want := fmt.Sprintf(`{"jsonrpc":"2.0","id":"req-1","method":"workflows.execute","params":{"input":{"a":[1e3,0.1,{"x":"éé","y":-0}],"big":100000000000000000000,"z":1.0},"key":{"keyType":"ecdsa_evm","publicKey":%q},"workflow":{"workflowID":%q}}}`,
		address(clientSigner), w.Selector.WorkflowID)
	for _, n := range nodes {
		require.Equal(t, want, string(n.raw[0]))
	}
	// The client gets the result of the nodes and nothing else.
	require.Equal(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"req-1","method":"workflows.execute","result":{"workflow_id":%q,"workflow_execution_id":%q,"status":"ACCEPTED"}}`,
		w.Selector.WorkflowID, workflow.ExecutionID(w.Selector.WorkflowID, "req-1")), string(a.raw))
}
