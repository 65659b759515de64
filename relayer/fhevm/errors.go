package fhevm

import (
	"fmt"
	"net/http"
	"strings"
)

// Label is the machine-readable name of an error in the HTTP API (relayer reference §1.3).
type Label string

// The labels.
const (
	LabelMalformedJSON          Label = "malformed_json"
	LabelMissingFields          Label = "missing_fields"
	LabelValidationFailed       Label = "validation_failed"
	LabelRequestError           Label = "request_error"
	LabelHostChainNotSupported  Label = "host_chain_id_not_supported"
	LabelNotAllowedOnHostACL    Label = "not_allowed_on_host_acl"
	LabelUnauthorized           Label = "unauthorized" // ours; the name the SDK gives a 401, whose body it does not read
	LabelNotFound               Label = "not_found"
	LabelRateLimited            Label = "rate_limited"
	LabelInternalServerError    Label = "internal_server_error"
	LabelHostACLFailed          Label = "host_acl_failed"
	LabelReadinessCheckTimedOut Label = "readiness_check_timed_out"
	LabelResponseTimedOut       Label = "response_timed_out"
	LabelProtocolPaused         Label = "protocol_paused"
	LabelInsufficientBalance    Label = "insufficient_balance"
	LabelInsufficientAllowance  Label = "insufficient_allowance"
	LabelGatewayNotReachable    Label = "gateway_not_reachable"
)

// Labels lists every label.
var Labels = []Label{
	LabelMalformedJSON, LabelMissingFields, LabelValidationFailed, LabelRequestError, LabelHostChainNotSupported,
	LabelNotAllowedOnHostACL, LabelUnauthorized, LabelNotFound, LabelRateLimited, LabelInternalServerError, LabelHostACLFailed,
	LabelReadinessCheckTimedOut, LabelResponseTimedOut, LabelProtocolPaused, LabelInsufficientBalance,
	LabelInsufficientAllowance, LabelGatewayNotReachable,
}

// Detail says what is wrong with one field of a request.
type Detail struct {
	Field string `json:"field"` // camelCase, nested names dotted, list positions in brackets
	Issue string `json:"issue"`
}

// Error is what the HTTP API answers instead of a result. Its text is for the caller and holds nothing internal.
type Error struct {
	Status  int // HTTP status
	Label   Label
	Message string
	Details []Detail // only with missing_fields and validation_failed, and then at least one

	// sdkField is the field that the detail names where the SDK gets validation_failed for another label.
	sdkField string
}

// Error returns label, message and details on one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Label, e.Message)
	for _, d := range e.Details {
		fmt.Fprintf(&b, "; %s: %s", d.Field, d.Issue)
	}
	return b.String()
}

// ForSDK returns the error as it goes to a caller that sends the header zama-sdk-name: that SDK gives up on statuses and
// labels it does not know, so it gets those next to them. e itself is not changed.
func (e *Error) ForSDK() *Error {
	out := *e
	switch e.Status {
	case http.StatusRequestEntityTooLarge, http.StatusMethodNotAllowed:
		out.Status = http.StatusBadRequest
	case http.StatusGatewayTimeout:
		out.Status = http.StatusServiceUnavailable
	}
	switch e.Label {
	case LabelHostChainNotSupported:
		out.Label = LabelValidationFailed
		field := e.sdkField
		if field == "" {
			field = requestField
		}
		out.Details = []Detail{{field, e.Message}} // the SDK insists on details with this label
	case LabelHostACLFailed:
		out.Label = LabelInternalServerError
	}
	return &out
}

// requestField stands in a detail for the request as a whole.
const requestField = "request"

// Issue texts that clients may compare with (relayer reference §1.4), and ours for rules it has no text for.
const (
	issueMissing      = "Required but missing"
	issueUnknown      = "Unknown field"
	issueType         = "Invalid data type"
	issueString       = "Value must be a string"
	issuePrefix       = "Must start with 0x"
	issueNoPrefix     = "Must not start with 0x"
	issueLength42     = "Must be 42 characters long"
	issueLength64     = "Must be 64 characters long"
	issueLength130    = "Must be 130 characters long"
	issueAddressHex   = "Contains invalid hex characters"
	issueHex          = "Invalid hex string"
	issueEmpty        = "Must not be empty"
	issueChainID      = "Must be decimal number or 0x hex string"
	issueFuture       = "Timestamp must not be in the future"
	issueU32          = "Value must be a valid u32 number"
	issueU64          = "Value must be a valid u64 number"
	issueU256         = "Value must be a valid U256 number"
	issueExpired      = "requestValidity window has already expired"
	issueAttestation  = "Unsupported attestationType; expected one of: [" + attestationUnified + "]"
	issueVersion      = `Unsupported version; expected "` + payloadVersion + `"`
	issuePayloadType  = `Unsupported payload type; expected "` + payloadType + `"`
	issueProofExtra   = "Must be 0x00"
	issueExtraData    = "Must be 0x00, 0x01 and a contextId, or 0x02, a contextId and an epochId; each id is 32 bytes, a contextId begins with 07, an epochId with 08"
	issueSignature    = "Signature is invalid"
	issueOneHostChain = "All handles must belong to one host chain"
	issueJobID        = "Must be a UUID"
)

