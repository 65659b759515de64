package store

import (
	"context"
	"database/sql"
	"time"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// returning runs a statement that changes rows and returns them, in a transaction of its own.
func (s *Store) returning(ctx context.Context, doing string, k Kind, query string, args ...any) (jobs []Job, err error) {
	err = s.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) (err error) {
		jobs, err = storage.Collect(storage.Query(ctx, tx, scanJob(k), query, args...))
		return err
	})
	oldestFirst(jobs)
	return jobs, err
}

// skipLocked is what a SELECT of rows to be changed ends with.
func (s *Store) skipLocked() string {
	if s.postgres() {
		return " FOR UPDATE SKIP LOCKED"
	}
	return "" // the transaction has the write lock
}

// TimeOut moves up to limit rows that have been in receipt_received since before a time to timed_out, and returns them. Rows that another
// transaction is completing are passed over.
func (s *Store) TimeOut(ctx context.Context, k Kind, before time.Time, limit int, c Cause) ([]Job, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	findEdge(k, fhevm.StateReceiptReceived, fhevm.StateTimedOut)
	t, now := table(k), s.now()
	pick := "SELECT id FROM " + t + " WHERE req_status = 'receipt_received' AND state_since < $5 ORDER BY state_since, id LIMIT $6" + s.skipLocked()
	query := "WITH picked AS MATERIALIZED (" + pick + ") UPDATE " + t + " SET req_status = 'timed_out', state_since = $1, updated_at = $2, " +
		"err_code = $3, err_reason = $4 WHERE id IN (SELECT id FROM picked) RETURNING " + columns(k)
	return s.returning(ctx, "timing out requests of "+string(k), k, query, now, now, c.Code, c.Reason, storage.NewTime(before), limit)
}

// Expire deletes up to limit final rows that have been final since before a time, with their attempts and shares, and returns how many.
func (s *Store) Expire(ctx context.Context, k Kind, before time.Time, limit int) (n int, err error) {
	if err := storage.CheckPage(limit); err != nil {
		return 0, err
	}
	err = s.inTx(ctx, "expiring requests of "+string(k), func(ctx context.Context, tx *sql.Tx) error {
		jobs, err := s.jobs(ctx, tx, k, "req_status IN ('completed', 'timed_out', 'failure') AND state_since < $1 ORDER BY state_since, id LIMIT $2"+
			s.skipLocked(), storage.NewTime(before), limit)
		if err != nil {
			return err
		}
		n = len(jobs)
		for _, j := range jobs {
			if _, err := tx.ExecContext(ctx, "DELETE FROM tx_attempt WHERE req_kind = $1 AND req_id = $2", string(k), j.ID); err != nil {
				return err
			}
			if k == fhevm.KindUserDecrypt {
				if _, err := tx.ExecContext(ctx, "DELETE FROM user_decrypt_share WHERE req_id = $1", j.ID); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table(k)+" WHERE id = $1", j.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// StateCount is how many requests of a kind are in a state.
type StateCount struct {
	State State
	Count int64
}

// Counts returns the states that requests of a kind are in. It reads the whole table and is for the start of a process.
func (s *Store) Counts(ctx context.Context, k Kind) ([]StateCount, error) {
	return storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (c StateCount, err error) {
		err = rows.Scan(&c.State, &c.Count)
		return c, err
	}, "SELECT req_status, COUNT(*) FROM "+table(k)+" GROUP BY req_status ORDER BY req_status"))
}
