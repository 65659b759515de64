package records

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math/big"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
	"dongate/token/internal/status"
)

// GetStatus returns how a transaction fares, and what was said about it: Unknown, without an error, where it is not stored.
func (s *Store) GetStatus(ctx context.Context, txID string) (token.TxStatus, string, error) {
	is, err := s.t.requests.Get(ctx, s.db, s.db.Prepared(), txID)
	return is.Status, is.Message, err
}

// GetStatuses returns how transactions fare; those that are not stored are left out.
func (s *Store) GetStatuses(ctx context.Context, ids ...string) (map[string]status.Status, error) {
	return s.t.requests.GetMany(ctx, s.db, ids...)
}

// Subscribe has changed called, which must not block, with each transaction that changes, and with "" when any may have; a hint to read
// its status again.
func (s *Store) Subscribe(ctx context.Context, changed func(txID string)) (stop func(), err error) {
	return s.t.requests.Subscribe(ctx, s.db, changed)
}

// GetTokenRequest returns the raw request of a transaction, nil without an error where it is not stored.
func (s *Store) GetTokenRequest(ctx context.Context, txID string) ([]byte, error) {
	t := &s.t
	raw, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(t.request).From(t.requests.Table).Where(t.requests.TxID.Eq(txID)), storage.Column[[]byte])
	if err != nil {
		return nil, fmt.Errorf("reading the request of transaction %.200q: %w", txID, err)
	}
	if !found {
		return nil, nil
	}
	return full(raw), nil // SQLite's driver returns an empty one as nil
}

// GetTokenRequests returns the raw requests of transactions; those that are not stored are left out.
func (s *Store) GetTokenRequests(ctx context.Context, ids ...string) (map[string][]byte, error) {
	t := &s.t
	type row struct {
		id  string
		raw []byte
	}
	all := make(map[string][]byte, len(ids))
	for part := range storage.Chunks(ids, 1) {
		for r, err := range run.Query(ctx, s.db, s.db.Read(), query.Select(t.requests.TxID, t.request).From(t.requests.Table).Where(t.requests.TxID.In(part...)), func(rows *sql.Rows) (r row, err error) {
			return r, rows.Scan(&r.id, &r.raw)
		}) {
			if err != nil {
				return nil, fmt.Errorf("reading the requests of transactions: %w", err)
			}
			all[r.id] = full(r.raw)
		}
	}
	return all, nil
}

// QueryTokenRequests returns the requests of these statuses, or all, in the order of their time and transaction.
func (s *Store) QueryTokenRequests(ctx context.Context, statuses ...token.TxStatus) iter.Seq2[token.TokenRequestRecord, error] {
	t := &s.t
	return wrap("listing requests", run.Query(ctx, s.db, s.db.Read(), query.Select(t.requests.TxID, t.request, t.requests.Status, t.storedAt).From(t.requests.Table).
		Where(t.requests.Status.In(statuses...)).OrderBy(t.storedAt.Asc(), t.requests.TxID.Asc()), func(rows *sql.Rows) (r token.TokenRequestRecord, err error) {
		var at storage.Time
		err = rows.Scan(&r.TxID, &r.Request, &r.Status, &at)
		r.StoredAt = at.Time
		return r, err
	}))
}

