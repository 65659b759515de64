// Package tokens turns transactions into tokens: which outputs are ours and of which wallets, what is spent, and what is recorded. Everything
// that a transaction makes and spends is written in one database transaction, where possible together with its status, so that at no moment
// a wallet has neither the old tokens nor the new ones.
//
// The same function of the same transaction decides, whether it was made here, was heard of, or is read from the ledger again: so a
// rescan finds what was lost, see package rescan. All writing is idempotent.
package tokens

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"dongate/token"
	"dongate/token/tokendb"
	"dongate/token/ttxdb"
)

// Ours says what belongs to this node. Its functions may be called by any goroutine, never during a database transaction of this package.
type Ours struct {
	// Owns returns the wallets that own what an identity, as in Output.OwnerRaw, owns: none, it is not ours; one, that wallet can spend it
	// alone; several, they own it together and none of them alone can spend it. Nil: nothing is ours.
	Owns func(ctx context.Context, owner token.Identity) (walletIDs []string, err error)
	// Issues tells whether we issue as this identity. Nil: we do not.
	Issues func(ctx context.Context, issuer token.Identity) (bool, error)
	// Audits tells whether we audit the transaction. Nil: we do not.
	Audits func(ctx context.Context, tx *Transaction) (bool, error)
	// Endorses tells whether we endorse as this identity. Nil: we do not.
	Endorses func(ctx context.Context, endorser token.Identity) (bool, error)
	// Formats are those of tokens that can be spent; nil: all.
	Formats []token.Format
}

// Service decides what transactions are to this node and writes their tokens. It is safe for concurrent use.
type Service struct {
	store *tokendb.Store
	ours  Ours
}

// New returns a Service that writes to the store.
func New(store *tokendb.Store, ours Ours) *Service { return &Service{store, ours} }

// Effect is what a transaction is to this node.
type Effect struct {
	Request  ttxdb.Request // for the records of the owner and the auditor
	Owner    bool          // it spends or makes tokens of ours, or we issue: it belongs in the owner's records
	Auditor  bool          // we audit it
	Endorser bool          // we endorsed it
	Spends   []token.ID    // those of the inputs that our wallets own

	tx     *Transaction
	made   []made
	inputs []token.ID
}

// Transaction returns the transaction.
func (e *Effect) Transaction() *Transaction { return e.tx }

// Certifications returns those that came with the tokens that are stored of the transaction.
func (e *Effect) Certifications() map[token.ID][]byte {
	all := map[token.ID][]byte{}
	for _, m := range e.made {
		if m.certification != nil && e.tx.Status == token.Confirmed {
			all[m.ID] = m.certification
		}
	}
	return all
}

// made is a token to be stored.
type made struct {
	token.Record
	wallets       []string // where there are several
	certification []byte
}

// known is what we know of a token that is spent.
type known struct {
	tokenType string
	amount    *big.Int
	ours      bool
}

