package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"dongate/auth/sqlclaims"
	"dongate/config"
	relayerstore "dongate/relayer/store"
	"dongate/storage"
)

// domains are the tables of the database that a configuration needs, in the order
// in which they are migrated.
func domains(c *config.Config) []storage.Domain {
	list := []storage.Domain{sqlclaims.Domain}
	if c.Relayer.Enabled {
		list = append(list, relayerstore.Domain)
	}
	return list
}

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
	if c.Driver == storage.DriverSQLite {
		storage.MakeRoom()
	}
	if l.config.Storage.Migrate == config.MigrateManual {
		err = db.RequireSchema(ctx, domains(l.config)...)
	} else {
		err = db.Migrate(ctx, domains(l.config)...)
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
	case errors.Is(storage.Classify(err), storage.ErrCorrupt):
		return f.withHint("The database is damaged: 'gateway store check --config %s' says what is, and a backup brings it back. "+
			"Without one, begin with an empty database: every token that was used and has not expired could then be used again.", l.file)
	case l.config.Storage.Driver == config.DriverPostgres:
		if hint := postgresHint(err); hint != "" {
			return f.withHint("%s", hint)
		}
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, storage.ErrReadOnly):
		return f.withHint("The gateway's user must be able to write the file and its directory: see storage.dsn in %s.", l.file)
	}
	return f
}

// postgresHint says what to do about an error of PostgreSQL, by its SQLSTATE (Appendix A of its manual) where the server gave one; "" where
// the text has to do.
func postgresHint(err error) string {
	if errors.Is(err, storage.ErrDSN) {
		return "Correct storage.dsn, or the variable DONGATE_STORAGE_DSN."
	}
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		switch s.SQLState() {
		case "42501": // insufficient_privilege
			return "The database's user lacks a right. To serve it needs SELECT, INSERT, UPDATE and DELETE on the tables; to migrate, CREATE on the schema and the tables as its own: let another user run 'gateway migrate up', or grant it."
		case "28P01": // invalid_password
			return "The server refused user or password: correct them in storage.dsn, or set the password with ALTER ROLE."
		case "28000": // invalid_authorization_specification
			return "The server does not let this user in: does the role exist with LOGIN, and does pg_hba.conf allow it this database from this address?"
		case "3D000": // invalid_catalog_name
			return "The server has no such database: create it (createdb -O USER NAME), or name another in storage.dsn."
		case "3F000": // invalid_schema_name
			return "No schema to work in: create one of those in the user's search_path, or set search_path in storage.dsn."
		case "53300": // too_many_connections
			return fmt.Sprintf("The server has no connection left: a gateway uses up to %d; raise max_connections, or end what else is connected.", storage.DefaultMaxConns)
		case "57P03": // cannot_connect_now
			return "The server is starting or stopping: try again in a moment."
		case "25006": // read_only_sql_transaction
			return "The server can only be read, as a standby can: name the primary in storage.dsn, or several hosts with target_session_attrs=read-write."
		}
		return ""
	}
	if errors.Is(err, context.Canceled) {
		return ""
	}
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "No PostgreSQL server answers at the address in storage.dsn: is it running, does it listen there (listen_addresses, port), and may this machine connect to it?"
	}
	return ""
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
