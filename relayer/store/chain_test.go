package store

import (
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e, signer := epoch(t, s), common.Address{1}
		next, err := s.NextNonce(t.Context(), signer)
		require.NoError(t, err)
		require.Zero(t, next)
		a := walked(t, s, fhevm.KindPublicDecrypt, 7, e, fhevm.StateTxInFlight)
		b := walked(t, s, fhevm.KindUserDecrypt, 8, e, fhevm.StateProcessing)

		// A nonce belongs to one request, and nothing of the second one is left.
		_, err = s.BeginSend(t.Context(), b, attempt(7, 1))
		require.ErrorIs(t, err, ErrNonce)
		require.Equal(t, fhevm.StateProcessing, stateOf(t, s, b))
		moved(t)(s.BeginSend(t.Context(), b, attempt(8, 0)))

		// Replacements, and no new nonce while the old one may still be mined.
		moved(t)(s.AddAttempt(t.Context(), a, attempt(7, 2)))
		cancel := attempt(7, 3)
		cancel.Cancels = true
		moved(t)(s.AddAttempt(t.Context(), a, cancel))
		_, err = s.AddAttempt(t.Context(), a, attempt(9, 0))
		require.ErrorIs(t, err, ErrNonce)
		_, err = s.AddAttempt(t.Context(), a, attempt(8, 5))
		require.ErrorIs(t, err, ErrNonce)
		stayed(t)(s.AddAttempt(t.Context(), Owner{a.Kind, a.ID, e - 1}, attempt(7, 4)))
		all, err := s.Attempts(t.Context(), fhevm.KindPublicDecrypt, a.ID)
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.True(t, all[2].Cancels)
		require.Equal(t, "2", all[1].FeeCap.String())
		require.Equal(t, []byte{2, 2}, all[1].Raw)

		// The nonce is mined by somebody else: then a new one may be taken, once.
		stayed(t)(s.Fail(t.Context(), a, fhevm.StateTxInFlight, Cause{}))
		moved(t)(s.NonceLost(t.Context(), a, signer, 7))
		_, err = s.AddAttempt(t.Context(), a, attempt(7, 6))
		require.ErrorIs(t, err, ErrNonce)
		next, err = s.NextNonce(t.Context(), signer)
		require.NoError(t, err)
		require.EqualValues(t, 9, next)
		moved(t)(s.AddAttempt(t.Context(), a, attempt(9, 0)))
		moved(t)(s.AddAttempt(t.Context(), a, attempt(9, 1)))

		// One of a nonce is mined and the others are lost; a re-organisation gives all of them back.
		at := Block{5, hashOf("five")}
		got, err := s.Mined(t.Context(), attempt(9, 0).Hash, at, true)
		require.NoError(t, err)
		require.Equal(t, a.ID, got.JobID)
		require.Equal(t, []Result{Lost, Lost, Lost, Reverted, Lost}, results(t, s, a))
		got, err = s.AttemptByHash(t.Context(), attempt(9, 0).Hash)
		require.NoError(t, err)
		require.Equal(t, at, got.Block)
		_, err = s.AddAttempt(t.Context(), a, attempt(10, 0))
		require.ErrorIs(t, err, ErrNonce, "it has had its transaction")
		require.NoError(t, s.Unmined(t.Context(), attempt(9, 0).Hash))
		require.Equal(t, []Result{Lost, Lost, Lost, Pending, Pending}, results(t, s, a))
		stayed(t)(s.Fail(t.Context(), a, fhevm.StateTxInFlight, Cause{}))
		_, err = s.Mined(t.Context(), attempt(9, 1).Hash, at, true)
		require.NoError(t, err)
		moved(t)(s.Fail(t.Context(), a, fhevm.StateTxInFlight, Cause{"reverted", "why"}))
		stayed(t)(s.AddAttempt(t.Context(), a, attempt(9, 2)))
		_, err = s.Mined(t.Context(), hashOf("foreign"), at, false)
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func results(t testing.TB, s *Store, o Owner) (out []Result) {
	t.Helper()
	all, err := s.Attempts(t.Context(), o.Kind, o.ID)
	require.NoError(t, err)
	for _, a := range all {
		out = append(out, a.Result)
	}
	return out
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		e := epoch(t, s)
		o := walked(t, s, fhevm.KindPublicDecrypt, 1, e, fhevm.StateTxInFlight)
		other := walked(t, s, fhevm.KindPublicDecrypt, 2, e, fhevm.StateTxInFlight)
		moved(t)(s.AddAttempt(t.Context(), o, attempt(1, 9)))
		cancel := attempt(1, 10)
		cancel.Cancels = true
		moved(t)(s.AddAttempt(t.Context(), o, cancel))
		for _, foreign := range []Hash{attempt(2, 2).Hash, cancel.Hash, hashOf("unknown")} {
			_, _, err := s.Receipt(t.Context(), fhevm.KindPublicDecrypt, o.ID, foreign, Block{}, hashOf("ref"))
			require.ErrorIs(t, err, ErrNotFound)
		}
		// An epoch later the receipt still counts: it is a fact.
		epoch(t, s)
		ok, early, err := s.Receipt(t.Context(), fhevm.KindPublicDecrypt, o.ID, attempt(1, 1).Hash, Block{1, hashOf("b1")}, hashOf("ref"))
		moved(t)(ok, err)
		require.Empty(t, early)
		require.Equal(t, []Result{Mined, Lost, Lost}, results(t, s, o))
		since := c.now()

		// The chain changes its mind: another attempt, another id, the same state for as long as before.
		c.advance(time.Second)
		ok, _, err = s.Receipt(t.Context(), fhevm.KindPublicDecrypt, o.ID, attempt(1, 9).Hash, Block{2, hashOf("b2")}, hashOf("ref 2"))
		stayed(t)(ok, err)
		j, err := s.JobByReference(t.Context(), fhevm.KindPublicDecrypt, hashOf("ref 2"))
		require.NoError(t, err)
		require.Equal(t, o.ID, j.ID)
		require.Equal(t, since, j.StateSince)
		require.Equal(t, fhevm.StateReceiptReceived, j.State)
		hash := attempt(1, 9).Hash
		require.Equal(t, common.Hash(hash).Hex(), j.TxHash)
		_, err = s.JobByReference(t.Context(), fhevm.KindPublicDecrypt, hashOf("ref"))
		require.ErrorIs(t, err, ErrNotFound)
		require.Equal(t, fhevm.StateTxInFlight, stateOf(t, s, other))
		moved(t)(s.Fail(t.Context(), o, fhevm.StateReceiptReceived, Cause{"reverted", "in another block"}))
	})
}

