package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"dongate/client"
	"dongate/internal/console"
	"dongate/jsonrpc"
)

// triggerError is the error member of `trigger --json`.
type triggerError struct {
	// Reason is the gateway's data.reason, or "node_error", "unreachable" or
	// "unknown_outcome".
	Reason      string          `json:"reason"`
	ExitCode    int             `json:"exitCode"`
	Message     string          `json:"message"`
	Hint        string          `json:"hint"`
	Code        int             `json:"code,omitzero"`
	Status      int             `json:"status,omitzero"`
	RetryAfter  console.Elapsed `json:"retryAfterMs,omitzero"`
	Data        jsontext.Value  `json:"data,omitzero"` // of the nodes' error
	Shards      []client.Shard  `json:"shards,omitzero"`
	State       string          `json:"state,omitzero"` // of an earlier request under this id
	ExecutionID string          `json:"executionId,omitzero"`
	Response    jsontext.Value  `json:"response,omitzero"` // of that request
}

// exitError is the error as report shows it.
func (e *triggerError) exitError() *exitError {
	return &exitError{code: e.ExitCode, err: errors.New(e.Message), hint: e.Hint}
}

// exitCodesByReason maps a gateway's reasons to exit codes; the others are
// exitFailure.
var exitCodesByReason = map[string]int{
	"parse_error": exitRequest, "too_large": exitRequest, "invalid_request": exitRequest, "invalid_params": exitRequest,
	"method_not_found": exitRequest, "workflow_not_found": exitRequest,
	"unauthorized": exitUnauthorized, "token_replayed": exitUnauthorized,
	"rate_limited": exitRateLimited, "conflict": exitConflict,
	"timeout": exitNoQuorum, "no_quorum": exitNoQuorum,
	"overloaded": exitUnavailable, "unavailable": exitUnavailable, "don_unavailable": exitUnavailable, "draining": exitUnavailable,
}

// explain says what an error of the client means and what to do about it.
func explain(ctx context.Context, err error, r *triggerReport) *triggerError {
	e := &triggerError{ExitCode: exitFailure, Message: strings.TrimPrefix(err.Error(), "client: ")}
	var (
		node    *client.NodeError
		refused *client.Error
		stopped stopSignal
	)
	switch {
	case errors.As(err, &node):
		e.Reason, e.ExitCode, e.Code, e.Data = "node_error", exitNodeError, node.Code, node.Data
		e.Message = fmt.Sprintf("the nodes agreed on error %d: %s", node.Code, node.Message)
		e.Hint = "The gateway and the signature are fine; the workflow's nodes refused it or failed. Request " + r.ID + "."
		r.URL = node.URL
	case errors.Is(err, client.ErrUnknownOutcome):
		e.Reason, e.ExitCode = "unknown_outcome", exitNoQuorum
		e.Hint = fmt.Sprintf("It may have run. The same command with --id %s tells what became of it and does not run it twice, unless the gateway has restarted meanwhile.", shellQuote(r.ID))
	case errors.As(err, &refused):
		e.refused(refused, r)
	case errors.Is(err, client.ErrUnreachable):
		e.Reason, e.ExitCode = "unreachable", exitUnavailable
		e.Hint = "Nothing was sent. Is the gateway running, and is this the address of its client endpoint (userServerConfig)? See --url."
	}
	if errors.As(context.Cause(ctx), &stopped) {
		e.ExitCode = exitInterrupted
	}
	return e
}

// refused explains a gateway's word. With several gateways the first one's counts.
func (e *triggerError) refused(c *client.Error, r *triggerReport) {
	e.Reason, e.Code, e.Status, e.RetryAfter = c.Reason, c.Code, c.HTTPStatus, console.Elapsed(c.RetryAfter)
	e.Shards, e.State, e.ExecutionID = c.Shards, c.State, c.ExecutionID
	e.Message, r.URL = c.Message, c.URL
	if code, ok := exitCodesByReason[c.Reason]; ok {
		e.ExitCode = code
	}
	if c.Response != nil {
		if c.Response.Error != nil {
			e.Response = jsonrpc.AppendNodeError(nil, c.Response.ID, c.Response.Method, c.Response.Error)
		} else {
			e.Response = jsonrpc.AppendResult(nil, c.Response.ID, c.Response.Method, c.Response.Result)
		}
	}
	e.Hint = e.advice(r)
}

// advice says what to do next.
func (e *triggerError) advice(r *triggerReport) string {
	retry := "Try again later"
	if e.RetryAfter > 0 {
		retry = fmt.Sprintf("Try again in %v", time.Duration(e.RetryAfter))
	}
	switch e.Reason {
	case "unauthorized":
		return "Signed by " + r.Signer + ". Is this the key you meant, is it among the workflow's authorised keys, and is this machine's clock right?"
	case "token_replayed":
		return "Run the command again: every run signs a new token."
	case "workflow_not_found":
		return "Check the selector. A workflow is known once f+1 nodes of a shard have reported it."
	case "rate_limited":
		return retry + "; nothing was run and the request id is free."
	case "conflict":
		return e.conflict(r)
	case "timeout", "no_quorum":
		return "Nodes may have run it." + shardText(e.Shards) +
			fmt.Sprintf("\nThe same command with --id %s tells what the gateway knows, and does not run it twice, unless it has restarted meanwhile.", shellQuote(r.ID))
	case "don_unavailable":
		return retry + ": no node of the workflow's shards is connected to the gateway."
	case "overloaded", "unavailable", "draining":
		return retry + ", or give another --url; nothing was run."
	}
	return ""
}

func (e *triggerError) conflict(r *triggerReport) string {
	switch e.State {
	case "open":
		return fmt.Sprintf("The earlier request is still running (execution %s). Ask again with the same --id.", e.ExecutionID)
	case "answered":
		if e.Response != nil {
			return fmt.Sprintf("The earlier request was answered (execution %s); its answer is above. Leave out --id for a new one.", e.ExecutionID)
		}
		return fmt.Sprintf("The earlier request was answered (execution %s). Leave out --id for a new one.", e.ExecutionID)
	case "failed":
		return fmt.Sprintf("The earlier request ended without an answer and may have run (execution %s). Leave out --id for a new one.", e.ExecutionID)
	}
	return "Another signer uses the request id " + shellQuote(r.ID) + ". Choose another --id or leave it out."
}

func shardText(shards []client.Shard) string {
	var b strings.Builder
	for i, s := range shards {
		groups := make([]string, len(s.Groups))
		for j, g := range s.Groups {
			groups[j] = fmt.Sprint(g)
		}
		equal := strings.Join(groups, " + ")
		if equal == "" {
			equal = "none"
		}
		fmt.Fprintf(&b, "\n  shard %d of the workflow: %d equal answers needed, %d nodes connected, %d answered; equal answers: %s",
			i+1, s.Threshold, s.Connected, s.Answered, equal)
	}
	return b.String()
}
