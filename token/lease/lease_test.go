package lease_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

func each(t *testing.T, test func(t *testing.T, db *storage.DB)) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
		test(t, db)
	})
}

func TestOneLeader(t *testing.T) {
	each(t, func(t *testing.T, db *storage.DB) {
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				l, err := lease.Acquire(t.Context(), db, prefix, "recovery", time.Minute)
				if err != nil {
					t.Error(err)
				}
				if l != nil {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, won.Load())
		other, err := lease.Acquire(t.Context(), db, prefix, "cleanup", time.Minute)
		require.NoError(t, err)
		require.NotNil(t, other, "another name is free")
	})
}

func TestReleasedAndFollowed(t *testing.T) {
	each(t, func(t *testing.T, db *storage.DB) {
		ctx := t.Context()
		first, err := lease.Acquire(ctx, db, prefix, "recovery", time.Minute)
		require.NoError(t, err)
		ok, err := first.Renew(ctx)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, first.Release(ctx))
		second, err := lease.Acquire(ctx, db, prefix, "recovery", time.Minute)
		require.NoError(t, err)
		require.NotNil(t, second)
		require.NoError(t, first.Release(ctx), "again, and not the other's")
		ok, err = first.Renew(ctx)
		require.NoError(t, err)
		require.False(t, ok)
		ok, err = second.Renew(ctx)
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// A leader that died is followed when its lease has ended.
func TestTakenOverOnceEnded(t *testing.T) {
	each(t, func(t *testing.T, db *storage.DB) {
		dead, err := lease.Acquire(t.Context(), db, prefix, "recovery", -time.Second)
		require.NoError(t, err)
		next, err := lease.Acquire(t.Context(), db, prefix, "recovery", time.Minute)
		require.NoError(t, err)
		require.NotNil(t, next)
		ok, err := dead.Renew(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
	})
}

func TestContextEnds(t *testing.T) {
	each(t, func(t *testing.T, db *storage.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l, err := lease.Acquire(ctx, db, prefix, "recovery", time.Minute)
		require.ErrorIs(t, err, context.Canceled)
		require.Nil(t, l)
	})
}
