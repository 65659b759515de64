package storage_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"modernc.org/sqlite"

	"dongate/internal/soak"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// Eight processes with a handle each write one file as fast as they can: single statements, transactions that read before they write,
// and reads in between. None sees a busy error, and no write is lost.
func TestSoakEightProcesses(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	db := storagetest.Open(t, config)
	execute(t, db, "CREATE TABLE counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
	execute(t, db, "INSERT INTO counters (id, n) VALUES (1, 0), (2, 0)")
	children := startChildren(t, 8, "write", config)
	statements, transactions, slowest := 0, 0, time.Duration(0)
	for _, c := range children {
		require.NoError(t, c.Wait(), c.Stdout)
		var a, b int
		var longest string
		_, err := fmt.Sscan(c.Stdout.(*bytes.Buffer).String(), &a, &b, &longest)
		require.NoError(t, err, c.Stdout)
		d, err := time.ParseDuration(longest)
		require.NoError(t, err)
		require.Positive(t, a)
		require.Positive(t, b)
		statements, transactions, slowest = statements+a, transactions+b, max(slowest, d)
	}
	require.Equal(t, statements, scan[int](t, db, "SELECT n FROM counters WHERE id = 1"))
	require.Equal(t, transactions, scan[int](t, db, "SELECT n FROM counters WHERE id = 2"))
	t.Logf("%d statements and %d transactions; the slowest took %s", statements, transactions, slowest)
}

// childWrite is what each of the processes does. It prints how many statements and transactions it made and how long the slowest took.
func childWrite(ctx context.Context, config storage.Config) error {
	var db *storage.DB
	awaitOthers()
	statements, transactions, slowest := 0, 0, time.Duration(0)
	start := time.Now()
	for round := 0; time.Since(start) < soak.For(2*time.Second); round++ {
		if round%50 == 0 { // the last to close the file and the first to open it do what needs it alone
			if db != nil {
				if err := db.Close(); err != nil {
					return fmt.Errorf("closing: %w", err)
				}
			}
			var err error
			if db, err = storage.Open(ctx, config); err != nil {
				return err
			}
		}
		begin := time.Now()
		if _, err := db.Write().ExecContext(ctx, "UPDATE counters SET n = n + 1 WHERE id = 1"); err != nil {
			return fmt.Errorf("a statement: %w", err)
		}
		statements++
		err := storage.RunInTx(ctx, db.Write(), func(ctx context.Context, tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT n FROM counters WHERE id = 2").Scan(&n); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE counters SET n = $1 WHERE id = 2", n+1)
			return err
		})
		if err != nil {
			return fmt.Errorf("a transaction: %w", err)
		}
		transactions++
		var sum int
		if err := db.Read().QueryRowContext(ctx, "SELECT sum(n) FROM counters").Scan(&sum); err != nil {
			return fmt.Errorf("a read: %w", err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	fmt.Println(statements, transactions, slowest)
	return db.Close()
}

// openBusy returns a handle whose statements do not wait for the file, which another handle has locked, and that one's transaction. f is
// called for each warning.
func openBusy(t *testing.T, f func(warnings int, lock *sql.Tx)) (*storage.DB, *sql.Tx) {
	t.Helper()
	config := storagetest.Config(t, storage.DriverSQLite)
	other := storagetest.Open(t, config)
	execute(t, other, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	core, logs := observer.New(zap.WarnLevel)
	var lock *sql.Tx
	config.Log = zap.New(core, zap.Hooks(func(zapcore.Entry) error { f(logs.Len(), lock); return nil }))
	db := storagetest.Open(t, config)
	execute(t, db, "PRAGMA busy_timeout = 0")
	lock, err := other.Write().Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Rollback() })
	return db, lock
}

func TestBusyStatementIsTriedAgain(t *testing.T) {
	t.Parallel()
	tried := 0
	db, _ := openBusy(t, func(warnings int, lock *sql.Tx) {
		if tried = warnings; tried == 2 {
			require.NoError(t, lock.Commit())
		}
	})
	execute(t, db, "INSERT INTO t (id) VALUES (1)")
	require.Equal(t, 2, tried)
	require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM t"))
}

func TestBusyStatementGivesUp(t *testing.T) {
	t.Parallel()
	tried := 0
	db, lock := openBusy(t, func(warnings int, _ *sql.Tx) { tried = warnings })
	_, err := db.Write().Exec("INSERT INTO t (id) VALUES (1)")
	require.Equal(t, 3, tried)
	busy, ok := err.(*sqlite.Error) // as the driver made it
	require.True(t, ok)
	require.Equal(t, 5, busy.Code())
	require.ErrorIs(t, storage.Classify(err), storage.ErrBusy)

	err = storage.RunInTx(t.Context(), db.Write(), func(context.Context, *sql.Tx) error { return errors.New("was called") })
	require.ErrorIs(t, storage.Classify(err), storage.ErrBusy)
	require.ErrorContains(t, err, "beginning a transaction")
	require.NoError(t, lock.Commit())
	execute(t, db, "INSERT INTO t (id) VALUES (1)")
}

func TestBusyStatementEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tried := 0
	db, _ := openBusy(t, func(warnings int, _ *sql.Tx) { tried = warnings; cancel() })
	_, err := db.Write().ExecContext(ctx, "INSERT INTO t (id) VALUES (1)")
	require.ErrorIs(t, storage.Classify(err), storage.ErrBusy)
	require.Equal(t, 1, tried)
}

// Opening does not wait for whoever has the file locked.
func TestOpenWhileLocked(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	first := storagetest.Open(t, config)
	execute(t, first, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	tx, err := first.Write().Begin()
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	require.Equal(t, 0, scan[int](t, storagetest.Open(t, config), "SELECT count(*) FROM t"))
}

// full fills the database until that fails, and returns the rows that were accepted.
func full(t *testing.T, db *storage.DB) (rows int) {
	t.Helper()
	for ; ; rows++ {
		require.Less(t, rows, 10000, "never full")
		_, err := db.Write().ExecContext(t.Context(), "INSERT INTO t (body) VALUES (randomblob(4000))")
		if err != nil {
			require.ErrorIs(t, storage.Classify(err), storage.ErrFull)
			require.ErrorContains(t, err, "database or disk is full")
			return rows
		}
	}
}

// checkFull expects that nothing can be written and all is there, until there is room again, with the same handle.
func checkFull(t *testing.T, db *storage.DB, rows int, makeRoom func()) {
	t.Helper()
	insert := func() error {
		return storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO t (body) SELECT randomblob(4000) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9))")
			return err
		})
	}
	for range 3 {
		require.ErrorIs(t, storage.Classify(insert()), storage.ErrFull)
		require.Equal(t, rows, scan[int](t, db, "SELECT count(*) FROM t"))
	}
	makeRoom()
	require.NoError(t, insert())
	require.Equal(t, rows+9, scan[int](t, db, "SELECT count(*) FROM t"))
	problems, err := db.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestFullDatabase(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
	execute(t, db, "PRAGMA max_page_count = 50")
	checkFull(t, db, full(t, db), func() { execute(t, db, "PRAGMA max_page_count = 1000") })
}

