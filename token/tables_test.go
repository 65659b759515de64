package token

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestSchemas(t *testing.T) {
	t.Parallel()
	storagetest.Schemas(t, Tables(""), "testdata")
}

// Two token management systems live in one database without sharing a name.
func TestTwoSystemsInOneDatabase(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		for _, tms := range []TMS{{"net", "chan", "ns"}, {"net", "chan", strings.Repeat("n", maxPrefix-len("net__chan____"))}} {
			prefix, err := tms.Prefix()
			require.NoError(t, err)
			require.NoError(t, db.Migrate(t.Context(), Tables(prefix)))
		}
		found, err := db.Check(t.Context(), Tables("net__chan__ns__"))
		require.NoError(t, err)
		require.Empty(t, found)
	})
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tms  TMS
		want string
	}{
		{TMS{"net", "chan", "ns"}, "net__chan__ns__"},
		{TMS{"net", "", ""}, "net______"},
		{TMS{"a-b", "c.d", "e_f"}, "a_db__c_fd__e_uf__"},
		{TMS{"nEt", "C", "x1"}, "n_xet___xc__x1__"},
	} {
		got, err := c.tms.Prefix()
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, tms := range []TMS{{}, {"", "a", "b"}, {"1net", "a", "b"}, {"_net", "a", "b"}, {"Net", "a", "b"}, {"net", "a b", "c"}, {"net", "ä", "c"}, {"net", "a", strings.Repeat("n", maxPrefix)}} {
		_, err := tms.Prefix()
		require.ErrorIs(t, err, ErrTMS, tms)
	}
}

// Different systems never get the same prefix.
func TestPrefixesDiffer(t *testing.T) {
	t.Parallel()
	part := rapid.StringMatching(`[ab_.duxA-]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		a := TMS{"n" + part.Draw(t, "a1"), part.Draw(t, "a2"), part.Draw(t, "a3")}
		b := TMS{"n" + part.Draw(t, "b1"), part.Draw(t, "b2"), part.Draw(t, "b3")}
		pa, err := a.Prefix()
		require.NoError(t, err)
		pb, err := b.Prefix()
		require.NoError(t, err)
		require.Equal(t, a == b, pa == pb, "%v %v", a, b)
	})
}
