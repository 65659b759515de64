package storagetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// How the keeper of a cluster is told what to do: it is the test program, started again with these.
const (
	keeperVariable         = "DONGATE_STORAGETEST_KEEPER"          // the directory to work in
	keeperProgramsVariable = "DONGATE_STORAGETEST_KEEPER_PROGRAMS" // where initdb and postgres are
	keeperSharedVariable   = "DONGATE_STORAGETEST_KEEPER_SHARED"   // set: the cluster is shared, else it follows commands
)

// idle is how long a shared cluster stays after its last user: `go test ./...` often has a moment between two packages that need it.
const idle = 5 * time.Second

// settings of every cluster. Nothing here has to survive a power cut, so nothing waits for the disk; a commit still survives the death of
// the server's processes. Sockets are for this user (and root) alone.
var settings = []string{"listen_addresses=", "unix_socket_permissions=0700", "max_connections=300", "shared_buffers=32MB", "fsync=off",
	"full_page_writes=off", "autovacuum_naptime=10min", "logging_collector=off", "deadlock_timeout=100ms"}

// init turns the process into a keeper before any test runs, when it was started as one.
func init() {
	dir := os.Getenv(keeperVariable)
	if dir == "" {
		return
	}
	k := &keeper{dir: dir, programs: os.Getenv(keeperProgramsVariable), shared: os.Getenv(keeperSharedVariable) != ""}
	for _, name := range []string{keeperVariable, keeperProgramsVariable, keeperSharedVariable} {
		_ = os.Unsetenv(name) // not for the server
	}
	k.run()
	os.Exit(0)
}

// keeper is the parent of one PostgreSQL server.
type keeper struct {
	dir, programs string
	shared        bool
	credential    *syscall.Credential // who the server runs as; nil: as we do
	extra         []string            // settings that come after those of every cluster
	server        *os.Process         // the last one that was started; nil: none
	exited        chan struct{}       // closed when it has ended
}

// run keeps the cluster until nobody needs it, and removes every trace.
func (k *keeper) run() {
	err := k.create()
	if err == nil {
		err = k.start()
	}
	reply(err)
	switch {
	case err != nil:
		k.remove()
	case k.shared:
		_ = os.Stdout.Close()
		_ = os.Stdin.Close()
		ending := k.awaitNoUsers()
		k.remove()
		_ = ending.Close()
	default:
		k.obey()
		k.remove()
	}
}

// obey follows the commands of the test that has this cluster to itself, until it is gone.
func (k *keeper) obey() {
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		if setting, ok := strings.CutPrefix(commands.Text(), "set "); ok {
			k.extra = append(k.extra, setting)
			reply(nil)
			continue
		}
		switch commands.Text() {
		case "kill":
			reply(k.kill())
		case "start":
			reply(k.start())
		default:
			reply(errors.New("unknown command"))
		}
	}
}

func reply(err error) {
	if err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " | "))
		return
	}
	fmt.Println("ok")
}

// awaitNoUsers returns when nobody uses the cluster or its server has ended, with the lock that keeps others from joining or starting it.
func (k *keeper) awaitNoUsers() *os.File {
	for {
		if users, err := lock(filepath.Join(k.dir, "users"), syscall.LOCK_EX); err == nil {
			_ = users.Close()
		}
		ended := false
		select {
		case <-time.After(idle):
		case <-k.exited:
			ended = true
		}
		starting, err := lock(k.dir+".lock", syscall.LOCK_EX)
		if err != nil {
			continue
		}
		users, err := lock(filepath.Join(k.dir, "users"), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			_ = users.Close() // nobody can take it while we hold the other
		}
		if err == nil || ended {
			return starting
		}
		_ = starting.Close()
	}
}

// keeperLock is the file that a keeper has locked as long as it lives.
const keeperLock = "keeper"

// keeperLives reports whether the cluster in dir has its keeper. The caller holds the lock under which
// a keeper starts and ends.
func keeperLives(dir string) bool {
	file, err := lock(filepath.Join(dir, keeperLock), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return true
	}
	_ = file.Close()
	return false
}

// create makes the cluster's files. What a keeper that was killed left behind goes first.
func (k *keeper) create() error {
	file, err := lock(filepath.Join(k.dir, keeperLock), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return err
	}
	held = append(held, file)
	credential, err := serverUser()
	if err != nil {
		return err
	}
	k.credential = credential
	data := filepath.Join(k.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if c := k.credential; c != nil {
		// The server puts its socket and this directory's lock file beside it.
		if err := errors.Join(os.Chown(data, int(c.Uid), int(c.Gid)), os.Chown(k.dir, int(c.Uid), int(c.Gid))); err != nil {
			return err
		}
	}
	cmd := k.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// serverUser returns who a server runs as: this user (nil), or another where this is root, which PostgreSQL refuses.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		var c syscall.Credential
		if _, err := fmt.Sscan(u.Uid+" "+u.Gid, &c.Uid, &c.Gid); err == nil {
			return &c, nil
		}
	}
	return nil, errors.New("root cannot run a PostgreSQL server, and there is no user postgres or nobody to run it as")
}

// command returns a program of the server, run as its user, that does not outlive the keeper.
func (k *keeper) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(k.programs, name), args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PGDATA=")
	cmd.SysProcAttr = dieWithParent()
	cmd.SysProcAttr.Credential = k.credential
	return cmd
}

// start starts the server and returns when it accepts connections.
func (k *keeper) start() error {
	args := []string{"-D", filepath.Join(k.dir, "data"), "-k", k.dir}
	for _, setting := range slices.Concat(settings, k.extra) {
		args = append(args, "-c", setting)
	}
	logPath := filepath.Join(k.dir, "server.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := k.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	k.server, k.exited = cmd.Process, exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if k.accepts() {
			return nil
		}
		select {
		case <-exited:
			text, _ := os.ReadFile(logPath)
			return fmt.Errorf("the server ended: %s", text)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.New("the server did not accept connections within a minute")
}

func (k *keeper) accepts() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, clusterDSN(k.dir))
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// kill ends the server and the processes it started, as a crash would, and returns when they are gone.
func (k *keeper) kill() error {
	pid := k.server.Pid
	// The parent is stopped while its children are listed, so that it starts no more.
	if err := k.server.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	if err := k.server.Kill(); err != nil {
		return err
	}
	<-k.exited
	for field := range strings.FieldsSeq(string(children)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		for syscall.Kill(child, syscall.SIGKILL) == nil && !isZombie(child) {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// isZombie reports whether a process has ended and only its entry is left, because its parent has not asked for its end.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// remove ends the server at once and deletes the directory.
func (k *keeper) remove() {
	if k.server != nil {
		_ = k.server.Signal(syscall.SIGQUIT) // may have ended already
		<-k.exited
	}
	_ = os.RemoveAll(k.dir)
}
