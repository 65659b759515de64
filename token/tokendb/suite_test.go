package tokendb

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestTransaction(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.StoreToken(ctx, tok("tx1", 0, "alice", "USD", 5), "bob", "alice"))
		got, owners, err := tx.GetToken(ctx, id("tx1", 0), false)
		require.NoError(t, err)
		require.Equal(t, &token.Token{ID: id("tx1", 0), Owner: token.Identity("raw alice"), Type: "USD", Quantity: "0x5", Amount: big.NewInt(5)}, got)
		require.Equal(t, []string{"alice", "bob"}, owners)
		require.NoError(t, tx.Delete(ctx, id("tx1", 0), "me"))
		got, owners, err = tx.GetToken(ctx, id("tx1", 0), false)
		require.NoError(t, err)
		require.Nil(t, got)
		require.Nil(t, owners)
		got, _, err = tx.GetToken(ctx, id("tx1", 0), true)
		require.NoError(t, err)
		require.NotNil(t, got)
		require.NoError(t, tx.Commit())
		tx.Rollback()

		tx, err = s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.StoreToken(ctx, tok("tx2", 0, "alice", "USD", 5)))
		tx.Rollback()
		got, owners, err = s.GetToken(ctx, id("tx2", 0), true)
		require.NoError(t, err)
		require.Nil(t, got)
		require.Nil(t, owners)
	})
}

// A store joins the transaction of another on the same handle, and no other.
func TestContinue(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		s, failure := fresh(t, db, Options{}), errors.New("no")
		require.ErrorIs(t, token.InTx(t.Context(), db, func(ctx context.Context, shared token.Tx) error {
			tx, err := s.Continue(shared)
			require.NoError(t, err)
			require.NoError(t, tx.Shared().On(db))
			require.NoError(t, tx.StoreToken(ctx, tok("tx1", 0, "alice", "USD", 5)))
			return failure
		}), failure)
		exists, err := s.TransactionExists(t.Context(), "tx1")
		require.NoError(t, err)
		require.False(t, exists)

		other := fresh(t, open(t), Options{})
		tx, err := other.Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = s.Continue(tx.Shared())
		require.ErrorIs(t, err, token.ErrOtherDatabase)
	})
}

func TestSaveAndGetToken(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i := range uint64(20) {
			store(t, s, tok("tx", i, "alice", "USD", 2))
		}
		store(t, s, tok("tx", 100, "alice", "EUR", 3))
		require.NoError(t, s.StoreToken(ctx, tok("tx", 101, "alice", "EUR", 4), "alice", "bob"))
		other := tok("tx", 102, "", "EUR", 100)
		require.NoError(t, s.StoreToken(ctx, other, "dan"))
		foreign := tok("tx", 103, "", "EUR", 9)
		foreign.Owner = false
		store(t, s, foreign)

		require.Len(t, unspentIDs(t, s, "alice", "", 0), 22)
		require.Equal(t, []string{"[tx:101]"}, unspentIDs(t, s, "bob", "", 0))
		require.Equal(t, []string{"[tx:102]"}, unspentIDs(t, s, "dan", "EUR", 0))
		require.Empty(t, unspentIDs(t, s, "dan", "USD", 0))
		all, err := s.ListUnspentTokens(ctx)
		require.NoError(t, err)
		require.Len(t, all, 24, "20 + 1, the shared one twice, dan's; not the foreign one")
		require.Len(t, unspentIDs(t, s, "", "", 0), 23, "each token once")
		require.Equal(t, "47", balance(t, s, "alice", ""))
		require.Equal(t, "40", balance(t, s, "alice", "USD"))
		require.Equal(t, "4", balance(t, s, "bob", ""))
		require.Equal(t, "147", balance(t, s, "", ""))
		require.Equal(t, "0", balance(t, s, "nobody", ""))

		got, err := s.GetTokens(ctx, id("tx", 101), id("tx", 3), id("tx", 101))
		require.NoError(t, err)
		require.Equal(t, []string{"[tx:101]", "[tx:3]", "[tx:101]"}, ids(t, got, func(v token.Token) token.ID { return v.ID }))
		_, err = s.GetTokens(ctx, id("tx", 3), id("tx", 99))
		require.ErrorIs(t, err, ErrMissing)
		_, err = s.GetTokens(ctx, id("tx", 103))
		require.ErrorIs(t, err, ErrMissing, "not ours")

		tokens, err := storage.Collect(s.UnspentLedgerTokensBy(ctx, "bob", ""))
		require.NoError(t, err)
		require.Equal(t, []token.LedgerToken{{ID: id("tx", 101), Format: "f1", Token: []byte("output of tx"), Metadata: []byte("metadata of tx")}}, tokens)
	})
}

