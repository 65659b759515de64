package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/gateway"
	"dongate/relayer"
	"dongate/relayer/api"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	relayerstore "dongate/relayer/store"
	"dongate/storage"
)

// relayerParts are the parts of a relayer that talk to chains, made of a plan.
type relayerParts struct {
	plan       *relayerPlan
	send, read *chain.Pool
	hosts      map[uint64]chain.Host
	protocol   *chain.Pool
	signer     *chain.Signer
	account    *chain.Account
	pools      []*chain.Pool // all of them, each once
}

// newRelayerParts does no I/O but reading the signer's key. observe is told of every call to a chain; nil: nobody is.
func newRelayerParts(p *relayerPlan, w *world, log *zap.Logger, observe func(chain, method, outcome string, took time.Duration)) (*relayerParts, error) {
	parts := &relayerParts{plan: p, hosts: map[uint64]chain.Host{}}
	pool := func(o chain.PoolOptions, label string) (*chain.Pool, error) {
		o.Log = log
		if observe != nil {
			o.Observe = func(method, outcome string, took time.Duration) { observe(label, method, outcome, took) }
		}
		made, err := chain.NewPool(o)
		if err == nil {
			parts.pools = append(parts.pools, made)
		}
		return made, err
	}
	var err error
	if parts.send, err = pool(p.send, "gateway"); err != nil {
		return nil, err
	}
	parts.read = parts.send
	if !p.shared {
		if parts.read, err = pool(p.read, "gateway"); err != nil {
			return nil, err
		}
	}
	parts.protocol = parts.read
	for i, h := range p.hosts {
		made, err := pool(h.pool, strconv.FormatUint(h.pool.ChainID, 10))
		if err != nil {
			return nil, err
		}
		parts.hosts[h.pool.ChainID] = chain.Host{Pool: made, ACL: h.acl}
		if i == p.protocol {
			parts.protocol = made
		}
	}
	o := p.signer
	o.LookupEnv = func(name string) (string, bool) { v := w.env(name); return v, v != "" }
	if parts.signer, err = chain.LoadSigner(o); err != nil {
		return nil, err
	}
	a := p.account
	a.Pool, a.Address, a.Log = parts.read, parts.signer.Address(), log
	parts.account = chain.NewAccount(a)
	return parts, nil
}

// close drops the pools' idle connections.
func (p *relayerParts) close() {
	for _, pool := range p.pools {
		pool.Close()
	}
}

// relayerRun is the relayer of one process: the HTTP API and, when it is elected, the dispatcher. A nil one is that of a process without: it can be
// started and halted, and does nothing.
type relayerRun struct {
	*relayerParts
	log        *zap.Logger
	db         *storage.DB
	store      *relayerstore.Store
	lock       *startedLock
	dispatcher *relayer.Relayer
	keyURL     *chain.KeyURL
	api        *api.Handler
	draining   func() bool
	current    func() *config.Config // with what reloads have changed

	stop    context.CancelFunc
	running sync.WaitGroup
	ended   chan struct{} // closed when the dispatcher has ended
	err     error         // how; nil when it was told to; to be read after ended
}

// newRelayerRun makes the relayer that the configuration asks for. On SQLite it holds the file's lock from here on, or fails where another process
// does. draining and current are asked once it runs.
func newRelayerRun(ctx context.Context, w *world, l *loaded, db *storage.DB, log *zap.Logger, metrics *prometheus.Registry, draining func() bool, current func() *config.Config) (*relayerRun, error) {
	plan, problems := planRelayer(&l.config.Relayer, w.environ)
	if len(problems) > 0 {
		l.report(problems)
		return nil, l.complain(w)
	}
	calls := newChainMetrics(metrics)
	parts, err := newRelayerParts(plan, w, log, calls.observe)
	if err != nil {
		return nil, fail(exitLocal, "the relayer cannot start: %w", err)
	}
	r := &relayerRun{relayerParts: parts, log: log, db: db, store: relayerstore.New(db, relayerstore.Options{}), draining: draining, current: current, ended: make(chan struct{})}
	if r.lock, err = relayerLock(ctx, storageConfig(w, l, nil), log); err != nil {
		parts.close()
		return nil, lockFailure(err, l)
	}
	if err := r.assemble(l.config, metrics); err != nil {
		r.lock.release()
		parts.close()
		return nil, fail(exitFailure, "the relayer cannot start: %w", err)
	}
	metrics.MustRegister(&signerCollector{r.account})
	return r, nil
}

