package tokenlock_test

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// fixture is a database with the tokens a:0 to a:4 and b:0, made by the transactions a and b.
type fixture struct {
	*tokenlock.Store
	db     *storage.DB
	tokens *tokendb.Store
}

func each(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
		f := fixture{tokenlock.New(db, prefix), db, tokendb.New(db, prefix, tokendb.Options{})}
		t.Cleanup(func() {
			require.NoError(t, f.Close())
			require.NoError(t, f.tokens.Close())
		})
		for i := range uint64(5) {
			f.token(t, id("a", i))
		}
		f.token(t, id("b", 0))
		test(t, f)
	})
}

func id(txID string, index uint64) token.ID { return token.ID{TxID: txID, Index: index} }

func (f fixture) token(t *testing.T, id token.ID) {
	require.NoError(t, f.tokens.StoreToken(t.Context(), token.Record{ID: id, Type: "USD", Amount: big.NewInt(1), OwnerWalletID: "alice", Owner: true}))
}

// request stores a request, or gives it another status.
func (f fixture) request(t *testing.T, txID string, status token.TxStatus) {
	t.Helper()
	_, err := f.db.Write().ExecContext(t.Context(), "INSERT INTO "+prefix+"requests (tx_id, request, status, application_metadata, public_metadata, pp_hash, stored_at) "+
		"VALUES ($1, $2, $3, '{}', '{}', $2, '2026-01-01 00:00:00.000') ON CONFLICT (tx_id) DO UPDATE SET status = excluded.status", txID, []byte("r"), int(status))
	require.NoError(t, err)
}

func (f fixture) lock(t *testing.T, id token.ID, consumer string) {
	t.Helper()
	require.NoError(t, f.Lock(t.Context(), id, consumer, "alice"))
}

// cleanup frees and returns who still holds what.
func (f fixture) cleanup(t *testing.T, expiry time.Duration) []string {
	t.Helper()
	before := f.held(t)
	freed, err := f.Cleanup(t.Context(), expiry)
	require.NoError(t, err)
	after := f.held(t)
	require.EqualValues(t, len(before)-len(after), freed)
	return after
}

func (f fixture) held(t *testing.T) []string {
	t.Helper()
	all, err := storage.Collect(f.ListLocks(t.Context()))
	require.NoError(t, err)
	out := []string{}
	for _, l := range all {
		out = append(out, fmt.Sprintf("%s %s", l.ID, l.ConsumerTxID))
	}
	return out
}

func TestFully(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		f.lock(t, id("a", 0), "x")
		require.ErrorIs(t, f.Lock(ctx, id("a", 0), "y", "alice"), token.ErrTokenAlreadyLocked)
		require.ErrorIs(t, f.Lock(ctx, id("a", 0), "x", "alice"), token.ErrTokenAlreadyLocked, "by the same")
		f.lock(t, id("a", 1), "x")
		f.lock(t, id("a", 2), "y")
		n, err := f.UnlockByTxID(ctx, "x")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Equal(t, []string{"[a:2] y"}, f.held(t))
		n, err = f.UnlockByTxID(ctx, "x")
		require.NoError(t, err)
		require.Zero(t, n, "again")
		f.lock(t, id("a", 0), "y")

		require.ErrorIs(t, f.Lock(ctx, id("none", 0), "x", ""), token.ErrTokenDoesNotExist)
		require.NoError(t, f.tokens.DeleteTokens(ctx, "z", id("a", 3)))
		require.ErrorIs(t, f.Lock(ctx, id("a", 3), "x", ""), token.ErrTokenSpent)
		require.ErrorIs(t, f.Lock(ctx, id("a", 4), "", ""), token.ErrEmptyArgument)
		require.Error(t, f.Lock(ctx, token.ID{TxID: "a", Index: 1 << 63}, "x", ""))
	})
}

func TestLockBatch(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		f.lock(t, id("a", 1), "y")
		require.NoError(t, f.tokens.DeleteTokens(ctx, "z", id("a", 3)))
		won, err := f.LockBatch(ctx, "x", "alice", id("b", 0), id("a", 3), id("a", 1), id("none", 0), id("a", 0), id("b", 0))
		require.NoError(t, err)
		require.Equal(t, []token.ID{id("b", 0), id("a", 0)}, won)
		won, err = f.LockBatch(ctx, "x", "alice", id("b", 0), id("a", 0))
		require.NoError(t, err)
		require.Empty(t, won, "its own are held too")
		won, err = f.LockBatch(ctx, "x", "alice")
		require.NoError(t, err)
		require.Empty(t, won)
		many := []token.ID{}
		for i := range uint64(1200) { // more than one statement's worth
			many = append(many, id("none", i))
		}
		won, err = f.LockBatch(ctx, "x", "alice", append(many, id("a", 4))...)
		require.NoError(t, err)
		require.Equal(t, []token.ID{id("a", 4)}, won)
	})
}

