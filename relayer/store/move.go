package store

import (
	"context"
	"fmt"
	"slices"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// Owner names a row that the caller claimed, and the epoch it claimed it with.
type Owner struct {
	Kind  Kind
	ID    int64
	Epoch int64
}

// Cause is why a request ended without a result. Code is for programs and Reason for people.
type Cause struct{ Code, Reason string }

// set is a column and its new value.
type set struct {
	column string
	value  any
}

// move is the one statement that takes a row along an edge: it compares the state the row comes from and, on a fenced edge, its owner,
// and returns whether it moved. Guard is a further condition without parameters.
func (s *Store) move(ctx context.Context, x execer, o Owner, from, to State, guard string, sets ...set) (bool, error) {
	edge := findEdge(o.Kind, from, to)
	now := s.now()
	query := fmt.Sprintf("UPDATE %s SET req_status = '%s', state_since = $1, updated_at = $2", table(o.Kind), to)
	args := []any{now, now}
	for _, c := range sets {
		args = append(args, c.value)
		query += fmt.Sprintf(", %s = $%d", c.column, len(args))
	}
	args = append(args, o.ID)
	query += fmt.Sprintf(" WHERE id = $%d AND req_status = '%s'", len(args), from)
	if edge.Fenced {
		args = append(args, o.Epoch, o.Epoch)
		query += fmt.Sprintf(" AND owner_epoch = $%d AND $%d = %s", len(args)-1, len(args), newestEpoch)
	}
	if guard != "" {
		query += " AND " + guard
	}
	n, err := exec(ctx, x, query, args...)
	if err != nil {
		return false, fmt.Errorf("moving a request of %s from %s to %s: %w", o.Kind, from, to, err)
	}
	return n == 1, nil
}

// Ready moves a claimed row from queued to processing. Like every move it returns false, having changed nothing, when the row is no longer
// in that state or no longer the caller's: then somebody else goes on with it.
func (s *Store) Ready(ctx context.Context, o Owner) (bool, error) {
	return s.move(ctx, s.db.Write(), o, fhevm.StateQueued, fhevm.StateProcessing, "")
}

// NotReady moves a claimed row from queued to timed_out.
func (s *Store) NotReady(ctx context.Context, o Owner, c Cause) (bool, error) {
	return s.move(ctx, s.db.Write(), o, fhevm.StateQueued, fhevm.StateTimedOut, "", set{"err_code", c.Code}, set{"err_reason", c.Reason})
}

// Fail moves a row to failure, from any state but a final one. Before the receipt the row must be claimed, and from tx_in_flight on none of
// its attempts may be pending: one could still be mined. See [Store.Mined] and [Store.NonceLost].
func (s *Store) Fail(ctx context.Context, o Owner, from State, c Cause) (bool, error) {
	guard := ""
	if from == fhevm.StateTxInFlight || from == fhevm.StateReceiptReceived {
		guard = noPending(o.Kind)
	}
	return s.move(ctx, s.db.Write(), o, from, fhevm.StateFailure, guard, set{"err_code", c.Code}, set{"err_reason", c.Reason})
}

func noPending(k Kind) string {
	return fmt.Sprintf("NOT EXISTS (SELECT 1 FROM tx_attempt WHERE req_kind = '%s' AND req_id = %s.id AND outcome = 'pending')", k, table(k))
}

// active is the predicate of the indexes over rows that the dispatcher works on.
const active = "req_status IN ('queued', 'processing', 'tx_in_flight')"

// bySweep is a table to be read by epoch. SQLite keeps no statistics by itself and would take the index by state, and sort all that are live.
func (s *Store) bySweep(table string) string {
	if s.postgres() {
		return table
	}
	return table + " INDEXED BY " + table + "_sweep"
}

// Claim makes the caller, whose epoch must be the newest, the owner of up to limit rows that belong to an earlier epoch or to nobody and that
// are queued, processing or tx_in_flight, and returns them oldest first. It changes nothing else. Unclaimed rows come before those of earlier
// dispatchers; nothing is left over when it returns fewer than limit.
func (s *Store) Claim(ctx context.Context, k Kind, epoch int64, limit int) ([]Job, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	t := table(k)
	pick := "SELECT id FROM " + s.bySweep(t) + " WHERE owner_epoch < $2 AND $3 = " + newestEpoch + " AND " + active + " ORDER BY owner_epoch, id LIMIT $4"
	query := "UPDATE " + t + " SET owner_epoch = $1 WHERE id IN (" + pick + ") RETURNING " + columns(k)
	if s.postgres() {
		// Materialised, so that the rows are picked and locked once.
		query = "WITH picked AS MATERIALIZED (" + pick + " FOR UPDATE SKIP LOCKED) UPDATE " + t +
			" SET owner_epoch = $1 WHERE id = ANY (ARRAY(SELECT id FROM picked)) RETURNING " + columns(k)
	}
	return s.returning(ctx, "claiming requests of "+string(k), k, query, epoch, epoch, epoch, limit)
}

// Owned returns up to limit rows of an epoch that are queued, processing or tx_in_flight, oldest first, of those with an id above after. The
// dispatcher compares them with what its workers hold: a row that none of them does is to be taken up again.
func (s *Store) Owned(ctx context.Context, k Kind, epoch, after int64, limit int) ([]Job, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return storage.Collect(storage.Query(ctx, s.db.Read(), scanJob(k), "SELECT "+columns(k)+" FROM "+s.bySweep(table(k))+
		" WHERE "+active+" AND owner_epoch = $1 AND id > $2 ORDER BY id LIMIT $3", epoch, after, limit))
}

// oldestFirst sorts what RETURNING gives in any order.
func oldestFirst(jobs []Job) {
	slices.SortFunc(jobs, func(a, b Job) int { return int(a.ID - b.ID) })
}