// Effect returns what a transaction is to this node, as far as can be told from what is stored.
func (s *Service) Effect(ctx context.Context, tx *Transaction) (*Effect, error) {
	all, err := s.Effects(ctx, []*Transaction{tx})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Effects is Effect for transactions in the order of the ledger, of which none need be stored.
func (s *Service) Effects(ctx context.Context, txs []*Transaction) ([]*Effect, error) {
	before := map[token.ID]known{} // what earlier ones made
	all := make([]*Effect, len(txs))
	for i, tx := range txs {
		e, err := s.effect(ctx, tx, before)
		if err != nil {
			return nil, fmt.Errorf("what transaction %.200q is to us: %w", tx.TxID, err)
		}
		for _, m := range e.made {
			if tx.Status == token.Confirmed {
				before[m.ID] = known{m.Type, m.Amount, m.Owner}
			}
		}
		all[i] = e
	}
	return all, nil
}

func (s *Service) effect(ctx context.Context, tx *Transaction, before map[token.ID]known) (*Effect, error) {
	e := &Effect{tx: tx}
	var err error
	if s.ours.Audits != nil {
		if e.Auditor, err = s.ours.Audits(ctx, tx); err != nil {
			return nil, err
		}
	}
	for _, by := range tx.Endorsements {
		if s.ours.Endorses == nil || e.Endorser {
			break
		}
		if e.Endorser, err = s.ours.Endorses(ctx, by.Endorser); err != nil {
			return nil, err
		}
	}
	spent := map[token.ID]known{}
	for _, a := range tx.Actions {
		for _, in := range a.Inputs {
			k, err := s.known(ctx, in.ID, before)
			if err != nil {
				return nil, err
			}
			spent[in.ID] = k
			e.inputs = append(e.inputs, in.ID)
			if k.ours {
				e.Spends, e.Owner = append(e.Spends, in.ID), true
			}
		}
		if err := s.outputs(ctx, e, a); err != nil {
			return nil, err
		}
	}
	e.Request = tx.request(func(in Input) (string, *big.Int) {
		switch k := spent[in.ID]; {
		case in.Amount != nil:
			return in.Type, in.Amount
		case k.amount != nil:
			return k.tokenType, k.amount
		}
		return in.Type, new(big.Int)
	})
	return e, nil
}

// known returns what is known of a token, spent or not.
func (s *Service) known(ctx context.Context, id token.ID, before map[token.ID]known) (known, error) {
	if k, ok := before[id]; ok {
		return k, nil
	}
	t, wallets, err := s.store.GetToken(ctx, id, true)
	if err != nil || t == nil {
		return known{}, err
	}
	return known{t.Type, t.Amount, len(wallets) > 0}, nil
}

// outputs adds what an action makes and we are to store.
func (s *Service) outputs(ctx context.Context, e *Effect, a Action) error {
	issuer := false
	if s.ours.Issues != nil && len(a.Issuer) > 0 {
		var err error
		if issuer, err = s.ours.Issues(ctx, a.Issuer); err != nil {
			return err
		}
	}
	for _, o := range a.Outputs {
		var wallets []string
		if s.ours.Owns != nil && !o.redeemed() {
			var err error
			if wallets, err = s.ours.Owns(ctx, o.OwnerRaw); err != nil {
				return err
			}
		}
		m := made{certification: o.Certification, Record: token.Record{
			ID: token.ID{TxID: e.tx.TxID, Index: o.Index}, Type: o.Type, Quantity: o.Quantity, Amount: o.Amount,
			OwnerRaw: o.OwnerRaw, OwnerType: o.OwnerType, OwnerIdentity: o.OwnerIdentity, IssuerRaw: a.Issuer,
			Ledger: o.Ledger, LedgerMetadata: o.LedgerMetadata, LedgerFormat: o.LedgerFormat,
			Owner: len(wallets) > 0, Auditor: e.Auditor, Issuer: issuer && (len(a.Inputs) == 0 || o.redeemed()), Redeemed: o.redeemed(),
		}}
		if m.OwnerIdentity == nil {
			m.OwnerIdentity = o.OwnerRaw
		}
		if len(wallets) == 1 {
			m.OwnerWalletID = wallets[0]
		} else {
			m.wallets = wallets
		}
		e.Owner = e.Owner || m.Owner || m.Issuer
		if m.Owner || m.Auditor || m.Issuer {
			e.made = append(e.made, m)
		}
	}
	return nil
}

// Write writes, if the transaction is confirmed, the tokens it made that are ours, that we issued or audit, and says that it spent its
// inputs. Of a transaction that is not, it writes nothing. Its public parameters and certifications are for the caller.
func (s *Service) Write(ctx context.Context, x *tokendb.Tx, e *Effect) error {
	if e.tx.Status != token.Confirmed {
		return nil
	}
	for _, m := range e.made {
		if err := x.StoreToken(ctx, m.Record, m.wallets...); err != nil {
			return err
		}
		if s.ours.Formats != nil && !slices.Contains(s.ours.Formats, m.LedgerFormat) {
			if err := x.SetSpendable(ctx, m.ID, false); err != nil {
				return err
			}
		}
	}
	return x.DeleteTokens(ctx, e.tx.TxID, e.inputs...)
}
