// Package status is what the stores of transactions have in common: a status that changes by allowed steps only, and those who wait for it.
package status

import (
	"context"
	"database/sql"
	"fmt"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// Status is how a transaction fares, with what was said about it.
type Status struct {
	Status  token.TxStatus
	Message string
}

// Table is a table with a transaction in each row.
type Table struct {
	query.Table
	TxID    query.Column[string]
	Status  query.Column[token.TxStatus]
	Message query.Column[string]
	AtEnd   []query.Assignment // what else changes when a transaction ends
}

// NewTable returns the table of that name.
func NewTable(name string) Table {
	t := query.NewTable(name)
	return Table{Table: t, TxID: query.NewColumn[string](t, "tx_id"), Status: query.NewColumn[token.TxStatus](t, "status"),
		Message: query.NewColumn[string](t, "status_message")}
}

// maxSteps bounds how often Set tries again because the row changed between its two statements. A transaction has three steps in its life:
// it is stored, it becomes an orphan, it ends.
const maxSteps = 4

// Set gives the transaction a status, if token.Change allows it, in one guarded statement. An empty message leaves the one that is there.
// x and q are the same transaction, or both sides of the database.
func (t Table) Set(ctx context.Context, db *run.DB, x run.Execer, q storage.Querier, txID string, to token.TxStatus, message string) error {
	if err := t.set(ctx, db, x, q, txID, to, message); err != nil {
		return fmt.Errorf("setting transaction %.200q to %s: %w", txID, to, err)
	}
	return nil
}

func (t Table) set(ctx context.Context, db *run.DB, x run.Execer, q storage.Querier, txID string, to token.TxStatus, message string) error {
	change := append([]query.Assignment{t.Status.Set(to)}, t.AtEnd...)
	if message != "" {
		change = append(change, t.Message.Set(message))
	}
	for range maxSteps {
		if from := to.Predecessors(); len(from) > 0 {
			n, err := db.Exec(ctx, x, query.Update(t.Table).Set(change...).Where(query.And(t.TxID.Eq(txID), query.InLiteral(t.Status, from...))))
			if err != nil || n > 0 {
				return err
			}
		}
		is, err := t.get(ctx, db, q, txID)
		if err != nil {
			return err
		}
		if write, err := token.Change(is.Status, to); err != nil || !write {
			return err
		}
	}
	return fmt.Errorf("%w: it changes all the time", storage.ErrSerialization)
}

// Get returns a transaction's status: Unknown, without an error, where it is not stored.
func (t Table) Get(ctx context.Context, db *run.DB, q storage.Querier, txID string) (Status, error) {
	s, err := t.get(ctx, db, q, txID)
	if err != nil {
		return Status{}, fmt.Errorf("reading the status of transaction %.200q: %w", txID, err)
	}
	return s, nil
}

func (t Table) get(ctx context.Context, db *run.DB, q storage.Querier, txID string) (Status, error) {
	s, _, err := run.One(ctx, db, q, query.Select(t.Status, t.Message).From(t.Table).Where(t.TxID.Eq(txID)), func(rows *sql.Rows) (s Status, err error) {
		return s, rows.Scan(&s.Status, &s.Message)
	})
	return s, err
}

// GetMany returns the statuses of those transactions that are stored.
func (t Table) GetMany(ctx context.Context, db *run.DB, ids ...string) (map[string]Status, error) {
	type row struct {
		id string
		Status
	}
	all := make(map[string]Status, len(ids))
	for part := range storage.Chunks(ids, 1) {
		for r, err := range run.Query(ctx, db, db.Read(), query.Select(t.TxID, t.Status, t.Message).From(t.Table).Where(t.TxID.In(part...)), func(rows *sql.Rows) (r row, err error) {
			return r, rows.Scan(&r.id, &r.Status.Status, &r.Message)
		}) {
			if err != nil {
				return nil, fmt.Errorf("reading the statuses of transactions: %w", err)
			}
			all[r.id] = r.Status
		}
	}
	return all, nil
}

// Subscribe has changed called with each transaction whose row changes, and with "" when any may have, see [storage.Notifier].
func (t Table) Subscribe(ctx context.Context, db *run.DB, changed func(txID string)) (stop func(), err error) {
	stop, err = db.Notifier().Subscribe(ctx, t.Name(), []string{"tx_id"}, []storage.Op{storage.OpUpdate}, func(e storage.Event) {
		if e.Op == storage.OpChanged {
			changed("")
			return
		}
		changed(e.Key[0])
	})
	if err != nil {
		return nil, fmt.Errorf("asking to be told of transactions that change: %w", err)
	}
	return stop, nil
}
