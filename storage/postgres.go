package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// openPostgres opens one pool, which both sides of the handle share.
func openPostgres(ctx context.Context, c Config) (*DB, error) {
	config, err := postgresConfig(c.DSN)
	if err != nil {
		return nil, err
	}
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(c.MaxConns)
	pool.SetMaxIdleConns(c.MaxConns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	pool.SetConnMaxLifetime(maxConnLife)
	if err := pool.PingContext(ctx); err != nil {
		_ = pool.Close() // holds no connection
		return nil, err
	}
	return &DB{backend: Postgres, log: c.Log, read: pool, write: pgWrite{pool}, server: config}, nil
}

// connectTimeout bounds an attempt to connect where the connection string does not: a server that does not answer is said so.
const connectTimeout = 5 * time.Second

// maxConnLife ends connections now and then: one that reached a server which can only be read, as after a failover, is not kept for ever.
const maxConnLife = 5 * time.Minute

// sessionDefaults are what a session has unless the connection string says otherwise, whatever the server's or the user's default is.
var sessionDefaults = map[string]string{
	"synchronous_commit":                  "on",  // what is acknowledged is flushed
	"idle_in_transaction_session_timeout": "60s", // a process that is stopped in a transaction does not keep its locks for ever
	"application_name":                    "dongate",
}

// postgresConfig reads a connection string and adds what every connection must have.
func postgresConfig(dsn string) (*pgx.ConnConfig, error) {
	config, err := parsePostgres(dsn)
	if err != nil {
		return nil, err
	}
	// Times travel as text without a zone, see [Time].
	config.RuntimeParams["timezone"] = "UTC"
	for name, value := range sessionDefaults {
		if config.RuntimeParams[name] == "" {
			config.RuntimeParams[name] = value
		}
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	return config, nil
}
