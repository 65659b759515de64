package jsonrpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// nameSpellings are JSON strings of few texts: several of each.
var nameSpellings = []string{`"a"`, `"\u0061"`, `"b"`, `""`, `"ab"`, `"a\u0062"`, `"\\"`, `"\u005c"`, `"\""`, `"é"`, `"\u00e9"`, `"😀"`, `"\ud83d\ude00"`, `","`, `"{"`, `"]"`, `"a\u0000"`, `"c"`, `"d"`, `"e"`, `"f"`, `"g"`, `"h"`}

// spelledValue draws JSON text with names of nameSpellings.
func spelledValue(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 || kind < 1 {
			return rapid.SampledFrom(append([]string{"1", "null", "-0.5e3"}, nameSpellings...)).Draw(t, "scalar")
		}
		n := rapid.IntRange(0, fewNames+4).Draw(t, "n")
		var parts []string
		for range n {
			value := spelledValue(depth-1).Draw(t, "value")
			if kind > 1 {
				value = rapid.SampledFrom(nameSpellings).Draw(t, "name") + " : " + value
			}
			parts = append(parts, value)
		}
		if kind > 1 {
			return "{" + strings.Join(parts, " ,\n") + "}"
		}
		return "[" + strings.Join(parts, ",") + "]"
	})
}

// The search for repeated names agrees with the parser's own.
func TestRepeatedNameTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(spelledValue(3).Draw(t, "text"))
		require.True(t, jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)))
		require.Equal(t, jsontext.Value(text).IsValid(), repeatedName(text) < 0, "%s", text)
	})
}

// A name is found among many, the first time that it comes again and wherever the first was.
func TestRepeatedNameAmongMany(t *testing.T) {
	t.Parallel()
	const n = 5000
	for _, first := range []int{0, 1, n / 2, n - 1} {
		text := []byte{'{'}
		for i := range n {
			text = fmt.Appendf(text, `"name-%d":{"name-%d":0},`, i, i)
		}
		at := len(text)
		text = fmt.Appendf(text, `"name-\u0025d":0,"name-%d":[],"x":0,"x":0}`, first)
		got := repeatedName(text)
		require.Equal(t, at+len(`"name-\u0025d":0,`), got)
		require.Equal(t, fmt.Sprintf("/name-%d", first), pointerAt(text, got))
	}
}
