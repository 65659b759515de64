package query

import (
	"fmt"
	"strconv"
	"time"
)

// Value is a bound value as an expression, where a typed method of [Column] does not fit. PostgreSQL has to be able to tell its type from
// what it is compared with: compare it with a column.
func Value(v any) Expr { return value{v} }

type value struct{ v any }

func (v value) expr(r *renderer) { r.bind(v.v) }

// LiteralType is what can be a literal.
type LiteralType interface {
	bool | string | ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32
}

// Literal is a constant of the program, put into the text. A partial index serves a statement only if its predicate can be proven from the
// text, so the terms of that predicate are literals, written as in the index: TRUE and FALSE for booleans (to SQLite, 1 is another term),
// decimal digits for integers, 'text' for strings. A string may hold printable ASCII without quotes and backslashes, else Format fails
// with [ErrLiteral]: what came from outside has no business in a literal.
func Literal[T LiteralType](v T) Expr {
	switch v := any(v).(type) {
	case bool:
		if v {
			return literal("TRUE")
		}
		return literal("FALSE")
	case string:
		return literal(quoteText(v))
	case int:
		return literal(strconv.Itoa(v))
	default:
		return literal(fmt.Sprintf("%d", v)) // every other type of the constraint is an integer
	}
}

// literal is the text of a literal; "" for one that cannot be.
type literal string

func (l literal) expr(r *renderer) {
	if l == "" {
		r.fail(ErrLiteral, "text other than printable ASCII without quotes and backslashes")
		return
	}
	r.text(string(l))
}

func quoteText(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\'' || c == '"' || c == '\\' {
			return ""
		}
	}
	return "'" + s + "'"
}

// Excluded is, in ON CONFLICT DO UPDATE, the value that could not be inserted.
func Excluded(c AnyColumn) Expr { return excluded{c} }

type excluded struct{ c AnyColumn }

func (e excluded) expr(r *renderer) {
	if e.c == nil {
		r.fail(ErrIncomplete, "a column is missing")
		return
	}
	r.text("excluded.")
	e.c.column().bare(r)
}

// Now is the time by the database's clock in whole milliseconds: on PostgreSQL that of the transaction's begin, on SQLite that of the
// statement's.
func Now() Expr { return clock(0) }

// NowPlus is the database's time plus d, which may be negative. Its fraction is rounded to milliseconds, on PostgreSQL down.
func NowPlus(d time.Duration) Expr { return clock(d) }

type clock time.Duration

func (c clock) expr(r *renderer) { r.in.clock(r, time.Duration(c)) }

// Count is the number of rows: COUNT(*).
func Count() Expr { return countAll{} }

type countAll struct{}

func (countAll) expr(r *renderer) { r.text("COUNT(*)") }

// Min is the least value; NULL of no rows.
func Min(e Expr) Expr { return function{"MIN(", e} }

// Max is the greatest value; NULL of no rows.
func Max(e Expr) Expr { return function{"MAX(", e} }

// Sum is the sum; NULL of no rows. Amounts can be summed by PostgreSQL only: on SQLite they are bytes, and Go does it.
func Sum(e Expr) Expr { return function{"SUM(", e} }

type function struct {
	open string
	arg  Expr
}

func (f function) expr(r *renderer) {
	r.text(f.open)
	r.one(f.arg)
	r.text(")")
}