func share(n, index int) Share {
	return Share{Reference: hashOf("ref", n), Index: int64(index), Share: "aa", Signature: "bb", ExtraData: "0x00", TxHash: "0x1"}
}

func event(block string, index int) Event {
	return Event{BlockHash: hashOf(block), LogIndex: int64(index), Data: []byte(block)}
}

func TestShares(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		e := epoch(t, s)
		o := walked(t, s, fhevm.KindUserDecrypt, 1, e, fhevm.StateReceiptReceived)
		add := func(index int, block string, threshold int64) Outcome {
			c.advance(time.Millisecond)
			out, err := s.AddShare(t.Context(), share(1, index), event(block, index), threshold)
			require.NoError(t, err)
			return out
		}
		_, err := s.AddShare(t.Context(), share(1, 1), event("a", 1), 0)
		require.ErrorIs(t, err, ErrThreshold)
		require.Equal(t, Stored, add(3, "a", 3))
		require.Equal(t, Stored, add(3, "a", 3), "counts once")
		require.Equal(t, Stored, add(1, "b", 3))
		require.NoError(t, s.DropBlock(t.Context(), hashOf("b")))
		require.Equal(t, Stored, add(2, "a", 3), "one went with its block")
		require.Equal(t, Stored, add(2, "c", 3), "from another block it takes the place of the first")
		require.NoError(t, s.DropBlock(t.Context(), hashOf("a")))
		require.Equal(t, Stored, add(3, "c", 3))
		require.Equal(t, Completes, add(1, "c", 3))
		j, err := s.JobByID(t.Context(), fhevm.KindUserDecrypt, o.ID)
		require.NoError(t, err)
		require.EqualValues(t, 3, j.Threshold)
		require.Equal(t, c.now(), j.StateSince)
		require.Equal(t, Late, add(4, "c", 3))
		require.Equal(t, Late, add(5, "c", 1))
		after, err := s.JobByID(t.Context(), fhevm.KindUserDecrypt, o.ID)
		require.NoError(t, err)
		require.Equal(t, j, after)
		shares, err := s.Shares(t.Context(), o.ID)
		require.NoError(t, err)
		require.Len(t, shares, 5)
		require.Equal(t, share(1, 4), shares[3])

		// The consensus is written once, also after the end.
		for i, want := range []Outcome{Stored, Late} {
			out, err := s.Consensus(t.Context(), hashOf("ref", 1), string(rune('a'+i)), event("d", i))
			require.NoError(t, err)
			require.Equal(t, want, out)
		}
		j, err = s.JobByID(t.Context(), fhevm.KindUserDecrypt, o.ID)
		require.NoError(t, err)
		require.Equal(t, "a", j.ResponseHash)
	})
}

