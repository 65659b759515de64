package auditdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/internal/records/suite"
)

func each(t *testing.T, test func(t *testing.T, open func(t *testing.T) *auditdb.Store)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, openDB func(t *testing.T) *storage.DB) {
		db := openDB(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(suite.Prefix)))
		first := true
		test(t, func(t *testing.T) *auditdb.Store { // another process, where there can be one
			if !first && db.Backend() == storage.Postgres {
				db = openDB(t)
			}
			first = false
			s := auditdb.New(db, suite.Prefix, auditdb.Options{})
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		})
	})
}

// lockers runs a test with both lockers; the second of a pair is another process's where locks reach that far.
func lockers(t *testing.T, test func(t *testing.T, s *auditdb.Store, a, b auditdb.Locker)) {
	t.Helper()
	o := auditdb.LockerOptions{Wait: 30 * time.Second, Backoff: time.Millisecond, Heartbeat: time.Hour}
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		s := open(t)
		one := auditdb.NewMemoryLocker(o)
		test(t, s, one, one)
		require.NoError(t, one.Close())
		two := open(t)
		a, b := auditdb.NewLeaseLocker(s, o), auditdb.NewLeaseLocker(two, o)
		test(t, s, a, b)
		for _, l := range []auditdb.Locker{a, b, a} {
			require.NoError(t, l.Close())
		}
	})
}

// held tells what AssertLocksHeld says.
func held(t testing.TB, s *auditdb.Store, l auditdb.Locker, anchor string, eids ...string) error {
	return s.InTx(t.Context(), func(ctx context.Context, tx *auditdb.Tx) error { return l.AssertLocksHeld(ctx, tx, anchor, eids...) })
}

func TestLocks(t *testing.T) {
	lockers(t, func(t *testing.T, s *auditdb.Store, a, b auditdb.Locker) {
		ctx := t.Context()
		require.ErrorIs(t, held(t, s, a, "tx1", "alice"), auditdb.ErrLockNotHeld)
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "bob", "alice", "bob"))
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "alice", "carol"), "what it has already it keeps")
		require.NoError(t, held(t, s, a, "tx1", "carol", "alice", "bob"))
		require.NoError(t, held(t, s, a, "tx1"))
		require.ErrorIs(t, held(t, s, a, "tx1", "alice", "dave"), auditdb.ErrLockNotHeld)
		require.ErrorIs(t, held(t, s, a, "tx2", "alice"), auditdb.ErrLockNotHeld)
		require.NoError(t, b.AcquireLocks(ctx, "tx2", "dave"))

		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.AcquireLocks(short, "tx2", "erin", "bob"), context.DeadlineExceeded)
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "erin"), "all or none")

		won := make(chan error, 1)
		go func() { won <- b.AcquireLocks(ctx, "tx2", "alice", "erin") }()
		require.NoError(t, a.ReleaseLocks(ctx, "tx1"))
		require.NoError(t, a.ReleaseLocks(ctx, "tx1"))
		require.NoError(t, <-won)
		require.ErrorIs(t, held(t, s, a, "tx1", "alice"), auditdb.ErrLockNotHeld)
		require.NoError(t, b.ReleaseLocks(ctx, "tx2"))
		require.ErrorIs(t, a.AcquireLocks(ctx, "", "alice"), token.ErrEmptyArgument)
		require.ErrorIs(t, a.AcquireLocks(ctx, "tx1", "alice", ""), token.ErrEmptyArgument)
	})
}

