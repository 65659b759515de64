package query_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/query"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tables of these tests.
var (
	tokens    = query.NewTable("tokens")
	txID      = query.NewColumn[string](tokens, "tx_id")
	idx       = query.NewColumn[int](tokens, "idx")
	wallet    = query.NewColumn[string](tokens, "owner_wallet")
	amount    = query.NewColumn[int64](tokens, "amount")
	isDeleted = query.NewColumn[bool](tokens, "is_deleted")
	state     = query.NewColumn[status](tokens, "status")
	storedAt  = query.NewColumn[string](tokens, "stored_at")
	id        = query.NewColumn[[]byte](tokens, "id")

	locks     = query.NewTable("locks")
	lockTxID  = query.NewColumn[string](locks, "tx_id")
	lockIdx   = query.NewColumn[int](locks, "idx")
	holder    = query.NewColumn[string](locks, "holder")
	expiresAt = query.NewColumn[string](locks, "expires_at")
	uses      = query.NewColumn[int64](locks, "uses")
	released  = query.NewColumn[bool](locks, "released")
)

type status int

const (
	pending   status = 1
	confirmed status = 2
)

var schema = map[storage.Backend][]string{
	storage.SQLite: {
		`CREATE TABLE tokens (tx_id TEXT NOT NULL, idx INTEGER NOT NULL, owner_wallet TEXT, amount INTEGER NOT NULL, is_deleted BOOLEAN NOT NULL DEFAULT FALSE,
		 status INTEGER NOT NULL DEFAULT 1, stored_at TEXT, id BLOB, PRIMARY KEY (tx_id, idx))`,
		`CREATE TABLE locks (tx_id TEXT NOT NULL, idx INTEGER NOT NULL, holder TEXT NOT NULL, expires_at TEXT, uses INTEGER NOT NULL DEFAULT 0,
		 released BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (tx_id, idx))`,
		`CREATE UNIQUE INDEX locks_held ON locks (holder) WHERE released = FALSE`,
	},
	storage.Postgres: {
		`CREATE TABLE tokens (tx_id TEXT COLLATE "C" NOT NULL, idx INTEGER NOT NULL, owner_wallet TEXT COLLATE "C", amount BIGINT NOT NULL, is_deleted BOOLEAN NOT NULL DEFAULT FALSE,
		 status INTEGER NOT NULL DEFAULT 1, stored_at TIMESTAMPTZ, id BYTEA, PRIMARY KEY (tx_id, idx))`,
		`CREATE TABLE locks (tx_id TEXT COLLATE "C" NOT NULL, idx INTEGER NOT NULL, holder TEXT NOT NULL, expires_at TIMESTAMPTZ, uses BIGINT NOT NULL DEFAULT 0,
		 released BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (tx_id, idx))`,
		`CREATE UNIQUE INDEX locks_held ON locks (holder) WHERE released = FALSE`,
	},
}

// create makes the tables in an empty database.
func create(t testing.TB, db *storage.DB) {
	t.Helper()
	for _, ddl := range schema[db.Backend()] {
		_, err := db.Write().ExecContext(t.Context(), ddl)
		require.NoError(t, err)
	}
}

// run executes a statement that returns no rows, and returns how many it changed.
func run(t testing.TB, db *storage.DB, s query.Statement) int64 {
	t.Helper()
	text, args, err := s.Format(query.For(db.Backend()))
	require.NoError(t, err)
	res, err := db.Write().ExecContext(t.Context(), text, args...)
	require.NoError(t, err, text)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	return n
}

// read returns the first column of a query's rows.
func read[T any](t testing.TB, db *storage.DB, s query.Statement) []T {
	t.Helper()
	text, args, err := s.Format(query.For(db.Backend()))
	require.NoError(t, err)
	out, err := readText[T](t.Context(), db, text, args)
	require.NoError(t, err, text)
	return out
}

func readText[T any](ctx context.Context, db *storage.DB, text string, args []any) ([]T, error) {
	rows, err := db.Read().QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out []T
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(any)
	}
	for rows.Next() {
		var v T
		into[0] = &v
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
