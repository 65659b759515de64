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
	"dongate/token/internal/run"
)

// SpendableTokensBy yields the tokens that the wallet can spend now, of one type or, with "", of any: owned, unspent, of a supported format
// and not locked; those of a type ascending by amount, equal ones by transaction and index.
func (s *Store) SpendableTokensBy(ctx context.Context, wallet, tokenType string) iter.Seq2[token.Spendable, error] {
	return s.QuerySpendableTokens(ctx, token.SpendableQuery{WalletID: wallet, Type: tokenType, Order: token.Ascending})
}

// QuerySpendableTokens yields the tokens that can be spent now, see [Store.SpendableTokensBy], within the query's bounds. With a wallet, a
// type and an order it costs what it yields, be the wallet large or small.
func (s *Store) QuerySpendableTokens(ctx context.Context, q token.SpendableQuery) iter.Seq2[token.Spendable, error] {
	statement, err := s.spendableStatement(q)
	if err != nil {
		return func(yield func(token.Spendable, error) bool) {
			yield(token.Spendable{}, fmt.Errorf("reading spendable tokens: %w", err))
		}
	}
	return list(ctx, s, "reading spendable tokens", s.db.Prepared(), statement, scanSpendable)
}

func (s *Store) spendableStatement(q token.SpendableQuery) (query.Statement, error) {
	t := &s.t
	bounds, err := s.amountBounds(q.Min, q.Max)
	if err != nil {
		return nil, err
	}
	after, err := s.after(q)
	if err != nil {
		return nil, err
	}
	locked := query.Exists(query.Select(query.Literal(1)).From(t.locks).Where(query.And(t.lockTxID.EqColumn(t.txID), t.lockIdx.EqColumn(t.idx))))
	from := query.Select(t.txID, t.idx, t.ownerWallet, t.tokenType, t.quantity, t.amount).From(t.tokens).Where(query.And(
		t.spendable(), named(t.ownerWallet, q.WalletID), named(t.tokenType, q.Type), bounds, after, s.supported(), query.Not(locked)))
	limit := max(q.Limit, 0)
	switch q.Order {
	case token.Ascending:
		return from.OrderBy(t.amount.Asc(), t.txID.Asc(), t.idx.Asc()).Limit(limit), nil
	case token.Descending:
		return from.OrderBy(t.amount.Desc(), t.txID.Desc(), t.idx.Desc()).Limit(limit), nil
	}
	return from.Limit(limit), nil
}

// amountBounds is min <= amount <= max.
func (s *Store) amountBounds(from, to *big.Int) (query.Cond, error) {
	var conds []query.Cond
	if from != nil && from.Sign() > 0 {
		a, err := storage.NewAmount(from)
		if err != nil { // no amount is that large
			return query.Nothing(), nil
		}
		conds = append(conds, s.t.amount.Ge(a.Bind(s.db.Backend())))
	}
	if to != nil {
		if to.Sign() < 0 {
			return query.Nothing(), nil
		}
		if a, err := storage.NewAmount(to); err == nil {
			conds = append(conds, s.t.amount.Le(a.Bind(s.db.Backend())))
		}
	}
	return query.And(conds...), nil
}

// after is true of the tokens behind q.After in the query's order.
func (s *Store) after(q token.SpendableQuery) (query.Cond, error) {
	if q.After == nil {
		return query.Cond{}, nil
	}
	t := &s.t
	idx, err := key(q.After.ID)
	if err != nil {
		return query.Cond{}, err
	}
	a, err := token.Amount(q.After.Amount)
	if err != nil {
		return query.Cond{}, err
	}
	amount := a.Bind(s.db.Backend())
	// The first comparison is for the index.
	switch q.Order {
	case token.Ascending:
		return query.And(t.amount.Ge(amount), query.Or(t.amount.Gt(amount), t.txID.Gt(q.After.TxID), query.And(t.txID.Eq(q.After.TxID), t.idx.Gt(idx)))), nil
	case token.Descending:
		return query.And(t.amount.Le(amount), query.Or(t.amount.Lt(amount), t.txID.Lt(q.After.TxID), query.And(t.txID.Eq(q.After.TxID), t.idx.Lt(idx)))), nil
	}
	return query.Cond{}, fmt.Errorf("continuing a listing without an order: %w", token.ErrEmptyArgument)
}

func scanSpendable(rows *sql.Rows) (v token.Spendable, err error) {
	var amount storage.Amount
	var wallet sql.NullString
	err = rows.Scan(&v.TxID, &v.Index, &wallet, &v.Type, &v.Quantity, &amount)
	v.WalletID, v.Amount = wallet.String, amount.Big()
	return v, err
}

// HasAnySpendableTokens tells whether the wallet has a token of this type that it can spend, now or once it is not locked any more.
func (s *Store) HasAnySpendableTokens(ctx context.Context, wallet, tokenType string) (bool, error) {
	return s.HasEnoughSpendableTokens(ctx, wallet, tokenType, nil)
}

// HasEnoughSpendableTokens tells whether the tokens of this type that the wallet can spend, now or once they are not locked any more, are
// worth the target. Of a nil target it tells whether there is one. It reads the largest first, and no more than needed.
func (s *Store) HasEnoughSpendableTokens(ctx context.Context, wallet, tokenType string, target *big.Int) (bool, error) {
	t := &s.t
	statement := query.Select(t.amount).From(t.tokens).
		Where(query.And(t.spendable(), named(t.ownerWallet, wallet), named(t.tokenType, tokenType), s.supported())).
		OrderBy(t.amount.Desc(), t.txID.Desc(), t.idx.Desc())
	sum := new(big.Int)
	for amount, err := range run.Query(ctx, s.db, s.db.Prepared(), statement, storage.Column[storage.Amount]) {
		if err != nil {
			return false, fmt.Errorf("adding up spendable tokens: %w", err)
		}
		if target == nil || sum.Add(sum, amount.Big()).Cmp(target) >= 0 {
			return true, nil
		}
	}
	return target != nil && target.Sign() <= 0, nil
}
