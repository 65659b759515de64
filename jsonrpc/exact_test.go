package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// valueAt returns the text of the number at pointer in a JSON text.
func valueAt(t require.TestingT, text, pointer string) string {
	d := jsontext.NewDecoder(bytes.NewBufferString(text))
	for {
		token, err := d.ReadToken()
		require.NoError(t, err, "nothing at %q", pointer)
		if token.Kind() == '0' && string(d.StackPointer()) == pointer {
			return token.String()
		}
	}
}

// conformance: 1.numbers.inexact
func TestCheckExactNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, pointer, number string }{
		{`{"n":9007199254740993}`, "/n", "9007199254740993"},
		{`{"n":1e400}`, "/n", "1e400"},
		{`{"n":-1e400}`, "/n", "-1e400"},
		{`{"n":1e-400}`, "/n", "1e-400"},
		{`{"n":3.141592653589793238462643383279}`, "/n", "3.141592653589793238462643383279"},
		{`{"a":[1,{"b~/c":[2,36028797018963969]}]}`, "/a/1/b~0~1c/1", "36028797018963969"},
		{`115792089237316195423570985008687907853269984665640564039457584007913129639935`, "", "115792089237316195423570985008687907853269984665640564039457584007913129639935"},
		{`{"s":"9007199254740993","9007199254740993":"\"9007199254740993","n":[9007199254740993]}`, "/n/0", "9007199254740993"},
		{`[1e99999999999999999999]`, "/0", "1e99999999999999999999"},
		{`[123456789.12345678]`, "", ""},
		{`[12345678901234567890]`, "/0", "12345678901234567890"},
		{`[12345678901234567000,1e300,1e22,1e23]`, "", ""},
		{`{"n":[1.0,1e3,0.1,-0,0.0,-0e5,1E+2,100e-2,9007199254740991,9007199254740992,123456789012345,0.000000000000001]}`, "", ""},
		{`[0e99999999999999999999,1.7976931348623157e308,5e-324,0.30000000000000004]`, "", ""},
		{`{"n":1.5000000000000000000000000000000000000}`, "", ""},
		{`"9007199254740993"`, "", ""}, {`[]`, "", ""}, {`{}`, "", ""}, {`null`, "", ""}, {``, "", ""},
	} {
		err := CheckExactNumbers(jsontext.Value(c.in))
		if c.number == "" {
			require.NoError(t, err, c.in)
			continue
		}
		require.Equal(t, &InexactNumberError{Pointer: c.pointer, Number: c.number}, err, c.in)
		require.Contains(t, err.Error(), "send it as a string")
	}
}

func TestInexactNumberText(t *testing.T) {
	t.Parallel()
	err := CheckExactNumbers(jsontext.Value(`{"n":[9007199254740993]}`))
	require.EqualError(t, err, "the number 9007199254740993 at /n/0 cannot be signed exactly, because its canonical form (RFC 8785) has another value: send it as a string")
	err = CheckExactNumbers(jsontext.Value(`{"` + strings.Repeat("n", 5000) + `":` + strings.Repeat("7", 5000) + `}`))
	require.Error(t, err)
	require.Contains(t, err.Error(), strings.Repeat("7", 40)+"…")
	require.Less(t, len(err.Error()), 300)
}

// What is not JSON gives no wrong advice and no panic.
func TestCheckExactNumbersOfRubbish(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`-`, `[-]`, `01`, `1.`, `1e`, `"`, `"\`, `[9.]`} {
		var inexact *InexactNumberError
		require.NotErrorAs(t, CheckExactNumbers(jsontext.Value(in)), &inexact, in)
	}
}

// conformance: 1.numbers.expanded
func TestNumbersStayShort(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1e1000000000":                     "1e1000000000",
		"-12300e-1000000000":               "-123e-999999998",
		"1e99999999999999999999":           "1e99999999999999999999",
		"0.001e10000000000000000000":       "1e9999999999999999997",
		"10e99999999999999999999":          "1e100000000000000000000",
		"0.1e-99999999999999999999":        "1e-100000000000000000000",
		"100e-10000000000000000000":        "1e-9999999999999999998",
		"120e000000000000000000000000001":  "12e2",
		"1e00000000000000000000":           "1e0",
		"123.4560E-0000000000000000000002": "123456e-5",
	} {
		got, err := canonical(in, numbersExact)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
}
