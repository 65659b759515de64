package fhevm

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Reply is one answer of the HTTP API, ready to be written as application/json.
type Reply struct {
	Status     int
	RetryAfter int    // whole seconds for the header Retry-After; 0: no such header
	Body       []byte // JSON
}

// Texts of `status` in a body.
const (
	statusQueued    = "queued"
	statusSucceeded = "succeeded"
	statusFailed    = "failed"
)

// maxReason bounds, in bytes, how much of a stored reason is answered.
const maxReason = 1024

// envelope is the form of every body. Absent members are omitted, never null (relayer reference §1.2).
type envelope struct {
	Status        string         `json:"status"`
	RequestID     string         `json:"requestId"`
	JobID         string         `json:"jobId,omitzero"`
	State         State          `json:"state,omitzero"`
	UpdatedAt     string         `json:"updatedAt,omitzero"`
	QueuePosition *int64         `json:"queuePosition,omitzero"`
	TxQueueSize   *int64         `json:"txQueueSize,omitzero"`
	Result        jsontext.Value `json:"result,omitzero"`
	Error         *errorBody     `json:"error,omitzero"`
}

type errorBody struct {
	Label   Label    `json:"label"`
	Message string   `json:"message"`
	Details []Detail `json:"details,omitempty"`
}

// marshal encodes what this package builds: structs and strings, so that nothing but invalid UTF-8 could fail, which is replaced.
func marshal(v any) []byte {
	out, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return []byte(`{"status":"failed","error":{"label":"internal_server_error","message":"Internal server error"}}`)
	}
	return out
}

// Accepted answers a POST whose job exists now, new or not: 202.
func Accepted(requestID, jobID string, retryAfter int) Reply {
	result := marshal(struct {
		JobID string `json:"jobId"`
	}{jobID})
	return Reply{http.StatusAccepted, retryAfter, marshal(envelope{Status: statusQueued, RequestID: requestID, Result: result})}
}

// Job is what a GET tells of a job that has no result yet, or never will.
type Job struct {
	ID        string // ext_job_id
	State     State
	UpdatedAt time.Time // since when the job is in its state
	// QueuePosition is the number of older jobs of the same table and state; TxQueueSize that of all that wait to be sent. Both are
	// answered in queued, processing and tx_in_flight alone.
	QueuePosition, TxQueueSize int64
	Cause                      Cause  // of timed_out and failure
	Reason                     string // of timed_out and failure, for people; "" when unknown
}

// Pending answers a GET while the job has no result to hand out: 202.
func Pending(requestID string, j Job, retryAfter int) Reply {
	body := envelope{Status: statusQueued, RequestID: requestID, State: j.State, UpdatedAt: FormatTime(j.UpdatedAt)}
	switch j.State {
	case StateQueued, StateProcessing, StateTxInFlight:
		body.QueuePosition, body.TxQueueSize = &j.QueuePosition, &j.TxQueueSize
	}
	return Reply{http.StatusAccepted, retryAfter, marshal(body)}
}

// FormatTime returns t as the API writes times: RFC 3339 with milliseconds, UTC.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Result is the result of a job: [ProofResult], [PublicResult] or [UserResult].
type Result interface{ result() any }

// ProofResult is the result of an input proof. A rejected proof is a result, too, not an error.
type ProofResult struct {
	Accepted   bool
	Handles    [][32]byte // empty when rejected
	Signatures [][]byte   // empty when rejected
}

// PublicResult is the result of a public decryption.
type PublicResult struct {
	DecryptedValue []byte // the result as the contract's event gives it
	Signatures     [][]byte
	ExtraData      []byte
}

// Share is one node's part of a user decryption.
type Share struct {
	Payload   []byte
	Signature []byte
	ExtraData []byte
}

// UserResult is the result of a user decryption: every share that is stored.
type UserResult []Share

