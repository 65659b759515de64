package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		a, b, c := Block{10, hashOf("a")}, Block{20, hashOf("b")}, Block{20, hashOf("c")}
		at := func(want Block) {
			t.Helper()
			got, err := s.Cursor(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := s.Cursor(t.Context())
		require.ErrorIs(t, err, ErrNotFound)
		old := epoch(t, s)
		e := epoch(t, s)
		stayed(t)(s.StartCursor(t.Context(), old, a))
		stayed(t)(s.MoveCursor(t.Context(), e, a, b))
		moved(t)(s.StartCursor(t.Context(), e, a))
		stayed(t)(s.StartCursor(t.Context(), e, b))
		at(a)
		stayed(t)(s.MoveCursor(t.Context(), old, a, b))
		moved(t)(s.MoveCursor(t.Context(), e, a, b))
		stayed(t)(s.MoveCursor(t.Context(), e, c, a)) // the same height on another chain
		at(b)
		moved(t)(s.MoveCursor(t.Context(), e, b, a))
		moved(t)(s.MoveCursor(t.Context(), e, a, c))
		at(c)
		_, err = s.MoveCursor(t.Context(), e, c, Block{-1, c.Hash})
		require.Error(t, err)
	})
}
