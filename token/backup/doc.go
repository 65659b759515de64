// Package backup writes what a token network's node cannot rebuild from the ledger into one encrypted stream, and brings it back: private
// keys, identities with their signers and configurations, wallets, and the requests with their metadata (of which the ledger has all but the
// application's part). Tokens and all else come back by a rescan afterwards.
//
// A backup is an age file (age-encryption.org/v1) for a passphrase, so that any age program can open it, with lines of JSON inside: one
// that says what follows, one per row, one that counts them. It belongs to a TMS, not to a backend: what was read from one can be
// restored on the other. Keys are in it as they are, not as the database has them, so that the backup and its passphrase are enough: the key
// of the keystore may be lost too. Whoever has both has the node's keys.
//
// A backup that is damaged anywhere, cut short or opened with another passphrase is refused, and then nothing is written.
package backup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/keystore"
)

// Errors, for errors.Is.
var (
	// ErrPassphrase: the backup cannot be opened with this passphrase; its beginning may also be damaged.
	ErrPassphrase = errors.New("backup: wrong passphrase, or the backup is damaged")
	// ErrDamaged: the backup is not as it was written, or none.
	ErrDamaged = errors.New("backup: the backup is damaged")
	// ErrVersion: another program wrote the backup, with other tables.
	ErrVersion = errors.New("backup: the backup is of another version")
	// ErrOtherTMS: the backup is of another token management system.
	ErrOtherTMS = errors.New("backup: the backup is of another token management system")
	// ErrConflict: a row of the backup is in the database with another content.
	ErrConflict = errors.New("backup: the database has something else")
	// ErrNoDatabase: the backup has rows for which no database was given.
	ErrNoDatabase = errors.New("backup: no database was given for what is in the backup")
)

// Stores are the databases of one TMS, which may be the same. They must have been migrated. One that is nil is left out of a backup.
type Stores struct {
	Prefix       string      // of the tables, see token.TMS
	Identities   *storage.DB // of identitydb and walletdb
	Keys         *storage.DB // of keystore
	Transactions *storage.DB // of ttxdb
	Audit        *storage.DB // of auditdb

	Sealing *keystore.Sealing // how the keystore stores values; nil: there are none
}

// databases returns the databases, each once.
func (s Stores) databases() []*storage.DB {
	var all []*storage.DB
	for _, db := range []*storage.DB{s.Identities, s.Keys, s.Transactions, s.Audit} {
		known := db == nil
		for _, d := range all {
			known = known || d == db
		}
		if !known {
			all = append(all, db)
		}
	}
	return all
}

// check returns an error unless there are databases and their tables are those of this program.
func (s Stores) check(ctx context.Context) error {
	all := s.databases()
	if len(all) == 0 {
		return errors.New("no database was given")
	}
	for _, db := range all {
		if err := db.RequireSchema(ctx, token.Tables(s.Prefix)); err != nil {
			return err
		}
	}
	return nil
}

// Summary is what is in a backup and what became of it.
type Summary struct {
	Prefix  string // of the tables of the TMS, see token.TMS
	Created time.Time
	Tables  []Count // all tables of which a backup can have rows, in their order
}

// Count is how many rows of a table there are.
type Count struct {
	Table    string // without the prefix
	Rows     int64  // in the backup
	Inserted int64  // by Restore; the others were there
	Filled   int64  // by Restore: those that were there without the metadata of the backup
}

// Rows returns how many rows the backup has.
func (s Summary) Rows() (n int64) {
	for _, c := range s.Tables {
		n += c.Rows
	}
	return n
}

func newSummary(prefix string, created time.Time) Summary {
	s := Summary{Prefix: prefix, Created: created}
	for _, t := range tables {
		s.Tables = append(s.Tables, Count{Table: t.name})
	}
	return s
}

// Stat is how much there is of what cannot be rebuilt.
type Stat struct {
	Table string // without the prefix
	Rows  int64
	// Metadata is, of requests, how many have application metadata, which is on no ledger.
	Metadata int64
	// Pending is, of requests, how many have not ended.
	Pending int64
}

// Stats counts the rows of the tables that a backup would have, each database at one moment.
func Stats(ctx context.Context, s Stores) ([]Stat, error) {
	if err := s.check(ctx); err != nil {
		return nil, fmt.Errorf("counting what cannot be rebuilt: %w", err)
	}
	txs, end, err := snapshots(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("counting what cannot be rebuilt: %w", err)
	}
	defer end()
	var all []Stat
	for _, t := range tables {
		db := t.of(s)
		if db == nil {
			continue
		}
		q, _ := t.sqlTable(s.Prefix)
		count := func(where query.Cond) (n int64, err error) {
			text, args, err := query.Select(query.Count()).From(q).Where(where).Format(query.For(db.Backend()))
			if err == nil {
				err = txs[db].QueryRowContext(ctx, text, args...).Scan(&n)
			}
			return n, err
		}
		stat := Stat{Table: t.name}
		stat.Rows, err = count(query.Cond{})
		if err == nil && t.columns[len(t.columns)-1].name == requestColumns[len(requestColumns)-1].name {
			metadata := query.NewColumn[string](q, "application_metadata")
			if stat.Metadata, err = count(query.Not(metadata.In("{}", "null"))); err == nil {
				stat.Pending, err = count(query.EqLiteral(query.NewColumn[token.TxStatus](q, "status"), token.Pending))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("counting the rows of %s: %w", t.name, storage.Classify(err))
		}
		all = append(all, stat)
	}
	return all, nil
}

// snapshots begins a transaction on each database that sees it as it is now.
func snapshots(ctx context.Context, s Stores) (map[*storage.DB]*sql.Tx, func(), error) {
	txs := map[*storage.DB]*sql.Tx{}
	end := func() {
		for _, tx := range txs {
			_ = tx.Rollback() // it only read
		}
	}
	for _, db := range s.databases() {
		options := &sql.TxOptions{ReadOnly: true}
		if db.Backend() == storage.Postgres {
			options.Isolation = sql.LevelRepeatableRead
		}
		tx, err := db.Read().BeginTx(ctx, options)
		if err == nil {
			txs[db] = tx
			// What is seen is that of the first statement.
			err = tx.QueryRowContext(ctx, "SELECT count(*) FROM "+s.Prefix+"leases").Scan(new(int))
		}
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("beginning to read: %w", storage.Classify(err))
		}
	}
	return txs, end, nil
}
