package store

import (
	"context"
	"database/sql"
	"fmt"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// RememberBlocks notes blocks of which something is about to be stored. It may be said again.
func (s *Store) RememberBlocks(ctx context.Context, blocks []Block) error {
	return s.inTx(ctx, "remembering blocks", func(ctx context.Context, tx *sql.Tx) error {
		for _, b := range blocks {
			_, err := tx.ExecContext(ctx, "INSERT INTO gateway_chain_block (block_hash, block_number) VALUES ($1, $2) ON CONFLICT (block_hash) DO NOTHING", b.Hash[:], b.Number)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// RememberedBlocks returns up to limit of the remembered blocks with a number of at most to, the highest first.
func (s *Store) RememberedBlocks(ctx context.Context, to int64, limit int) ([]Block, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (b Block, err error) {
		var hash []byte
		if err = rows.Scan(&b.Number, &hash); err == nil {
			b.Hash = Hash(hash)
		}
		return b, err
	}, "SELECT block_number, block_hash FROM gateway_chain_block WHERE block_number <= $1 ORDER BY block_number DESC, block_hash LIMIT $2", to, limit))
}

// ForgetBlocks forgets the remembered blocks below a number: no re-organisation is expected to reach them.
func (s *Store) ForgetBlocks(ctx context.Context, below int64) error {
	_, err := s.db.Write().ExecContext(ctx, "DELETE FROM gateway_chain_block WHERE block_number < $1", below)
	return err
}

// MinedSince returns up to limit attempts that were noted as mined, successfully or reverted, in blocks from a number on, in the order of their rows, of
// those with an id above after.
func (s *Store) MinedSince(ctx context.Context, from, after int64, limit int) ([]Attempt, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return s.attempts(ctx, s.db.Read(), "block_number >= $1 AND id > $2 ORDER BY id LIMIT $3", from, after, limit)
}

// Adrift returns up to limit pending attempts whose request is past tx_in_flight, oldest first, of those with an id above after: a
// re-organisation took their block, and they have to be sent again until they are mined, for their request or at least for their nonce.
func (s *Store) Adrift(ctx context.Context, after int64, limit int) ([]Attempt, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	where := "outcome = 'pending' AND id > $1"
	for _, k := range fhevm.Kinds {
		where += fmt.Sprintf(" AND NOT (req_kind = '%s' AND EXISTS (SELECT 1 FROM %s r WHERE r.id = tx_attempt.req_id AND r.req_status = 'tx_in_flight'))", k, table(k))
	}
	return s.attempts(ctx, s.db.Read(), where+" ORDER BY id LIMIT $2", after, limit)
}

// PendingNonces returns the nonces of a signer that are held by pending attempts, lowest first, up to limit.
func (s *Store) PendingNonces(ctx context.Context, signer [20]byte, limit int) ([]int64, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (n int64, err error) {
		err = rows.Scan(&n)
		return n, err
	}, "SELECT DISTINCT nonce FROM tx_attempt WHERE outcome = 'pending' AND signer = $1 ORDER BY nonce LIMIT $2", signer[:], limit))
}

// NonceStored tells whether any attempt of a signer has a nonce.
func (s *Store) NonceStored(ctx context.Context, signer [20]byte, nonce int64) (stored bool, err error) {
	err = s.db.Read().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tx_attempt WHERE signer = $1 AND nonce = $2 AND replaces IS NULL)", signer[:], nonce).Scan(&stored)
	return stored, err
}

// SetPaused stops the dispatcher from sending first transactions, or lets it go on. It lasts until it is changed.
func (s *Store) SetPaused(ctx context.Context, paused bool) error {
	query, args := "DELETE FROM dispatcher_pause", []any{}
	if paused {
		query, args = "INSERT INTO dispatcher_pause (id, paused_at) VALUES (1, $1) ON CONFLICT (id) DO NOTHING", []any{s.now()}
	}
	_, err := s.db.Write().ExecContext(ctx, query, args...)
	return err
}

// Paused tells what [Store.SetPaused] said last.
func (s *Store) Paused(ctx context.Context) (paused bool, err error) {
	err = s.db.Read().QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM dispatcher_pause)").Scan(&paused)
	return paused, err
}
