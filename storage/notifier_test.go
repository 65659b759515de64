package storage_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// subscribe returns the events of a table as they come.
func subscribe(t *testing.T, db *storage.DB, table string, keys []string, ops ...storage.Op) <-chan storage.Event {
	t.Helper()
	events := make(chan storage.Event, 10000)
	_, err := db.Notifier().Subscribe(t.Context(), table, keys, ops, func(e storage.Event) { events <- e })
	require.NoError(t, err)
	return events
}

// next returns the next of what comes; that it does not come at all is a failure.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		require.True(t, ok, "closed")
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func event(table string, op storage.Op, key ...string) storage.Event {
	return storage.Event{Table: table, Op: op, Key: key}
}

// bothTables are two tables whose key columns have the same names.
func bothTables(t *testing.T, db *storage.DB) {
	t.Helper()
	require.NoError(t, db.Migrate(t.Context(), domain(1, `
		CREATE TABLE first (note TEXT, id INTEGER, name TEXT, body {{.Bytes}}, PRIMARY KEY (id, name));
		CREATE TABLE second (id INTEGER, name TEXT, PRIMARY KEY (id, name));`)))
}

var keys = []string{"id", "name"}

func TestNotifier(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		bothTables(t, db)
		execute(t, db, "INSERT INTO first (id, name) VALUES (0, 'before')")
		first := subscribe(t, db, "first", keys)
		second := subscribe(t, db, "second", keys)
		deleted := subscribe(t, db, "first", []string{"name", "body"}, storage.OpDelete)

		execute(t, db, "INSERT INTO first (id, name, body) VALUES (1, 'ü \" '' \\', $1)", []byte{0, 0xab})
		require.Equal(t, event("first", storage.OpInsert, "1", `ü " ' \`), next(t, first))
		execute(t, db, "INSERT INTO second (id, name) VALUES (1, 'one')")
		require.Equal(t, event("second", storage.OpInsert, "1", "one"), next(t, second))
		execute(t, db, "UPDATE first SET note = 'x' WHERE id = 1")
		require.Equal(t, event("first", storage.OpUpdate, "1", `ü " ' \`), next(t, first))
		execute(t, db, "UPDATE first SET name = 'new' WHERE id = 1")
		require.Equal(t, event("first", storage.OpUpdate, "1", `ü " ' \`), next(t, first))
		require.Equal(t, event("first", storage.OpUpdate, "1", "new"), next(t, first))
		execute(t, db, "DELETE FROM first")
		got := []storage.Event{next(t, first), next(t, first)}
		require.ElementsMatch(t, []storage.Event{event("first", storage.OpDelete, "0", "before"), event("first", storage.OpDelete, "1", "new")}, got)
		got = []storage.Event{next(t, deleted), next(t, deleted)}
		require.ElementsMatch(t, []storage.Event{event("first", storage.OpDelete, "before", ""), event("first", storage.OpDelete, "new", `\x00ab`)}, got)

		// Only what was committed, in its order.
		taken := errors.New("taken back")
		write := func(id int, result error) {
			err := storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
				for _, name := range []string{"a", "b"} {
					if _, err := tx.ExecContext(ctx, "INSERT INTO first (id, name) VALUES ($1, $2)", id, name); err != nil {
						return err
					}
				}
				return result
			})
			require.Equal(t, result, err)
		}
		write(2, taken)
		write(3, nil)
		require.Equal(t, event("first", storage.OpInsert, "3", "a"), next(t, first))
		require.Equal(t, event("first", storage.OpInsert, "3", "b"), next(t, first))
		execute(t, db, "INSERT INTO second (id, name) VALUES (9, 'last')")
		require.Equal(t, event("second", storage.OpInsert, "9", "last"), next(t, second), "and nothing of the other table")
		require.Empty(t, first)
		require.Empty(t, deleted)
	})
}

// A row written right after Subscribe returns is told of, also where the connection was made for it just now.
func TestNotifierIsReadyWhenSubscribeReturns(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		schema := open(t)
		if schema.Backend() == storage.Postgres {
			bothTables(t, schema)
		}
		for id := range 10 {
			db := schema
			if schema.Backend() == storage.Postgres {
				db = open(t) // nothing listens yet
			} else if id == 0 {
				bothTables(t, db)
			}
			events := subscribe(t, db, "first", keys)
			execute(t, db, "INSERT INTO first (id, name) VALUES ($1, 'x')", id)
			require.Equal(t, event("first", storage.OpInsert, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}[id], "x"), next(t, events))
		}
	})
}

// Whoever is told of a row can read it.
func TestNotifierTellsAfterTheCommit(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		bothTables(t, db)
		found := make(chan bool, 100)
		_, err := db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(e storage.Event) {
			var n int
			err := db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM first WHERE name = $1", e.Key[1]).Scan(&n)
			found <- err == nil && n == 1
		})
		require.NoError(t, err)
		insert, err := db.Write().PrepareContext(t.Context(), "INSERT INTO first (id, name) VALUES ($1, $2)")
		require.NoError(t, err)
		defer insert.Close()
		for i := range 30 {
			name := strings.Repeat("n", i+1)
			switch i % 3 {
			case 0:
				execute(t, db, "INSERT INTO first (id, name) VALUES ($1, $2)", i, name)
			case 1:
				_, err := insert.ExecContext(t.Context(), i, name)
				require.NoError(t, err)
			case 2:
				require.NoError(t, storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.StmtContext(ctx, insert).ExecContext(ctx, i, name)
					return err
				}))
			}
			require.True(t, next(t, found), i)
		}
	})
}

func TestNotifierOfOtherHandlesOnPostgres(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverPostgres)
	a, b := storagetest.Open(t, config), storagetest.Open(t, config)
	bothTables(t, a)
	events := subscribe(t, a, "first", keys)
	execute(t, b, "INSERT INTO first (id, name) VALUES (1, 'x')")
	require.Equal(t, event("first", storage.OpInsert, "1", "x"), next(t, events))
}

// A table of the same name in another schema of the database is another table.
func TestNotifierOfOneSchemaOnPostgres(t *testing.T) {
	t.Parallel()
	a, b := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres)), storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	bothTables(t, a)
	bothTables(t, b)
	events := subscribe(t, a, "first", keys)
	others := subscribe(t, b, "first", keys)
	execute(t, b, "INSERT INTO first (id, name) VALUES (1, 'other')")
	execute(t, a, "INSERT INTO first (id, name) VALUES (1, 'own')")
	require.Equal(t, event("first", storage.OpInsert, "1", "own"), next(t, events))
	require.Equal(t, event("first", storage.OpInsert, "1", "other"), next(t, others))
}

func TestNotifierInstallsNothingBeforeSubscribe(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	bothTables(t, db)
	_ = db.Notifier()
	const installed = "SELECT count(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
	require.Equal(t, 0, scan[int](t, db, installed))
	before, err := db.Schema(t.Context())
	require.NoError(t, err)
	for range 2 {
		subscribe(t, db, "first", keys)
		require.Equal(t, 1, scan[int](t, db, installed))
	}
	after, err := db.Schema(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestNotifierReconnects(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	bothTables(t, db)
	first, second := subscribe(t, db, "first", keys), subscribe(t, db, "second", keys)
	for range 3 {
		cut := scan[int](t, db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()
			AND query IN (SELECT 'LISTEN ' || tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = current_schema()::regnamespace)`)
		require.Equal(t, 1, cut)
		require.ErrorContains(t, next(t, db.Notifier().Errors()), "listening for changes")
		require.Equal(t, event("first", storage.OpChanged), next(t, first))
		require.Equal(t, event("second", storage.OpChanged), next(t, second))
		execute(t, db, "INSERT INTO first (id, name) VALUES (1, 'x')")
		require.Equal(t, event("first", storage.OpInsert, "1", "x"), next(t, first), "and no second sign")
		execute(t, db, "DELETE FROM first")
		require.Equal(t, event("first", storage.OpDelete, "1", "x"), next(t, first))
		require.Empty(t, second)
	}
}

// Asking a quiet connection for a sign of life loses nothing.
func TestNotifierPings(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	bothTables(t, db)
	db.Notifier().SetPing(time.Millisecond)
	events := subscribe(t, db, "first", keys)
	for i := range 100 {
		execute(t, db, "INSERT INTO first (id, name) VALUES ($1, 'x')", i)
		require.Equal(t, event("first", storage.OpInsert, strconv.Itoa(i), "x"), next(t, events))
	}
	require.Empty(t, db.Notifier().Errors())
}

// While the server is away, Subscribe fails rather than wait, and what was subscribed comes back with it.
func TestNotifierOutlivesTheServer(t *testing.T) {
	t.Parallel()
	cluster := storagetest.NewCluster(t)
	db := storagetest.Open(t, storage.Config{Driver: storage.DriverPostgres, DSN: cluster.DSN()})
	bothTables(t, db)
	first := subscribe(t, db, "first", keys)
	cluster.Kill(t)
	_, err := db.Notifier().Subscribe(t.Context(), "second", keys, nil, func(storage.Event) {})
	require.Error(t, err)
	cluster.Start(t)
	require.Equal(t, event("first", storage.OpChanged), next(t, first))
	second := subscribe(t, db, "second", keys)
	execute(t, db, "INSERT INTO second (id, name) VALUES (1, 'x')")
	require.Equal(t, event("second", storage.OpInsert, "1", "x"), next(t, second))
}

func TestNotifierCloseDuringDelivery(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		bothTables(t, db)
		running, goOn, ended := make(chan struct{}, 1000), make(chan struct{}), make(chan struct{})
		_, err := db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) {
			select {
			case <-ended:
				t.Error("a callback after Close")
			default:
			}
			running <- struct{}{}
			<-goOn
		})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for writer := range 2 {
			wg.Go(func() {
				for i := range 100 {
					if _, err := db.Write().ExecContext(t.Context(), "INSERT INTO first (id, name) VALUES ($1, $2)", i, strconv.Itoa(writer)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		next(t, running)
		wg.Go(func() {
			db.Notifier().Close()
			close(ended)
		})
		wg.Go(db.Notifier().Close) // twice
		close(goOn)
		wg.Wait()
		_, more := <-db.Notifier().Errors()
		require.False(t, more)
		_, err = db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) {})
		require.ErrorIs(t, err, storage.ErrNotifierClosed)
		db.Notifier().UnsubscribeAll()
	})
}

// Close returns when the callback that runs has returned, and no other is called.
func TestNotifierCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		calls, goOn := 0, make(chan struct{})
		_, err = db.Notifier().Subscribe(t.Context(), "t", []string{"id"}, nil, func(storage.Event) { calls++; <-goOn })
		require.NoError(t, err)
		execute(t, db, "INSERT INTO t (id) VALUES (1), (2), (3)")
		synctest.Wait()
		closed := false
		go func() {
			db.Notifier().Close()
			closed = true
		}()
		synctest.Wait()
		require.False(t, closed)
		close(goOn)
		synctest.Wait()
		require.True(t, closed)
		require.Equal(t, 1, calls)
	})
}

