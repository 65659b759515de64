package run

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	things = query.NewTable("things")
	name   = query.NewColumn[string](things, "name")
)

func each(t *testing.T, test func(t *testing.T, d *DB)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		d := New(open(t))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		_, err := d.Write().ExecContext(t.Context(), "CREATE TABLE things (name VARCHAR(10) PRIMARY KEY)")
		require.NoError(t, err)
		test(t, d)
	})
}

func add(t *testing.T, d *DB, names ...string) {
	for _, n := range names {
		rows, err := d.Exec(t.Context(), d.Write(), query.InsertInto(things).Row(name.Set(n)))
		require.NoError(t, err)
		require.EqualValues(t, 1, rows)
	}
}

func names(t *testing.T, d *DB, q storage.Querier) []string {
	t.Helper()
	all, err := storage.Collect(Query(t.Context(), d, q, query.Select(name).From(things).OrderBy(name.Asc()), storage.Column[string]))
	require.NoError(t, err)
	return all
}

func TestRun(t *testing.T) {
	each(t, func(t *testing.T, d *DB) {
		add(t, d, "a", "b")
		for _, q := range []storage.Querier{d.Read(), d.Prepared(), d.Prepared()} {
			require.Equal(t, []string{"a", "b"}, names(t, d, q))
		}
		got, found, err := One(t.Context(), d, d.Prepared(), query.Select(name).From(things).Where(name.Eq("b")), storage.Column[string])
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, "b", got)
		_, found, err = One(t.Context(), d, d.Prepared(), query.Select(name).From(things).Where(name.Eq("c")), storage.Column[string])
		require.NoError(t, err)
		require.False(t, found)
	})
}

func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, d *DB) {
		add(t, d, "a")
		_, err := d.Exec(t.Context(), d.Write(), query.InsertInto(things).Row(name.Set("a")))
		require.ErrorIs(t, err, storage.ErrUnique)
		_, err = d.Exec(t.Context(), d.Write(), query.DeleteFrom(things).Where(query.Cond{}))
		require.ErrorIs(t, err, query.ErrUnrestricted)
		broken := query.Select(name).From(query.NewTable("Bad"))
		_, _, err = One(t.Context(), d, d.Prepared(), broken, storage.Column[string])
		require.ErrorIs(t, err, query.ErrIdentifier)
		missing := query.NewTable("missing")
		_, _, err = One(t.Context(), d, d.Prepared(), query.Select(name.Of(missing)).From(missing), storage.Column[string])
		require.Error(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = One(ctx, d, d.Prepared(), query.Select(name).From(things), storage.Column[string])
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A statement that no longer fits the tables is forgotten, and the caller never knows.
func TestStalePlan(t *testing.T) {
	each(t, func(t *testing.T, d *DB) {
		add(t, d, "a")
		require.Equal(t, []string{"a"}, names(t, d, d.Prepared()))
		for _, change := range []string{"DROP TABLE things", "CREATE TABLE things (other INTEGER, name TEXT PRIMARY KEY)"} {
			_, err := d.Write().ExecContext(t.Context(), change)
			require.NoError(t, err)
		}
		require.Empty(t, names(t, d, d.Prepared()))
		add(t, d, "b")
		require.Equal(t, []string{"b"}, names(t, d, d.Prepared()))
	})
}

// A closed statement falls back to the unprepared query, also for those who hold it already.
func TestClosedStatement(t *testing.T) {
	each(t, func(t *testing.T, d *DB) {
		add(t, d, "a")
		names(t, d, d.Prepared())
		for _, s := range d.prepared {
			require.NoError(t, s.Close())
		}
		if d.Backend() == storage.SQLite {
			require.Len(t, d.prepared, 1)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				d.mu.Lock() // forgotten, as Close does
				clear(d.prepared)
				d.mu.Unlock()
				for v, err := range Query(t.Context(), d, d.Prepared(), query.Select(name).From(things), storage.Column[string]) {
					if v != "a" || err != nil {
						t.Error(v, err)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, d.Close())
		require.Equal(t, []string{"a"}, names(t, d, d.Prepared()))
	})
}

// Statements beyond the bound run all the same.
func TestBoundOfStatements(t *testing.T) {
	each(t, func(t *testing.T, d *DB) {
		add(t, d, "a")
		for i := range maxPrepared + 5 {
			fields := []query.Expr{name, query.Literal(fmt.Sprint("text", i))}
			_, found, err := One(t.Context(), d, d.Prepared(), query.Select(fields...).From(things), func(*sql.Rows) (string, error) { return "", nil })
			require.NoError(t, err)
			require.True(t, found)
		}
		require.LessOrEqual(t, len(d.prepared), maxPrepared)
	})
}
