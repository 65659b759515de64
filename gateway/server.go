package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"dongate/auth"
	"dongate/config"
	"dongate/egress"
	"dongate/jsonrpc"
)

// maxHeaderBytes caps a request's header at 32 kB (protocol §2); net/http allows
// itself 4 kB on top of what it is told.
const maxHeaderBytes = 32<<10 - 4<<10

// idleTimeout ends client connections that carry no request.
const idleTimeout = 2 * time.Minute

// Options are what a Server is made of. Config is required.
type Options struct {
	Config *config.Config
	// Log gets structured entries; nil: none are written.
	Log *zap.Logger
	// Claims records used tokens and request ids; nil: in memory, lost on restart.
	Claims auth.Claims
	// ReadyWithoutNodes makes /readyz ignore how many nodes are connected.
	ReadyWithoutNodes bool
	// Version goes into the User-Agent of actions.
	Version string
	// Listen opens the listeners; nil: net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// Relayer is served, too, where it is not nil.
	Relayer *Relayer
	// Metrics is what /metrics shows; the gateway adds its own. nil: nothing but those.
	Metrics *prometheus.Registry
	// Connect opens the connections of actions, to addresses that have passed
	// every check; nil: TCP, after names were looked up.
	Connect func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// Server is the gateway: a client listener, a node listener, an admin listener
// and perhaps one for the relayer around the services of its configuration. See the package
// documentation for who calls whom. Its methods are safe for concurrent use.
type Server struct {
	config   *config.Config
	options  Options
	log      *zap.Logger
	metrics  *metrics
	claims   auth.Claims
	topology *topology
	services map[string]*service
	methods  string // for error texts
	egress   *egress.Client
	clients  *clientEndpoint
	nodes    *nodeEndpoint

	started  time.Time
	draining atomic.Bool
	killed   chan struct{} // closed when open requests are given up
	large    chan struct{} // places for decoding and digesting large messages of nodes
	killOnce sync.Once
	stop     context.CancelFunc
	running  sync.WaitGroup

	listeners map[string]net.Listener
	servers   map[string]*http.Server
}

// New prepares a server; Start makes it listen.
func New(o Options) (*Server, error) {
	if o.Config == nil {
		return nil, errors.New("gateway: no configuration")
	}
	srv := &Server{
		config: o.Config, options: o, log: o.Log, metrics: newMetrics(o.Metrics), claims: o.Claims,
		services: map[string]*service{}, started: time.Now(), killed: make(chan struct{}), large: make(chan struct{}, largePlaces()),
		listeners: map[string]net.Listener{}, servers: map[string]*http.Server{},
	}
	if srv.log == nil {
		srv.log = zap.NewNop()
	}
	if srv.claims == nil {
		srv.claims = auth.NewMemoryClaims(auth.MemoryOptions{})
	}
	ec, err := egress.FromConfig(o.Config.HTTPClient, o.Version)
	if err == nil {
		ec.OnPanic = func(stack []byte) { srv.log.Error("panic in an outbound request", zap.ByteString("stack", stack)) }
		for _, s := range o.Config.Services { // twice as many as calls under way: some idle ones are kept
			ec.MaxConns += 2 * s.Handler.MaxConcurrentActions
		}
		ec.MaxConns = max(ec.MaxConns, egress.DefaultMaxConns)
		ec.Connect = o.Connect
		srv.egress, err = egress.New(ec)
	}
	if err != nil {
		return nil, fmt.Errorf("httpClientConfig: %w", err)
	}
	srv.topology = newTopology(o.Config, srv.metrics)
	var methods []string
	for _, c := range o.Config.Services {
		svc := newService(srv, c, srv.claims)
		srv.services[c.Name] = svc
		methods = append(methods, svc.method)
	}
	slices.Sort(methods)
	srv.methods = strings.Join(methods, ", ")
	srv.clients = newClientEndpoint(srv)
	srv.nodes = newNodeEndpoint(srv)
	srv.metrics.registry.MustRegister(&stateCollector{srv})
	return srv, nil
}

// Messages over largeMessage bytes are decoded and digested a few at a time, so
// that whoever sends them, with whatever in them, does not hold every processor:
// the small requests of others pass by.
const largeMessage = 64 << 10

func largePlaces() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// tolerance is how far in the future a token may have been issued: the most
// generous service's, for checks made before the service is known.
func (srv *Server) tolerance() time.Duration {
	var t time.Duration
	for _, svc := range srv.services {
		t = max(t, svc.config.JWTIssuedAtTolerance)
	}
	return t
}

// The names of the listeners.
const (
	UserListener  = "user"
	NodeListener  = "node"
	AdminListener = "admin"
	// RelayerListener is there only where the relayer has a listener of its own.
	RelayerListener = "relayer"
)

// Start opens the listeners and serves until Shutdown. On error nothing is left
// open.
func (srv *Server) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	srv.stop = cancel
	user, node := &srv.config.UserServer, &srv.config.NodeServer
	err := srv.listen(UserListener, &user.Listener, user.MaxConnections, &http.Server{
		Handler:           withReadDeadline(user.ReadTimeout, srv.withRelayer(withCORS(user, srv.clients))),
		ReadHeaderTimeout: user.ReadTimeout, // the body has its own deadline
		WriteTimeout:      user.WriteTimeout,
		IdleTimeout:       idleTimeout,
	}, nil)
	if err == nil {
		var clientCA *x509.CertPool
		clientCA, err = loadPool(node.ClientCAPath)
		if err == nil {
			err = srv.listen(NodeListener, &node.Listener, srv.maxNodeConnections(), &http.Server{
				Handler: withReadDeadline(refusedBodyWait, srv.nodes), ReadHeaderTimeout: node.ReadTimeout, WriteTimeout: node.WriteTimeout, IdleTimeout: idleTimeout,
				TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // WebSocket needs HTTP/1.1
			}, clientCA)
		}
	}
	if err == nil {
		err = srv.listenRelayer()
	}
	if err == nil && srv.config.Admin.Port >= 0 {
		err = srv.listen(AdminListener, &config.Listener{Host: srv.config.Admin.Host, Port: srv.config.Admin.Port}, 0,
			&http.Server{Handler: withReadDeadline(refusedBodyWait, srv.adminHandler()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: idleTimeout}, nil)
	}
	if err != nil {
		cancel()
		for _, l := range srv.listeners {
			_ = l.Close()
		}
		return err
	}
	for _, svc := range srv.services {
		srv.running.Go(func() { svc.run(ctx) })
	}
	for name, l := range srv.listeners {
		hs := srv.servers[name]
		srv.running.Go(func() {
			if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				srv.log.Error("listener failed", zap.String("listener", name), zap.Error(err))
			}
		})
	}
	if _, ok := srv.claims.(*auth.MemoryClaims); ok {
		srv.log.Warn("used tokens and request ids are kept in memory: they are forgotten on restart and not shared with other gateways")
	}
	srv.warnOfFiles()
	for _, p := range srv.config.Warnings {
		srv.log.Warn("configuration", zap.String("warning", p.String()))
	}
	addresses := []zap.Field{zap.String(UserListener, srv.Address(UserListener)),
		zap.String(NodeListener, srv.Address(NodeListener)), zap.String(AdminListener, srv.Address(AdminListener))}
	if a := srv.Address(RelayerListener); a != "" {
		addresses = append(addresses, zap.String(RelayerListener, a))
	}
	srv.log.Info("listening", addresses...)
	return nil
}

