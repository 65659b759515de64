package sqlclaims

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// A claim whose caller left while it was being written is taken back: its request was not dispatched.
func TestAbandonedClaimIsTakenBack(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		migrate(t, db)
		c := opened(t, db, Options{})
		claim := example(time.Now(), 1)

		// Another transaction holds the claim's row, so that it is written and not committed.
		tx, err := db.Write().Begin()
		require.NoError(t, err)
		token := tokenKey(claim.Signer, claim.TokenID)
		_, err = tx.Exec(insertTokensSQL(1), token[:], 1, ceil(claim.TokenUntil), 0)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, _, err := c.Claim(ctx, claim)
			left <- err
		}()
		waitFor(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.writing == 1 })
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.NoError(t, tx.Rollback())

		claimed(t, c, claim)
	})
}

// waitFor yields until something is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	require.Eventually(t, so, 10*time.Second, time.Millisecond)
}

// While the database refuses to write, claims fail and nothing is taken; ends wait. When it writes again all is well, without a new handle.
func TestStoreFailsAndRecovers(t *testing.T) {
	t.Parallel()
	for driver, c := range map[string]struct{ breakIt, mend string }{
		storage.DriverSQLite: {
			`CREATE TRIGGER broken BEFORE INSERT ON claimed_tokens BEGIN SELECT RAISE(ABORT, 'broken'); END`, `DROP TRIGGER broken`,
		},
		storage.DriverPostgres: {
			`ALTER TABLE claimed_tokens RENAME TO hidden`, `ALTER TABLE hidden RENAME TO claimed_tokens`,
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := storagetest.Open(t, storagetest.Config(t, driver))
			migrate(t, db)
			claims := opened(t, db, Options{})
			first, second := example(time.Now(), 1), example(time.Now(), 2)
			claimed(t, claims, first)
			require.NoError(t, claims.Ping(t.Context()))
			_, err := db.Write().Exec(c.breakIt)
			require.NoError(t, err)

			_, _, err = claims.Claim(t.Context(), second)
			require.Error(t, err)
			require.Error(t, claims.Ping(t.Context()), "a gateway is not ready that cannot claim")
			require.Positive(t, claims.Activity().Failed)
			done := make(chan error, 1)
			claims.End(first.WorkflowID, first.RequestID, auth.StateAnswered, []byte("answer"), time.Now().Add(time.Hour), func(err error) { done <- err })
			_, _, err = claims.Claim(t.Context(), second) // takes the end along, and fails
			require.Error(t, err)

			_, err = db.Write().Exec(c.mend)
			require.NoError(t, err)
			require.NoError(t, claims.Ping(t.Context()))
			require.NoError(t, <-done)
			claimed(t, claims, second)
			again := first
			again.TokenID = "again"
			_, previous, err := claims.Claim(t.Context(), again)
			require.NoError(t, err)
			require.Equal(t, "answer", string(previous.Answer))
		})
	}
}

