package tokendb

import (
	"context"
	"fmt"
	"math/big"
	"strings"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
)

// StoreToken stores a token and the wallets that own it, besides the record's OwnerWalletID. A token that is stored already stays as it is,
// spent or not; wallets are added. A token with Owner needs a wallet, else token.ErrNoOwner.
func (x *Tx) StoreToken(ctx context.Context, r token.Record, wallets ...string) error {
	if err := x.storeToken(ctx, r, wallets); err != nil {
		return fmt.Errorf("storing token %s: %w", r.ID, err)
	}
	return nil
}

func (x *Tx) storeToken(ctx context.Context, r token.Record, wallets []string) error {
	t := &x.s.t
	idx, err := key(r.ID)
	if err != nil {
		return err
	}
	amount, err := token.Amount(r.Amount)
	if err != nil {
		return err
	}
	quantity, err := quantity(r)
	if err != nil {
		return err
	}
	if r.Owner && r.OwnerWalletID == "" && len(wallets) == 0 {
		return token.ErrNoOwner
	}
	for name, value := range map[string][]byte{"ledger": r.Ledger, "metadata": r.LedgerMetadata, "owner": r.OwnerRaw, "owner's identity": r.OwnerIdentity, "issuer": r.IssuerRaw} {
		if err := storage.CheckPayload(name, value); err != nil {
			return err
		}
	}
	wallet, issuer := t.ownerWallet.SetNull(), t.issuerRaw.SetNull()
	if r.OwnerWalletID != "" {
		wallet = t.ownerWallet.Set(r.OwnerWalletID)
	}
	if r.IssuerRaw != nil {
		issuer = t.issuerRaw.Set(r.IssuerRaw)
	}
	stored, err := x.s.db.Exec(ctx, x.tx, query.InsertInto(t.tokens).Row(
		t.txID.Set(r.TxID), t.idx.Set(idx), t.amount.Set(amount.Bind(x.s.db.Backend())), t.tokenType.Set(r.Type), t.quantity.Set(quantity),
		issuer, t.ownerRaw.Set(full(r.OwnerRaw)), t.ownerType.Set(r.OwnerType), t.ownerIdentity.Set(full(r.OwnerIdentity)), wallet,
		t.ledger.Set(full(r.Ledger)), t.ledgerMetadata.Set(full(r.LedgerMetadata)), t.ledgerType.Set(string(r.LedgerFormat)),
		t.storedAt.Set(storage.NewTime(x.s.clock())), t.owner.Set(r.Owner), t.auditor.Set(r.Auditor), t.issuer.Set(r.Issuer), t.redeemed.Set(r.Redeemed),
	).OnConflict(t.txID, t.idx).DoNothing())
	if err != nil {
		return err
	}
	for part := range storage.Chunks(wallets, 3) {
		var rows [][]query.Assignment
		for _, w := range part {
			switch {
			case w == "":
				return fmt.Errorf("an owning wallet: %w", token.ErrEmptyArgument)
			case w == r.OwnerWalletID && stored == 1: // the token's own column says so
				continue
			}
			rows = append(rows, []query.Assignment{t.ownTxID.Set(r.TxID), t.ownIdx.Set(idx), t.ownWallet.Set(w)})
		}
		if len(rows) == 0 {
			continue
		}
		if _, err := x.s.db.Exec(ctx, x.tx, query.InsertInto(t.own).Rows(rows...).OnConflict(t.ownTxID, t.ownIdx, t.ownWallet).DoNothing()); err != nil {
			return err
		}
	}
	return nil
}

// quantity returns the ledger's text of the amount, which must be that amount.
func quantity(r token.Record) (string, error) {
	if r.Quantity == "" {
		return "0x" + r.Amount.Text(16), nil
	}
	v, ok := new(big.Int), false
	if text, hex := strings.CutPrefix(r.Quantity, "0x"); len(text) <= 128 && hex {
		v, ok = v.SetString(text, 16)
	} else if len(text) <= 128 {
		v, ok = v.SetString(text, 10)
	}
	if !ok || v.Cmp(r.Amount) != 0 {
		return "", fmt.Errorf("%w: %.150q is not %s", token.ErrQuantity, r.Quantity, r.Amount)
	}
	return r.Quantity, nil
}

