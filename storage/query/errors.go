package query

import "errors"

// Errors of Format and of pages, for errors.Is. The text says what is wrong with what.
var (
	// ErrInterpreter: the statement is to be rendered for a backend that is neither SQLite nor PostgreSQL.
	ErrInterpreter = errors.New("query: no interpreter")
	// ErrIdentifier: a name of a table or column is not one, see [NewTable].
	ErrIdentifier = errors.New("query: bad identifier")
	// ErrLiteral: a text cannot be a literal, see [Literal].
	ErrLiteral = errors.New("query: bad literal")
	// ErrIncomplete: a part without which there is no statement is missing, or two parts do not fit together.
	ErrIncomplete = errors.New("query: incomplete statement")
	// ErrUnrestricted: an UPDATE or DELETE whose condition is absent. Use [Everything] where every row is meant.
	ErrUnrestricted = errors.New("query: change of every row not said explicitly")
	// ErrTooManyParameters: more values than the backend can bind, see [Interpreter.MaxParameters].
	ErrTooManyParameters = errors.New("query: too many parameters")
	// ErrPage: a page without a bound or over [MaxPageSize], or an offset out of range.
	ErrPage = errors.New("query: page refused")
	// ErrCursor: a page's JSON form is not one, or belongs to a listing that is sorted otherwise.
	ErrCursor = errors.New("query: bad cursor")
)
