package tokendb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
)

var durable = []string{storage.DriverSQLite, storage.DriverPostgres}

func benchStore(b *testing.B, driver string) *Store {
	return fresh(b, storagetest.Open(b, storagetest.Config(b, driver)), Options{})
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	err := f()
	d := time.Since(start)
	require.NoError(b, err)
	return d
}

func median(v []time.Duration) time.Duration {
	slices.Sort(v)
	return v[len(v)/2]
}

// report says how long what is measured takes and how fast it is compared with the floor, from medians of what took turns.
func report(b *testing.B, measured, floor []time.Duration) {
	m, f := median(measured), median(floor)
	b.ReportMetric(float64(m.Nanoseconds()), "ns/op")
	b.ReportMetric(float64(f)/float64(m), "x-floor")
}

// BenchmarkStoreToken is a transaction that stores two tokens with an owner each and spends one, over the bare driver doing the same
// statements. The spec's figure: x-floor of at least 0.7.
func BenchmarkStoreToken(b *testing.B) {
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			texts := []string{}
			capture := func(statement query.Statement) {
				text, _, err := statement.Format(query.For(s.db.Backend()))
				require.NoError(b, err)
				texts = append(texts, text)
			}
			t := &s.t
			zero := []byte{0}
			capture(query.InsertInto(t.tokens).Row(t.txID.Set(""), t.idx.Set(0), t.amount.Set(""), t.tokenType.Set(""), t.quantity.Set(""), t.issuerRaw.SetNull(), t.ownerRaw.Set(zero),
				t.ownerType.Set(""), t.ownerIdentity.Set(zero), t.ownerWallet.Set(""), t.ledger.Set(zero), t.ledgerMetadata.Set(zero), t.ledgerType.Set(""), t.storedAt.Set(storage.Time{}),
				t.owner.Set(true), t.auditor.Set(false), t.issuer.Set(false), t.redeemed.Set(false)).OnConflict(t.txID, t.idx).DoNothing())
			capture(query.InsertInto(t.own).Row(t.ownTxID.Set(""), t.ownIdx.Set(0), t.ownWallet.Set("")).OnConflict(t.ownTxID, t.ownIdx, t.ownWallet).DoNothing())
			capture(query.Update(t.tokens).Set(t.isDeleted.Set(true), t.spentBy.Set(""), t.spentAt.SetNow(0)).
				Where(query.And(query.InPairs(t.txID, t.idx, query.Pair[string, int64]{}), query.Not(query.IsTrue(t.isDeleted)))))
			var measured, floor []time.Duration
			for n := range max(b.N, 200) {
				txID, bare, previous := fmt.Sprint("tx", n), fmt.Sprint("bare", n), fmt.Sprint("tx", n-1)
				r := tok(txID, 0, "alice", "USD", int64(n))
				measured = append(measured, timed(b, func() error {
					return s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
						for i := range uint64(2) {
							r.Index = i
							if err := tx.StoreToken(ctx, r, "bob"); err != nil {
								return err
							}
						}
						return tx.DeleteTokens(ctx, txID, id(previous, 0))
					})
				}))
				amount, err := token.Amount(r.Amount)
				require.NoError(b, err)
				floor = append(floor, timed(b, func() error {
					return storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
						for i := range 2 {
							if _, err := tx.ExecContext(ctx, texts[0], bare, i, amount.Bind(s.db.Backend()), r.Type, "0x1", nil, []byte(r.OwnerRaw), r.OwnerType, []byte(r.OwnerIdentity), r.OwnerWalletID,
								r.Ledger, r.LedgerMetadata, string(r.LedgerFormat), storage.NewTime(time.Now()), true, false, false, false); err != nil {
								return err
							}
							if _, err := tx.ExecContext(ctx, texts[1], bare, i, "bob"); err != nil {
								return err
							}
						}
						_, err := tx.ExecContext(ctx, texts[2], true, bare, fmt.Sprint("bare", n-1), 0)
						return err
					})
				}))
			}
			report(b, measured, floor)
		})
	}
}

// BenchmarkPointRead is the look at one token, prepared, over the same statement unprepared. The spec's figure: x-floor of at least 1.3 on
// SQLite, and 1 on PostgreSQL, whose driver prepares by itself.
func BenchmarkPointRead(b *testing.B) {
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			fill(b, s, 10_000, 10)
			which := func(n int) query.Statement {
				return query.Select(query.Literal(1)).From(s.t.tokens).Where(query.And(s.t.txID.Eq(fmt.Sprint("tx", 1+n%10_000)), s.t.idx.Eq(0), s.t.unspent())).Limit(1)
			}
			read := func(q storage.Querier, n int) error {
				for _, err := range list(ctx, s, "", q, which(n), storage.Column[int]) {
					return err
				}
				return sql.ErrNoRows
			}
			var measured, floor []time.Duration
			for n := range max(b.N, 2000) {
				measured = append(measured, timed(b, func() error { return read(s.db.Prepared(), n) }))
				floor = append(floor, timed(b, func() error { return read(s.db.Read(), n) }))
			}
			report(b, measured, floor)
		})
	}
}

// BenchmarkBalance is the reference's case: the balance of 1000 tokens, prepared, over the same unprepared.
func BenchmarkBalance(b *testing.B) {
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			fill(b, s, 1000, 1)
			unprepared := fresh(b, s.db.DB, Options{})
			require.NoError(b, unprepared.Close())
			var measured, floor []time.Duration
			for range max(b.N, 200) {
				measured = append(measured, timed(b, func() error { _, err := s.Balance(ctx, "w0", "USD"); return err }))
				floor = append(floor, timed(b, func() error { _, err := unprepared.Balance(ctx, "w0", "USD"); return err }))
			}
			report(b, measured, floor)
		})
	}
}

// BenchmarkWallet is the reference's case: the tokens of one of 100 wallets among 220 000 live tokens, over the same with the two places
// of ownership in one condition, as it was before it had two branches.
func BenchmarkWallet(b *testing.B) {
	for _, driver := range durable {
		b.Run(driver, func(b *testing.B) {
			s, ctx := benchStore(b, driver), context.Background()
			fill(b, s, 220_000, 100)
			_, err := s.db.Write().ExecContext(ctx, "INSERT INTO "+prefix+"tkn_own (tx_id, idx, wallet_id) SELECT tx_id, idx, 'other' || owner_wallet_id FROM "+prefix+"tokens")
			require.NoError(b, err)
			_, err = s.db.Write().ExecContext(ctx, "ANALYZE")
			require.NoError(b, err)
			t := &s.t
			before := query.SelectDistinct(t.txID, t.idx, t.amount).From(t.tokens).LeftJoin(t.own, query.And(t.txID.EqColumn(t.ownTxID), t.idx.EqColumn(t.ownIdx))).
				Where(query.And(query.Or(t.ownerWallet.Eq("w7"), t.ownWallet.Eq("w7")), t.unspent()))
			var measured, floor []time.Duration
			for range max(b.N, 3) {
				measured = append(measured, timed(b, func() error {
					all, err := storage.Collect(s.UnspentTokensBy(ctx, "w7", "", 0))
					require.Len(b, all, 2200)
					return err
				}))
				floor = append(floor, timed(b, func() error {
					all, err := storage.Collect(list(ctx, s, "", s.db.Read(), before, func(rows *sql.Rows) (id token.ID, err error) {
						var amount storage.Amount
						err = rows.Scan(&id.TxID, &id.Index, &amount)
						return id, err
					}))
					require.Len(b, all, 2200)
					return err
				}))
			}
			report(b, measured, floor)
		})
	}
}
