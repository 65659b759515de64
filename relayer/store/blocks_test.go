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
		since := func(from, after int64) []Attempt {
			got, err := s.MinedSince(t.Context(), from, after, 10)
			require.NoError(t, err)
			return got
		}
		require.Equal(t, []Attempt{mined}, since(mined.Block.Number, 0))
		require.Empty(t, since(mined.Block.Number+1, 0))
		require.Empty(t, since(0, mined.ID))

		adrift, err := s.Adrift(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Empty(t, adrift, "%v is the dispatcher's", flying)
		nonces, err := s.PendingNonces(t.Context(), mined.Signer, 10)
		require.NoError(t, err)
		require.Len(t, nonces, 1)
		before, err := s.JobByID(t.Context(), o.Kind, o.ID)
		require.NoError(t, err)
		require.NoError(t, s.Unmined(t.Context(), mined.Hash))
		j, err := s.JobByID(t.Context(), o.Kind, o.ID)
		require.NoError(t, err)
		require.Nil(t, j.Reference, "on the chain as it is now the number may be another's")
		require.Empty(t, j.TxHash)
		require.Equal(t, before.StateSince, j.StateSince)
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
		for nonce, want := range map[int64]bool{mined.Nonce: true, mined.Nonce + 100: false} {
			stored, err := s.NonceStored(t.Context(), mined.Signer, nonce)
			require.NoError(t, err)
			require.Equal(t, want, stored)
		}
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

func TestRecountAndGathering(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		o := walked(t, s, fhevm.KindUserDecrypt, 1, e, fhevm.StateReceiptReceived)
		empty := walked(t, s, fhevm.KindUserDecrypt, 2, e, fhevm.StateReceiptReceived)
		j, err := s.JobByID(t.Context(), o.Kind, o.ID)
		require.NoError(t, err)
		for i := range int64(2) {
			out, err := s.AddShare(t.Context(), Share{Reference: *j.Reference, Index: i, Share: "aa", Signature: "bb", ExtraData: "0x00"}, Event{LogIndex: i}, 1<<40)
			require.NoError(t, err)
			require.Equal(t, Stored, out)
		}
		ids, err := s.Gathering(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []int64{o.ID}, ids, "%v has no share", empty)
		ids, err = s.Gathering(t.Context(), o.ID, 10)
		require.NoError(t, err)
		require.Empty(t, ids)
		_, err = s.Recount(t.Context(), o.ID, 0)
		require.ErrorIs(t, err, ErrThreshold)
		_, err = s.Recount(t.Context(), 1<<40, 1)
		require.ErrorIs(t, err, ErrNotFound)
		for _, step := range []struct {
			threshold int64
			want      Outcome
		}{{3, Stored}, {2, Completes}, {2, Late}} {
			out, err := s.Recount(t.Context(), o.ID, step.threshold)
			require.NoError(t, err)
			require.Equal(t, step.want, out)
		}
	})
}

// After a re-organisation the number of a completed request can be another's: it keeps its shares, gets none of the other's, and is not in the way of a
// request that waits under that number.
func TestNumberOfACompletedRequestIsAnothers(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		done := walked(t, s, fhevm.KindUserDecrypt, 1, e, fhevm.StateReceiptReceived)
		attempts, err := s.Attempts(t.Context(), done.Kind, done.ID)
		require.NoError(t, err)
		old := hashOf("ref", 1)
		add := func(ref Hash, index int, block string) Outcome {
			sh := share(1, index)
			sh.Reference = ref
			out, err := s.AddShare(t.Context(), sh, event(block, index), 2)
			require.NoError(t, err)
			return out
		}
		require.Equal(t, Stored, add(old, 0, "a"))
		require.Equal(t, Completes, add(old, 1, "a"))
		require.Equal(t, Late, add(old, 2, "a"))
		kept, err := s.Shares(t.Context(), done.ID)
		require.NoError(t, err)
		require.Len(t, kept, 3)

		require.NoError(t, s.DropBlock(t.Context(), event("a", 0).BlockHash))
		require.NoError(t, s.Unmined(t.Context(), attempts[0].Hash))
		require.Equal(t, Early, add(old, 5, "b"), "nobody has this number now")
		waiting := walked(t, s, fhevm.KindUserDecrypt, 2, e, fhevm.StateTxInFlight)
		theirs, err := s.Attempts(t.Context(), waiting.Kind, waiting.ID)
		require.NoError(t, err)
		_, early, err := s.Receipt(t.Context(), waiting.Kind, waiting.ID, theirs[0].Hash, Block{9, hashOf("b9")}, old)
		require.NoError(t, err)
		require.Len(t, early, 1)
		_, _, err = s.Receipt(t.Context(), done.Kind, done.ID, attempts[0].Hash, Block{10, hashOf("b10")}, hashOf("new"))
		require.NoError(t, err)
		j, err := s.JobByID(t.Context(), done.Kind, done.ID)
		require.NoError(t, err)
		require.Equal(t, fhevm.StateCompleted, j.State)
		require.Equal(t, hashOf("new"), *j.Reference)
		require.Equal(t, Late, add(hashOf("new"), 7, "c"))
		require.Equal(t, Stored, add(old, 0, "b"))
		require.Equal(t, Completes, add(old, 1, "b"))
		now, err := s.Shares(t.Context(), done.ID)
		require.NoError(t, err)
		require.Equal(t, kept, now)
		require.Equal(t, fhevm.StateCompleted, stateOf(t, s, waiting))
	})
}
