package tokendb

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math/big"
	"strconv"
	"strings"

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

// maxWindow is how many tokens one statement reads of an ordered listing: a longer one is read in several, so that no cursor stays open
// while the caller works, and the index serves each.
const maxWindow = 512

// QuerySpendableTokens yields the tokens that can be spent now, see [Store.SpendableTokensBy], within the query's bounds. With a wallet, a
// type and an order it costs what it yields, be the wallet large or small. A long ordered listing is no snapshot: it shows a token at most
// once, as it was when the listing came to it.
func (s *Store) QuerySpendableTokens(ctx context.Context, q token.SpendableQuery) iter.Seq2[token.Spendable, error] {
	return func(yield func(token.Spendable, error) bool) {
		left := q.Limit
		for {
			if q.Order == token.Ascending || q.Order == token.Descending {
				q.Limit = maxWindow
				if left > 0 {
					q.Limit = min(left, maxWindow)
				}
			}
			statement, err := s.spendableStatement(q)
			if err != nil {
				yield(token.Spendable{}, fmt.Errorf("reading spendable tokens: %w", err))
				return
			}
			n := 0
			var last token.Spendable
			for v, err := range list(ctx, s, "reading spendable tokens", s.db.Prepared(), statement, scanSpendable) {
				if !yield(v, err) || err != nil {
					return
				}
				n, last = n+1, v
			}
			left -= n
			if q.Limit != maxWindow || n < maxWindow || left == 0 {
				return
			}
			q.After = &last
		}
	}
}

// spendable is the statement of a listing. Its text is written out, because the place after a token is one comparison of rows, which the
// index takes as it is.
type spendable struct {
	text strings.Builder
	args []any
}

// Format implements query.Statement.
func (p *spendable) Format(query.Interpreter) (string, []any, error) {
	return p.text.String(), p.args, nil
}

// add adds to the text; each ? stands for the next of the values.
func (p *spendable) add(text string, values ...any) {
	for _, v := range values {
		before, after, _ := strings.Cut(text, "?")
		p.args = append(p.args, v)
		p.text.WriteString(before + "$" + strconv.Itoa(len(p.args)))
		text = after
	}
	p.text.WriteString(text)
}

func (s *Store) spendableStatement(q token.SpendableQuery) (query.Statement, error) {
	p := new(spendable)
	p.add("SELECT t.tx_id, t.idx, t.owner_wallet_id, t.token_type, t.quantity, t.amount FROM " + s.prefix + "tokens AS t WHERE t.owner AND t.spendable AND NOT t.is_deleted")
	if q.WalletID != "" {
		p.add(" AND t.owner_wallet_id = ?", q.WalletID)
	}
	if q.Type != "" {
		p.add(" AND t.token_type = ?", q.Type)
	}
	if q.Min != nil && q.Min.Sign() > 0 {
		if a, err := storage.NewAmount(q.Min); err == nil {
			p.add(" AND t.amount >= ?", a.Bind(s.db.Backend()))
		} else { // no amount is that large
			p.add(" AND 1 = 0")
		}
	}
	if q.Max != nil && q.Max.Sign() < 0 {
		p.add(" AND 1 = 0")
	} else if q.Max != nil {
		if a, err := storage.NewAmount(q.Max); err == nil {
			p.add(" AND t.amount <= ?", a.Bind(s.db.Backend()))
		}
	}
	order, beyond := map[token.AmountOrder]string{token.Ascending: " ORDER BY t.amount, t.tx_id, t.idx", token.Descending: " ORDER BY t.amount DESC, t.tx_id DESC, t.idx DESC"}[q.Order], ">"
	if q.Order == token.Descending {
		beyond = "<"
	}
	if q.After != nil {
		idx, err := key(q.After.ID)
		if err != nil {
			return nil, err
		}
		a, err := token.Amount(q.After.Amount)
		if err != nil {
			return nil, err
		}
		if order == "" {
			return nil, fmt.Errorf("continuing a listing without an order: %w", token.ErrEmptyArgument)
		}
		p.add(" AND (t.amount, t.tx_id, t.idx) "+beyond+" (?, ?, ?)", a.Bind(s.db.Backend()), q.After.TxID, idx)
	}
	if formats := s.formats.Load(); formats != nil {
		p.add(" AND t.ledger_type IN (NULL")
		for _, f := range *formats {
			p.add(", ?", f)
		}
		p.add(")")
	}
	// Not locked, as a value and not as NOT EXISTS: of that PostgreSQL may make a join, whose rows it would have to sort. It takes half of
	// the rows to pass a value like this one, and few to pass IS NULL, for which it would sort too.
	p.add(" AND COALESCE((SELECT FALSE FROM " + s.prefix + "tkn_locks AS l WHERE l.tx_id = t.tx_id AND l.idx = t.idx), TRUE)" + order)
	if q.Limit > 0 {
		p.add(" LIMIT ?", q.Limit)
	}
	return p, nil
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
