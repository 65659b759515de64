package records

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Claims, pages and movements of somebody are read in the order of an index, from the place where they begin.
func TestPlans(t *testing.T) {
	t.Parallel()
	after := token.PendingTransaction{TxID: "t", StoredAt: time.Unix(0, 0)}
	tables := newTables("n__c__s__")
	first, order := tables.listTransactions(token.TransactionsQuery{}, query.KeysetPage(0, 10))
	second, _ := tables.listTransactions(token.TransactionsQuery{}, order.Read(query.KeysetPage(0, 10), 10, storage.NewTime(time.Unix(0, 0)), "t").Next())
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables("n__c__s__")))
		for index, statement := range map[string]query.Statement{
			"requests_":           tables.pending(Claims{Owner: "x", Limit: 16}),
			"requests_ ":          tables.pending(Claims{Owner: "x", Limit: 16, After: &after}),
			"txs_stored_at":       first,
			"txs_stored_at ":      second,
			"movements_eid":       tables.listMovements(db.Backend(), token.MovementsQuery{EnrollmentIDs: []string{"alice"}, NumRecords: 10}),
			"movements_stored_at": tables.listMovements(db.Backend(), token.MovementsQuery{NumRecords: 10}),
		} {
			plan := explain(t, db, statement)
			require.Contains(t, plan, "n__c__s__"+strings.TrimSpace(index))
			for _, sort := range []string{"TEMP B-TREE", "Sort"} {
				require.NotContains(t, plan, sort, index)
			}
		}
	})
}

// Holdings are added up where they are, not in memory, on the backend that can (weakness 9).
func TestSumsAreTheDatabases(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverPostgres))
	require.NoError(t, db.Migrate(t.Context(), token.Tables("n__c__s__")))
	tables := newTables("n__c__s__")
	plan := explain(t, db, tables.sumMovements(storage.Postgres, token.MovementsQuery{EnrollmentIDs: []string{"alice"}, MovementDirection: token.AllMovements}))
	require.Contains(t, plan, "Aggregate")
	require.Contains(t, plan, "n__c__s__movements_eid")
}

// explain returns how the database runs a statement on tables too large to be read whole.
func explain(t *testing.T, db *storage.DB, statement query.Statement) string {
	text, args, err := statement.Format(query.For(db.Backend()))
	require.NoError(t, err)
	tx, err := db.Write().BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	prefix, scan := "EXPLAIN QUERY PLAN ", []any{new(int), new(int), new(int), new(string)}
	if db.Backend() == storage.Postgres {
		prefix, scan = "EXPLAIN ", []any{new(string)}
		for _, off := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"} {
			_, err := tx.Exec("SET LOCAL " + off + " = off")
			require.NoError(t, err)
		}
	}
	rows, err := tx.Query(prefix+text, args...)
	require.NoError(t, err)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		require.NoError(t, rows.Scan(scan...))
		lines = append(lines, *scan[len(scan)-1].(*string))
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}
