package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rs/cors"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/egress"
)

// snapshot is a configuration in effect, with everything that is made from it for
// requests to look at. Nothing in it changes: a reload puts another in its place,
// and a request keeps to the one it began with.
type snapshot struct {
	config       *config.Config
	topology     *topology
	handlers     map[string]*config.Handler  // by service
	certificates map[string]*tls.Certificate // by listener, of those with TLS
	cors         *cors.Cors                  // nil: off
	egress       *egress.Client
	egressConns  int            // the bound of its connections
	rules        int64          // counts the clients: those of one number have the same rules
	roots        *x509.CertPool // what it trusts besides the system's; nil: nothing

	// tolerance is how far in the future a token may have been issued: the most
	// generous service's, for checks made before the service is known.
	tolerance time.Duration
	// readingLimit bounds the bytes of bodies from the socket until they are
	// dispatched or refused.
	readingLimit int64
}

// current is the configuration in effect.
func (srv *Server) current() *snapshot { return srv.snapshot.Load() }

// Config is the configuration in effect: that of the start, with what reloads have
// changed since.
func (srv *Server) Config() *config.Config { return srv.current().config }

// prepare makes the snapshot of c, which takes over from before (nil: there is
// none) what stays the same. It changes nothing that is in use.
func (srv *Server) prepare(c *config.Config, before *snapshot) (*snapshot, error) {
	s := &snapshot{config: c, handlers: map[string]*config.Handler{}, cors: newCORS(&c.UserServer), readingLimit: c.UserServer.MaxRequestBytes}
	for i := range c.Services {
		h := &c.Services[i].Handler
		s.handlers[c.Services[i].Name] = h
		s.tolerance = max(s.tolerance, h.JWTIssuedAtTolerance)
		s.readingLimit += h.MaxOpenBytes
	}
	if err := errors.Join(s.loadCertificates(), srv.prepareEgress(s, before)); err != nil {
		return nil, err
	}
	var topology *topology
	if before != nil {
		topology = before.topology
	}
	s.topology = newTopology(c, topology, srv.serves, srv.metrics) // last: it begins to count new shards
	return s, nil
}

func (s *snapshot) loadCertificates() error {
	s.certificates = map[string]*tls.Certificate{}
	for name, l := range s.secured() {
		cert, err := tls.LoadX509KeyPair(l.TLSCertPath, l.TLSKeyPath)
		if err != nil {
			return fmt.Errorf("%s listener: certificate: %w", name, err)
		}
		s.certificates[name] = &cert
	}
	return nil
}

// secured are the listeners with TLS.
func (s *snapshot) secured() map[string]*config.Listener {
	all := map[string]*config.Listener{}
	for name, l := range map[string]*config.Listener{UserListener: &s.config.UserServer.Listener, NodeListener: &s.config.NodeServer.Listener} {
		if l.TLSEnabled {
			all[name] = l
		}
	}
	return all
}

// prepareEgress keeps the client, and so its connections, where nothing changes for
// it.
func (srv *Server) prepareEgress(s, before *snapshot) error {
	ec, err := egress.FromConfig(s.config.HTTPClient, srv.options.Version)
	if err != nil {
		return fmt.Errorf("httpClientConfig: %w", err)
	}
	for _, h := range s.handlers { // twice as many as calls under way: some idle ones are kept
		ec.MaxConns += 2 * h.MaxConcurrentActions
	}
	ec.MaxConns = max(ec.MaxConns, egress.DefaultMaxConns)
	s.roots, s.egressConns = ec.RootCAs, ec.MaxConns
	if before != nil && s.egressConns == before.egressConns && s.roots.Equal(before.roots) && reflect.DeepEqual(s.config.HTTPClient, before.config.HTTPClient) {
		s.egress, s.rules = before.egress, before.rules
		return nil
	}
	if before != nil {
		s.rules = before.rules + 1
	}
	ec.OnPanic = func(stack []byte) { srv.log.Error("panic in an outbound request", zap.ByteString("stack", stack)) }
	ec.Connect = srv.options.Connect
	if s.egress, err = egress.New(ec); err != nil {
		return fmt.Errorf("httpClientConfig: %w", err)
	}
	return nil
}

// apply puts a prepared snapshot in the place of before (nil: there is none), ends
// the sessions of nodes that it does not have, and takes their votes out of the
// requests that are open. It cannot fail.
func (srv *Server) apply(s, before *snapshot) {
	var removed []*node
	if before != nil {
		for address, n := range before.topology.nodes {
			if s.topology.nodes[address] != n {
				n.removed.Store(true)
				removed = append(removed, n)
			}
		}
		if s.egress != before.egress {
			s.egress.TakeOver(before.egress)
		}
	}
	s.topology.setNames()
	srv.snapshot.Store(s)

	now := time.Now()
	srv.addresses.SetRates(rate(config.Rate{}), rate(s.config.UserServer.PerAddress), now)
	for _, svc := range srv.services {
		svc.apply(s, now)
	}
	if l := srv.listeners[NodeListener]; l != nil {
		l.setMost(srv.maxNodeConnections())
	}
	for _, n := range removed {
		if svc := n.shard.service; svc != nil {
			svc.nodeRemoved(n)
		}
		if session := n.session.Load(); session != nil {
			session.stop(websocket.ClosePolicyViolation, endRemoved)
		}
	}
	if before != nil {
		for id := range before.topology.shards {
			if s.topology.shards[id] == nil {
				srv.metrics.dropShard(id)
			}
		}
	}
}
