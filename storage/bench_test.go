package storage_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// bareDB opens another database with the driver alone and the settings that a DB has.
func bareDB(b *testing.B, driver string) *sql.DB {
	b.Helper()
	config := storagetest.Config(b, driver)
	name := "pgx"
	if driver == storage.DriverSQLite {
		name = "sqlite"
		config.DSN = "file:" + filepath.ToSlash(config.DSN) + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)" +
			"&_pragma=foreign_keys(ON)&_pragma=cache_size(-8192)&_pragma=wal_autocheckpoint(8000)&_pragma=synchronous(FULL)"
	}
	db, err := sql.Open(name, config.DSN)
	require.NoError(b, err)
	if driver == storage.DriverSQLite {
		db.SetMaxOpenConns(1)
	}
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

const benchTable = "CREATE TABLE t (id BIGINT PRIMARY KEY, body TEXT NOT NULL)"

// BenchmarkWritePath compares writing through a handle with the bare driver doing the same statements: both in turn, each on a database of its
// own. of_bare is how many times as fast the handle is; the aim is 0.7 at least. In "watched" somebody has subscribed to the table, which the bare
// driver knows nothing of: that is the price of a Notifier.
func BenchmarkWritePath(b *testing.B) {
	const insert = "INSERT INTO t (id, body) VALUES ($1, $2)"
	const update = "UPDATE t SET body = $2 WHERE id = $1"
	const body = "a row of some length, as they are when they hold a digest or two: 0123456789abcdef0123456789abcdef"
	type statements struct{ insert, update *sql.Stmt }
	prepare := func(b *testing.B, db interface {
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}) (s statements) {
		var err error
		s.insert, err = db.PrepareContext(b.Context(), insert)
		require.NoError(b, err)
		s.update, err = db.PrepareContext(b.Context(), update)
		require.NoError(b, err)
		b.Cleanup(func() { _, _ = s.insert.Close(), s.update.Close() })
		return s
	}
	inTx := func(ctx context.Context, tx *sql.Tx, s statements, id int) error {
		if _, err := tx.StmtContext(ctx, s.insert).ExecContext(ctx, id, body); err != nil {
			return err
		}
		_, err := tx.StmtContext(ctx, s.update).ExecContext(ctx, id, body)
		return err
	}
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		run := func(name string, watched bool, through func(b *testing.B, db *storage.DB, s statements, id int) error, bare func(b *testing.B, db *sql.DB, s statements, id int) error) {
			b.Run(driver+"/"+name, func(b *testing.B) {
				db, bareDB := storagetest.Open(b, storagetest.Config(b, driver)), bareDB(b, driver)
				execute(b, db, benchTable)
				_, err := bareDB.Exec(benchTable)
				require.NoError(b, err)
				if watched {
					_, err := db.Notifier().Subscribe(b.Context(), "t", []string{"id"}, nil, func(storage.Event) {})
					require.NoError(b, err)
				}
				s, bareS := prepare(b, db.Write()), prepare(b, bareDB)
				var took [2]time.Duration
				id := 0
				for b.Loop() {
					id++
					start := time.Now()
					err := through(b, db, s, id)
					middle := time.Now()
					bareErr := bare(b, bareDB, bareS, id)
					took[0] += middle.Sub(start)
					took[1] += time.Since(middle)
					if err != nil || bareErr != nil {
						b.Fatal(err, bareErr)
					}
				}
				b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "of_bare")
				b.ReportMetric(float64(took[0].Microseconds())/float64(id), "µs/write")
			})
		}
		statement := func(b *testing.B, db *storage.DB, _ statements, id int) error {
			_, err := db.Write().ExecContext(b.Context(), insert, id, body)
			return err
		}
		bareStatement := func(b *testing.B, db *sql.DB, _ statements, id int) error {
			_, err := db.ExecContext(b.Context(), insert, id, body)
			return err
		}
		run("statement", false, statement, bareStatement)
		run("watched", true, statement, bareStatement)
		run("transaction", false, func(b *testing.B, db *storage.DB, s statements, id int) error {
			return storage.RunInTx(b.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error { return inTx(ctx, tx, s, id) })
		}, func(b *testing.B, db *sql.DB, s statements, id int) error {
			tx, err := db.BeginTx(b.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := inTx(b.Context(), tx, s, id); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
}
