package jsonrpc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// names are texts in which every border of the order is: zeros, the ends of each length of UTF-8, and both sides of the surrogates.
func names(maxRunes int) *rapid.Generator[string] {
	return rapid.StringOfN(rapid.SampledFrom([]rune("\x00ab~é߿ࠀ퟿\ue000\ufffd\uffff𐀀😀\U0010ffff")), 0, maxRunes, -1)
}

// compareUnits is the dumb twin of compareUTF16.
func compareUnits(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// Where the chunks of two names differ that are equal before, they order them as the names' UTF-16 does.
func TestNameChunkKeepsTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := names(9).Draw(t, "a"), names(9).Draw(t, "b")
		require.Equal(t, compareUnits(a, b), compareUTF16([]byte(a), []byte(b)))
		for offset := 0; offset <= min(len(a), len(b)) && a[:offset] == b[:offset]; offset++ {
			if ca, cb := nameChunk([]byte(a), offset), nameChunk([]byte(b), offset); ca != cb {
				require.Equal(t, compareUnits(a, b), cmp.Compare(ca, cb), "%q %q from %d", a, b, offset)
			}
		}
	})
}

// Objects of many members are sorted as the dumb twin sorts them, long common starts and zeros at the end included.
func TestManyMembersAreSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := strings.Repeat("s", rapid.IntRange(0, 20).Draw(t, "common"))
		all := rapid.SliceOfNDistinct(names(12), fewKeys-2, 3*fewKeys, rapid.ID).Draw(t, "names")
		var want []string
		text := []byte{'{'}
		for i, name := range all {
			all[i] = start + name
			text = fmt.Appendf(text, "%s: %d,", quoted(all[i]), i)
		}
		text[len(text)-1] = '}'
		at := map[string]int{}
		for i, name := range all {
			at[name] = i
		}
		slices.SortFunc(all, compareUnits)
		for _, name := range all {
			want = append(want, fmt.Sprintf("%s:%d", quoted(name), at[name]))
		}
		got, err := SortMembers(text)
		require.NoError(t, err)
		require.Equal(t, "{"+strings.Join(want, ",")+"}", string(got))

		repeated := all[rapid.IntRange(0, len(all)-1).Draw(t, "repeated")]
		text = fmt.Appendf(text[:len(text)-1], ",%s:0}", quoted(repeated))
		_, err = SortMembers(text)
		require.ErrorIs(t, err, ErrCanonical)
		require.ErrorContains(t, err, "is there twice")
	})
}

func quoted(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic(err)
	}
	return b
}