// assemble makes what works on the parts.
func (r *relayerRun) assemble(c *config.Config, metrics prometheus.Registerer) error {
	t := r.plan.thresholds
	t.Pool = r.protocol
	thresholds, err := chain.NewThresholds(t)
	if err != nil {
		return err
	}
	k := r.plan.keyURL
	k.Pool, k.Log = r.protocol, r.log
	r.keyURL = chain.NewKeyURL(k)
	o := r.plan.relayer
	o.Store, o.Lock, o.Log, o.Metrics = r.store, r.lock, r.log, metrics
	o.Send, o.Read, o.Signer, o.Thresholds = r.send, r.read, r.signer, thresholds
	o.Readiness = &chain.Readiness{Hosts: r.hosts, Gateway: r.read, Decryption: o.Decryption}
	if r.dispatcher, err = relayer.New(o); err != nil {
		return err
	}
	r.plan.signatures.Hosts = r.hosts
	a := r.plan.api
	a.Store, a.Log, a.Signatures, a.Metrics = r.store, r.log, r.plan.signatures, metrics
	a.HostChains = func(id uint64) bool { _, ok := r.hosts[id]; return ok }
	a.Blocked, a.KeyURL, a.Notify, a.Draining, a.Health = r.blocked, r.keyURL.Current, r.dispatcher.Notify, r.draining, r.health
	a.ClientIP = func(req *http.Request) netip.Addr {
		return gateway.ClientAddress(req, r.current().UserServer.TrustedProxies)
	}
	if len(r.plan.origins) > 0 {
		a.AllowOrigin = r.allowOrigin
	}
	v := readVersion()
	a.Version = api.VersionInfo{Name: "dongate", Version: v.Version, Build: v.Commit}
	r.api, err = api.New(a)
	return err
}

func (r *relayerRun) allowOrigin(origin string) bool {
	return gateway.OriginAllowed(origin, r.plan.origins)
}

// blocked says why new requests are refused: this process ends, or the signer cannot pay.
func (r *relayerRun) blocked() (fhevm.Label, bool) {
	if r.draining() {
		return fhevm.LabelGatewayNotReachable, true
	}
	return r.account.Label()
}

// health tells whether what the relayer depends on works: the tables can be read and the database takes writes, without which no request is
// accepted (a full disk is found out by those alone: see [storage.DB.Writable]); the gateway chain answers. Subscriptions are not among it: they only
// make the relayer look sooner.
func (r *relayerRun) health(ctx context.Context) map[string]bool {
	var stored, chained error
	var asking sync.WaitGroup
	asking.Go(func() {
		if _, stored = r.store.Paused(ctx); stored == nil {
			stored = r.db.Writable(ctx)
		}
	})
	asking.Go(func() { _, chained = r.read.ChainID(ctx) })
	asking.Wait()
	return map[string]bool{"database": stored == nil, "gateway_http": chained == nil}
}

// served is the relayer as the gateway serves it.
func (r *relayerRun) served() *gateway.Relayer {
	return &gateway.Relayer{
		Handler: r.api, Paths: r.api.Paths(), Listen: r.plan.listen, Overloaded: http.HandlerFunc(r.overloaded), Status: r.status,
	}
}

