package tokendb

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"math/big"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// GetToken returns the token and the wallets that own it, as the transaction sees them; nil where it is not stored or, unless
// includeDeleted, is spent.
func (x *Tx) GetToken(ctx context.Context, id token.ID, includeDeleted bool) (*token.Token, []string, error) {
	return x.s.getToken(ctx, x.tx, id, includeDeleted)
}

// GetToken is [Tx.GetToken] outside a transaction.
func (s *Store) GetToken(ctx context.Context, id token.ID, includeDeleted bool) (*token.Token, []string, error) {
	return s.getToken(ctx, s.db.Prepared(), id, includeDeleted)
}

func (s *Store) getToken(ctx context.Context, q storage.Querier, id token.ID, includeDeleted bool) (*token.Token, []string, error) {
	t := &s.t
	idx, err := key(id)
	if err != nil {
		return nil, nil, err
	}
	live := query.Cond{}
	if !includeDeleted {
		live = query.Not(query.IsTrue(t.isDeleted))
	}
	type row struct {
		token.Token
		wallet sql.NullString
	}
	statement := query.Select(t.txID, t.idx, t.ownerRaw, t.tokenType, t.quantity, t.amount, t.ownerWallet).From(t.tokens).
		Where(query.And(t.txID.Eq(id.TxID), t.idx.Eq(idx), live))
	found, ok, err := run.One(ctx, s.db, q, statement, func(rows *sql.Rows) (r row, err error) {
		err = scanToken(rows, &r.Token, &r.wallet)
		return r, err
	})
	if err != nil || !ok {
		return nil, nil, wrap(err, "reading token %s", id)
	}
	wallets, err := storage.Collect(run.Query(ctx, s.db, q, query.Select(t.ownWallet).From(t.own).Where(query.And(t.ownTxID.Eq(id.TxID), t.ownIdx.Eq(idx))).
		OrderBy(t.ownWallet.Asc()), storage.Column[string]))
	if err != nil {
		return nil, nil, wrap(err, "reading the owners of token %s", id)
	}
	if found.wallet.Valid {
		wallets = distinct(append([]string{found.wallet.String}, wallets...))
	}
	return &found.Token, wallets, nil
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

func scanToken(rows *sql.Rows, v *token.Token, more ...any) error {
	var amount storage.Amount
	err := rows.Scan(append([]any{&v.TxID, &v.Index, &v.Owner, &v.Type, &v.Quantity, &amount}, more...)...)
	v.Amount = amount.Big()
	return err
}

// exists tells whether a token fits the condition.
func (s *Store) exists(ctx context.Context, doing string, where query.Cond) (bool, error) {
	_, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(query.Literal(1)).From(s.t.tokens).Where(where).Limit(1), storage.Column[int])
	return found, wrap(err, "%s", doing)
}

// IsMine tells whether one of our wallets owns the token and nobody spent it.
func (s *Store) IsMine(ctx context.Context, id token.ID) (bool, error) {
	idx, err := key(id)
	if err != nil {
		return false, err
	}
	return s.exists(ctx, "looking whether a token is ours", query.And(s.t.txID.Eq(id.TxID), s.t.idx.Eq(idx), s.t.unspent()))
}

// TransactionExists tells whether a token of the transaction is stored.
func (s *Store) TransactionExists(ctx context.Context, txID string) (bool, error) {
	return s.exists(ctx, "looking for a transaction's tokens", s.t.txID.Eq(txID))
}

// HasTokenForIdentity tells whether a token, spent or not, is the identity's, in either of its spellings. It reads the whole table.
func (s *Store) HasTokenForIdentity(ctx context.Context, identity token.Identity) (bool, error) {
	if len(identity) == 0 {
		return false, token.ErrEmptyIdentity
	}
	return s.exists(ctx, "looking for an identity's tokens", query.Or(s.t.ownerIdentity.Eq(identity), s.t.ownerRaw.Eq(identity)))
}

// GetTokens returns these tokens in the order asked for. Each must be unspent and owned by one of our wallets, else ErrMissing.
func (s *Store) GetTokens(ctx context.Context, ids ...token.ID) ([]token.Token, error) {
	return s.tokens(ctx, "reading tokens", ids, s.t.unspent())
}

// ListAuditTokens returns these tokens, spent or not, in the order asked for. Each must be one we audit, else ErrMissing.
func (s *Store) ListAuditTokens(ctx context.Context, ids ...token.ID) ([]token.Token, error) {
	return s.tokens(ctx, "reading audited tokens", ids, query.IsTrue(s.t.auditor))
}