// Address is the address a listener is bound to; "" when it is off.
func (srv *Server) Address(listener string) string {
	l := srv.listeners[listener]
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// maxNodeConnections bounds the node listener: a live session and all pending
// attempts of each node, and some room for whoever is not one.
func (srv *Server) maxNodeConnections() int {
	return (2+maxPendingHandshakes)*len(srv.topology.nodes) + 1024
}

func (srv *Server) listen(name string, c *config.Listener, connections int, hs *http.Server, clientCA *x509.CertPool) error {
	open := srv.options.Listen
	if open == nil {
		open = net.Listen
	}
	var tlsConfig *tls.Config
	if c.TLSEnabled {
		cert, err := tls.LoadX509KeyPair(c.TLSCertPath, c.TLSKeyPath)
		if err != nil {
			return fmt.Errorf("%s listener: certificate: %w", name, err)
		}
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}
		if hs.TLSNextProto != nil {
			tlsConfig.NextProtos = []string{"http/1.1"}
		}
		if clientCA != nil {
			tlsConfig.ClientCAs, tlsConfig.ClientAuth = clientCA, tls.RequireAndVerifyClientCert
		}
	}
	l, err := open("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("%s listener: %w", name, err)
	}
	if connections > 0 {
		l = netutil.LimitListener(l, connections)
	}
	if tlsConfig != nil {
		hs.TLSConfig = tlsConfig
		l = tls.NewListener(l, tlsConfig)
	}
	hs.MaxHeaderBytes = maxHeaderBytes
	hs.ErrorLog = httpErrors(srv.log.With(zap.String("listener", name)))
	srv.listeners[name], srv.servers[name] = l, hs
	return nil
}

