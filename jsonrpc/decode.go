package jsonrpc

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// DecodeRequest decodes one request as a client sends it (protocol §1): one JSON object of valid UTF-8 without lone
// surrogates, no member name repeated anywhere, at most [MaxDepth] levels, jsonrpc "2.0", id and method strings, params present and not
// null, auth a string where present. Unknown members are ignored. [Request.Validate] has the rules for the values of id
// and method. Params aliases data. The error is a *DecodeError.
func DecodeRequest(data []byte) (Request, error) {
	r, err := decodeRequest(data)
	if err == nil && !isSet(r.Params) {
		if r.Params == nil {
			return Request{}, r.invalid("params is missing: send an object")
		}
		return Request{}, r.invalid("params is null: send an object")
	}
	return r, err
}

// DecodeNodeRequest decodes one request as the gateway sends it to a node: as [DecodeRequest], but params may be null or
// absent, which leaves Params nil (a pull of metadata has none, protocol §6).
func DecodeNodeRequest(data []byte) (Request, error) {
	r, err := decodeRequest(data)
	if !isSet(r.Params) {
		r.Params = nil
	}
	return r, err
}

func decodeRequest(data []byte) (Request, error) {
	var r Request
	var version, id, method, auth jsontext.Value
	err := members(data, func(name, value []byte) {
		switch string(name) {
		case "jsonrpc":
			version = value
		case "id":
			id = value
		case "method":
			method = value
		case "params":
			r.Params = value
		case "auth":
			auth = value
		}
	})
	if err != nil {
		return Request{}, err
	}
	e := envelope{data: data}
	e.version(version)
	r.ID = e.text("id", id, required)
	r.Method = e.text("method", method, required)
	r.Auth = e.text("auth", auth, optional)
	if e.err != nil {
		return Request{}, e.err
	}
	return r, nil
}

// DecodeResponse decodes one response (protocol §1) with the strictness of [DecodeRequest]. A result, error or data of null counts
// as not set, an id of null as ""; method may be absent. Having neither a result nor an error, or both, is left to
// [Response.Check]. Result and Error.Data alias data. The error is a *DecodeError.
func DecodeResponse(data []byte) (Response, error) {
	var r Response
	var version, id, method, failure jsontext.Value
	err := members(data, func(name, value []byte) {
		switch string(name) {
		case "jsonrpc":
			version = value
		case "id":
			id = value
		case "method":
			method = value
		case "result":
			if isSet(value) {
				r.Result = value
			}
		case "error":
			failure = value
		}
	})
	if err != nil {
		return Response{}, err
	}
	e := envelope{data: data}
	e.version(version)
	if id.Kind() != 'n' {
		r.ID = e.text("id", id, required)
	}
	r.Method = e.text("method", method, optional)
	if isSet(failure) {
		r.Error = e.failure(failure)
	}
	if e.err != nil {
		return Response{}, e.err
	}
	return r, nil
}

// members calls use with each member of the object that is data, and decides what kind of failure it is if it is none. Members
// that come before a fault are used too.
func members(data []byte, use func(name, value []byte)) error {
	if deepest, _ := scanDepth(data); deepest > MaxDepth {
		if !isJSON(data) {
			return parseError(data, nil)
		}
		return invalidRequest(data, "the message is nested %d levels deep: use at most %d", deepest, MaxDepth)
	}
	switch ok, err := eachMember(data, use, jsontext.AllowDuplicateNames(true)); {
	case err != nil:
		return parseError(data, err)
	case !ok:
		return invalidRequest(data, "the message is %s: send one JSON object", describeKind(data))
	}
	if at := repeatedName(data); at >= 0 {
		return invalidRequest(data, "the member %s is there twice: send each name once", quoteShort(pointerAt(data, at)))
	}
	return nil
}

// eachMember calls use with each member of the object that is data. ok is false when data is another kind of JSON value.
func eachMember(data []byte, use func(name, value []byte), opts ...jsontext.Options) (ok bool, err error) {
	r := newObjectReader(data, opts...)
	defer r.free()
	if ok, err = r.open(); !ok || err != nil {
		return ok, err
	}
	for {
		name, value, err := r.next()
		if name == nil || err != nil {
			return true, err
		}
		use(name, value)
	}
}

