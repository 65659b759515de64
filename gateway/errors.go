package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/jsonrpc"
)

// Reason is the stable machine-readable cause of a refusal, sent as
// `data.reason` and used as the outcome label of metrics and logs (protocol §2).
type Reason string

// The reasons of protocol §2. ReasonResult and ReasonNodeError are outcomes, not
// refusals: the nodes agreed.
const (
	ReasonResult           Reason = "result"
	ReasonNodeError        Reason = "node_error"
	ReasonParseError       Reason = "parse_error"
	ReasonTooLarge         Reason = "too_large"
	ReasonInvalidRequest   Reason = "invalid_request"
	ReasonInvalidParams    Reason = "invalid_params"
	ReasonMethodNotFound   Reason = "method_not_found"
	ReasonWorkflowNotFound Reason = "workflow_not_found"
	ReasonUnauthorized     Reason = "unauthorized"
	ReasonTokenReplayed    Reason = "token_replayed"
	ReasonRateLimited      Reason = "rate_limited"
	ReasonConflict         Reason = "conflict"
	ReasonOverloaded       Reason = "overloaded"
	ReasonUnavailable      Reason = "unavailable"
	ReasonTimeout          Reason = "timeout"
	ReasonNoQuorum         Reason = "no_quorum"
	ReasonDONUnavailable   Reason = "don_unavailable"
	ReasonDraining         Reason = "draining"
	ReasonInternal         Reason = "internal"
	// ReasonAbandoned is counted when the client went away; nobody reads an answer.
	ReasonAbandoned Reason = "abandoned"
)

// refusal is one row of the error table: what a reason means on the wire.
type refusal struct {
	code    int
	status  int
	meaning string // for docs/errors.md
}

// refusals is the one table that maps a reason to its JSON-RPC code and HTTP status.
var refusals = map[Reason]refusal{
	ReasonParseError:       {jsonrpc.CodeParseError, http.StatusBadRequest, "The body is not one JSON value in valid UTF-8."},
	ReasonTooLarge:         {jsonrpc.CodeInvalidRequest, http.StatusRequestEntityTooLarge, "The body is larger than maxRequestBytes."},
	ReasonInvalidRequest:   {jsonrpc.CodeInvalidRequest, http.StatusBadRequest, "The envelope is wrong; also 404 (path), 405 (HTTP method), 408 (the body did not come in time) and 415 (Content-Encoding)."},
	ReasonInvalidParams:    {jsonrpc.CodeInvalidParams, http.StatusBadRequest, "The params are wrong, or hold a number that a double cannot carry."},
	ReasonMethodNotFound:   {jsonrpc.CodeMethodNotFound, http.StatusBadRequest, "No such method or service."},
	ReasonWorkflowNotFound: {jsonrpc.CodeInvalidParams, http.StatusNotFound, "Too few nodes vouch for such a workflow, or the selector disagrees with its id."},
	ReasonUnauthorized:     {jsonrpc.CodeInvalidRequest, http.StatusUnauthorized, "The token is missing, malformed, expired or for other bytes, or its signer is not authorised."},
	ReasonTokenReplayed:    {jsonrpc.CodeInvalidRequest, http.StatusUnauthorized, "The token has been used before. Sign a new one."},
	ReasonRateLimited:      {jsonrpc.CodeLimitExceeded, http.StatusTooManyRequests, "A rate limit, or the workflow's open requests. The same bytes are accepted after Retry-After."},
	ReasonConflict:         {jsonrpc.CodeConflict, http.StatusConflict, "The request id is in use or was used lately; the earlier attempt may still run."},
	ReasonOverloaded:       {jsonrpc.CodeInternalError, http.StatusServiceUnavailable, "Too many concurrent or large requests, or requests being read or open hold too many bytes."},
	ReasonUnavailable:      {jsonrpc.CodeInternalError, http.StatusServiceUnavailable, "Used tokens cannot be recorded, so nothing is dispatched."},
	ReasonTimeout:          {jsonrpc.CodeInternalError, http.StatusGatewayTimeout, "No quorum before the deadline."},
	ReasonNoQuorum:         {jsonrpc.CodeInternalError, http.StatusBadGateway, "The nodes disagree so that no quorum is possible any more."},
	ReasonDONUnavailable:   {jsonrpc.CodeInternalError, http.StatusServiceUnavailable, "No node of any assigned shard is connected."},
	ReasonDraining:         {jsonrpc.CodeInternalError, http.StatusServiceUnavailable, "The gateway is shutting down."},
	ReasonInternal:         {jsonrpc.CodeInternalError, http.StatusInternalServerError, "Anything else; the log has the cause."},
}

// failure is an error with two faces: Reason, message and data for the caller,
// cause for the log.
type failure struct {
	reason     Reason
	message    string
	status     int           // 0: the reason's own
	retryAfter time.Duration // 0: none
	data       *failureData  // nil: the reason alone
	cause      error         // never sent
}

func (f *failure) Error() string { return string(f.reason) + ": " + f.message }
func (f *failure) Unwrap() error { return f.cause }

// httpStatus is the status a single (not batched) request is answered with.
func (f *failure) httpStatus() int {
	if f.status != 0 {
		return f.status
	}
	return refusals[f.reason].status
}

// failureData is the `data` member of an error. Reason is always there.
type failureData struct {
	Reason       Reason         `json:"reason"`
	RetryAfterMs int64          `json:"retryAfterMs,omitzero"`
	Shards       []shardState   `json:"shards,omitzero"`
	State        string         `json:"state,omitzero"`
	ExecutionID  string         `json:"workflow_execution_id,omitzero"`
	Response     jsontext.Value `json:"response,omitzero"`
}

// shardState tells a client why there was no quorum: per assigned shard.
type shardState struct {
	Threshold int   `json:"threshold"`
	Connected int   `json:"connected"`
	Answered  int   `json:"answered"`
	Groups    []int `json:"groups"` // sizes of groups of equal answers, largest first
}

func fail(reason Reason, format string, args ...any) *failure {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

// maxQuoted bounds how many bytes of a caller's value an error text repeats.
const maxQuoted = 64

// quoteShort quotes a caller's value for an error text.
func quoteShort(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")) + "…"
}

// reply is one complete JSON-RPC answer and how HTTP carries it when it is not
// part of a batch.
type reply struct {
	status     int
	reason     Reason
	retryAfter time.Duration
	allow      string
	body       []byte
	close      bool // the request body was not read to its end
}

// replyFailure encodes f for the request id (nil where it could not be read).
// In a batch the retry time travels in the data instead of a header.
func replyFailure(id *string, f *failure, inBatch bool) reply {
	data := failureData{}
	if f.data != nil {
		data = *f.data
	}
	data.Reason = f.reason
	if inBatch && f.retryAfter > 0 {
		data.RetryAfterMs = int64((f.retryAfter + time.Millisecond - 1) / time.Millisecond)
	}
	raw, err := json.Marshal(&data)
	if err != nil { // Response came from us and is valid JSON; keep the reason whatever happens.
		raw = []byte(`{"reason":` + strconv.Quote(string(f.reason)) + `}`)
	}
	e := &jsonrpc.Error{Code: refusals[f.reason].code, Message: f.message, Data: raw}
	return reply{status: f.httpStatus(), reason: f.reason, retryAfter: f.retryAfter, body: jsonrpc.AppendError(nil, id, e)}
}

// retryAfterSeconds is the Retry-After value: whole seconds, rounded up, at least 1.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
