package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// code is an error of a driver like SQLite's, state of one like PostgreSQL's, text of one with neither accessor.
type (
	code  int
	state string
	text  string
)

func (c code) Error() string     { return "some text" }
func (c code) Code() int         { return int(c) }
func (s state) Error() string    { return "some text" }
func (s state) SQLState() string { return string(s) }
func (t text) Error() string     { return string(t) }

var classes = []error{storage.ErrUnique, storage.ErrForeignKey, storage.ErrBusy, storage.ErrDeadlock, storage.ErrSerialization,
	storage.ErrStalePlan, storage.ErrReadOnly, storage.ErrFull, storage.ErrCorrupt}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want error // nil: none
	}{
		{code(1555), storage.ErrUnique}, {code(2067), storage.ErrUnique}, {code(2579), storage.ErrUnique},
		{code(787), storage.ErrForeignKey}, {code(19), nil}, {code(1299), nil},
		{code(5), storage.ErrBusy}, {code(6), storage.ErrBusy}, {code(261), storage.ErrBusy}, {code(517), storage.ErrBusy},
		{code(262), storage.ErrBusy}, {code(8), storage.ErrReadOnly}, {code(1032), storage.ErrReadOnly}, {code(13), storage.ErrFull},
		{code(11), storage.ErrCorrupt}, {code(26), storage.ErrCorrupt}, {state("XX001"), storage.ErrCorrupt}, {state("XX002"), storage.ErrCorrupt},
		{code(0), nil}, {code(1), nil}, {code(-1), nil},
		{state("23505"), storage.ErrUnique}, {state("23503"), storage.ErrForeignKey}, {state("40P01"), storage.ErrDeadlock},
		{state("40001"), storage.ErrSerialization}, {state("26000"), storage.ErrStalePlan}, {state("42P05"), storage.ErrStalePlan},
		{state("0A000"), storage.ErrStalePlan}, {state("25006"), storage.ErrReadOnly}, {state("53100"), storage.ErrFull},
		{state("23502"), nil}, {state(""), nil},
		{&pgconn.PgError{Code: "23505"}, storage.ErrUnique},
		{&pgconn.PgError{Code: "42601", Message: "duplicate key value violates unique constraint (SQLSTATE 23505)"}, nil},
		{text("duplicate key value violates unique constraint \"t_pkey\" (SQLSTATE 23505)"), nil},
		{text("UNIQUE constraint failed: t.id (2067)"), nil}, {text("database is locked (5) (SQLITE_BUSY)"), nil},
		{sql.ErrNoRows, nil}, {context.Canceled, nil},
	} {
		for name, err := range map[string]error{
			"bare": test.err, "wrapped": fmt.Errorf("storing: %w", fmt.Errorf("a row: %w", test.err)),
			"joined": errors.Join(errors.New("closing"), test.err), "classified": storage.Classify(test.err),
		} {
			t.Run(fmt.Sprintf("%T %v %s", test.err, test.err, name), func(t *testing.T) {
				got := storage.Classify(err)
				for _, class := range classes {
					require.Equal(t, class == test.want, errors.Is(got, class), class)
				}
				require.ErrorIs(t, got, test.err)
				require.EqualError(t, got, err.Error())
				if test.want == nil {
					require.Equal(t, err, got)
				}
			})
		}
	}
	require.NoError(t, storage.Classify(nil))
}

// The codes are those that the drivers really report, from statements and from commits.
func TestClassifyWhatDriversReport(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
		execute(t, db, "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
		execute(t, db, "INSERT INTO parent (id, name) VALUES (1, 'one')")
		run := func(query string) error {
			return storage.RunInTx(t.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			})
		}
		for query, want := range map[string]error{
			"INSERT INTO parent (id, name) VALUES (1, 'two')": storage.ErrUnique,
			"INSERT INTO parent (id, name) VALUES (2, 'one')": storage.ErrUnique,
			"INSERT INTO child (id, parent) VALUES (1, 9)":    storage.ErrForeignKey, // at the commit
		} {
			require.ErrorIs(t, storage.Classify(run(query)), want, query)
			_, err := db.Write().ExecContext(t.Context(), query)
			require.ErrorIs(t, storage.Classify(err), want, query)
			if db.Backend() == storage.SQLite {
				_, ok := errors.AsType[*sqlite.Error](storage.Classify(err))
				require.True(t, ok)
			} else {
				_, ok := errors.AsType[*pgconn.PgError](storage.Classify(err))
				require.True(t, ok)
			}
		}
		err := run("INSERT INTO nowhere (id) VALUES (1)")
		require.Error(t, err)
		require.Equal(t, err, storage.Classify(err))
	})
}
