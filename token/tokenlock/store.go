// Package tokenlock says which transaction is about to spend a token, so that no two do. The row of a lock is inserted or it is not: that
// decides, whatever a list of spendable tokens said before.
//
// A lock is freed when the transaction that consumes the token is confirmed, deleted or an orphan, whatever became of the one that made
// the token. A lock whose consumer has no request that is pending is a lease: after a time, by the database's clock, it is freed too. The
// locks are always in the database of the tokens, see package tokendb.
package tokenlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
	"dongate/token/lease"
)

// DefaultLease is how long a lock lasts whose consumer has no request.
const DefaultLease = 3 * time.Minute

// Store is the locks of one TMS. It is safe for concurrent use.
type Store struct {
	db     *run.DB
	prefix string
	t      tables
}

type tables struct {
	locks            query.Table
	txID             query.Column[string]
	idx              query.Column[int64]
	consumer, wallet query.Column[string]
	createdAt        query.Column[storage.Time]
	consumers        query.Table
	consumerID       query.Column[string]
	consumerStatus   query.Column[int]
	requests         query.Table
	requestID        query.Column[string]
	requestStatus    query.Column[int]
	tokens           query.Table
	tokenTxID        query.Column[string]
	tokenIdx         query.Column[int64]
	isDeleted        query.Column[bool]
}

// New returns the locks in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string) *Store {
	locks, consumers := query.NewTable(prefix+"tkn_locks"), query.NewTable(prefix+"tkn_consumers")
	requests, tokens := query.NewTable(prefix+"requests"), query.NewTable(prefix+"tokens")
	return &Store{db: run.New(db), prefix: prefix, t: tables{
		locks: locks, txID: query.NewColumn[string](locks, "tx_id"), idx: query.NewColumn[int64](locks, "idx"),
		consumer: query.NewColumn[string](locks, "consumer_tx_id"), wallet: query.NewColumn[string](locks, "wallet_id"),
		createdAt: query.NewColumn[storage.Time](locks, "created_at"),
		consumers: consumers, consumerID: query.NewColumn[string](consumers, "tx_id"), consumerStatus: query.NewColumn[int](consumers, "status"),
		requests: requests, requestID: query.NewColumn[string](requests, "tx_id"), requestStatus: query.NewColumn[int](requests, "status"),
		tokens: tokens, tokenTxID: query.NewColumn[string](tokens, "tx_id"), tokenIdx: query.NewColumn[int64](tokens, "idx"),
		isDeleted: query.NewColumn[bool](tokens, "is_deleted"),
	}}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// Lock locks a token for the transaction that is about to spend it. It fails with token.ErrTokenAlreadyLocked where a transaction holds it,
// be it the same one; with token.ErrTokenDoesNotExist where it is not stored; with token.ErrTokenSpent where it is spent. The wallet is
// kept for those who look at the locks.
func (s *Store) Lock(ctx context.Context, id token.ID, consumerTxID, wallet string) error {
	won, err := s.LockBatch(ctx, consumerTxID, wallet, id)
	if err != nil || len(won) == 1 {
		return err
	}
	deleted, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(s.t.isDeleted).From(s.t.tokens).
		Where(query.And(s.t.tokenTxID.Eq(id.TxID), s.t.tokenIdx.Eq(int64(id.Index)))), storage.Column[bool])
	switch {
	case err == nil && !found:
		err = token.ErrTokenDoesNotExist
	case err == nil && deleted:
		err = token.ErrTokenSpent
	case err == nil:
		err = token.ErrTokenAlreadyLocked
	}
	return fmt.Errorf("locking token %s: %w", id, err)
}

