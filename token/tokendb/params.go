package tokendb

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// PPHash returns the key of public parameters: the SHA-256 of their bytes.
func PPHash(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	return sum[:]
}

// StorePublicParams stores public parameters. Those that are stored already stay where they are in the order.
func (s *Store) StorePublicParams(ctx context.Context, raw []byte) error {
	err := s.InTx(ctx, func(ctx context.Context, tx *Tx) error { return tx.StorePublicParams(ctx, raw) })
	return err
}

// StorePublicParams is [Store.StorePublicParams] in this transaction.
func (x *Tx) StorePublicParams(ctx context.Context, raw []byte) error {
	t := &x.s.t
	if len(raw) == 0 {
		return fmt.Errorf("storing public parameters: %w", token.ErrEmptyArgument)
	}
	if err := storage.CheckPayload("public parameters", raw); err != nil {
		return err
	}
	hash := PPHash(raw)
	n, err := x.s.db.Exec(ctx, x.tx, query.InsertInto(t.params).Row(t.paramHash.Set(hash), t.paramRaw.Set(raw), t.paramStore.Set(storage.NewTime(x.s.clock()))).
		OnConflict(t.paramHash).DoNothing())
	if err == nil && n == 0 {
		_, err = x.s.params(ctx, x.tx, t.paramHash.Eq(hash))
	}
	return wrap(err, "storing public parameters")
}

// PublicParams returns the public parameters that were stored last, or nil.
func (s *Store) PublicParams(ctx context.Context) ([]byte, error) {
	raw, err := s.params(ctx, s.db.Prepared(), query.Cond{})
	return raw, wrap(err, "reading public parameters")
}

// PublicParamsByHash returns the public parameters with this hash, or nil.
func (s *Store) PublicParamsByHash(ctx context.Context, hash []byte) ([]byte, error) {
	if len(hash) == 0 {
		return nil, fmt.Errorf("reading public parameters: %w", token.ErrEmptyArgument)
	}
	raw, err := s.params(ctx, s.db.Prepared(), s.t.paramHash.Eq(hash))
	return raw, wrap(err, "reading public parameters")
}

// params returns the newest that fit, after it made sure that they are what their key says.
func (s *Store) params(ctx context.Context, q storage.Querier, which query.Cond) ([]byte, error) {
	type row struct{ hash, raw []byte }
	r, ok, err := run.One(ctx, s.db, q, query.Select(s.t.paramHash, s.t.paramRaw).From(s.t.params).Where(which).OrderBy(s.t.paramSeq.Desc()).Limit(1),
		func(rows *sql.Rows) (r row, err error) {
			err = rows.Scan(&r.hash, &r.raw)
			return r, err
		})
	switch {
	case err != nil || !ok:
		return nil, err
	case !bytes.Equal(r.hash, PPHash(r.raw)):
		return nil, fmt.Errorf("public parameters %x: %w", r.hash, token.ErrIntegrity)
	}
	return r.raw, nil
}

// PublicParamsHashes returns the keys of all public parameters, those that were stored last first.
func (s *Store) PublicParamsHashes(ctx context.Context) ([][]byte, error) {
	return storage.Collect(list(ctx, s, "listing public parameters", s.db.Prepared(),
		query.Select(s.t.paramHash).From(s.t.params).OrderBy(s.t.paramSeq.Desc()), storage.Column[[]byte]))
}
