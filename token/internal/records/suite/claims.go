package suite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/records"
)

func (s *Store) claim(t testing.TB, owner string, limit int) (ids []string) {
	t.Helper()
	got, err := s.ClaimPendingTransactions(t.Context(), records.Claims{Owner: owner, OlderThan: time.Minute, Lease: time.Hour, Limit: limit})
	require.NoError(t, err)
	for _, p := range got {
		ids = append(ids, p.TxID)
	}
	return ids
}

func claims(t *testing.T, s *Store) {
	ctx := t.Context()
	for i, id := range []string{"t3", "t1", "t2"} {
		s.Set(Begin.Add(time.Duration(i) * time.Second))
		s.Add(t, id)
	}
	s.Set(time.Now())
	s.Add(t, "young")
	s.Set(Begin)
	s.Add(t, "done")
	require.NoError(t, s.SetStatus(ctx, "done", token.Confirmed, ""))
	require.Equal(t, []string{"t3", "t1"}, s.claim(t, "x", 2), "the oldest first")
	require.Equal(t, []string{"t2"}, s.claim(t, "y", 10), "what another has claimed is left alone")
	require.Equal(t, []string{"t3", "t1"}, s.claim(t, "x", 10), "one's own come again")
	require.Empty(t, s.claim(t, "z", 10))
	require.NoError(t, s.ReleaseRecoveryClaim(ctx, "t1", "y", "not yours"))
	require.Empty(t, s.claim(t, "z", 10), "only the owner releases")
	require.NoError(t, s.ReleaseRecoveryClaim(ctx, "t1", "x", "looked at"))
	_, message, err := s.GetStatus(ctx, "t1")
	require.NoError(t, err)
	require.Equal(t, "looked at", message)
	require.NoError(t, s.ReleaseRecoveryClaim(ctx, "t1", "x", "too late"))
	got, err := s.ClaimPendingTransactions(ctx, records.Claims{Owner: "z", OlderThan: time.Minute, Lease: time.Hour, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "t1", got[0].TxID)
	require.Equal(t, 3, got[0].Attempts)
	require.Equal(t, Begin.Add(time.Second), got[0].StoredAt)
	require.InDelta(t, time.Since(Begin), got[0].Age, float64(time.Minute))
}

func claimsExpire(t *testing.T, s *Store) {
	s.Add(t, "tx1")
	require.Equal(t, []string{"tx1"}, s.claim(t, "x", 1))
	require.Empty(t, s.claim(t, "y", 1))
	s.exec(t, "UPDATE "+s.Table+"requests SET recovery_claim_expires_at = $1", storage.NewTime(Begin))
	require.Equal(t, []string{"tx1"}, s.claim(t, "y", 1))
	require.Empty(t, s.claim(t, "x", 1), "it is another's now")
	require.NoError(t, s.ReleaseRecoveryClaim(t.Context(), "tx1", "x", ""))
	require.Empty(t, s.claim(t, "x", 1))
}

// claimsGoOn: those that stay pending do not keep the younger ones from being looked at.
func claimsGoOn(t *testing.T, s *Store) {
	for i := range 5 {
		s.Set(Begin.Add(time.Duration(i/2) * time.Second)) // two of one moment
		s.Add(t, fmt.Sprint("t", i))
	}
	var all []string
	var after *token.PendingTransaction
	for {
		got, err := s.ClaimPendingTransactions(t.Context(), records.Claims{Owner: "x", Lease: time.Hour, Limit: 2, After: after})
		require.NoError(t, err)
		if len(got) == 0 {
			break
		}
		for _, p := range got {
			all = append(all, p.TxID)
		}
		after = &got[len(got)-1]
	}
	require.Equal(t, []string{"t0", "t1", "t2", "t3", "t4"}, all)
}

// claimRaces: on both backends nobody claims what another has.
func claimRaces(t *testing.T, s *Store) {
	for i := range 40 {
		s.Add(t, fmt.Sprint("t", i))
	}
	var mu sync.Mutex
	owners := map[string]string{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			owner := fmt.Sprint("w", w)
			for {
				got, err := s.ClaimPendingTransactions(context.WithoutCancel(t.Context()), records.Claims{Owner: owner, Lease: time.Hour, Limit: 3})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				again := true
				for _, p := range got {
					if other, ok := owners[p.TxID]; ok && other != owner {
						t.Errorf("%s is claimed by %s and %s", p.TxID, other, owner)
					} else if !ok {
						again = false
					}
					owners[p.TxID] = owner
				}
				all := len(owners) == 40
				mu.Unlock()
				if len(got) == 0 || all || again && len(got) < 3 {
					return
				}
				if again { // a full batch of its own: end them, to get others
					for _, p := range got {
						if err := s.SetStatus(context.WithoutCancel(t.Context()), p.TxID, token.Confirmed, ""); err != nil {
							t.Error(err)
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, owners, 40)
}

func claimEndsWithStatus(t *testing.T, s *Store) {
	s.Add(t, "tx1")
	require.Equal(t, []string{"tx1"}, s.claim(t, "x", 1))
	require.NoError(t, s.SetStatus(t.Context(), "tx1", token.Orphan, ""))
	require.Empty(t, s.claim(t, "x", 1))
	var left int
	require.NoError(t, s.DB.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+s.Table+"requests WHERE recovery_claimed_by IS NOT NULL OR recovery_claim_expires_at IS NOT NULL").Scan(&left))
	require.Zero(t, left)
}

func claimArguments(t *testing.T, s *Store) {
	for _, c := range []records.Claims{{Lease: time.Second, Limit: 1}, {Owner: "x", Limit: 1}, {Owner: "x", Lease: time.Second}, {Owner: "x", Lease: time.Second, Limit: storage.MaxPage + 1}} {
		_, err := s.ClaimPendingTransactions(t.Context(), c)
		require.Error(t, err, "%+v", c)
	}
}

// leadership: of the TMS and of this side of it alone (weaknesses 10 and 12): a row, no connection.
func leadership(t *testing.T, s *Store) {
	ctx := t.Context()
	first, err := s.AcquireRecoveryLeadership(ctx, time.Hour)
	require.NoError(t, err)
	require.NotNil(t, first)
	second, err := s.AcquireRecoveryLeadership(ctx, time.Hour)
	require.NoError(t, err)
	require.Nil(t, second)
	other, err := s.AcquireLeadership(ctx, "checks", time.Hour)
	require.NoError(t, err)
	require.NotNil(t, other)
	require.NoError(t, s.DB.Migrate(ctx, token.Tables("n__c__t__")))
	neighbour := records.New(s.DB, "n__c__t__", "", records.Options{})
	third, err := neighbour.AcquireRecoveryLeadership(ctx, time.Hour)
	require.NoError(t, err)
	require.NotNil(t, third, "another TMS on the same database")
	require.NoError(t, neighbour.Close())
	require.NoError(t, first.Release(ctx))
	second, err = s.AcquireRecoveryLeadership(ctx, time.Hour)
	require.NoError(t, err)
	require.NotNil(t, second)
}

func deleteFinished(t *testing.T, s *Store) {
	ctx := t.Context()
	for i, to := range []token.TxStatus{token.Confirmed, token.Pending, token.Deleted, token.Orphan, token.Confirmed} {
		id := fmt.Sprint("t", i)
		s.Set(Begin.Add(time.Duration(i) * time.Second))
		if i == 4 {
			s.Set(time.Now())
		}
		s.Add(t, id)
		require.NoError(t, s.In(t, func(tx *records.Tx) error {
			if err := tx.AddTransaction(ctx, record(id, 1)); err != nil {
				return err
			}
			return tx.AddMovement(ctx, movement(id, "alice", "USD", 1))
		}))
		require.NoError(t, s.AddTransactionEndorsementAck(ctx, id, token.Identity("e"), []byte("s")))
		require.NoError(t, s.SetStatus(ctx, id, to, ""))
	}
	for _, want := range []int{2, 1, 0} {
		n, err := s.DeleteFinished(ctx, time.Hour, 2)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for _, table := range []string{"requests", "txs", "movements", "tx_ends"} {
		var left string
		rows, err := s.DB.Read().QueryContext(ctx, "SELECT tx_id FROM "+s.Table+table+" ORDER BY tx_id")
		require.NoError(t, err)
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			left += id
		}
		require.NoError(t, rows.Err())
		require.Equal(t, "t1t4", left, table)
	}
	for _, limit := range []int{0, storage.MaxPage + 1} {
		_, err := s.DeleteFinished(ctx, time.Hour, limit)
		require.ErrorIs(t, err, storage.ErrPageSize)
	}
}
