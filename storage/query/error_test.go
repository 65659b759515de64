package query_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
)

func TestMistakesAreErrorsOfFormat(t *testing.T) {
	t.Parallel()
	row := []query.Assignment{lockTxID.Set("a"), lockIdx.Set(1)}
	bad := query.NewTable("Tokens")
	badColumn := query.NewColumn[int](tokens, `x" OR 1=1 --`)
	list := query.Select(idx).From(tokens)
	by := query.SortBy(amount, txID)
	for _, c := range []struct {
		name      string
		statement query.Statement
		class     error
		says      string
	}{
		{"table name", query.Select(idx).From(bad), query.ErrIdentifier, `"Tokens"`},
		{"alias", query.Select(idx).From(tokens.As("a b")), query.ErrIdentifier, `"a b"`},
		{"alias of a bad table", query.Select(idx).From(bad.As("a")), query.ErrIdentifier, `"Tokens"`},
		{"column name", query.Select(badColumn).From(tokens), query.ErrIdentifier, "OR 1=1"},
		{"column of a bad table", query.Select(query.NewColumn[int](bad, "x")).From(tokens), query.ErrIdentifier, `"Tokens"`},
		{"column of no table", query.Select(query.NewColumn[int](query.Table{}, "x")).From(tokens), query.ErrIdentifier, "no table"},
		{"column of another bad table", query.Select(idx.Of(bad)).From(tokens), query.ErrIdentifier, `"Tokens"`},
		{"bad column in a list of names", query.InsertInto(tokens).Row(badColumn.Set(1)), query.ErrIdentifier, "OR 1=1"},
		{"bad column in an order", list.OrderBy(badColumn.Asc()), query.ErrIdentifier, "OR 1=1"},
		{"excluded bad column", query.InsertInto(tokens).Row(idx.Set(1)).OnConflict(idx).DoUpdate(idx.SetExpr(query.Excluded(badColumn))), query.ErrIdentifier, "OR 1=1"},
		{"join with a bad table", list.LeftJoin(bad, query.Cond{}), query.ErrIdentifier, `"Tokens"`},

		{"literal", one(query.EqLiteral(txID, "a'b")), query.ErrLiteral, "printable"},
		{"literal backslash", one(query.EqLiteral(txID, `a\`)), query.ErrLiteral, "printable"},
		{"literal zero byte", one(query.InLiteral(txID, "a", "\x00")), query.ErrLiteral, "printable"},
		{"literal umlaut", one(query.EqLiteral(txID, "ä")), query.ErrLiteral, "printable"},

		{"no fields", query.Select().From(tokens), query.ErrIncomplete, "fields"},
		{"nil field", query.Select(nil).From(tokens), query.ErrIncomplete, "nil"},
		{"zero column", query.Select(query.Column[int]{}).From(tokens), query.ErrIncomplete, "column"},
		{"column of a zero column", query.Select(query.Column[int]{}.Of(tokens)).From(tokens), query.ErrIdentifier, `""`},
		{"zero table", query.Select(idx).From(query.Table{}), query.ErrIncomplete, "table"},
		{"alias of a zero table", query.Select(idx).From(query.Table{}.As("a")), query.ErrIncomplete, "table"},
		{"zero SELECT", query.SelectEnd{}, query.ErrIncomplete, "fields"},
		{"nil right side", one(query.Compare(idx, query.EQ, nil)), query.ErrIncomplete, "nil"},
		{"unknown comparison", one(query.Compare(idx, query.Op(99), idx)), query.ErrIncomplete, "comparison"},
		{"argument of a function", query.Select(query.Sum(nil)).From(tokens), query.ErrIncomplete, "nil"},
		{"exists nil", one(query.Exists(nil)), query.ErrIncomplete, "sub-select"},
		{"in nil", one(query.InSelect(nil, idx)), query.ErrIncomplete, "sub-select"},
		{"in without columns", one(query.InSelect(list)), query.ErrIncomplete, "no column"},
		{"in nil column", one(query.InSelect(list, nil)), query.ErrIncomplete, "nil"},
		{"in with another width", one(query.InSelect(list, txID, idx)), query.ErrIncomplete, "has 1 fields, not 2"},
		{"in with another width of a union", one(query.InSelect(query.UnionAll(list), txID, idx)), query.ErrIncomplete, "has 1 fields, not 2"},
		{"mistake within a sub-select", one(query.Exists(query.Select().From(tokens))), query.ErrIncomplete, "fields"},
		{"negative offset", list.Limit(1).Offset(-1), query.ErrIncomplete, "offset"},
		{"offset without limit", list.Limit(0).Offset(1), query.ErrIncomplete, "offset"},
		{"empty union", query.UnionAll(), query.ErrIncomplete, "members"},
		{"zero union", query.UnionEnd{}, query.ErrIncomplete, "members"},
		{"union with nil", query.UnionAll(list, nil), query.ErrIncomplete, "nil"},
		{"union of nil", query.UnionAll(nil, list), query.ErrIncomplete, "nil"},
		{"union of several widths", query.UnionAll(list, query.Select(idx, txID).From(tokens)), query.ErrIncomplete, "1 and 2 fields"},

		{"no rows", query.InsertInto(locks).Rows(), query.ErrIncomplete, "rows"},
		{"empty row", query.InsertInto(locks).Row(), query.ErrIncomplete, "rows"},
		{"zero INSERT", query.InsertEnd{}, query.ErrIncomplete, "rows"},
		{"zero assignment", query.InsertInto(locks).Row(query.Assignment{}), query.ErrIncomplete, "column"},
		{"zero assignment later", query.InsertInto(locks).Rows(row, make([]query.Assignment, 2)), query.ErrIncomplete, "row 1"},
		{"rows of several widths", query.InsertInto(locks).Rows(row, row[:1]), query.ErrIncomplete, "row 1"},
		{"rows of several orders", query.InsertInto(locks).Rows(row, row, []query.Assignment{row[1], row[0]}), query.ErrIncomplete, "row 2"},
		{"increment in a row", query.InsertInto(locks).Row(uses.Increment(1)), query.ErrIncomplete, "values"},
		{"overwrite in a row", query.InsertInto(locks).Row(uses.Overwrite()), query.ErrIncomplete, "values"},
		{"overwrite in an UPDATE", query.Update(locks).Set(uses.Overwrite()).Where(query.Everything()), query.ErrIncomplete, "values"},
		{"increment by new in an UPDATE", query.Update(locks).Set(uses.IncrementByNew()).Where(query.Everything()), query.ErrIncomplete, "values"},
		{"nil expression set", query.Update(locks).Set(uses.SetExpr(nil)).Where(query.Everything()), query.ErrIncomplete, "nil"},
		{"nothing set", query.Update(locks).Set().Where(query.Everything()), query.ErrIncomplete, "nothing is set"},
		{"nothing set on conflict", query.InsertInto(locks).Row(row...).OnConflict(lockTxID).DoUpdate(), query.ErrIncomplete, "nothing is set"},
		{"no target", query.InsertInto(locks).Row(row...).OnConflict().DoUpdate(uses.Overwrite()), query.ErrIncomplete, "target"},
		{"no target to do nothing", query.InsertInto(locks).Row(row...).OnConflict().DoNothing(), query.ErrIncomplete, "target"},
		{"nil target", query.InsertInto(locks).Row(row...).OnConflict(nil).DoNothing(), query.ErrIncomplete, "column"},
		{"nil excluded", query.InsertInto(locks).Row(row...).OnConflict(lockTxID).DoUpdate(uses.SetExpr(query.Excluded(nil))), query.ErrIncomplete, "column"},
		{"change of an alias", query.Update(locks.As("l")).Set(uses.Set(1)).Where(query.Everything()), query.ErrIncomplete, "alias"},
		{"nil returned", query.DeleteFrom(locks).Where(query.Everything()).Returning(nil), query.ErrIncomplete, "nil"},

		{"update of all rows", query.Update(locks).Set(uses.Set(1)).Where(query.Cond{}), query.ErrUnrestricted, "locks"},
		{"delete by an empty list", query.DeleteFrom(locks).Where(lockTxID.In()), query.ErrUnrestricted, "locks"},
		{"delete by empty lists", query.DeleteFrom(locks).Where(query.And(lockTxID.In(), query.Not(query.Or(lockIdx.In())))), query.ErrUnrestricted, "locks"},

		{"unbounded page", list.Paginate(by, query.Pagination{}), query.ErrPage, "no bound"},
		{"page of 1001", list.Paginate(by, query.OffsetPage(0, query.MaxPageSize+1)), query.ErrPage, "1001"},
		{"page of 1001 within the program", list.PaginateUnbounded(by, query.KeysetPage(0, query.MaxPageSize+1)), query.ErrPage, "1001"},
		{"page of none", list.Paginate(by, query.KeysetPage(0, 0)), query.ErrPage, "size is 0"},
		{"page before the first", list.Paginate(by, query.OffsetPage(-1, 1)), query.ErrPage, "offset is -1"},
		{"no order", list.Paginate(nil, query.OffsetPage(0, 1)), query.ErrIncomplete, "ordering"},
		{"zero order", list.Paginate(query.Sort[int, int]{}, query.OffsetPage(0, 1)), query.ErrIncomplete, "column"},
		{"order by a boolean", list.Paginate(query.SortBy(isDeleted, txID), query.OffsetPage(0, 1)), query.ErrIncomplete, "is_deleted"},
		{"order by a boolean id", list.Paginate(query.SortBy(txID, isDeleted), query.OffsetPage(0, 1)), query.ErrIncomplete, "is_deleted"},
		{"page of another order", list.Paginate(by, by.Desc().Read(query.KeysetPage(0, 1), 1, 7, "k").Next()), query.ErrCursor, `"amount,tx_id desc"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, in := range []query.Interpreter{query.SQLite, query.Postgres} {
				text, args, err := c.statement.Format(in)
				require.ErrorIs(t, err, c.class)
				require.ErrorContains(t, err, c.says)
				require.Empty(t, text)
				require.Nil(t, args)
			}
		})
	}
}

func TestAnUnknownBackendRendersNothing(t *testing.T) {
	t.Parallel()
	for _, in := range []query.Interpreter{0, 3, query.For("mysql"), query.For(storage.Backend(""))} {
		_, _, err := query.Select(idx).From(tokens).Format(in)
		require.ErrorIs(t, err, query.ErrInterpreter)
	}
	require.Equal(t, query.SQLite, query.For(storage.SQLite))
	require.Equal(t, query.Postgres, query.For(storage.Postgres))
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "_", "a1", "order", strings.Repeat("a", query.MaxIdentifier)} {
		text, _, err := query.Select(query.NewColumn[int](query.NewTable(name), name)).From(query.NewTable(name)).Format(query.SQLite)
		require.NoError(t, err)
		require.Equal(t, `SELECT "`+name+`"."`+name+`" FROM "`+name+`"`, text)
	}
	for _, name := range []string{"", "1a", "A", "a-b", "a.b", `a"b`, "ä", "a\x00", strings.Repeat("a", query.MaxIdentifier+1), strings.Repeat("x", 1<<20)} {
		_, _, err := query.Select(query.Count()).From(query.NewTable(name)).Format(query.Postgres)
		require.ErrorIs(t, err, query.ErrIdentifier)
		require.Less(t, len(err.Error()), 400)
	}
}

func TestMoreValuesThanABackendBindsAreRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []query.Interpreter{query.SQLite, query.Postgres} {
		most := in.MaxParameters()
		_, args, err := one(idx.In(make([]int, most)...)).Format(in)
		require.NoError(t, err)
		require.Len(t, args, most)
		_, _, err = one(idx.In(make([]int, most+1)...)).Format(in)
		require.ErrorIs(t, err, query.ErrTooManyParameters)
	}
}

// A stage handed to two continuations must not be changed by either: joins and rows are appended.
func TestStagesAreNotChangedByWhatFollows(t *testing.T) {
	t.Parallel()
	format := func(s query.Statement) string {
		text, _, err := s.Format(query.SQLite)
		require.NoError(t, err)
		return text
	}
	base := query.Select(idx).From(tokens).CrossJoin(tokens.As("a")).CrossJoin(tokens.As("b")).CrossJoin(tokens.As("c"))
	x, y := base.CrossJoin(tokens.As("x")), base.CrossJoin(tokens.As("y"))
	require.Contains(t, format(x), `AS "x"`)
	require.NotContains(t, format(x), `AS "y"`)
	require.Contains(t, format(y), `AS "y"`)

	rows := query.InsertInto(locks).Row(lockIdx.Set(1)).Row(lockIdx.Set(2)).Row(lockIdx.Set(3)).Row(lockIdx.Set(4))
	three, four := rows.Row(lockIdx.SetExpr(query.Literal(33))), rows.Row(lockIdx.SetExpr(query.Literal(44)))
	require.Contains(t, format(three), "(33)")
	require.Contains(t, format(four), "(44)")

	conds := []query.Cond{idx.Eq(1), idx.In(), idx.Eq(2), query.Everything()}
	before := format(one(query.And(conds...)))
	query.Or(conds[:2]...)
	query.And(conds...)
	require.Equal(t, before, format(one(query.And(conds...))))
}