func invalidRequest(data []byte, format string, args ...any) error {
	return &DecodeError{ID: readID(data), Msg: fmt.Sprintf(format, args...)}
}

// parseError describes text that is not JSON as the protocol wants it. err is the decoder's error, nil if it did not run.
func parseError(data []byte, err error) error {
	var syntax *jsontext.SyntacticError
	var trailing *trailingError
	msg := "the message is not valid JSON"
	switch {
	case !utf8.Valid(data):
		msg += ": it is not UTF-8 at byte " + strconv.Itoa(invalidUTF8(data))
	case errors.As(err, &trailing):
		msg += ": " + trailing.Error()
	case errors.As(err, &syntax):
		if jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			msg += fmt.Sprintf(": a lone surrogate at byte %d", syntax.ByteOffset)
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			msg += fmt.Sprintf(": it ends too early, at byte %d", len(data))
		} else {
			msg += fmt.Sprintf(": syntax error at byte %d", syntax.ByteOffset)
		}
	case errors.Is(err, io.ErrUnexpectedEOF): // without a position: nothing but white space was there
		msg += ": it is empty"
	}
	return &DecodeError{Parse: true, ID: readID(data), Msg: msg}
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// readID looks for the id in a message that was refused, forgiving whatever it can: the sender wants to know which of its
// requests failed. Of two different ids it reads none.
func readID(data []byte) *string {
	var found *string
	unclear := false
	_, _ = eachMember(data, func(name, value []byte) {
		if string(name) != "id" {
			return
		}
		text, err := jsontext.AppendUnquote(nil, value)
		id := string(text)
		unclear = unclear || err != nil || found != nil && *found != id
		found = &id
	}, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if unclear {
		return nil
	}
	return found
}

// presence says whether a member must be there.
type presence bool

const (
	required presence = true
	optional presence = false
)

// envelope checks the types of members and keeps the first error.
type envelope struct {
	data []byte
	err  error
}

func (e *envelope) fail(format string, args ...any) {
	if e.err == nil {
		e.err = invalidRequest(e.data, format, args...)
	}
}

func (e *envelope) version(v jsontext.Value) {
	if string(v) != `"2.0"` && (v.Kind() != '"' || string(unquote(v)) != Version) {
		if v == nil {
			e.fail(`jsonrpc is missing: send "2.0"`)
			return
		}
		e.fail(`jsonrpc is not "2.0": send the string "2.0"`)
	}
}

func (e *envelope) text(name string, v jsontext.Value, p presence) string {
	if v.Kind() == '"' {
		return string(unquote(v))
	}
	switch {
	case v != nil:
		e.fail("%s is %s: send a string", name, describeKind(v))
	case p == required:
		e.fail("%s is missing: send a string", name)
	}
	return ""
}

// failure decodes the member error: code an integer, message a string, data anything.
func (e *envelope) failure(v jsontext.Value) *Error {
	if v.Kind() != '{' {
		e.fail("error is %s: send an object with code and message", describeKind(v))
		return nil
	}
	var out Error
	var code, message jsontext.Value
	if _, err := eachMember(v, func(name, value []byte) {
		switch string(name) {
		case "code":
			code = value
		case "message":
			message = value
		case "data":
			if isSet(value) {
				out.Data = value
			}
		}
	}, jsontext.AllowDuplicateNames(true)); err != nil { // cannot happen: v was checked as a part of the message
		e.fail("error is not an object")
		return nil
	}
	n, err := strconv.Atoi(string(code))
	if code.Kind() != '0' || err != nil {
		e.fail("error.code is not an integer: send a number such as %d", CodeInternalError)
	}
	out.Code = n
	out.Message = e.text("error.message", message, required)
	return &out
}

// maxQuoted bounds how many bytes of a sender's text an error repeats.
const maxQuoted = 40

func quoteShort(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	n := maxQuoted
	for n > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return strconv.Quote(s[:n]) + "…"
}
