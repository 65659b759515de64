package storage

import (
	"context"
	"fmt"
)

// Writable returns why the database takes no writes at present, or nil: SQLite's file is not the one that was opened, or its lock cannot be had
// within ctx; PostgreSQL does not answer or is read-only, as a standby is. It begins a transaction and takes it back, so nothing is written and it is
// cheap enough for a health check. That is why it does not find a disk that is full or became read-only: only what is committed does.
func (db *DB) Writable(ctx context.Context) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("storage: beginning to write: %w", err)
	}
	defer tx.Rollback()
	if db.backend != Postgres {
		return nil
	}
	var readOnly bool
	if err := tx.QueryRowContext(ctx, "SELECT current_setting('transaction_read_only')::boolean").Scan(&readOnly); err != nil {
		return fmt.Errorf("storage: asking whether the database can be written: %w", err)
	}
	if readOnly {
		return ErrReadOnly
	}
	return nil
}
