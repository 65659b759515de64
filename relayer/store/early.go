package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"dongate/storage"
)

// EarlyEvent is an event that waits for its request to know its reference id.
type EarlyEvent struct {
	ID        int64
	Kind      Kind
	Reference Hash
	Event
}

const earlyColumns = "e.id, e.req_kind, e.gw_reference_id, e.block_hash, e.log_index, e.event"

func scanEarly(rows *sql.Rows) (e EarlyEvent, err error) {
	var ref, block []byte
	if err = rows.Scan(&e.ID, &e.Kind, &ref, &block, &e.LogIndex, &e.Data); err == nil {
		e.Reference, e.BlockHash = Hash(ref), Hash(block)
	}
	return e, err
}

func (s *Store) earlyOf(ctx context.Context, q storage.Querier, k Kind, ref Hash) ([]EarlyEvent, error) {
	return storage.Collect(storage.Query(ctx, q, scanEarly, "SELECT "+earlyColumns+
		" FROM early_event e WHERE e.req_kind = $1 AND e.gw_reference_id = $2 ORDER BY e.id", string(k), ref[:]))
}

// keepEarly stores an event once and makes room for it: ids grow by at least one with each, so that those within the bound of the newest are at
// most that many. It returns how many had to go.
func (s *Store) keepEarly(ctx context.Context, tx *sql.Tx, k Kind, ref Hash, e Event) (dropped int64, err error) {
	if err := storage.CheckPayload("the event", e.Data); err != nil {
		return 0, err
	}
	data := e.Data
	if data == nil {
		data = []byte{} // not NULL
	}
	var known bool
	err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM early_event WHERE block_hash = $1 AND log_index = $2)", e.BlockHash[:], e.LogIndex).Scan(&known)
	if err != nil || known {
		return 0, err
	}
	n, err := exec(ctx, tx, "INSERT INTO early_event (req_kind, gw_reference_id, block_hash, log_index, event, created_at) VALUES ($1, $2, $3, $4, $5, $6) "+
		"ON CONFLICT (block_hash, log_index) DO NOTHING", string(k), ref[:], e.BlockHash[:], e.LogIndex, data, s.now())
	if err != nil || n == 0 {
		return 0, err
	}
	return exec(ctx, tx, "DELETE FROM early_event WHERE id <= (SELECT MAX(id) FROM early_event) - $1", s.maxEarly)
}

// EarlyDropped is how many early events this Store has dropped because there were too many.
func (s *Store) EarlyDropped() uint64 { return s.dropped.Load() }

// EarlyMatched returns up to limit early events of a kind whose request knows its reference id: what a process that died between a receipt and its
// events left behind.
func (s *Store) EarlyMatched(ctx context.Context, k Kind, limit int) ([]EarlyEvent, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return storage.Collect(storage.Query(ctx, s.db.Read(), scanEarly, fmt.Sprintf("SELECT %s FROM early_event e WHERE e.req_kind = $1 AND EXISTS "+
		"(SELECT 1 FROM %s r WHERE r.gw_reference_id = e.gw_reference_id) ORDER BY e.id LIMIT $2", earlyColumns, table(k)), string(k), limit))
}

// DropEarly removes an early event that has been applied. One that is gone already is no error.
func (s *Store) DropEarly(ctx context.Context, id int64) error {
	_, err := s.db.Write().ExecContext(ctx, "DELETE FROM early_event WHERE id = $1", id)
	return err
}

// ExpireEarly removes those of the oldest limit early events that came before a time, and returns how many.
func (s *Store) ExpireEarly(ctx context.Context, before time.Time, limit int) (int64, error) {
	if err := storage.CheckPage(limit); err != nil {
		return 0, err
	}
	return exec(ctx, s.db.Write(), "DELETE FROM early_event WHERE id IN (SELECT id FROM (SELECT id, created_at FROM early_event ORDER BY id LIMIT $1) AS oldest "+
		"WHERE created_at < $2)", limit, storage.NewTime(before))
}

// DropBlock removes the shares and early events of a block that a re-organisation took away, and forgets it. Requests that they completed stay
// completed, and keep their shares.
func (s *Store) DropBlock(ctx context.Context, block Hash) error {
	return s.inTx(ctx, "dropping a block", func(ctx context.Context, tx *sql.Tx) error {
		for _, query := range []string{
			"DELETE FROM user_decrypt_share WHERE block_hash = $1 AND NOT EXISTS (SELECT 1 FROM user_decrypt_req r WHERE r.id = user_decrypt_share.req_id AND r.req_status = 'completed')",
			"DELETE FROM early_event WHERE block_hash = $1",
			"DELETE FROM gateway_chain_block WHERE block_hash = $1",
		} {
			if _, err := tx.ExecContext(ctx, query, block[:]); err != nil {
				return err
			}
		}
		return nil
	})
}
