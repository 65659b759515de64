package selector

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"dongate/token/lease"
)

// Defaults of [Cleaner].
const (
	DefaultLeaseExpiry = 3 * time.Minute
	DefaultTick        = time.Minute
)

// Cleanup is what a Cleaner does and who may; tokenlock.Store has it.
type Cleanup interface {
	Cleanup(ctx context.Context, leaseExpiry time.Duration) (int64, error)
	AcquireCleanupLeadership(ctx context.Context, ttl time.Duration) (*lease.Lease, error)
}

// Cleaner frees the locks of transactions that have ended or were never made, in one process of all that share the database.
type Cleaner struct {
	Locks       Cleanup
	LeaseExpiry time.Duration // how long a lock lasts whose transaction has no request
	Tick        time.Duration // between two cleanups
	Log         *zap.Logger   // nil: none
}

// Run frees locks at every tick while it leads, until ctx ends; then it gives up the lead and returns nil. With a LeaseExpiry or Tick of
// zero or below it does nothing. What fails is logged and tried again at the next tick.
func (c *Cleaner) Run(ctx context.Context) error {
	if c.LeaseExpiry <= 0 || c.Tick <= 0 {
		<-ctx.Done()
		return nil
	}
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	ticker := time.NewTicker(c.Tick)
	defer ticker.Stop()
	var lead *lease.Lease
	defer func() {
		if lead != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultReleaseTimeout)
			defer cancel()
			_ = lead.Release(ctx) // else it ends by itself
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		var err error
		if lead, err = c.lead(ctx, lead); err == nil && lead != nil {
			var freed int64
			if freed, err = c.Locks.Cleanup(ctx, c.LeaseExpiry); freed > 0 {
				log.Info("freed token locks", zap.Int64("locks", freed))
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("token locks are not cleaned up", zap.Error(err))
		}
	}
}

// lead renews the lead or takes it; nil: somebody else has it. It lasts for some ticks, so that one that is late does not lose it.
func (c *Cleaner) lead(ctx context.Context, lead *lease.Lease) (*lease.Lease, error) {
	if lead != nil {
		ours, err := lead.Renew(ctx)
		if ours || err != nil {
			return lead, err
		}
	}
	lead, err := c.Locks.AcquireCleanupLeadership(ctx, 3*c.Tick)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return lead, err
}