// Two that lock the same ids in different orders do not wait for each other for ever, and no id is locked twice.
func TestLockRaces(t *testing.T) {
	lockers(t, func(t *testing.T, s *auditdb.Store, a, b auditdb.Locker) {
		ids := []string{"a", "b", "c", "d"}
		var in [4]atomic.Int32
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				l := []auditdb.Locker{a, b}[w%2]
				for i := range 5 {
					anchor := fmt.Sprint("tx", w, "-", i)
					first, second := (w+i)%4, (w+2*i+1)%4
					if err := l.AcquireLocks(t.Context(), anchor, ids[first], ids[second]); err != nil {
						t.Error(err)
						return
					}
					for _, n := range map[int]int{first: first, second: second} {
						if in[n].Add(1) != 1 {
							t.Error("locked twice")
						}
					}
					for _, n := range map[int]int{first: first, second: second} {
						in[n].Add(-1)
					}
					if err := l.ReleaseLocks(t.Context(), anchor); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := auditdb.NewMemoryLocker(auditdb.LockerOptions{})
		require.NoError(t, l.AcquireLocks(t.Context(), "tx1", "b"))
		begin := time.Now()
		err := l.AcquireLocks(t.Context(), "tx2", "a", "b", "c")
		require.ErrorIs(t, err, auditdb.ErrLockAcquireTimeout)
		require.ErrorIs(t, err, auditdb.ErrLockContention)
		require.Equal(t, time.Minute, time.Since(begin))
		require.NoError(t, l.AcquireLocks(t.Context(), "tx3", "a", "c"), "what it had meanwhile is free again")
	})
}

func TestLeaseTimeout(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		a := auditdb.NewLeaseLocker(open(t), auditdb.LockerOptions{})
		b := auditdb.NewLeaseLocker(open(t), auditdb.LockerOptions{Wait: 20 * time.Millisecond, Backoff: time.Millisecond})
		require.NoError(t, a.AcquireLocks(t.Context(), "tx1", "b"))
		err := b.AcquireLocks(t.Context(), "tx2", "a", "b")
		require.ErrorIs(t, err, auditdb.ErrLockAcquireTimeout)
		require.ErrorIs(t, b.AcquireLocks(t.Context(), "tx1", "b"), auditdb.ErrLockAcquireTimeout, "the same transaction in another process is another")
		require.NoError(t, a.Close())
		c := auditdb.NewLeaseLocker(open(t), auditdb.LockerOptions{}) // which waits longer than a busy machine can take
		require.NoError(t, c.AcquireLocks(t.Context(), "tx2", "a", "b"), "what is closed holds nothing")
		require.NoError(t, c.Close())
		require.NoError(t, b.Close())
		require.Error(t, b.AcquireLocks(t.Context(), "tx2", "a"))
	})
}

func expire(t testing.TB, s *auditdb.Store) {
	_, err := s.DB().Write().ExecContext(t.Context(), "UPDATE "+suite.Prefix+"eid_leases SET expires_at = $1", storage.NewTime(suite.Begin))
	require.NoError(t, err)
}

func TestLeaseLost(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		ctx := t.Context()
		s := open(t)
		a, b := auditdb.NewLeaseLocker(s, auditdb.LockerOptions{}), auditdb.NewLeaseLocker(open(t), auditdb.LockerOptions{})
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "alice", "bob"))
		expire(t, s)
		require.ErrorIs(t, held(t, s, a, "tx1", "alice"), auditdb.ErrLockLost)
		require.NoError(t, b.AcquireLocks(ctx, "tx2", "alice"), "the lease of a dead process ends")
		require.ErrorIs(t, held(t, s, a, "tx1", "alice"), auditdb.ErrLockLost)
		require.NoError(t, a.ReleaseLocks(ctx, "tx1"))
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "bob"))
		require.NoError(t, held(t, s, a, "tx1", "bob"), "taken anew")
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		require.Error(t, a.AcquireLocks(short, "tx1", "alice"), "what another took is not freed by releasing one's own")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// While a lock is held, its lease is renewed; one that another took is not.
func TestHeartbeat(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		ctx := t.Context()
		s := open(t)
		a := auditdb.NewLeaseLocker(s, auditdb.LockerOptions{Heartbeat: time.Millisecond})
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "alice", "bob"))
		_, err := s.DB().Write().ExecContext(ctx, "UPDATE "+suite.Prefix+"eid_leases SET owner = 'another' WHERE eid = 'bob'")
		require.NoError(t, err)
		expire(t, s)
		require.Eventually(t, func() bool { return held(t, s, a, "tx1", "alice") == nil }, 30*time.Second, time.Millisecond)
		require.ErrorIs(t, held(t, s, a, "tx1", "bob"), auditdb.ErrLockLost)
		require.NoError(t, a.Close())
		var left string
		require.NoError(t, s.DB().Read().QueryRowContext(ctx, "SELECT eid FROM "+suite.Prefix+"eid_leases").Scan(&left))
		require.Equal(t, "bob", left)
	})
}

