package relayer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"dongate/internal/simchain"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
)

// childVariable holds what a relayer in a process of its own is told: such a one can be killed.
const childVariable = "DONGATE_TEST_RELAYER"

type childOptions struct {
	Driver, DSN string
	Net         simchain.Config
	Nodes, WS   []string
	Account     int
	KillAt      string // a point
	KillAfter   int64  // times that it is passed
	Lock        string // file
	Log         string // file
}

// runIfChild makes this program a relayer and ends it, where it was started as one.
func runIfChild() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var o childOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (o *childOptions) run(ctx context.Context) error {
	logging := zap.NewDevelopmentConfig()
	logging.OutputPaths = []string{o.Log}
	log, err := logging.Build()
	if err != nil {
		return err
	}
	db, err := storage.Open(ctx, storage.Config{Driver: o.Driver, DSN: o.DSN})
	if err != nil {
		return err
	}
	defer db.Close()
	pool, err := chain.NewPool(chain.PoolOptions{Name: "gateway chain", URLs: o.Nodes, ChainID: o.Net.ChainID, CallTimeout: time.Second, Log: log})
	if err != nil {
		return err
	}
	defer pool.Close()
	const variable = "KEY"
	signer, err := chain.LoadSigner(chain.SignerOptions{KeyEnv: variable, LookupEnv: func(string) (string, bool) { return o.Net.Accounts[o.Account].Key, true }})
	if err != nil {
		return err
	}
	thresholds, err := chain.NewThresholds(chain.ThresholdOptions{Pool: pool, ProtocolConfig: o.Net.ProtocolConfig, Static: o.Net.Threshold})
	if err != nil {
		return err
	}
	var lock Lock = FileLock{Path: o.Lock}
	if o.Driver == storage.DriverPostgres {
		lock = PostgresLock{DSN: o.DSN, Log: log, Poll: 20 * time.Millisecond, Heartbeat: 50 * time.Millisecond, QueryTimeout: 200 * time.Millisecond, IdleTimeout: 500 * time.Millisecond}
	}
	var passed atomic.Int64
	r, err := New(Options{
		Store: store.New(db, store.Options{}), Lock: lock, Log: log, Send: pool, Read: pool, Signer: signer, ChainID: o.Net.ChainID,
		Decryption: o.Net.Decryption, InputVerification: o.Net.InputVerification,
		Readiness: &chain.Readiness{Hosts: map[uint64]chain.Host{o.Net.ChainID: {Pool: pool, ACL: o.Net.ACL}}, Gateway: pool, Decryption: o.Net.Decryption,
			Retry: chain.Retry{Tries: 20, Pause: 100 * time.Millisecond}},
		Thresholds: thresholds, Subscriptions: o.WS, StartBlock: o.Net.StartBlock,
		ReadinessPoll: 100 * time.Millisecond, ReadinessConcurrency: 4, PollInterval: 50 * time.Millisecond, ResendAfter: 200 * time.Millisecond,
		BumpAfter: 2 * time.Second, SweepInterval: 50 * time.Millisecond,
		pass: func(point string) {
			if point == o.KillAt && passed.Add(1) > o.KillAfter {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return r.Run(ctx)
}

// child is a relayer in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan error
	once  sync.Once
}

func startChild(t testing.TB, o childOptions) *child {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{cmd: cmd, stdin: stdin, done: make(chan error, 1)}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	go func() { c.done <- cmd.Wait() }()
	t.Cleanup(c.kill)
	if err != nil && !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	return c
}

// kill ends the process at once.
func (c *child) kill() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		_ = c.stdin.Close()
	})
}

// killed waits until the process has ended itself.
func (c *child) killed(t testing.TB) {
	t.Helper()
	c.once.Do(func() {
		select {
		case err := <-c.done:
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
		case <-time.After(30 * time.Second):
			t.Error("the process did not get to where it should end")
			_ = c.cmd.Process.Kill()
			<-c.done
		}
		_ = c.stdin.Close()
	})
}

// TestKilledAtEveryPoint ends the process at each point of a request's way, and again at one of the next ones, and a new process takes it to the same end with
// one transaction.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	c, err := simchain.StartProcess(t.Context(), simchain.Options{Interval: interval, Accounts: 2 * len(points), KMS: &simchain.KMSOptions{}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for d, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		for i, point := range points {
			if point == pointFailed {
				continue // nothing fails here
			}
			account := d*len(points) + i
			t.Run(driver+"/"+point, func(t *testing.T) {
				t.Parallel()
				h := newHouseOn(t, driver, c.Control)
				o := h.child(account)
				var all []request
				for k, e := range fhevm.Endpoints {
					all = append(all, h.post(e, uint64(1000*account+k)))
				}
				first := o
				first.KillAt, first.KillAfter = point, rand.Int64N(3)
				startChild(t, first).killed(t)
				second := o
				second.KillAt = points[rand.IntN(len(points)-1)]
				p := startChild(t, second)
				for _, r := range all {
					h.until("completed", func() bool {
						select {
						case err := <-p.done: // it ended itself: another one
							p.done <- err
							p.kill()
							p = startChild(t, o)
						default:
						}
						j := h.job(r)
						require.False(t, j.State == fhevm.StateFailure || j.State == fhevm.StateTimedOut, "%s: %s", j.ErrCode, j.ErrReason)
						return j.State == fhevm.StateCompleted
					})
				}
				v, err := c.Judge(t.Context())
				require.NoError(t, err)
				for _, r := range all {
					require.Equal(t, 1, v.Times(r.Content))
				}
			})
		}
	}
}

// child is what a relayer of this house in a process of its own is told.
func (h *house) child(account int) childOptions {
	nodes := h.nodes
	if nodes == nil {
		nodes = []string{h.net.HTTP}
	}
	return childOptions{Driver: h.config.Driver, DSN: h.config.DSN, Net: h.net, Nodes: nodes, WS: h.ws, Account: account, Lock: h.t.TempDir() + "/lock",
		Log: filepath.Join(h.t.TempDir(), "log")}
}
