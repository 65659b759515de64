package auditor_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"dongate/storage"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/internal/toyledger"
)

// An auditor lets nobody hold more than a hundred.
func Example() {
	ctx, ledger := context.Background(), toyledger.New()
	db := must(storage.Open(ctx, storage.Config{Driver: storage.DriverMemory}))
	check(db.Migrate(ctx, token.Tables(toyledger.Prefix)))
	n := must(toyledger.NewNode(db, db, "auditor")) // puts the stores and services together, see the example of package ttx

	atMost100 := func(ctx context.Context, r auditdb.Request) error {
		for _, a := range r.Actions {
			for _, o := range a.Outputs {
				held, err := n.Audits.NewHoldingsFilter().ByEnrollmentID(o.EnrollmentID).ByType(o.TokenType).Sum(ctx)
				if err != nil {
					return err
				}
				if held.Add(held, o.Amount).Cmp(big.NewInt(100)) > 0 {
					return errors.New(o.EnrollmentID + " would hold " + held.String())
				}
			}
		}
		return nil
	}
	for i, amount := range []int64{80, 30, 20} {
		tx := toyledger.Issue(fmt.Sprintf("tx%d", i), "bank", "alice", big.NewInt(amount))
		if err := n.Auditor.Audit(ctx, tx, atMost100); err != nil {
			fmt.Println(err)
			continue
		}
		status, message := ledger.Submit(tx.Raw)
		check(n.Auditor.Finish(ctx, tx.TxID, status, message))
	}
	fmt.Println("alice holds", must(n.Audits.NewHoldingsFilter().ByEnrollmentID("alice").Sum(ctx)))
	check(n.Close())
	check(db.Close())

	// Output:
	// auditing transaction "tx1": alice would hold 110
	// alice holds 100
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
