package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"dongate/auth/sqlclaims"
	"dongate/config"
	"dongate/storage"
)

// domains are the tables of the gateway's database, in the order in which they
// are migrated.
var domains = []storage.Domain{sqlclaims.Domain}

// defaultDatabase is the file of driver sqlite where the configuration names none.
const defaultDatabase = "dongate.db"

// storageConfig says where the database is that l's configuration means. A file
// without a name is in $STATE_DIRECTORY, where systemd says which one that is, or
// else beside the configuration file.
func storageConfig(w *world, l *loaded, log *zap.Logger) storage.Config {
	s := storage.Config{Driver: l.config.Storage.Driver, Log: log}
	switch s.Driver {
	case config.DriverPostgres:
		s.DSN = l.config.Storage.DSN.Reveal()
	case config.DriverSQLite:
		s.DSN = l.config.Storage.DSN.Reveal()
		if s.DSN == "" {
			dir, _, _ := strings.Cut(w.env("STATE_DIRECTORY"), ":")
			if dir == "" {
				dir = filepath.Dir(l.file)
			}
			s.DSN = filepath.Join(dir, defaultDatabase)
		}
	}
	return s
}

// openStore opens the database that serve uses and brings its schema up to date,
// or only looks at it where the configuration says so.
func openStore(ctx context.Context, w *world, l *loaded, log *zap.Logger) (*storage.DB, error) {
	c := storageConfig(w, l, log)
	db, err := storage.Open(ctx, c)
	if err != nil {
		return nil, storageFailure(err, l)
	}
	if l.config.Storage.Migrate == config.MigrateManual {
		err = db.RequireSchema(ctx, domains...)
	} else {
		err = db.Migrate(ctx, domains...)
	}
	if err != nil {
		return nil, errors.Join(storageFailure(err, l), db.Close())
	}
	fields := []zap.Field{zap.String("driver", c.Driver)}
	if c.Driver == config.DriverSQLite { // a connection string may hold a password
		fields = append(fields, zap.String("file", c.DSN))
	}
	log.Info("storage", fields...)
	return db, nil
}

// storageFailure is an error about the database, with what to do about it.
func storageFailure(err error, l *loaded) *exitError {
	f := fail(exitStorage, "%w", err)
	switch {
	case errors.Is(err, storage.ErrOlderSchema):
		return f.withHint("Run 'gateway migrate up --config %s', or set storage.migrate to \"auto\".", l.file)
	case errors.Is(err, storage.ErrNewerSchema):
		return f.withHint("A newer gateway has used this database: run that one, or one at least as new.")
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, storage.ErrReadOnly):
		return f.withHint("The gateway's user must be able to write the file and its directory: see storage.dsn in %s.", l.file)
	case l.config.Storage.Driver == config.DriverPostgres:
		return f.withHint("Is the server of storage.dsn running, and does it know that user and database?")
	}
	return f
}

// missingDatabase returns the file of driver sqlite if there is none yet.
func missingDatabase(c storage.Config) string {
	if c.Driver != config.DriverSQLite {
		return ""
	}
	if _, err := os.Stat(c.DSN); errors.Is(err, fs.ErrNotExist) {
		return c.DSN
	}
	return ""
}