func loadPool(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("clientCAPath: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("clientCAPath: %s holds no certificate", path)
	}
	return pool, nil
}

// Run starts the server, serves until ctx ends, and drains.
func (srv *Server) Run(ctx context.Context) error {
	if err := srv.Start(); err != nil {
		return err
	}
	<-ctx.Done()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), srv.config.ShutdownTimeout)
	defer cancel()
	return srv.Shutdown(drain)
}

// answerGrace is what is left for writing answers once open requests were given
// up at the deadline.
const answerGrace = 2 * time.Second

// Shutdown drains: new requests get 503 `draining` while open ones finish; at
// ctx's end those left are answered `draining`, saying that they may have run.
// Sessions are then closed with 1001. It returns when every goroutine of the
// server has ended.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.log.Info("draining", zap.Int("open", srv.openRequests()))
	srv.draining.Store(true)
	srv.clients.await(ctx.Done())
	srv.killOnce.Do(func() { close(srv.killed) })
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerGrace)
	defer cancel()
	var errs []error
	for _, name := range []string{UserListener, RelayerListener, NodeListener} {
		if hs := srv.servers[name]; hs != nil {
			if hs.Shutdown(grace) != nil { // connections that never sent a request, or do not read their answer
				errs = append(errs, hs.Close())
			}
		}
	}
	srv.nodes.close()
	srv.egress.Close()
	for _, svc := range srv.services {
		svc.actions.stop() // no session is left that could be answered, or could ask
	}
	if hs := srv.servers[AdminListener]; hs != nil {
		errs = append(errs, hs.Close())
	}
	if srv.stop != nil {
		srv.stop()
	}
	srv.running.Wait()
	srv.log.Info("stopped")
	return errors.Join(errs...)
}

func (srv *Server) openRequests() int {
	n := 0
	for _, svc := range srv.services {
		n += svc.flights.len()
	}
	return n
}

// logFailure records what the caller is not told. Refusals that are the caller's
// own doing are debug entries: a flood of them must not flood the log. What was
// wrong with params stays out, since it quotes them, a workflow's input included.
func (srv *Server) logFailure(r *jsonrpc.Request, f *failure) {
	level := zap.DebugLevel
	if f.reason == ReasonInternal || f.reason == ReasonUnavailable {
		level = zap.ErrorLevel
	}
	if e := srv.log.Check(level, "request refused"); e != nil {
		fields := []zap.Field{zap.String("reason", string(f.reason)), zap.String("method", quoteShort(r.Method)), zap.NamedError("cause", f.cause)}
		if f.reason != ReasonInvalidParams {
			fields = append(fields, zap.String("message", f.message))
		}
		e.Write(fields...)
	}
}
