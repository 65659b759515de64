// Package records is the store of transactions that package ttxdb keeps for their owner and package auditdb for their auditor: the same
// tables twice.
//
//	requests   a transaction's raw request and how it fares; everything else belongs to one
//	txs        what a transaction did, a record for each action, recipient and token type
//	movements  what a transaction changed of somebody's holdings of a token type
//	tx_ends    which endorsers signed it
package records

import (
	"context"
	"fmt"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
	"dongate/token/internal/status"
	"dongate/token/lease"
)

// Options are what a Store may be told; the zero value will do.
type Options struct {
	Now func() time.Time // when what comes without a time was stored; nil: time.Now
}

// Store is the transactions of one TMS as one side sees them. It is safe for concurrent use.
type Store struct {
	db     *run.DB
	prefix string // of the TMS
	side   string // what the names of the tables have besides
	t      tables
	clock  func() time.Time
}

// New returns the transactions in a database that has been migrated. The side is "" for their owner, "aud_" for their auditor.
func New(db *storage.DB, prefix, side string, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{db: run.New(db), prefix: prefix, side: side, t: newTables(prefix + side), clock: o.Now}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// DB returns the database.
func (s *Store) DB() *storage.DB { return s.db.DB }

// AcquireRecoveryLeadership makes this process, until ttl has passed by the database's clock, the one that recovers what stayed pending:
// nil if another is. Nothing depends on there being but one, see [Store.ClaimPendingTransactions].
func (s *Store) AcquireRecoveryLeadership(ctx context.Context, ttl time.Duration) (*lease.Lease, error) {
	return s.AcquireLeadership(ctx, "recovery", ttl)
}

// AcquireLeadership is the same for any background service of this store.
func (s *Store) AcquireLeadership(ctx context.Context, service string, ttl time.Duration) (*lease.Lease, error) {
	return lease.Acquire(ctx, s.db.DB, s.prefix, s.side+service, ttl)
}

// Tx writes in a transaction. It is not safe for concurrent use.
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
		return nil, fmt.Errorf("joining a transaction: %w", err)
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

type tables struct {
	requests     status.Table
	request      query.Column[[]byte]
	appMeta      query.Column[string]
	pubMeta      query.Column[string]
	ppHash       query.Column[[]byte]
	claimedBy    query.Column[string]
	claimExpires query.Column[storage.Time]
	attempts     query.Column[int]
	storedAt     query.Column[storage.Time]

	txs         query.Table
	txID        query.Column[string]
	txTxID      query.Column[string]
	txAction    query.Column[token.ActionType]
	txSender    query.Column[string]
	txRecipient query.Column[string]
	txType      query.Column[string]
	txAmount    query.Column[any]
	txStoredAt  query.Column[storage.Time]

	moves        query.Table
	moveID       query.Column[string]
	moveTxID     query.Column[string]
	moveEID      query.Column[string]
	moveType     query.Column[string]
	moveAmount   query.Column[any]
	moveStoredAt query.Column[storage.Time]

	ends         query.Table
	endID        query.Column[string]
	endTxID      query.Column[string]
	endEndorser  query.Column[[]byte]
	endSigma     query.Column[[]byte]
	endsStoredAt query.Column[storage.Time]
}

func newTables(prefix string) tables {
	r := status.NewTable(prefix + "requests")
	x, m, e := query.NewTable(prefix+"txs"), query.NewTable(prefix+"movements"), query.NewTable(prefix+"tx_ends")
	t := tables{
		requests:     r,
		request:      query.NewColumn[[]byte](r.Table, "request"),
		appMeta:      query.NewColumn[string](r.Table, "application_metadata"),
		pubMeta:      query.NewColumn[string](r.Table, "public_metadata"),
		ppHash:       query.NewColumn[[]byte](r.Table, "pp_hash"),
		claimedBy:    query.NewColumn[string](r.Table, "recovery_claimed_by"),
		claimExpires: query.NewColumn[storage.Time](r.Table, "recovery_claim_expires_at"),
		attempts:     query.NewColumn[int](r.Table, "recovery_attempts"),
		storedAt:     query.NewColumn[storage.Time](r.Table, "stored_at"),

		txs:         x,
		txID:        query.NewColumn[string](x, "id"),
		txTxID:      query.NewColumn[string](x, "tx_id"),
		txAction:    query.NewColumn[token.ActionType](x, "action_type"),
		txSender:    query.NewColumn[string](x, "sender_eid"),
		txRecipient: query.NewColumn[string](x, "recipient_eid"),
		txType:      query.NewColumn[string](x, "token_type"),
		txAmount:    query.NewColumn[any](x, "amount"),
		txStoredAt:  query.NewColumn[storage.Time](x, "stored_at"),

		moves:        m,
		moveID:       query.NewColumn[string](m, "id"),
		moveTxID:     query.NewColumn[string](m, "tx_id"),
		moveEID:      query.NewColumn[string](m, "enrollment_id"),
		moveType:     query.NewColumn[string](m, "token_type"),
		moveAmount:   query.NewColumn[any](m, "amount"),
		moveStoredAt: query.NewColumn[storage.Time](m, "stored_at"),

		ends:         e,
		endID:        query.NewColumn[string](e, "id"),
		endTxID:      query.NewColumn[string](e, "tx_id"),
		endEndorser:  query.NewColumn[[]byte](e, "endorser"),
		endSigma:     query.NewColumn[[]byte](e, "sigma"),
		endsStoredAt: query.NewColumn[storage.Time](e, "stored_at"),
	}
	t.requests.AtEnd = t.unclaimed()
	return t
}

// unclaimed takes a recovery's claim back.
func (t *tables) unclaimed() []query.Assignment {
	return []query.Assignment{t.claimedBy.SetNull(), t.claimExpires.SetNull()}
}
