// Package run runs the statements that package query builds.
package run

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"sync"

	"dongate/storage"
	"dongate/storage/query"
)

// maxPrepared bounds the statements kept; those beyond run unprepared. A store has some dozens.
const maxPrepared = 128

// DB runs statements on a database and keeps those that are prepared. It is safe for concurrent use.
type DB struct {
	*storage.DB
	in query.Interpreter

	mu       sync.Mutex // guards prepared
	prepared map[string]*sql.Stmt
	closed   bool
}

// New returns a DB without statements. Close it before the database.
func New(db *storage.DB) *DB {
	return &DB{DB: db, in: query.For(db.Backend()), prepared: map[string]*sql.Stmt{}}
}

// Close closes the prepared statements, not the database. Reads go on unprepared. It may be called more than once.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.prepared {
		errs = append(errs, s.Close())
	}
	clear(d.prepared)
	d.closed = true
	return errors.Join(errs...)
}

// Execer is a transaction, or the writing side for a statement of its own.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec returns how many rows the statement changed. The error is classified.
func (d *DB) Exec(ctx context.Context, x Execer, s query.Statement) (int64, error) {
	text, args, err := s.Format(d.in)
	if err != nil {
		return 0, err
	}
	r, err := x.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, storage.Classify(err)
	}
	return r.RowsAffected()
}

// Query yields what scan makes of the statement's rows, see [storage.Query]. Errors are classified.
func Query[T any](ctx context.Context, d *DB, q storage.Querier, s query.Statement, scan func(*sql.Rows) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		text, args, err := s.Format(d.in)
		if err != nil {
			yield(*new(T), err)
			return
		}
		for v, err := range storage.Query(ctx, q, scan, text, args...) {
			if !yield(v, storage.Classify(err)) {
				return
			}
		}
	}
}

// One returns the first row, if there is one.
func One[T any](ctx context.Context, d *DB, q storage.Querier, s query.Statement, scan func(*sql.Rows) (T, error)) (T, bool, error) {
	for v, err := range Query(ctx, d, q, s, scan) {
		return v, err == nil, err
	}
	return *new(T), false, nil
}

// Prepared is the read pool for statements whose text does not depend on how much is asked for: on SQLite each is prepared once.
// PostgreSQL's driver does that by itself. A statement that went stale is run once more, unprepared.
func (d *DB) Prepared() storage.Querier { return (*prepared)(d) }

type prepared DB

// QueryContext implements storage.Querier.
func (p *prepared) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	stmt, err := p.statement(ctx, text)
	if err != nil {
		return nil, err
	}
	var rows *sql.Rows
	if stmt == nil {
		rows, err = p.Read().QueryContext(ctx, text, args...)
	} else {
		rows, err = stmt.QueryContext(ctx, args...)
	}
	stale := errors.Is(storage.Classify(err), storage.ErrStalePlan)
	if err == nil || ctx.Err() != nil || !stale && !(stmt != nil && p.gone(text, stmt)) {
		return rows, err
	}
	p.evict(text, stmt)
	return p.Read().QueryContext(ctx, text, args...)
}

// statement returns the prepared statement, or nil where the text is to be run as it is.
func (p *prepared) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if p.Backend() != storage.SQLite {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.prepared[text]; ok || p.closed || len(p.prepared) >= maxPrepared {
		return s, nil
	}
	s, err := p.Read().PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("preparing a statement: %w", err)
	}
	p.prepared[text] = s
	return s, nil
}

// gone tells whether somebody took the statement away while it was about to be used: Close, or another whose statement was stale too.
func (p *prepared) gone(text string, s *sql.Stmt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prepared[text] != s
}

func (p *prepared) evict(text string, s *sql.Stmt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != nil && p.prepared[text] == s {
		delete(p.prepared, text)
		_ = s.Close()
	}
}