// errMalformedJSON is the answer to a body that is not JSON with one meaning: repeated names count as malformed.
func errMalformedJSON() *Error {
	return &Error{Status: http.StatusBadRequest, Label: LabelMalformedJSON, Message: "Invalid JSON format"}
}

func errMissing(details []Detail) *Error {
	plural := "s"
	if len(details) == 1 {
		plural = ""
	}
	return &Error{
		Status: http.StatusBadRequest, Label: LabelMissingFields, Details: details,
		Message: fmt.Sprintf("Missing %d required field%s in the request: %s", len(details), plural, fieldNames(details)),
	}
}

func errValidation(details ...Detail) *Error {
	plural := "s"
	if len(details) == 1 {
		plural = ""
	}
	return &Error{
		Status: http.StatusBadRequest, Label: LabelValidationFailed, Details: details,
		Message: fmt.Sprintf("Validation failed for %d field%s in the request: %s", len(details), plural, fieldNames(details)),
	}
}

func fieldNames(details []Detail) string {
	names := make([]string, len(details))
	for i, d := range details {
		names[i] = d.Field
	}
	return strings.Join(names, ", ")
}

// ErrBodyTooLarge is the answer to a body of more than [MaxBodyBytes] bytes.
func ErrBodyTooLarge() *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Label: LabelRequestError, Message: fmt.Sprintf("Request body is larger than %d bytes", MaxBodyBytes)}
}

// ErrBodyUnreadable is the answer to a body that broke off or could not be read.
func ErrBodyUnreadable() *Error {
	return &Error{Status: http.StatusBadRequest, Label: LabelRequestError, Message: "Failed to read request body"}
}

// ErrMethodNotAllowed is the answer to another method than the path has.
func ErrMethodNotAllowed() *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Label: LabelRequestError, Message: "Method not allowed"}
}

// ErrUnauthorized is the answer to a caller without a known API key where keys are asked for (401).
func ErrUnauthorized() *Error {
	return &Error{Status: http.StatusUnauthorized, Label: LabelUnauthorized, Message: "Missing or invalid API key"}
}

// ErrPathNotFound is the answer on a path that does not exist.
func ErrPathNotFound() *Error {
	return &Error{Status: http.StatusNotFound, Label: LabelNotFound, Message: "No such path"}
}

// ErrJobNotFound is the answer to a well-formed job id that no job has.
func ErrJobNotFound() *Error {
	return &Error{Status: http.StatusNotFound, Label: LabelNotFound, Message: "Request not found"}
}

// ErrJobIDMalformed is the answer to a job id that is not a UUID.
func ErrJobIDMalformed() *Error { return errValidation(Detail{"job_id", issueJobID}) }

// ErrOverloaded is the answer to a new request while the queue is full (429).
func ErrOverloaded() *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Label: LabelRateLimited,
		Message: "Server is experiencing high processing load: relayer is currently processing too many requests",
	}
}

// ErrQuotaExceeded is the answer to a caller past its own rate (429).
func ErrQuotaExceeded() *Error {
	return &Error{Status: http.StatusTooManyRequests, Label: LabelRateLimited, Message: "Rate limit exceeded: send fewer requests"}
}

// ErrInternal is the answer where the relayer itself failed. Pass "" for the text of a POST.
func ErrInternal(message string) *Error {
	if message == "" {
		message = "Internal server error"
	}
	return &Error{Status: http.StatusInternalServerError, Label: LabelInternalServerError, Message: message}
}

// ErrDatabase is the answer to a GET while the database does not answer.
func ErrDatabase() *Error { return ErrInternal("Database error") }

// ErrInvalidSignature is the answer where the user's signature does not hold (relayer reference §1.3, §6.9). Its message has
// a form of its own.
func ErrInvalidSignature() *Error {
	return &Error{
		Status: http.StatusBadRequest, Label: LabelValidationFailed,
		Message: "Validation failed for 1 field(s)", Details: []Detail{{"signature", issueSignature}},
	}
}

// ErrOperator is the answer before a request is accepted while the relayer cannot send for a cause on the operator's side: l is
// [LabelProtocolPaused], [LabelInsufficientBalance], [LabelInsufficientAllowance] or [LabelGatewayNotReachable] (503).
func ErrOperator(l Label) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Label: l, Message: operatorMessage(l)}
}

func operatorMessage(l Label) string {
	switch l {
	case LabelProtocolPaused:
		return "The protocol is paused"
	case LabelInsufficientBalance:
		return "The relayer's balance does not cover the fee"
	case LabelInsufficientAllowance:
		return "The relayer's allowance does not cover the fee"
	default:
		return "The gateway chain cannot be reached"
	}
}