// Whatever is stored again stays as it was: the token, its owners, its spending.
func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		r := tok("tx", 0, "alice", "USD", 5)
		require.NoError(t, s.StoreToken(ctx, r, "bob"))
		require.NoError(t, s.DeleteTokens(ctx, "spender", id("tx", 0)))
		r.Amount = big.NewInt(7)
		require.NoError(t, s.StoreToken(ctx, r, "bob", "carol"))
		require.Equal(t, "0", balance(t, s, "alice", ""), "it is still spent")
		got, owners, err := s.GetToken(ctx, id("tx", 0), true)
		require.NoError(t, err)
		require.Equal(t, "5", got.Amount.String())
		require.Equal(t, []string{"alice", "bob", "carol"}, owners)
		require.NoError(t, s.DeleteTokens(ctx, "another", id("tx", 0), id("unknown", 1)))
		by, gone, err := s.WhoDeletedTokens(ctx, id("tx", 0))
		require.NoError(t, err)
		require.Equal(t, []string{"spender"}, by)
		require.Equal(t, []bool{true}, gone)
	})
}

func TestDeleteAndMine(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		foreign := tok("tx", 3, "", "USD", 1)
		foreign.Owner = false
		store(t, s, tok("tx", 0, "alice", "USD", 1), tok("tx", 1, "alice", "USD", 1), foreign)
		require.NoError(t, s.DeleteTokens(ctx, "tx2", id("tx", 1)))
		for index, want := range map[uint64]bool{0: true, 1: false, 3: false, 9: false} {
			mine, err := s.IsMine(ctx, id("tx", index))
			require.NoError(t, err)
			require.Equal(t, want, mine, index)
		}
		require.Equal(t, []string{"[tx:0]"}, unspentIDs(t, s, "alice", "USD", 0))
		require.Equal(t, "1", balance(t, s, "alice", "USD"))
	})
}

func TestDeleteMultiple(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		var all []token.ID
		for i := range uint64(1200) { // more than one statement's worth
			all = append(all, id("tx", i))
		}
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
			for _, id := range all {
				if err := tx.StoreToken(ctx, tok(id.TxID, id.Index, "alice", "USD", 1)); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, s.DeleteTokens(ctx, "me"), "none")
		require.Equal(t, "1200", balance(t, s, "alice", ""))
		tokens, err := s.GetTokens(ctx, all...)
		require.NoError(t, err)
		require.Len(t, tokens, 1200)
		require.NoError(t, s.DeleteTokens(ctx, "me", all[1:]...))
		require.Equal(t, "1", balance(t, s, "alice", ""))
		by, gone, err := s.WhoDeletedTokens(ctx, all...)
		require.NoError(t, err)
		require.Equal(t, []any{"", false, "me", true}, []any{by[0], gone[0], by[1199], gone[1199]})
		_, _, err = s.WhoDeletedTokens(ctx, id("tx", 5000))
		require.ErrorIs(t, err, ErrMissing)
		_, _, err = s.WhoDeletedTokens(ctx, id("tx", 1), id("tx", 1))
		require.NoError(t, err, "the same twice")
	})
}

func TestGetTokenMetadata(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		bare := tok("bare", 0, "alice", "USD", 1)
		bare.LedgerMetadata = nil
		store(t, s, tok("a", 0, "alice", "USD", 1), tok("b", 1, "alice", "USD", 1), bare)
		metadata, err := s.GetTokenMetadata(ctx, id("b", 1), id("a", 0))
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("metadata of b"), []byte("metadata of a")}, metadata)
		outputs, err := s.GetTokenOutputs(ctx, id("b", 1), id("bare", 0))
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("output of b"), []byte("output of bare")}, outputs)
		both, err := s.GetTokenOutputsAndMeta(ctx, id("b", 1))
		require.NoError(t, err)
		require.Equal(t, []token.LedgerToken{{ID: id("b", 1), Format: "f1", Token: []byte("output of b"), Metadata: []byte("metadata of b")}}, both)
		_, err = s.GetTokenMetadata(ctx, id("a", 0), id("bare", 0))
		require.ErrorIs(t, err, ErrMissing, "it has none")
		_, err = s.GetTokenOutputsAndMeta(ctx, id("bare", 0))
		require.ErrorIs(t, err, ErrMissing)
		_, err = s.GetTokenOutputs(ctx, id("a", 1))
		require.ErrorIs(t, err, ErrMissing)
	})
}