// LockBatch locks as many of the tokens as it can, in one transaction, and returns those in the order given. Left out are tokens that are
// locked, also by the same transaction, that are spent and that are not stored.
func (s *Store) LockBatch(ctx context.Context, consumerTxID, wallet string, ids ...token.ID) ([]token.ID, error) {
	if consumerTxID == "" {
		return nil, fmt.Errorf("locking tokens for no transaction: %w", token.ErrEmptyArgument)
	}
	for _, id := range ids {
		if id.Index > math.MaxInt64 {
			return nil, fmt.Errorf("locking token %s: the index is too large", id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var won map[token.ID]bool
	err := storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		won = make(map[token.ID]bool, len(ids))
		for part := range storage.Chunks(ids, 2) {
			for id, err := range run.Query(ctx, s.db, tx, s.insert(consumerTxID, wallet, part), scanID) {
				if err != nil {
					return err
				}
				won[id] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("locking tokens: %w", err)
	}
	var out []token.ID
	for _, id := range ids {
		if won[id] {
			out = append(out, id)
			delete(won, id) // once, however often it was given
		}
	}
	return out, nil
}

func scanID(rows *sql.Rows) (id token.ID, err error) {
	err = rows.Scan(&id.TxID, &id.Index)
	return id, err
}

// statement is SQL with its values.
type statement struct {
	text string
	args []any
}

// Format implements query.Statement.
func (s statement) Format(query.Interpreter) (string, []any, error) { return s.text, s.args, nil }

// insert locks those of the tokens that are there, unspent and not locked. On PostgreSQL the token's row is held until the lock is
// committed: nobody spends it in between and gives back the lock that spending needed, so that a token cannot be locked after it was spent.
// Everybody goes through the tokens in the same order, so that no two wait for each other.
func (s *Store) insert(consumerTxID, wallet string, ids []token.ID) query.Statement {
	now, hold, list := "strftime('%Y-%m-%d %H:%M:%f', 'now')", "", "VALUES "
	if s.db.Backend() == storage.Postgres {
		now, hold, list = "date_trunc('milliseconds', NOW())", " FOR SHARE OF t", ""
	}
	var text strings.Builder
	text.WriteString("INSERT INTO " + s.prefix + "tkn_locks (tx_id, idx, consumer_tx_id, wallet_id, created_at) SELECT t.tx_id, t.idx, $1, $2, " + now +
		" FROM " + s.prefix + "tokens AS t WHERE (t.tx_id, t.idx) IN (" + list)
	args := []any{consumerTxID, wallet}
	for i, id := range ids {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString("($" + strconv.Itoa(len(args)+1) + ", $" + strconv.Itoa(len(args)+2) + ")")
		args = append(args, id.TxID, int64(id.Index))
	}
	text.WriteString(") AND NOT t.is_deleted ORDER BY t.tx_id, t.idx" + hold + " ON CONFLICT (tx_id, idx) DO NOTHING RETURNING tx_id, idx")
	return statement{text.String(), args}
}

// Unlock frees those of the tokens that the transaction holds. It may be called more than once.
func (s *Store) Unlock(ctx context.Context, consumerTxID string, ids ...token.ID) error {
	keys := make([]query.Pair[string, int64], 0, len(ids))
	for _, id := range ids {
		if id.Index <= math.MaxInt64 { // nobody can hold another
			keys = append(keys, query.Pair[string, int64]{First: id.TxID, Second: int64(id.Index)})
		}
	}
	for part := range storage.Chunks(keys, 2) {
		_, err := s.db.Exec(ctx, s.db.Write(), query.DeleteFrom(s.t.locks).Where(query.And(s.t.consumer.Eq(consumerTxID), query.InPairs(s.t.txID, s.t.idx, part...))))
		if err != nil {
			return fmt.Errorf("freeing tokens of transaction %s: %w", consumerTxID, err)
		}
	}
	return nil
}

// UnlockByTxID frees the tokens that the transaction holds and returns how many. It may be called more than once.
func (s *Store) UnlockByTxID(ctx context.Context, consumerTxID string) (int64, error) {
	return s.unlock(ctx, s.db.Write(), consumerTxID)
}

func (s *Store) unlock(ctx context.Context, x run.Execer, consumerTxID string) (int64, error) {
	n, err := s.db.Exec(ctx, x, query.DeleteFrom(s.t.locks).Where(s.t.consumer.Eq(consumerTxID)))
	if err != nil {
		return 0, fmt.Errorf("freeing the tokens of transaction %s: %w", consumerTxID, err)
	}
	return n, nil
}

// Renew begins the leases of the transaction's locks anew and returns how many it holds. Whoever stores the transaction's request does so in
// the same database transaction, see [Store.Continue], and gives up where there are fewer than it spends: somebody else may have the others.
func (s *Store) Renew(ctx context.Context, consumerTxID string) (int64, error) {
	return s.renew(ctx, s.db.Write(), consumerTxID)
}

func (s *Store) renew(ctx context.Context, x run.Execer, consumerTxID string) (int64, error) {
	n, err := s.db.Exec(ctx, x, query.Update(s.t.locks).Set(s.t.createdAt.SetNow(0)).Where(s.t.consumer.Eq(consumerTxID)))
	if err != nil {
		return 0, fmt.Errorf("renewing the locks of transaction %s: %w", consumerTxID, err)
	}
	return n, nil
}

// Tx changes locks in a transaction of another store. It is not safe for concurrent use.
type Tx struct {
	s  *Store
	tx token.Tx
}

// Continue joins a transaction that another store began on the same handle, or returns token.ErrOtherDatabase.
func (s *Store) Continue(tx token.Tx) (*Tx, error) {
	if err := tx.On(s.db.DB); err != nil {
		return nil, fmt.Errorf("tokenlock: joining a transaction: %w", err)
	}
	return &Tx{s, tx}, nil
}

// UnlockByTxID is [Store.UnlockByTxID] in this transaction.
func (x *Tx) UnlockByTxID(ctx context.Context, consumerTxID string) (int64, error) {
	return x.s.unlock(ctx, x.tx, consumerTxID)
}

// Renew is [Store.Renew] in this transaction.
func (x *Tx) Renew(ctx context.Context, consumerTxID string) (int64, error) {
	return x.s.renew(ctx, x.tx, consumerTxID)
}

// ListLocks yields all locks, the oldest first, with the status of their consumers.
func (s *Store) ListLocks(ctx context.Context) iter.Seq2[token.Lock, error] {
	t := &s.t
	statement := query.Select(t.txID, t.idx, t.consumer, t.wallet, t.createdAt, query.Now(), t.requestStatus, t.consumerStatus).From(t.locks).
		LeftJoin(t.requests, t.requestID.EqColumn(t.consumer)).LeftJoin(t.consumers, t.consumerID.EqColumn(t.consumer)).
		OrderBy(t.createdAt.Asc(), t.txID.Asc(), t.idx.Asc())
	return run.Query(ctx, s.db, s.db.Prepared(), statement, func(rows *sql.Rows) (l token.Lock, err error) {
		var created, now storage.Time
		var request, copied sql.Null[int]
		err = rows.Scan(&l.TxID, &l.Index, &l.ConsumerTxID, &l.WalletID, &created, &now, &request, &copied)
		if l.Status = token.TxStatus(request.V); !request.Valid {
			l.Status = token.TxStatus(copied.V)
		}
		l.CreatedAt, l.Age = created.Time, now.Sub(created.Time)
		return l, err
	})
}

// Cleanup frees the locks whose consumer is confirmed, deleted or an orphan, and those at least leaseExpiry old, by the database's clock,
// whose consumer is not pending. It returns how many. Any number of processes may do so at once.
func (s *Store) Cleanup(ctx context.Context, leaseExpiry time.Duration) (int64, error) {
	t := &s.t
	ended := []int{int(token.Confirmed), int(token.Deleted), int(token.Orphan)}
	consumer := func(statuses ...int) query.Cond {
		return query.Or(
			query.Exists(query.Select(query.Literal(1)).From(t.requests).Where(query.And(t.requestID.EqColumn(t.consumer), query.InLiteral(t.requestStatus, statuses...)))),
			query.Exists(query.Select(query.Literal(1)).From(t.consumers).Where(query.And(t.consumerID.EqColumn(t.consumer), query.InLiteral(t.consumerStatus, statuses...)))))
	}
	freed, err := s.db.Exec(ctx, s.db.Write(), query.DeleteFrom(t.locks).Where(
		query.Or(consumer(ended...), query.And(query.OlderThan(t.createdAt, leaseExpiry), query.Not(consumer(int(token.Pending)))))))
	if err != nil {
		return 0, fmt.Errorf("cleaning up locks: %w", err)
	}
	// What was copied of consumers that hold nothing any more is of no use.
	_, err = s.db.Exec(ctx, s.db.Write(), query.DeleteFrom(t.consumers).Where(query.And(query.InLiteral(t.consumerStatus, ended...),
		query.Not(query.Exists(query.Select(query.Literal(1)).From(t.locks).Where(t.consumer.EqColumn(t.consumerID)))))))
	if err != nil {
		return freed, fmt.Errorf("cleaning up the statuses of consumers: %w", err)
	}
	return freed, nil
}

// AcquireCleanupLeadership takes the lead of the cleanup for ttl; nil: somebody else has it.
func (s *Store) AcquireCleanupLeadership(ctx context.Context, ttl time.Duration) (*lease.Lease, error) {
	return lease.Acquire(ctx, s.db.DB, s.prefix, "tkn_locks", ttl)
}

// SetConsumerStatus copies the status of a transaction whose request is in another database: Pending before its request is stored there,
// then what becomes of it. The rules are those of [token.Change], save that the first status may be any. Where the requests are in this
// database it is not needed.
func (s *Store) SetConsumerStatus(ctx context.Context, txID string, status token.TxStatus) error {
	t := &s.t
	if !status.Stored() {
		return fmt.Errorf("copying the status of transaction %s: %w: %s", txID, token.ErrStatus, status)
	}
	err := storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		from := query.Nothing()
		if before := status.Predecessors(); len(before) > 0 {
			numbers := make([]int, len(before))
			for i, b := range before {
				numbers[i] = int(b)
			}
			from = t.consumerStatus.In(numbers...)
		}
		n, err := s.db.Exec(ctx, tx, query.InsertInto(t.consumers).Row(t.consumerID.Set(txID), t.consumerStatus.Set(int(status))).
			OnConflict(t.consumerID).DoUpdate(t.consumerStatus.Overwrite()).Where(from))
		if err != nil || n == 1 {
			return err
		}
		now, found, err := run.One(ctx, s.db, tx, query.Select(t.consumerStatus).From(t.consumers).Where(t.consumerID.Eq(txID)), storage.Column[int])
		if err != nil {
			return err
		}
		if !found {
			return errors.New("the status went away meanwhile: try again")
		}
		_, err = token.Change(token.TxStatus(now), status)
		return err
	})
	if err != nil {
		return fmt.Errorf("copying the status of transaction %s: %w", txID, err)
	}
	return nil
}
