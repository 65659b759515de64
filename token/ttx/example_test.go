package ttx_test

import (
	"context"
	"fmt"
	"math/big"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/toyledger"
	"dongate/token/selector"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
	"dongate/token/tokens"
	"dongate/token/ttx"
	"dongate/token/ttxdb"
)

// node is the part of a node that owns and issues.
type node struct {
	tokens *tokendb.Store
	picks  *selector.Selector
	ttx    *ttx.Service
	close  func()
}

// openNode puts a node together, with everything in one database in memory. The identities in its wallets are called as the wallets.
func openNode(ctx context.Context, wallets ...string) node {
	db := must(storage.Open(ctx, storage.Config{Driver: storage.DriverMemory}))
	prefix := must(token.TMS{Network: "net", Channel: "main", Namespace: "usd"}.Prefix())
	check(db.Migrate(ctx, token.Tables(prefix)))

	store, locks := tokendb.New(db, prefix, tokendb.Options{}), tokenlock.New(db, prefix)
	transactions := must(ttxdb.NewStoreService(ttxdb.New(db, prefix, ttxdb.Options{}), ttxdb.ServiceOptions{Anchor: toyledger.Anchor}))
	ours := func(id token.Identity) (found []string) {
		for _, w := range wallets {
			if w == string(id) {
				found = append(found, w)
			}
		}
		return found
	}
	service := tokens.New(store, tokens.Ours{
		Owns:   func(_ context.Context, owner token.Identity) ([]string, error) { return ours(owner), nil },
		Issues: func(_ context.Context, issuer token.Identity) (bool, error) { return len(ours(issuer)) > 0, nil },
	})
	return node{
		tokens: store,
		picks:  selector.New(store, locks, selector.Options{}),
		ttx:    ttx.New(ttx.Stores{Transactions: transactions, Tokens: store, Locks: locks}, service, toyledger.Decode),
		close: func() {
			check(transactions.Close())
			check(locks.Close())
			check(store.Close())
			check(db.Close())
		},
	}
}

// run takes a transaction to its end.
func (n node) run(ctx context.Context, ledger *toyledger.Ledger, tx *tokens.Transaction) {
	check(n.ttx.Append(ctx, tx, map[string][]byte{"invoice": []byte("7")}))
	status, message := ledger.Submit(tx.Raw)
	check(n.ttx.Finish(ctx, tx.TxID, status, message))
}

func (n node) balance(ctx context.Context, wallet string) *big.Int {
	return must(n.tokens.Balance(ctx, wallet, "USD"))
}

// A bank issues, Alice pays Bob with tokens that the selector picks, and has some redeemed.
func Example() {
	ctx, ledger := context.Background(), toyledger.New()
	n := openNode(ctx, "bank", "alice", "bob")
	defer n.close()

	// Issue.
	n.run(ctx, ledger, toyledger.Issue("tx1", "bank", "alice", big.NewInt(100)))
	n.run(ctx, ledger, toyledger.Issue("tx2", "bank", "alice", big.NewInt(30)))
	fmt.Println("issued:", n.balance(ctx, "alice"))

	// Transfer: the selector locks the smallest tokens that are enough, the rest goes back.
	inputs, total, err := n.picks.Select(ctx, "tx3", "alice", "USD", big.NewInt(70))
	check(err)
	fmt.Println("picked:", inputs, "worth", total)
	n.run(ctx, ledger, toyledger.Pay("tx3", "alice", "bob", big.NewInt(70), total, inputs...))
	fmt.Println("transferred:", n.balance(ctx, "alice"), n.balance(ctx, "bob"))

	// Redeem.
	inputs, total, err = n.picks.Select(ctx, "tx4", "bob", "USD", big.NewInt(20))
	check(err)
	n.run(ctx, ledger, toyledger.Pay("tx4", "bob", "", big.NewInt(20), total, inputs...))
	fmt.Println("redeemed:", n.balance(ctx, "alice"), n.balance(ctx, "bob"), "of", must(n.tokens.IssuedBalance(ctx, "USD", nil, nil)),
		"less", must(n.tokens.RedeemedBalance(ctx, "USD", nil, nil)))

	_, _, err = n.picks.Select(ctx, "tx5", "bob", "USD", big.NewInt(51))
	fmt.Println(err)

	// Output:
	// issued: 130
	// picked: [[tx2:0] [tx1:0]] worth 130
	// transferred: 60 70
	// redeemed: 60 50 of 130 less 20
	// selecting tokens for transaction tx5: USD of wallet bob: selector: insufficient funds
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
