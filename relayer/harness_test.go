package relayer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"dongate/internal/simchain"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestMain(m *testing.M) {
	simchain.RunIfChild()
	runIfChild()
	var ignored []goleak.Option
	for _, f := range simchain.Leftovers() {
		ignored = append(ignored, goleak.IgnoreAnyFunction(f))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(ignored...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// house is a relayer, its database and its chain.
type house struct {
	t      testing.TB
	chain  *simchain.Control
	net    simchain.Config
	store  *store.Store
	db     *storage.DB
	config storage.Config
	o      Options
	nodes  []string // URLs that the relayer is given; nil: the chain's own
	ws     []string
}

// interval is how often the chain makes a block in tests that do not make them themselves.
const interval = 20 * time.Millisecond

func newHouse(t testing.TB, driver string, o simchain.Options) *house {
	t.Helper()
	c, err := simchain.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return newHouseOn(t, driver, c.Control)
}

func newHouseOn(t testing.TB, driver string, c *simchain.Control) *house {
	t.Helper()
	config := storagetest.Config(t, driver)
	db := storagetest.Open(t, config)
	require.NoError(t, db.Migrate(t.Context(), store.Domain))
	return &house{t: t, chain: c, net: c.Config(), db: db, config: config, store: store.New(db, store.Options{})}
}

// options are those of a relayer that is in a hurry.
func (h *house) options() Options {
	h.t.Helper()
	urls := h.nodes
	if urls == nil {
		urls = []string{h.net.HTTP}
	}
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(h.t)
	}
	pool, err := chain.NewPool(chain.PoolOptions{Name: "gateway chain", URLs: urls, ChainID: h.net.ChainID, CallTimeout: 2 * time.Second, Log: log})
	require.NoError(h.t, err)
	h.t.Cleanup(pool.Close)
	key := filepath.Join(h.t.TempDir(), "key")
	require.NoError(h.t, os.WriteFile(key, []byte(h.net.Accounts[0].Key), 0o600))
	signer, err := chain.LoadSigner(chain.SignerOptions{KeyFile: key})
	require.NoError(h.t, err)
	thresholds, err := chain.NewThresholds(chain.ThresholdOptions{Pool: pool, ProtocolConfig: h.net.ProtocolConfig, Static: h.net.Threshold})
	require.NoError(h.t, err)
	hosts := map[uint64]chain.Host{h.net.ChainID: {Pool: pool, ACL: h.net.ACL}}
	o := h.o
	o.Store, o.Log, o.Send, o.Read, o.Signer, o.ChainID = h.store, log, pool, pool, signer, h.net.ChainID
	o.Decryption, o.InputVerification = h.net.Decryption, h.net.InputVerification
	o.Readiness = &chain.Readiness{Hosts: hosts, Gateway: pool, Decryption: h.net.Decryption, Retry: chain.Retry{Pause: 50 * time.Millisecond}}
	o.Thresholds = thresholds
	o.StartBlock = h.net.StartBlock
	o.Subscriptions = h.ws
	if o.Lock == nil {
		o.Lock = NoLock{}
	}
	for value, fast := range map[*time.Duration]time.Duration{
		&o.ReadinessPoll: 50 * time.Millisecond, &o.PollInterval: 20 * time.Millisecond, &o.ResendAfter: 100 * time.Millisecond,
		&o.BumpAfter: time.Second, &o.SweepInterval: 20 * time.Millisecond,
	} {
		if *value == 0 {
			*value = fast
		}
	}
	o.ReadinessConcurrency = 8
	return o
}

// run runs a relayer until the test ends or the returned function is called.
func (h *house) run() (r *Relayer, stop func()) {
	h.t.Helper()
	r, err := New(h.options())
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(h.t, <-done)
		}
	}
	h.t.Cleanup(stop)
	return r, stop
}

// request is one that was posted.
type request struct {
	simchain.Request
	job string
}

// post stores the n-th request of an endpoint as the HTTP API does.
func (h *house) post(e fhevm.Endpoint, n uint64) request {
	h.t.Helper()
	return h.insert(h.net.NewRequest(e, n, time.Now()))
}

func (h *house) insert(r simchain.Request) request {
	h.t.Helper()
	stored, err := fhevm.EncodeStored(r.Decoded)
	require.NoError(h.t, err)
	job, inserted, err := h.store.Insert(h.t.Context(), store.NewJob{Kind: r.Decoded.Kind(), ExtJobID: uuid.NewString(),
		IntJobID: store.Hash(r.Decoded.JobID()), Request: stored, ReqType: r.Decoded.Variant().ReqType()})
	require.NoError(h.t, err)
	require.True(h.t, inserted)
	return request{r, job}
}

func (h *house) job(r request) store.Job {
	h.t.Helper()
	j, err := h.store.Job(context.Background(), r.Decoded.Kind(), r.job)
	require.NoError(h.t, err)
	return j
}

// until yields until something is so.
func (h *house) until(what string, so func() bool) {
	h.t.Helper()
	require.Eventually(h.t, so, 90*time.Second, 5*time.Millisecond, what) // under the race detector on a busy machine
}

// ends waits until a request is in a state, and returns it.
func (h *house) ends(r request, s fhevm.State) store.Job {
	h.t.Helper()
	var j store.Job
	h.until(string(s), func() bool {
		j = h.job(r)
		require.False(h.t, j.State.Final() && j.State != s, "%s %s: %s", j.State, j.ErrCode, j.ErrReason)
		return j.State == s
	})
	return j
}

// once checks on the chain that each request was made exactly once, and nothing else.
func (h *house) once(requests ...request) {
	h.t.Helper()
	v, err := h.chain.Judge(context.Background())
	require.NoError(h.t, err)
	require.Empty(h.t, v.Twice())
	require.Len(h.t, v.Accepted, len(requests))
	for _, r := range requests {
		require.Equal(h.t, 1, v.Times(r.Content))
	}
}

// each runs a test on SQLite and PostgreSQL with a chain that makes blocks and answers.
func each(t *testing.T, o simchain.Options, test func(t *testing.T, h *house)) {
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, newHouse(t, driver, o))
		})
	}
}
