package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// How often RunInTx runs a transaction at most. Each attempt that ends busy has already waited 5 s for the lock; one that lost to another
// transaction failed at once, and under load it may lose again.
const (
	txBusyAttempts = busyAttempts
	txLostAttempts = 10
	txMaxWait      = 200 * time.Millisecond
)

// RunInTx runs fn in a transaction and commits it, or rolls it back when fn returns an error or panics. The transaction is run again
// from its start when it ended with ErrBusy (4 attempts in all), ErrSerialization or ErrDeadlock (10), with growing pauses, until ctx
// ends; then the last error is returned. fn must therefore be repeatable: what it changes outside the transaction, it sets afresh on every
// call. It must return the errors of its statements, wrapped or not, and must not commit or roll back itself.
//
// When the context ends during the commit, whether the transaction took effect is not known.
func RunInTx(ctx context.Context, w WriteDB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	wait := busyFirstWait
	for attempt := 1; ; attempt++ {
		err := runOnce(ctx, w, fn)
		limit := 0
		switch class(err) {
		case ErrBusy:
			limit = txBusyAttempts
		case ErrSerialization, ErrDeadlock:
			limit = txLostAttempts
		case ErrReadOnly:
			if r, ok := w.(*busyRetry); ok {
				r.renew(err)
			}
		}
		if attempt >= limit || !sleep(ctx, wait) {
			return err
		}
		wait = min(2*wait, txMaxWait)
	}
}

func runOnce(ctx context.Context, w WriteDB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := w.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	// After a commit this does nothing. A rollback that fails leaves a connection that the pool throws away, and the transaction with it.
	defer func() { _ = tx.Rollback() }()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("committing a transaction: %w", err)
	}
	return nil
}
