package jsonrpc

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Where the prefixes of two names differ, they order them as the names' UTF-16 does.
func TestNamePrefixKeepsTheOrder(t *testing.T) {
	t.Parallel()
	name := rapid.StringOfN(rapid.SampledFrom([]rune("\x00ab~é߿ࠀ퟿\ue000\ufffd\uffff𐀀😀\U0010ffff")), 0, 5, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := []byte(name.Draw(t, "a")), []byte(name.Draw(t, "b"))
		if pa, pb := namePrefix(a), namePrefix(b); pa != pb {
			require.Equal(t, compareUTF16(a, b), cmp.Compare(pa, pb), "%q %q", a, b)
		}
	})
}
