package rescan_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/endorserdb"
	"dongate/token/internal/toyledger"
	"dongate/token/rescan"
	"dongate/token/tokens"
)

// Tables that a rescan rebuilds, children first, and what of them is not compared: local times, generated ids, recovery's claims, and the
// application's metadata.
var (
	rebuildable = []string{"tkn_crts", "tkn_own", "tokens", "public_params", "movements", "txs", "tx_ends", "requests", "aud_movements", "aud_txs", "aud_tx_ends", "aud_requests", "req_vals"}
	leftOut     = []string{"stored_at", "spent_at", "seq", "recovery_attempts", "application_metadata"}
)

// dump returns the rows of the rebuildable tables.
func dump(t require.TestingT, dbs ...*storage.DB) (lines []string) {
	for i, db := range dbs {
		if slices.Index(dbs, db) < i {
			continue
		}
		for _, table := range rebuildable {
			order := ""
			if table == "public_params" {
				order = " ORDER BY seq"
			}
			rows, err := db.Read().QueryContext(context.Background(), "SELECT * FROM "+toyledger.Prefix+table+order)
			require.NoError(t, err)
			columns, err := rows.Columns()
			require.NoError(t, err)
			var all []string
			for rows.Next() {
				values, into := make([]any, len(columns)), make([]any, len(columns))
				for i := range values {
					into[i] = &values[i]
				}
				require.NoError(t, rows.Scan(into...))
				line := fmt.Sprintf("%d %s:", i, table)
				for i, c := range columns {
					if !slices.Contains(leftOut, c) {
						line += fmt.Sprintf(" %s=%q", c, fmt.Sprint(values[i]))
					}
				}
				all = append(all, line)
			}
			require.NoError(t, errors.Join(rows.Err(), rows.Close()))
			if order == "" {
				slices.Sort(all)
			}
			lines = append(lines, all...)
		}
	}
	return lines
}

func drop(t require.TestingT, db *storage.DB, tables ...string) {
	for _, table := range tables {
		_, err := db.Write().ExecContext(context.Background(), "DELETE FROM "+toyledger.Prefix+table)
		require.NoError(t, err, table)
	}
}

var wallets = []string{"bank", "alice", "bob", "auditor", "endorser"}

// history lets a node live through what it can live through, and returns it with its ledger.
func history(t *testing.T, tokensDB, transactionsDB *storage.DB) (*toyledger.Node, *toyledger.Ledger) {
	ctx, ledger := t.Context(), toyledger.New()
	for _, db := range []*storage.DB{tokensDB, transactionsDB} {
		require.NoError(t, db.Migrate(ctx, token.Tables(toyledger.Prefix)))
	}
	n, err := toyledger.NewNode(tokensDB, transactionsDB, wallets...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })

	live := func(tx *tokens.Transaction) {
		tx.Endorsements = []tokens.Endorsement{{Endorser: token.Identity("endorser"), Signature: []byte("signed " + tx.TxID)}}
		tx.Metadata, tx.PPHash = map[string][]byte{"public": []byte(tx.TxID)}, []byte("hash")
		tx = toyledger.Request(*tx)
		if tx.PublicParams != nil {
			require.NoError(t, n.Tokens.StorePublicParams(ctx, tx.PublicParams))
		}
		approve := func(context.Context, auditdb.Request) error { return nil }
		audited := n.Auditor.Audit(ctx, tx, approve)
		require.NoError(t, n.Validations.InTx(ctx, func(ctx context.Context, x *endorserdb.Tx) error {
			return x.AddValidationRecord(ctx, tx.TxID, tx.Raw, tx.Metadata, tx.PPHash)
		}))
		require.NoError(t, n.TTX.Append(ctx, tx, map[string][]byte{"private": []byte(tx.TxID)}))
		require.NoError(t, n.Transactions.AddTransactionEndorsementAck(ctx, tx.TxID, tx.Endorsements[0].Endorser, tx.Endorsements[0].Signature))
		require.NoError(t, audited)
		require.NoError(t, n.Audits.AddTransactionEndorsementAck(ctx, tx.TxID, tx.Endorsements[0].Endorser, tx.Endorsements[0].Signature))
		status, message := ledger.Submit(tx.Raw)
		require.NoError(t, n.TTX.Finish(ctx, tx.TxID, status, message))
		require.NoError(t, n.Auditor.Finish(ctx, tx.TxID, status, message))
		require.NoError(t, n.Validations.SetStatus(ctx, tx.TxID, status, message))
	}
	setup := func(txID, params string) {
		tx := toyledger.Issue(txID, "bank", "alice", big.NewInt(1))
		tx.PublicParams = []byte(params)
		live(tx)
	}
	setup("setup1", "parameters 1")
	for i := range 4 {
		tx := toyledger.Issue(fmt.Sprintf("issue%d", i), "bank", wallets[1+i%2], new(big.Int).Lsh(big.NewInt(3), uint(i*80)))
		tx.Actions[0].Outputs[0].Certification = []byte("certified")
		live(tx)
	}
	live(toyledger.Issue("shared", "bank", "alice+bob", big.NewInt(7)))
	foreign := toyledger.Issue("foreign", "bank", "alice", big.NewInt(9))
	foreign.Actions[0].Outputs[0].LedgerFormat = "unknown"
	live(foreign)
	setup("setup2", "parameters 2")
	for i, to := range []string{"bob", "mallory", "", "alice"} {
		txID := fmt.Sprintf("pay%d", i)
		inputs, total, err := n.Selector.Select(ctx, txID, "alice", "USD", big.NewInt(int64(2+i)))
		require.NoError(t, err)
		if to == "bob" {
			ledger.Submit(toyledger.Pay("thief", "alice", "mallory", total, total, inputs...).Raw)
		}
		live(toyledger.Pay(txID, "alice", to, big.NewInt(int64(2+i)), total, inputs...))
	}
	ledger.Submit(toyledger.Issue("elsewhere", "another bank", "mallory", big.NewInt(5)).Raw)
	_, err = n.Rescan.Rescan(ctx, ledger, 0, n.Owns, nil) // what was not heard of
	require.NoError(t, err)
	return n, ledger
}

