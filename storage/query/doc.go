// Package query builds SQL statements for SQLite and PostgreSQL from one description. It runs nothing and knows no table.
//
// A statement is put together in stages, each a type of its own that offers only what may follow, so that a clause in the wrong place
// does not compile. Columns carry the Go type of their values. The backend enters last, as the argument of Format:
//
//	tokens := query.NewTable(prefix + "tokens")
//	txID := query.NewColumn[string](tokens, "tx_id")
//	deleted := query.NewColumn[bool](tokens, "is_deleted")
//	storedAt := query.NewColumn[storage.Time](tokens, "stored_at")
//
//	text, args, err := query.Select(txID).From(tokens).
//		Where(query.And(txID.In(ids...), query.EqLiteral(deleted, false), query.OlderThan(storedAt, time.Hour))).
//		OrderBy(storedAt.Asc(), txID.Asc()).Limit(100).
//		Format(query.For(db.Backend()))
//
// # Rules
//
// Values are bound as $1, $2, … on both backends, never put into the text. What is put into the text are identifiers, which are checked
// and quoted, and the constants of the program given as literals, see [Literal].
//
// A condition may be absent: the zero [Cond], and what every empty list yields. And, Or and Not leave absent conditions out; a statement
// whose condition is absent has no WHERE. So an empty filter list means "no restriction". "No row" is said with [Nothing], "every row" with
// [Everything]. UPDATE and DELETE refuse an absent condition ([ErrUnrestricted]): there, every row has to be said.
//
// Columns are rendered with their table ("t"."c") wherever the grammar lets them, because SQLite takes a quoted name it does not know, when
// it stands alone, for a string.
//
// Nothing here panics and every error comes from Format, whatever was wrong. Statements, conditions, tables and columns are values that
// never change: they may be kept, shared by goroutines and used as the beginning of several statements. Slices given to a function must
// not be changed while what was built from them is in use.
package query
