package records

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// Claims says which pending transactions to claim, and for whom.
type Claims struct {
	Owner     string        // who claims; not empty
	OlderThan time.Duration // only those stored that long ago
	Lease     time.Duration // how long nobody else can claim them; above zero
	Limit     int           // at most; 1 to storage.MaxPage
	// After continues behind this transaction of an earlier call; only its StoredAt and TxID count. nil: from the oldest.
	After *token.PendingTransaction
}

// ClaimPendingTransactions claims pending transactions for somebody who will find out how they ended: the oldest of those that nobody else
// claims, in their order. On both backends no transaction is claimed by two at once; who claims again has those of its own again. A claim
// ends with its lease by the database's clock, with [Store.ReleaseRecoveryClaim], and with the transaction.
func (s *Store) ClaimPendingTransactions(ctx context.Context, c Claims) ([]token.PendingTransaction, error) {
	pending, err := s.claim(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("claiming pending transactions: %w", err)
	}
	return pending, nil
}

func (s *Store) claim(ctx context.Context, c Claims) (pending []token.PendingTransaction, err error) {
	t := &s.t
	switch {
	case c.Owner == "":
		return nil, fmt.Errorf("owner: %w", token.ErrEmptyArgument)
	case c.Lease <= 0:
		return nil, fmt.Errorf("lease: %w", token.ErrEmptyArgument)
	}
	if err := storage.CheckPage(c.Limit); err != nil {
		return nil, err
	}
	find := t.pending(c)
	scan := func(rows *sql.Rows) (p token.PendingTransaction, err error) {
		var at, now storage.Time
		err = rows.Scan(&p.TxID, &at, &p.Attempts, &now)
		p.StoredAt, p.Age, p.Attempts = at.Time, now.Sub(at.Time), p.Attempts+1
		return p, err
	}
	err = storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		pending, err = storage.Collect(run.Query(ctx, s.db, tx, find, scan))
		if err != nil {
			return err
		}
		for part := range storage.Chunks(pending, 1) {
			ids := make([]string, len(part))
			for i, p := range part {
				ids[i] = p.TxID
			}
			if _, err := s.db.Exec(ctx, tx, query.Update(t.requests.Table).Set(t.claimedBy.Set(c.Owner), t.claimExpires.SetNow(c.Lease), t.attempts.Increment(1)).
				Where(t.requests.TxID.In(ids...))); err != nil {
				return err
			}
		}
		return nil
	})
	return pending, err
}

// pending reads what can be claimed. It stays locked on PostgreSQL, and is written in the same transaction: a sub-select in the UPDATE
// could be run more than once and so exceed the limit.
func (t *tables) pending(c Claims) query.Statement {
	which := []query.Cond{query.EqLiteral(t.requests.Status, token.Pending), query.OlderThan(t.storedAt, c.OlderThan),
		query.Or(t.claimedBy.IsNull(), query.InPast(t.claimExpires), t.claimedBy.Eq(c.Owner))}
	if c.After != nil {
		at := storage.NewTime(c.After.StoredAt)
		which = append(which, t.storedAt.Ge(at), query.Or(t.storedAt.Gt(at), t.requests.TxID.Gt(c.After.TxID)))
	}
	return query.Select(t.requests.TxID, t.storedAt, t.attempts, query.Now()).From(t.requests.Table).Where(query.And(which...)).
		OrderBy(t.storedAt.Asc(), t.requests.TxID.Asc()).Limit(c.Limit).ForUpdateSkipLocked()
}

// ReleaseRecoveryClaim ends a claim, if it is the owner's; a message that is not empty becomes what is said about the transaction.
func (s *Store) ReleaseRecoveryClaim(ctx context.Context, txID, owner, message string) error {
	t := &s.t
	change := t.unclaimed()
	if message != "" {
		change = append(change, t.requests.Message.Set(message))
	}
	if _, err := s.db.Exec(ctx, s.db.Write(), query.Update(t.requests.Table).Set(change...).
		Where(query.And(t.requests.TxID.Eq(txID), t.claimedBy.Eq(owner)))); err != nil {
		return fmt.Errorf("releasing the claim of transaction %.200q: %w", txID, err)
	}
	return nil
}

// DeleteFinished removes transactions that have ended, with everything of theirs, of those stored at least so long ago at most limit, which
// is 1 to storage.MaxPage. It returns how many there were: fewer than limit means that none are left.
func (s *Store) DeleteFinished(ctx context.Context, olderThan time.Duration, limit int) (deleted int, err error) {
	t := &s.t
	if err := storage.CheckPage(limit); err != nil {
		return 0, fmt.Errorf("deleting transactions that have ended: %w", err)
	}
	find := query.Select(t.requests.TxID).From(t.requests.Table).
		Where(query.And(query.InLiteral(t.requests.Status, token.Confirmed, token.Deleted, token.Orphan), query.OlderThan(t.storedAt, olderThan))).
		OrderBy(t.storedAt.Asc(), t.requests.TxID.Asc()).Limit(limit).ForUpdateSkipLocked()
	err = storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		ids, err := storage.Collect(run.Query(ctx, s.db, tx, find, storage.Column[string]))
		if err != nil {
			return err
		}
		deleted = len(ids)
		for part := range storage.Chunks(ids, 1) {
			if _, err := s.db.Exec(ctx, tx, query.DeleteFrom(t.ends).Where(t.endTxID.In(part...))); err != nil {
				return err
			}
			if _, err := s.db.Exec(ctx, tx, query.DeleteFrom(t.requests.Table).Where(t.requests.TxID.In(part...))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("deleting transactions that have ended: %w", err)
	}
	return deleted, nil
}