func TestNotifierAfterTheHandle(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Close())
		_, err := db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) {})
		require.ErrorIs(t, err, storage.ErrNotifierClosed)
	})
}

// A transaction that changes more rows than can be told of one by one is told of as a whole.
func TestNotifierLargeTransaction(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	bothTables(t, db)
	first, second := subscribe(t, db, "first", keys), subscribe(t, db, "second", keys)
	const many = "INSERT INTO first (id, name) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) SELECT i, $2 FROM n"
	execute(t, db, many, 4096, "a")
	for range 4096 {
		require.Equal(t, storage.OpInsert, next(t, first).Op)
	}
	require.NoError(t, storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO second (id, name) VALUES (1, 'x')"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, many, 100000, "b")
		return err
	}))
	require.Equal(t, event("second", storage.OpInsert, "1", "x"), next(t, second))
	require.Equal(t, event("first", storage.OpChanged), next(t, first))
	execute(t, db, "DELETE FROM first WHERE id = 1 AND name = 'a'")
	require.Equal(t, event("first", storage.OpDelete, "1", "a"), next(t, first))
}

// A key too long for PostgreSQL's notifications must not keep the row from being written.
func TestNotifierLongKeys(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	execute(t, db, "CREATE TABLE t (id TEXT)")
	events := subscribe(t, db, "t", []string{"id"})
	for n, op := range map[int]storage.Op{2000: storage.OpInsert, 9000: storage.OpChanged, 4000: storage.OpChanged} {
		key := strings.Repeat("k", n)
		if n == 4000 {
			key = strings.Repeat("ü", n) // 8000 bytes
		}
		execute(t, db, "INSERT INTO t (id) VALUES ($1)", key)
		require.Equal(t, op, next(t, events).Op, n)
	}
}

