package jsonrpc

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Version is the value of the member jsonrpc in every message.
const Version = "2.0"

// Limits on a client's request (protocol §1).
const (
	// MaxDepth is how many levels of objects and arrays a message may have; the envelope is the first.
	MaxDepth = 64
	// MaxIDBytes is the longest id a client may choose, in bytes.
	MaxIDBytes = 200
	// MaxBatchElements bounds what SplitBatch returns: elements of two bytes each would otherwise cost twelve times their
	// body in memory. A server's own limit on batches (maxBatch) is smaller.
	MaxBatchElements = 4096
)

// Error codes of JSON-RPC 2.0 and of this protocol (protocol §2).
const (
	CodeParseError     = -32700 // the body is not JSON
	CodeInvalidRequest = -32600 // the envelope is wrong, or the request is not authorised
	CodeMethodNotFound = -32601 // unknown method or service
	CodeInvalidParams  = -32602 // params are wrong, or name an unknown workflow
	CodeInternalError  = -32603 // the gateway or the DON could not answer
	CodeLimitExceeded  = -32000 // a rate or a number of open requests was exceeded
	CodeConflict       = -32001 // the request id is in use or was lately
)

// Request is a request, from a client to the gateway or from the gateway to a node.
type Request struct {
	ID     string
	Method string
	Params jsontext.Value // one JSON value; nil is written as null
	Auth   string         // the client's JWT; "" when absent
}

// Response is a response, from a node to the gateway or from the gateway to a client.
type Response struct {
	ID     string
	Method string         // nodes set it; may be ""
	Result jsontext.Value // nil when absent or null
	Error  *Error         // nil when absent or null
}

// Error is the member error of a response.
type Error struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"` // nil when absent or null
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// DecodeError says why a message was refused. Its text is meant for the sender: it names what is wrong and what to do, in bounded
// length, and carries no other error's text.
type DecodeError struct {
	// Parse is true when the message is not JSON as the protocol wants it (CodeParseError: syntax, UTF-8, lone surrogates,
	// trailing data) and false when it is JSON but no valid envelope (CodeInvalidRequest: repeated names, depth, members).
	Parse bool
	// ID is the message's id where a string could be read, even if other parts are wrong; an answer carries it or null.
	ID *string
	// Msg is the text.
	Msg string
}

// Error implements error.
func (e *DecodeError) Error() string { return e.Msg }

// Code returns the JSON-RPC code for e: CodeParseError or CodeInvalidRequest.
func (e *DecodeError) Code() int {
	if e.Parse {
		return CodeParseError
	}
	return CodeInvalidRequest
}

// Validate applies the rules of the client endpoint that DecodeRequest leaves open (protocol §1): an id of 1 to
// [MaxIDBytes] bytes without '/', and a method. The error is a *DecodeError.
func (r *Request) Validate() error {
	switch {
	case r.ID == "":
		return r.invalid("id is empty: send 1 to %d bytes", MaxIDBytes)
	case len(r.ID) > MaxIDBytes:
		return r.invalid("id has %d bytes: send 1 to %d", len(r.ID), MaxIDBytes)
	case hasSlash(r.ID):
		return r.invalid("id contains '/', which is reserved for messages of nodes: leave it out")
	case r.Method == "":
		return r.invalid("method is empty: name the method to call")
	}
	return nil
}

func (r *Request) invalid(format string, args ...any) error {
	id := r.ID
	return &DecodeError{ID: &id, Msg: fmt.Sprintf(format, args...)}
}

func hasSlash(s string) bool {
	for i := range len(s) {
		if s[i] == '/' {
			return true
		}
	}
	return false
}

// Errors of Response.Check.
var (
	errNoOutcome   = errors.New("the response has neither a result nor an error")
	errTwoOutcomes = errors.New("the response has both a result and an error")
)

// Check demands that r has exactly one of result and error.
func (r *Response) Check() error {
	switch {
	case !isSet(r.Result) && r.Error == nil:
		return errNoOutcome
	case isSet(r.Result) && r.Error != nil:
		return errTwoOutcomes
	}
	return nil
}

// isSet reports whether an optional member is there: null counts as not set (protocol §1).
func isSet(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