func (s *Store) tokens(ctx context.Context, doing string, ids []token.ID, which query.Cond) ([]token.Token, error) {
	t := &s.t
	fields := []query.Expr{t.txID, t.idx, t.ownerRaw, t.tokenType, t.quantity, t.amount}
	return byID(ctx, s, doing, ids, which, fields, func(rows *sql.Rows, id *token.ID) (v token.Token, err error) {
		err = scanToken(rows, &v)
		*id = v.ID
		return v, err
	})
}

// GetTokenOutputs returns the tokens' outputs as on the ledger, in the order asked for; ErrMissing if one is not stored or is empty.
func (s *Store) GetTokenOutputs(ctx context.Context, ids ...token.ID) ([][]byte, error) {
	return s.parts(ctx, ids, func(v token.LedgerToken) []byte { return v.Token })
}

// GetTokenMetadata returns the tokens' metadata, in the order asked for; ErrMissing if one is not stored or has none.
func (s *Store) GetTokenMetadata(ctx context.Context, ids ...token.ID) ([][]byte, error) {
	return s.parts(ctx, ids, func(v token.LedgerToken) []byte { return v.Metadata })
}

func (s *Store) parts(ctx context.Context, ids []token.ID, part func(token.LedgerToken) []byte) ([][]byte, error) {
	all, err := s.ledger(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(all))
	for i, v := range all {
		if out[i] = part(v); len(out[i]) == 0 {
			return nil, fmt.Errorf("reading ledger tokens: token %s has nothing there: %w", v.ID, ErrMissing)
		}
	}
	return out, nil
}

// GetTokenOutputsAndMeta returns the tokens' outputs, metadata and formats, in the order asked for; ErrMissing if one is not stored or its
// output or metadata is empty.
func (s *Store) GetTokenOutputsAndMeta(ctx context.Context, ids ...token.ID) ([]token.LedgerToken, error) {
	all, err := s.ledger(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if len(v.Token) == 0 || len(v.Metadata) == 0 {
			return nil, fmt.Errorf("reading ledger tokens: token %s has nothing there: %w", v.ID, ErrMissing)
		}
	}
	return all, nil
}

func (s *Store) ledger(ctx context.Context, ids []token.ID) ([]token.LedgerToken, error) {
	t := &s.t
	fields := []query.Expr{t.txID, t.idx, t.ledgerType, t.ledger, t.ledgerMetadata}
	return byID(ctx, s, "reading ledger tokens", ids, query.Cond{}, fields, func(rows *sql.Rows, id *token.ID) (v token.LedgerToken, err error) {
		err = rows.Scan(&v.TxID, &v.Index, &v.Format, &v.Token, &v.Metadata)
		*id = v.ID
		return v, err
	})
}

