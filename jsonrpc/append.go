package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendResult appends the response {jsonrpc, id, method, result} to dst. result must be one JSON value; it is copied as it is.
// Text that is not UTF-8 is written with U+FFFD in its place.
func AppendResult(dst []byte, id, method string, result jsontext.Value) []byte {
	dst = appendText(dst, `{"jsonrpc":"2.0","id":`, id)
	dst = appendText(dst, `,"method":`, method)
	dst = append(append(dst, `,"result":`...), orNull(result)...)
	return append(dst, '}')
}

// AppendError appends the response {jsonrpc, id, error} to dst, with an id of null when id is nil. e.Data must be one JSON
// value or nil, which leaves data out.
func AppendError(dst []byte, id *string, e *Error) []byte {
	if id == nil {
		dst = append(dst, `{"jsonrpc":"2.0","id":null`...)
	} else {
		dst = appendText(dst, `{"jsonrpc":"2.0","id":`, *id)
	}
	return appendErrorMember(dst, e)
}

func appendErrorMember(dst []byte, e *Error) []byte {
	dst = appendInt(append(dst, `,"error":{"code":`...), e.Code)
	dst = appendText(dst, `,"message":`, e.Message)
	if len(e.Data) > 0 {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, "}}"...)
}

// AppendNodeError appends the response {jsonrpc, id, method, error} to dst: an
// error on which nodes agreed, with the method they set. See AppendError.
func AppendNodeError(dst []byte, id, method string, e *Error) []byte {
	dst = appendText(dst, `{"jsonrpc":"2.0","id":`, id)
	dst = appendText(dst, `,"method":`, method)
	return appendErrorMember(dst, e)
}

// AppendRequest appends the request {jsonrpc, id, method, params} to dst, and auth when r has one. r.Params must be one JSON
// value, or nil for null; it is copied as it is.
func AppendRequest(dst []byte, r *Request) []byte {
	dst = appendText(dst, `{"jsonrpc":"2.0","id":`, r.ID)
	dst = appendText(dst, `,"method":`, r.Method)
	dst = append(append(dst, `,"params":`...), orNull(r.Params)...)
	if r.Auth != "" {
		dst = appendText(dst, `,"auth":`, r.Auth)
	}
	return append(dst, '}')
}

func appendText(dst []byte, prefix, s string) []byte {
	dst, _ = jsontext.AppendQuote(append(dst, prefix...), s) // the error tells of replaced UTF-8
	return dst
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
