// Package endorserdb keeps what an endorser of a token network validated: each request with all that was needed to judge it, and how its
// transaction fared. It refers to no other table.
package endorserdb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/internal/run"
	"dongate/token/internal/status"
)

// Options are what a Store may be told; the zero value will do.
type Options struct {
	Now func() time.Time // when validations were stored; nil: time.Now
}

// Status is how a transaction fares, with what was said about it.
type Status = status.Status

// Store is the validations of one TMS. It is safe for concurrent use.
type Store struct {
	db       *run.DB
	t        status.Table
	request  query.Column[[]byte]
	metadata query.Column[[]byte]
	ppHash   query.Column[[]byte]
	storedAt query.Column[storage.Time]
	clock    func() time.Time
}

// New returns the validations in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := status.NewTable(prefix + "req_vals")
	raw := func(name string) query.Column[[]byte] { return query.NewColumn[[]byte](t.Table, name) }
	return &Store{db: run.New(db), t: t, request: raw("request"), metadata: raw("metadata"), ppHash: raw("pp_hash"),
		storedAt: query.NewColumn[storage.Time](t.Table, "stored_at"), clock: o.Now}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// Tx writes validations in a transaction. It is not safe for concurrent use.
type Tx struct {
	s  *Store
	tx token.Tx
}

// Begin begins a transaction, which the caller commits or rolls back. [Store.InTx] also repeats what was lost to another.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	tx, err := token.Begin(ctx, s.db.DB)
	if err != nil {
		return nil, err
	}
	return &Tx{s, tx}, nil
}

// Continue joins a transaction that another store began on the same handle, or returns token.ErrOtherDatabase.
func (s *Store) Continue(tx token.Tx) (*Tx, error) {
	if err := tx.On(s.db.DB); err != nil {
		return nil, fmt.Errorf("endorserdb: joining a transaction: %w", err)
	}
	return &Tx{s, tx}, nil
}

// InTx runs fn in a transaction; fn must be repeatable, see [token.InTx].
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return token.InTx(ctx, s.db.DB, func(ctx context.Context, tx token.Tx) error { return fn(ctx, &Tx{s, tx}) })
}

// Shared returns the transaction for other stores to continue.
func (x *Tx) Shared() token.Tx { return x.tx }

// Commit ends the transaction; what it wrote stays.
func (x *Tx) Commit() error { return x.tx.Commit() }

// Rollback ends the transaction; nothing of it stays. After Commit it does nothing.
func (x *Tx) Rollback() {
	_ = x.tx.Rollback() // what fails leaves a connection that the pool throws away, and the transaction with it
}

// AddValidationRecord stores a request that was validated, as pending, with the metadata it came with and the hash of the public parameters
// it was validated against. The same again changes nothing, whatever became of the transaction since; another request of the transaction,
// or other parameters, are token.ErrRequestMismatch.
func (x *Tx) AddValidationRecord(ctx context.Context, txID string, request []byte, metadata map[string][]byte, ppHash []byte) error {
	if err := x.add(ctx, txID, request, metadata, ppHash); err != nil {
		return fmt.Errorf("storing the validation of transaction %.200q: %w", txID, err)
	}
	return nil
}

func (x *Tx) add(ctx context.Context, txID string, request []byte, metadata map[string][]byte, ppHash []byte) error {
	s := x.s
	if txID == "" {
		return fmt.Errorf("transaction: %w", token.ErrEmptyArgument)
	}
	meta, err := records.Metadata(metadata)
	if err != nil {
		return err
	}
	if err := errors.Join(storage.CheckPayload("request", request), storage.CheckPayload("hash of the public parameters", ppHash)); err != nil {
		return err
	}
	request, ppHash = append([]byte{}, request...), append([]byte{}, ppHash...) // never NULL
	n, err := s.db.Exec(ctx, x.tx, query.InsertInto(s.t.Table).Row(s.t.TxID.Set(txID), s.request.Set(request), s.metadata.Set([]byte(meta)),
		s.ppHash.Set(ppHash), s.t.Status.Set(token.Pending), s.t.Message.Set(""), s.storedAt.Set(storage.NewTime(s.clock()))).OnConflict(s.t.TxID).DoNothing())
	if err != nil || n > 0 {
		return err
	}
	for old, err := range x.s.query(ctx, x.tx, s.t.TxID.Eq(txID)) {
		if err != nil {
			return err
		}
		if !bytes.Equal(old.Request, request) || !bytes.Equal(old.PPHash, ppHash) {
			return token.ErrRequestMismatch
		}
	}
	return nil
}

