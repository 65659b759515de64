package simdon

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"dongate/connector"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// accepted is what existing nodes answer to a trigger.
type accepted struct {
	WorkflowID  string `json:"workflow_id"`
	ExecutionID string `json:"workflow_execution_id"`
	Status      string `json:"status"`
}

// execute answers a trigger as the node's behaviour has it, and runs the workflow as far as it has something to do.
func (n *Node) execute(ctx context.Context, r *jsonrpc.Request) (any, error) {
	n.mu.Lock()
	b, h, a := n.behaviour, n.handler, n.action
	n.mu.Unlock()
	if h != nil {
		return h(ctx, r)
	}
	t, err := connector.DecodeTrigger(r)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	answer, err := n.answer(ctx, b, r, t)
	if err != nil || a == nil {
		return answer, err
	}
	if err := n.send(ctx, r, answer); err != nil {
		return nil, err
	}
	n.run(ctx, a, t)
	return nil, connector.ErrNoAnswer
}

// answer is what the node answers to a trigger in the end.
func (n *Node) answer(ctx context.Context, b Behaviour, r *jsonrpc.Request, t *connector.Trigger) (any, error) {
	right := accepted{t.Workflow.ID, workflow.ExecutionID(t.Workflow.ID, t.ID), "ACCEPTED"}
	wrong := right
	wrong.ExecutionID = workflow.ExecutionID(t.Workflow.ID, t.ID+"\x00"+n.config.ShardID+"\x00"+n.config.Name)
	switch b.kind() {
	case Accept:
		return right, nil
	case Slow:
		return right, sleep(ctx, b.delay())
	case Conflict:
		return wrong, nil
	case Flip:
		if err := n.send(ctx, r, wrong); err != nil {
			return nil, err
		}
		return right, sleep(ctx, b.delay())
	case Error:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the workflow engine has failed"}
	default:
		return nil, connector.ErrNoAnswer
	}
}

// send answers r besides what its handler returns.
func (n *Node) send(ctx context.Context, r *jsonrpc.Request, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	gateway, _ := connector.GatewayFrom(ctx)
	c := n.Connector()
	if c == nil {
		return connector.ErrNoAnswer // the node has just stopped
	}
	return c.Send(gateway.URL, &jsonrpc.Response{ID: r.ID, Method: r.Method, Result: raw})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
