package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/lease"
	"dongate/token/recovery"
	"dongate/token/ttxdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ledger is a ledger that tells what it is told to.
type ledger struct {
	mu    sync.Mutex
	ends  map[string]token.TxStatus // Unknown: not found
	fail  error
	asked []string
	ask   func(ctx context.Context, txID string) // called for each question; may be nil
}

func (l *ledger) TransactionStatus(ctx context.Context, txID string) (token.TxStatus, string, error) {
	l.mu.Lock()
	l.asked = append(l.asked, txID)
	is, fail, ask := l.ends[txID], l.fail, l.ask
	l.mu.Unlock()
	if ask != nil {
		ask(ctx, txID)
		if ctx.Err() != nil {
			return 0, "", context.Cause(ctx)
		}
	}
	switch {
	case fail != nil:
		return 0, "", fail
	case is == token.Unknown:
		return 0, "", fmt.Errorf("looking for %s: %w", txID, recovery.ErrNotFound)
	}
	return is, "from the ledger", nil
}

// network is a store with transactions of a process that died, and a ledger that knows how they ended.
type network struct {
	*ttxdb.Store
	ledger *ledger
	now    time.Time
}

func each(t *testing.T, test func(t *testing.T, n *network)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
		n := &network{ledger: &ledger{ends: map[string]token.TxStatus{}}, now: begin}
		n.Store = ttxdb.New(db, prefix, ttxdb.Options{Now: func() time.Time { return n.now }})
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		test(t, n)
	})
}

func (n *network) add(t testing.TB, ids ...string) {
	require.NoError(t, n.InTx(t.Context(), func(ctx context.Context, tx *ttxdb.Tx) error {
		for _, id := range ids {
			if err := tx.AddTokenRequest(ctx, id, nil, nil, nil, nil); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (n *network) service(t testing.TB, o recovery.Options) *recovery.Service {
	s, err := recovery.New(n.Store, n.ledger, n.SetStatus, o)
	require.NoError(t, err)
	return s
}

func (n *network) status(t testing.TB, id string) string {
	is, message, err := n.GetStatus(t.Context(), id)
	require.NoError(t, err)
	return is.String() + " " + message
}

func TestFindsOutHowTransactionsEnded(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "confirmed", "deleted", "never", "running")
		n.now = time.Now().Add(-10 * time.Minute)
		n.add(t, "grace")
		n.now = time.Now()
		n.add(t, "young")
		for id, end := range map[string]token.TxStatus{"confirmed": token.Confirmed, "deleted": token.Deleted, "running": token.Pending} {
			n.ledger.ends[id] = end
		}
		s := n.service(t, recovery.Options{})
		r, err := s.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, recovery.Round{Claimed: 5, Confirmed: 1, Deleted: 1, Orphaned: 1, Pending: 2}, r)
		require.Equal(t, "Confirmed from the ledger", n.status(t, "confirmed"))
		require.Equal(t, "Deleted from the ledger", n.status(t, "deleted"))
		require.Equal(t, "Orphan the ledger does not know the transaction", n.status(t, "never"))
		require.Equal(t, "Pending from the ledger", n.status(t, "running"))
		require.Equal(t, "Pending the ledger does not know the transaction", n.status(t, "grace"))
		require.Equal(t, "Pending ", n.status(t, "young"))
		pending, err := n.ClaimPendingTransactions(t.Context(), recovery.Claims{Owner: "x", OlderThan: time.Minute, Lease: time.Minute, Limit: 10})
		require.NoError(t, err)
		require.Len(t, pending, 2, "the claims are released")

		n.ledger.ends["never"] = token.Confirmed
		require.NoError(t, n.SetStatus(t.Context(), "never", token.Confirmed, ""), "what finality learns later")
	})
}

// "Not found" is an error of its own; an error whose text says so is not (weakness 8). What it says is not stored: it may hold a key.
func TestOtherErrorsMakeNoOrphans(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "tx1")
		n.ledger.fail = errors.New("transaction not found at https://node/secret")
		r, err := n.service(t, recovery.Options{}).Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, recovery.Round{Claimed: 1, Failed: 1}, r)
		require.Equal(t, "Pending the ledger could not tell how the transaction ended", n.status(t, "tx1"))
	})
}

// What somebody else ended meanwhile stays so (weakness 2).
func TestDoesNotOverwriteAnEnd(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "tx1")
		n.ledger.ends["tx1"] = token.Deleted
		n.ledger.ask = func(ctx context.Context, txID string) {
			if err := n.SetStatus(ctx, txID, token.Confirmed, "finality was faster"); err != nil {
				t.Error(err)
			}
		}
		r, err := n.service(t, recovery.Options{}).Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, recovery.Round{Claimed: 1, Pending: 1}, r)
		require.Equal(t, "Confirmed finality was faster", n.status(t, "tx1"))
	})
}

// Replicas that recover at once never ask about the same transaction, leader or not.
func TestReplicasShareTheWork(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		var ids []string
		for i := range 30 {
			ids = append(ids, fmt.Sprintf("t%02d", i))
			n.ledger.ends[ids[i]] = token.Confirmed
		}
		n.add(t, ids...)
		var wg sync.WaitGroup
		for range 4 {
			s := n.service(t, recovery.Options{Batch: 4, Workers: 2})
			wg.Go(func() {
				for {
					r, err := s.Recover(t.Context())
					if err != nil {
						t.Error(err)
					}
					if err != nil || r.Claimed == 0 {
						return
					}
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			require.Equal(t, "Confirmed from the ledger", n.status(t, id))
		}
		slices.Sort(n.ledger.asked)
		require.Equal(t, ids, n.ledger.asked)
	})
}

// Those that stay pending do not keep others from being looked at.
func TestStuckOnesDoNotBlockOthers(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.now = time.Now().Add(-time.Minute) // in grace
		n.add(t, "a", "b", "c", "d", "e")
		n.ledger.ends["e"] = token.Confirmed
		var stuck []string
		s := n.service(t, recovery.Options{Batch: 2, Workers: 1, StuckAfter: 2, OnStuck: func(p token.PendingTransaction) { stuck = append(stuck, fmt.Sprint(p.TxID, p.Attempts)) }})
		for range 3 {
			_, err := s.Recover(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, "Confirmed from the ledger", n.status(t, "e"))
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, n.ledger.asked)
		for range 12 {
			_, err := s.Recover(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, []string{"a2", "b2", "c2", "d2", "a4", "b4", "c4", "d4"}, stuck)
	})
}