// A file that can only be read is refused when it is opened, and accepted once it can be written. That takes a process without root's rights.
func TestReadOnlyFile(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]struct {
		path func(dsn string) string // what cannot be written
		mode os.FileMode
	}{
		"file":      {func(dsn string) string { return dsn }, 0o444},
		"log":       {func(dsn string) string { return dsn + "-wal" }, 0o444},
		"directory": {filepath.Dir, 0o555},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := storagetest.Config(t, storage.DriverSQLite)
			storagetest.Open(t, config) // stays open, for the log to be there
			require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(config.DSN)), 0o711))
			path := what.path(config.DSN)
			require.NoError(t, os.Chmod(path, what.mode))
			if os.Getuid() == 0 {
				for _, name := range []string{filepath.Dir(config.DSN), config.DSN, config.DSN + "-wal", config.DSN + "-shm"} {
					require.NoError(t, os.Chown(name, nobody, nobody))
				}
			}
			config.Driver += " " + path
			children := startChildren(t, 1, "nobody", config)
			require.NoError(t, children[0].Wait(), children[0].Stdout)
		})
	}
}

const nobody = 65534

// childNobody opens a file when something is in the way, named after the driver, and once more when that has been put right.
func childNobody(ctx context.Context, config storage.Config) error {
	if os.Getuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	driver, path, _ := strings.Cut(config.Driver, " ")
	config.Driver = driver
	db, err := storage.Open(ctx, config)
	if err == nil {
		return errors.Join(errors.New("was opened"), db.Close())
	}
	if !errors.Is(err, storage.ErrReadOnly) || err.Error() != "storage: opening sqlite: writing "+path+": permission denied" {
		return fmt.Errorf("not clear: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return err
	}
	if db, err = storage.Open(ctx, config); err != nil {
		return err
	}
	_, err = db.Write().Exec("CREATE TABLE u (id INTEGER PRIMARY KEY)")
	return errors.Join(err, db.Close())
}

// A connection that cannot write is replaced after the first failure: SQLite decides once per connection.
func TestReadOnlyConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	insert := map[string]func(t *testing.T, db *storage.DB) error{
		"statement": func(t *testing.T, db *storage.DB) error {
			_, err := db.Write().ExecContext(t.Context(), "INSERT INTO t DEFAULT VALUES")
			return err
		},
		"transaction": func(t *testing.T, db *storage.DB) error {
			return storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO t DEFAULT VALUES")
				return err
			})
		},
	}
	for name, insert := range insert {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
			execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
			execute(t, db, "PRAGMA query_only = ON")
			require.ErrorIs(t, storage.Classify(insert(t, db)), storage.ErrReadOnly)
			require.NoError(t, insert(t, db))
			require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM t"))
		})
	}
}

