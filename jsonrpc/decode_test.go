package jsonrpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nested returns text with the given number of nested arrays around 1.
func nested(levels int) string {
	return strings.Repeat("[", levels) + "1" + strings.Repeat("]", levels)
}

// request returns a request whose params are the given text.
func request(params string) string {
	return `{"jsonrpc":"2.0","id":"a","method":"m","params":` + params + `}`
}

// refusal is one message that must be refused.
type refusal struct {
	name, data string
	parse      bool   // parse_error, else invalid_request
	id         string // "" is none
	says       string // part of the text
}

func (c refusal) check(t *testing.T, err error) {
	t.Helper()
	var refused *DecodeError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, c.parse, refused.Parse, refused.Msg)
	if c.id == "" {
		require.Nil(t, refused.ID)
	} else {
		require.NotNil(t, refused.ID, "the id can be read")
		require.Equal(t, c.id, *refused.ID)
	}
	require.Contains(t, refused.Msg, c.says)
	require.LessOrEqual(t, len(refused.Msg), 300)
	require.NotContains(t, refused.Msg, "json:", "a library's words are not for the sender")
	require.NotContains(t, refused.Msg, "jsontext")
	want := CodeInvalidRequest
	if c.parse {
		want = CodeParseError
	}
	require.Equal(t, want, refused.Code())
}

func runRefusals(t *testing.T, decode func([]byte) error, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t, decode([]byte(c.data)))
		})
	}
}

func decodeRequestError(data []byte) error {
	_, err := DecodeRequest(data)
	return err
}