func TestFailingFinality(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "tx1")
		n.ledger.ends["tx1"] = token.Confirmed
		failure := errors.New("disk full")
		s, err := recovery.New(n.Store, n.ledger, func(context.Context, string, token.TxStatus, string) error { return failure }, recovery.Options{})
		require.NoError(t, err)
		r, err := s.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, recovery.Round{Claimed: 1, Failed: 1}, r)
		r, err = n.service(t, recovery.Options{}).Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, recovery.Round{Claimed: 1, Confirmed: 1}, r, "it was released, and another tries again")
	})
}

// In the background, against a real store: what is pending ends, and Stop gives everything back.
func TestRunsInTheBackground(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "tx1", "tx2")
		n.ledger.ends["tx1"], n.ledger.ends["tx2"] = token.Confirmed, token.Confirmed
		s := n.service(t, recovery.Options{Batch: 1, Scan: time.Hour})
		s.Stop()
		s.Start(t.Context())
		s.Start(t.Context())
		require.Eventually(t, func() bool { return n.status(t, "tx2") == "Confirmed from the ledger" }, 30*time.Second, time.Millisecond, "the second batch does not wait for the next scan")
		s.Stop()
		s.Stop()
		led, err := n.AcquireRecoveryLeadership(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NotNil(t, led)
	})
}

// Stop in the middle of a question gives the claim back.
func TestStopReleases(t *testing.T) {
	each(t, func(t *testing.T, n *network) {
		n.add(t, "tx1")
		asked := make(chan struct{})
		n.ledger.ask = func(ctx context.Context, _ string) {
			close(asked)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), recovery.ErrStopped) {
				t.Error(context.Cause(ctx))
			}
		}
		core, logs := observer.New(zap.WarnLevel)
		s := n.service(t, recovery.Options{Log: zap.New(core)})
		s.Start(t.Context())
		<-asked
		s.Stop()
		require.Empty(t, logs.All())
		pending, err := n.ClaimPendingTransactions(t.Context(), recovery.Claims{Owner: "x", Lease: time.Minute, Limit: 1})
		require.NoError(t, err)
		require.Len(t, pending, 1)
		require.Equal(t, "Pending ", n.status(t, "tx1"))
	})
}

func TestAuditorRecoversToo(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	a := auditdb.New(db, prefix, auditdb.Options{Now: func() time.Time { return begin }})
	require.NoError(t, a.InTx(t.Context(), func(ctx context.Context, tx *auditdb.Tx) error {
		return tx.AddTokenRequest(ctx, "tx1", nil, nil, nil, nil)
	}))
	s, err := recovery.New(a, &ledger{ends: map[string]token.TxStatus{"tx1": token.Confirmed}}, a.SetStatus, recovery.Options{})
	require.NoError(t, err)
	r, err := s.Recover(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, r.Confirmed)
	require.NoError(t, a.Close())
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []recovery.Options{
		{Timeout: time.Second}, {Lease: time.Second}, {Batch: -1}, {Batch: storage.MaxPage + 1}, {Workers: -1}, {Scan: -1}, {Batch: 100, Workers: 1},
	} {
		_, err := recovery.New(nil, nil, nil, o)
		require.Error(t, err, "%+v", o)
	}
	for _, o := range []recovery.Options{{}, {Timeout: -1, Lease: time.Second}, {Timeout: 10 * time.Second}} {
		_, err := recovery.New(nil, nil, nil, o)
		require.NoError(t, err, "%+v", o)
	}
}

// fake is a store for tests of time.
type fake struct {
	mu      sync.Mutex
	claims  []time.Time
	leads   int
	failing error
}

func (f *fake) AcquireRecoveryLeadership(context.Context, time.Duration) (*lease.Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leads++
	return nil, f.failing
}

func (f *fake) ClaimPendingTransactions(context.Context, recovery.Claims) ([]token.PendingTransaction, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims = append(f.claims, time.Now())
	return []token.PendingTransaction{{TxID: "tx1", Attempts: 1}}, nil
}

func (f *fake) ReleaseRecoveryClaim(context.Context, string, string, string) error { return nil }

// Who does not lead asks again and again, and claims nothing.
func TestFollowersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		f := &fake{failing: errors.New("down")}
		s, err := recovery.New(f, nil, nil, recovery.Options{Log: zap.New(core)})
		require.NoError(t, err)
		s.Start(t.Context())
		time.Sleep(time.Minute + time.Second)
		s.Stop()
		require.Equal(t, 13, f.leads, "every five seconds")
		require.Empty(t, f.claims)
		require.Equal(t, 13, logs.Len())
	})
}

// A ledger that does not answer is given up after the timeout.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := recovery.New(&fake{}, &ledger{ask: func(ctx context.Context, _ string) { <-ctx.Done() }}, nil, recovery.Options{})
		require.NoError(t, err)
		start := time.Now()
		r, err := s.Recover(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, r.Failed)
		require.Equal(t, time.Minute, time.Since(start))
	})
}
