package tokendb

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// each runs a test on every backend, on an empty store.
func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		test(t, fresh(t, open(t), Options{}))
	})
}

func fresh(t testing.TB, db *storage.DB, o Options) *Store {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	s := New(db, prefix, o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// tok is a token of ours in the wallet.
func tok(txID string, index uint64, wallet, tokenType string, amount int64) token.Record {
	return token.Record{
		ID: token.ID{TxID: txID, Index: index}, Type: tokenType, Amount: big.NewInt(amount),
		OwnerRaw: token.Identity("raw " + wallet), OwnerType: "x509", OwnerIdentity: token.Identity("identity " + wallet), OwnerWalletID: wallet,
		Ledger: []byte("output of " + txID), LedgerMetadata: []byte("metadata of " + txID), LedgerFormat: "f1", Owner: true,
	}
}

func store(t testing.TB, s *Store, rs ...token.Record) {
	t.Helper()
	for _, r := range rs {
		require.NoError(t, s.StoreToken(t.Context(), r))
	}
}

// lock locks a token as package tokenlock does.
func lock(t testing.TB, s *Store, id token.ID, consumer string) {
	t.Helper()
	_, err := s.db.Write().ExecContext(t.Context(), "INSERT INTO "+prefix+"tkn_locks (tx_id, idx, consumer_tx_id, created_at) VALUES ($1, $2, $3, '2026-01-01 00:00:00.000')", id.TxID, int64(id.Index), consumer)
	require.NoError(t, err)
}

func id(txID string, index uint64) token.ID { return token.ID{TxID: txID, Index: index} }

// ids returns what tokens are called, in their order.
func ids[T any](t testing.TB, all []T, name func(T) token.ID) []string {
	out := []string{}
	for _, v := range all {
		out = append(out, name(v).String())
	}
	return out
}

func unspentIDs(t testing.TB, s *Store, wallet, tokenType string, limit int) []string {
	t.Helper()
	all, err := storage.Collect(s.UnspentTokensBy(t.Context(), wallet, tokenType, limit))
	require.NoError(t, err)
	return ids(t, all, func(v token.Unspent) token.ID { return v.ID })
}

func spendableIDs(t testing.TB, s *Store, q token.SpendableQuery) []string {
	t.Helper()
	all, err := storage.Collect(s.QuerySpendableTokens(t.Context(), q))
	require.NoError(t, err)
	return ids(t, all, func(v token.Spendable) token.ID { return v.ID })
}

func balance(t testing.TB, s *Store, wallet, tokenType string) string {
	t.Helper()
	b, err := s.Balance(t.Context(), wallet, tokenType)
	require.NoError(t, err)
	return b.String()
}

// plan returns how the backend runs a statement: on PostgreSQL both with these values and, should the server settle for one plan, with any.
func plan(t *testing.T, s *Store, statement query.Statement) string {
	t.Helper()
	text, args, err := statement.Format(query.For(s.db.Backend()))
	require.NoError(t, err)
	if s.db.Backend() == storage.SQLite {
		return explain(t, s.db.Read(), "EXPLAIN QUERY PLAN "+text, args, new(int), new(int), new(int), new(string))
	}
	conn, err := s.db.Read().Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	exec := func(text string) {
		_, err := conn.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	exec("SET plan_cache_mode = force_generic_plan")
	exec("PREPARE planned AS " + text)
	values := make([]string, len(args))
	for i, a := range args {
		values[i] = fmt.Sprintf("'%v'", a)
	}
	generic := explain(t, conn, "EXPLAIN EXECUTE planned("+strings.Join(values, ", ")+")", nil, new(string))
	exec("DEALLOCATE planned")
	exec("RESET plan_cache_mode")
	return explain(t, conn, "EXPLAIN "+text, args, new(string)) + "\nwith any values:\n" + generic
}

func explain(t *testing.T, q storage.Querier, text string, args []any, columns ...any) string {
	t.Helper()
	rows, err := q.QueryContext(t.Context(), text, args...)
	require.NoError(t, err, text)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		require.NoError(t, rows.Scan(columns...))
		lines = append(lines, *columns[len(columns)-1].(*string))
	}
	require.NoError(t, rows.Err())
	return strings.Join(lines, "\n")
}

// fill stores n tokens of the type USD and the amounts 1 to n, in turn for the wallets w0, w1, ….
func fill(t testing.TB, s *Store, n, wallets int) {
	t.Helper()
	amount, series := "n", fmt.Sprintf("SELECT n FROM generate_series(1, %d) AS n", n)
	zero := "decode('00', 'hex')"
	if s.db.Backend() == storage.SQLite {
		amount = "unhex(printf('%064x', n))"
		series = fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < %d) SELECT n FROM c", n)
		zero = "x'00'"
	}
	_, err := s.db.Write().ExecContext(t.Context(), "INSERT INTO "+prefix+"tokens (tx_id, idx, amount, token_type, quantity, owner_raw, owner_type, owner_identity, "+
		"owner_wallet_id, ledger, ledger_metadata, ledger_type, stored_at, owner) SELECT 'tx' || n, 0, "+amount+", 'USD', n, "+zero+", 'x509', "+zero+", "+
		fmt.Sprintf("'w' || (n %% %d)", wallets)+", "+zero+", "+zero+", 'f1', '2026-01-01 00:00:00.000', TRUE FROM ("+series+") AS numbers")
	require.NoError(t, err)
	_, err = s.db.Write().ExecContext(t.Context(), "ANALYZE")
	require.NoError(t, err)
}
