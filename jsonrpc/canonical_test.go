package jsonrpc

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// canonical returns the canonical text of v.
func canonical(v string, form numberForm) (string, error) {
	c := newCanonicalizer(form)
	defer c.free()
	err := c.append([]byte(v))
	return string(c.dst), err
}

// conformance: 5.request.bytes
func TestSortMembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{` { "b" : 1.50 , "a" : [ 9007199254740993 , -0 , 1E+400 ] } `, `{"a":[9007199254740993,-0,1E+400],"b":1.50}`},
		{`{"z":{"y":1,"x":{"b":1,"a":2}},"a":[{"d":1,"c":2}]}`, `{"a":[{"c":2,"d":1}],"z":{"x":{"a":2,"b":1},"y":1}}`},
		{`{"aa":1,"a":2,"":3,"b":4}`, `{"":3,"a":2,"aa":1,"b":4}`},
		{`{"\u0062":1,"a":"\u00e9\/\u001F\u2028"}`, `{"a":"é/\u001f` + "\u2028" + `","b":1}`},
		{`{"\ue000":1,"\ud83d\ude00":2,"\uffff":3,"é":4,"~":5}`, "{\"~\":5,\"é\":4,\"😀\":2,\"\ue000\":1,\"\uffff\":3}"},
		{`{"10":1,"9":2,"A":3,"a":4}`, `{"10":1,"9":2,"A":3,"a":4}`},
		{`{"\"":1,"!":2,"\\":3,"[":4}`, `{"!":2,"\"":1,"[":4,"\\":3}`},
		{`[]`, `[]`}, {`{ }`, `{}`}, {` "x" `, `"x"`}, {`null`, `null`}, {`[true,false,null]`, `[true,false,null]`},
	} {
		got, err := SortMembers(jsontext.Value(c.in))
		require.NoError(t, err, c.in)
		require.Equal(t, c.want, string(got))
	}
}

func TestSortMembersRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", " ", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a" 1}`, `{1:1}`, "[", "[1", "[1,", "[1,]", "[1 2]", "1 2", "tru", "nulL", "x", "01", "-", "1.", "1e", "1e+",
		`"`, `"\`, `"\x"`, `"\u12"`, `"\ud800"`, "\"\n\"", "\"\xff\"", `"\u00e9` + "\xff\"", "{\"\xff\":1}", `{"a":1,"b":2,"a":3}`, `{"a":1,"\u0061":3}`, `{"b":1,"a":1,"a":1}`,
		nested(MaxDepth + 1), strings.Repeat("[", 1_000_000), strings.Repeat(`{"":`, 1_000_000),
	} {
		_, err := SortMembers(jsontext.Value(in))
		require.ErrorIs(t, err, ErrCanonical, "%.40q", in)
		require.LessOrEqual(t, len(err.Error()), 200)
	}
	got, err := SortMembers(jsontext.Value(nested(MaxDepth)))
	require.NoError(t, err)
	require.Equal(t, nested(MaxDepth), string(got))
}

// conformance: 1.digest.left-out
func TestRequestDigestCovers(t *testing.T) {
	t.Parallel()
	digest := func(data string) [32]byte {
		r, err := DecodeRequest([]byte(data))
		require.NoError(t, err)
		d, err := r.Digest()
		require.NoError(t, err)
		return d
	}
	base := digest(request(`{"a":1}`))
	require.Equal(t, base, digest(`{"jsonrpc":"2.0","id":"a","method":"m","params":{"a":1},"auth":"t","x":[{}]}`))
	for _, other := range []string{
		`{"jsonrpc":"2.0","id":"b","method":"m","params":{"a":1}}`,
		`{"jsonrpc":"2.0","id":"a","method":"n","params":{"a":1}}`,
		request(`{"a":2}`), request(`{"a":"1"}`), request(`{"a":1,"b":null}`),
	} {
		require.NotEqual(t, base, digest(other), other)
	}
	require.Equal(t, digest(request(`9007199254740992`)), digest(request(`9007199254740993`)), "the wire contract, for better or worse")

	null, err := (&Request{ID: "a", Method: "m", Params: []byte("null")}).Digest()
	require.NoError(t, err)
	absent, err := (&Request{ID: "a", Method: "m"}).Digest()
	require.NoError(t, err)
	require.Equal(t, null, absent)
}

