// Package storagetest runs one test on every backend of package storage. For PostgreSQL it brings a private cluster, made from the
// server programs that are installed; the environment variable DONGATE_TEST_POSTGRES_DSN names a server to use instead.
package storagetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"dongate/storage"
)

// DSNVariable names an existing PostgreSQL server for tests. Its user must be allowed to create schemas.
const DSNVariable = "DONGATE_TEST_POSTGRES_DSN"

// Drivers are the drivers that [Each] runs a test on.
var Drivers = []string{storage.DriverMemory, storage.DriverSQLite, storage.DriverPostgres}

// Each runs test once per driver, as parallel subtests named after it, each with an empty database of its own. Every call of open gives
// another handle on that database, closed when the test ends. With the memory driver a handle has its database to itself.
func Each(t *testing.T, test func(t *testing.T, open func(t *testing.T) *storage.DB)) {
	t.Helper()
	for _, driver := range Drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			config := Config(t, driver)
			test(t, func(t *testing.T) *storage.DB { return Open(t, config) })
		})
	}
}

// Config returns the configuration of an empty database, which is removed when the test ends. Handles on it should be closed by then,
// as those of [Open] are.
func Config(t testing.TB, driver string) storage.Config {
	t.Helper()
	c := storage.Config{Driver: driver}
	switch driver {
	case storage.DriverSQLite:
		c.DSN = filepath.Join(t.TempDir(), "test.db")
	case storage.DriverPostgres:
		c.DSN = newSchema(t, sharedDSN(t))
		c.MaxConns = 8
	}
	return c
}

// Open opens a handle that is closed when the test ends.
func Open(t testing.TB, c storage.Config) *storage.DB {
	t.Helper()
	db, err := storage.Open(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newSchema creates a schema that goes with the test, and returns a connection string that leads into it.
func newSchema(t testing.TB, dsn string) string {
	t.Helper()
	schema := "test_" + strings.ToLower(rand.Text())
	execute(t, dsn, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { execute(t, dsn, "DROP SCHEMA "+schema+" CASCADE") })
	return WithParameter(dsn, "search_path", schema)
}

// WithParameter returns a PostgreSQL connection string, of either form, with one more parameter. The value needs no quotes.
func WithParameter(dsn, name, value string) string {
	separator := " "
	switch {
	case strings.Contains(dsn, "://") && strings.Contains(dsn, "?"):
		separator = "&"
	case strings.Contains(dsn, "://"):
		separator = "?"
	}
	return dsn + separator + name + "=" + value
}

// execute runs a statement on a connection of its own. It works in cleanups, when the test's context has ended.
func execute(t testing.TB, dsn, statement string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, statement)
	require.NoError(t, err, fmt.Sprintf("%.200s", statement))
	require.NoError(t, conn.Close(ctx))
}
