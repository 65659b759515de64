package storage_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestWritable(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		for range 20 { // it gives back what it takes
			require.NoError(t, db.Writable(t.Context()))
		}
		require.NoError(t, db.Close())
		require.Error(t, db.Writable(t.Context()))
	})
	t.Run("removed file", func(t *testing.T) {
		t.Parallel()
		config := storagetest.Config(t, storage.DriverSQLite)
		db := storagetest.Open(t, config)
		require.NoError(t, os.Remove(config.DSN))
		require.ErrorIs(t, db.Writable(t.Context()), storage.ErrFileReplaced)
	})
	t.Run("writer that does not end", func(t *testing.T) {
		t.Parallel()
		db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
		tx, err := db.Write().Begin()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, db.Writable(ctx), context.DeadlineExceeded)
		require.NoError(t, tx.Rollback())
		require.NoError(t, db.Writable(t.Context()))
	})
	t.Run("read-only server", func(t *testing.T) {
		t.Parallel()
		config := storagetest.Config(t, storage.DriverPostgres)
		config.DSN += " default_transaction_read_only=on"
		require.ErrorIs(t, storagetest.Open(t, config).Writable(t.Context()), storage.ErrReadOnly)
	})
}
