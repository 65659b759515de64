package storage_test

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// execute runs one statement on the writing side.
func execute(t testing.TB, db *storage.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Write().ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

// scan reads one value through the reading side.
func scan[T any](t testing.TB, db *storage.DB, query string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, db.Read().QueryRowContext(t.Context(), query, args...).Scan(&v))
	return v
}

func TestReadsSeeWhatWasWritten(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
		execute(t, db, "INSERT INTO t (id, name) VALUES ($1, $2)", 1, "one")
		require.Equal(t, "one", scan[string](t, db, "SELECT name FROM t WHERE id = $1", 1))
	})
}

func TestHandlesShareADatabase(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			config := storagetest.Config(t, driver)
			a, b := storagetest.Open(t, config), storagetest.Open(t, config)
			execute(t, a, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
			execute(t, b, "INSERT INTO t (id) VALUES (7)")
			require.Equal(t, 7, scan[int](t, a, "SELECT id FROM t"))
		})
	}
}

// Every connection has the settings, not only the pool's first: all that the pools allow are held open at once.
func TestEveryConnectionHasThePragmas(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{storage.DriverSQLite, storage.DriverMemory} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			config := storagetest.Config(t, driver)
			config.MaxReadConns = 5
			db := storagetest.Open(t, config)
			writerSync := "2" // FULL
			if driver == storage.DriverMemory {
				writerSync = "0" // OFF: nothing has to survive
			}

			check := func(conn *sql.Conn, err error, synchronous, queryOnly string) {
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, conn.Close()) })
				for pragma, want := range map[string]string{
					"journal_mode": "wal", "busy_timeout": "5000", "foreign_keys": "1", "cache_size": "-8192", "temp_store": "2",
					"journal_size_limit": "67108864", "synchronous": synchronous, "query_only": queryOnly,
				} {
					var got string
					require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
					require.Equal(t, want, got, pragma)
				}
			}
			conn, err := db.Write().Conn(t.Context())
			check(conn, err, writerSync, "0")
			for range config.MaxReadConns {
				conn, err := db.Read().Conn(t.Context())
				check(conn, err, "1", "1")
			}
			require.Equal(t, config.MaxReadConns, db.Read().Stats().OpenConnections)
		})
	}
}

func TestTheReadingSideOfSQLiteCannotWrite(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	_, err := db.Read().ExecContext(t.Context(), "INSERT INTO t (id) VALUES (1)")
	require.ErrorIs(t, storage.Classify(err), storage.ErrReadOnly)
}

func TestPostgresConnectionsUseUTC(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	require.Equal(t, "UTC", scan[string](t, db, "SHOW timezone"))
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	require.NoError(t, os.WriteFile(text, []byte("this file is long enough, but it is a letter and not a database"), 0o600))
	for name, test := range map[string]struct {
		config storage.Config
		want   string
	}{
		"no driver":           {storage.Config{}, `unknown driver ""`},
		"unknown driver":      {storage.Config{Driver: "mysql", DSN: "x"}, `unknown driver "mysql"`},
		"sqlite without file": {storage.Config{Driver: storage.DriverSQLite}, "needs a DSN"},
		"postgres without":    {storage.Config{Driver: storage.DriverPostgres}, "needs a DSN"},
		"memory with file":    {storage.Config{Driver: storage.DriverMemory, DSN: "x"}, "takes no DSN"},
		"negative":            {storage.Config{Driver: storage.DriverMemory, MaxReadConns: -1}, "must not be negative"},
		"URI":                 {storage.Config{Driver: storage.DriverSQLite, DSN: "file:x.db?mode=memory"}, "not a plain file path"},
		"SQLite's own memory": {storage.Config{Driver: storage.DriverSQLite, DSN: ":memory:"}, "not a plain file path"},
		"directory":           {storage.Config{Driver: storage.DriverSQLite, DSN: dir}, "is a directory"},
		"not a database":      {storage.Config{Driver: storage.DriverSQLite, DSN: text}, "file is not a database"},
		"below a file":        {storage.Config{Driver: storage.DriverSQLite, DSN: filepath.Join(text, "x.db")}, "not a directory"},
		"bad DSN":             {storage.Config{Driver: storage.DriverPostgres, DSN: "postgres://u:secret@h:port/"}, "cannot be used: a port is no number"},
		"no server":           {storage.Config{Driver: storage.DriverPostgres, DSN: "host=" + dir + " user=u password=secret"}, "failed to connect"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := storage.Open(t.Context(), test.config)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestPathsThatLookLikeSomethingElse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a?mode=memory", "b#c", "d%20e", "f&g=h", "ü ö"} {
		path := filepath.Join(t.TempDir(), name, name+".db")
		db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverSQLite, DSN: path})
		require.NoError(t, err)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		require.NoError(t, db.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NotZero(t, info.Size(), name)
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Close())
		require.NoError(t, db.Close())
		require.Error(t, db.Read().PingContext(t.Context()))
		_, err := db.Write().ExecContext(t.Context(), "SELECT 1")
		require.Error(t, err)
	})
}

// Not parallel: it looks at what the process's temporary directory holds.
func TestMemoryLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverMemory})
	require.NoError(t, err)
	require.Equal(t, storage.SQLite, db.Backend())
	execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, db.Close())
	entries, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// A connection string is not taken for the path of a file, and its password is not repeated.
func TestConnectionStringIsNoPath(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:secret@host/db", "postgresql://host/db?password=secret", "host=/run password=secret", " dbname=x password=secret"} {
		_, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverSQLite, DSN: dsn})
		require.ErrorContains(t, err, "the driver for it is postgres")
		require.NotContains(t, err.Error(), "secret")
	}
}

// Sessions have what the layer stands on even where the user's default is otherwise; the connection string decides.
func TestSessionDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, set, want string }{
		{"synchronous_commit", "", "on"},
		{"synchronous_commit", "remote_apply", "remote_apply"},
		{"idle_in_transaction_session_timeout", "", "1min"},
		{"idle_in_transaction_session_timeout", "1234", "1234ms"},
		{"application_name", "", "dongate"},
		{"application_name", "mine", "mine"},
	} {
		config := storagetest.Config(t, storage.DriverPostgres)
		if c.set != "" {
			config.DSN = storagetest.WithParameter(config.DSN, c.name, c.set)
		}
		var got string
		require.NoError(t, storagetest.Open(t, config).Read().QueryRow("SHOW "+c.name).Scan(&got))
		require.Equal(t, c.want, got, c)
	}
}
