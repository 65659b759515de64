package rescan

import (
	"context"
	"errors"
	"fmt"

	"dongate/token"
	"dongate/token/endorserdb"
	"dongate/token/internal/records"
	"dongate/token/tokendb"
	"dongate/token/tokens"
)

// writer writes batches. Everything it writes may be written before.
type writer struct {
	Stores
	tokens    *tokens.Service
	params    *params
	conflicts int
	first     error // of the conflicts
}

// side is a store that keeps transactions.
type side struct {
	in     func(tx token.Tx) (write, error) // token.ErrOtherDatabase where it cannot join
	inTx   func(ctx context.Context, fn func(ctx context.Context, w write) error) error
	has    func(ctx context.Context, ids []string) (map[string]bool, error)
	theirs func(e *tokens.Effect) bool
}

// write writes a transaction with its status.
type write func(ctx context.Context, e *tokens.Effect) error

func (w *writer) sides() []side {
	var all []side
	if w.Transactions != nil {
		all = append(all, recordsSide(w.Transactions.Store, func(e *tokens.Effect) bool { return e.Owner }))
	}
	if w.Audit != nil {
		all = append(all, recordsSide(w.Audit.Store, func(e *tokens.Effect) bool { return e.Auditor }))
	}
	if w.Validations != nil {
		all = append(all, validationsSide(w.Validations))
	}
	return all
}

// write writes a batch and returns how many of its transactions belong to this node.
func (w *writer) write(ctx context.Context, batch []*tokens.Transaction) (ours int, err error) {
	effects, err := w.tokens.Effects(ctx, batch)
	if err != nil {
		return 0, err
	}
	sides := w.sides()
	wanted, ours, err := w.wanted(ctx, sides, effects)
	if err != nil {
		return 0, err
	}
	var now [][]byte
	for _, tx := range batch {
		if tx.PublicParams != nil && tx.Status == token.Confirmed {
			if raw := w.params.next(tx.Block, tx.PublicParams); raw != nil {
				now = append(now, raw)
			}
		}
	}
	var conflicts []error
	apart := make([]bool, len(sides))
	err = w.Tokens.InTx(ctx, func(ctx context.Context, x *tokendb.Tx) error {
		conflicts = nil
		for _, raw := range now {
			if err := x.StorePublicParams(ctx, raw); err != nil {
				return err
			}
		}
		for _, e := range effects {
			if err := w.tokens.Write(ctx, x, e); err != nil {
				return err
			}
		}
		for i, s := range sides {
			into, err := s.in(x.Shared())
			if apart[i] = errors.Is(err, token.ErrOtherDatabase); apart[i] {
				continue
			}
			if err != nil {
				return err
			}
			found, err := each(ctx, into, wanted[i])
			if conflicts = append(conflicts, found...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	w.conflict(conflicts)
	for i, s := range sides {
		if !apart[i] {
			continue
		}
		var found []error
		err := s.inTx(ctx, func(ctx context.Context, into write) (err error) {
			found, err = each(ctx, into, wanted[i])
			return err
		})
		if err != nil {
			return 0, err
		}
		w.conflict(found)
	}
	for _, e := range effects {
		if c := e.Certifications(); len(c) > 0 {
			if err := w.Tokens.StoreCertifications(ctx, c); err != nil {
				return 0, err
			}
		}
	}
	return ours, nil
}

func (w *writer) conflict(found []error) {
	if w.conflicts += len(found); w.first == nil && len(found) > 0 {
		w.first = found[0]
	}
}

// wanted returns for each side what belongs in it: what is theirs, and what is there already, since it may be pending.
func (w *writer) wanted(ctx context.Context, sides []side, effects []*tokens.Effect) (wanted [][]*tokens.Effect, ours int, err error) {
	ids := make([]string, len(effects))
	for i, e := range effects {
		ids[i] = e.Request.TxID
	}
	any := map[*tokens.Effect]bool{}
	wanted = make([][]*tokens.Effect, len(sides))
	for i, s := range sides {
		has, err := s.has(ctx, ids)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range effects {
			if s.theirs(e) || has[e.Request.TxID] {
				wanted[i] = append(wanted[i], e)
				any[e] = true
			}
		}
	}
	return wanted, len(any), nil
}

// each writes transactions and returns those of which the database has something else.
func each(ctx context.Context, into write, effects []*tokens.Effect) (conflicts []error, err error) {
	for _, e := range effects {
		err := into(ctx, e)
		switch {
		case errors.Is(err, token.ErrAlreadyFinal), errors.Is(err, token.ErrRequestMismatch):
			conflicts = append(conflicts, fmt.Errorf("transaction %.200q: %w", e.Request.TxID, err))
		case err != nil:
			return conflicts, err
		}
	}
	return conflicts, nil
}

// end stores what waited for public parameters that did not come by: they are newer.
func (w *writer) end(ctx context.Context) error {
	waiting := w.params.waiting
	if len(waiting) == 0 {
		return nil
	}
	return w.Tokens.InTx(ctx, func(ctx context.Context, x *tokendb.Tx) error {
		for _, raw := range waiting {
			if err := x.StorePublicParams(ctx, raw); err != nil {
				return err
			}
		}
		return nil
	})
}

func recordsSide(s *records.Store, theirs func(e *tokens.Effect) bool) side {
	into := func(x *records.Tx) write {
		return func(ctx context.Context, e *tokens.Effect) error {
			tx := e.Transaction()
			if err := x.Append(ctx, e.Request); err != nil {
				return err
			}
			for _, by := range tx.Endorsements {
				if err := x.AddTransactionEndorsementAck(ctx, tx.TxID, by.Endorser, by.Signature); err != nil {
					return err
				}
			}
			return x.SetStatus(ctx, tx.TxID, tx.Status, tx.Message)
		}
	}
	return side{
		in: func(tx token.Tx) (write, error) {
			x, err := s.Continue(tx)
			return into(x), err
		},
		inTx: func(ctx context.Context, fn func(ctx context.Context, w write) error) error {
			return s.InTx(ctx, func(ctx context.Context, x *records.Tx) error { return fn(ctx, into(x)) })
		},
		has: func(ctx context.Context, ids []string) (map[string]bool, error) {
			return keys(s.GetStatuses(ctx, ids...))
		},
		theirs: theirs,
	}
}

func validationsSide(s *endorserdb.Store) side {
	into := func(x *endorserdb.Tx) write {
		return func(ctx context.Context, e *tokens.Effect) error {
			tx := e.Transaction()
			if err := x.AddValidationRecord(ctx, tx.TxID, tx.Raw, tx.Metadata, tx.PPHash); err != nil {
				return err
			}
			return x.SetStatus(ctx, tx.TxID, tx.Status, tx.Message)
		}
	}
	return side{
		in: func(tx token.Tx) (write, error) {
			x, err := s.Continue(tx)
			return into(x), err
		},
		inTx: func(ctx context.Context, fn func(ctx context.Context, w write) error) error {
			return s.InTx(ctx, func(ctx context.Context, x *endorserdb.Tx) error { return fn(ctx, into(x)) })
		},
		has: func(ctx context.Context, ids []string) (map[string]bool, error) {
			return keys(s.GetStatuses(ctx, ids...))
		},
		theirs: func(e *tokens.Effect) bool { return e.Endorser },
	}
}

func keys[V any](m map[string]V, err error) (map[string]bool, error) {
	all := make(map[string]bool, len(m))
	for k := range m {
		all[k] = true
	}
	return all, err
}
