package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// migrateSQLite migrates in one transaction that has the file's write lock from its beginning, so that other processes wait and a failure
// leaves nothing behind. It has a connection of its own because foreign keys must be off before the transaction begins: with them on,
// rebuilding a table, which SQLite needs for most changes, would delete what refers to it.
func (db *DB) migrateSQLite(ctx context.Context, domains []Domain) (err error) {
	connector, err := sqliteConnector(db.path, "_pragma=foreign_keys(OFF)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	outer := outerTx{conn}
	defer func() { err = errors.Join(err, conn.Close()) }() // which rolls back what is not committed
	for {
		err := outer.exec(ctx, "BEGIN IMMEDIATE")
		if err == nil {
			break
		}
		if class(err) != ErrBusy {
			return err
		}
		db.log.Warn("waiting for another process to be done with the database", zap.Error(err))
		if !sleep(ctx, busyFirstWait) {
			return err
		}
	}
	pool := sql.OpenDB(outer)
	defer func() { err = errors.Join(err, pool.Close()) }() // the pool's connection is ours, and stays open
	pool.SetMaxOpenConns(1)
	if err := db.up(ctx, pool, domains); err != nil {
		return err
	}
	problems, err := foreignKeyProblems(ctx, pool, 1)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s after the migration", problems[0])
	}
	return outer.exec(ctx, "COMMIT")
}

// outerTx is a connection inside a transaction, as the source of a pool's one connection. Transactions begun on that are savepoints.
type outerTx struct{ driver.Conn }

func (c outerTx) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c outerTx) Driver() driver.Driver                        { return nil }
func (c outerTx) Close() error                                 { return nil }

func (c outerTx) exec(ctx context.Context, query string) error {
	_, err := c.ExecContext(ctx, query, nil)
	return err
}

func (c outerTx) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c outerTx) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c outerTx) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return savepoint{c}, c.exec(ctx, "SAVEPOINT step")
}

// savepoint is a transaction inside another.
type savepoint struct{ outerTx }

func (s savepoint) Commit() error { return s.exec(context.Background(), "RELEASE step") }
func (s savepoint) Rollback() error {
	return s.exec(context.Background(), "ROLLBACK TO step; RELEASE step")
}
