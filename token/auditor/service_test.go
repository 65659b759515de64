package auditor_test

import (
	"context"
	"errors"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/auditor"
	"dongate/token/internal/toyledger"
	"dongate/token/tokendb"
	"dongate/token/tokens"
)

func node(t *testing.T, db *storage.DB, wallets ...string) *toyledger.Node {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(toyledger.Prefix)))
	n, err := toyledger.NewNode(db, db, wallets...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

func approve(context.Context, auditdb.Request) error { return nil }

func TestAudit(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx, n := t.Context(), node(t, open(t), "auditor")
		issue := toyledger.Issue("issue", "bank", "alice", big.NewInt(10))
		coin := token.ID{TxID: "issue"}
		holdings := func(eid string) string {
			sum, err := n.Audits.NewHoldingsFilter().ByEnrollmentID(eid).Sum(ctx)
			require.NoError(t, err)
			return sum.String()
		}

		refused := errors.New("refused")
		require.ErrorIs(t, n.Auditor.Audit(ctx, issue, func(context.Context, auditdb.Request) error { return refused }), refused)
		require.Equal(t, "0", holdings("alice"), "nothing is stored of what was refused")
		require.NoError(t, n.Auditor.Audit(ctx, issue, approve), "and its locks are free")
		require.NoError(t, n.Auditor.Audit(ctx, issue, approve), "it may come again")
		require.Equal(t, "10", holdings("alice"))

		pay := func(txID string) *tokens.Transaction {
			return toyledger.Pay(txID, "alice", "bob", big.NewInt(4), big.NewInt(10), coin)
		}
		require.ErrorIs(t, n.Auditor.Audit(ctx, pay("early"), approve), tokendb.ErrMissing, "its input is not confirmed")
		require.NoError(t, n.Auditor.Finish(ctx, "issue", token.Confirmed, ""))
		require.ErrorIs(t, n.Auditor.Finish(ctx, "issue", token.Deleted, ""), token.ErrAlreadyFinal)
		require.ErrorIs(t, n.Auditor.Finish(ctx, "unknown", token.Confirmed, ""), token.ErrUnknownTransaction)

		lie := pay("lie")
		lie.Actions[0].Inputs[0].Type, lie.Actions[0].Inputs[0].Amount = "USD", big.NewInt(11)
		require.ErrorIs(t, n.Auditor.Audit(ctx, toyledger.Request(*lie), approve), auditor.ErrInput)

		require.NoError(t, n.Auditor.Audit(ctx, pay("pay"), func(ctx context.Context, r auditdb.Request) error {
			require.Equal(t, []string{"alice", "bob"}, r.EnrollmentIDs())
			require.Equal(t, "10", holdings("alice"), "without this one")
			return nil
		}))
		require.Equal(t, "6", holdings("alice"))
		require.Equal(t, "4", holdings("bob"))
		require.NoError(t, n.Auditor.Audit(ctx, pay("pay2"), approve), "only the ledger says which of the two")
		require.NoError(t, n.Auditor.Finish(ctx, "pay", token.Confirmed, ""))
		require.NoError(t, n.Auditor.Audit(ctx, pay("pay"), approve), "its input is spent by itself")
		require.ErrorIs(t, n.Auditor.Audit(ctx, pay("pay3"), approve), token.ErrTokenSpent)
		require.NoError(t, n.Auditor.Finish(ctx, "pay2", token.Deleted, "spent"))
		require.Equal(t, "6", holdings("alice"))

		all, err := n.Tokens.ListAuditTokens(ctx, token.ID{TxID: "pay", Index: 0}, token.ID{TxID: "pay", Index: 1}, coin)
		require.NoError(t, err)
		require.Equal(t, []string{"4", "6", "10"}, []string{all[0].Amount.String(), all[1].Amount.String(), all[2].Amount.String()})
		balance, err := n.Tokens.Balance(ctx, "", "")
		require.NoError(t, err)
		require.Zero(t, balance.Sign(), "none of it is ours")
	})
}

// A node that owns and audits writes a token once, whichever of the two hears of its end first.
func TestOwnerAndAuditorShareTokens(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx, n := t.Context(), node(t, open(t), "auditor", "alice", "bank")
		for i, finish := range [][]func(context.Context, string, token.TxStatus, string) error{{n.TTX.Finish, n.Auditor.Finish}, {n.Auditor.Finish, n.TTX.Finish}} {
			tx := toyledger.Issue([]string{"a", "b"}[i], "bank", "alice", big.NewInt(5))
			require.NoError(t, n.Auditor.Audit(ctx, tx, approve))
			require.NoError(t, n.TTX.Append(ctx, tx, nil))
			for _, f := range finish {
				require.NoError(t, f(ctx, tx.TxID, token.Confirmed, ""))
			}
			_, err := n.Tokens.ListAuditTokens(ctx, token.ID{TxID: tx.TxID})
			require.NoError(t, err)
			mine, err := n.Tokens.IsMine(ctx, token.ID{TxID: tx.TxID})
			require.NoError(t, err)
			require.True(t, mine)
		}
		issued, err := n.Tokens.IssuedBalance(ctx, "USD", nil, nil)
		require.NoError(t, err)
		require.Equal(t, "10", issued.String())
	})
}

func TestNotOurs(t *testing.T) {
	t.Parallel()
	n := node(t, storagetest.Open(t, storagetest.Config(t, storage.DriverMemory)), "alice")
	require.ErrorIs(t, n.Auditor.Audit(t.Context(), toyledger.Issue("tx", "bank", "alice", big.NewInt(1)), approve), auditor.ErrNotOurs)
}
