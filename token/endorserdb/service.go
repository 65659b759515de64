package endorserdb

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.uber.org/zap"

	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/internal/status"
)

// Event tells that a transaction ended.
type Event = status.Event

// Anchor returns which transaction a raw request was made for.
type Anchor = records.Anchor

// ServiceOptions are what a StoreService is told.
type ServiceOptions struct {
	Anchor Anchor        // must be given
	Poll   time.Duration // how often statuses that are waited for are read although nothing told of a change; 0: one second
	Log    *zap.Logger   // nil: none
}

// StoreService is a Store that checks the requests in it and tells those who wait of the ends of transactions, see [status.Watcher]. It is
// safe for concurrent use.
type StoreService struct {
	*Store
	*status.Watcher
	o ServiceOptions
}

// NewStoreService returns a service above a store. Its Close closes the store too.
func NewStoreService(s *Store, o ServiceOptions) (*StoreService, error) {
	if o.Anchor == nil {
		return nil, fmt.Errorf("a service of validations without an Anchor to check requests with: %w", token.ErrEmptyArgument)
	}
	return &StoreService{s, status.NewWatcher(s, o.Poll, o.Log), o}, nil
}

// Close ends the telling of ends, and the Store. It may be called more than once.
func (s *StoreService) Close() error {
	s.Watcher.Close()
	return s.Store.Close()
}

// AppendValidationRecord stores a request that was validated, which must have been made for its transaction, see [Tx.AddValidationRecord].
func (s *StoreService) AppendValidationRecord(ctx context.Context, txID string, request []byte, metadata map[string][]byte, ppHash []byte) error {
	if err := s.o.Anchor.Check(txID, request); err != nil {
		return err
	}
	return s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.AddValidationRecord(ctx, txID, request, metadata, ppHash)
	})
}

// SetStatus is [Store.SetStatus], and has those told who wait for the transaction.
func (s *StoreService) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	err := s.Store.SetStatus(ctx, txID, to, message)
	if err == nil {
		s.Changed(txID)
	}
	return err
}

// QueryValidations is [Store.QueryValidations]. A request that was made for another transaction ends it with token.ErrIntegrity.
func (s *StoreService) QueryValidations(ctx context.Context, q token.ValidationsQuery) iter.Seq2[token.ValidationRecord, error] {
	return func(yield func(token.ValidationRecord, error) bool) {
		for r, err := range s.Store.QueryValidations(ctx, q) {
			if err == nil {
				if err = s.o.Anchor.Check(r.TxID, r.Request); err != nil {
					yield(token.ValidationRecord{}, err)
					return
				}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}
