package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"modernc.org/sqlite"

	"dongate/internal/dsn"
)

// busyTimeoutMs is how long SQLite itself waits for another connection's lock before it reports busy.
const busyTimeoutMs = 5000

// openMemory opens a file that lives as long as the handle. SQLite's own memory modes block or fail when several connections use them.
func openMemory(ctx context.Context, c Config) (*DB, error) {
	dir, err := os.MkdirTemp("", "dongate-memory-")
	if err != nil {
		return nil, err
	}
	// Nothing survives Close, so waiting for the disk would buy nothing.
	db, err := openSQLite(ctx, c, filepath.Join(dir, "memory.db"), "OFF")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	db.cleanup = func() error { return os.RemoveAll(dir) }
	return db, nil
}

// openSQLite opens the file with a writing connection of the given synchronous mode and a pool of readers.
func openSQLite(ctx context.Context, c Config, path, writeSync string) (*DB, error) {
	path, err := sqlitePath(path)
	if err != nil {
		return nil, err
	}
	if err := prepareFile(path, c.Log); err != nil {
		return nil, err
	}
	changes := &sqliteChanges{}
	connector, err := sqliteConnector(path, "_txlock=immediate&_pragma=foreign_keys(ON)&_pragma=synchronous("+writeSync+")")
	if err != nil {
		return nil, err
	}
	writer := sql.OpenDB(hookingConnector{connector, changes})
	writer.SetMaxOpenConns(1)
	writer.SetMaxIdleConns(1)
	// A commit in the log needs no flush of a reader's own; NORMAL is for the checkpoint a reader may be the one to run.
	reader, err := sqlitePool(path, "_query_only=1&_pragma=foreign_keys(ON)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	reader.SetMaxOpenConns(c.MaxReadConns)
	reader.SetMaxIdleConns(c.MaxReadConns)
	write := newBusyRetry(writer, c.Log)
	db := &DB{backend: SQLite, log: c.Log, read: reader, write: write, path: path, changes: changes}
	changes.db = db

	// The writer connects first: it turns a new file into one with a write-ahead log, which needs the file to itself for a moment
	// and reports busy at once where another process does the same.
	err = retryBusy(ctx, c.Log, func() error { return writer.PingContext(ctx) })
	if err == nil {
		err = checkWritable(ctx, writer)
	}
	if err == nil {
		err = retryBusy(ctx, c.Log, func() error { return reader.PingContext(ctx) })
	}
	if err == nil {
		db.file, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, db.Close()))
	}
	write.sameFile = db.SameFile
	return db, nil
}

// sqlitePool returns a pool of connections that all have the same settings.
func sqlitePool(path, settings string) (*sql.DB, error) {
	connector, err := sqliteConnector(path, settings)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// sqliteConnector returns what makes connections to the file. Their settings come with the DSN: a statement run on a pool would reach one
// connection only.
func sqliteConnector(path, settings string) (driver.Connector, error) {
	// 8 MiB of pages per connection. The log grows to 32 MiB before its pages go into the file, since many of them change again before that;
	// without the limit it would keep the size of the largest burst it ever held.
	const common = "_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=cache_size(-8192)" +
		"&_pragma=temp_store(MEMORY)&_pragma=journal_size_limit(67108864)&_pragma=wal_autocheckpoint(8000)&_error_rc=1&_dqs=0&"
	u := url.URL{Scheme: "file", Path: path, RawQuery: fmt.Sprintf(common, busyTimeoutMs) + settings}
	return sqlite.NewConnector(u.String())
}

// sqlitePath returns the absolute path that a DSN names, and refuses what SQLite would read as something else than a path.
func sqlitePath(name string) (string, error) {
	if name == ":memory:" || strings.HasPrefix(name, "file:") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a plain file path", name)
	}
	if dsn.IsConnectionString(name) { // which may hold a password, so it is not repeated
		return "", errors.New("the DSN is a connection string, not a file path: the driver for it is postgres")
	}
	return filepath.Abs(name)
}

// prepareFile creates the file and its directory where missing, for the owner alone whatever the umask is. SQLite gives the log and the index
// beside it the same permissions, so that opening a file that can only be read would leave behind a log that can only be read: such
// files are refused before SQLite sees them.
func prepareFile(path string, log *zap.Logger) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(file.Chmod(0o600), file.Close())
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file in it", path)
	case info.Mode().Perm()&0o077 != 0:
		log.Warn("the database can be read by other users of this machine", zap.String("path", path), zap.Stringer("mode", info.Mode().Perm()))
	}
	for _, name := range []string{dir, path, path + "-wal", path + "-shm"} {
		if err := mayWrite(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return readOnlyFile{err}
		}
	}
	return nil
}

// readOnlyFile is an error of the class ErrReadOnly.
type readOnlyFile struct{ error }

func (e readOnlyFile) Unwrap() []error { return []error{e.error, ErrReadOnly} }

// checkWritable tells a file that can only be read at once, rather than at the first write. SQLite opens such files without a word.
func checkWritable(ctx context.Context, writer *sql.DB) error {
	conn, err := writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(driverConn any) error {
		type asker interface {
			IsReadOnly(schema string) (bool, error)
		}
		readOnly, err := driverConn.(*hookedConn).sqliteConn.(asker).IsReadOnly("main")
		if err == nil && readOnly {
			err = ErrReadOnly
		}
		return err
	})
}
