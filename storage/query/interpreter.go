package query

import (
	"strconv"
	"time"
)

// Interpreter renders what the backends say differently: times by the database's clock, lists of tuples, locks on rows, and how many
// values a statement may have. The zero Interpreter renders nothing: Format then fails with [ErrInterpreter].
type Interpreter uint8

// The interpreters.
const (
	_ Interpreter = iota
	SQLite
	Postgres
)

// For returns the interpreter of a backend by its name, "sqlite" or "postgres"; the zero Interpreter for any other.
func For[B ~string](backend B) Interpreter {
	switch backend {
	case "sqlite":
		return SQLite
	case "postgres":
		return Postgres
	default:
		return 0
	}
}

// MaxParameters is how many values one statement may bind: 32766 on SQLite (SQLITE_MAX_VARIABLE_NUMBER), 65535 on PostgreSQL (a 16 bit count
// in its protocol). Long before, SQLite slows down: finding the number of a $n takes it time in proportion to n, so that lists are
// better cut into pieces of some hundreds.
func (in Interpreter) MaxParameters() int {
	if in == Postgres {
		return 65535
	}
	return 32766
}

// clock renders the database's time now plus d, in whole milliseconds on both backends, so that what is stored is what a Go program reads
// back. On SQLite it is the 23 characters of storage.Time, always with the fraction: text order is time order only among texts of one form.
// The offset is bound, so that the text does not change with it.
func (in Interpreter) clock(r *renderer, d time.Duration) {
	switch {
	case in == SQLite && d == 0:
		r.text("strftime('%Y-%m-%d %H:%M:%f', 'now')")
	case in == SQLite:
		r.text("strftime('%Y-%m-%d %H:%M:%f', 'now', ")
		r.bind(seconds(d))
		r.text(")")
	case d == 0:
		r.text("date_trunc('milliseconds', NOW())")
	default:
		r.text("date_trunc('milliseconds', NOW() + CAST(")
		r.bind(seconds(d))
		r.text(" AS interval))")
	}
}

// seconds is d in the form that both backends read, such as "+1.5 seconds": exact, from whole nanoseconds, without trailing zeros.
func seconds(d time.Duration) string {
	n := uint64(d)
	b := make([]byte, 0, 32)
	if d < 0 {
		n = -n // also right for the least Duration, whose amount is no Duration
		b = append(b, '-')
	} else {
		b = append(b, '+')
	}
	b = strconv.AppendUint(b, n/1e9, 10)
	if frac := n % 1e9; frac > 0 {
		b = append(b, '.')
		for unit := uint64(1e8); frac > 0; unit /= 10 {
			b = append(b, byte('0'+frac/unit))
			frac %= unit
		}
	}
	return string(append(b, " seconds"...))
}

// tuples renders the right side of a row-value IN with n rows. SQLite takes rows only as VALUES; PostgreSQL learns the parameters' types only
// from a list.
func (in Interpreter) tuples(r *renderer, n int, row func(i int)) {
	r.text(" IN (")
	if in == SQLite {
		r.text("VALUES ")
	}
	for i := range n {
		r.comma(i)
		r.text("(")
		row(i)
		r.text(")")
	}
	r.text(")")
}

// skipLocked renders the locking clause of a claim. On SQLite it is nothing: a writing transaction holds the only write lock there is.
func (in Interpreter) skipLocked(r *renderer) {
	if in == Postgres {
		r.text(" FOR UPDATE SKIP LOCKED")
	}
}
