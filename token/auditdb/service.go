package auditdb

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"dongate/token/internal/records"
)

// ServiceOptions are what a StoreService is told.
type ServiceOptions struct {
	Anchor Anchor        // must be given
	Locker Locker        // nil: a MemoryLocker, for an auditor that is one process. The service closes it.
	Poll   time.Duration // how often statuses that are waited for are read although nothing told of a change; 0: one second
	Log    *zap.Logger   // nil: none
}

// StoreService is a Store with checks, listeners and locks; see [records.Service]. It is safe for concurrent use.
type StoreService struct {
	*records.Service
	locker Locker
}

// NewStoreService returns a service above a store. Its Close closes the store too.
func NewStoreService(s *Store, o ServiceOptions) (*StoreService, error) {
	service, err := records.NewService(s.Store, records.ServiceOptions{Anchor: o.Anchor, Poll: o.Poll, Log: o.Log})
	if err != nil {
		return nil, err
	}
	if o.Locker == nil {
		o.Locker = NewMemoryLocker(LockerOptions{})
	}
	return &StoreService{service, o.Locker}, nil
}

// Close ends the telling of ends, the locker and the store. It may be called more than once.
func (s *StoreService) Close() error {
	return errors.Join(s.locker.Close(), s.Service.Close())
}

// NewPaymentsFilter is [Store.NewPaymentsFilter].
func (s *StoreService) NewPaymentsFilter() Filter {
	return (&Store{Store: s.Store}).NewPaymentsFilter()
}

// NewHoldingsFilter is [Store.NewHoldingsFilter].
func (s *StoreService) NewHoldingsFilter() Filter {
	return (&Store{Store: s.Store}).NewHoldingsFilter()
}

// AcquireLocks locks the enrolment ids for a transaction, all or none, see [Locker].
func (s *StoreService) AcquireLocks(ctx context.Context, anchor string, eids ...string) error {
	return s.locker.AcquireLocks(ctx, anchor, eids...)
}

// ReleaseLocks frees what the transaction locked. It may be called more than once.
func (s *StoreService) ReleaseLocks(ctx context.Context, anchor string) error {
	return s.locker.ReleaseLocks(ctx, anchor)
}

// Append stores a request as pending with its movements and records, all or nothing. The transaction must hold the locks of all enrolment
// ids in it, see [StoreService.AcquireLocks], to the very end: else ErrLockNotHeld or ErrLockLost. The same request again changes nothing.
func (s *StoreService) Append(ctx context.Context, r Request) error {
	eids := r.EnrollmentIDs()
	return s.Service.Append(ctx, r, func(ctx context.Context, tx *Tx) error {
		return s.locker.AssertLocksHeld(ctx, tx, r.TxID, eids...)
	})
}
