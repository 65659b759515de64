package store

import (
	"context"
	"database/sql"

	"dongate/storage"
)

// Cursor returns the last block of which everything has been handled, or ErrNotFound where none ever was.
func (s *Store) Cursor(ctx context.Context) (Block, error) {
	blocks, err := storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (b Block, err error) {
		var hash []byte
		if err = rows.Scan(&b.Number, &hash); err == nil {
			b.Hash = Hash(hash)
		}
		return b, err
	}, "SELECT last_block_number, last_block_hash FROM gateway_chain_cursor"))
	if err == nil && len(blocks) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Block{}, err
	}
	return blocks[0], nil
}

// StartCursor sets the cursor where there is none, and returns false, having changed nothing, where there is one or the epoch is not the newest.
func (s *Store) StartCursor(ctx context.Context, epoch int64, at Block) (bool, error) {
	now := s.now()
	query := "INSERT INTO gateway_chain_cursor (id, last_block_number, last_block_hash, owner_epoch, created_at, updated_at) SELECT 1, $1, $2, $3, $4, $5 WHERE $6 = " +
		newestEpoch + " ON CONFLICT (id) DO NOTHING"
	if s.postgres() { // which does not take the types of a SELECT's parameters from the table
		query = "INSERT INTO gateway_chain_cursor (last_block_number, last_block_hash, owner_epoch, created_at, updated_at) " +
			"SELECT $1::bigint, $2::bytea, $3::bigint, $4::timestamptz, $5::timestamptz WHERE $6 = " + newestEpoch + " ON CONFLICT (id) DO NOTHING"
	}
	n, err := exec(ctx, s.db.Write(), query, at.Number, at.Hash[:], epoch, now, now, epoch)
	return n == 1, err
}

// MoveCursor moves the cursor from one block to another: ahead once everything up to it has been handled, back after a re-organisation. It returns
// false, having changed nothing, where the cursor is not at from or the epoch is not the newest.
func (s *Store) MoveCursor(ctx context.Context, epoch int64, from, to Block) (bool, error) {
	n, err := exec(ctx, s.db.Write(), "UPDATE gateway_chain_cursor SET last_block_number = $1, last_block_hash = $2, owner_epoch = $3, updated_at = $4 "+
		"WHERE last_block_number = $5 AND last_block_hash = $6 AND $7 = "+newestEpoch,
		to.Number, to.Hash[:], epoch, s.now(), from.Number, from.Hash[:], epoch)
	return n == 1, err
}
