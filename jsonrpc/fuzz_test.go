package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// seedMessages gives a fuzz target the messages of the vectors and some broken ones.
func seedMessages(f *testing.F) {
	f.Helper()
	for _, v := range loadVectors[requestVector](f, "request_digest.json") {
		f.Add([]byte(v.Request))
	}
	for _, v := range loadVectors[struct{ Name, Response, Digest string }](f, "response_digest.json") {
		f.Add([]byte(v.Response))
	}
	for _, s := range []string{
		"", "null", "[", `{"id":"a"`, `{"id":"a","id":"b"}`, request("{}") + "{}", request(nested(MaxDepth)), request(`"\ud800"`), request("\"\xff\""),
		`{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x","data":{"a":[]}}}`, `{"jsonrpc":"2.0","id":"a","error":{"code":1e3,"message":"x"}}`,
	} {
		f.Add([]byte(s))
	}
}

// strictJSON is the twin of what members accepts.
func strictJSON(data []byte) bool {
	deepest, _ := scanDepth(data)
	return deepest <= MaxDepth && jsontext.Value(data).IsValid()
}

func isString(v jsontext.Value) bool { return len(v) > 0 && v[0] == '"' }

// checkRefusal checks what every refusal promises.
func checkRefusal(t *testing.T, data []byte, err error) {
	t.Helper()
	var refused *DecodeError
	require.ErrorAs(t, err, &refused)
	require.LessOrEqual(t, len(refused.Msg), 300)
	require.True(t, utf8.ValidString(refused.Msg))
	if refused.ID != nil {
		require.True(t, utf8.ValidString(*refused.ID))
		require.LessOrEqual(t, len(*refused.ID), len(data))
	}
	if utf8.Valid(data) && json.Valid(data) && jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true)) {
		require.False(t, refused.Parse, "JSON is never a parse error: %s", refused.Msg)
	}
	if !json.Valid(data) && bytes.Count(data, []byte("[")) < 5000 && bytes.Count(data, []byte("{")) < 5000 {
		require.True(t, refused.Parse, "what is not JSON always is: %s", refused.Msg)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	seedMessages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		r, err := DecodeRequest(data)
		require.Equal(t, before, data, "the input is not touched")

		var twin struct {
			Version jsontext.Value `json:"jsonrpc"`
			ID      jsontext.Value `json:"id"`
			Method  jsontext.Value `json:"method"`
			Params  jsontext.Value `json:"params"`
			Auth    jsontext.Value `json:"auth"`
		}
		var version string
		ok := strictJSON(data) && jsonv2.Unmarshal(data, &twin) == nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) &&
			isString(twin.Version) && isString(twin.ID) && isString(twin.Method) && (twin.Auth == nil || isString(twin.Auth)) &&
			twin.Params != nil && string(twin.Params) != "null" && jsonv2.Unmarshal(twin.Version, &version) == nil && version == "2.0"
		require.Equal(t, ok, err == nil, "%v", err)
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		var want Request
		require.NoError(t, jsonv2.Unmarshal(twin.ID, &want.ID))
		require.NoError(t, jsonv2.Unmarshal(twin.Method, &want.Method))
		if twin.Auth != nil {
			require.NoError(t, jsonv2.Unmarshal(twin.Auth, &want.Auth))
		}
		want.Params = twin.Params
		require.Equal(t, want, r)

		d, err := r.Digest()
		require.NoError(t, err, "what is decoded has a digest")
		again, err := DecodeRequest(AppendRequest(nil, &r))
		require.NoError(t, err)
		require.Equal(t, r, again)
		d2, err := again.Digest()
		require.NoError(t, err)
		require.Equal(t, d, d2)
		_ = r.Validate()
	})
}

func FuzzDecodeResponse(f *testing.F) {
	seedMessages(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeResponse(data)
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		require.True(t, strictJSON(data))
		_, err = r.Digest()
		require.NoError(t, err)
		d, err := r.VoteDigest()
		require.NoError(t, err)
		if r.Check() != nil {
			return
		}
		// The same answer written by ourselves is the same vote, whatever its spelling was.
		var text []byte
		if r.Error != nil {
			text = AppendError(nil, &r.ID, r.Error)
			r.Method = ""
			d, err = r.VoteDigest()
			require.NoError(t, err)
		} else {
			sorted, err := SortMembers(r.Result)
			require.NoError(t, err)
			text = AppendResult(nil, r.ID, r.Method, sorted)
		}
		again, err := DecodeResponse(text)
		require.NoError(t, err)
		d2, err := again.VoteDigest()
		require.NoError(t, err)
		require.Equal(t, d, d2)
	})
}

func FuzzSplitBatch(f *testing.F) {
	for _, s := range []string{"", "[]", " [1 , {\"a\":1,\"a\":2},[[]]]", "[1,]", "[1]1", "{}", "[\"\xff\"]", `["\ud800"]`, "[" + request("{}") + "]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		elements, err := SplitBatch(data)
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		require.True(t, IsBatch(data))
		var twin []json.RawMessage
		require.NoError(t, json.Unmarshal(data, &twin))
		require.Len(t, elements, len(twin))
		for i, e := range elements {
			require.Equal(t, string(bytes.TrimSpace(twin[i])), string(e))
		}
	})
}

// FuzzCanonical holds SortMembers, Digest's and VoteDigest's canonical forms and CheckExactNumbers to their twins.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"b":[1.50,-0,1e400],"a":{"\u00e9":"\ud83d\ude00"}}`, `[9007199254740993]`, `{"a":1,"a":2}`, `"\ud800"`, "1e-7", "123e21", `{"` + "\ue000" + `":1,"😀":2}`, "-0.0e5", nested(MaxDepth),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { compareWithTwins(t, text) })
}

// FuzzVoteDigest compares two numbers: they are the same vote exactly when they are the same rational number.
func FuzzVoteDigest(f *testing.F) {
	for _, s := range [][2]string{{"1", "1.0"}, {"9007199254740992", "9007199254740993"}, {"-0", "0e5"}, {"1e400", "10e399"}, {"0.10", "1e-1"}, {"1e9", "1e10"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if !isNumber(a) || !isNumber(b) {
			return
		}
		x, errX := twinNumber(a)
		y, errY := twinNumber(b)
		same := vote(t, a) == vote(t, b)
		if errX == nil && errY == nil {
			require.Equal(t, x.Cmp(y) == 0, same)
			inexact, err := twinInexact(a)
			if err == nil {
				require.Equal(t, inexact, CheckExactNumbers(jsontext.Value(a)) != nil)
			}
		}
		// An exponent of any length obeys the same law: one more zero, one less in the exponent. The tenfold is another number.
		if !strings.ContainsAny(a, ".eE") && strings.Trim(a, "-0") != "" && len(b) > 0 && strings.Trim(b, "0123456789") == "" {
			require.Equal(t, vote(t, a+"e"+b), vote(t, a+"0e"+decrement(b)), "%s %s", a, b)
			require.NotEqual(t, vote(t, a+"e"+b), vote(t, a+"0e"+b))
		}
	})
}

func isNumber(s string) bool {
	v := jsontext.Value(s)
	return v.IsValid() && v.Kind() == '0' && strings.TrimSpace(s) == s
}

// decrement returns the text of n−1 for a text of digits.
func decrement(n string) string {
	b := []byte(n)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != '0' {
			b[i]--
			return string(b)
		}
		b[i] = '9'
	}
	return "-1"
}