func TestListAuditTokens(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		var records []token.Record
		for i := range uint64(3) {
			r := tok("tx", i, "", "USD", int64(i+1))
			r.Owner, r.Auditor = false, true
			records = append(records, r)
		}
		store(t, s, records...)
		store(t, s, tok("tx", 9, "alice", "USD", 1))
		require.NoError(t, s.DeleteTokens(ctx, "x", id("tx", 1)))
		got, err := s.ListAuditTokens(ctx, id("tx", 2), id("tx", 1))
		require.NoError(t, err)
		require.Equal(t, []string{"[tx:2]", "[tx:1]"}, ids(t, got, func(v token.Token) token.ID { return v.ID }))
		for _, missing := range []token.ID{id("tx", 9), id("tx", 7)} {
			_, err = s.ListAuditTokens(ctx, id("tx", 0), missing)
			require.ErrorIs(t, err, ErrMissing)
		}
		none, err := s.ListAuditTokens(ctx)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// issued is a token that we issued.
func issued(txID string, tokenType string, amount int64, redeemed bool) token.Record {
	r := tok(txID, 0, "", tokenType, amount)
	r.Owner, r.Issuer, r.Redeemed, r.IssuerRaw = false, true, redeemed, token.Identity("issuer")
	return r
}

func TestListIssuedTokens(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		store(t, s, issued("a", "USD", 1, false), issued("b", "EUR", 2, false), issued("c", "USD", 3, true), tok("d", 0, "alice", "USD", 4))
		require.NoError(t, s.DeleteTokens(t.Context(), "x", id("a", 0)))
		all, err := storage.Collect(s.ListHistoryIssuedTokens(t.Context()))
		require.NoError(t, err)
		require.ElementsMatch(t, []token.Issued{
			{ID: id("a", 0), Owner: token.Identity("raw "), Issuer: token.Identity("issuer"), Type: "USD", Quantity: "0x1", Amount: big.NewInt(1)},
			{ID: id("b", 0), Owner: token.Identity("raw "), Issuer: token.Identity("issuer"), Type: "EUR", Quantity: "0x2", Amount: big.NewInt(2)},
		}, all)
	})
}

func TestIssuerBalance(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		s := fresh(t, open(t), Options{Now: func() time.Time { now = now.Add(time.Hour); return now }})
		start := now
		store(t, s, issued("a", "USD", 1, false), issued("b", "USD", 10, false), issued("c", "EUR", 100, false), issued("d", "USD", 1000, true), issued("e", "USD", 10000, true))
		require.NoError(t, s.DeleteTokens(t.Context(), "x", id("a", 0), id("d", 0)))
		at := func(hours int) *time.Time { v := start.Add(time.Duration(hours) * time.Hour); return &v }
		for _, c := range []struct {
			tokenType        string
			from, to         *time.Time
			issued, redeemed string
		}{
			{"", nil, nil, "111", "11000"},
			{"USD", nil, nil, "11", "11000"},
			{"EUR", nil, nil, "100", "0"},
			{"USD", at(2), nil, "10", "11000"},
			{"USD", at(2), at(2), "10", "0"},
			{"USD", nil, at(4), "11", "1000"},
			{"GBP", nil, nil, "0", "0"},
		} {
			got, err := s.IssuedBalance(t.Context(), c.tokenType, c.from, c.to)
			require.NoError(t, err)
			require.Equal(t, c.issued, got.String(), "%+v", c)
			got, err = s.RedeemedBalance(t.Context(), c.tokenType, c.from, c.to)
			require.NoError(t, err)
			require.Equal(t, c.redeemed, got.String(), "%+v", c)
		}
	})
}

func TestPublicParams(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		none, err := s.PublicParams(ctx)
		require.NoError(t, err)
		require.Nil(t, none)
		none, err = s.PublicParamsByHash(ctx, PPHash([]byte("a")))
		require.NoError(t, err)
		require.Nil(t, none)
		for _, raw := range []string{"a", "b", "c", "a"} { // the last is there already
			require.NoError(t, s.StorePublicParams(ctx, []byte(raw)))
		}
		latest, err := s.PublicParams(ctx)
		require.NoError(t, err)
		require.Equal(t, "c", string(latest))
		hashes, err := s.PublicParamsHashes(ctx)
		require.NoError(t, err)
		require.Equal(t, [][]byte{PPHash([]byte("c")), PPHash([]byte("b")), PPHash([]byte("a"))}, hashes)
		b, err := s.PublicParamsByHash(ctx, hashes[1])
		require.NoError(t, err)
		require.Equal(t, "b", string(b))
		_, err = s.PublicParamsByHash(ctx, nil)
		require.ErrorIs(t, err, token.ErrEmptyArgument)
		require.ErrorIs(t, s.StorePublicParams(ctx, nil), token.ErrEmptyArgument)
		require.ErrorIs(t, s.StorePublicParams(ctx, make([]byte, storage.MaxPayload+1)), storage.ErrPayloadSize)

		// What does not fit its hash is never given out, and found when it is stored again.
		_, err = s.db.Write().ExecContext(ctx, "UPDATE "+prefix+"public_params SET raw = $1 WHERE raw_hash = $2", []byte("evil"), PPHash([]byte("c")))
		require.NoError(t, err)
		_, err = s.PublicParams(ctx)
		require.ErrorIs(t, err, token.ErrIntegrity)
		_, err = s.PublicParamsByHash(ctx, PPHash([]byte("c")))
		require.ErrorIs(t, err, token.ErrIntegrity)
		require.ErrorIs(t, s.StorePublicParams(ctx, []byte("c")), token.ErrIntegrity)
	})
}

