package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/config"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// sqlState is an error that a PostgreSQL server reported.
type sqlState string

func (s sqlState) Error() string    { return "the server said no (SQLSTATE " + string(s) + ")" }
func (s sqlState) SQLState() string { return string(s) }

func TestStorageHints(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		name, driver string
		err          error
		hint         string // what it begins with
	}{
		{"older schema", config.DriverPostgres, storage.ErrOlderSchema, "Run 'gateway migrate up --config gateway.json'"},
		{"newer schema", config.DriverSQLite, storage.ErrNewerSchema, "A newer gateway has used this database"},
		{"no permission", config.DriverSQLite, fs.ErrPermission, "The gateway's user must be able to write the file"},
		{"read-only file", config.DriverSQLite, storage.ErrReadOnly, "The gateway's user must be able to write the file"},
		{"damaged file", config.DriverSQLite, storage.ErrCorrupt, "The database is damaged"},
		{"damaged index", config.DriverPostgres, sqlState("XX002"), "The database is damaged"},
		{"no right", config.DriverPostgres, sqlState("42501"), "The database's user lacks a right."},
		{"wrong password", config.DriverPostgres, sqlState("28P01"), "The server refused user or password"},
		{"no such role", config.DriverPostgres, sqlState("28000"), "The server does not let this user in"},
		{"no such database", config.DriverPostgres, sqlState("3D000"), "The server has no such database: create it"},
		{"no schema", config.DriverPostgres, sqlState("3F000"), "No schema to work in"},
		{"too many connections", config.DriverPostgres, sqlState("53300"), "The server has no connection left: a gateway uses up to 16"},
		{"starting", config.DriverPostgres, sqlState("57P03"), "The server is starting or stopping"},
		{"standby", config.DriverPostgres, storage.Classify(sqlState("25006")), "The server can only be read"},
		{"another state", config.DriverPostgres, sqlState("42601"), ""},
		{"connection string", config.DriverPostgres, storage.CheckPostgresDSN("gateway.db"), "Correct storage.dsn, or the variable DONGATE_STORAGE_DSN."},
		{"unreachable", config.DriverPostgres, refused, "No PostgreSQL server answers"},
		{"no socket to write to", config.DriverPostgres, &net.OpError{Op: "dial", Net: "unix", Err: fs.ErrPermission}, "No PostgreSQL server answers"},
		{"unknown host", config.DriverPostgres, &net.DNSError{Err: "no such host", Name: "db"}, "No PostgreSQL server answers"},
		{"no answer in time", config.DriverPostgres, context.DeadlineExceeded, "No PostgreSQL server answers"},
		{"hangs up", config.DriverPostgres, io.ErrUnexpectedEOF, "No PostgreSQL server answers"},
		{"told to stop", config.DriverPostgres, context.Canceled, ""},
	} {
		l := &loaded{file: "gateway.json", config: &config.Config{Storage: config.Storage{Driver: c.driver}}}
		got := storageFailure(fmt.Errorf("storage: opening: %w", c.err), l)
		require.Equal(t, exitStorage, got.code, c.name)
		require.ErrorIs(t, got, c.err, c.name)
		require.True(t, strings.HasPrefix(got.hint, c.hint) && (c.hint != "" || got.hint == ""), "%s: %s", c.name, got.hint)
	}
}

// What a real server and a real driver say reaches the hints.
func TestStorageHintsOfAServer(t *testing.T) {
	t.Parallel()
	c := storagetest.Config(t, storage.DriverPostgres)
	with := func(setting string) string {
		if strings.Contains(c.DSN, "://") {
			return c.DSN + "&" + setting
		}
		return c.DSN + " " + setting
	}
	for setting, hint := range map[string]string{
		"dbname=dongate_no_such_database": "The server has no such database",
		"user=dongate_no_such_role":       "The server",
		"port=1":                          "No PostgreSQL server answers",
		"port=none":                       "Correct storage.dsn",
	} {
		_, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverPostgres, DSN: with(setting)})
		require.Error(t, err, setting)
		got := storageFailure(err, &loaded{config: &config.Config{Storage: config.Storage{Driver: config.DriverPostgres}}})
		require.True(t, strings.HasPrefix(got.hint, hint), "%v: %s", err, got.hint)
	}
}
