// Package auditor judges transactions and keeps what was judged: it locks the enrolment ids of a transaction, reads what it spends from the
// tokens that were audited before, lets the application judge, and stores it as pending, so that holdings include it from then on. When
// the transaction ends, its tokens become those that later ones can spend.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/tokendb"
	"dongate/token/tokens"
)

// ErrInput: the request says of a token that it spends something else than what was audited.
var ErrInput = errors.New("auditor: an input is not the token that was audited")

// ErrNotOurs: the transaction is not one that this node audits, see tokens.Ours.
var ErrNotOurs = errors.New("auditor: the transaction is not for this auditor")

// Judge approves of a transaction, or returns why not. Filters of the store show the holdings without the transaction, but with all others
// that are pending; nobody else changes those of its enrolment ids meanwhile. It is called once.
type Judge func(ctx context.Context, r auditdb.Request) error

// Service is the auditor of one TMS. It is safe for concurrent use.
type Service struct {
	audits *auditdb.StoreService
	store  *tokendb.Store
	tokens *tokens.Service
	decode tokens.Decode
}

// New returns a Service. It closes nothing of what it is given.
func New(audits *auditdb.StoreService, store *tokendb.Store, t *tokens.Service, decode tokens.Decode) *Service {
	return &Service{audits, store, t, decode}
}

// Audit judges a transaction and, if it is approved of, stores it as pending. It waits for other transactions of the same enrolment ids.
// Every input must be a token that was audited and is unspent: else tokendb.ErrMissing or token.ErrTokenSpent; of which the request may
// not say otherwise: ErrInput. Where it fails nothing is stored. An approved transaction may come again: it is judged again, and
// changes nothing.
func (s *Service) Audit(ctx context.Context, tx *tokens.Transaction, judge Judge) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("auditing transaction %.200q: %w", tx.TxID, err)
		}
	}()
	e, err := s.tokens.Effect(ctx, tx)
	switch {
	case err != nil:
		return err
	case !e.Auditor:
		return ErrNotOurs
	}
	if err := s.audits.AcquireLocks(ctx, tx.TxID, e.Request.EnrollmentIDs()...); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		err = errors.Join(err, s.audits.ReleaseLocks(ctx, tx.TxID))
	}()
	if err := s.inputs(ctx, tx); err != nil {
		return err
	}
	if err := judge(ctx, e.Request); err != nil {
		return err
	}
	return s.audits.Append(ctx, e.Request)
}

// releaseTime bounds the release of locks after the context has ended.
const releaseTime = 10 * time.Second

// inputs checks what the transaction spends.
func (s *Service) inputs(ctx context.Context, tx *tokens.Transaction) error {
	var inputs []tokens.Input
	var ids []token.ID
	for _, a := range tx.Actions {
		for _, in := range a.Inputs {
			inputs, ids = append(inputs, in), append(ids, in.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	audited, err := s.store.ListAuditTokens(ctx, ids...)
	if err != nil {
		return err
	}
	by, spent, err := s.store.WhoDeletedTokens(ctx, ids...)
	if err != nil {
		return err
	}
	for i, in := range inputs {
		switch {
		case spent[i] && by[i] != tx.TxID:
			return fmt.Errorf("%w: %s", token.ErrTokenSpent, in.ID)
		case in.Amount != nil && (in.Amount.Cmp(audited[i].Amount) != 0 || in.Type != audited[i].Type):
			return fmt.Errorf("%w: %s", ErrInput, in.ID)
		}
	}
	return nil
}

// Finish gives an audited transaction its status and, if it is confirmed, stores its tokens, see tokens.Service. It is a recovery.Finality.
func (s *Service) Finish(ctx context.Context, txID string, status token.TxStatus, message string) error {
	return s.tokens.Finish(ctx, s.audits, s.decode, txID, status, message, nil)
}
