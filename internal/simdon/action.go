package simdon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dongate/connector"
	"dongate/workflow"
)

// Action is an HTTP request that a node has a gateway make each time it runs a workflow.
type Action struct {
	// Request is made for the workflow and the execution being run, where it names no others.
	Request connector.ActionRequest
	// Done, when set, is called with each outcome, on the goroutine that waited for it.
	Done func(ActionOutcome)
}

// ActionOutcome is how an action of a node went.
type ActionOutcome struct {
	Node *Node
	// WorkflowID and ExecutionID say what for.
	WorkflowID, ExecutionID string
	Took                    time.Duration
	Response                *connector.ActionResponse // nil with an error
	Err                     error                     // as connector.Connector.Action returns it
}

// SetAction makes the node have this request made whenever it runs a workflow: after its answer to the trigger, as nodes
// accept first and run then. A node whose behaviour is to answer with an error, or not to answer, runs nothing; with
// Handle, the handler decides. nil undoes it.
func (n *Node) SetAction(a *Action) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.action = a
}

// Act has a gateway make a request now; see connector.Connector.Action. Where the request names no workflow it is made for
// the first that the node supports, and where it names no owner, for the workflow's.
func (n *Node) Act(ctx context.Context, a connector.ActionRequest) (*connector.ActionResponse, error) {
	n.mu.Lock()
	c := n.connector
	if a.WorkflowID == "" && len(n.workflows) > 0 {
		a.WorkflowID = n.workflows[0].Selector.WorkflowID
	}
	for _, w := range n.workflows {
		if a.WorkflowOwner == "" && w.Selector.WorkflowID == a.WorkflowID {
			a.WorkflowOwner = w.Selector.WorkflowOwner
		}
	}
	n.mu.Unlock()
	switch {
	case c == nil:
		return nil, errors.New("simdon: the node does not run")
	case a.WorkflowID == "":
		return nil, errors.New("simdon: the node supports no workflow that an action could be for")
	case a.WorkflowOwner == "":
		return nil, fmt.Errorf("simdon: the node does not know who owns the workflow %s", a.WorkflowID)
	}
	return c.Action(ctx, a)
}

// run does the node's action for a trigger that it has accepted.
func (n *Node) run(ctx context.Context, a *Action, t *connector.Trigger) {
	r := a.Request
	if r.WorkflowID == "" {
		r.WorkflowID, r.WorkflowOwner = t.Workflow.ID, t.Workflow.Owner
	}
	if r.ExecutionID == "" {
		r.ExecutionID = workflow.ExecutionID(r.WorkflowID, t.ID)
	}
	start := time.Now()
	o := ActionOutcome{Node: n, WorkflowID: r.WorkflowID, ExecutionID: r.ExecutionID}
	o.Response, o.Err = n.Act(ctx, r)
	o.Took = time.Since(start)
	if a.Done != nil && ctx.Err() == nil {
		a.Done(o)
	}
}
