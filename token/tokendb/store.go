// Package tokendb keeps tokens: what each is worth, who owns it, who spent it, its certification, and the public parameters under which
// tokens are made.
//
// Everything that may be replayed is idempotent: tokens, ownership, spending, certifications, cleanup marks, public parameters. Reads of
// what can be spent leave out tokens that are locked, see package tokenlock, and come in the order of the index that serves them.
package tokendb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// ErrMissing: one of the tokens asked for is not there, or has nothing where something was asked for.
var ErrMissing = errors.New("tokendb: not all of the tokens are there")

// Options are what a Store may be told; the zero value will do.
type Options struct {
	Now func() time.Time // when tokens were stored; nil: time.Now
}

// Store is the tokens of one TMS. It is safe for concurrent use.
type Store struct {
	db      *run.DB
	prefix  string
	t       tables
	clock   func() time.Time
	formats atomic.Pointer[[]string] // nil: any
}

// New returns the tokens in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{db: run.New(db), prefix: prefix, t: newTables(prefix), clock: o.Now}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// SetSupportedTokenFormats says which formats can be spent, for this Store's reads. Until it is called any can, as far as the flag of the
// token allows; called with none, nothing can. The flags themselves are set by [Tx.SetSpendableBySupportedTokenFormats].
func (s *Store) SetSupportedTokenFormats(formats ...token.Format) {
	names := texts(formats)
	s.formats.Store(&names)
}

// supported is true of tokens whose format is among those supported.
func (s *Store) supported() query.Cond {
	formats := s.formats.Load()
	switch {
	case formats == nil:
		return query.Cond{}
	case len(*formats) == 0:
		return query.Nothing()
	}
	return s.t.ledgerType.In(*formats...)
}

func texts(formats []token.Format) []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	return names
}

// Tx writes tokens in a transaction. It is not safe for concurrent use.
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
		return nil, fmt.Errorf("tokendb: joining a transaction: %w", err)
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

// key returns the index as it is stored.
func key(id token.ID) (int64, error) {
	switch {
	case id.TxID == "":
		return 0, fmt.Errorf("a token without a transaction: %w", token.ErrEmptyArgument)
	case id.Index > math.MaxInt64:
		return 0, fmt.Errorf("token %s: the index is too large", id)
	}
	return int64(id.Index), nil
}

// pairs returns the keys of tokens.
func pairs(ids []token.ID) ([]query.Pair[string, int64], error) {
	keys := make([]query.Pair[string, int64], len(ids))
	for i, id := range ids {
		idx, err := key(id)
		if err != nil {
			return nil, err
		}
		keys[i] = query.Pair[string, int64]{First: id.TxID, Second: idx}
	}
	return keys, nil
}

// list is run.Query with the errors wrapped.
func list[T any](ctx context.Context, s *Store, doing string, q storage.Querier, statement query.Statement, scan func(*sql.Rows) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range run.Query(ctx, s.db, q, statement, scan) {
			if err != nil {
				err = fmt.Errorf("%s: %w", doing, err)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// byID reads something of each token, in the order asked for. extra restricts which tokens count; ErrMissing if one is not among them.
func byID[T any](ctx context.Context, s *Store, doing string, ids []token.ID, extra query.Cond, fields []query.Expr, scan func(rows *sql.Rows, id *token.ID) (T, error)) ([]T, error) {
	keys, err := pairs(ids)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	type row struct {
		id token.ID
		v  T
	}
	found := make(map[token.ID]T, len(ids))
	for part := range storage.Chunks(keys, 2) {
		statement := query.Select(fields...).From(s.t.tokens).Where(query.And(query.InPairs(s.t.txID, s.t.idx, part...), extra))
		read := func(rows *sql.Rows) (r row, err error) {
			r.v, err = scan(rows, &r.id)
			return r, err
		}
		for r, err := range list(ctx, s, doing, s.db.Read(), statement, read) {
			if err != nil {
				return nil, err
			}
			found[r.id] = r.v
		}
	}
	all := make([]T, len(ids))
	for i, id := range ids {
		v, ok := found[id]
		if !ok {
			return nil, fmt.Errorf("%s: token %s: %w", doing, id, ErrMissing)
		}
		all[i] = v
	}
	return all, nil
}
