package tokendb

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math/big"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
)

// Which tokens a wallet owns is said in two places: in the token's own column and in the table of owners. Both have an index, so a
// wallet's tokens are read from the two in turn; the second leaves out what the first has, so that nothing comes twice and a limit counts tokens.

// wallet returns the two branches of the unspent tokens of a wallet.
func (s *Store) wallet(wallet, tokenType string, more query.Cond, fields ...query.Expr) []query.Member {
	t := &s.t
	kept := query.And(t.unspent(), named(t.tokenType, tokenType), more)
	return []query.Member{
		query.Select(fields...).From(t.tokens).Where(query.And(t.ownerWallet.Eq(wallet), kept)),
		query.Select(fields...).From(t.own).InnerJoin(t.tokens, query.And(t.txID.EqColumn(t.ownTxID), t.idx.EqColumn(t.ownIdx))).
			Where(query.And(t.ownWallet.Eq(wallet), query.Or(t.ownerWallet.IsNull(), t.ownerWallet.Ne(wallet)), kept)),
	}
}

// UnspentTokens yields every unspent token that one of our wallets owns, once for each of its wallets.
func (s *Store) UnspentTokens(ctx context.Context) iter.Seq2[token.Unspent, error] {
	t := &s.t
	fields := func(wallet query.Expr) []query.Expr {
		return []query.Expr{t.txID, t.idx, wallet, t.ownerRaw, t.tokenType, t.quantity, t.amount}
	}
	owners := query.Exists(query.Select(query.Literal(1)).From(t.own).Where(query.And(t.ownTxID.EqColumn(t.txID), t.ownIdx.EqColumn(t.idx))))
	return list(ctx, s, "listing unspent tokens", s.db.Prepared(), query.UnionAll(
		query.Select(fields(t.ownerWallet)...).From(t.tokens).Where(query.And(t.unspent(), query.Or(t.ownerWallet.NotNull(), query.Not(owners)))),
		query.Select(fields(t.ownWallet)...).From(t.own).InnerJoin(t.tokens, query.And(t.txID.EqColumn(t.ownTxID), t.idx.EqColumn(t.ownIdx))).
			Where(query.And(t.unspent(), query.Or(t.ownerWallet.IsNull(), query.Compare(t.ownerWallet, query.NE, t.ownWallet)))),
	), scanUnspent)
}

func scanUnspent(rows *sql.Rows) (v token.Unspent, err error) {
	var amount storage.Amount
	var wallet sql.NullString
	err = rows.Scan(&v.TxID, &v.Index, &wallet, &v.Owner, &v.Type, &v.Quantity, &amount)
	v.WalletID, v.Amount = wallet.String, amount.Big()
	return v, err
}

// UnspentTokensBy yields the wallet's unspent tokens of one type or, with "", of any, each once. With a limit above zero it yields that
// many at most, the largest first. Without a wallet it is [Store.UnspentTokens], of the type and with the limit.
func (s *Store) UnspentTokensBy(ctx context.Context, wallet, tokenType string, limit int) iter.Seq2[token.Unspent, error] {
	t := &s.t
	if wallet == "" {
		return s.unspentOfAny(ctx, tokenType, limit)
	}
	fields := []query.Expr{t.txID, t.idx, t.ownerRaw, t.tokenType, t.quantity, t.amount}
	var statement query.Statement = query.UnionAll(s.wallet(wallet, tokenType, query.Cond{}, fields...)...)
	if limit > 0 {
		statement = query.UnionAll(s.wallet(wallet, tokenType, query.Cond{}, fields...)...).
			OrderBy(t.amount.Desc(), t.txID.Desc(), t.idx.Desc()).Limit(limit)
	}
	return list(ctx, s, "listing a wallet's unspent tokens", s.db.Prepared(), statement, func(rows *sql.Rows) (v token.Unspent, err error) {
		var amount storage.Amount
		err = rows.Scan(&v.TxID, &v.Index, &v.Owner, &v.Type, &v.Quantity, &amount)
		v.WalletID, v.Amount = wallet, amount.Big()
		return v, err
	})
}

// unspentOfAny yields every unspent token that one of our wallets owns once.
func (s *Store) unspentOfAny(ctx context.Context, tokenType string, limit int) iter.Seq2[token.Unspent, error] {
	t := &s.t
	where := query.Select(t.txID, t.idx, t.ownerWallet, t.ownerRaw, t.tokenType, t.quantity, t.amount).From(t.tokens).
		Where(query.And(t.unspent(), named(t.tokenType, tokenType)))
	var statement query.Statement = where
	if limit > 0 {
		statement = where.OrderBy(t.amount.Desc(), t.txID.Desc(), t.idx.Desc()).Limit(limit)
	}
	return list(ctx, s, "listing unspent tokens", s.db.Prepared(), statement, scanUnspent)
}

// ListUnspentTokens returns what [Store.UnspentTokens] yields.
func (s *Store) ListUnspentTokens(ctx context.Context) ([]token.Unspent, error) {
	return storage.Collect(s.UnspentTokens(ctx))
}

// ListUnspentTokensBy returns what [Store.UnspentTokensBy] yields without a limit.
func (s *Store) ListUnspentTokensBy(ctx context.Context, wallet, tokenType string) ([]token.Unspent, error) {
	return storage.Collect(s.UnspentTokensBy(ctx, wallet, tokenType, 0))
}