// wrap says what was being done when something failed.
func wrap[T any](doing string, seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range seq {
			if err != nil {
				err = fmt.Errorf("%s: %w", doing, err)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// times returns the bounds as they are stored.
func times(from, to *time.Time) (f, t *storage.Time) {
	bound := func(v *time.Time) *storage.Time {
		if v == nil {
			return nil
		}
		at := storage.NewTime(*v)
		return &at
	}
	return bound(from), bound(to)
}

// QueryTransactions returns a page of records, of at most [storage.MaxPage], in the order of their time and, within the same millisecond,
// their id, which begins with the transaction unless the caller chose another. A page without a bound is query.ErrPage.
func (s *Store) QueryTransactions(ctx context.Context, q token.TransactionsQuery, page query.Pagination) (query.Page[token.TransactionRecord], error) {
	t := &s.t
	statement, order := t.listTransactions(q, page)
	records, err := storage.Collect(run.Query(ctx, s.db, s.db.Read(), statement, scanTransaction))
	if err != nil {
		return query.Page[token.TransactionRecord]{}, fmt.Errorf("listing transactions: %w", err)
	}
	return query.NewPage(order, page, records, func(r token.TransactionRecord) (storage.Time, string) { return storage.NewTime(r.Timestamp), r.ID }), nil
}

func (t *tables) listTransactions(q token.TransactionsQuery, page query.Pagination) (query.Statement, query.Sort[storage.Time, string]) {
	order := query.SortBy(t.txStoredAt, t.txID)
	if q.SearchDirection != token.FromBeginning {
		order = order.Desc()
	}
	return query.Select(t.txID, t.txTxID, t.txAction, t.txSender, t.txRecipient, t.txType, t.txAmount, t.txStoredAt,
		t.requests.Status, t.requests.Message, t.appMeta, t.pubMeta).
		From(t.txs).InnerJoin(t.requests.Table, t.txTxID.EqColumn(t.requests.TxID)).Where(t.transactions(q)).Paginate(order, page), order
}

// transactions is the condition of a query.
func (t *tables) transactions(q token.TransactionsQuery) query.Cond {
	var toSelf, wallets query.Cond
	if q.ExcludeToSelf {
		toSelf = query.Compare(t.txSender, query.NE, t.txRecipient)
	}
	if q.SenderWallet != "" && q.RecipientWallet != "" {
		wallets = query.Or(t.txSender.Eq(q.SenderWallet), t.txRecipient.Eq(q.RecipientWallet))
	}
	from, to := times(q.From, q.To)
	return query.And(t.txTxID.In(q.IDs...), toSelf, wallets, t.txStoredAt.Between(from, to), t.txAction.In(q.ActionTypes...),
		t.requests.Status.In(q.Statuses...), t.txType.In(q.TokenTypes...))
}

func scanTransaction(rows *sql.Rows) (r token.TransactionRecord, err error) {
	var amount storage.Amount
	var at storage.Time
	var appMeta, pubMeta []byte
	if err := rows.Scan(&r.ID, &r.TxID, &r.ActionType, &r.SenderEID, &r.RecipientEID, &r.TokenType, &amount, &at, &r.Status, &r.StatusMessage, &appMeta, &pubMeta); err != nil {
		return r, err
	}
	r.Amount, r.Timestamp = amount.Big(), at.Time
	if r.ApplicationMetadata, err = ParseMetadata(appMeta); err == nil {
		r.PublicMetadata, err = ParseMetadata(pubMeta)
	}
	return r, err
}

// QueryMovements returns movements in the order of their time and id.
func (s *Store) QueryMovements(ctx context.Context, q token.MovementsQuery) ([]token.MovementRecord, error) {
	return storage.Collect(s.Movements(ctx, q))
}

// Movements is QueryMovements one by one.
func (s *Store) Movements(ctx context.Context, q token.MovementsQuery) iter.Seq2[token.MovementRecord, error] {
	statement := s.t.listMovements(s.db.Backend(), q)
	return wrap("listing movements", run.Query(ctx, s.db, s.db.Read(), statement, func(rows *sql.Rows) (r token.MovementRecord, err error) {
		var amount storage.Movement
		var at storage.Time
		err = rows.Scan(&r.ID, &r.TxID, &r.EnrollmentID, &r.TokenType, &amount, &at, &r.Status)
		r.Amount, r.Timestamp = amount.Big(), at.Time
		return r, err
	}))
}

func (t *tables) listMovements(b storage.Backend, q token.MovementsQuery) query.Statement {
	at, id := t.moveStoredAt.Desc(), t.moveID.Desc()
	if q.SearchDirection == token.FromBeginning {
		at, id = t.moveStoredAt.Asc(), t.moveID.Asc()
	}
	return query.Select(t.moveID, t.moveTxID, t.moveEID, t.moveType, t.moveAmount, t.moveStoredAt, t.requests.Status).
		From(t.moves).InnerJoin(t.requests.Table, t.moveTxID.EqColumn(t.requests.TxID)).Where(t.movements(b, q)).
		OrderBy(at, id).Limit(max(q.NumRecords, 0))
}

// movements is the condition of a query.
func (t *tables) movements(b storage.Backend, q token.MovementsQuery) query.Cond {
	statuses := t.requests.Status.In(q.Statuses...)
	if len(q.Statuses) == 0 {
		statuses = t.requests.Status.Ne(token.Deleted)
	}
	var direction query.Cond
	switch zero := (storage.Movement{}).Bind(b); q.MovementDirection {
	case token.Sent:
		direction = t.moveAmount.Lt(zero)
	case token.Received:
		direction = t.moveAmount.Gt(zero)
	}
	return query.And(t.moveEID.In(q.EnrollmentIDs...), t.moveType.In(q.TokenTypes...), statuses, direction)
}

// SumMovements adds up what QueryMovements returns, exactly: in the database where that can add numbers of 256 bits.
func (s *Store) SumMovements(ctx context.Context, q token.MovementsQuery) (*big.Int, error) {
	t := &s.t
	sum := new(big.Int)
	if s.db.Backend() != storage.Postgres || q.NumRecords > 0 {
		for r, err := range s.Movements(ctx, q) {
			if err != nil {
				return nil, err
			}
			sum.Add(sum, r.Amount)
		}
		return sum, nil
	}
	text, _, err := run.One(ctx, s.db, s.db.Read(), t.sumMovements(s.db.Backend(), q), storage.Column[sql.NullString])
	if err == nil && text.Valid {
		if _, ok := sum.SetString(text.String, 10); !ok {
			err = fmt.Errorf("%w: %.100q", token.ErrIntegrity, text.String)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("adding up movements: %w", err)
	}
	return sum, nil
}

func (t *tables) sumMovements(b storage.Backend, q token.MovementsQuery) query.Statement {
	return query.Select(query.Sum(t.moveAmount)).From(t.moves).InnerJoin(t.requests.Table, t.moveTxID.EqColumn(t.requests.TxID)).Where(t.movements(b, q))
}

// GetTransactionEndorsementAcks returns the signature of each endorser of a transaction, by the endorser's bytes.
func (s *Store) GetTransactionEndorsementAcks(ctx context.Context, txID string) (map[string][]byte, error) {
	t := &s.t
	type row struct{ endorser, sigma []byte }
	all := map[string][]byte{}
	for r, err := range run.Query(ctx, s.db, s.db.Read(), query.Select(t.endEndorser, t.endSigma).From(t.ends).Where(t.endTxID.Eq(txID)), func(rows *sql.Rows) (r row, err error) {
		return r, rows.Scan(&r.endorser, &r.sigma)
	}) {
		if err != nil {
			return nil, fmt.Errorf("reading the endorsements of transaction %.200q: %w", txID, err)
		}
		all[string(r.endorser)] = r.sigma
	}
	return all, nil
}