// overloaded answers 429 as the API does where its queue is full.
func (r *relayerRun) overloaded(w http.ResponseWriter, req *http.Request) {
	reply := fhevm.Failed(uuid.NewString(), fhevm.ErrOverloaded(), req.Header.Get("zama-sdk-name") != "", r.plan.api.RetryAfter.Remaining(time.Second))
	h := w.Header()
	if origin := req.Header.Get("Origin"); origin != "" {
		h.Add("Vary", "Origin")
		if r.allowOrigin(origin) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Access-Control-Expose-Headers", "Retry-After")
		}
	}
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Retry-After", strconv.Itoa(reply.RetryAfter))
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body)
}

func (r *relayerRun) status(ctx context.Context) (s gateway.RelayerStatus) {
	paused, err := r.store.Paused(ctx)
	if err != nil {
		s.Storage = err.Error()
	}
	s.Paused = paused
	s.Dispatcher, s.Epoch = r.dispatcher.Dispatches()
	return s
}

// start runs the relayer until halt.
func (r *relayerRun) start() {
	if r == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.running.Go(func() { r.keyURL.Run(ctx) })
	r.running.Go(func() { r.account.Run(ctx) })
	go func() {
		defer close(r.ended)
		r.err = r.dispatcher.Run(ctx)
	}()
}

// ends is closed when the dispatcher ends by itself, or was halted.
func (r *relayerRun) ends() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.ended
}

// halt stops the workers and gives the lock back. It returns once they have stopped, or with relayer.ErrStuck.
func (r *relayerRun) halt() error {
	if r == nil {
		return nil
	}
	defer r.close()
	if r.stop == nil { // it never ran
		r.lock.release()
		return nil
	}
	r.stop()
	<-r.ended
	if r.err != nil {
		return r.err
	}
	r.running.Wait()
	r.lock.release()
	return nil
}

// startedLock is a lock that was acquired before the dispatcher asks for it, or one that was not.
type startedLock struct {
	relayer.Lock
	mu   sync.Mutex
	held relayer.Held // nil once the dispatcher has it
}

// Acquire implements relayer.Lock.
func (l *startedLock) Acquire(ctx context.Context) (relayer.Held, error) {
	if held := l.take(); held != nil {
		return held, nil
	}
	return l.Lock.Acquire(ctx)
}

func (l *startedLock) take() relayer.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.held
	l.held = nil
	return held
}

// release gives the lock back if the dispatcher never had it.
func (l *startedLock) release() {
	if held := l.take(); held != nil {
		held.Release()
	}
}

// relayerLock elects among the processes on the database: on SQLite there is one, or none starts; on PostgreSQL the others wait.
func relayerLock(ctx context.Context, c storage.Config, log *zap.Logger) (*startedLock, error) {
	if c.Driver == config.DriverPostgres {
		return &startedLock{Lock: relayer.PostgresLock{DSN: c.DSN, Log: log}}, nil
	}
	path, err := filepath.EvalSymlinks(c.DSN) // one file, one lock, whatever it is called
	if err != nil {
		return nil, fmt.Errorf("the relayer's lock: %w", err)
	}
	l := &startedLock{Lock: relayer.FileLock{Path: path + lockSuffix}}
	l.held, err = l.Lock.Acquire(ctx)
	return l, err
}

// lockSuffix follows the name of a SQLite file in that of the relayer's lock.
const lockSuffix = "-relayer.lock"

func lockFailure(err error, l *loaded) error {
	f := fail(exitStart, "cannot start: %w", err)
	if errors.Is(err, relayer.ErrLocked) {
		return f.withHint("A SQLite file has one relayer: end the other process, or set relayer.enabled to false in %s. Several relayers share a PostgreSQL database.", l.file)
	}
	return f
}

// relayerEnded is why the process ends when the dispatcher has.
func relayerEnded(err error) error {
	if errors.Is(err, relayer.ErrStuck) {
		return fail(exitFailure, "%w: the process ends, so that nothing of it goes on beside the next dispatcher", err)
	}
	return fail(exitFailure, "the relayer ended: %w", err)
}