func TestCertification(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		store(t, s, tok("a", 0, "alice", "USD", 1), tok("b", 0, "alice", "USD", 1))
		both := map[token.ID][]byte{id("a", 0): []byte("ca"), id("b", 0): []byte("cb")}
		require.NoError(t, s.StoreCertifications(ctx, both))
		require.NoError(t, s.StoreCertifications(ctx, both), "again")
		got, err := s.GetCertifications(ctx, id("b", 0), id("a", 0))
		require.NoError(t, err)
		require.Equal(t, [][]byte{[]byte("cb"), []byte("ca")}, got)
		for want, of := range map[bool]token.ID{true: id("a", 0), false: id("a", 1)} {
			exists, err := s.ExistsCertification(ctx, of)
			require.NoError(t, err)
			require.Equal(t, want, exists)
		}
		_, err = s.GetCertifications(ctx, id("a", 0), id("z", 0))
		require.ErrorIs(t, err, ErrMissing)

		store(t, s, tok("c", 0, "alice", "USD", 1))
		require.ErrorIs(t, s.StoreCertifications(ctx, map[token.ID][]byte{id("c", 0): []byte("cc"), id("none", 0): []byte("x")}), token.ErrTokenDoesNotExist)
		exists, err := s.ExistsCertification(ctx, id("c", 0))
		require.NoError(t, err)
		require.False(t, exists, "all or nothing")
		require.ErrorIs(t, s.StoreCertifications(ctx, map[token.ID][]byte{id("c", 0): nil}), token.ErrEmptyArgument)
		require.ErrorIs(t, s.StoreCertifications(ctx, map[token.ID][]byte{{}: []byte("x")}), token.ErrEmptyArgument)
		require.NoError(t, s.StoreCertifications(ctx, nil))
	})
}

// An error is never "absent".
func TestErrorsAreNotAbsence(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.ExistsCertification(ctx, id("a", 0))
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.IsMine(ctx, id("a", 0))
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.TransactionExists(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.HasEnoughSpendableTokens(ctx, "alice", "USD", big.NewInt(1))
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.Balance(ctx, "alice", "USD")
		require.ErrorIs(t, err, context.Canceled)
		_, err = storage.Collect(s.UnspentTokens(ctx))
		require.ErrorIs(t, err, context.Canceled)
		_, err = s.IsMine(t.Context(), token.ID{TxID: "a", Index: 1 << 63})
		require.Error(t, err)
	})
}

func TestQueryTokenDetails(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		multi := tok("tx2", 1, "", "ABC", 2)
		multi.OwnerType = "multisig"
		other := tok("tx3", 0, "alice", "XYZ", 30)
		other.LedgerFormat = "f2"
		foreign := tok("tx4", 0, "", "ABC", 1)
		foreign.Owner = false
		store(t, s, tok("tx1", 0, "alice", "ABC", 10), tok("tx2", 0, "bob", "ABC", 20))
		require.NoError(t, s.StoreToken(ctx, multi, "alice", "carol"))
		store(t, s, other, foreign)
		require.NoError(t, s.DeleteTokens(ctx, "spender", id("tx1", 0)))
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *Tx) error { return tx.SetSpendable(ctx, id("tx2", 0), false) }))
		for name, c := range map[string]struct {
			q    token.DetailsQuery
			want []string
		}{
			"all unspent":        {token.DetailsQuery{}, []string{"tx2:0 bob", "tx2:1 alice", "tx2:1 carol", "tx3:0 alice"}},
			"spent too":          {token.DetailsQuery{IncludeDeleted: true}, []string{"tx1:0 alice", "tx2:0 bob", "tx2:1 alice", "tx2:1 carol", "tx3:0 alice"}},
			"one wallet":         {token.DetailsQuery{WalletID: "alice"}, []string{"tx2:1 alice", "tx3:0 alice"}},
			"one, spent too":     {token.DetailsQuery{WalletID: "alice", IncludeDeleted: true}, []string{"tx1:0 alice", "tx2:1 alice", "tx3:0 alice"}},
			"wallets win":        {token.DetailsQuery{WalletID: "alice", WalletIDs: []string{"bob", "carol"}}, []string{"tx2:0 bob", "tx2:1 carol"}},
			"owner type":         {token.DetailsQuery{OwnerType: "multisig"}, []string{"tx2:1 alice", "tx2:1 carol"}},
			"token type":         {token.DetailsQuery{Type: "XYZ"}, []string{"tx3:0 alice"}},
			"ids":                {token.DetailsQuery{IDs: []token.ID{id("tx3", 0), id("tx2", 0), id("none", 0)}}, []string{"tx2:0 bob", "tx3:0 alice"}},
			"transactions":       {token.DetailsQuery{TransactionIDs: []string{"tx2"}}, []string{"tx2:0 bob", "tx2:1 alice", "tx2:1 carol"}},
			"spendable only":     {token.DetailsQuery{Spendable: token.SpendableOnly}, []string{"tx2:1 alice", "tx2:1 carol", "tx3:0 alice"}},
			"non-spendable only": {token.DetailsQuery{Spendable: token.NonSpendableOnly}, []string{"tx2:0 bob"}},
			"format":             {token.DetailsQuery{LedgerFormats: []token.Format{"f2", "f3"}}, []string{"tx3:0 alice"}},
			"from":               {token.DetailsQuery{Min: big.NewInt(20)}, []string{"tx2:0 bob", "tx3:0 alice"}},
			"to":                 {token.DetailsQuery{Max: big.NewInt(2)}, []string{"tx2:1 alice", "tx2:1 carol"}},
			"both bounds":        {token.DetailsQuery{Min: big.NewInt(20), Max: big.NewInt(20), WalletID: "bob"}, []string{"tx2:0 bob"}},
			"none":               {token.DetailsQuery{WalletID: "nobody"}, nil},
		} {
			all, err := storage.Collect(s.QueryTokenDetails(ctx, c.q))
			require.NoError(t, err, name)
			var got []string
			for _, v := range all {
				got = append(got, fmt.Sprintf("%s:%d %s", v.TxID, v.Index, v.WalletID))
			}
			require.ElementsMatch(t, c.want, got, name)
		}
		spent, err := storage.Collect(s.QueryTokenDetails(ctx, token.DetailsQuery{TransactionIDs: []string{"tx1"}, IncludeDeleted: true}))
		require.NoError(t, err)
		require.False(t, spent[0].SpentAt.IsZero())
		require.False(t, spent[0].StoredAt.IsZero())
		spent[0].SpentAt, spent[0].StoredAt = time.Time{}, time.Time{}
		require.Equal(t, token.Details{ID: id("tx1", 0), WalletID: "alice", OwnerIdentity: token.Identity("identity alice"), OwnerType: "x509", Type: "ABC", Amount: big.NewInt(10),
			LedgerFormat: "f1", Spendable: true, IsSpent: true, SpentBy: "spender"}, spent[0])
	})
}