func TestReleaseOnDeletedConsumer(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "y")
		f.request(t, "x", token.Pending)
		require.Len(t, f.cleanup(t, time.Hour), 2)
		f.request(t, "x", token.Deleted)
		require.Equal(t, []string{"[a:1] y"}, f.cleanup(t, time.Hour))
	})
}

func TestReleaseOnOrphanConsumer(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.request(t, "x", token.Orphan)
		require.Empty(t, f.cleanup(t, time.Hour))
		f.lock(t, id("a", 0), "z")
	})
}

func TestReleaseAfterConfirm(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.request(t, "x", token.Confirmed)
		require.Empty(t, f.cleanup(t, time.Hour))
	})
}

// What became of the transaction that made a token says nothing of its lock.
func TestKeepOnDeletedProducer(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("b", 0), "x")
		f.request(t, "a", token.Deleted)
		f.request(t, "b", token.Confirmed)
		require.Equal(t, []string{"[a:0] x", "[b:0] x"}, f.cleanup(t, time.Hour))
	})
}

// Each lock is freed by its own consumer: those of the same transaction's other outputs stay.
func TestKeepSiblingIndices(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "y")
		f.lock(t, id("a", 2), "z")
		f.request(t, "y", token.Deleted)
		f.request(t, "z", token.Pending)
		require.ElementsMatch(t, []string{"[a:0] x", "[a:2] z"}, f.cleanup(t, time.Hour))
	})
}

// age makes a consumer's locks older by the database's clock.
func (f fixture) age(t *testing.T, consumer string) {
	_, err := f.db.Write().ExecContext(t.Context(), "UPDATE "+prefix+"tkn_locks SET created_at = '2020-01-01 00:00:00.000' WHERE consumer_tx_id = $1", consumer)
	require.NoError(t, err)
}

func TestReleaseOnAgedLease(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "aged")
		f.lock(t, id("a", 1), "fresh")
		f.age(t, "aged")
		require.Equal(t, []string{"[a:1] fresh"}, f.cleanup(t, tokenlock.DefaultLease))
		require.Empty(t, f.cleanup(t, 0))
	})
}

// A lock whose consumer is pending stays, however old.
func TestKeepFreshPendingLock(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "copied")
		f.request(t, "x", token.Pending)
		require.NoError(t, f.SetConsumerStatus(t.Context(), "copied", token.Pending))
		f.age(t, "x")
		f.age(t, "copied")
		require.Equal(t, []string{"[a:0] x", "[a:1] copied"}, f.cleanup(t, 0))
	})
}

func TestListLocks(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "y")
		f.lock(t, id("a", 2), "z")
		f.request(t, "x", token.Pending)
		require.NoError(t, f.SetConsumerStatus(t.Context(), "y", token.Deleted))
		got := map[token.ID]token.Lock{}
		for l, err := range f.ListLocks(t.Context()) {
			require.NoError(t, err)
			require.False(t, l.CreatedAt.IsZero())
			l.CreatedAt, l.Age = time.Time{}, 0
			got[l.ID] = l
		}
		require.Equal(t, map[token.ID]token.Lock{
			id("a", 0): {ID: id("a", 0), ConsumerTxID: "x", WalletID: "alice", Status: token.Pending},
			id("a", 1): {ID: id("a", 1), ConsumerTxID: "y", WalletID: "alice", Status: token.Deleted},
			id("a", 2): {ID: id("a", 2), ConsumerTxID: "z", WalletID: "alice", Status: token.Unknown},
		}, got)
	})
}

func TestListLocksReportsLockAge(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "aged")
		f.lock(t, id("a", 1), "fresh")
		f.age(t, "aged")
		all, err := storage.Collect(f.ListLocks(t.Context()))
		require.NoError(t, err)
		require.Equal(t, "aged", all[0].ConsumerTxID, "the oldest first")
		require.Greater(t, all[0].Age, 365*24*time.Hour)
		require.Less(t, all[1].Age, time.Hour)
		require.GreaterOrEqual(t, all[1].Age, time.Duration(0))
	})
}

// A renewed lease begins anew; who renews sees what it lost.
func TestRenew(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "x")
		f.age(t, "x")
		n, err := f.Renew(ctx, "x")
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Len(t, f.cleanup(t, time.Minute), 2)
		f.age(t, "x")
		require.Empty(t, f.cleanup(t, time.Minute))
		require.NoError(t, token.InTx(ctx, f.db, func(ctx context.Context, shared token.Tx) error {
			tx, err := f.Continue(shared)
			require.NoError(t, err)
			n, err := tx.Renew(ctx, "x")
			require.Zero(t, n)
			return err
		}))
	})
}