// cut is a ledger that fails after some transactions.
type cut struct {
	rescan.Ledger
	after int
}

var errCut = errors.New("the line is cut")

func (c cut) Transactions(ctx context.Context, from uint64) iter.Seq2[tokens.Transaction, error] {
	return func(yield func(tokens.Transaction, error) bool) {
		n := 0
		for tx, err := range c.Ledger.Transactions(ctx, from) {
			if n++; n > c.after {
				yield(tokens.Transaction{}, errCut)
				return
			}
			if !yield(tx, err) {
				return
			}
		}
	}
}

func TestRescanRebuildsWhatWasLost(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		for _, apart := range []bool{false, true} {
			t.Run(map[bool]string{false: "one database", true: "two databases"}[apart], func(t *testing.T) {
				db := open(t)
				other := db
				if apart {
					other = storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
				}
				drop := func(t require.TestingT, tables ...string) {
					drop(t, db, tables...)
					if apart {
						drop(t, other, tables...)
					}
				}
				require.NoError(t, other.Migrate(t.Context(), token.Tables(toyledger.Prefix)))
				require.NoError(t, db.Migrate(t.Context(), token.Tables(toyledger.Prefix)))
				drop(t, rebuildable...) // those of a test before, on the same database
				n, ledger := history(t, db, other)
				want := dump(t, db, other)
				for _, table := range rebuildable {
					require.True(t, slices.ContainsFunc(want, func(line string) bool { return strings.Contains(line, " "+table+":") }), "nothing in %s", table)
				}
				again := func(t require.TestingT, l rescan.Ledger, from uint64) (rescan.Progress, error) {
					return n.Rescan.Rescan(context.Background(), l, from, n.Owns, nil)
				}

				// Repeated over what is there.
				_, err := again(t, ledger, 0)
				require.NoError(t, err)
				require.Equal(t, want, dump(t, db, other))

				// Everything lost.
				drop(t, rebuildable...)
				p, err := again(t, ledger, 0)
				require.NoError(t, err)
				require.Equal(t, want, dump(t, db, other))
				require.Equal(t, rescan.Progress{Next: ledger.Height(), Transactions: int(ledger.Height()), Ours: int(ledger.Height())}, p)

				if apart && db.Backend() == storage.Postgres {
					return // what follows takes long
				}
				// Some lost, and interrupted anywhere, by the ledger or by its caller, then continued or repeated.
				rapid.Check(t, func(r *rapid.T) {
					drop(r, rapid.SliceOfDistinct(rapid.SampledFrom(slices.DeleteFunc(slices.Clone(rebuildable), func(s string) bool { return s == "public_params" })), rapid.ID[string]).Draw(r, "lost")...)
					if rapid.Bool().Draw(r, "all params lost") {
						drop(r, "public_params")
					}
					var from uint64
					for range rapid.IntRange(0, 2).Draw(r, "interruptions") {
						after := rapid.IntRange(0, int(ledger.Height())).Draw(r, "after")
						var p rescan.Progress
						var err error
						if rapid.Bool().Draw(r, "cancelled") {
							ctx, cancel := context.WithCancel(context.Background())
							p, err = n.Rescan.Rescan(ctx, ledger, from, n.Owns, func(p rescan.Progress) {
								if p.Transactions >= after {
									cancel()
								}
							})
							cancel()
						} else {
							p, err = again(r, cut{ledger, after}, from)
						}
						if from = 0; rapid.Bool().Draw(r, "continued") || err == nil {
							from = p.Next
						}
					}
					_, err := again(r, ledger, from)
					require.NoError(r, err)
					require.Equal(r, want, dump(r, db, other))
				})
			})
		}
	})
}

func TestPublicParamsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		n, ledger := history(t, db, db)
		latest := func() string {
			raw, err := n.Tokens.PublicParams(t.Context())
			require.NoError(t, err)
			return string(raw)
		}
		// Only the newest are there: older ones are not put behind them.
		drop(t, db, "public_params")
		require.NoError(t, n.Tokens.StorePublicParams(t.Context(), []byte("parameters 2")))
		p, err := n.Rescan.Rescan(t.Context(), ledger, 0, n.Owns, nil)
		require.NoError(t, err)
		require.Equal(t, 1, p.LeftOut)
		require.Equal(t, "parameters 2", latest())

		// Only the oldest are there, and the rescan begins behind them; interrupted, it says from where to go on.
		drop(t, db, "public_params")
		require.NoError(t, n.Tokens.StorePublicParams(t.Context(), []byte("parameters 1")))
		p, err = n.Rescan.Rescan(t.Context(), cut{ledger, 12}, 1, n.Owns, nil)
		require.ErrorIs(t, err, errCut)
		p, err = n.Rescan.Rescan(t.Context(), ledger, p.Next, n.Owns, nil)
		require.NoError(t, err)
		require.Equal(t, ledger.Height(), p.Next)
		require.Equal(t, "parameters 2", latest())
	})
}

func TestPendingAndOrphansAreFinished(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx, db := t.Context(), open(t)
		n, ledger := history(t, db, db)
		tx := []*tokens.Transaction{toyledger.Issue("p", "bank", "bob", big.NewInt(1)), toyledger.Issue("o", "bank", "bob", big.NewInt(1)), toyledger.Issue("d", "bank", "bob", big.NewInt(1))}
		for i, status := range []token.TxStatus{token.Pending, token.Orphan, token.Deleted} {
			require.NoError(t, n.TTX.Append(ctx, tx[i], nil))
			require.NoError(t, n.TTX.Finish(ctx, tx[i].TxID, status, ""))
			ledger.Submit(tx[i].Raw)
		}
		before, err := n.Tokens.Balance(ctx, "bob", "USD")
		require.NoError(t, err)
		p, err := n.Rescan.Rescan(ctx, ledger, 0, n.Owns, nil)
		require.ErrorIs(t, err, rescan.ErrConflict) // one was given up here, and is on the ledger
		require.ErrorIs(t, err, token.ErrAlreadyFinal)
		require.Equal(t, 1, p.Conflicts)
		statuses, err := n.Transactions.GetStatuses(ctx, "p", "o", "d")
		require.NoError(t, err)
		require.Equal(t, []token.TxStatus{token.Confirmed, token.Confirmed, token.Deleted}, []token.TxStatus{statuses["p"].Status, statuses["o"].Status, statuses["d"].Status})
		after, err := n.Tokens.Balance(ctx, "bob", "USD")
		require.NoError(t, err)
		require.Equal(t, "3", after.Sub(after, before).String(), "what the ledger says of tokens counts")
	})
}

// bad is a ledger that yields these.
type bad []tokens.Transaction

func (b bad) Transactions(context.Context, uint64) iter.Seq2[tokens.Transaction, error] {
	return func(yield func(tokens.Transaction, error) bool) {
		for _, tx := range b {
			if !yield(tx, nil) {
				return
			}
		}
	}
}

func TestWhatTheLedgerMustNotYield(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	n, _ := history(t, db, db)
	ok := *toyledger.Issue("ok", "bank", "bob", big.NewInt(1))
	ok.Block, ok.Status = 7, token.Confirmed
	with := func(change func(tx *tokens.Transaction)) tokens.Transaction {
		tx := *toyledger.Issue("other", "bank", "bob", big.NewInt(1))
		tx.Block, tx.Status = 7, token.Confirmed
		change(&tx)
		return tx
	}
	want := dump(t, db)
	for name, tx := range map[string]tokens.Transaction{
		"no id":        with(func(tx *tokens.Transaction) { tx.TxID = "" }),
		"block before": with(func(tx *tokens.Transaction) { tx.Block = 6 }),
		"pending":      with(func(tx *tokens.Transaction) { tx.Status = token.Pending }),
		"other anchor": with(func(tx *tokens.Transaction) { tx.TxID = "x" }),
	} {
		p, err := n.Rescan.Rescan(t.Context(), bad{ok, tx}, 3, n.Owns, nil)
		if name == "other anchor" {
			require.ErrorIs(t, err, token.ErrIntegrity, name)
		} else {
			require.ErrorIs(t, err, rescan.ErrLedger, name)
		}
		require.Equal(t, uint64(3), p.Next, name)
		require.Equal(t, want, dump(t, db), name)
	}
	_, err := rescan.New(rescan.Stores{}, rescan.Options{})
	require.ErrorIs(t, err, token.ErrEmptyArgument)
}
