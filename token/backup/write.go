package backup

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"dongate/storage"
	"dongate/storage/query"
)

// Options are what writing a backup may be told; the zero value will do.
type Options struct {
	Now func() time.Time // when the backup is made; nil: time.Now
	// WorkFactor says what it costs to try a passphrase: 2 to this power, up to 20; 0: 18, a second and 256 MiB of memory.
	WorkFactor int
}

// Write writes a backup that the passphrase opens. Each database is read as it is at one moment, all of them at nearly the same. What w has
// got is no backup unless Write succeeds.
func Write(ctx context.Context, w io.Writer, passphrase string, s Stores, o Options) (Summary, error) {
	summary, err := write(ctx, w, passphrase, s, o)
	if err != nil {
		return Summary{}, fmt.Errorf("writing a backup: %w", err)
	}
	return summary, nil
}

func write(ctx context.Context, w io.Writer, passphrase string, s Stores, o Options) (Summary, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.WorkFactor < 0 || o.WorkFactor > maxWorkFactor {
		return Summary{}, fmt.Errorf("the work factor %d is not in 0 to %d", o.WorkFactor, maxWorkFactor)
	}
	recipient, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return Summary{}, errors.New("the passphrase is empty")
	}
	if o.WorkFactor > 0 {
		recipient.SetWorkFactor(o.WorkFactor)
	}
	if err := s.check(ctx); err != nil {
		return Summary{}, err
	}
	txs, end, err := snapshots(ctx, s)
	if err != nil {
		return Summary{}, err
	}
	defer end()
	sealed, err := age.Encrypt(w, recipient)
	if err != nil {
		return Summary{}, err
	}
	out := bufio.NewWriterSize(sealed, 64<<10)
	h := newHeader(s.Prefix, o.Now())
	summary := newSummary(s.Prefix, h.Created)
	if err := writeLine(out, line{Header: h}); err != nil {
		return Summary{}, err
	}
	counts := map[string]int64{}
	for i, t := range tables {
		if db := t.of(s); db != nil {
			if summary.Tables[i].Rows, err = writeTable(ctx, out, t, s, db, txs[db]); err != nil {
				return Summary{}, fmt.Errorf("%s: %w", t.name, storage.Classify(err))
			}
		}
		counts[t.name] = summary.Tables[i].Rows
	}
	if err := writeLine(out, line{End: counts}); err != nil {
		return Summary{}, err
	}
	if err := out.Flush(); err != nil {
		return Summary{}, err
	}
	return summary, sealed.Close()
}

// writeTable returns how many rows it wrote.
func writeTable(ctx context.Context, out io.Writer, t table, s Stores, db *storage.DB, tx *sql.Tx) (n int64, err error) {
	q, columns := t.sqlTable(s.Prefix)
	var order []query.Order
	for _, c := range columns[:t.key] {
		order = append(order, c.Asc())
	}
	text, args, err := query.Select(expressions(columns)...).From(q).OrderBy(order...).Format(query.For(db.Backend()))
	if err != nil {
		return 0, err
	}
	for r, err := range storage.Query(ctx, tx, func(rows *sql.Rows) (row, error) { return t.scan(rows, s.Sealing) }, text, args...) {
		if err != nil {
			return 0, err
		}
		values, err := t.encode(r)
		if err == nil {
			err = writeLine(out, line{Table: t.name, Row: values})
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func expressions(columns []query.Column[any]) []query.Expr {
	all := make([]query.Expr, len(columns))
	for i, c := range columns {
		all[i] = c
	}
	return all
}

func writeLine(out io.Writer, l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if len(text) >= maxLine {
		return fmt.Errorf("a row has %d bytes, more than can be restored", len(text))
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// WriteFile writes a backup to a file that must not exist, readable by its owner alone, and reads it again before it gets its name: where
// there is a file of that name, there is a whole backup.
func WriteFile(ctx context.Context, path, passphrase string, s Stores, o Options) (summary Summary, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return Summary{}, fmt.Errorf("writing the backup %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return Summary{}, fmt.Errorf("writing the backup %s: %w", path, err)
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = os.Remove(f.Name())
			summary, err = Summary{}, fmt.Errorf("writing the backup %s: %w", path, err)
		}
	}()
	if summary, err = write(ctx, f, passphrase, s, o); err != nil {
		return summary, err
	}
	if err = f.Sync(); err != nil {
		return summary, err
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return summary, err
	}
	read, err := verify(f, passphrase)
	if err == nil && read.Rows() != summary.Rows() {
		err = fmt.Errorf("%w: it has %d rows instead of %d", ErrDamaged, read.Rows(), summary.Rows())
	}
	if err != nil {
		return summary, fmt.Errorf("reading it again: %w", err)
	}
	if err = f.Close(); err != nil {
		return summary, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return summary, err
	}
	return summary, syncDir(filepath.Dir(path))
}

// syncDir makes the file's name durable, where the system can.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}