func TestAmountValidation(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		r := tok("tx", 0, "alice", "USD", 1)
		for _, c := range []struct {
			amount *big.Int
			want   error
		}{{nil, token.ErrAmountMissing}, {big.NewInt(-1), token.ErrAmountNegative}, {new(big.Int).Lsh(big.NewInt(1), 256), token.ErrAmountOutOfRange}} {
			r.Amount = c.amount
			require.ErrorIs(t, s.StoreToken(ctx, r), c.want)
		}
		for _, quantity := range []string{"2", "0x2", "x", "0x", "-1", "1.0", strings.Repeat("1", 200)} {
			r.Amount, r.Quantity = big.NewInt(1), quantity
			require.ErrorIs(t, s.StoreToken(ctx, r), token.ErrQuantity, quantity)
		}
		for i, quantity := range []string{"1", "0x1", "0x01", ""} {
			r.Amount, r.Quantity, r.Index = big.NewInt(1), quantity, uint64(i)
			require.NoError(t, s.StoreToken(ctx, r), quantity)
		}
		zero := tok("zero", 0, "alice", "USD", 0)
		require.NoError(t, s.StoreToken(ctx, zero))
		r = tok("ownerless", 0, "", "USD", 1)
		require.ErrorIs(t, s.StoreToken(ctx, r), token.ErrNoOwner)
		require.ErrorIs(t, s.StoreToken(ctx, r, ""), token.ErrEmptyArgument)
		r.TxID = ""
		require.ErrorIs(t, s.StoreToken(ctx, r, "w"), token.ErrEmptyArgument)
		r = tok("big", 0, "alice", "USD", 1)
		r.Ledger = make([]byte, storage.MaxPayload+1)
		require.ErrorIs(t, s.StoreToken(ctx, r), storage.ErrPayloadSize)
		exists, err := s.TransactionExists(ctx, "ownerless")
		require.NoError(t, err)
		require.False(t, exists)
	})
}

// Amounts, bounds, order and sums are exact at 256 bits on every backend.
func TestExactAmounts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		power := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }
		less := func(v *big.Int) *big.Int { return new(big.Int).Sub(v, big.NewInt(1)) }
		amounts := []*big.Int{big.NewInt(1), less(power(63)), power(63), power(64), less(power(255)), power(255), less(power(256))}
		sum := new(big.Int)
		for i := len(amounts) - 1; i >= 0; i-- {
			r := tok("tx", uint64(i), "alice", "USD", 0)
			r.Amount = amounts[i]
			store(t, s, r)
			sum.Add(sum, amounts[i])
		}
		require.Equal(t, sum.String(), balance(t, s, "alice", "USD"))
		all, err := storage.Collect(s.SpendableTokensBy(t.Context(), "alice", "USD"))
		require.NoError(t, err)
		require.Len(t, all, len(amounts))
		for i, v := range all {
			require.Equal(t, uint64(i), v.Index)
			require.Equal(t, amounts[i].String(), v.Amount.String())
		}
		q := token.SpendableQuery{WalletID: "alice", Type: "USD", Order: token.Ascending}
		q.Min, q.Max = power(63), less(power(255))
		require.Equal(t, []string{"[tx:2]", "[tx:3]", "[tx:4]"}, spendableIDs(t, s, q))
		q.Min, q.Max = power(256), nil
		require.Empty(t, spendableIDs(t, s, q), "more than there can be")
		q.Min, q.Max = big.NewInt(-5), power(300)
		require.Len(t, spendableIDs(t, s, q), len(amounts))
		q.Min, q.Max = nil, big.NewInt(-1)
		require.Empty(t, spendableIDs(t, s, q))
		for target, want := range map[string]bool{sum.String(): true, new(big.Int).Add(sum, big.NewInt(1)).String(): false} {
			v, _ := new(big.Int).SetString(target, 10)
			enough, err := s.HasEnoughSpendableTokens(t.Context(), "alice", "USD", v)
			require.NoError(t, err)
			require.Equal(t, want, enough)
		}
	})
}

