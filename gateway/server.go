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

	"dongate/auth"
	"dongate/config"
	"dongate/jsonrpc"
	"dongate/ratelimit"
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
	// Reload reads the configuration file again and has it applied with
	// [Server.Reload]. POST /reload of the admin listener calls it; nil: there is no
	// such path.
	Reload func() *Reloaded
	// Connect opens the connections of actions, to addresses that have passed
	// every check; nil: TCP, after names were looked up.
	Connect func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
}

// Server is the gateway: a client listener, a node listener, an admin listener
// and perhaps one for the relayer around the services of its configuration. See the package
// documentation for who calls whom. Its methods are safe for concurrent use.
type Server struct {
	config   *config.Config // as of the start: for what no reload changes
	options  Options
	log      *zap.Logger
	metrics  *metrics
	claims   auth.Claims
	services map[string]*service
	serves   map[string]*service // by the DONs' names
	methods  string              // for error texts
	clients  *clientEndpoint
	nodes    *nodeEndpoint

	addresses *ratelimit.Limiter // of client addresses; see admitAddress

	snapshot  atomic.Pointer[snapshot]
	reloading sync.Mutex    // held while a configuration is put in place
	asked     chan struct{} // capacity 1: a request to reload is under way

	started  time.Time
	leaving  atomic.Bool   // readiness is off
	draining atomic.Bool   // new requests are refused; leaving, too
	killed   chan struct{} // closed when open requests are given up
	large    chan struct{} // places for decoding and digesting large messages of nodes
	killOnce sync.Once
	stop     context.CancelFunc
	running  sync.WaitGroup

	listeners map[string]*connections
	servers   map[string]*http.Server
}

// New prepares a server; Start makes it listen.
func New(o Options) (*Server, error) {
	if o.Config == nil {
		return nil, errors.New("gateway: no configuration")
	}
	srv := &Server{
		config: o.Config, options: o, log: o.Log, metrics: newMetrics(o.Metrics), claims: o.Claims,
		services: map[string]*service{}, serves: map[string]*service{}, started: time.Now(), killed: make(chan struct{}), large: make(chan struct{}, largePlaces()),
		listeners: map[string]*connections{}, servers: map[string]*http.Server{}, asked: make(chan struct{}, 1),
		addresses: ratelimit.New(ratelimit.Options{MaxSenders: maxAddresses}),
	}
	if srv.log == nil {
		srv.log = zap.NewNop()
	}
	if srv.claims == nil {
		srv.claims = auth.NewMemoryClaims(auth.MemoryOptions{})
	}
	var methods []string
	for _, c := range o.Config.Services {
		svc := newService(srv, c.Name, srv.claims)
		srv.services[c.Name] = svc
		for _, name := range c.DONs {
			srv.serves[name] = svc
		}
		methods = append(methods, svc.method)
	}
	slices.Sort(methods)
	srv.methods = strings.Join(methods, ", ")
	first, err := srv.prepare(o.Config, nil)
	if err != nil {
		return nil, err
	}
	srv.apply(first, nil)
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
		Handler:           withReadDeadline(user.ReadTimeout, srv.withRelayer(srv.withCORS(srv.clients))),
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
			if err := hs.Serve(l.served); !errors.Is(err, http.ErrServerClosed) && !l.isClosed() {
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
	return (2+maxPendingHandshakes)*len(srv.current().topology.nodes) + 1024
}

func (srv *Server) listen(name string, c *config.Listener, connections int, hs *http.Server, clientCA *x509.CertPool) error {
	open := srv.options.Listen
	if open == nil {
		open = net.Listen
	}
	l, err := open("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("%s listener: %w", name, err)
	}
	tracked := newConnections(l, connections)
	if c.TLSEnabled {
		hs.TLSConfig = srv.tlsConfig(name, hs.TLSNextProto == nil, clientCA)
		tracked.served = tls.NewListener(tracked, hs.TLSConfig)
	}
	hs.ConnState = tracked.state
	hs.MaxHeaderBytes = maxHeaderBytes
	hs.ErrorLog = httpErrors(srv.log.With(zap.String("listener", name)))
	srv.listeners[name], srv.servers[name] = tracked, hs
	return nil
}

// tlsConfig presents the certificate in effect, which a reload may have replaced.
func (srv *Server) tlsConfig(listener string, http2 bool, clientCA *x509.CertPool) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return srv.current().certificates[listener], nil }}
	if !http2 {
		c.NextProtos = []string{"http/1.1"}
	}
	if clientCA != nil {
		c.ClientCAs, c.ClientAuth = clientCA, tls.RequireAndVerifyClientCert
	}
	return c
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