// A lease that a transaction relies on is nobody else's until it ends.
func TestAssertedLocksStayToTheEnd(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		ctx := t.Context()
		s := open(t)
		a := auditdb.NewLeaseLocker(s, auditdb.LockerOptions{})
		require.NoError(t, a.AcquireLocks(ctx, "tx1", "alice"))
		other := auditdb.New(storagetest.Open(t, storagetest.Config(t, storage.DriverMemory)), suite.Prefix, auditdb.Options{})
		foreign, err := other.Begin(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, a.AssertLocksHeld(ctx, foreign, "tx1", "alice"), token.ErrOtherDatabase)
		foreign.Rollback()

		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, a.AssertLocksHeld(ctx, tx, "tx1", "alice"))
		// The lease's own end does not matter any more: who takes it has to wait for this transaction.
		b := auditdb.NewLeaseLocker(s, auditdb.LockerOptions{Backoff: time.Millisecond})
		took := make(chan error, 1)
		go func() { took <- b.AcquireLocks(ctx, "tx2", "alice") }()
		select {
		case <-took:
			t.Fatal("taken in between")
		default:
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, a.ReleaseLocks(ctx, "tx1"))
		require.NoError(t, <-took)
		require.NoError(t, b.Close())
		require.NoError(t, a.Close())
		require.NoError(t, other.Close())
	})
}

func anchor(request []byte) (string, error) {
	id, _, ok := bytes.Cut(request, []byte(":"))
	if !ok {
		return "", errors.New("not a request")
	}
	return string(id), nil
}

func payment(txID, from, to string, amount int64) auditdb.Request {
	return auditdb.Request{TxID: txID, Raw: []byte(txID + ":raw"), Actions: []auditdb.Action{{
		Inputs:  []auditdb.Input{{EnrollmentID: from, TokenType: "USD", Amount: big.NewInt(amount)}},
		Outputs: []auditdb.Output{{EnrollmentID: to, TokenType: "USD", Amount: big.NewInt(amount)}}}}}
}

func TestAppendNeedsLocks(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		for name, locker := range map[string]func(s *auditdb.Store) auditdb.Locker{
			"memory": func(*auditdb.Store) auditdb.Locker { return nil },
			"leases": func(s *auditdb.Store) auditdb.Locker { return auditdb.NewLeaseLocker(s, auditdb.LockerOptions{}) },
		} {
			ctx := t.Context()
			store := open(t)
			s, err := auditdb.NewStoreService(store, auditdb.ServiceOptions{Anchor: anchor, Locker: locker(store), Poll: time.Hour})
			require.NoError(t, err)
			r := payment(name, "alice", "bob", 5)
			require.ErrorIs(t, s.Append(ctx, r), auditdb.ErrLockNotHeld)
			require.NoError(t, s.AcquireLocks(ctx, name, "alice"))
			require.ErrorIs(t, s.Append(ctx, r), auditdb.ErrLockNotHeld)
			is, _, err := s.GetStatus(ctx, name)
			require.NoError(t, err)
			require.Equal(t, token.Unknown, is, "nothing of it is stored")
			require.NoError(t, s.AcquireLocks(ctx, name, r.EnrollmentIDs()...))
			require.NoError(t, s.Append(ctx, r))
			require.NoError(t, s.Append(ctx, r), "again")
			require.NoError(t, s.ReleaseLocks(ctx, name))
			require.NoError(t, s.SetStatus(ctx, name, token.Confirmed, ""))
			e, err := s.Wait(ctx, name)
			require.NoError(t, err)
			require.Equal(t, token.Confirmed, e.Status)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
		}
	})
}

