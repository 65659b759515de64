package query_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

// plan returns how the backend would run a statement whatever its values are.
func plan(t *testing.T, db *storage.DB, s query.Statement) string {
	t.Helper()
	text, args, err := s.Format(query.For(db.Backend()))
	require.NoError(t, err)
	if db.Backend() == storage.SQLite {
		rows, err := db.Read().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
		require.NoError(t, err, text)
		defer rows.Close()
		var lines []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			lines = append(lines, detail)
		}
		require.NoError(t, rows.Err())
		return strings.Join(lines, "\n")
	}
	conn, err := db.Read().Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	lines := []string{}
	for _, set := range []string{"SET enable_seqscan = off", "SET plan_cache_mode = force_generic_plan", "PREPARE planned AS " + text} {
		_, err = conn.ExecContext(t.Context(), set)
		require.NoError(t, err, text)
	}
	values := make([]string, len(args))
	for i, a := range args {
		values[i] = fmt.Sprintf("'%v'", a)
	}
	execute := "EXPLAIN EXECUTE planned"
	if len(values) > 0 {
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	rows, err := conn.QueryContext(t.Context(), execute)
	require.NoError(t, err, text)
	defer rows.Close()
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		lines = append(lines, line)
	}
	require.NoError(t, rows.Err())
	for _, reset := range []string{"DEALLOCATE planned", "RESET enable_seqscan", "RESET plan_cache_mode"} {
		_, err = conn.ExecContext(t.Context(), reset)
		require.NoError(t, err)
	}
	return strings.Join(lines, "\n")
}

// fill puts rows into tokens so that a plan is worth something, and indexes over them.
func fill(t *testing.T, db *storage.DB) {
	create(t, db)
	for _, ddl := range []string{
		`CREATE INDEX by_flag ON tokens (owner_wallet, amount) WHERE is_deleted = FALSE AND status = 2`,
		`CREATE INDEX by_column ON tokens (amount) WHERE is_deleted`,
		`CREATE INDEX by_not ON tokens (id) WHERE NOT is_deleted`,
		`CREATE INDEX by_null ON tokens (status, idx) WHERE owner_wallet IS NULL`,
		`CREATE INDEX by_amount ON tokens (amount, tx_id)`,
	} {
		_, err := db.Write().ExecContext(t.Context(), ddl)
		require.NoError(t, err)
	}
	for n := range 20 {
		var rows [][]query.Assignment
		for i := range 100 {
			rows = append(rows, []query.Assignment{txID.Set(fmt.Sprint("tx", n)), idx.Set(i), wallet.Set(fmt.Sprint("w", i%7)), amount.Set(int64(i)), isDeleted.Set(i%50 == 0), state.Set(status(1 + i%2)), id.Set([]byte{byte(n), byte(i)})})
		}
		run(t, db, query.InsertInto(tokens).Rows(rows...))
	}
	_, err := db.Write().ExecContext(t.Context(), "ANALYZE")
	require.NoError(t, err)
}

// A partial index serves a statement whose terms are literals of the index's own form, in the order of its columns and without a sort.
func TestPartialIndexesAreUsed(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		fill(t, db)
		live := query.And(query.EqLiteral(isDeleted, false), query.EqLiteral(state, confirmed))
		for index, s := range map[string]query.Statement{
			"by_flag":   query.Select(txID, amount).From(tokens).Where(query.And(wallet.Eq("w1"), live)).OrderBy(amount.Asc()).Limit(5),
			"by_column": query.Select(txID).From(tokens).Where(query.And(query.IsTrue(isDeleted), amount.Eq(3))),
			"by_not":    query.Select(txID).From(tokens).Where(query.And(query.Not(query.IsTrue(isDeleted)), id.Eq([]byte{1, 1}))),
			"by_null":   query.Select(txID).From(tokens).Where(query.And(wallet.IsNull(), state.Eq(pending), idx.Eq(1))),
		} {
			p := plan(t, db, s)
			require.Contains(t, p, index, p)
			require.NotContains(t, strings.ToUpper(p), "SORT", p)
			require.NotContains(t, p, "TEMP B-TREE", p)
		}
		// The other side: bound, PostgreSQL cannot prove the predicate; with 1 for FALSE's 0, SQLite cannot.
		bound := query.And(isDeleted.Eq(false), state.Eq(confirmed))
		if db.Backend() == storage.SQLite {
			bound = query.And(query.Compare(isDeleted, query.EQ, query.Literal(0)), query.EqLiteral(state, confirmed))
		}
		require.NotContains(t, plan(t, db, query.Select(txID).From(tokens).Where(query.And(wallet.Eq("w1"), bound)).OrderBy(amount.Asc()).Limit(5)), "by_flag")
	})
}

// Continuing after a row starts in the index at that row, in both directions, without a sort.
func TestKeysetPagesStartInTheIndex(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		fill(t, db)
		for _, by := range []query.Sort[int64, string]{query.SortBy(amount, txID), query.SortBy(amount, txID).Desc()} {
			next := by.Read(query.KeysetPage(0, 5), 5, 50, "tx1").Next()
			p := plan(t, db, query.Select(idx).From(tokens).Where(wallet.NotNull()).Paginate(by, next))
			require.Contains(t, p, "by_amount", p)
			if db.Backend() == storage.SQLite {
				require.Contains(t, p, "SEARCH", p)
				require.Contains(t, p, "(amount,tx_id)", p)
			} else {
				require.Contains(t, p, "Index Cond: (ROW(amount, tx_id)", p)
			}
			require.NotContains(t, p, "Sort", p)
			require.NotContains(t, p, "TEMP B-TREE", p)
		}
	})
}

// A list of tuples is looked up row by row.
func TestTuplesUseTheIndex(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		fill(t, db)
		p := plan(t, db, one(query.InPairs(txID, idx, query.Pair[string, int]{First: "tx1", Second: 1}, query.Pair[string, int]{First: "tx2", Second: 2})))
		if db.Backend() == storage.SQLite {
			require.Contains(t, p, "(tx_id=? AND idx=?)", p)
		} else {
			require.Contains(t, p, "Index Cond: ((tx_id = $1) AND (idx = $2))", p)
			require.Contains(t, p, "Index Cond: ((tx_id = $3) AND (idx = $4))", p)
		}
	})
}