// ListUnspentTokensByWallets returns the unspent tokens of each wallet, of one type or, with "", of any. A wallet without tokens is not in
// the map; a token of two of the wallets is in both lists.
func (s *Store) ListUnspentTokensByWallets(ctx context.Context, wallets []string, tokenType string) (map[string][]token.Unspent, error) {
	t := &s.t
	fields := func(wallet query.Expr) []query.Expr {
		return []query.Expr{t.txID, t.idx, wallet, t.ownerRaw, t.tokenType, t.quantity, t.amount}
	}
	kept := query.And(t.unspent(), named(t.tokenType, tokenType))
	all := map[string][]token.Unspent{}
	for part := range storage.Chunks(distinct(wallets), 2) {
		statement := query.UnionAll(
			query.Select(fields(t.ownerWallet)...).From(t.tokens).Where(query.And(t.ownerWallet.In(part...), kept)),
			query.Select(fields(t.ownWallet)...).From(t.own).InnerJoin(t.tokens, query.And(t.txID.EqColumn(t.ownTxID), t.idx.EqColumn(t.ownIdx))).
				Where(query.And(t.ownWallet.In(part...), query.Or(t.ownerWallet.IsNull(), query.Compare(t.ownerWallet, query.NE, t.ownWallet)), kept)),
		)
		for v, err := range list(ctx, s, "listing unspent tokens by wallets", s.db.Read(), statement, scanUnspent) {
			if err != nil {
				return nil, err
			}
			all[v.WalletID] = append(all[v.WalletID], v)
		}
	}
	return all, nil
}

func distinct[T comparable](values []T) []T {
	seen := make(map[T]bool, len(values))
	var out []T
	for _, v := range values {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// UnspentLedgerTokensBy yields the wallet's unspent tokens of one type or, with "", of any, as on the ledger.
func (s *Store) UnspentLedgerTokensBy(ctx context.Context, wallet, tokenType string) iter.Seq2[token.LedgerToken, error] {
	return s.ledgerTokens(ctx, wallet, tokenType, query.Cond{})
}

// UnsupportedTokensBy yields the wallet's unspent tokens whose format is not supported, of one type or, with "", of any, as on the ledger.
// There are none before [Store.SetSupportedTokenFormats].
func (s *Store) UnsupportedTokensBy(ctx context.Context, wallet, tokenType string) iter.Seq2[token.LedgerToken, error] {
	if s.formats.Load() == nil {
		return func(func(token.LedgerToken, error) bool) {}
	}
	return s.ledgerTokens(ctx, wallet, tokenType, query.Not(s.supported()))
}

func (s *Store) ledgerTokens(ctx context.Context, wallet, tokenType string, more query.Cond) iter.Seq2[token.LedgerToken, error] {
	t := &s.t
	statement := query.UnionAll(s.wallet(wallet, tokenType, more, t.txID, t.idx, t.ledgerType, t.ledger, t.ledgerMetadata)...)
	return list(ctx, s, "listing a wallet's ledger tokens", s.db.Prepared(), statement, func(rows *sql.Rows) (v token.LedgerToken, err error) {
		err = rows.Scan(&v.TxID, &v.Index, &v.Format, &v.Token, &v.Metadata)
		return v, err
	})
}

// Balance returns what the wallet's unspent tokens of this type are worth; with "" for the type, of all types, for the wallet, of all
// wallets. Each token counts once, whoever else owns it.
func (s *Store) Balance(ctx context.Context, wallet, tokenType string) (*big.Int, error) {
	var total *big.Int
	var err error
	if wallet == "" {
		total, err = s.sum(ctx, query.Select(s.sumField()).From(s.t.tokens).Where(query.And(s.t.unspent(), named(s.t.tokenType, tokenType))))
	} else {
		total, err = s.sum(ctx, query.UnionAll(s.wallet(wallet, tokenType, query.Cond{}, s.sumField())...))
	}
	if err != nil {
		return nil, fmt.Errorf("reading a balance: %w", err)
	}
	return total, nil
}

// sumField is what sum adds up: PostgreSQL has added up each branch already, SQLite cannot.
func (s *Store) sumField() query.Expr {
	if s.db.Backend() == storage.Postgres {
		return query.Sum(s.t.amount)
	}
	return s.t.amount
}

func (s *Store) sum(ctx context.Context, statement query.Statement) (*big.Int, error) {
	total := new(big.Int)
	scan := func(rows *sql.Rows) (*big.Int, error) {
		if s.db.Backend() == storage.SQLite {
			amount, err := storage.Column[storage.Amount](rows)
			return amount.Big(), err
		}
		text, err := storage.Column[sql.NullString](rows)
		if err != nil || !text.Valid {
			return new(big.Int), err
		}
		v, ok := new(big.Int).SetString(text.String, 10)
		if !ok {
			return nil, fmt.Errorf("%.100q is not a sum", text.String)
		}
		return v, nil
	}
	for v, err := range list(ctx, s, "adding up", s.db.Prepared(), statement, scan) {
		if err != nil {
			return nil, err
		}
		total.Add(total, v)
	}
	return total, nil
}
