package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dongate/relayer/fhevm"
)

// Queue is the rows of a kind that wait, by their ids in ascending order, up to [MaxCount] in each state.
type Queue struct{ Queued, Processing, TxInFlight []int64 }

// In returns the ids in a state; ok is false where rows do not wait in it.
func (q *Queue) In(state State) (ids []int64, ok bool) {
	switch state {
	case fhevm.StateQueued:
		return q.Queued, true
	case fhevm.StateProcessing:
		return q.Processing, true
	case fhevm.StateTxInFlight:
		return q.TxInFlight, true
	}
	return nil, false
}

// isState is the condition that a row is in a state, which the statement has as value. SQLite takes an index over some of the states only where the
// condition repeats which.
func isState(state State, value string) string {
	if _, waits := new(Queue).In(state); waits {
		return "req_status = " + value + " AND " + active
	}
	return "req_status = " + value
}

// Queue returns the rows of a kind that wait, as of one moment. What it costs grows with them, to some milliseconds, so that many callers should
// share one answer; it does not depend on the rows in other states.
func (s *Store) Queue(ctx context.Context, k Kind) (q Queue, err error) {
	// A list as one text is several times cheaper than a row for each.
	list := "(SELECT group_concat(id, ' ') FROM (%s) AS ids)"
	if s.postgres() {
		list = "(SELECT string_agg(id::text, ' ') FROM (%s) AS ids)"
	}
	states := []struct {
		state State
		ids   *[]int64
		text  *string
	}{{fhevm.StateQueued, &q.Queued, nil}, {fhevm.StateProcessing, &q.Processing, nil}, {fhevm.StateTxInFlight, &q.TxInFlight, nil}}
	var columns []string
	var texts []any
	for i := range states {
		members := fmt.Sprintf("SELECT id FROM %s WHERE %s ORDER BY id LIMIT %d", table(k), isState(states[i].state, "'"+string(states[i].state)+"'"), MaxCount)
		columns, texts = append(columns, fmt.Sprintf(list, members)), append(texts, &states[i].text)
	}
	if err := s.db.Read().QueryRowContext(ctx, "SELECT "+strings.Join(columns, ", ")).Scan(texts...); err != nil {
		return Queue{}, fmt.Errorf("reading the queue of %s: %w", k, err)
	}
	for _, l := range states {
		if l.text == nil {
			continue
		}
		if *l.ids, err = idsOf(*l.text); err != nil {
			return Queue{}, fmt.Errorf("reading the queue of %s: %w", k, err)
		}
	}
	return q, nil
}

func idsOf(text string) ([]int64, error) {
	ids := make([]int64, 0, strings.Count(text, " ")+1)
	for word := range strings.SplitSeq(text, " ") {
		id, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids) // neither backend promises an order within the text, though both keep it
	return ids, nil
}

// Between returns how many rows of a kind are in a state and have an id above after and below before, up to limit.
func (s *Store) Between(ctx context.Context, k Kind, state State, after, before int64, limit int) (n int, err error) {
	query := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s WHERE %s AND id > $2 AND id < $3 LIMIT $4) AS members", table(k), isState(state, "$1"))
	if err := s.db.Read().QueryRowContext(ctx, query, string(state), after, before, limit).Scan(&n); err != nil {
		return 0, fmt.Errorf("counting requests of %s: %w", k, err)
	}
	return n, nil
}