func (r ProofResult) result() any {
	type accepted struct {
		Accepted   bool     `json:"accepted"`
		ExtraData  string   `json:"extraData"`
		Handles    []string `json:"handles"`
		Signatures []string `json:"signatures"`
	}
	if !r.Accepted {
		return struct {
			Accepted  bool   `json:"accepted"`
			ExtraData string `json:"extraData"`
		}{false, "0x00"}
	}
	out := accepted{Accepted: true, ExtraData: "0x00", Handles: make([]string, len(r.Handles)), Signatures: make([]string, len(r.Signatures))}
	for i, h := range r.Handles {
		out.Handles[i] = prefixed(h[:])
	}
	for i, s := range r.Signatures {
		out.Signatures[i] = prefixed(s)
	}
	return out
}

func (r PublicResult) result() any {
	signatures := make([]string, len(r.Signatures))
	for i, s := range r.Signatures {
		signatures[i] = hex.EncodeToString(s)
	}
	return struct {
		DecryptedValue string   `json:"decryptedValue"`
		Signatures     []string `json:"signatures"`
		ExtraData      string   `json:"extraData"`
	}{hex.EncodeToString(r.DecryptedValue), signatures, prefixed(r.ExtraData)}
}

func (r UserResult) result() any {
	type share struct {
		Payload   string `json:"payload"`
		Signature string `json:"signature"`
		ExtraData string `json:"extraData"`
	}
	shares := make([]share, len(r))
	for i, s := range r {
		shares[i] = share{hex.EncodeToString(s.Payload), hex.EncodeToString(s.Signature), prefixed(s.ExtraData)}
	}
	return struct {
		Result []share `json:"result"` // the SDK reads result.result
	}{shares}
}

func prefixed(b []byte) string { return "0x" + hex.EncodeToString(b) }

// Succeeded answers a GET with the job's result: 200.
func Succeeded(requestID string, r Result) Reply {
	return Reply{http.StatusOK, 0, marshal(envelope{Status: statusSucceeded, RequestID: requestID, Result: marshal(r.result())})}
}

// Failed answers with an error, to a caller that sends zama-sdk-name (sdk) or not. retryAfter is for 429 and 503; 0 leaves it out.
func Failed(requestID string, e *Error, sdk bool, retryAfter int) Reply {
	return failed(envelope{RequestID: requestID}, e, sdk, retryAfter)
}

func failed(body envelope, e *Error, sdk bool, retryAfter int) Reply {
	if sdk {
		e = e.ForSDK()
	}
	body.Status, body.Error = statusFailed, &errorBody{e.Label, e.Message, e.Details}
	return Reply{e.Status, retryAfter, marshal(body)}
}

// JobFailed answers a GET of a job in timed_out or failure. 400, 503 and 504 also carry job id and state. A job in another state
// gets 500: it has no error.
func JobFailed(requestID string, j Job, sdk bool) Reply {
	e := jobError(j, sdk)
	body := envelope{RequestID: requestID}
	switch e.Status {
	case http.StatusBadRequest, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		body.JobID, body.State = j.ID, j.State
	}
	return failed(body, e, sdk, 0)
}

// jobError puts words to a job's outcome.
func jobError(j Job, sdk bool) *Error {
	o := OutcomeOf(j.State, j.Cause, sdk)
	e := &Error{Status: o.Status, Label: o.Label, Message: bounded(j.Reason, maxReason)}
	switch {
	case o.Label == "" || !j.State.Final():
		return ErrInternal("")
	case o.Label == LabelValidationFailed:
		return ErrInvalidSignature()
	case o.Label == LabelProtocolPaused, o.Label == LabelInsufficientBalance, o.Label == LabelInsufficientAllowance:
		e.Message = operatorMessage(o.Label) // the stored reason is the operator's business
	case e.Message != "":
	case j.State == StateTimedOut:
		e.Message = "Request timed out (reason not available)"
	default:
		e.Message = "Request failed (reason not available)"
	}
	return e
}

// Stored reasons that clients see (relayer reference §1.3).
const (
	ReasonNotReady   = "Ciphertext not ready for decryption on the gateway chain"
	ReasonNoResponse = "Gateway chain did not respond within the expected timeframe"
	ReasonRejected   = "Proof Rejected"
)