func TestDigestRefuses(t *testing.T) {
	t.Parallel()
	for _, r := range []*Request{{ID: "\xff"}, {Method: "\xff"}, {Params: []byte("{")}} {
		_, err := r.Digest()
		require.ErrorIs(t, err, ErrCanonical)
	}
	for _, r := range []*Response{
		{ID: "\xff"}, {Method: "\xff"}, {Result: []byte("{")}, {Error: &Error{Message: "\xff"}}, {Error: &Error{Data: []byte("[")}},
	} {
		_, err := r.Digest()
		require.ErrorIs(t, err, ErrCanonical)
		_, err = r.VoteDigest()
		require.ErrorIs(t, err, ErrCanonical)
	}
}

// vote returns the vote digest of a response with the given result.
func vote(t *testing.T, result string) [32]byte {
	t.Helper()
	d, err := (&Response{ID: "a", Method: "m", Result: []byte(result)}).VoteDigest()
	require.NoError(t, err)
	return d
}

// conformance: 1.numbers.votes
func TestVoteDigestNumbers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 1000)
	for _, group := range [][]string{
		{"1", "1.0", "1e0", "10e-1", "0.1E1", "1.000e+00", "1E0000", "0.0000000001e10", "1" + strings.Repeat("0", 500) + "e-500"},
		{"0", "-0", "0.0", "-0.000", "0e99", "-0e-99999999999999999999999999", "0e" + long},
		{"-1", "-1.0", "-10e-1"},
		{"9007199254740992", "9007199254740992.0", "9.007199254740992e15"},
		{"9007199254740993", "9007199254740993.000"},
		{"1e400", "10e399", "0.1e401"},
		{"1e401"},
		{"0.1", "1e-1", "0.10"},
		{"0.1000000000000000055511151231257827", "0.10000000000000000555111512312578270"},
		{"1e100000000000000000000", "0.1e100000000000000000001", "10e99999999999999999999", "1000E+99999999999999999997"},
		{"1e-100000000000000000000", "0.1e-99999999999999999999", "10e-100000000000000000001"},
		{"1e99999999999999999", "10e99999999999999998", "0.01e100000000000000001"},
		{"1e-" + long, "10e-1" + strings.Repeat("0", 1000)},
	} {
		want := vote(t, group[0])
		for _, text := range group {
			require.Equal(t, want, vote(t, text), "%.40s and %.40s", group[0], text)
			require.Equal(t, vote(t, `{"a":[`+group[0]+`]}`), vote(t, `{ "a" : [ `+text+` ] }`))
		}
	}
	seen := map[[32]byte]string{}
	for _, text := range []string{"0", "1", "-1", "10", "9007199254740992", "9007199254740993", "1e400", "1e401", "-1e400", "1e-400", "0.1", "1e" + long, "1e-" + long, "2e" + long, `"1"`, `"1e0"`, "[1]", "true", "{}"} {
		d := vote(t, text)
		require.NotContains(t, seen, d, "%.20s and %.20s are the same vote", text, seen[d])
		seen[d] = text
	}
}

// A vote covers result or error, and everything in them.
func TestVoteDigestCovers(t *testing.T) {
	t.Parallel()
	responses := []Response{
		{ID: "a", Method: "m", Result: []byte("1")},
		{ID: "b", Method: "m", Result: []byte("1")},
		{ID: "a", Method: "n", Result: []byte("1")},
		{ID: "a", Method: "m"},
		{ID: "a", Method: "m", Error: &Error{Code: 1, Message: "x"}},
		{ID: "a", Method: "m", Error: &Error{Code: -1, Message: "x"}},
		{ID: "a", Method: "m", Error: &Error{Code: 10, Message: "x"}},
		{ID: "a", Method: "m", Error: &Error{Code: 1, Message: "y"}},
		{ID: "a", Method: "m", Error: &Error{Code: 1, Message: "x", Data: []byte("1")}},
		{ID: "a", Method: "m", Error: &Error{Code: 1, Message: "x", Data: []byte("2")}},
		{ID: "a", Method: "m", Error: &Error{Code: 1, Message: "x"}, Result: []byte("1")},
	}
	seen := map[[32]byte]int{}
	for i, r := range responses {
		d, err := r.VoteDigest()
		require.NoError(t, err)
		require.NotContains(t, seen, d, "%d", i)
		seen[d] = i
	}
	for _, pair := range [][2]Response{
		{{ID: "a", Result: []byte("null")}, {ID: "a"}},
		{{ID: "a", Error: &Error{Code: 1, Data: []byte("null")}}, {ID: "a", Error: &Error{Code: 1}}},
		{{ID: "a", Error: &Error{Code: 1, Data: []byte(`{"b":1.0,"a":2}`)}}, {ID: "a", Error: &Error{Code: 1, Data: []byte(`{"a":20e-1,"b":1}`)}}},
	} {
		x, err := pair[0].VoteDigest()
		require.NoError(t, err)
		y, err := pair[1].VoteDigest()
		require.NoError(t, err)
		require.Equal(t, x, y)
	}
}