func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverPostgres)
	execute(t, storagetest.Open(t, config), "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	config.DSN += " default_transaction_read_only=on"
	_, err := storagetest.Open(t, config).Write().ExecContext(t.Context(), "INSERT INTO t (id) VALUES (1)")
	require.ErrorIs(t, storage.Classify(err), storage.ErrReadOnly)
}

// Files and directories are the owner's alone, whatever the umask says.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	config := storage.Config{Driver: storage.DriverSQLite, DSN: filepath.Join(t.TempDir(), "a", "b", "test.db")}
	children := startChildren(t, 1, "umask", config)
	require.NoError(t, children[0].Wait(), children[0].Stdout)
	require.Equal(t, "a drwx------\nb drwx------\ntest.db -rw-------\ntest.db-shm -rw-------\ntest.db-wal -rw-------\n",
		children[0].Stdout.(*bytes.Buffer).String())
}

// childUmask opens a new file where everybody would get everything, and prints what came of it.
func childUmask(ctx context.Context, config storage.Config) error {
	syscall.Umask(0)
	db, err := storage.Open(ctx, config)
	if err != nil {
		return err
	}
	if _, err := db.Write().Exec("CREATE TABLE t (id INTEGER PRIMARY KEY)"); err != nil {
		return err
	}
	top := filepath.Dir(filepath.Dir(filepath.Dir(config.DSN)))
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Println(entry.Name(), info.Mode())
		}
		return err
	})
	return errors.Join(err, db.Close())
}

// A file that others can read is used, with a warning.
func TestPublicFileIsWarnedOf(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	require.NoError(t, os.WriteFile(config.DSN, nil, 0o644))
	require.NoError(t, os.Chmod(config.DSN, 0o644))
	core, logs := observer.New(zap.WarnLevel)
	config.Log = zap.New(core)
	storagetest.Open(t, config)
	require.Len(t, logs.FilterMessageSnippet("can be read by other users").All(), 1)
}

// Whoever writes is told that the file was removed or replaced: a statement and a transaction alike.
func TestFileReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.db")
			db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverSQLite, DSN: path})
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			_, err = db.Write().Exec("CREATE TABLE x (a INTEGER) STRICT")
			require.NoError(t, err)
			require.NoError(t, change(path))
			_, err = db.Write().Exec("INSERT INTO x VALUES (1)")
			require.ErrorIs(t, err, storage.ErrFileReplaced)
			_, err = db.Write().Begin()
			require.ErrorIs(t, err, storage.ErrFileReplaced)
			err = storage.RunInTx(t.Context(), db.Write(), func(context.Context, *sql.Tx) error { return nil })
			require.ErrorIs(t, err, storage.ErrFileReplaced)
		})
	}
}
