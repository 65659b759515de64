package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// DB is an open database. It is safe for concurrent use.
type DB struct {
	backend Backend
	log     *zap.Logger
	read    *sql.DB
	write   WriteDB
	path    string          // SQLite's file
	server  *pgx.ConnConfig // PostgreSQL's connections, for those that are not the pool's

	changes      *sqliteChanges // of SQLite's writing connection
	notifierOnce sync.Once
	notifier     *Notifier

	file os.FileInfo // of SQLite's file, when it was opened

	closeOnce sync.Once
	closeErr  error
	cleanup   func() error // what is left to do after both sides are closed; nil: nothing
}

// Open opens the database and connects to it, so that a wrong path, a file that cannot be written and a server that does not answer
// are reported here. It creates a missing SQLite file, readable and writable by its owner alone, but no tables: see [DB.Migrate].
// A context that ends gives up the attempt and does not matter afterwards.
func Open(ctx context.Context, c Config) (*DB, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	var db *DB
	switch c.Driver {
	case DriverPostgres:
		db, err = openPostgres(ctx, c)
	case DriverMemory:
		db, err = openMemory(ctx, c)
	default:
		db, err = openSQLite(ctx, c, c.DSN, "FULL")
	}
	if err != nil {
		return nil, fmt.Errorf("storage: opening %s: %w", c.Driver, err)
	}
	return db, nil
}

// Backend returns the SQL dialect.
func (db *DB) Backend() Backend { return db.backend }

// Read returns the pool for queries. On SQLite it refuses writes, and its transactions see one snapshot each.
func (db *DB) Read() *sql.DB { return db.read }

// Write returns the side that changes rows.
func (db *DB) Write() WriteDB { return db.write }

// ErrFileReplaced: SQLite's file was removed, or another took its place. What is written goes to a file that nobody will find again.
var ErrFileReplaced = errors.New("storage: the database file was removed or replaced while it was in use: restart")

// SameFile returns ErrFileReplaced, or why it cannot tell, if SQLite's file is no longer the one that was opened. It costs about a microsecond.
func (db *DB) SameFile() error {
	if db.backend != SQLite {
		return nil
	}
	now, err := os.Stat(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(db.file, now):
		return ErrFileReplaced
	default:
		return err
	}
}

// Close closes the notifier and every connection and, with DriverMemory, removes the files. It waits for statements that run. Calls after the first
// return what the first returned.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		db.Notifier().Close() // made here where it was not, so that none is made later
		// The reading side first: SQLite tidies the log into the file when the last connection goes, which only a writer can.
		errs := []error{db.read.Close(), db.write.Close()}
		if db.cleanup != nil {
			errs = append(errs, db.cleanup())
		}
		db.closeErr = errors.Join(errs...)
	})
	return db.closeErr
}