// bytes returns what a column that is never NULL holds.
func full(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Delete says that a transaction spent the token. What is spent stays as it is, whoever else claims to have spent it; a token that is not
// stored stays so.
func (x *Tx) Delete(ctx context.Context, id token.ID, deletedBy string) error {
	return x.DeleteTokens(ctx, deletedBy, id)
}

// DeleteTokens is Delete for several tokens.
func (x *Tx) DeleteTokens(ctx context.Context, deletedBy string, ids ...token.ID) error {
	t := &x.s.t
	keys, err := pairs(ids)
	for part := range storage.Chunks(keys, 2) {
		if err != nil {
			break
		}
		_, err = x.s.db.Exec(ctx, x.tx, query.Update(t.tokens).Set(t.isDeleted.Set(true), t.spentBy.Set(deletedBy), t.spentAt.SetNow(0)).
			Where(query.And(query.InPairs(t.txID, t.idx, part...), query.Not(query.IsTrue(t.isDeleted)))))
	}
	if err != nil {
		return fmt.Errorf("deleting tokens: %w", err)
	}
	return nil
}

// DeleteTokens is [Tx.DeleteTokens] in a transaction of its own.
func (s *Store) DeleteTokens(ctx context.Context, deletedBy string, ids ...token.ID) error {
	if len(ids) == 0 {
		return nil
	}
	return s.InTx(ctx, func(ctx context.Context, tx *Tx) error { return tx.DeleteTokens(ctx, deletedBy, ids...) })
}

// SetSpendable says whether the token's format can be spent.
func (x *Tx) SetSpendable(ctx context.Context, id token.ID, spendable bool) error {
	t := &x.s.t
	idx, err := key(id)
	if err == nil {
		_, err = x.s.db.Exec(ctx, x.tx, query.Update(t.tokens).Set(t.canSpend.Set(spendable)).
			Where(query.And(t.txID.Eq(id.TxID), t.idx.Eq(idx), t.canSpend.Ne(spendable))))
	}
	if err != nil {
		return fmt.Errorf("setting whether token %s is spendable: %w", id, err)
	}
	return nil
}

// SetSpendableBySupportedTokenFormats makes the tokens of these formats spendable and all others not. It returns how many it changed, which
// is how many it wrote. Without formats nothing is spendable.
func (x *Tx) SetSpendableBySupportedTokenFormats(ctx context.Context, formats ...token.Format) (int64, error) {
	t := &x.s.t
	supported := query.Nothing()
	if len(formats) > 0 {
		supported = t.ledgerType.In(texts(formats)...)
	}
	var changed int64
	for _, flag := range []bool{true, false} {
		which := query.And(query.Not(query.IsTrue(t.canSpend)), supported)
		if !flag {
			which = query.And(query.IsTrue(t.canSpend), query.Not(supported))
		}
		n, err := x.s.db.Exec(ctx, x.tx, query.Update(t.tokens).Set(t.canSpend.Set(flag)).Where(which))
		if err != nil {
			return 0, fmt.Errorf("setting which tokens are spendable: %w", err)
		}
		changed += n
	}
	return changed, nil
}

// SetSpendableBySupportedTokenFormats is [Tx.SetSpendableBySupportedTokenFormats] in a transaction of its own.
func (s *Store) SetSpendableBySupportedTokenFormats(ctx context.Context, formats ...token.Format) (changed int64, err error) {
	err = s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		changed, err = tx.SetSpendableBySupportedTokenFormats(ctx, formats...)
		return err
	})
	return changed, err
}

// StoreToken is [Tx.StoreToken] in a transaction of its own.
func (s *Store) StoreToken(ctx context.Context, r token.Record, wallets ...string) error {
	return s.InTx(ctx, func(ctx context.Context, tx *Tx) error { return tx.StoreToken(ctx, r, wallets...) })
}