func TestTokenTypes(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i, format := range []token.Format{"f1", "f2", "", "f3"} {
			r := tok("tx", uint64(i), "alice", "USD", int64(i+1))
			r.LedgerFormat = format
			store(t, s, r)
		}
		q := token.SpendableQuery{WalletID: "alice", Type: "USD", Order: token.Ascending}
		unsupported := func() []string {
			all, err := storage.Collect(s.UnsupportedTokensBy(ctx, "alice", "USD"))
			require.NoError(t, err)
			return ids(t, all, func(v token.LedgerToken) token.ID { return v.ID })
		}
		require.Len(t, spendableIDs(t, s, q), 4, "nothing is said yet")
		require.Empty(t, unsupported())
		s.SetSupportedTokenFormats("f1", "f3")
		require.Equal(t, []string{"[tx:0]", "[tx:3]"}, spendableIDs(t, s, q))
		require.ElementsMatch(t, []string{"[tx:1]", "[tx:2]"}, unsupported())
		s.SetSupportedTokenFormats()
		require.Empty(t, spendableIDs(t, s, q))
		require.Len(t, unsupported(), 4)
		any, err := s.HasAnySpendableTokens(ctx, "alice", "USD")
		require.NoError(t, err)
		require.False(t, any)
		require.Len(t, unspentIDs(t, s, "alice", "USD", 0), 4)
	})
}

// Only tokens whose flag changes are written; without formats nothing is spendable.
func TestSetSpendableBySupportedTokenFormats(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i, format := range []token.Format{"f1", "f2", "", "f1"} {
			r := tok("tx", uint64(i), "alice", "USD", int64(i+1))
			r.LedgerFormat = format
			store(t, s, r)
		}
		q := token.SpendableQuery{WalletID: "alice", Type: "USD", Order: token.Ascending}
		for _, c := range []struct {
			formats []token.Format
			changed int64
			want    []string
		}{
			{[]token.Format{"f1"}, 2, []string{"[tx:0]", "[tx:3]"}},
			{[]token.Format{"f1"}, 0, []string{"[tx:0]", "[tx:3]"}},
			{[]token.Format{"f2", "f9"}, 3, []string{"[tx:1]"}},
			{nil, 1, []string{}},
			{nil, 0, []string{}},
			{[]token.Format{"f1", "f2"}, 3, []string{"[tx:0]", "[tx:1]", "[tx:3]"}},
			{[]token.Format{"f2", "f1"}, 0, []string{"[tx:0]", "[tx:1]", "[tx:3]"}},
		} {
			changed, err := s.SetSpendableBySupportedTokenFormats(ctx, c.formats...)
			require.NoError(t, err)
			require.Equal(t, c.changed, changed, "%v", c.formats)
			require.Equal(t, c.want, spendableIDs(t, s, q), "%v", c.formats)
		}
	})
}

