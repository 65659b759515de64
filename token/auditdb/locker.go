package auditdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"dongate/token"
)

// Errors of lockers, for errors.Is.
var (
	// ErrLockContention: another transaction has one of the locks.
	ErrLockContention = errors.New("auditdb: an enrolment id is locked by another transaction")
	// ErrLockAcquireTimeout: another transaction had one of the locks all the time.
	ErrLockAcquireTimeout = errors.New("auditdb: enrolment ids stayed locked by other transactions")
	// ErrLockLost: the lock was held, but ran out.
	ErrLockLost = errors.New("auditdb: the lock of an enrolment id ran out")
	// ErrLockNotHeld: the lock was not taken.
	ErrLockNotHeld = errors.New("auditdb: the lock of an enrolment id is not held")
)

// Locker locks enrolment ids for transactions. Everybody takes locks in the same order, so that no two wait for each other. It is safe for
// concurrent use; a transaction is for one goroutine.
type Locker interface {
	// AcquireLocks takes the locks of all these enrolment ids, or none. It waits for those of other transactions, at most until
	// ErrLockAcquireTimeout or the end of the context. What the transaction has already it keeps.
	AcquireLocks(ctx context.Context, anchor string, eids ...string) error
	// ReleaseLocks frees what the transaction holds. It may be called more than once.
	ReleaseLocks(ctx context.Context, anchor string) error
	// AssertLocksHeld returns ErrLockNotHeld or ErrLockLost unless the transaction holds the locks of all these enrolment ids, and will
	// until the database transaction ends.
	AssertLocksHeld(ctx context.Context, tx *Tx, anchor string, eids ...string) error
	// Close frees all locks. It may be called more than once.
	Close() error
}

// LockerOptions are what lockers may be told; the zero value will do.
type LockerOptions struct {
	Wait      time.Duration // how long to try to get locks; 0: 1 minute
	TTL       time.Duration // how long a lease lasts without a heartbeat; 0: 30 s. LeaseLocker only
	Heartbeat time.Duration // how often leases are renewed; 0: 10 s. LeaseLocker only
	Backoff   time.Duration // how long to wait before trying again; 0: 100 ms. LeaseLocker only
	Log       *zap.Logger   // nil: none
}

func (o LockerOptions) filled() LockerOptions {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&o.Wait, time.Minute)
	or(&o.TTL, 30*time.Second)
	or(&o.Heartbeat, 10*time.Second)
	or(&o.Backoff, 100*time.Millisecond)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return o
}

// sorted returns the ids in the order in which they are locked, each once.
func sorted(anchor string, eids []string) ([]string, error) {
	eids = slices.Compact(slices.Sorted(slices.Values(eids)))
	if anchor == "" || len(eids) > 0 && eids[0] == "" {
		return nil, fmt.Errorf("locking enrolment ids: %w", token.ErrEmptyArgument)
	}
	return eids, nil
}

// waiting is a context that ends after at most wait, with ErrLockAcquireTimeout.
func waiting(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w after %s: %w", ErrLockAcquireTimeout, wait, ErrLockContention))
}
