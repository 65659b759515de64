package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// WriteDB is the side of a [DB] that changes rows. It is safe for concurrent use. On SQLite it is one connection: while a transaction or
// a Conn is open, everything else waits, and a goroutine that asks for a second one while it holds the first waits for ever.
//
// Exec and ExecContext take one statement. On SQLite a statement that finds the database busy is tried four times in all, 10, 20 and
// 40 ms apart plus up to half of that, on top of the 5 s that each try waits; then its error is returned as it came. Begin and what runs
// inside a transaction are not retried: only the whole transaction can be, see [RunInTx]. Statements that return rows run in a transaction.
// Neither a statement nor a transaction begins when the file is no longer the one that was opened: [ErrFileReplaced].
type WriteDB interface {
	Begin() (*sql.Tx, error)
	// BeginTx refuses read-only transactions: they belong to [DB.Read].
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Exec(query string, args ...any) (sql.Result, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	// PrepareContext prepares a statement for use in transactions, through [sql.Tx.StmtContext], where on SQLite it is not prepared
	// again. The caller closes it. Executed by itself it is not retried.
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	Conn(ctx context.Context) (*sql.Conn, error)
	Close() error
}

var errReadOnlyTx = errors.New("storage: a read-only transaction belongs to the reading side")

// The retry of a single statement.
const (
	busyAttempts  = 4
	busyFirstWait = 10 * time.Millisecond
)

// pgWrite is PostgreSQL's pool as a WriteDB. A server queues writers itself, so nothing is ever busy.
type pgWrite struct{ *sql.DB }

func (w pgWrite) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if opts != nil && opts.ReadOnly {
		return nil, errReadOnlyTx
	}
	return w.DB.BeginTx(ctx, opts)
}

// busyRetry is SQLite's writing connection as a WriteDB.
type busyRetry struct {
	*sql.DB
	log      *zap.Logger
	sameFile func() error // asked before every write; nil: not
}

func newBusyRetry(db *sql.DB, log *zap.Logger) *busyRetry { return &busyRetry{DB: db, log: log} }

func (w *busyRetry) check() error {
	if w.sameFile == nil {
		return nil
	}
	return w.sameFile()
}

func (w *busyRetry) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	// The driver begins it without the write lock, and a write in it could then fail half-way.
	if opts != nil && opts.ReadOnly {
		return nil, errReadOnlyTx
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	return w.DB.BeginTx(ctx, opts)
}

// Begin is BeginTx for those who need no options.
func (w *busyRetry) Begin() (*sql.Tx, error) { return w.BeginTx(context.Background(), nil) }

func (w *busyRetry) Exec(query string, args ...any) (sql.Result, error) {
	return w.ExecContext(context.Background(), query, args...)
}

func (w *busyRetry) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	var result sql.Result
	err := retryBusy(ctx, w.log, func() (err error) {
		result, err = w.DB.ExecContext(ctx, query, args...)
		return err
	})
	w.renew(err)
	return result, err
}

// renew drops the connection when err says that it can only read. SQLite decides that once, when it opens the file; a new connection
// finds a file that can be written again, or that took the place of one that was moved away.
func (w *busyRetry) renew(err error) {
	if err == nil || class(err) != ErrReadOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := w.Conn(ctx)
	if err != nil {
		return // nobody else could use it either; the next failure tries again
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close() // already closed by Raw
}

// retryBusy calls f until it does not report busy, at most busyAttempts times, and returns its last error as it came. It gives up
// between attempts when ctx ends.
func retryBusy(ctx context.Context, log *zap.Logger, f func() error) error {
	wait := busyFirstWait
	for attempt := 1; ; attempt++ {
		err := f()
		if attempt == busyAttempts || class(err) != ErrBusy {
			return err
		}
		if log != nil {
			log.Warn("the database is busy, trying again", zap.Int("attempt", attempt), zap.Error(err))
		}
		if !sleep(ctx, wait) {
			return err
		}
		wait *= 2
	}
}

// sleep waits for d plus up to half of it, so that those who failed together do not come back together. It reports false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
