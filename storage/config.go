package storage

import (
	"fmt"

	"go.uber.org/zap"
)

// Backend is the SQL dialect and engine behind a [DB].
type Backend string

// The backends. The memory driver's is SQLite.
const (
	SQLite   Backend = "sqlite"
	Postgres Backend = "postgres"
)

// Values of Config.Driver.
const (
	DriverSQLite   = "sqlite"
	DriverPostgres = "postgres"
	DriverMemory   = "memory"
)

// Defaults of Config.
const (
	DefaultMaxReadConns = 8  // SQLite's readers; each has a page cache of up to 8 MiB
	DefaultMaxConns     = 16 // PostgreSQL allows 100 in all unless told otherwise, and several processes share it
)

// Config is where a database is and how many connections it may have.
type Config struct {
	// Driver is DriverSQLite, DriverPostgres or DriverMemory.
	Driver string

	// DSN is a plain file path for DriverSQLite, created with its directory where missing, and a connection string (URL or
	// keyword=value) for DriverPostgres. DriverMemory takes none.
	DSN string

	// MaxReadConns bounds the connections of SQLite's read pool; 0: DefaultMaxReadConns. One more writes.
	MaxReadConns int

	// MaxConns bounds PostgreSQL's pool, which reads and writes; 0: DefaultMaxConns.
	MaxConns int

	// Log gets warnings, at most a few per retried statement; nil: none.
	Log *zap.Logger
}

// withDefaults returns the configuration with every blank filled in, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Driver != DriverSQLite && c.Driver != DriverPostgres && c.Driver != DriverMemory:
		return c, fmt.Errorf("unknown driver %q: use %s, %s or %s", c.Driver, DriverSQLite, DriverPostgres, DriverMemory)
	case c.Driver == DriverMemory && c.DSN != "":
		return c, fmt.Errorf("driver %s takes no DSN", DriverMemory)
	case c.Driver != DriverMemory && c.DSN == "":
		return c, fmt.Errorf("driver %s needs a DSN", c.Driver)
	case c.MaxReadConns < 0 || c.MaxConns < 0:
		return c, fmt.Errorf("the number of connections must not be negative")
	}
	if c.MaxReadConns == 0 {
		c.MaxReadConns = DefaultMaxReadConns
	}
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c, nil
}
