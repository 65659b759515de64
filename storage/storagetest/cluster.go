package storagetest

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedDSN returns the server that this process's tests share with those of other packages.
func sharedDSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv(DSNVariable); dsn != "" {
		return dsn
	}
	dir, err := shared()
	require.NoError(t, err, "starting a private PostgreSQL cluster")
	return clusterDSN(dir)
}

// shared joins the cluster of this user and these settings, and starts it where it is not running. It goes when no process that joined
// it has been alive for some seconds: each holds a lock for as long as it lives, which the system takes back even from one that is killed.
var shared = sync.OnceValues(func() (string, error) {
	programs, err := findPrograms()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s %q", programs, settings))
	dir := filepath.Join(clusterRoot(), fmt.Sprintf("dongate-pg-%d-%x", os.Getuid(), key[:4]))

	// Whoever starts or ends the cluster holds this lock. The file stays: removing it would let two hold it.
	starting, err := lock(dir+".lock", syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer starting.Close()
	if err := os.Mkdir(dir, 0o711); err != nil && !os.IsExist(err) {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !ours(info) {
		return "", fmt.Errorf("%s belongs to somebody else (%w)", dir, err)
	}
	users, err := lock(filepath.Join(dir, "users"), syscall.LOCK_SH)
	if err != nil {
		return "", err
	}
	held = append(held, users)
	if keeperLives(dir) {
		return dir, nil
	}
	_, err = startKeeper(programs, dir, true)
	return dir, err
})

// ours reports whether a file is this process's or, for root, of the user that the server runs as.
func ours(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if int(stat.Uid) == os.Getuid() {
		return true
	}
	credential, err := serverUser()
	return err == nil && credential != nil && stat.Uid == credential.Uid
}

// held are files whose locks this process keeps as long as it lives. Without a reference they would be collected, and so closed.
var held []*os.File

// Cluster is a PostgreSQL server that a test has to itself, to kill and to start again.
type Cluster struct {
	dsn     string
	control *os.File
	replies *bufio.Reader
}

// NewDurableCluster is NewCluster whose server flushes what is committed to the disk, as it does in operation: for measurements.
func NewDurableCluster(t testing.TB) *Cluster {
	t.Helper()
	c := NewCluster(t)
	for _, command := range []string{"set fsync=on", "set full_page_writes=on", "kill", "start"} {
		require.NoError(t, c.command(command))
	}
	return c
}

// NewCluster starts a server that ends with the test. It does not look at [DSNVariable]. What was committed survives [Cluster.Kill].
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	programs, err := findPrograms()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(clusterRoot(), "dongate-pg-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711)) // the server's user must get to what it owns in here
	c, err := startKeeper(programs, dir, false)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.control.Close())
		_, err := c.replies.ReadString('\n') // when everything is gone
		require.ErrorIs(t, err, io.EOF)
	})
	return c
}

// DSN returns the connection string of an empty database of this cluster, the same on every call.
func (c *Cluster) DSN() string { return c.dsn }

// Kill ends every process of the server with SIGKILL and returns when they are gone.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	require.NoError(t, c.command("kill"))
}

// Start starts the server after Kill and returns when it accepts connections.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	require.NoError(t, c.command("start"))
}

func (c *Cluster) command(name string) error {
	if _, err := io.WriteString(c.control, name+"\n"); err != nil {
		return err
	}
	return readReply(c.replies)
}

// startKeeper starts a process that keeps a cluster in dir, and returns when it accepts connections. The keeper is this program again,
// see keeper.go, so that it outlives a test process that is killed and can clean up after it.
func startKeeper(programs, dir string, shared bool) (*Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	repliesRead, repliesWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	controlRead, controlWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// Nothing else of the test may stay open in it: `go test` waits until all its pipes are closed.
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), keeperVariable+"="+dir, keeperProgramsVariable+"="+programs)
	if shared {
		cmd.Env = append(cmd.Env, keeperSharedVariable+"=1")
	}
	cmd.Stdin, cmd.Stdout = controlRead, repliesWrite
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(cmd.Start(), controlRead.Close(), repliesWrite.Close())
	if err != nil {
		return nil, err
	}
	c := &Cluster{dsn: clusterDSN(dir), control: controlWrite, replies: bufio.NewReader(repliesRead)}
	err = errors.Join(cmd.Process.Release(), readReply(c.replies)) // released: it may outlive us
	if shared || err != nil {
		return nil, errors.Join(err, controlWrite.Close(), repliesRead.Close())
	}
	return c, nil
}

// readReply reads what the keeper says: "ok", or what went wrong on one line.
func readReply(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	switch text := strings.TrimSpace(line); {
	case err != nil:
		return fmt.Errorf("the keeper of the cluster ended: %w", err)
	case text != "ok":
		return fmt.Errorf("%s", text)
	}
	return nil
}

// clusterRoot is where clusters live. The path of a socket has about 100 bytes at most, so a long TMPDIR is passed over.
func clusterRoot() string {
	if dir := os.TempDir(); len(dir) <= 40 {
		return dir
	}
	return "/tmp"
}

func clusterDSN(dir string) string { return "host=" + dir + " user=postgres dbname=postgres" }

// findPrograms returns the directory of the newest installed server.
func findPrograms() (string, error) {
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian keeps them out of PATH; the pattern is well-formed
	newest, version := "", -1
	for _, path := range candidates {
		var v int
		if _, err := fmt.Sscanf(path, "/usr/lib/postgresql/%d/", &v); err == nil && v > version {
			newest, version = filepath.Dir(path), v
		}
	}
	if newest != "" {
		return newest, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", fmt.Errorf("no PostgreSQL server is installed: install it (Debian: apt-get install postgresql) or name a running one in %s", DSNVariable)
}

// lock opens the file, created where missing, and waits for the lock. Closing the file gives it back.
func lock(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if err == nil {
			return file, nil
		}
		if err != syscall.EINTR {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
	}
}
