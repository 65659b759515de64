package storagetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
)

// helperVariable makes this program start a cluster of its own, say where it is and wait to be killed.
const helperVariable = "DONGATE_STORAGETEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		beKilled()
	}
	goleak.VerifyTestMain(m)
}

func beKilled() {
	programs, err := findPrograms()
	if err != nil {
		panic(err)
	}
	dir := os.Getenv(helperVariable)
	if _, err := startKeeper(programs, dir, false); err != nil {
		panic(err)
	}
	fmt.Println("started")
	select {}
}

func TestClusterSurvivesKill(t *testing.T) {
	t.Parallel()
	cluster := NewCluster(t)
	db := Open(t, storage.Config{Driver: storage.DriverPostgres, DSN: cluster.DSN()})
	_, err := db.Write().ExecContext(t.Context(), "CREATE TABLE t (id INTEGER PRIMARY KEY)")
	require.NoError(t, err)
	for round := range 3 {
		_, err := db.Write().ExecContext(t.Context(), "INSERT INTO t (id) VALUES ($1)", round)
		require.NoError(t, err)
		cluster.Kill(t)
		_, err = db.Write().ExecContext(t.Context(), "INSERT INTO t (id) VALUES (100)")
		require.Error(t, err)
		cluster.Start(t)
		var count int
		require.NoError(t, db.Read().QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&count))
		require.Equal(t, round+1, count)
	}
}

func TestDurableCluster(t *testing.T) {
	t.Parallel()
	db := Open(t, storage.Config{Driver: storage.DriverPostgres, DSN: NewDurableCluster(t).DSN()})
	for _, setting := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		var value string
		require.NoError(t, db.Read().QueryRowContext(t.Context(), "SHOW "+setting).Scan(&value))
		require.Equal(t, "on", value, setting)
	}
}

// A test process that is killed leaves neither server nor files.
func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp(clusterRoot(), "dongate-pg-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	self, err := os.Executable()
	require.NoError(t, err)
	helper := exec.Command(self)
	helper.Env = append(os.Environ(), helperVariable+"="+dir)
	out, err := helper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, helper.Start())
	_, err = fmt.Fscanln(out, new(string))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "data", "postmaster.pid"))
	keeper, err := os.Open(filepath.Join(dir, keeperLock))
	require.NoError(t, err)
	defer keeper.Close()
	require.NoError(t, helper.Process.Kill())
	require.NoError(t, syscall.Flock(int(keeper.Fd()), syscall.LOCK_EX), "returns when the keeper has ended")
	require.NoDirExists(t, dir)
	require.Error(t, helper.Wait())
}

func TestSchemasAreSeparate(t *testing.T) {
	t.Parallel()
	for range 2 {
		db := Open(t, Config(t, storage.DriverPostgres))
		_, err := db.Write().ExecContext(t.Context(), "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		require.NoError(t, err)
	}
}