// Claims whose connection was cut, at whatever moment, were either acknowledged and are kept, or were not and can be made again.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	const enough = 5 // claims that failed
	var failed atomic.Int64
	config := storagetest.Config(t, storage.DriverPostgres)
	killer := storagetest.Open(t, config)
	config.DSN = storagetest.WithParameter(config.DSN, "application_name", "cut")
	db := storagetest.Open(t, config)
	migrate(t, db)
	c := opened(t, db, Options{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for failed.Load() < enough {
			var pid int
			err := killer.Read().QueryRow(`SELECT pid FROM pg_stat_activity WHERE application_name = 'cut' AND (state = 'idle in transaction' OR query LIKE 'INSERT%' AND state = 'active') LIMIT 1`).Scan(&pid)
			if err == nil {
				_, err = killer.Write().Exec(`SELECT pg_terminate_backend($1)`, pid)
			}
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				t.Error(err)
				return
			}
		}
	}()
	for n := 0; n < 100 || !isClosed(killed); n++ {
		claim := example(time.Now(), n)
		for {
			outcome, _, err := c.Claim(t.Context(), claim)
			if err != nil {
				require.False(t, errors.Is(err, auth.ErrClaimExpired))
				failed.Add(1)
				continue
			}
			require.Equal(t, auth.Claimed, outcome, "claim %d: a claim that failed was not taken back", n)
			break
		}
		outcome, _, err := c.Claim(t.Context(), claim)
		for err != nil {
			outcome, _, err = c.Claim(t.Context(), claim)
		}
		require.Equal(t, auth.Replayed, outcome)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A database that is full refuses claims, says why, and takes them again when there is room.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	migrate(t, db)
	c := opened(t, db, Options{})
	_, err := db.Write().Exec("PRAGMA max_page_count = 30")
	require.NoError(t, err)
	n := 0
	for ; ; n++ {
		require.Less(t, n, 10_000)
		outcome, _, err := c.Claim(t.Context(), example(time.Now(), n))
		if err != nil {
			require.ErrorIs(t, storage.Classify(err), storage.ErrFull)
			break
		}
		require.Equal(t, auth.Claimed, outcome)
	}
	require.Error(t, c.Ping(t.Context()))
	_, err = db.Write().Exec("PRAGMA max_page_count = 1000")
	require.NoError(t, err)
	claimed(t, c, example(time.Now(), n))
	require.NoError(t, c.Ping(t.Context()))
	problems, err := db.Check(t.Context(), Domain)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// However many ends and refused claims gather while nothing can be written, every claim is refused soon, and all is well afterwards.
func TestBacklogOfAFullDatabase(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		migrate(t, db)
		c := opened(t, db, Options{})
		const started, refused = 1000, 2000
		for n := range started {
			claimed(t, c, example(time.Now(), n))
		}
		hide, show := `ALTER TABLE request_ids RENAME TO hidden`, `ALTER TABLE hidden RENAME TO request_ids`
		_, err := db.Write().Exec(hide)
		require.NoError(t, err)
		ended := make(chan error, started)
		for n := range started {
			claim := example(time.Now(), n)
			c.End(claim.WorkflowID, claim.RequestID, auth.StateAnswered, []byte("x"), time.Now().Add(time.Hour), func(err error) { ended <- err })
		}
		var wg sync.WaitGroup
		for n := range refused {
			wg.Go(func() {
				if _, _, err := c.Claim(t.Context(), example(time.Now(), started+n)); err == nil {
					t.Error("a claim that cannot be stored was acknowledged")
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, c.Activity().Waiting, started, "nothing but the ends waits")

		_, err = db.Write().Exec(show)
		require.NoError(t, err)
		claimed(t, c, example(time.Now(), started))
		for range started {
			require.NoError(t, <-ended)
		}
	})
}

// A file that is removed or replaced under the gateway's feet is noticed: what is written there is lost.
func TestFileReplaced(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	db := storagetest.Open(t, config)
	migrate(t, db)
	c := opened(t, db, Options{})
	claimed(t, c, example(time.Now(), 1))
	require.NoError(t, os.Rename(config.DSN, config.DSN+".away"))
	_, _, err := c.Claim(t.Context(), example(time.Now(), 2))
	require.ErrorIs(t, err, storage.ErrFileReplaced)
	require.ErrorIs(t, c.Ping(t.Context()), storage.ErrFileReplaced)
	require.NoError(t, os.WriteFile(config.DSN, nil, 0o600))
	_, _, err = c.Claim(t.Context(), example(time.Now(), 2))
	require.ErrorIs(t, err, storage.ErrFileReplaced)
	require.NoError(t, os.Rename(config.DSN+".away", config.DSN))
	claimed(t, c, example(time.Now(), 2))
}

// Before its first claim a gateway has shown nothing: one that may not write is not ready.
func TestNotReadyWithoutTheRightToWrite(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverPostgres)
	migrate(t, storagetest.Open(t, config))
	config.DSN = storagetest.WithParameter(config.DSN, "default_transaction_read_only", "on")
	c := opened(t, storagetest.Open(t, config), Options{})
	require.Error(t, c.Ping(t.Context()))
}

// A count that takes long and fails is not tried again with every scrape.
func TestCountThatFails(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	migrate(t, db)
	c := opened(t, db, Options{})
	tx, err := db.Write().Begin()
	require.NoError(t, err)
	_, err = tx.Exec("LOCK TABLE request_ids IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*cheap)
	defer cancel()
	_, _, first := c.Stats(ctx)
	require.Error(t, first)
	_, _, second := c.Stats(t.Context()) // would wait for the lock
	require.Equal(t, first, second)
	require.NoError(t, tx.Rollback())
}
