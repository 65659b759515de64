package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/jsonrpc"
)

// What an *Error matches with errors.Is, by its Reason (protocol §2).
var (
	ErrParse            = errors.New("the gateway could not parse the body")
	ErrTooLarge         = errors.New("the body is larger than the gateway accepts")
	ErrInvalidRequest   = errors.New("the request is invalid")
	ErrInvalidParams    = errors.New("the params are invalid")
	ErrMethodNotFound   = errors.New("the gateway does not serve this method")
	ErrWorkflowNotFound = errors.New("the workflow is unknown")
	ErrUnauthorized     = errors.New("the token is not acceptable, or its signer is not authorised")
	ErrTokenReplayed    = errors.New("the token has been used before")
	ErrRateLimited      = errors.New("a rate limit was exceeded")
	ErrConflict         = errors.New("the request id is in use or was used lately")
	ErrOverloaded       = errors.New("the gateway is overloaded")
	ErrUnavailable      = errors.New("the gateway cannot record the request")
	ErrTimeout          = errors.New("no quorum before the deadline")
	ErrNoQuorum         = errors.New("no quorum is possible")
	ErrDONUnavailable   = errors.New("no node of the workflow's DON is connected")
	ErrDraining         = errors.New("the gateway is shutting down")
	ErrInternal         = errors.New("the gateway failed")
)

var (
	// ErrUnreachable: no connection was made, nothing was sent.
	ErrUnreachable = errors.New("the gateway is not reachable")
	// ErrUnknownOutcome: the request was sent, no usable answer came, and it may have run. Ask with Client.Outcome; do not
	// send it under another id unless running it twice does no harm.
	ErrUnknownOutcome = errors.New("the outcome of the request is unknown")
	// ErrResponseTooLarge: the answer exceeds Config.MaxResponseBytes. It comes with ErrUnknownOutcome.
	ErrResponseTooLarge = errors.New("the answer is too large")
)

// The reasons that the client itself has to do with.
const (
	reasonInvalidParams  = "invalid_params"
	reasonInvalidRequest = "invalid_request"
	reasonDraining       = "draining"
	reasonOverloaded     = "overloaded"
	reasonUnavailable    = "unavailable"
)

// sentinels has the error for each `data.reason` of protocol §2.
var sentinels = map[string]error{
	"parse_error": ErrParse, "too_large": ErrTooLarge, reasonInvalidRequest: ErrInvalidRequest, reasonInvalidParams: ErrInvalidParams,
	"method_not_found": ErrMethodNotFound, "workflow_not_found": ErrWorkflowNotFound, "unauthorized": ErrUnauthorized,
	"token_replayed": ErrTokenReplayed, "rate_limited": ErrRateLimited, "conflict": ErrConflict, reasonOverloaded: ErrOverloaded,
	reasonUnavailable: ErrUnavailable, "timeout": ErrTimeout, "no_quorum": ErrNoQuorum, "don_unavailable": ErrDONUnavailable,
	reasonDraining: ErrDraining, "internal": ErrInternal,
}

// Error is a gateway's refusal, or its word that the DON came to no agreement.
type Error struct {
	RequestID string
	URL       string // of the gateway; "" when the request was refused before sending

	Code       int    // JSON-RPC error code; 0 when the answer was no JSON-RPC
	Reason     string // `data.reason`, or what status, code and text amount to where a gateway gives none; "" when unclear
	Message    string
	HTTPStatus int // 0 when the request was refused before sending
	// RetryAfter is how long to wait before the same Signed is sent again; 0 when the gateway names no time.
	RetryAfter time.Duration
	Data       jsontext.Value // the error's data as it came; nil when there was none

	// Shards says how far each assigned shard came, with ErrTimeout and ErrNoQuorum.
	Shards []Shard
	// With ErrConflict, when the earlier request had the same signer: where it stands ("open", "answered" or "failed"), the
	// id of its execution, and its answer where it was answered.
	State       string
	ExecutionID string
	Response    *jsonrpc.Response

	stated bool // Reason is the gateway's own word
}

// Shard is the state of one shard's vote when a request ended without an agreement.
type Shard struct {
	Threshold int   `json:"threshold"` // equal answers needed
	Connected int   `json:"connected"` // nodes with a session
	Answered  int   `json:"answered"`  // nodes that answered
	Groups    []int `json:"groups"`    // sizes of groups of equal answers, largest first
}

// Error implements error.
func (e *Error) Error() string {
	s := "client: "
	if e.Reason != "" {
		s += e.Reason + ": "
	}
	s += e.Message
	if e.HTTPStatus != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.HTTPStatus)
	}
	return s
}