// jsonText draws the text of a JSON value with odd white space, names, escapes and numbers.
func jsonText(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := []string{"number", "string", "literal"}
		if depth > 0 {
			kinds = append(kinds, "object", "array")
		}
		space := rapid.SampledFrom([]string{"", "", " ", "\n\t"})
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "number":
			return numberText().Draw(t, "number")
		case "string":
			return stringText().Draw(t, "string")
		case "literal":
			return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
		case "array":
			parts := rapid.SliceOfN(jsonText(depth-1), 0, 4).Draw(t, "elements")
			return "[" + space.Draw(t, "space") + strings.Join(parts, space.Draw(t, "space")+","+space.Draw(t, "space")) + "]"
		default:
			names := rapid.SliceOfNDistinct(stringText(), 0, 5, func(s string) string {
				text, _ := jsontext.AppendUnquote(nil, s)
				return string(text)
			}).Draw(t, "names")
			for i, name := range names {
				names[i] = name + space.Draw(t, "space") + ":" + jsonText(depth-1).Draw(t, "value")
			}
			return "{" + space.Draw(t, "space") + strings.Join(names, ","+space.Draw(t, "space")) + "}"
		}
	})
}

func stringText() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{"a", "b", "é", "\ue000", "\uffff", "😀", `\u00e9`, `\ue000`, `\ud83d\ude00`, `\u0061`, `\n`, `\u000a`, `\"`, `\\`, `\/`, "/", "<", "\x7f", " "})
	return rapid.Custom(func(t *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(pieces, 0, 4).Draw(t, "pieces"), "") + `"`
	})
}

func numberText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?`),
		rapid.StringMatching(`-?(0|[1-9]0{0,30})(\.0{0,20}[0-9])?([eE][+-]?0{0,3}[1-3]?[0-9]{2})?`),
		rapid.SampledFrom([]string{"9007199254740991", "9007199254740992", "9007199254740993", "4.9e-324", "5e-324", "2e-324", "2.4703282292062328e-324", "1.7976931348623157e308", "1.7976931348623159e308", "123456789012345.6", "1e21", "1e-7", "0.1", "0.30000000000000004"}),
	)
}

// The canonical forms are those of the slow twin and of the library.
func TestCanonicalTwins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := jsonText(3).Draw(t, "text")
		compareWithTwins(t, text)
	})
}

// compareWithTwins checks every canonical form of text against another implementation.
func compareWithTwins(t require.TestingT, text string) {
	want := jsontext.Value(text)
	libraryErr := want.Canonicalize()
	deepest, _ := scanDepth([]byte(text))
	got, err := canonical(text, numbersRFC8785)
	if libraryErr != nil || deepest > MaxDepth {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(want), got)

	sorted := jsontext.Value(text)
	require.NoError(t, sorted.Format(jsontext.ReorderRawObjects(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)))
	ours, err := SortMembers(jsontext.Value(text))
	require.NoError(t, err)
	require.Equal(t, string(sorted), string(ours))

	exact, err := canonical(text, numbersExact)
	require.NoError(t, err)
	twin, first, err := twinCanonical([]byte(text))
	if err != nil {
		require.ErrorIs(t, err, errTwinReach)
		return
	}
	require.Equal(t, twin, exact)

	err = CheckExactNumbers(jsontext.Value(text))
	if first == "" {
		require.NoError(t, err)
		return
	}
	var inexact *InexactNumberError
	require.ErrorAs(t, err, &inexact)
	require.Equal(t, first, inexact.Number)
	require.Equal(t, first, valueAt(t, text, inexact.Pointer), "the pointer leads to the number")
}