func TestNotifierUnsubscribe(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		bothTables(t, db)
		calls := make(chan string, 100)
		var endB func()
		endA, err := db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) { calls <- "a" })
		require.NoError(t, err)
		endB, err = db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) { calls <- "b"; endB() })
		require.NoError(t, err)
		_, err = db.Notifier().Subscribe(t.Context(), "first", keys, nil, func(storage.Event) { calls <- "c" })
		require.NoError(t, err)
		endA()
		endA()
		insert := func(id int) { execute(t, db, "INSERT INTO first (id, name) VALUES ($1, 'x')", id) }
		insert(1)
		require.Equal(t, "b", next(t, calls))
		require.Equal(t, "c", next(t, calls))
		insert(2)
		require.Equal(t, "c", next(t, calls))
		db.Notifier().UnsubscribeAll()
		insert(3)
		events := subscribe(t, db, "second", keys)
		execute(t, db, "INSERT INTO second (id, name) VALUES (1, 'x')")
		next(t, events)
		require.Empty(t, calls)
	})
}

func TestSubscribeRefuses(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		bothTables(t, db)
		callback := func(storage.Event) {}
		for name, test := range map[string]struct {
			table    string
			keys     []string
			ops      []storage.Op
			callback func(storage.Event)
			want     string
		}{
			"no callback":    {"first", keys, nil, nil, "a callback is needed"},
			"no table":       {"third", keys, nil, callback, "third"},
			"table's name":   {`fi"rst`, keys, nil, callback, "must be lower-case letters"},
			"no key":         {"first", nil, nil, callback, "key columns are needed"},
			"key twice":      {"first", []string{"id", "id"}, nil, callback, "each once"},
			"column's name":  {"first", []string{"id; --"}, nil, callback, "must be lower-case letters"},
			"other op":       {"first", keys, []storage.Op{storage.OpChanged}, callback, "not an operation"},
			"missing column": {"second", []string{"note"}, nil, callback, "note"},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := db.Notifier().Subscribe(t.Context(), test.table, test.keys, test.ops, test.callback)
				require.ErrorContains(t, err, test.want)
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := db.Notifier().Subscribe(ctx, "first", keys, nil, callback)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A new writing connection, which there is after the file could not be written for a while, tells of changes too.
func TestNotifierOnANewConnection(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	bothTables(t, db)
	events := subscribe(t, db, "first", keys)
	conn, err := db.Write().Conn(t.Context())
	require.NoError(t, err)
	require.Error(t, conn.Raw(func(any) error { return driver.ErrBadConn }))
	execute(t, db, "INSERT INTO first (id, name) VALUES (1, 'x')")
	require.Equal(t, event("first", storage.OpInsert, "1", "x"), next(t, events))
}
