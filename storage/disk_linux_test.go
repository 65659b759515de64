package storage_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// As TestFullDatabase, with a disk that is full, which takes a disk of our own.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	db := storagetest.Open(t, storage.Config{Driver: storage.DriverSQLite, DSN: filepath.Join(disk, "test.db")})
	execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
	ballast := filepath.Join(disk, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600))
	checkFull(t, db, full(t, db), func() { require.NoError(t, os.Remove(ballast)) })
}
