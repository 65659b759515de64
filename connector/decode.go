package connector

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// The methods of the protocol that a Connector knows itself (protocol §6).
const (
	methodPull = "pull_workflow_metadata"
	methodPush = "push_workflow_metadata"
)

// MethodExecute is the method of a trigger (protocol §5).
const MethodExecute = "workflows.execute"

// Bounds on what a gateway may name, in bytes. The longest id of the protocol, method/workflowID/executionID/uuid, has
// about 180.
const (
	maxIDBytes     = 512
	maxMethodBytes = 128
)

// decode reads one message of a gateway: a request with an id and a method, where an id with a '/' starts with the
// method (protocol §4), so that an answer under it is routed back to what asked. The request aliases data.
func decode(data []byte) (jsonrpc.Request, error) {
	r, err := jsonrpc.DecodeNodeRequest(data)
	if err != nil {
		return r, err
	}
	switch prefix, rest, exchange := strings.Cut(r.ID, "/"); {
	case r.ID == "" || len(r.ID) > maxIDBytes:
		return r, fmt.Errorf("the id has %d bytes, not 1 to %d", len(r.ID), maxIDBytes)
	case r.Method == "" || len(r.Method) > maxMethodBytes:
		return r, fmt.Errorf("the method has %d bytes, not 1 to %d", len(r.Method), maxMethodBytes)
	case exchange && (prefix != r.Method || rest == ""):
		return r, errors.New("the id belongs to another method")
	case !exchange && (r.Method == methodPull || r.Method == methodAction):
		return r, errors.New("the id of a pull, or of an answer to an action, does not start with its method")
	}
	return r, nil
}

// Trigger is a client's request to run a workflow, as a gateway hands it to nodes (protocol §5).
type Trigger struct {
	// ID is the client's request id, unique per workflow.
	ID string
	// Input is the client's input, a JSON object or array, with member names sorted.
	Input jsontext.Value
	// Key is the authorised key that signed the request.
	Key workflow.Key
	// Workflow always has the workflow's id; owner, name and tag where the client gave them.
	Workflow workflow.Reference
}

// DecodeTrigger reads the params of a workflows.execute request. Params of a request that came through a Connector are
// JSON already; the error says what else is wrong with them, for a *jsonrpc.Error with code jsonrpc.CodeInvalidParams.
func DecodeTrigger(r *jsonrpc.Request) (*Trigger, error) {
	params, err := workflow.DecodeTriggerParams(r.Params)
	if err != nil {
		return nil, err
	}
	if params.Workflow.ID == "" {
		return nil, errors.New("params.workflow.workflowID is missing: a gateway resolves it")
	}
	var wire struct {
		Key workflow.Key `json:"key"`
	}
	if err := json.Unmarshal(r.Params, &wire); err != nil {
		return nil, errors.New("params.key is not an object with the strings keyType and publicKey")
	}
	if wire.Key.KeyType != workflow.KeyTypeECDSAEVM {
		return nil, fmt.Errorf("params.key.keyType is not %q", workflow.KeyTypeECDSAEVM)
	}
	if address, err := workflow.NormalizeOwner(wire.Key.PublicKey); err != nil || address != wire.Key.PublicKey {
		return nil, errors.New("params.key.publicKey is not an address of 42 lower-case characters")
	}
	return &Trigger{ID: r.ID, Input: params.Input, Key: wire.Key, Workflow: params.Workflow}, nil
}
