// Package lease says which process leads a background service: a row with an end, by the database's clock, so that any number of services
// need no connection of their own and a leader that died is followed once its lease ends.
package lease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"dongate/storage"
	"dongate/storage/query"
)

// Lease is a name that is ours until it ends. It is safe for concurrent use.
type Lease struct {
	db    *storage.DB
	table table
	name  string
	owner string
	ttl   time.Duration
}

type table struct {
	query.Table
	name, owner query.Column[string]
	expires     query.Column[storage.Time]
}

func newTable(prefix string) table {
	t := query.NewTable(prefix + "leases")
	return table{t, query.NewColumn[string](t, "name"), query.NewColumn[string](t, "owner"), query.NewColumn[storage.Time](t, "expires_at")}
}

// Acquire takes the name for ttl, unless somebody has it: then it returns nil and no error. It does not wait. The prefix is that of the
// token tables in db.
func Acquire(ctx context.Context, db *storage.DB, prefix, name string, ttl time.Duration) (*Lease, error) {
	l := &Lease{db, newTable(prefix), name, uuid.NewString(), ttl}
	t := l.table
	// The row of somebody whose lease ended is taken over.
	statement := query.InsertInto(t.Table).Row(t.name.Set(name), t.owner.Set(l.owner), t.expires.SetNow(ttl)).
		OnConflict(t.name).DoUpdate(t.owner.Overwrite(), t.expires.Overwrite()).Where(query.InPast(t.expires))
	ok, err := l.run(ctx, statement.Returning(t.name))
	if err != nil {
		return nil, fmt.Errorf("taking the lease %s: %w", name, err)
	}
	if !ok {
		return nil, nil
	}
	return l, nil
}

// Renew makes the lease end ttl from now. False: it ended and somebody else has it, or had it.
func (l *Lease) Renew(ctx context.Context) (bool, error) {
	t := l.table
	ok, err := l.run(ctx, query.Update(t.Table).Set(t.expires.SetNow(l.ttl)).Where(l.ours()).Returning(t.name))
	if err != nil {
		return false, fmt.Errorf("renewing the lease %s: %w", l.name, err)
	}
	return ok, nil
}

// Release ends the lease, if it is still ours. It may be called more than once.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.run(ctx, query.DeleteFrom(l.table.Table).Where(l.ours()).Returning(l.table.name))
	if err != nil {
		return fmt.Errorf("ending the lease %s: %w", l.name, err)
	}
	return nil
}

func (l *Lease) ours() query.Cond {
	return query.And(l.table.name.Eq(l.name), l.table.owner.Eq(l.owner))
}

// run tells whether the statement returned a row.
func (l *Lease) run(ctx context.Context, statement query.Statement) (ok bool, err error) {
	text, args, err := statement.Format(query.For(l.db.Backend()))
	if err != nil {
		return false, err
	}
	err = storage.RunInTx(ctx, l.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		var name string
		err := tx.QueryRowContext(ctx, text, args...).Scan(&name)
		ok = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return ok, err
}
