package connector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// FuzzDecode: whatever a gateway sends, the decoders do not panic, and what they let through keeps every rule.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":"r1","method":"workflows.execute","params":{"input":{"a":9007199254740993},"key":{"keyType":"ecdsa_evm","publicKey":"0x000000000000000000000000000000000000000a"},"workflow":{"workflowID":"0x0000000000000000000000000000000000000000000000000000000000000001"}}}`,
		`{"jsonrpc":"2.0","id":"pull_workflow_metadata/5b0b7a0e","method":"pull_workflow_metadata","params":null}`,
		`{"jsonrpc":"2.0","id":"http_action/0x01/u","method":"http_action","params":{"statusCode":200}}`, `{"jsonrpc":"2.0","id":"http_action","method":"http_action"}`,
		`{"jsonrpc":"2.0","id":"a/b","method":"m"}`, `{"jsonrpc":"2.0","id":"","method":""}`, `[]`, `{`, ``, "\xff",
		`{"jsonrpc":"2.0","id":"\ud800","method":"m"}`, `{"jsonrpc":"2.0","id":"a","id":"b","method":"m"}`,
		`{"jsonrpc":"2.0","id":"a","method":"m","params":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`,
		`{"jsonrpc":"2.0","id":"a","method":"workflows.execute","params":{"input":[],"key":{"keyType":1},"workflow":{"workflowID":"1"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, r.ID)
		require.LessOrEqual(t, len(r.ID), maxIDBytes)
		require.NotEmpty(t, r.Method)
		require.LessOrEqual(t, len(r.Method), maxMethodBytes)
		if i := strings.IndexByte(r.ID, '/'); i >= 0 {
			require.Equal(t, r.Method, r.ID[:i])
		}
		again, err := jsonrpc.DecodeNodeRequest(jsonrpc.AppendRequest(nil, &r))
		require.NoError(t, err)
		require.Equal(t, r, again)
		trigger, err := DecodeTrigger(&r)
		if err != nil {
			require.Less(t, len(err.Error()), 500)
			return
		}
		require.Len(t, trigger.Workflow.ID, 2+workflow.MaxIDDigits)
		require.Len(t, trigger.Key.PublicKey, 2+workflow.MaxOwnerDigits)
		require.Contains(t, "{[", string(trigger.Input[0]))
	})
}

func TestDecodeTrigger(t *testing.T) {
	t.Parallel()
	const key = `"key":{"keyType":"ecdsa_evm","publicKey":"0x00000000000000000000000000000000000000aa"}`
	const flow = `"workflow":{"workflowID":"0x00000000000000000000000000000000000000000000000000000000000000ff","workflowTag":"v1"}`
	got, err := DecodeTrigger(&jsonrpc.Request{ID: "r", Method: MethodExecute, Params: []byte(`{"input":{"n":1.0},` + key + `,` + flow + `}`)})
	require.NoError(t, err)
	require.Equal(t, &Trigger{ID: "r", Input: []byte(`{"n":1.0}`),
		Key:      workflow.Key{KeyType: "ecdsa_evm", PublicKey: "0x00000000000000000000000000000000000000aa"},
		Workflow: workflow.Reference{ID: "0x00000000000000000000000000000000000000000000000000000000000000ff", Tag: "v1"}}, got)
	for params, want := range map[string]string{
		`{"input":1,` + key + `,` + flow + `}`: "params.input",
		`{"input":{},` + key + `,"workflow":{"workflowOwner":"0x1","workflowName":"n","workflowTag":"t"}}`: "workflowID is missing",
		`{"input":{},` + flow + `}`:                                                  "keyType",
		`{"input":{},"key":5,` + flow + `}`:                                          "params.key",
		`{"input":{},"key":{"keyType":"ecdsa_evm","publicKey":"0xAA"},` + flow + `}`: "publicKey",
		`{"input":{},"key":{"keyType":"ecdsa_evm","publicKey":"aa"},` + flow + `}`:   "publicKey",
	} {
		_, err := DecodeTrigger(&jsonrpc.Request{Params: []byte(params)})
		require.ErrorContains(t, err, want, params)
	}
}
