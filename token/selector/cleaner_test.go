package selector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token/lease"
	"dongate/token/selector"
	"dongate/token/tokenlock"
)

// counted counts cleanups and tells of each.
type counted struct {
	*tokenlock.Store
	done chan error
	fail error
}

func (c *counted) Cleanup(ctx context.Context, expiry time.Duration) (int64, error) {
	n, err := c.Store.Cleanup(ctx, expiry)
	if c.fail != nil {
		err = c.fail
	}
	c.done <- err
	return n, err
}

// The cleaner that leads frees locks; when it ends, the other leads.
func TestCleaner(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		f := newFixture(t, open(t), selector.Options{})
		f.issue(t, "tx", 1, 2)
		require.NoError(t, f.locks.Lock(t.Context(), id("tx", 0), "x", "alice"))
		run := func(c *counted) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- (&selector.Cleaner{Locks: c, LeaseExpiry: time.Nanosecond, Tick: time.Millisecond}).Run(ctx)
			}()
			return func() {
				cancel()
				for {
					select {
					case err := <-ended:
						require.NoError(t, err)
						return
					case <-c.done:
					}
				}
			}
		}
		first := &counted{f.locks, make(chan error), errors.New("once more")}
		stop := run(first)
		require.Error(t, <-first.done)
		require.Error(t, <-first.done, "it goes on after a failure")
		second := &counted{f.locks, make(chan error), nil}
		stopSecond := run(second)
		stop()
		require.NoError(t, <-second.done)
		stopSecond()
		held, err := storage.Collect(f.locks.ListLocks(t.Context()))
		require.NoError(t, err)
		require.Empty(t, held)
	})
}

type never struct{}

func (never) Cleanup(context.Context, time.Duration) (int64, error) { panic("not to be called") }

func (never) AcquireCleanupLeadership(context.Context, time.Duration) (*lease.Lease, error) {
	panic("not to be called")
}

func TestCleanerOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []selector.Cleaner{{Locks: never{}, LeaseExpiry: time.Second}, {Locks: never{}, Tick: time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			require.NoError(t, c.Run(ctx))
			cancel()
		}
	})
}
