package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dongate/storage"
)

//go:embed migrations
var migrations embed.FS

// Domain is the tables of the relayer.
var Domain = storage.Domain{Name: "relayer", FS: migrations, Dir: "migrations"}

// Errors of the operations, for errors.Is.
var (
	// ErrNotFound: there is no such request.
	ErrNotFound = errors.New("relayer store: no such request")
	// ErrNonce: another request holds this nonce, or this request still holds one that may yet be mined or has been.
	ErrNonce = errors.New("relayer store: this nonce cannot be taken")
	// ErrThreshold: a threshold must be above zero.
	ErrThreshold = errors.New("relayer store: the threshold is not above zero")
)

// DefaultMaxEarlyEvents bounds the events kept for requests that do not know their reference id yet: the responses to other relayers'
// requests arrive here too.
const DefaultMaxEarlyEvents = 1_000_000

// MaxCount is where counting the rows of a queue ends: what a client is told does not change beyond.
const MaxCount = 20_000

// Options are what a Store may be told; the zero value will do.
type Options struct {
	Now            func() time.Time // nil: time.Now
	MaxEarlyEvents int64            // rows; 0: DefaultMaxEarlyEvents
}

// Store is the relayer's tables. It is safe for concurrent use.
type Store struct {
	db       *storage.DB
	clock    func() time.Time
	maxEarly int64
	dropped  atomic.Uint64 // early events
	inserts  sync.Map      // SQLite: by kind the prepared statement
}

// New returns the tables of a database that has been migrated, see [Domain].
func New(db *storage.DB, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxEarlyEvents <= 0 {
		o.MaxEarlyEvents = DefaultMaxEarlyEvents
	}
	return &Store{db: db, clock: o.Now, maxEarly: o.MaxEarlyEvents}
}

func (s *Store) now() storage.Time { return storage.NewTime(s.clock()) }

func (s *Store) postgres() bool { return s.db.Backend() == storage.Postgres }

// inTx runs fn in a transaction, see [storage.RunInTx].
func (s *Store) inTx(ctx context.Context, doing string, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := storage.RunInTx(ctx, s.db.Write(), fn); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// execer is a transaction, or the writing side for a statement of its own.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec returns how many rows the statement changed.
func exec(ctx context.Context, x execer, query string, args ...any) (int64, error) {
	r, err := x.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

const newestEpoch = "(SELECT last_value FROM dispatcher_epoch_seq)"

// NextEpoch returns an epoch above every one before, for who has just become the dispatcher. From then on the writes of the one before
// are refused, also on rows that the new one has not claimed yet.
func (s *Store) NextEpoch(ctx context.Context) (epoch int64, err error) {
	query := "UPDATE dispatcher_epoch_seq SET last_value = last_value + 1 RETURNING last_value"
	if s.postgres() {
		query = "SELECT nextval('dispatcher_epoch_seq')"
	}
	err = s.inTx(ctx, "minting an epoch", func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, query).Scan(&epoch)
	})
	return epoch, err
}
