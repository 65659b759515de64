package store

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
)

func TestRememberedBlocks(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		a, b, fork := Block{5, hashOf("5")}, Block{6, hashOf("6")}, Block{6, hashOf("6, other")}
		require.NoError(t, s.RememberBlocks(t.Context(), []Block{a, b}))
		require.NoError(t, s.RememberBlocks(t.Context(), []Block{b, fork}))
		all, err := s.RememberedBlocks(t.Context(), 6, 10)
		require.NoError(t, err)
		require.ElementsMatch(t, []Block{b, fork}, all[:2])
		require.Equal(t, a, all[2])
		all, err = s.RememberedBlocks(t.Context(), 5, 10)
		require.NoError(t, err)
		require.Equal(t, []Block{a}, all)
		require.NoError(t, s.DropBlock(t.Context(), fork.Hash))
		require.NoError(t, s.ForgetBlocks(t.Context(), 6))
		all, err = s.RememberedBlocks(t.Context(), 9, 10)
		require.NoError(t, err)
		require.Equal(t, []Block{b}, all)
	})
}

func TestAttemptsByBlockAndAdrift(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		o := walked(t, s, fhevm.KindPublicDecrypt, 1, e, fhevm.StateReceiptReceived)
		flying := walked(t, s, fhevm.KindUserDecrypt, 2, e, fhevm.StateTxInFlight)
		all, err := s.Attempts(t.Context(), o.Kind, o.ID)
		require.NoError(t, err)
		mined := all[0]
		in := func(from, to, after int64) []Attempt {
			got, err := s.MinedIn(t.Context(), from, to, after, 10)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, []Attempt{mined}, in(mined.Block.Number, mined.Block.Number, 0))
		require.Empty(t, in(mined.Block.Number+1, mined.Block.Number+9, 0))
		require.Empty(t, in(0, mined.Block.Number, mined.ID))

		adrift, err := s.Adrift(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Empty(t, adrift, "%v is the dispatcher's", flying)
		nonces, err := s.PendingNonces(t.Context(), mined.Signer, 10)
		require.NoError(t, err)
		require.Len(t, nonces, 1)
		require.NoError(t, s.Unmined(t.Context(), mined.Hash))
		adrift, err = s.Adrift(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, adrift, 1)
		require.Equal(t, mined.Hash, adrift[0].Hash)
		adrift, err = s.Adrift(t.Context(), adrift[0].ID, 10)
		require.NoError(t, err)
		require.Empty(t, adrift)
		nonces, err = s.PendingNonces(t.Context(), mined.Signer, 10)
		require.NoError(t, err)
		require.Len(t, nonces, 2)
		nonces, err = s.PendingNonces(t.Context(), common.Address{99}, 10)
		require.NoError(t, err)
		require.Empty(t, nonces)
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		for _, want := range []bool{false, true, true, false, false} {
			require.NoError(t, s.SetPaused(t.Context(), want))
			got, err := s.Paused(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}
