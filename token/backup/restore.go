package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"dongate/storage"
	"dongate/storage/query"
)

const (
	// batchParams bounds how many values one insert has, see storage.Chunks.
	batchParams = 500
	// batchBytes bounds how large they are together, but for one row.
	batchBytes = 4 << 20
)

// Verify reads a whole backup, and tells what is in it. It looks at no database.
func Verify(r io.Reader, passphrase string) (Summary, error) {
	summary, err := verify(r, passphrase)
	if err != nil {
		return Summary{}, fmt.Errorf("verifying a backup: %w", err)
	}
	return summary, nil
}

func verify(r io.Reader, passphrase string) (Summary, error) {
	identity, err := newPassphrase(passphrase)
	if err != nil {
		return Summary{}, err
	}
	b, err := open(r, identity)
	if err != nil {
		return Summary{}, err
	}
	for {
		if _, _, err := b.next(); err == io.EOF {
			return b.summary, nil
		} else if err != nil {
			return Summary{}, err
		}
	}
}

// Restore brings back what is in a backup, which it reads from where r is. Everything is verified and compared before anything becomes
// visible; when Restore fails, nothing was written, save that with several databases some may have been committed when another fails to
// commit: restore again.
//
// Rows that are in the database stay. Of a request that is there without application or public metadata, because a rescan was first, the
// metadata are filled in; its status, its times and its parameters' hash stay. Any other difference is ErrConflict. So a backup may
// be restored more than once.
func Restore(ctx context.Context, r io.ReadSeeker, passphrase string, s Stores) (Summary, error) {
	summary, err := restore(ctx, r, passphrase, s)
	if err != nil {
		return Summary{}, fmt.Errorf("restoring a backup: %w", err)
	}
	return summary, nil
}

func restore(ctx context.Context, r io.ReadSeeker, passphrase string, s Stores) (Summary, error) {
	identity, err := newPassphrase(passphrase)
	if err != nil {
		return Summary{}, err
	}
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return Summary{}, err
	}
	// Before any database is asked, so that a wrong passphrase holds up nobody.
	if b, err := open(r, identity); err != nil {
		return Summary{}, err
	} else if b.summary.Prefix != s.Prefix {
		return Summary{}, fmt.Errorf("%w: its tables begin with %q, not with %q", ErrOtherTMS, b.summary.Prefix, s.Prefix)
	}
	if err := s.check(ctx); err != nil {
		return Summary{}, err
	}
	var summary Summary
	err = inAll(ctx, s.databases(), map[*storage.DB]*sql.Tx{}, func(ctx context.Context, txs map[*storage.DB]*sql.Tx) error {
		if _, err := r.Seek(start, io.SeekStart); err != nil {
			return err
		}
		b, err := open(r, identity)
		if err != nil {
			return err
		}
		if err := (&restoring{s: s, txs: txs, b: b}).run(ctx); err != nil {
			return err
		}
		summary = b.summary
		return nil
	})
	return summary, err
}

// inAll runs fn in a transaction on each of the databases; none is committed before fn has succeeded.
func inAll(ctx context.Context, dbs []*storage.DB, txs map[*storage.DB]*sql.Tx, fn func(context.Context, map[*storage.DB]*sql.Tx) error) error {
	if len(dbs) == 0 {
		return fn(ctx, txs)
	}
	return storage.RunInTx(ctx, dbs[0].Write(), func(ctx context.Context, tx *sql.Tx) error {
		txs[dbs[0]] = tx
		return inAll(ctx, dbs[1:], txs, fn)
	})
}

// restoring is one pass over a backup.
type restoring struct {
	s     Stores
	txs   map[*storage.DB]*sql.Tx
	b     *reader
	table int   // of the rows in batch
	batch []row // not yet written
	bytes int   // of batch
}

func (p *restoring) run(ctx context.Context) error {
	for {
		i, r, err := p.b.next()
		if err == io.EOF {
			return p.flush(ctx)
		}
		if err != nil {
			return err
		}
		size := 0
		for _, v := range r {
			switch v := v.(type) {
			case []byte:
				size += len(v)
			case string:
				size += len(v)
			}
		}
		if i != p.table || (len(p.batch)+1)*len(r) > batchParams || p.bytes+size > batchBytes {
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		p.table, p.batch, p.bytes = i, append(p.batch, r), p.bytes+size
	}
}

// flush writes the batch.
func (p *restoring) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	t := tables[p.table]
	db := t.of(p.s)
	if db == nil {
		return fmt.Errorf("%w: %s", ErrNoDatabase, t.name)
	}
	q, columns := t.sqlTable(p.s.Prefix)
	var rows [][]query.Assignment
	for _, r := range p.batch {
		args, err := t.bind(r, p.s.Sealing)
		if err != nil {
			return err
		}
		assignments := make([]query.Assignment, len(columns))
		for i, c := range columns {
			assignments[i] = c.Set(args[i])
		}
		rows = append(rows, assignments)
	}
	key := make([]query.AnyColumn, t.key)
	for i := range key {
		key[i] = columns[i]
	}
	n, err := exec(ctx, db, p.txs[db], query.InsertInto(q).Rows(rows...).OnConflict(key...).DoNothing())
	if errors.Is(err, storage.ErrForeignKey) {
		err = fmt.Errorf("%w: a row refers to one that is missing: %w", ErrDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", t.name, err)
	}
	p.b.summary.Tables[p.table].Inserted += n
	if n < int64(len(p.batch)) {
		for _, r := range p.batch {
			if err := p.merge(ctx, t, db, r); err != nil {
				return err
			}
		}
	}
	p.batch, p.bytes = nil, 0
	return nil
}

// merge compares a row with the one of the same key in the database, which may be the one just written.
func (p *restoring) merge(ctx context.Context, t table, db *storage.DB, theirs row) error {
	q, columns := t.sqlTable(p.s.Prefix)
	conds := make([]query.Cond, t.key)
	for i := range conds {
		conds[i] = columns[i].Eq(theirs[i])
	}
	text, args, err := query.Select(expressions(columns)...).From(q).Where(query.And(conds...)).Format(query.For(db.Backend()))
	if err != nil {
		return err
	}
	found, err := storage.Collect(storage.Query(ctx, p.txs[db], func(rows *sql.Rows) (row, error) { return t.scan(rows, p.s.Sealing) }, text, args...))
	if err == nil && len(found) != 1 {
		err = errors.New("the row is neither there nor can it be written")
	}
	if err != nil {
		return fmt.Errorf("comparing %s: %w", t.describe(theirs), storage.Classify(err))
	}
	filled, differs := t.merge(found[0], theirs)
	if differs != "" {
		return fmt.Errorf("%w: %s: column %s", ErrConflict, t.describe(theirs), differs)
	}
	if filled == nil {
		return nil
	}
	var changes []query.Assignment
	for i, v := range filled {
		changes = append(changes, columns[i].Set(v))
	}
	if _, err := exec(ctx, db, p.txs[db], query.Update(q).Set(changes...).Where(query.And(conds...))); err != nil {
		return fmt.Errorf("filling in %s: %w", t.describe(theirs), err)
	}
	p.b.summary.Tables[p.table].Filled++
	return nil
}

func exec(ctx context.Context, db *storage.DB, tx *sql.Tx, statement query.Statement) (int64, error) {
	text, args, err := statement.Format(query.For(db.Backend()))
	if err != nil {
		return 0, err
	}
	r, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, storage.Classify(err)
	}
	return r.RowsAffected()
}