func TestListUnspentTokensByWallets(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		store(t, s, tok("a", 0, "alice", "USD", 1), tok("b", 0, "bob", "EUR", 2), tok("spent", 0, "bob", "USD", 2))
		require.NoError(t, s.StoreToken(ctx, tok("c", 0, "alice", "USD", 3), "alice", "bob"))
		require.NoError(t, s.DeleteTokens(ctx, "x", id("spent", 0)))
		wallets := []string{"alice", "bob", "nobody", "alice"}
		for i := range 1000 { // far more than one statement's worth
			wallets = append(wallets, fmt.Sprint("wallet", i))
		}
		for tokenType, want := range map[string]map[string][]string{
			"":    {"alice": {"[a:0]", "[c:0]"}, "bob": {"[b:0]", "[c:0]"}},
			"USD": {"alice": {"[a:0]", "[c:0]"}, "bob": {"[c:0]"}},
			"GBP": {},
		} {
			got, err := s.ListUnspentTokensByWallets(ctx, wallets, tokenType)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for w, tokens := range got {
				require.ElementsMatch(t, want[w], ids(t, tokens, func(v token.Unspent) token.ID { return v.ID }), w)
			}
		}
		got, err := s.ListUnspentTokensByWallets(ctx, nil, "")
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// The largest come first, and the limit counts tokens, not rows that are found twice.
func TestUnspentTokensIteratorByLimit(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for i := range uint64(5) {
			for range 2 { // the second time into the other place too
				require.NoError(t, s.StoreToken(t.Context(), tok("tx", i, "alice", "USD", int64(10*i)), "alice", "bob"))
			}
		}
		var rows int
		require.NoError(t, s.db.Read().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+prefix+"tkn_own WHERE wallet_id = 'alice'").Scan(&rows))
		require.Equal(t, 5, rows)
		require.NoError(t, s.StoreToken(t.Context(), tok("shared", 0, "", "USD", 35), "alice"))
		require.Equal(t, []string{"[tx:4]", "[shared:0]", "[tx:3]"}, unspentIDs(t, s, "alice", "USD", 3))
		require.Equal(t, []string{"[tx:4]", "[tx:3]"}, unspentIDs(t, s, "bob", "USD", 2))
		require.Len(t, unspentIDs(t, s, "alice", "USD", 0), 6)
		require.Len(t, unspentIDs(t, s, "alice", "USD", 100), 6)
		all, err := s.ListUnspentTokens(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 11, "each once for each wallet")
		details, err := storage.Collect(s.QueryTokenDetails(t.Context(), token.DetailsQuery{WalletID: "alice"}))
		require.NoError(t, err)
		require.Len(t, details, 6)
		require.Equal(t, []string{"[tx:4]", "[shared:0]"}, unspentIDs(t, s, "", "", 2))
		require.Equal(t, "135", balance(t, s, "alice", "USD"), "each once")
	})
}

func TestSpendable(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		store(t, s, tok("b", 0, "alice", "USD", 20), tok("a", 0, "alice", "USD", 20), tok("a", 1, "alice", "USD", 20), tok("c", 0, "alice", "USD", 10), tok("d", 0, "alice", "USD", 30),
			tok("e", 0, "alice", "EUR", 1), tok("f", 0, "bob", "USD", 2), tok("locked", 0, "alice", "USD", 15), tok("spent", 0, "alice", "USD", 16), tok("unfit", 0, "alice", "USD", 17))
		require.NoError(t, s.StoreToken(ctx, tok("shared", 0, "", "USD", 18), "alice"))
		lock(t, s, id("locked", 0), "consumer")
		require.NoError(t, s.DeleteTokens(ctx, "x", id("spent", 0)))
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *Tx) error { return tx.SetSpendable(ctx, id("unfit", 0), false) }))
		up := []string{"[c:0]", "[a:0]", "[a:1]", "[b:0]", "[d:0]"}
		all, err := storage.Collect(s.SpendableTokensBy(ctx, "alice", "USD"))
		require.NoError(t, err)
		require.Equal(t, up, ids(t, all, func(v token.Spendable) token.ID { return v.ID }))
		require.Equal(t, token.Spendable{ID: id("c", 0), WalletID: "alice", Type: "USD", Quantity: "0xa", Amount: big.NewInt(10)}, all[0])

		q := token.SpendableQuery{WalletID: "alice", Type: "USD", Order: token.Descending}
		require.Equal(t, []string{"[d:0]", "[b:0]", "[a:1]", "[a:0]", "[c:0]"}, spendableIDs(t, s, q))
		q.Order, q.Limit = token.Ascending, 2
		require.Equal(t, up[:2], spendableIDs(t, s, q))
		q.Limit, q.Min, q.Max = 0, big.NewInt(10), big.NewInt(20)
		require.Equal(t, up[:4], spendableIDs(t, s, q), "both bounds are included")
		require.ElementsMatch(t, append([]string{"[e:0]", "[f:0]", "[shared:0]"}, up...), spendableIDs(t, s, token.SpendableQuery{}))
		require.Equal(t, []string{"[e:0]"}, spendableIDs(t, s, token.SpendableQuery{WalletID: "alice", Order: token.Ascending, Limit: 1}))
		_, err = storage.Collect(s.QuerySpendableTokens(ctx, token.SpendableQuery{After: &all[0]}))
		require.ErrorIs(t, err, token.ErrEmptyArgument, "behind one, in no order")

		for target, want := range map[int64]bool{115: true, 116: false, 0: true} { // what is locked counts
			enough, err := s.HasEnoughSpendableTokens(ctx, "alice", "USD", big.NewInt(target))
			require.NoError(t, err)
			require.Equal(t, want, enough, target)
		}
		any, err := s.HasAnySpendableTokens(ctx, "alice", "GBP")
		require.NoError(t, err)
		require.False(t, any)
	})
}

