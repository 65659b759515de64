package records

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.uber.org/zap"

	"dongate/token"
	"dongate/token/internal/status"
)

// Anchor returns which transaction a raw request was made for.
type Anchor func(request []byte) (txID string, err error)

// Check returns token.ErrIntegrity unless the request was made for the transaction.
func (a Anchor) Check(txID string, request []byte) error {
	anchor, err := a(request)
	switch {
	case err != nil:
		return fmt.Errorf("the request of transaction %.200q: %w: %w", txID, token.ErrIntegrity, err)
	case anchor != txID:
		return fmt.Errorf("the request of transaction %.200q: %w: it was made for %.200q", txID, token.ErrIntegrity, anchor)
	}
	return nil
}

// Consumers is where the statuses of transactions are copied to when the locks of tokens are in another database, see package tokenlock.
type Consumers interface {
	SetConsumerStatus(ctx context.Context, txID string, status token.TxStatus) error
}

// ServiceOptions are what a Service is told.
type ServiceOptions struct {
	Anchor    Anchor        // must be given
	Consumers Consumers     // nil where the locks are in the same database
	Poll      time.Duration // see Watcher; 0: one second
	Log       *zap.Logger   // nil: none
}

// Service is a Store that checks the requests it returns and tells those who wait of the ends of transactions. It is safe for concurrent
// use.
type Service struct {
	*Store
	*status.Watcher
	o ServiceOptions
}

// NewService returns a service above a store. Close it before the database.
func NewService(s *Store, o ServiceOptions) (*Service, error) {
	if o.Anchor == nil {
		return nil, fmt.Errorf("a service of transactions without an Anchor to check requests with: %w", token.ErrEmptyArgument)
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Service{Store: s, Watcher: status.NewWatcher(s, o.Poll, o.Log), o: o}, nil
}

// Close ends the telling of ends, and the Store. It may be called more than once.
func (s *Service) Close() error {
	s.Watcher.Close()
	return s.Store.Close()
}

// GetTokenRequest returns the raw request of a transaction: nil without an error where it is not stored, token.ErrIntegrity where it was
// made for another.
func (s *Service) GetTokenRequest(ctx context.Context, txID string) ([]byte, error) {
	raw, err := s.Store.GetTokenRequest(ctx, txID)
	if err != nil || raw == nil {
		return nil, err
	}
	if err := s.o.Anchor.Check(txID, raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// GetTokenRequests returns the raw requests of transactions, without those that are not stored; token.ErrIntegrity where one was made for
// another.
func (s *Service) GetTokenRequests(ctx context.Context, ids ...string) (map[string][]byte, error) {
	all, err := s.Store.GetTokenRequests(ctx, ids...)
	if err != nil {
		return nil, err
	}
	for id, raw := range all {
		if err := s.o.Anchor.Check(id, raw); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// QueryTokenRequests returns the requests of these statuses, or all, in the order of their time and transaction. One that was made for
// another transaction ends it with token.ErrIntegrity.
func (s *Service) QueryTokenRequests(ctx context.Context, statuses ...token.TxStatus) iter.Seq2[token.TokenRequestRecord, error] {
	return func(yield func(token.TokenRequestRecord, error) bool) {
		for r, err := range s.Store.QueryTokenRequests(ctx, statuses...) {
			if err == nil {
				if err = s.o.Anchor.Check(r.TxID, r.Request); err != nil {
					yield(token.TokenRequestRecord{}, err)
					return
				}
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// GetTransactionEndorsementAcks returns the signature of each endorser of a transaction. An empty one counts as none, and is logged.
func (s *Service) GetTransactionEndorsementAcks(ctx context.Context, txID string) (map[string][]byte, error) {
	all, err := s.Store.GetTransactionEndorsementAcks(ctx, txID)
	if err != nil {
		return nil, err
	}
	for endorser, sigma := range all {
		if endorser == "" || len(sigma) == 0 {
			s.o.Log.Error("an endorsement without an endorser or a signature is stored", zap.String("tx", txID), zap.Binary("endorser", []byte(endorser)))
			delete(all, endorser)
		}
	}
	return all, nil
}

// Append stores a request, which must have been made for its transaction, see [Tx.Append]. Where also fails, nothing of it is stored; it
// may be called more than once, and may be nil.
func (s *Service) Append(ctx context.Context, r Request, also func(ctx context.Context, tx *Tx) error) error {
	if err := s.o.Anchor.Check(r.TxID, r.Raw); err != nil {
		return err
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = s.clock() // one for all of its records
	}
	if s.o.Consumers != nil {
		// Before there is a request, so that no lock of it grows old meanwhile. What has ended stays so: this is a replay.
		if err := s.o.Consumers.SetConsumerStatus(ctx, r.TxID, token.Pending); err != nil && !errors.Is(err, token.ErrAlreadyFinal) {
			return err
		}
	}
	return s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		if also != nil {
			if err := also(ctx, tx); err != nil {
				return err
			}
		}
		return tx.Append(ctx, r)
	})
}

// SetStatus is [Store.SetStatus], and has those told who wait for the transaction. Where the locks are in another database, the status is
// copied there; when that failed, call it again.
func (s *Service) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	if err := s.Store.SetStatus(ctx, txID, to, message); err != nil {
		return err
	}
	s.Changed(txID)
	if s.o.Consumers == nil {
		return nil
	}
	return s.o.Consumers.SetConsumerStatus(ctx, txID, to)
}

// SyncConsumer copies a transaction's status to where the locks are, as SetStatus does, for a process that died in between: call it for the
// consumers of old locks that count as pending there. A consumer whose request was never stored becomes an orphan, which frees its locks.
func (s *Service) SyncConsumer(ctx context.Context, txID string) error {
	if s.o.Consumers == nil {
		return nil
	}
	is, _, err := s.GetStatus(ctx, txID)
	if err != nil {
		return err
	}
	if is == token.Unknown {
		is = token.Orphan
	}
	return s.o.Consumers.SetConsumerStatus(ctx, txID, is)
}