// Shares that come at the same time complete the request exactly once, whatever the order.
func TestSharesAtOnce(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		for n := range 5 {
			o := walked(t, s, fhevm.KindUserDecrypt, n, e, fhevm.StateReceiptReceived)
			var wg sync.WaitGroup
			var mu sync.Mutex
			outs := map[Outcome]int{}
			for index := range 13 {
				for range 2 {
					wg.Go(func() {
						out, err := s.AddShare(t.Context(), share(n, index), event("a", index), 9)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						outs[out]++
						mu.Unlock()
					})
				}
			}
			wg.Wait()
			require.Equal(t, 1, outs[Completes], outs)
			require.Zero(t, outs[Early])
			require.Equal(t, fhevm.StateCompleted, stateOf(t, s, o))
			shares, err := s.Shares(t.Context(), o.ID)
			require.NoError(t, err)
			require.Len(t, shares, 13)
		}
	})
}

func TestProofs(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		for n, r := range []Response{{Result: []byte(`{"handles":[]}`), Accepted: true, TxHash: "0x1"}, {Reason: "Proof Rejected", TxHash: "0x2"}} {
			o := walked(t, s, fhevm.KindInputProof, n, e, fhevm.StateReceiptReceived)
			for _, want := range []Outcome{Completes, Late} {
				out, err := s.Complete(t.Context(), fhevm.KindInputProof, hashOf("ref", n), r, Event{})
				require.NoError(t, err)
				require.Equal(t, want, out)
			}
			j, err := s.JobByID(t.Context(), fhevm.KindInputProof, o.ID)
			require.NoError(t, err)
			require.Equal(t, r.Accepted, *j.Accepted)
			require.Equal(t, r.Reason, j.ErrReason)
			require.Equal(t, r.TxHash, j.ResponseHash)
			require.Equal(t, r.Result == nil, j.Result == nil)
		}
	})
}

