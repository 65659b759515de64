package fhevm

import "net/http"

// State is where a job stands; the text is what the database and the API use (relayer reference §2.4).
type State string

// The states. The last three are final.
const (
	StateQueued          State = "queued"           // waits for its ciphertexts to be ready
	StateProcessing      State = "processing"       // waits for its transaction to be made
	StateTxInFlight      State = "tx_in_flight"     // a transaction is signed and may have been sent
	StateReceiptReceived State = "receipt_received" // the gateway contract has taken the request; waits for the response
	StateCompleted       State = "completed"
	StateTimedOut        State = "timed_out"
	StateFailure         State = "failure"
)

// States lists every state, in the order in which a job passes them.
var States = []State{StateQueued, StateProcessing, StateTxInFlight, StateReceiptReceived, StateCompleted, StateTimedOut, StateFailure}

// Final reports whether a job in this state never changes again.
func (s State) Final() bool { return s == StateCompleted || s == StateTimedOut || s == StateFailure }

// FirstState returns the state in which a job of the kind is made: an input proof has no readiness stage.
func FirstState(k Kind) State {
	if k == KindInputProof {
		return StateProcessing
	}
	return StateQueued
}

// Cause is the machine-readable reason of a timeout or failure (err_code). It is stored when it happens and is never recovered
// from a text.
type Cause string

// The causes. CauseNone stands for a reason that is not among them.
const (
	CauseNone                  Cause = ""
	CauseReadinessTimedOut     Cause = "readiness_check_timed_out" // the ciphertexts did not arrive in time
	CauseResponseTimedOut      Cause = "response_timed_out"        // the gateway chain did not answer in time
	CauseReadinessFailed       Cause = "readiness_check_failed"    // the readiness view reverts
	CauseNotAllowedOnHostACL   Cause = "not_allowed_on_host_acl"   // a host chain says no
	CauseHostACLFailed         Cause = "host_acl_failed"           // a host chain does not say
	CauseInvalidSignature      Cause = "invalid_signature"         // the contract refused the user's signature
	CauseProtocolPaused        Cause = "protocol_paused"
	CauseInsufficientBalance   Cause = "insufficient_balance"
	CauseInsufficientAllowance Cause = "insufficient_allowance"
	CauseReverted              Cause = "reverted"           // the contract refused for another reason
	CauseTransactionFailed     Cause = "transaction_failed" // the transaction cannot be sent
	CauseInternal              Cause = "internal"           // a fault of ours, such as a stored row that cannot be read
)

// Causes lists every cause.
var Causes = []Cause{
	CauseNone, CauseReadinessTimedOut, CauseResponseTimedOut, CauseReadinessFailed, CauseNotAllowedOnHostACL, CauseHostACLFailed,
	CauseInvalidSignature, CauseProtocolPaused, CauseInsufficientBalance, CauseInsufficientAllowance, CauseReverted,
	CauseTransactionFailed, CauseInternal,
}

// Outcome is what a GET answers: an HTTP status and, where it is an error, a label.
type Outcome struct {
	Status int
	Label  Label // "" with 200 and 202
}

// StatusRow is one line of the table from a job's state to its answer.
type StatusRow struct {
	State   State
	Cause   Cause // CauseNone stands for every cause without a row of its own
	Outcome Outcome
	// SDK is the outcome for a caller that sends zama-sdk-name.
	SDK Outcome
}

// statusTable is the whole mapping; docs and tests are made from it.
var statusTable = []StatusRow{
	same(StateQueued, CauseNone, http.StatusAccepted, ""),
	same(StateProcessing, CauseNone, http.StatusAccepted, ""),
	same(StateTxInFlight, CauseNone, http.StatusAccepted, ""),
	same(StateReceiptReceived, CauseNone, http.StatusAccepted, ""),
	same(StateCompleted, CauseNone, http.StatusOK, ""),
	{StateTimedOut, CauseNone, Outcome{http.StatusGatewayTimeout, LabelResponseTimedOut}, Outcome{http.StatusServiceUnavailable, LabelResponseTimedOut}},
	{StateTimedOut, CauseReadinessTimedOut, Outcome{http.StatusGatewayTimeout, LabelReadinessCheckTimedOut}, Outcome{http.StatusServiceUnavailable, LabelReadinessCheckTimedOut}},
	same(StateFailure, CauseNone, http.StatusBadRequest, LabelRequestError),
	same(StateFailure, CauseNotAllowedOnHostACL, http.StatusBadRequest, LabelNotAllowedOnHostACL),
	same(StateFailure, CauseInvalidSignature, http.StatusBadRequest, LabelValidationFailed),
	{StateFailure, CauseHostACLFailed, Outcome{http.StatusInternalServerError, LabelHostACLFailed}, Outcome{http.StatusInternalServerError, LabelInternalServerError}},
	same(StateFailure, CauseProtocolPaused, http.StatusServiceUnavailable, LabelProtocolPaused),
	same(StateFailure, CauseInsufficientBalance, http.StatusServiceUnavailable, LabelInsufficientBalance),
	same(StateFailure, CauseInsufficientAllowance, http.StatusServiceUnavailable, LabelInsufficientAllowance),
}

func same(s State, c Cause, status int, l Label) StatusRow {
	o := Outcome{status, l}
	return StatusRow{s, c, o, o}
}

// StatusTable returns a copy of the table from state and cause to answer.
func StatusTable() []StatusRow { return append([]StatusRow(nil), statusTable...) }

// OutcomeOf returns the answer for a job, to a caller that sends zama-sdk-name (sdk) or not. A state that is not one of
// [States] is 500, internal_server_error.
func OutcomeOf(s State, c Cause, sdk bool) Outcome {
	out := Outcome{http.StatusInternalServerError, LabelInternalServerError}
	for _, row := range statusTable {
		if row.State != s || row.Cause != c && row.Cause != CauseNone {
			continue
		}
		out = row.Outcome
		if sdk {
			out = row.SDK
		}
		if row.Cause == c {
			return out
		}
	}
	return out
}
