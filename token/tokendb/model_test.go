package tokendb

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
)

// twin does what a Store does, in memory and without any cleverness.
type twin map[token.ID]*twinToken

type twinToken struct {
	wallet, tokenType string
	owners            []string
	amount            *big.Int
	spent             bool
}

func (w twin) clone() twin {
	c := twin{}
	for id, t := range w {
		v := *t
		c[id] = &v
	}
	return c
}

func (t *twinToken) of(wallet string) bool {
	return t.wallet == wallet || slices.Contains(t.owners, wallet)
}

func (w twin) balance(wallet, tokenType string) *big.Int {
	sum := new(big.Int)
	for _, t := range w {
		if !t.spent && t.of(wallet) && (tokenType == "" || t.tokenType == tokenType) {
			sum.Add(sum, t.amount)
		}
	}
	return sum
}

// spendable returns what the wallet alone can spend, least first.
func (w twin) spendable(wallet, tokenType string) (amounts []string) {
	var all []*big.Int
	for _, t := range w {
		if !t.spent && t.wallet == wallet && t.tokenType == tokenType {
			all = append(all, t.amount)
		}
	}
	slices.SortFunc(all, (*big.Int).Cmp)
	for _, a := range all {
		amounts = append(amounts, a.String())
	}
	return amounts
}

var errCrash = errors.New("the process died")

// Whatever is issued, transferred, redeemed, replayed and rolled back, every wallet's balance is exact, and what it can spend is what
// the balance says.
func TestBalancesAreTheModels(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		s := fresh(t, db, Options{})
		rapid.Check(t, func(r *rapid.T) {
			for _, table := range []string{"tkn_own", "tokens"} {
				_, err := db.Write().ExecContext(t.Context(), "DELETE FROM "+prefix+table)
				require.NoError(r, err)
			}
			machine{t, r, s, twin{}}.sequence()
		})
	})
}

type machine struct {
	*testing.T
	r     *rapid.T
	s     *Store
	model twin
}

var (
	modelWallets = []string{"alice", "bob", "carol"}
	modelTypes   = []string{"USD", "EUR"}
)

// amount draws an amount up to 2^255, the edges often.
func (m machine) amount() *big.Int {
	one := big.NewInt(1)
	v := new(big.Int).Lsh(one, uint(rapid.SampledFrom([]int{0, 1, 31, 32, 52, 53, 62, 63, 64, 65, 127, 128, 254, 255}).Draw(m.r, "bits")))
	switch rapid.IntRange(0, 2).Draw(m.r, "edge") {
	case 0:
		v.Sub(v, one)
	case 1:
		v.Sub(v, big.NewInt(rapid.Int64Range(0, 1000).Draw(m.r, "less")))
		v.Abs(v)
	}
	return v
}

func (m machine) sequence() {
	steps := rapid.IntRange(1, 12).Draw(m.r, "steps")
	for n := range steps {
		after := m.model.clone()
		var outputs []token.Record
		var owners [][]string
		var inputs []token.ID
		txID := "tx" + string(rune('a'+n))
		out := func(redeemed bool) {
			rec := tok(txID, uint64(len(outputs)), rapid.SampledFrom(modelWallets).Draw(m.r, "wallet"), rapid.SampledFrom(modelTypes).Draw(m.r, "type"), 0)
			rec.Amount, rec.Redeemed, rec.Owner = m.amount(), redeemed, !redeemed
			more := rapid.SliceOfNDistinct(rapid.SampledFrom(modelWallets), 0, 2, rapid.ID[string]).Draw(m.r, "owners")
			if redeemed {
				more, rec.OwnerWalletID = nil, ""
			} else if len(more) > 0 && rapid.Bool().Draw(m.r, "shared") {
				rec.OwnerWalletID = ""
			}
			outputs, owners = append(outputs, rec), append(owners, more)
			if !redeemed {
				if _, known := after[rec.ID]; !known {
					after[rec.ID] = &twinToken{rec.OwnerWalletID, rec.Type, more, rec.Amount, false}
				}
			}
		}
		action := rapid.SampledFrom([]token.ActionType{token.Issue, token.Transfer, token.Redeem}).Draw(m.r, "action")
		if action != token.Issue {
			var all []token.ID
			for id := range m.model {
				all = append(all, id)
			}
			slices.SortFunc(all, func(a, b token.ID) int { return slices.Compare([]string{a.String()}, []string{b.String()}) })
			if len(all) > 0 {
				inputs = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, min(3, len(all)), rapid.ID[token.ID]).Draw(m.r, "inputs")
			}
			for _, id := range inputs {
				after[id].spent = true
			}
		}
		for range rapid.IntRange(1, 3).Draw(m.r, "outputs") {
			out(action == token.Redeem && rapid.Bool().Draw(m.r, "burnt"))
		}
		write := func(ctx context.Context, tx *Tx) error {
			for i, rec := range outputs {
				if err := tx.StoreToken(ctx, rec, owners[i]...); err != nil {
					return err
				}
			}
			return tx.DeleteTokens(ctx, txID, inputs...)
		}
		times := rapid.IntRange(0, 2).Draw(m.r, "times") // 0: it dies before the end, 2: replayed
		if times == 0 {
			require.ErrorIs(m.r, m.s.InTx(m.Context(), func(ctx context.Context, tx *Tx) error {
				return errors.Join(write(ctx, tx), errCrash)
			}), errCrash)
		} else {
			for range times {
				require.NoError(m.r, m.s.InTx(m.Context(), write))
			}
			m.model = after
		}
		wallet := rapid.SampledFrom(modelWallets).Draw(m.r, "compared")
		m.compare(wallet, rapid.SampledFrom(modelTypes).Draw(m.r, "compared type"))
	}
	for _, wallet := range modelWallets {
		m.compare(wallet, modelTypes...)
	}
}

func (m machine) compare(wallet string, types ...string) {
	for _, tokenType := range append([]string{""}, types...) {
		got, err := m.s.Balance(m.Context(), wallet, tokenType)
		require.NoError(m.r, err)
		require.Equal(m.r, m.model.balance(wallet, tokenType).String(), got.String(), "%s's %s", wallet, tokenType)
	}
	for _, tokenType := range types {
		var amounts []string
		sum := new(big.Int)
		for v, err := range m.s.SpendableTokensBy(m.Context(), wallet, tokenType) {
			require.NoError(m.r, err)
			amounts = append(amounts, v.Amount.String())
			sum.Add(sum, v.Amount)
		}
		require.Equal(m.r, m.model.spendable(wallet, tokenType), amounts)
		enough, err := m.s.HasEnoughSpendableTokens(m.Context(), wallet, tokenType, sum)
		require.NoError(m.r, err)
		require.True(m.r, enough)
		enough, err = m.s.HasEnoughSpendableTokens(m.Context(), wallet, tokenType, sum.Add(sum, big.NewInt(1)))
		require.NoError(m.r, err)
		require.False(m.r, enough)
	}
}
