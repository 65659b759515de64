// Package keystore keeps private keys. What is stored under an id stays until it is deleted: nothing overwrites it. Values are encrypted
// with a key that is not in the database, or plain by explicit choice, see [Sealing].
package keystore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// Errors of the store, for errors.Is.
var (
	// ErrNotFound: no key is stored under this id.
	ErrNotFound = errors.New("keystore: there is no such key")
	// ErrConflict: another value is stored under this id, and stays.
	ErrConflict = errors.New("keystore: another value is stored under this id")
)

// resealPage is how many values Store.Reseal changes in one transaction: some megabytes at most, and on SQLite nobody waits for long.
const resealPage = 50

// Options are what a Store must be told.
type Options struct {
	Sealing *Sealing // how values are stored; there is no default
}

// Store is the private keys of one TMS. It is safe for concurrent use.
type Store struct {
	db      *run.DB
	sealing *Sealing
	table   query.Table
	key     query.Column[string]
	val     query.Column[[]byte]
}

// New returns the keys in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) (*Store, error) {
	if o.Sealing == nil {
		return nil, errors.New("keystore: say how keys are to be stored: encrypted, or plain")
	}
	t := query.NewTable(prefix + "key_store")
	return &Store{run.New(db), o.Sealing, t, query.NewColumn[string](t, "key"), query.NewColumn[[]byte](t, "val")}, nil
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// Put stores the value under the id, usually the hexadecimal digits of the key's identifier (SKI). Neither may be empty. The same value
// again succeeds; another one is ErrConflict, and the stored one stays.
func (s *Store) Put(ctx context.Context, id string, value []byte) error {
	if err := s.put(ctx, id, value); err != nil {
		return fmt.Errorf("storing the key %.100q: %w", id, err)
	}
	return nil
}

func (s *Store) put(ctx context.Context, id string, value []byte) error {
	if id == "" || len(value) == 0 {
		return token.ErrEmptyArgument
	}
	if err := storage.CheckPayload("value", value); err != nil {
		return err
	}
	sealed, err := s.sealing.Seal(id, value)
	if err != nil {
		return err
	}
	insert := query.InsertInto(s.table).Row(s.key.Set(id), s.val.Set(sealed)).OnConflict(s.key).DoNothing()
	for {
		if n, err := s.db.Exec(ctx, s.db.Write(), insert); err != nil || n > 0 {
			return err
		}
		old, err := s.get(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound): // deleted in between
			continue
		case err != nil:
			return err
		case !bytes.Equal(old, value):
			return ErrConflict
		}
		return nil
	}
}

// Get returns the value stored under the id; ErrNotFound if there is none. See [Sealing.Open] for what else it can fail with.
func (s *Store) Get(ctx context.Context, id string) ([]byte, error) {
	value, err := s.get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("reading the key %.100q: %w", id, err)
	}
	return value, nil
}

func (s *Store) get(ctx context.Context, id string) ([]byte, error) {
	stored, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(s.val).From(s.table).Where(s.key.Eq(id)), storage.Column[[]byte])
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrNotFound
	}
	return s.sealing.Open(id, stored)
}

// Delete removes the key. It may be called for one that is not there.
func (s *Store) Delete(ctx context.Context, id string) error {
	if _, err := s.db.Exec(ctx, s.db.Write(), query.DeleteFrom(s.table).Where(s.key.Eq(id))); err != nil {
		return fmt.Errorf("deleting the key %.100q: %w", id, err)
	}
	return nil
}

// IDs yields the ids of all keys in their order as bytes.
func (s *Store) IDs(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for id, err := range run.Query(ctx, s.db, s.db.Read(), query.Select(s.key).From(s.table).OrderBy(s.key.Asc()), storage.Column[string]) {
			if err != nil {
				err = fmt.Errorf("listing keys: %w", err)
			}
			if !yield(id, err) {
				return
			}
		}
	}
}

type entry struct {
	id  string
	val []byte
}

// Reseal stores every value again in the form of the Store's Sealing, after a change of the key, or from plain to encrypted or back. Values that the
// Store's own Sealing does not open are opened with old, which may be nil. It returns how many values it stored. A failure leaves every
// value in one form or the other; calling it again goes on. Keys that are stored meanwhile are not missed, since they have the new form.
func (s *Store) Reseal(ctx context.Context, old *Sealing) (int, error) {
	count, after, more := 0, "", true
	for more {
		var n int
		var last string
		err := storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) (err error) {
			n, last, more, err = s.resealPage(ctx, tx, old, after)
			return err
		})
		if err != nil {
			return count, fmt.Errorf("storing keys in another form: %w", err)
		}
		count, after = count+n, last
	}
	return count, nil
}

// resealPage reseals the next values after an id and returns the last one's id and whether there may be more.
func (s *Store) resealPage(ctx context.Context, tx *sql.Tx, old *Sealing, after string) (n int, last string, more bool, err error) {
	page, err := storage.Collect(run.Query(ctx, s.db, tx, query.Select(s.key, s.val).From(s.table).Where(s.key.Gt(after)).OrderBy(s.key.Asc()).Limit(resealPage),
		func(rows *sql.Rows) (e entry, err error) {
			err = rows.Scan(&e.id, &e.val)
			return e, err
		}))
	if err != nil {
		return 0, "", false, err
	}
	for _, e := range page {
		last = e.id
		value, err := s.sealing.Open(e.id, e.val)
		if err != nil && old != nil {
			value, err = old.Open(e.id, e.val)
		}
		if err != nil {
			return 0, "", false, fmt.Errorf("the key %.100q: %w", e.id, err)
		}
		sealed, err := s.sealing.Seal(e.id, value)
		if err != nil {
			return 0, "", false, err
		}
		// Only if nobody deleted it and stored another meanwhile.
		changed, err := s.db.Exec(ctx, tx, query.Update(s.table).Set(s.val.Set(sealed)).Where(query.And(s.key.Eq(e.id), s.val.Eq(e.val))))
		if err != nil {
			return 0, "", false, err
		}
		n += int(changed)
	}
	return n, last, len(page) == resealPage, nil
}
