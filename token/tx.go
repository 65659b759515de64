package token

import (
	"context"
	"database/sql"
	"fmt"

	"dongate/storage"
)

// Tx is a writing transaction that knows its database, so that stores that share the database can write together: one begins it, the
// others join it with their Continue. It is not safe for concurrent use. On SQLite everything else that writes waits until it ends.
type Tx struct {
	*sql.Tx
	db *storage.DB
}

// Begin begins a transaction. The caller commits it or rolls it back; one that is lost to another is not repeated, see [InTx].
func Begin(ctx context.Context, db *storage.DB) (Tx, error) {
	tx, err := db.Write().BeginTx(ctx, nil)
	if err != nil {
		return Tx{}, fmt.Errorf("token: beginning a transaction: %w", err)
	}
	return Tx{tx, db}, nil
}

// InTx runs fn in a transaction as [storage.RunInTx] does: again when the transaction was lost to another, so fn must be repeatable.
func InTx(ctx context.Context, db *storage.DB, fn func(ctx context.Context, tx Tx) error) error {
	return storage.RunInTx(ctx, db.Write(), func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, Tx{tx, db}) })
}

// On returns ErrOtherDatabase unless the transaction was begun on this very handle.
func (t Tx) On(db *storage.DB) error {
	if t.Tx == nil || t.db != db {
		return ErrOtherDatabase
	}
	return nil
}
