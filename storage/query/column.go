package query

import "fmt"

// MaxIdentifier is the longest name PostgreSQL keeps, in bytes: it cuts longer ones, so that two may become one.
const MaxIdentifier = 63

// Table is a table, or an alias of one for statements that need it twice.
type Table struct{ t *table }

type table struct {
	name   string // as given
	from   string // "name", or "name" AS "alias"
	ref    string // what its columns are qualified with, quoted
	alias  bool
	broken error
}

// NewTable returns the table of that name. A name is 1 to [MaxIdentifier] bytes of a–z, 0–9 and _, not beginning with a digit: no upper
// case, which the backends fold differently. A statement that uses any other name fails with [ErrIdentifier].
func NewTable(name string) Table {
	q, err := quote(name)
	return Table{&table{name: name, from: q, ref: q, broken: err}}
}

// As returns the table under another name. Take the columns along with [Column.Of]. INSERT, UPDATE and DELETE refuse aliases.
func (t Table) As(alias string) Table {
	if t.t == nil || t.t.broken != nil {
		return t
	}
	q, err := quote(alias)
	return Table{&table{name: t.t.name, from: t.t.from + " AS " + q, ref: q, alias: true, broken: err}}
}

// Name is the table's name as given to NewTable.
func (t Table) Name() string {
	if t.t == nil {
		return ""
	}
	return t.t.name
}

// from renders the table in a FROM clause.
func (t Table) from(r *renderer) {
	switch {
	case t.t == nil:
		r.fail(ErrIncomplete, "a table is missing")
	case t.t.broken != nil:
		r.fail(t.t.broken, "table")
	default:
		r.text(t.t.from)
	}
}

// target renders the table as the one a statement changes. SQLite's RETURNING does not know aliases.
func (t Table) target(r *renderer) {
	if t.t != nil && t.t.alias {
		r.fail(ErrIncomplete, "an alias of table "+t.t.name+" cannot be changed, only the table")
		return
	}
	t.from(r)
}

// Column is a column of a table whose values are Ts: what database/sql binds, a driver.Valuer included.
//
// Comparisons with NULL, a NULL bound included, are neither true nor false, as always in SQL.
type Column[T any] struct{ c *column }

type column struct {
	plain  string // as given
	name   string // quoted
	ref    string // quoted and qualified
	broken error
}

// AnyColumn is a [Column] of any type, where only its name matters.
type AnyColumn interface {
	Expr
	column() *column
}

// NewColumn returns a column of t; the rules for names are those of [NewTable].
func NewColumn[T any](t Table, name string) Column[T] {
	q, err := quote(name)
	c := &column{plain: name, name: q, broken: err}
	switch {
	case err != nil:
	case t.t == nil:
		c.broken = fmt.Errorf("%w: column %q has no table", ErrIdentifier, name)
	default:
		c.ref, c.broken = t.t.ref+"."+q, t.t.broken
	}
	return Column[T]{c}
}

// Of returns the column of the same name in another table, mostly an alias of its own.
func (c Column[T]) Of(t Table) Column[T] { return NewColumn[T](t, c.Name()) }

// Name is the column's name as given to NewColumn.
func (c Column[T]) Name() string {
	if c.c == nil {
		return ""
	}
	return c.c.plain
}

func (c Column[T]) column() *column  { return c.c }
func (c Column[T]) expr(r *renderer) { c.c.qualified(r) }

func (c *column) ok(r *renderer) bool {
	switch {
	case c == nil:
		r.fail(ErrIncomplete, "a column is missing")
		return false
	case c.broken != nil:
		r.fail(c.broken, "column "+c.plain)
		return false
	}
	return true
}

func (c *column) qualified(r *renderer) {
	if c.ok(r) {
		r.text(c.ref)
	}
}

// bare renders the name alone, for the lists of columns in which nothing else may stand.
func (c *column) bare(r *renderer) {
	if c.ok(r) {
		r.text(c.name)
	}
}

// quote checks a name and returns it in double quotes.
func quote(name string) (string, error) {
	good := len(name) > 0 && len(name) <= MaxIdentifier
	for i := 0; good && i < len(name); i++ {
		ch := name[i]
		good = ch >= 'a' && ch <= 'z' || ch == '_' || i > 0 && ch >= '0' && ch <= '9'
	}
	if !good {
		if len(name) > 2*MaxIdentifier {
			name = name[:2*MaxIdentifier] + "…"
		}
		return "", fmt.Errorf("%w %q: 1 to %d of a-z, 0-9 and _, not beginning with a digit", ErrIdentifier, name, MaxIdentifier)
	}
	return `"` + name + `"`, nil
}
