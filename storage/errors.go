package storage

import "errors"

// Classes of database errors, for errors.Is on what [Classify] returns. A class comes from the code that the driver reports, never
// from a text.
var (
	// ErrUnique: a row with this key exists.
	ErrUnique = errors.New("storage: unique constraint violated")
	// ErrForeignKey: the row that this one refers to does not exist, or rows refer to the one to be deleted.
	ErrForeignKey = errors.New("storage: foreign key constraint violated")
	// ErrBusy: another connection held SQLite's lock for too long. Nothing was changed.
	ErrBusy = errors.New("storage: database is busy")
	// ErrDeadlock: PostgreSQL ended this transaction to let another go on.
	ErrDeadlock = errors.New("storage: deadlock")
	// ErrSerialization: PostgreSQL could not order this transaction among those that ran beside it.
	ErrSerialization = errors.New("storage: transactions could not be serialised")
	// ErrStalePlan: the prepared statement is no longer there or no longer fits the tables. Forget it and, outside a transaction, run
	// the statement once more.
	ErrStalePlan = errors.New("storage: prepared statement is stale")
	// ErrReadOnly: the database cannot be written. On SQLite the next write opens the file again, so it recovers with the file.
	ErrReadOnly = errors.New("storage: database is read-only")
	// ErrFull: no space is left. Nothing was changed; writes succeed again once there is space.
	ErrFull = errors.New("storage: no space left")
	// ErrCorrupt: the database is damaged, or the file is none.
	ErrCorrupt = errors.New("storage: database is damaged")
)

// Codes of PostgreSQL (Appendix A of its manual).
var bySQLState = map[string]error{
	"23505": ErrUnique,        // unique_violation
	"23503": ErrForeignKey,    // foreign_key_violation
	"40P01": ErrDeadlock,      // deadlock_detected
	"40001": ErrSerialization, // serialization_failure
	"26000": ErrStalePlan,     // invalid_sql_statement_name
	"42P05": ErrStalePlan,     // duplicate_prepared_statement
	"0A000": ErrStalePlan,     // feature_not_supported: "cached plan must not change result type"
	"25006": ErrReadOnly,      // read_only_sql_transaction
	"53100": ErrFull,          // disk_full
	"XX001": ErrCorrupt,       // data_corrupted
	"XX002": ErrCorrupt,       // index_corrupted
}

// Extended result codes of SQLite (https://www.sqlite.org/rescode.html), for constraints.
var byExtendedCode = map[int]error{
	1555: ErrUnique,     // SQLITE_CONSTRAINT_PRIMARYKEY
	2067: ErrUnique,     // SQLITE_CONSTRAINT_UNIQUE
	2579: ErrUnique,     // SQLITE_CONSTRAINT_ROWID
	787:  ErrForeignKey, // SQLITE_CONSTRAINT_FOREIGNKEY
}

// Primary result codes of SQLite, the low byte of any: the rest says how it came to that.
var byPrimaryCode = map[int]error{
	5:  ErrBusy,     // SQLITE_BUSY
	6:  ErrBusy,     // SQLITE_LOCKED
	8:  ErrReadOnly, // SQLITE_READONLY
	11: ErrCorrupt,  // SQLITE_CORRUPT
	13: ErrFull,     // SQLITE_FULL
	26: ErrCorrupt,  // SQLITE_NOTADB
}

// Classify returns err so that errors.Is finds its class too. The text stays the same, and what err wraps is still found. An error
// without a class, nil among them, is returned as it is. It goes by the first error in err's tree that has a method SQLState() string,
// else by the first that has Code() int.
func Classify(err error) error {
	c := class(err)
	if c == nil || errors.Is(err, c) {
		return err
	}
	return &classified{c, err}
}

type classified struct{ class, err error }

func (e *classified) Error() string   { return e.err.Error() }
func (e *classified) Unwrap() []error { return []error{e.err, e.class} }

// class returns the class of err, nil where it has none.
func class(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return bySQLState[s.SQLState()]
	}
	if c, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		if class := byExtendedCode[c.Code()]; class != nil {
			return class
		}
		return byPrimaryCode[c.Code()&0xff]
	}
	return nil
}