func TestEarlyEvents(t *testing.T) {
	t.Parallel()
	each(t, Options{MaxEarlyEvents: 4}, func(t *testing.T, s *Store, c *clock) {
		e := epoch(t, s)
		o := walked(t, s, fhevm.KindUserDecrypt, 1, e, fhevm.StateTxInFlight)
		for range 2 { // the second time it is known
			for index := range 2 {
				out, err := s.AddShare(t.Context(), share(1, index), event("a", index), 2)
				require.NoError(t, err)
				require.Equal(t, Early, out)
			}
		}
		none, err := s.EarlyMatched(t.Context(), fhevm.KindUserDecrypt, 10)
		require.NoError(t, err)
		require.Empty(t, none)
		ok, early, err := s.Receipt(t.Context(), fhevm.KindUserDecrypt, o.ID, attempt(1, 1).Hash, Block{}, hashOf("ref", 1))
		moved(t)(ok, err)
		require.Len(t, early, 2)
		require.Equal(t, event("a", 1), early[1].Event)
		matched, err := s.EarlyMatched(t.Context(), fhevm.KindUserDecrypt, 10)
		require.NoError(t, err)
		require.Equal(t, early, matched, "still there for a process that comes after")
		for i, want := range []Outcome{Stored, Completes} {
			out, err := s.AddShare(t.Context(), share(1, i), early[i].Event, 2)
			require.NoError(t, err)
			require.Equal(t, want, out)
			require.NoError(t, s.DropEarly(t.Context(), early[i].ID))
			require.NoError(t, s.DropEarly(t.Context(), early[i].ID))
		}

		// Other relayers' events: the oldest go first, by number and by age and with their block.
		for n := range 10 {
			out, err := s.Complete(t.Context(), fhevm.KindPublicDecrypt, hashOf("foreign", n), Response{}, event("f", n))
			require.NoError(t, err)
			require.Equal(t, Early, out)
		}
		require.EqualValues(t, 6, s.EarlyDropped())
		kept := func() (out []int64) {
			for n := range 10 {
				events, err := s.earlyOf(t.Context(), s.db.Read(), fhevm.KindPublicDecrypt, hashOf("foreign", n))
				require.NoError(t, err)
				for _, e := range events {
					out = append(out, e.LogIndex)
				}
			}
			return out
		}
		require.Equal(t, []int64{6, 7, 8, 9}, kept())
		c.advance(time.Second)
		_, err = s.Consensus(t.Context(), hashOf("foreign user"), "x", event("g", 1))
		require.NoError(t, err)
		n, err := s.ExpireEarly(t.Context(), c.now(), 2)
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Equal(t, []int64{9}, kept(), "6 made room for the event above, 7 and 8 are older")
		require.NoError(t, s.DropBlock(t.Context(), hashOf("f")))
		require.Empty(t, kept())
		n, err = s.ExpireEarly(t.Context(), c.now(), 2)
		require.NoError(t, err)
		require.Zero(t, n, "as old as the limit, not older")
		_, err = s.EarlyMatched(t.Context(), fhevm.KindUserDecrypt, storage.MaxPage+1)
		require.ErrorIs(t, err, storage.ErrPageSize)
	})
}

// However a receipt and a response meet, the response ends up with the request.
func TestReceiptMeetsResponse(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		for n := range 20 {
			o := walked(t, s, fhevm.KindPublicDecrypt, n, e, fhevm.StateTxInFlight)
			var wg sync.WaitGroup
			var out Outcome
			var early []EarlyEvent
			var errs [2]error
			wg.Go(func() {
				_, early, errs[0] = s.Receipt(t.Context(), fhevm.KindPublicDecrypt, o.ID, attempt(int64(n), n).Hash, Block{}, hashOf("ref", n))
			})
			wg.Go(func() {
				out, errs[1] = s.Complete(t.Context(), fhevm.KindPublicDecrypt, hashOf("ref", n), Response{}, event("a", n))
			})
			wg.Wait()
			require.NoError(t, errs[0])
			require.NoError(t, errs[1])
			require.Equal(t, out == Early, len(early) == 1, "%s %d", out, len(early))
			require.Equal(t, out == Completes, stateOf(t, s, o) == fhevm.StateCompleted)
		}
	})
}