// SetStatus gives a transaction a status, with what is to be said about it; an empty message leaves the one that is there. Pending can
// become any other, an orphan confirmed or deleted; the status it has succeeds and writes nothing. All else is token.ErrAlreadyFinal, a
// transaction that is not stored token.ErrUnknownTransaction.
func (x *Tx) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	return x.s.t.Set(ctx, x.s.db, x.tx, x.tx, txID, to, message)
}

// SetStatus is [Tx.SetStatus] by itself.
func (s *Store) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	return s.t.Set(ctx, s.db, s.db.Write(), s.db.Read(), txID, to, message)
}

// GetStatus returns how a transaction fares, and what was said about it: Unknown, without an error, where it is not stored.
func (s *Store) GetStatus(ctx context.Context, txID string) (token.TxStatus, string, error) {
	is, err := s.t.Get(ctx, s.db, s.db.Prepared(), txID)
	return is.Status, is.Message, err
}

// GetStatuses returns how transactions fare; those that are not stored are left out.
func (s *Store) GetStatuses(ctx context.Context, ids ...string) (map[string]Status, error) {
	return s.t.GetMany(ctx, s.db, ids...)
}

// Subscribe has changed called, which must not block, with each transaction that changes, and with "" when any may have; a hint to read
// its status again.
func (s *Store) Subscribe(ctx context.Context, changed func(txID string)) (stop func(), err error) {
	return s.t.Subscribe(ctx, s.db, changed)
}

// QueryValidations returns validations in the order of their time and transaction.
func (s *Store) QueryValidations(ctx context.Context, q token.ValidationsQuery) iter.Seq2[token.ValidationRecord, error] {
	bound := func(v *time.Time) *storage.Time {
		if v == nil {
			return nil
		}
		at := storage.NewTime(*v)
		return &at
	}
	all := s.query(ctx, s.db.Read(), query.And(s.storedAt.Between(bound(q.From), bound(q.To)), s.t.Status.In(q.Statuses...)))
	return func(yield func(token.ValidationRecord, error) bool) {
		for r, err := range all {
			if err != nil {
				yield(r, fmt.Errorf("listing validations: %w", err))
				return
			}
			if q.Filter != nil && !q.Filter(&r) {
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *Store) query(ctx context.Context, q storage.Querier, which query.Cond) iter.Seq2[token.ValidationRecord, error] {
	return run.Query(ctx, s.db, q, query.Select(s.t.TxID, s.request, s.metadata, s.ppHash, s.t.Status, s.t.Message, s.storedAt).From(s.t.Table).
		Where(which).OrderBy(s.storedAt.Asc(), s.t.TxID.Asc()), func(rows *sql.Rows) (r token.ValidationRecord, err error) {
		var meta []byte
		var at storage.Time
		if err := rows.Scan(&r.TxID, &r.Request, &meta, &r.PPHash, &r.Status, &r.StatusMessage, &at); err != nil {
			return r, err
		}
		r.Timestamp = at.Time
		r.Metadata, err = records.ParseMetadata(meta)
		return r, err
	})
}

// DeleteFinished removes validations of transactions that have ended, of those stored at least so long ago at most limit, which is 1 to
// storage.MaxPage. It returns how many there were: fewer than limit means that none are left.
func (s *Store) DeleteFinished(ctx context.Context, olderThan time.Duration, limit int) (deleted int, err error) {
	if err := storage.CheckPage(limit); err != nil {
		return 0, fmt.Errorf("deleting validations: %w", err)
	}
	find := query.Select(s.t.TxID).From(s.t.Table).
		Where(query.And(query.InLiteral(s.t.Status, token.Confirmed, token.Deleted, token.Orphan), query.OlderThan(s.storedAt, olderThan))).
		OrderBy(s.storedAt.Asc(), s.t.TxID.Asc()).Limit(limit).ForUpdateSkipLocked()
	err = s.InTx(ctx, func(ctx context.Context, x *Tx) error {
		ids, err := storage.Collect(run.Query(ctx, s.db, x.tx, find, storage.Column[string]))
		if err != nil {
			return err
		}
		deleted = len(ids)
		for part := range storage.Chunks(ids, 1) {
			if _, err := s.db.Exec(ctx, x.tx, query.DeleteFrom(s.t.Table).Where(s.t.TxID.In(part...))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("deleting validations: %w", err)
	}
	return deleted, nil
}