func TestPaymentsAndHoldings(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		ctx := t.Context()
		s := open(t)
		for i, m := range []token.MovementRecord{
			{TxID: "t0", EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(100)},
			{TxID: "t1", EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(-30)},
			{TxID: "t2", EnrollmentID: "alice", TokenType: "EUR", Amount: big.NewInt(-7)},
			{TxID: "t3", EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(-5)},
			{TxID: "t4", EnrollmentID: "bob", TokenType: "USD", Amount: big.NewInt(-1)},
			{TxID: "t5", EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(-1000)},
			{TxID: "t6", EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(-2000)},
		} {
			m.Timestamp = suite.Begin.Add(time.Duration(i) * time.Second)
			require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *auditdb.Tx) error {
				return errors.Join(tx.AddTokenRequest(ctx, m.TxID, nil, nil, nil, nil), tx.AddMovement(ctx, m))
			}))
		}
		require.NoError(t, s.SetStatus(ctx, "t0", token.Confirmed, ""))
		require.NoError(t, s.SetStatus(ctx, "t5", token.Deleted, ""))
		require.NoError(t, s.SetStatus(ctx, "t6", token.Orphan, ""))
		sum := func(f auditdb.Filter) string {
			t.Helper()
			v, err := f.Sum(ctx)
			require.NoError(t, err)
			return v.String()
		}
		payments, holdings := s.NewPaymentsFilter(), s.NewHoldingsFilter()
		require.Equal(t, "35", sum(payments.ByEnrollmentID("alice").ByType("USD")))
		require.Equal(t, "42", sum(payments.ByEnrollmentID("alice")))
		require.Equal(t, "43", sum(payments))
		require.Equal(t, "12", sum(payments.ByEnrollmentID("alice").Last(2)))
		require.Equal(t, "5", sum(payments.ByEnrollmentID("alice").ByType("USD").Last(1)))
		require.Equal(t, "0", sum(payments.ByEnrollmentID("nobody")))
		require.Equal(t, "65", sum(holdings.ByEnrollmentID("alice").ByType("USD")))
		require.Equal(t, "-7", sum(holdings.ByEnrollmentID("alice").ByType("EUR")))
		last, err := payments.ByEnrollmentID("alice").Last(2).Execute(ctx)
		require.NoError(t, err)
		require.Len(t, last, 2)
		require.Equal(t, "t3", last[0].TxID, "the newest first")
	})
}

// Holdings agree with a ledger of payments, whatever becomes of each.
func TestHoldingsModel(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *auditdb.Store) {
		ctx := t.Context()
		s := open(t)
		n := 0
		balances := map[string]*big.Int{}
		people := []string{"a", "b", "c"}
		for _, p := range people {
			balances[p] = new(big.Int)
		}
		large := new(big.Int).Lsh(big.NewInt(1), 255)
		rapid.Check(t, func(rt *rapid.T) {
			r := auditdb.Request{Timestamp: suite.Begin}
			n++
			r.TxID = fmt.Sprint("t", n)
			amount := new(big.Int).Sub(large, new(big.Int).SetUint64(rapid.Uint64().Draw(rt, "amount")))
			from, to := rapid.SampledFrom(append(people, "")).Draw(rt, "from"), rapid.SampledFrom(append(people, "")).Draw(rt, "to")
			a := auditdb.Action{Outputs: []auditdb.Output{{EnrollmentID: to, TokenType: "USD", Amount: amount}}}
			if from != "" {
				a.Inputs = []auditdb.Input{{EnrollmentID: from, TokenType: "USD", Amount: amount}}
			}
			r.Actions = []auditdb.Action{a}
			require.NoError(rt, s.InTx(ctx, func(ctx context.Context, tx *auditdb.Tx) error { return tx.Append(ctx, r) }))
			end := token.TxStatus(rapid.IntRange(1, 4).Draw(rt, "end"))
			if end != token.Pending {
				require.NoError(rt, s.SetStatus(ctx, r.TxID, end, ""))
			}
			if end == token.Pending || end == token.Confirmed {
				if to != "" {
					balances[to].Add(balances[to], amount)
				}
				if from != "" {
					balances[from].Sub(balances[from], amount)
				}
			}
			for p, want := range balances {
				got, err := s.NewHoldingsFilter().ByEnrollmentID(p).ByType("USD").Sum(ctx)
				require.NoError(rt, err)
				require.Equal(rt, want.String(), got.String())
			}
		})
	})
}