// Is makes errors.Is(err, ErrRateLimited) and the like work. A gateway that gives up an open request while shutting down
// matches ErrUnknownOutcome besides ErrDraining.
func (e *Error) Is(target error) bool {
	if target == ErrUnknownOutcome {
		return e.mayHaveRun()
	}
	return target != nil && sentinels[e.Reason] == target
}

// mayHaveRun reports whether a draining gateway gave up the request after dispatching it: the one case in which a reason
// that otherwise means "not dispatched" does not, told by its text (protocol §8).
func (e *Error) mayHaveRun() bool {
	return e.Reason == reasonDraining && strings.Contains(e.Message, "may have run")
}

// notDispatched reports whether the gateway said that nothing was dispatched for a reason that is its own and may not be
// another gateway's.
func (e *Error) notDispatched() bool {
	switch e.Reason {
	case reasonDraining, reasonOverloaded, reasonUnavailable:
		return e.stated && !e.mayHaveRun()
	}
	return false
}

// NodeError is an error on which the DON's nodes agreed: the request ran, or the nodes refused it.
type NodeError struct {
	RequestID string
	URL       string // of the gateway that answered
	Code      int
	Message   string
	Data      jsontext.Value // nil when there was none
}

// Error implements error.
func (e *NodeError) Error() string {
	return fmt.Sprintf("client: the nodes agreed on error %d: %s", e.Code, e.Message)
}

// UnknownOutcomeError says how the answer to a request that may have run was lost. It matches ErrUnknownOutcome and wraps
// the cause.
type UnknownOutcomeError struct {
	RequestID string
	URL       string // of the gateway that got the request
	Err       error
}

// Error implements error.
func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("client: request %s may have run: %v", e.RequestID, e.Err)
}

// Is implements errors.Is.
func (e *UnknownOutcomeError) Is(target error) bool { return target == ErrUnknownOutcome }

// Unwrap returns the cause.
func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// attemptsError is what became of a request that no gateway took, one error per gateway.
type attemptsError []error

func (e attemptsError) Error() string {
	parts := make([]string, len(e))
	for i, err := range e {
		parts[i] = strings.TrimPrefix(err.Error(), "client: ")
	}
	return "client: no gateway took the request: " + strings.Join(parts, "; ")
}

func (e attemptsError) Unwrap() []error { return e }

// fill reads the data of a gateway's error. What is not of the expected form is left out: Data has it all.
func (e *Error) fill() {
	var data struct {
		Reason       string         `json:"reason"`
		RetryAfterMs float64        `json:"retryAfterMs"`
		Shards       []Shard        `json:"shards"`
		State        string         `json:"state"`
		ExecutionID  string         `json:"workflow_execution_id"`
		Response     jsontext.Value `json:"response"`
	}
	if e.Data != nil && json.Unmarshal(e.Data, &data) == nil {
		e.Reason, e.stated = data.Reason, data.Reason != ""
		e.Shards, e.State, e.ExecutionID = data.Shards, data.State, data.ExecutionID
		if ms := data.RetryAfterMs; e.RetryAfter == 0 && ms > 0 {
			e.RetryAfter = min(time.Duration(min(ms, float64(maxRetryAfter/time.Millisecond)))*time.Millisecond, maxRetryAfter)
		}
		if data.Response != nil {
			if r, err := jsonrpc.DecodeResponse(data.Response); err == nil && r.Check() == nil {
				e.Response = &r
			}
		}
	}
	if e.Reason == "" {
		e.Reason = guessReason(e.HTTPStatus, e.Code, e.Message)
	}
}

// guessReason stands in for a reason that a gateway did not give; "" when there is no telling. The texts are those that
// clients have always matched on (protocol §2).
func guessReason(status, code int, message string) string {
	switch {
	case strings.HasPrefix(message, "Auth failure: JWT token has already been used"):
		return "token_replayed"
	case status == 401, strings.HasPrefix(message, "Auth failure: "):
		return "unauthorized"
	case strings.HasPrefix(message, "Workflow not found"):
		return "workflow_not_found"
	case status == 429, strings.HasPrefix(message, "rate limit exceeded"), code == jsonrpc.CodeLimitExceeded:
		return "rate_limited"
	case status == 409, code == jsonrpc.CodeConflict:
		return "conflict"
	case status == 413:
		return "too_large"
	case status == 504:
		return "timeout"
	case code == jsonrpc.CodeParseError:
		return "parse_error"
	case code == jsonrpc.CodeMethodNotFound:
		return "method_not_found"
	case code == jsonrpc.CodeInvalidParams:
		return reasonInvalidParams
	case code == jsonrpc.CodeInvalidRequest, status >= 400 && status < 500:
		return reasonInvalidRequest
	case status == 500:
		return "internal"
	}
	return ""
}
