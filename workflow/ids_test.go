package workflow

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// conformance: 2.params.workflow-id
// conformance: 2.params.owner
func TestNormalize(t *testing.T) {
	t.Parallel()
	zeros := func(n int) string { return strings.Repeat("0", n) }
	for _, c := range []struct {
		in, id, owner string // "" is refused
	}{
		{"1", "0x" + zeros(63) + "1", "0x" + zeros(39) + "1"},
		{"0x1", "0x" + zeros(63) + "1", "0x" + zeros(39) + "1"},
		{"0", "0x" + zeros(64), "0x" + zeros(40)},
		{"00ab", "0x" + zeros(60) + "00ab", "0x" + zeros(36) + "00ab"},
		{"0x" + strings.Repeat("f", 40), "0x" + zeros(24) + strings.Repeat("f", 40), "0x" + strings.Repeat("f", 40)},
		{strings.Repeat("f", 40), "0x" + zeros(24) + strings.Repeat("f", 40), "0x" + strings.Repeat("f", 40)},
		{strings.Repeat("f", 41), "0x" + zeros(23) + strings.Repeat("f", 41), ""},
		{"0x" + strings.Repeat("a", 64), "0x" + strings.Repeat("a", 64), ""},
		{strings.Repeat("a", 64), "0x" + strings.Repeat("a", 64), ""},
		{strings.Repeat("a", 65), "", ""},
		{"0x" + strings.Repeat("0", 65), "", ""},
		{"", "", ""}, {"0x", "", ""}, {"0X1", "", ""}, {"0x0x1", "", ""}, {"x1", "", ""}, {"A", "", ""}, {"0xaB", "", ""}, {"g", "", ""},
		{" 1", "", ""}, {"1 ", "", ""}, {"+1", "", ""}, {"-1", "", ""}, {"1\x00", "", ""}, {"１", "", ""}, {"0x1.0", "", ""},
	} {
		for _, kind := range []struct {
			normalize func(string) (string, error)
			want      string
		}{{NormalizeID, c.id}, {NormalizeOwner, c.owner}} {
			got, err := kind.normalize(c.in)
			require.Equal(t, kind.want, got, "%q", c.in)
			require.Equal(t, kind.want == "", err != nil, "%q: %v", c.in, err)
		}
	}
}

func TestNormalizeErrors(t *testing.T) {
	t.Parallel()
	for in, says := range map[string]string{
		"0xAB":                        "lower case",
		"0x":                          "no digits",
		strings.Repeat("a", 70):       "it has 70",
		"zz":                          `"zz" is not 1 to 64 lower-case hex digits`,
		strings.Repeat("ü", 1_000_00): "…",
	} {
		_, err := NormalizeID(in)
		require.ErrorContains(t, err, says)
		require.Less(t, len(err.Error()), 250)
	}
}

// A normal form is its own normal form, and has one spelling.
func TestNormalizeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`[0-9a-f]{1,64}`).Draw(t, "digits")
		id, err := NormalizeID(digits)
		require.NoError(t, err)
		require.Len(t, id, 66)
		again, err := NormalizeID(id)
		require.NoError(t, err)
		require.Equal(t, id, again)
		prefixed, err := NormalizeID("0x" + digits)
		require.NoError(t, err)
		require.Equal(t, id, prefixed)
		require.Equal(t, strings.TrimLeft(digits, "0"), strings.TrimLeft(id[2:], "0"))
	})
}