// WhoDeletedTokens returns for each token, in the order asked for, who spent it and whether it is spent; ErrMissing if one is not stored.
func (s *Store) WhoDeletedTokens(ctx context.Context, ids ...token.ID) (spentBy []string, deleted []bool, err error) {
	type fate struct {
		by   string
		gone bool
	}
	t := &s.t
	all, err := byID(ctx, s, "reading who spent tokens", ids, query.Cond{}, []query.Expr{t.txID, t.idx, t.spentBy, t.isDeleted}, func(rows *sql.Rows, id *token.ID) (f fate, err error) {
		err = rows.Scan(&id.TxID, &id.Index, &f.by, &f.gone)
		return f, err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, f := range all {
		spentBy, deleted = append(spentBy, f.by), append(deleted, f.gone)
	}
	return spentBy, deleted, nil
}

// ListHistoryIssuedTokens yields the tokens that we issued, spent or not, without those made by redeems.
func (s *Store) ListHistoryIssuedTokens(ctx context.Context) iter.Seq2[token.Issued, error] {
	t := &s.t
	statement := query.Select(t.txID, t.idx, t.ownerRaw, t.issuerRaw, t.tokenType, t.quantity, t.amount).From(t.tokens).
		Where(query.And(query.IsTrue(t.issuer), query.Not(query.IsTrue(t.redeemed))))
	return list(ctx, s, "listing issued tokens", s.db.Prepared(), statement, func(rows *sql.Rows) (v token.Issued, err error) {
		var amount storage.Amount
		err = rows.Scan(&v.TxID, &v.Index, &v.Owner, &v.Issuer, &v.Type, &v.Quantity, &amount)
		v.Amount = amount.Big()
		return v, err
	})
}

// IssuedBalance returns what the tokens are worth that we issued, of one type or, with "", of any, stored from from to to, both included;
// nil: no bound. Whether they were spent since does not matter.
func (s *Store) IssuedBalance(ctx context.Context, tokenType string, from, to *time.Time) (*big.Int, error) {
	return s.issued(ctx, query.Not(query.IsTrue(s.t.redeemed)), tokenType, from, to)
}

// RedeemedBalance is IssuedBalance for the tokens that redeems made.
func (s *Store) RedeemedBalance(ctx context.Context, tokenType string, from, to *time.Time) (*big.Int, error) {
	return s.issued(ctx, query.IsTrue(s.t.redeemed), tokenType, from, to)
}

func (s *Store) issued(ctx context.Context, which query.Cond, tokenType string, from, to *time.Time) (*big.Int, error) {
	t := &s.t
	total, err := s.sum(ctx, query.Select(s.sumField()).From(t.tokens).
		Where(query.And(query.IsTrue(t.issuer), which, named(t.tokenType, tokenType), t.storedAt.Between(stored(from), stored(to)))))
	return total, wrap(err, "reading an issuer's balance")
}

func stored(t *time.Time) *storage.Time {
	if t == nil {
		return nil
	}
	v := storage.NewTime(*t)
	return &v
}

// QueryTokenDetails yields the tokens of our wallets that fit the query, once for each owning wallet that the query allows.
func (s *Store) QueryTokenDetails(ctx context.Context, q token.DetailsQuery) iter.Seq2[token.Details, error] {
	return func(yield func(token.Details, error) bool) {
		statement, err := s.detailsStatement(q)
		if err != nil {
			yield(token.Details{}, wrap(err, "reading token details"))
			return
		}
		for v, err := range list(ctx, s, "reading token details", s.db.Read(), statement, scanDetails) {
			if !yield(v, err) {
				return
			}
		}
	}
}

func (s *Store) detailsStatement(q token.DetailsQuery) (query.Statement, error) {
	t := &s.t
	keys, err := pairs(q.IDs)
	if err != nil {
		return nil, err
	}
	bounds, err := s.amountBounds(q.Min, q.Max)
	if err != nil {
		return nil, err
	}
	which := query.And(named(t.ownerType, q.OwnerType), named(t.tokenType, q.Type), query.InPairs(t.txID, t.idx, keys...),
		t.txID.In(q.TransactionIDs...), bounds, t.ledgerType.In(texts(q.LedgerFormats)...))
	switch q.Spendable {
	case token.SpendableOnly:
		which = query.And(which, query.IsTrue(t.canSpend))
	case token.NonSpendableOnly:
		which = query.And(which, query.Not(query.IsTrue(t.canSpend)))
	}
	wallets := q.WalletIDs
	if len(wallets) == 0 && q.WalletID != "" {
		wallets = []string{q.WalletID}
	}
	members := s.details(wallets, t.unspent(), which)
	if q.IncludeDeleted { // on their own, for the index of each
		members = append(members, s.details(wallets, query.And(query.IsTrue(t.owner), query.IsTrue(t.isDeleted)), which)...)
	}
	return query.UnionAll(members...).OrderBy(t.storedAt.Asc(), t.txID.Asc(), t.idx.Asc()), nil
}

// details returns the branches of tokens with their wallets: from the token's own column and from the table of owners.
func (s *Store) details(wallets []string, which ...query.Cond) []query.Member {
	t := &s.t
	kept := query.And(which...)
	fields := func(wallet query.Expr) []query.Expr {
		return []query.Expr{t.txID, t.idx, wallet, t.ownerIdentity, t.ownerType, t.tokenType, t.amount, t.ledgerType, t.canSpend, t.isDeleted, t.spentBy, t.spentAt, t.storedAt}
	}
	column := t.ownerWallet.In(wallets...)
	if len(wallets) == 0 { // a token without a wallet too
		column = query.Or(t.ownerWallet.NotNull(), query.Not(query.Exists(query.Select(query.Literal(1)).From(t.own).
			Where(query.And(t.ownTxID.EqColumn(t.txID), t.ownIdx.EqColumn(t.idx))))))
	}
	return []query.Member{
		query.Select(fields(t.ownerWallet)...).From(t.tokens).Where(query.And(column, kept)),
		query.Select(fields(t.ownWallet)...).From(t.own).InnerJoin(t.tokens, query.And(t.txID.EqColumn(t.ownTxID), t.idx.EqColumn(t.ownIdx))).
			Where(query.And(t.ownWallet.In(wallets...), query.Or(t.ownerWallet.IsNull(), query.Compare(t.ownerWallet, query.NE, t.ownWallet)), kept)),
	}
}

func scanDetails(rows *sql.Rows) (v token.Details, err error) {
	var amount storage.Amount
	var wallet sql.NullString
	var spentAt sql.Null[storage.Time]
	var storedAt storage.Time
	err = rows.Scan(&v.TxID, &v.Index, &wallet, &v.OwnerIdentity, &v.OwnerType, &v.Type, &amount, &v.LedgerFormat, &v.Spendable, &v.IsSpent, &v.SpentBy, &spentAt, &storedAt)
	v.WalletID, v.Amount, v.SpentAt, v.StoredAt = wallet.String, amount.Big(), spentAt.V.Time, storedAt.Time
	return v, err
}
