package tokendb

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
)

// planRows is how many tokens make a plan worth something: PostgreSQL's depend on it.
func planRows(s *Store) int {
	if s.db.Backend() == storage.SQLite {
		return 2000
	}
	return 20_000
}

// What the selector reads comes out of the partial index in its order, from where it begins, whatever is locked and however large the wallet.
func TestSpendablePlan(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fill(t, s, planRows(s), 2)
		s.SetSupportedTokenFormats("f1", "f2")
		ctx := t.Context()
		_, err := s.db.Write().ExecContext(ctx, "INSERT INTO "+prefix+"tkn_locks (tx_id, idx, consumer_tx_id, created_at) SELECT tx_id, idx, 'c', '2026-01-01 00:00:00.000' FROM "+prefix+"tokens LIMIT 500")
		require.NoError(t, err)
		after := &token.Spendable{ID: id("tx501", 0), Amount: big.NewInt(501)}
		queries := map[string]token.SpendableQuery{
			"window":       {Order: token.Ascending, Limit: 64},
			"next window":  {Order: token.Ascending, Limit: 64, After: after},
			"bounds":       {Order: token.Ascending, Limit: 64, Min: big.NewInt(100), Max: big.NewInt(4000)},
			"largest":      {Order: token.Descending, Limit: 64, Max: big.NewInt(4000)},
			"next largest": {Order: token.Descending, Limit: 64, After: after},
			"large window": {Order: token.Ascending, Limit: maxWindow},
		}
		for _, analysed := range []bool{false, true} {
			if analysed {
				_, err := s.db.Write().ExecContext(ctx, "ANALYZE")
				require.NoError(t, err)
			}
			for name, q := range queries {
				q.WalletID, q.Type = "w1", "USD"
				statement, err := s.spendableStatement(q)
				require.NoError(t, err)
				p := plan(t, s, statement)
				require.Contains(t, p, prefix+"tokens_spendable_amount", "%s\n%s", name, p)
				require.NotContains(t, p, "Sort", "%s\n%s", name, p)
				require.NotContains(t, p, "TEMP B-TREE", "%s\n%s", name, p)
				if s.db.Backend() == storage.SQLite && (q.Min != nil || q.Max != nil || q.After != nil) {
					require.Regexp(t, `owner_wallet_id=\? AND token_type=\? AND (amount[<>]|\(amount,tx_id,idx\)[<>])`, p, name)
				}
			}
		}
	})
}

// A wallet's tokens are read from the index of each of the two places where its ownership is said.
func TestWalletPlan(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		fill(t, s, planRows(s), planRows(s)/10)
		_, err := s.db.Write().ExecContext(t.Context(), "INSERT INTO "+prefix+"tkn_own (tx_id, idx, wallet_id) SELECT tx_id, idx, owner_wallet_id FROM "+prefix+"tokens")
		require.NoError(t, err)
		_, err = s.db.Write().ExecContext(t.Context(), "ANALYZE")
		require.NoError(t, err)
		for _, tokenType := range []string{"", "USD"} {
			p := plan(t, s, query.UnionAll(s.wallet("w1", tokenType, query.Cond{}, s.t.amount)...))
			require.Contains(t, p, prefix+"tkn_own_wallet", p)
			require.True(t, strings.Contains(p, prefix+"tokens_owner_live") || strings.Contains(p, prefix+"tokens_spendable_amount"), p)
			require.NotContains(t, p, "Seq Scan", p)
			require.NotRegexp(t, `SCAN \S*tokens`, p)
		}
	})
}
