package jsonrpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsBatch(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]bool{
		"": false, " ": false, "[": true, " \t\r\n[1]": true, "{}": false, " {[": false, "\v[": false, "\ufeff[]": false, "x[": false,
	} {
		require.Equal(t, want, IsBatch([]byte(data)), "%q", data)
	}
}

// conformance: 1.batch.element
func TestSplitBatch(t *testing.T) {
	t.Parallel()
	deep := nested(100)
	for _, c := range []struct {
		data string
		want []string
	}{
		{`[]`, nil},
		{" [ ] \n", nil},
		{`[1]`, []string{"1"}},
		{`[ {"a" : 1} ,"x", null,[2] ]`, []string{`{"a" : 1}`, `"x"`, "null", "[2]"}},
		{`[{"a":1,"a":2},` + deep + `,"\ud800",{}]`, []string{`{"a":1,"a":2}`, deep, `"\ud800"`, `{}`}},
	} {
		got, err := SplitBatch([]byte(c.data))
		require.NoError(t, err, c.data)
		var texts []string
		for _, e := range got {
			texts = append(texts, string(e))
		}
		require.Equal(t, c.want, texts)
	}
}

// conformance: 1.envelope.one
func TestSplitBatchRefuses(t *testing.T) {
	t.Parallel()
	runRefusals(t, func(data []byte) error { _, err := SplitBatch(data); return err }, []refusal{
		{"empty", "", true, "", "not a JSON array"},
		{"object", `{"id":"a"}`, false, "", "not a JSON array"},
		{"unclosed", `[1`, true, "", "ends too early"},
		{"unclosed element", `[{"id":"a"`, true, "", "ends too early"},
		{"no comma", `[1 2]`, true, "", "syntax error"},
		{"comma at the end", `[1,]`, true, "", "syntax error"},
		{"wrong bracket", `[1}`, true, "", "syntax error"},
		{"trailing data", `[1] 2`, true, "", "data follows"},
		{"UTF-8", "[1,\"\xff\"]", true, "", "not UTF-8 at byte 4"},
		{"bad element", `[1,nul]`, true, "", "syntax error"},
		{"deeper than parsers go", "[" + nested(50_000) + "]", false, "", "nested 50001 levels"},
		{"deeper than parsers go and unclosed", "[" + strings.Repeat("[", 50_000), true, "", "not valid JSON"},
		{"elements without end", "[" + strings.Repeat("1,", MaxBatchElements) + "1]", false, "", "4097 elements"},
	})
	got, err := SplitBatch([]byte("[" + strings.Repeat("1,", MaxBatchElements-1) + "1]"))
	require.NoError(t, err)
	require.Len(t, got, MaxBatchElements)
}