// Windows, each behind the last token of the one before, are the whole list: ties do not stop them and nothing comes twice.
func TestSpendableWindows(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for i := range uint64(10) {
			store(t, s, tok("a", i, "alice", "USD", int64(1+i/4)), tok("b", i, "alice", "USD", int64(1+i/4)))
		}
		for _, order := range []token.AmountOrder{token.Ascending, token.Descending} {
			q := token.SpendableQuery{WalletID: "alice", Type: "USD", Order: order}
			want := spendableIDs(t, s, q)
			require.Len(t, want, 20)
			var got []string
			q.Limit = 3
			for {
				window, err := storage.Collect(s.QuerySpendableTokens(t.Context(), q))
				require.NoError(t, err)
				if len(window) == 0 {
					break
				}
				got = append(got, ids(t, window, func(v token.Spendable) token.ID { return v.ID })...)
				q.After = &window[len(window)-1]
			}
			require.Equal(t, want, got)
		}
	})
}

func TestGetDeletedTokensPendingSKICleanup(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		foreign := tok("foreign", 0, "", "USD", 1)
		foreign.Owner = false
		store(t, s, tok("a", 0, "alice", "USD", 1), tok("b", 0, "alice", "USD", 1), tok("live", 0, "alice", "USD", 1), foreign)
		require.NoError(t, s.DeleteTokens(ctx, "x", id("a", 0)))
		require.NoError(t, s.DeleteTokens(ctx, "x", id("b", 0), id("foreign", 0)))
		pending := func(olderThan time.Duration, limit int) []string {
			all, err := s.GetDeletedTokensPendingSKICleanup(ctx, olderThan, limit)
			require.NoError(t, err)
			return ids(t, all, func(v token.Details) token.ID { return v.ID })
		}
		require.Equal(t, []string{"[a:0]", "[b:0]"}, pending(0, 10))
		require.Equal(t, []string{"[a:0]"}, pending(0, 1))
		require.Empty(t, pending(0, 0))
		require.Empty(t, pending(time.Hour, 10), "spent just now")
		require.NoError(t, s.MarkTokenCleaned(ctx, id("a", 0), "me"))
		require.NoError(t, s.MarkTokenCleaned(ctx, id("a", 0), "another"), "again")
		require.Equal(t, []string{"[b:0]"}, pending(0, 10))
		require.ErrorIs(t, s.MarkTokenCleaned(ctx, id("none", 0), "me"), token.ErrTokenDoesNotExist)
		_, err := s.GetDeletedTokensPendingSKICleanup(ctx, 0, storage.MaxPage+1)
		require.ErrorIs(t, err, storage.ErrPageSize)

		lead, err := s.AcquireCleanupLeadership(ctx, time.Minute)
		require.NoError(t, err)
		require.NotNil(t, lead)
		second, err := s.AcquireCleanupLeadership(ctx, time.Minute)
		require.NoError(t, err)
		require.Nil(t, second)
		require.NoError(t, lead.Release(ctx))
	})
}

func TestPruneSpent(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		both := tok("issued", 0, "alice", "USD", 1)
		both.Issuer = true
		store(t, s, tok("clean", 0, "alice", "USD", 1), tok("unclean", 0, "alice", "USD", 1), tok("live", 0, "alice", "USD", 1), both)
		require.NoError(t, s.StoreCertifications(ctx, map[token.ID][]byte{id("clean", 0): []byte("c")}))
		require.NoError(t, s.DeleteTokens(ctx, "x", id("clean", 0), id("unclean", 0), id("issued", 0)))
		require.NoError(t, s.MarkTokenCleaned(ctx, id("clean", 0), "me"))
		prune := func(olderThan time.Duration, keepUncleaned bool) int64 {
			n, err := s.PruneSpent(ctx, olderThan, 10, keepUncleaned)
			require.NoError(t, err)
			return n
		}
		require.EqualValues(t, 0, prune(time.Hour, false))
		require.EqualValues(t, 1, prune(0, true))
		require.EqualValues(t, 1, prune(0, false))
		require.EqualValues(t, 0, prune(0, false))
		_, _, err := s.WhoDeletedTokens(ctx, id("issued", 0), id("live", 0))
		require.NoError(t, err)
		_, err = s.PruneSpent(ctx, 0, storage.MaxPage+1, false)
		require.ErrorIs(t, err, storage.ErrPageSize)
	})
}

func TestHasTokenForIdentity(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		store(t, s, tok("a", 0, "alice", "USD", 1))
		for identity, want := range map[string]bool{"raw alice": true, "identity alice": true, "raw bob": false} {
			has, err := s.HasTokenForIdentity(t.Context(), token.Identity(identity))
			require.NoError(t, err)
			require.Equal(t, want, has, identity)
		}
		_, err := s.HasTokenForIdentity(t.Context(), nil)
		require.ErrorIs(t, err, token.ErrEmptyIdentity)
	})
}

// A closed Store reads on, unprepared.
func TestReadsAfterClose(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		store(t, s, tok("a", 0, "alice", "USD", 1))
		require.Equal(t, "1", balance(t, s, "alice", "USD"))
		require.NoError(t, s.Close())
		require.Equal(t, "1", balance(t, s, "alice", "USD"))
		require.NoError(t, s.Close())
	})
}
