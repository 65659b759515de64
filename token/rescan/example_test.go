package rescan_test

import (
	"context"
	"fmt"
	"math/big"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/toyledger"
	"dongate/token/rescan"
)

// A node that lost its database has its wallets again, and asks the ledger what is in them.
func Example() {
	ctx, ledger := context.Background(), toyledger.New()
	ledger.Submit(toyledger.Issue("tx1", "bank", "alice", big.NewInt(100)).Raw)
	ledger.Submit(toyledger.Pay("tx2", "alice", "mallory", big.NewInt(30), big.NewInt(100), token.ID{TxID: "tx1"}).Raw)
	ledger.Submit(toyledger.Issue("tx3", "bank", "mallory", big.NewInt(5)).Raw)

	db := must(storage.Open(ctx, storage.Config{Driver: storage.DriverMemory}))
	check(db.Migrate(ctx, token.Tables(toyledger.Prefix)))
	n := must(toyledger.NewNode(db, db, "alice")) // puts the stores and services together, see the example of package ttx
	fmt.Println("before:", must(n.Tokens.Balance(ctx, "alice", "USD")))

	progress := func(p rescan.Progress) {
		fmt.Printf("%d read, %d of them ours, next is block %d\n", p.Transactions, p.Ours, p.Next)
	}
	must(n.Rescan.Rescan(ctx, ledger, 0, n.Owns, progress))
	fmt.Println("after:", must(n.Tokens.Balance(ctx, "alice", "USD")))
	check(n.Close())
	check(db.Close())

	// Output:
	// before: 0
	// 3 read, 2 of them ours, next is block 2
	// 3 read, 2 of them ours, next is block 3
	// after: 70
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