// Locks are freed together with what another store writes, or not at all.
func TestContinue(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		f.lock(t, id("a", 0), "x")
		shared, err := token.Begin(ctx, f.db)
		require.NoError(t, err)
		tx, err := f.Continue(shared)
		require.NoError(t, err)
		n, err := tx.UnlockByTxID(ctx, "x")
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, shared.Rollback())
		require.Len(t, f.held(t), 1)
		_, err = f.Continue(token.Tx{})
		require.ErrorIs(t, err, token.ErrOtherDatabase)
	})
}

// The copied status follows the rules of the requests' own, and goes when the consumer holds nothing any more.
func TestSetConsumerStatus(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		for from := token.Pending; from <= token.Orphan; from++ {
			for to := token.Pending; to <= token.Orphan; to++ {
				txID := from.String() + to.String()
				require.NoError(t, f.SetConsumerStatus(ctx, txID, from))
				_, want := token.Change(from, to)
				err := f.SetConsumerStatus(ctx, txID, to)
				if want == nil {
					require.NoError(t, err, txID)
				} else {
					require.ErrorIs(t, err, token.ErrAlreadyFinal, txID)
				}
			}
		}
		require.ErrorIs(t, f.SetConsumerStatus(ctx, "x", token.Unknown), token.ErrStatus)
		f.lock(t, id("a", 0), "ConfirmedConfirmed")
		require.Empty(t, f.cleanup(t, time.Hour))
		var left int
		require.NoError(t, f.db.Read().QueryRowContext(ctx, "SELECT COUNT(*) FROM "+prefix+"tkn_consumers").Scan(&left))
		require.Equal(t, 1, left, "the pending one")
	})
}

func TestCleanupLeadership(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		first, err := f.AcquireCleanupLeadership(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NotNil(t, first)
		second, err := f.AcquireCleanupLeadership(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Nil(t, second)
	})
}

// Of any number that want a token at once, one gets it.
func TestOneWinner(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		all := []token.ID{id("a", 0), id("a", 1), id("a", 2), id("a", 3), id("a", 4), id("b", 0)}
		var mu sync.Mutex
		won := map[token.ID]string{}
		var wg sync.WaitGroup
		for n := range 16 {
			wg.Go(func() {
				me := fmt.Sprint("tx", n)
				var mine []token.ID
				if n%2 == 0 {
					got, err := f.LockBatch(t.Context(), me, "alice", all[n%3:]...)
					if err != nil {
						t.Error(err)
					}
					mine = got
				} else if err := f.Lock(t.Context(), all[n%len(all)], me, "alice"); err == nil {
					mine = []token.ID{all[n%len(all)]}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, id := range mine {
					if other, taken := won[id]; taken {
						t.Errorf("%s is %s's and %s's", id, other, me)
					}
					won[id] = me
				}
			})
		}
		wg.Wait()
		require.Len(t, won, len(all))
		require.Len(t, f.held(t), len(all))
	})
}

func TestUnlock(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		f.lock(t, id("a", 0), "x")
		f.lock(t, id("a", 1), "x")
		f.lock(t, id("a", 2), "y")
		for range 2 {
			require.NoError(t, f.Unlock(t.Context(), "x", id("a", 0), id("a", 2), id("none", 0), token.ID{TxID: "a", Index: 1 << 63}))
			require.ElementsMatch(t, []string{"[a:1] x", "[a:2] y"}, f.held(t), "the other's stays")
		}
		require.NoError(t, f.Unlock(t.Context(), "x"))
	})
}

// Who comes while a token is being spent does not get it, though its lock is given back together with the spending.
func TestNoLockOnWhatIsBeingSpent(t *testing.T) {
	each(t, func(t *testing.T, f fixture) {
		ctx := t.Context()
		for i := range uint64(5) {
			f.lock(t, id("a", i), "x")
			shared, err := token.Begin(ctx, f.db)
			require.NoError(t, err)
			spend, err := f.tokens.Continue(shared)
			require.NoError(t, err)
			require.NoError(t, spend.Delete(ctx, id("a", i), "x"))
			var wg sync.WaitGroup
			for n := range 4 {
				wg.Go(func() {
					won, err := f.LockBatch(ctx, fmt.Sprint("y", n), "alice", id("a", i))
					if err != nil || len(won) > 0 {
						t.Errorf("%v, %v", won, err)
					}
				})
			}
			locks, err := f.Continue(shared)
			require.NoError(t, err)
			_, err = locks.UnlockByTxID(ctx, "x")
			require.NoError(t, err)
			require.NoError(t, shared.Commit())
			wg.Wait()
		}
	})
}