// conformance: 1.text.unicode
// conformance: 1.envelope.one
func TestDecodeRequestParseErrors(t *testing.T) {
	t.Parallel()
	runRefusals(t, decodeRequestError, []refusal{
		{"empty", "", true, "", "empty"},
		{"white space alone", " \n\t\r", true, "", "empty"},
		{"not JSON", "hello", true, "", "syntax error at byte 0"},
		{"truncated", `{"jsonrpc":"2.0","id":"a","met`, true, "a", "ends too early"},
		{"truncated in an escape", `{"id":"a","x":"\u12`, true, "a", "ends too early"},
		{"trailing object", request("{}") + " {}", true, "a", "data follows"},
		{"trailing word", request("{}") + " x", true, "a", "data follows"},
		{"trailing closing brace", request("{}") + "}", true, "a", "data follows"},
		{"trailing zero byte", request("{}") + "\x00", true, "a", "data follows"},
		{"two values of another kind", `1 2`, true, "", "data follows"},
		{"byte order mark", "\ufeff" + request("{}"), true, "", "syntax error at byte 0"},
		{"UTF-8 in a string", request("\"\xff\""), true, "a", "not UTF-8 at byte 49"},
		{"UTF-8 in a name", request("{\"\xc3\x28\":1}"), true, "a", "not UTF-8"},
		{"UTF-8 in an ignored member", "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"m\",\"params\":{},\"x\":\"\xed\xa0\x80\"}", true, "a", "not UTF-8"},
		{"UTF-8 in the id", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"m\",\"params\":{}}", true, "", "not UTF-8"},
		{"UTF-8 outside strings", request("{}\xff"), true, "a", "not UTF-8"},
		{"overlong UTF-8", request("\"\xc0\xaf\""), true, "a", "not UTF-8"},
		{"UTF-16", "\xff\xfe{\x00}\x00", true, "", "not UTF-8 at byte 0"},
		{"high surrogate alone", request(`"\ud83d"`), true, "a", "lone surrogate at byte 49"},
		{"low surrogate alone", request(`"\ude00"`), true, "a", "lone surrogate"},
		{"surrogates in the wrong order", request(`"\ude00\ud83d"`), true, "a", "lone surrogate"},
		{"high surrogate and a letter", request(`"\ud83dx"`), true, "a", "lone surrogate"},
		{"surrogate in a name", request(`{"\udc00":1}`), true, "a", "lone surrogate"},
		{"surrogate in the id", `{"jsonrpc":"2.0","id":"\ud800","method":"m","params":{}}`, true, "", "lone surrogate"},
		{"surrogate in an ignored member", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"x":"\ud800"}`, true, "a", "lone surrogate"},
		{"no JSON and a repeated name", `{"id":"a","x":1,"x":2,`, true, "a", "not valid JSON"},
		{"no JSON and too deep", `{"id":"a","x":` + nested(70), true, "a", "not valid JSON"},
		{"very deep and unclosed", `{"id":"a","x":` + strings.Repeat("[", 200_000), true, "a", "not valid JSON"},
	})
}

// What JSON's grammar forbids (RFC 8259), each a params value of an otherwise good request.
//
// conformance: 1.envelope.one
func TestDecodeRequestGrammar(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"01", "-", "+1", "1.", ".1", "1e", "1e+", "0x10", "1_000", "--1", "-01", "1.2.3", "1e2e3", "NaN", "Infinity", "-Infinity", "١", "1 2",
		"'a'", `"a`, `a"`, `"\x41"`, `"\u12g4"`, `"\u12"`, `"\ "`, "\"\t\"", "\"\n\"", "\"\x00\"", "\"\x1f\"", `"\`, `"\u`, `"\U0041"`,
		"[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1,,2]", "[1:2]", "[1}", "[\"a\"", "[[1]",
		"{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a"::1}`, `{"a":1,,"b":2}`, `{null:1}`, `{"a":1]`, `{,}`, `{"a"}`,
		"tru", "True", "TRUE", "truee", "nul", "nil", "undefined", "falsee", "fals",
		"{}/**/", "{}//", "# a", "/**/{}", "\u00a0{}", "\v{}", "\f{}", "\u2028{}", "{}\u00a0",
	} {
		_, err := DecodeRequest([]byte(request(text)))
		var refused *DecodeError
		require.ErrorAs(t, err, &refused, "%q", text)
		require.True(t, refused.Parse, "%q: %s", text, refused.Msg)
	}
}

// conformance: 1.names.case
// conformance: 1.names.duplicates
func TestDecodeRequestNames(t *testing.T) {
	t.Parallel()
	runRefusals(t, decodeRequestError, []refusal{
		{"repeated in params", request(`{"a":1,"a":2}`), false, "a", `"/params/a" is there twice`},
		{"repeated through an escape", request(`{"a":1,"\u0061":2}`), false, "a", "is there twice"},
		{"repeated deep inside", request(`{"x":[{"y":{"b":1,"c":2,"b":1}}]}`), false, "a", `"/params/x/0/y/b" is there twice`},
		{"empty name repeated", request(`{"":1,"":2}`), false, "a", "is there twice"},
		{"repeated params", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"params":{}}`, false, "a", `"/params" is there twice`},
		{"repeated ignored member", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"x":1,"x":1}`, false, "a", "is there twice"},
		{"repeated inside an ignored member", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"x":{"y":1,"y":1}}`, false, "a", "is there twice"},
		{"one id twice", `{"jsonrpc":"2.0","id":"a","id":"a","method":"m","params":{}}`, false, "a", `"/id" is there twice`},
		{"two ids", `{"jsonrpc":"2.0","id":"a","id":"b","method":"m","params":{}}`, false, "", `"/id" is there twice`},
		{"id in another case", `{"jsonrpc":"2.0","ID":"a","method":"m","params":{}}`, false, "", "id is missing"},
		{"method in another case", `{"jsonrpc":"2.0","id":"a","Method":"m","params":{}}`, false, "a", "method is missing"},
		{"params in another case", `{"jsonrpc":"2.0","id":"a","method":"m","PARAMS":{}}`, false, "a", "params is missing"},
		{"jsonrpc in another case", `{"jsonRPC":"2.0","id":"a","method":"m","params":{}}`, false, "a", "jsonrpc is missing"},
		{"long repeated name", request(`{"` + strings.Repeat("é", 5000) + `":1,"` + strings.Repeat("é", 5000) + `":1}`), false, "a", "is there twice"},
	})

	r, err := DecodeRequest([]byte(`{"Params":1,"ID":7,"jsonrpc":"2.0","id":"a","AUTH":3,"method":"m","params":[]}`))
	require.NoError(t, err, "a name in another case is an unknown member")
	require.Equal(t, Request{ID: "a", Method: "m", Params: []byte("[]")}, r)
}

// conformance: 1.nesting
func TestDecodeRequestDepth(t *testing.T) {
	t.Parallel()
	_, err := DecodeRequest([]byte(request(nested(MaxDepth - 1))))
	require.NoError(t, err, "the envelope is the first level")
	_, err = DecodeRequest([]byte(request(`"` + strings.Repeat("[{", 1000) + `"`)))
	require.NoError(t, err, "brackets in a string are no nesting")
	_, err = DecodeRequest([]byte(request(`["\"` + strings.Repeat("[", 100) + `"]`)))
	require.NoError(t, err, "an escaped quote does not end a string")
	runRefusals(t, decodeRequestError, []refusal{
		{"one too many", request(nested(MaxDepth)), false, "a", "nested 65 levels deep: use at most 64"},
		{"objects", request(strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth)), false, "a", "nested 65 levels"},
		{"in an ignored member", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"x":` + nested(MaxDepth) + `}`, false, "a", "nested 65 levels"},
		{"deeper than parsers go", request(nested(200_000)), false, "a", "nested 200001 levels"},
		{"and a repeated name", request(`{"a":1,"a":` + nested(MaxDepth) + `}`), false, "a", "levels deep"},
	})
}

// conformance: 1.envelope.types
// conformance: 1.limit.params
func TestDecodeRequestMembers(t *testing.T) {
	t.Parallel()
	runRefusals(t, decodeRequestError, []refusal{
		{"number", `5`, false, "", "a number: send one JSON object"},
		{"string", `"x"`, false, "", "a string: send one JSON object"},
		{"null", `null`, false, "", "null: send one JSON object"},
		{"boolean", `true`, false, "", "a boolean: send one JSON object"},
		{"array", `[` + request("{}") + `]`, false, "", "an array: send one JSON object"},
		{"empty object", `{}`, false, "", "jsonrpc is missing"},
		{"version missing", `{"id":"a","method":"m","params":{}}`, false, "a", `jsonrpc is missing: send "2.0"`},
		{"other version", `{"jsonrpc":"1.0","id":"a","method":"m","params":{}}`, false, "a", `jsonrpc is not "2.0"`},
		{"version a number", `{"jsonrpc":2.0,"id":"a","method":"m","params":{}}`, false, "a", `jsonrpc is not "2.0"`},
		{"version null", `{"jsonrpc":null,"id":"a","method":"m","params":{}}`, false, "a", `jsonrpc is not "2.0"`},
		{"version an object", `{"jsonrpc":{"2.0":"2.0"},"id":"a","method":"m","params":{}}`, false, "a", `jsonrpc is not "2.0"`},
		{"id missing", `{"jsonrpc":"2.0","method":"m","params":{}}`, false, "", "id is missing"},
		{"id a number", `{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`, false, "", "id is a number: send a string"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"m","params":{}}`, false, "", "id is null: send a string"},
		{"id an array", `{"jsonrpc":"2.0","id":["a"],"method":"m","params":{}}`, false, "", "id is an array"},
		{"method missing", `{"jsonrpc":"2.0","id":"a","params":{}}`, false, "a", "method is missing"},
		{"method a boolean", `{"jsonrpc":"2.0","id":"a","method":true,"params":{}}`, false, "a", "method is a boolean"},
		{"method null", `{"jsonrpc":"2.0","id":"a","method":null,"params":{}}`, false, "a", "method is null"},
		{"params missing", `{"jsonrpc":"2.0","id":"a","method":"m"}`, false, "a", "params is missing"},
		{"params null", request("null"), false, "a", "params is null"},
		{"auth a number", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"auth":1}`, false, "a", "auth is a number"},
		{"auth null", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"auth":null}`, false, "a", "auth is null"},
		{"auth an object", `{"jsonrpc":"2.0","id":"a","method":"m","params":{},"auth":{}}`, false, "a", "auth is an object"},
		{"id after the wrong member", `{"jsonrpc":1,"params":null,"id":"\u0061"}`, false, "a", "jsonrpc"},
	})
}

func TestDecodeRequestAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data string
		want Request
	}{
		{request("{}"), Request{ID: "a", Method: "m", Params: []byte("{}")}},
		{" \r\n\t" + request(" [ 1 , 2.50 ] ") + "\n ", Request{ID: "a", Method: "m", Params: []byte("[ 1 , 2.50 ]")}},
		{`{"auth":"t","params":"x","method":"\u006d","id":"\u00e9\ud83d\ude00\"\\\/","jsonrpc":"2\u002e0"}`, Request{ID: `é😀"\/`, Method: "m", Params: []byte(`"x"`), Auth: "t"}},
		{`{"\u0069d":"a","jsonrpc":"2.0","method":"m","params":0}`, Request{ID: "a", Method: "m", Params: []byte("0")}},
		{`{"jsonrpc":"2.0","id":"","method":"","params":false,"auth":""}`, Request{Params: []byte("false")}},
		{request(`"` + "\u2028\u007f\ufffe\U0010ffff" + `"`), Request{ID: "a", Method: "m", Params: []byte(`"` + "\u2028\u007f\ufffe\U0010ffff" + `"`)}},
		{request(`-0.0E-7`), Request{ID: "a", Method: "m", Params: []byte(`-0.0E-7`)}},
	} {
		got, err := DecodeRequest([]byte(c.data))
		require.NoError(t, err, c.data)
		require.Equal(t, c.want, got)
	}
}

// conformance: 1.limit.id
// conformance: 1.limit.method
func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id, method, says string
	}{
		{"a", "m", ""},
		{strings.Repeat("x", MaxIDBytes), "m", ""},
		{strings.Repeat("é", MaxIDBytes/2), "m", ""},
		{"", "m", "id is empty"},
		{strings.Repeat("x", MaxIDBytes+1), "m", "id has 201 bytes"},
		{strings.Repeat("é", MaxIDBytes/2+1), "m", "id has 202 bytes"},
		{"/", "m", "'/'"},
		{"a/b", "m", "'/'"},
		{"a", "", "method is empty"},
	} {
		err := (&Request{ID: c.id, Method: c.method}).Validate()
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		refusal{id: c.id, says: c.says}.checkID(t, err)
	}
}

// checkID is check for an id that may be empty and is read all the same.
func (c refusal) checkID(t *testing.T, err error) {
	t.Helper()
	var refused *DecodeError
	require.ErrorAs(t, err, &refused)
	require.False(t, refused.Parse)
	require.Equal(t, c.id, *refused.ID)
	require.Contains(t, refused.Msg, c.says)
}

func TestDecodeNodeRequest(t *testing.T) {
	t.Parallel()
	for _, data := range []string{request("null"), `{"jsonrpc":"2.0","id":"a","method":"m"}`} {
		r, err := DecodeNodeRequest([]byte(data))
		require.NoError(t, err)
		require.Equal(t, Request{ID: "a", Method: "m"}, r)
	}
	r, err := DecodeNodeRequest([]byte(request("[1]")))
	require.NoError(t, err)
	require.Equal(t, "[1]", string(r.Params))
	_, err = DecodeNodeRequest([]byte(request(`{"a":1,"a":1}`)))
	require.Error(t, err)
}

// conformance: 1.envelope.null-result
func TestDecodeResponseAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data string
		want Response
		ok   bool // Check
	}{
		{`{"jsonrpc":"2.0","id":"a","method":"m","result":{"x":1}}`, Response{ID: "a", Method: "m", Result: []byte(`{"x":1}`)}, true},
		{`{"jsonrpc":"2.0","id":"a","result":0}`, Response{ID: "a", Result: []byte("0")}, true},
		{`{"jsonrpc":"2.0","id":"a","method":"","result":null}`, Response{ID: "a"}, false},
		{`{"jsonrpc":"2.0","id":"a"}`, Response{ID: "a"}, false},
		{`{"jsonrpc":"2.0","id":"a","result":null,"error":{"code":-32603,"message":"x"}}`, Response{ID: "a", Error: &Error{Code: -32603, Message: "x"}}, true},
		{`{"jsonrpc":"2.0","id":"a","result":1,"error":null}`, Response{ID: "a", Result: []byte("1")}, true},
		{`{"jsonrpc":"2.0","id":"a","result":1,"error":{"code":1,"message":"x"}}`, Response{ID: "a", Result: []byte("1"), Error: &Error{Code: 1, Message: "x"}}, false},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":0,"message":"","data":null,"more":1}}`, Response{Error: &Error{}}, true},
		{`{"jsonrpc":"2.0","id":"a","error":{"code":7,"message":"x","data":[1]}}`, Response{ID: "a", Error: &Error{Code: 7, Message: "x", Data: []byte("[1]")}}, true},
	} {
		got, err := DecodeResponse([]byte(c.data))
		require.NoError(t, err, c.data)
		require.Equal(t, c.want, got, c.data)
		require.Equal(t, c.ok, got.Check() == nil, c.data)
	}
}

// conformance: 4.malformed.counted
func TestDecodeResponseRefuses(t *testing.T) {
	t.Parallel()
	response := func(rest string) string { return `{"jsonrpc":"2.0","id":"a",` + rest + `}` }
	runRefusals(t, func(data []byte) error { _, err := DecodeResponse(data); return err }, []refusal{
		{"not JSON", `{`, true, "", "ends too early"},
		{"trailing data", response(`"result":1`) + `1`, true, "a", "data follows"},
		{"lone surrogate", response(`"result":"\ud800"`), true, "a", "lone surrogate"},
		{"UTF-8", response("\"result\":\"\xff\""), true, "a", "not UTF-8"},
		{"deep", response(`"result":` + nested(MaxDepth)), false, "a", "nested 65 levels"},
		{"repeated name", response(`"result":{"a":1,"a":1}`), false, "a", "is there twice"},
		{"repeated name in the error", response(`"error":{"code":1,"code":2,"message":"x"}`), false, "a", `"/error/code" is there twice`},
		{"version", `{"jsonrpc":"2","id":"a","result":1}`, false, "a", "jsonrpc"},
		{"id missing", `{"jsonrpc":"2.0","result":1}`, false, "", "id is missing"},
		{"id a number", `{"jsonrpc":"2.0","id":1,"result":1}`, false, "", "id is a number"},
		{"method a number", response(`"method":1,"result":1`), false, "a", "method is a number"},
		{"method null", response(`"method":null,"result":1`), false, "a", "method is null"},
		{"error a string", response(`"error":"boom"`), false, "a", "error is a string"},
		{"error an array", response(`"error":[]`), false, "a", "error is an array"},
		{"error empty", response(`"error":{}`), false, "a", "error.code"},
		{"code missing", response(`"error":{"message":"x"}`), false, "a", "error.code"},
		{"code a string", response(`"error":{"code":"1","message":"x"}`), false, "a", "error.code"},
		{"code a fraction", response(`"error":{"code":1.5,"message":"x"}`), false, "a", "error.code"},
		{"code with an exponent", response(`"error":{"code":1e3,"message":"x"}`), false, "a", "error.code"},
		{"code too large", response(`"error":{"code":99999999999999999999,"message":"x"}`), false, "a", "error.code"},
		{"code null", response(`"error":{"code":null,"message":"x"}`), false, "a", "error.code"},
		{"message missing", response(`"error":{"code":1}`), false, "a", "error.message is missing"},
		{"message an object", response(`"error":{"code":1,"message":{}}`), false, "a", "error.message is an object"},
	})
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	require.Equal(t, "boom (code -32603)", (&Error{Code: CodeInternalError, Message: "boom"}).Error())
	require.Equal(t, "x", (&DecodeError{Msg: "x"}).Error())
	require.Equal(t, fmt.Sprintf("%q…", strings.Repeat("x", maxQuoted)), quoteShort(strings.Repeat("x", 1000)))
	require.Equal(t, `"`+strings.Repeat("é", maxQuoted/2)+`"…`, quoteShort(strings.Repeat("é", 1000)))
	require.Equal(t, `"x`+strings.Repeat("é", maxQuoted/2-1)+`"…`, quoteShort("x"+strings.Repeat("é", 1000)), "cut between characters")
}
