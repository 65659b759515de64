package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestRunInTxCommitsOrRollsBack(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		insert := func(then func() error) error {
			return storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO t (id) VALUES (1)"); err != nil {
					return err
				}
				return then()
			})
		}
		failure := errors.New("no")
		require.Equal(t, failure, insert(func() error { return failure }))
		require.Equal(t, 0, scan[int](t, db, "SELECT count(*) FROM t"))
		require.PanicsWithValue(t, "oops", func() { _ = insert(func() error { panic("oops") }) })
		require.NoError(t, insert(func() error { return nil }), "a panic must not leave the transaction open")
		require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM t"))
	})
}

func TestRunInTxRunsLostTransactionsAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want int // calls of fn
	}{
		{code(5), 4}, {code(517), 4}, {state("40001"), 10}, {state("40P01"), 10}, {state("23505"), 1}, {code(13), 1}, {code(8), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverMemory})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			calls := 0
			err = storage.RunInTx(t.Context(), db.Write(), func(context.Context, *sql.Tx) error { calls++; return test.err })
			require.Equal(t, test.err, err)
			require.Equal(t, test.want, calls)

			calls = 0
			err = storage.RunInTx(t.Context(), db.Write(), func(context.Context, *sql.Tx) error {
				if calls++; calls < test.want {
					return test.err
				}
				return nil
			})
			require.NoError(t, err)
		})
	}
}

func TestRunInTxEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		calls := 0
		err = storage.RunInTx(ctx, db.Write(), func(context.Context, *sql.Tx) error { calls++; return state("40001") })
		require.Equal(t, state("40001"), err)
		require.Equal(t, 2, calls, "0 and 10 to 15 ms; the third would be at 30 ms or later")
	})
}

// Two transactions that lock two rows in opposite order: PostgreSQL ends one of them, which is run again.
func TestDeadlockIsResolved(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
		execute(t, db, "INSERT INTO t (id, n) VALUES (1, 0), (2, 0)")
		firstDone := make(chan struct{}, 2) // of both, where they can be open at once
		var wg sync.WaitGroup
		for _, ids := range [][]int{{1, 2}, {2, 1}} {
			wg.Go(func() {
				attempt := 0
				err := storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
					attempt++
					for i, id := range ids {
						if _, err := tx.ExecContext(ctx, "UPDATE t SET n = n + 1 WHERE id = $1", id); err != nil {
							return err
						}
						if i == 0 && attempt == 1 && db.Backend() == storage.Postgres {
							firstDone <- struct{}{}
							for len(firstDone) < 2 {
								if _, err := tx.ExecContext(ctx, "SELECT pg_sleep(0.001)"); err != nil {
									return err
								}
							}
						}
					}
					return nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 4, scan[int](t, db, "SELECT sum(n) FROM t"))
	})
}

// A transaction that first reads and then writes takes the write lock when it begins. Were it to begin as a reader, the second of two
// handles could not write after the first had: its snapshot would be old, and no waiting helps.
func TestReadToWriteCannotDeadlock(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	first := storagetest.Open(t, config)
	execute(t, first, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
	execute(t, first, "INSERT INTO t (id, n) VALUES (1, 0)")
	const handles, rounds = 4, 25
	var wg sync.WaitGroup
	for range handles {
		db := storagetest.Open(t, config)
		wg.Go(func() {
			for range rounds {
				tx, err := db.Write().BeginTx(t.Context(), nil) // without RunInTx: nothing may have to be repeated
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				err = tx.QueryRowContext(t.Context(), "SELECT n FROM t WHERE id = 1").Scan(&n)
				if err == nil {
					_, err = tx.ExecContext(t.Context(), "UPDATE t SET n = $1 WHERE id = 1", n+1)
				}
				if err := errors.Join(err, tx.Commit()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, handles*rounds, scan[int](t, first, "SELECT n FROM t"))
}

func TestWriteDBRefusesReadOnlyTransactions(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		_, err := open(t).Write().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		require.ErrorContains(t, err, "reading side")
	})
}

// A statement prepared on the writing side is used in transactions without being prepared again, and survives their ends.
func TestPreparedStatementsInTransactions(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		insert, err := db.Write().PrepareContext(t.Context(), "INSERT INTO t (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id")
		require.NoError(t, err)
		defer func() { require.NoError(t, insert.Close()) }()
		for round := range 3 {
			err := storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
				stmt := tx.StmtContext(ctx, insert)
				var id int
				if err := stmt.QueryRowContext(ctx, round).Scan(&id); err != nil {
					return err
				}
				if err := stmt.QueryRowContext(ctx, round).Scan(&id); !errors.Is(err, sql.ErrNoRows) {
					return errors.New("taken twice")
				}
				return nil
			})
			require.NoError(t, err)
		}
		require.Equal(t, 3, scan[int](t, db, "SELECT count(*) FROM t"))
	})
}
