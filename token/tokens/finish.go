package tokens

import (
	"context"
	"errors"
	"fmt"

	"dongate/token"
	"dongate/token/tokendb"
	"dongate/token/ttxdb"
)

// Decode decodes the request that a transaction was stored with. TxID, Status and Message of what it returns are overwritten.
type Decode func(ctx context.Context, txID string, raw []byte) (*Transaction, error)

// Transactions is the StoreService of package ttxdb or auditdb.
type Transactions interface {
	GetStatus(ctx context.Context, txID string) (token.TxStatus, string, error)
	GetTokenRequest(ctx context.Context, txID string) ([]byte, error)
	Continue(tx token.Tx) (*ttxdb.Tx, error)
	SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error
	Changed(txID string)
}

// Finish gives a transaction its status and, if that is Confirmed, writes its tokens: in one database transaction where the transactions
// are in the database of the tokens. Where they are not, the tokens come first, so that a transaction that counts as confirmed has its
// tokens, and one whose process died in between is pending and is finished again. also writes with the tokens; it may be called more than
// once, and may be nil. To finish again with the same status succeeds; token.ErrAlreadyFinal and token.ErrUnknownTransaction write nothing.
func (s *Service) Finish(ctx context.Context, t Transactions, decode Decode, txID string, to token.TxStatus, message string, also func(ctx context.Context, tx token.Tx) error) error {
	is, _, err := t.GetStatus(ctx, txID)
	if err == nil {
		_, err = token.Change(is, to)
	}
	var e *Effect
	if err == nil && to == token.Confirmed {
		e, err = s.stored(ctx, t, decode, txID, message)
	}
	if err != nil {
		return fmt.Errorf("finishing transaction %.200q: %w", txID, err)
	}
	shared := false
	err = s.store.InTx(ctx, func(ctx context.Context, x *tokendb.Tx) error {
		if e != nil {
			if err := s.Write(ctx, x, e); err != nil {
				return err
			}
		}
		if also != nil {
			if err := also(ctx, x.Shared()); err != nil {
				return err
			}
		}
		joined, err := t.Continue(x.Shared())
		if shared = !errors.Is(err, token.ErrOtherDatabase); !shared {
			return nil
		}
		if err != nil {
			return err
		}
		return joined.SetStatus(ctx, txID, to, message)
	})
	if err == nil && e != nil && len(e.Certifications()) > 0 {
		err = s.store.StoreCertifications(ctx, e.Certifications())
	}
	if err == nil && !shared {
		err = t.SetStatus(ctx, txID, to, message)
	}
	if err != nil {
		return fmt.Errorf("finishing transaction %.200q: %w", txID, err)
	}
	t.Changed(txID)
	return nil
}

// stored returns the effect of a transaction that is confirmed.
func (s *Service) stored(ctx context.Context, t Transactions, decode Decode, txID, message string) (*Effect, error) {
	raw, err := t.GetTokenRequest(ctx, txID)
	if err != nil {
		return nil, err
	}
	tx, err := decode(ctx, txID, raw)
	if err != nil {
		return nil, fmt.Errorf("decoding its request: %w", err)
	}
	tx.TxID, tx.Status, tx.Message = txID, token.Confirmed, message
	return s.Effect(ctx, tx)
}
