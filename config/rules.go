package config

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"dongate/internal/dsn"
)

// rules checks what more than one member decides, fills in the defaults that
// depend on others, and moves services and DONs into c. A rule is skipped when
// one of its members already has a problem, so that no mistake shows twice.
func (b *binder) rules(c *Config, t *topology) {
	b.userServer(&c.UserServer)
	b.nodeServer(&c.NodeServer)
	b.listeners(c)
	b.connection(&c.ConnectionManager)
	b.httpClient(&c.HTTPClient)
	b.storage(&c.Storage)
	b.relayer(c)
	b.topology(c, t)
}

func (b *binder) userServer(u *UserServer) {
	const at = "userServerConfig"
	least := u.RequestTimeout + writeMargin
	if u.WriteTimeout == 0 {
		u.WriteTimeout = least
	} else if u.WriteTimeout < least && b.ok(at+".requestTimeoutMillis") {
		b.warn(at+".writeTimeoutMillis", "raised from %d to %d, requestTimeoutMillis + 5000, so that the timeout answer arrives complete", u.WriteTimeout/ms, least/ms)
		u.WriteTimeout = least
	}
	b.tls(&u.Listener, at)
	if u.Path == "/health" {
		b.fail(at+".path", "found \"/health\", which answers load balancers on this port; write another path")
	}
	b.offRate(&u.PerAddress, at, "perAddress")
	if u.CORSEnabled && len(u.CORSAllowedOrigins) == 0 && b.ok(at+".corsAllowedOrigins") {
		b.warn(at+".corsEnabled", "CORS is enabled and corsAllowedOrigins names no origin: browsers are refused")
	}
}

func (b *binder) nodeServer(s *NodeServer) {
	const at = "nodeServerConfig"
	if s.WriteTimeout == 0 {
		s.WriteTimeout = s.RequestTimeout + writeMargin
	}
	b.tls(&s.Listener, at)
	if s.ClientCAPath != "" && !s.TLSEnabled && b.ok(at+".tlsEnabled") {
		b.fail(at+".clientCAPath", "client certificates need TLS: set tlsEnabled, or remove this")
	}
}

func (b *binder) tls(l *Listener, at string) {
	if !b.ok(at + ".tlsEnabled") {
		return
	}
	for _, file := range []struct{ name, path string }{{"tlsCertPath", l.TLSCertPath}, {"tlsKeyPath", l.TLSKeyPath}} {
		switch path := at + "." + file.name; {
		case l.TLSEnabled && file.path == "" && b.ok(path):
			b.fail(path, "missing; tlsEnabled needs both tlsCertPath and tlsKeyPath")
		case !l.TLSEnabled && file.path != "":
			b.warn(path, "not used: tlsEnabled is not true")
		}
	}
}

// offRate finishes a rate that is off unless the file sets it: -1 in either
// member is off, and a rate without a burst gets the smallest that admits it.
func (b *binder) offRate(r *Rate, at, prefix string) {
	rpsAt, burstAt := join(at, prefix+"RPS"), join(at, prefix+"Burst")
	switch {
	case r.RPS == -1 || r.Burst == -1:
		*r = Rate{}
	case r.RPS == 0:
		if r.Burst > 0 && b.ok(rpsAt) {
			b.warn(burstAt, "no effect without %sRPS", prefix)
		}
		*r = Rate{}
	case r.Burst == 0:
		r.Burst = int(math.Ceil(r.RPS))
	}
}

// listeners reports two listeners on one port.
func (b *binder) listeners(c *Config) {
	type listener struct {
		name, hostAt, portAt string
		host                 string
		port                 int
	}
	var all []listener
	for _, l := range []listener{
		{"userServerConfig", "", "", c.UserServer.Host, c.UserServer.Port},
		{"nodeServerConfig", "", "", c.NodeServer.Host, c.NodeServer.Port},
		{"admin", "", "", c.Admin.Host, c.Admin.Port},
	} {
		l.hostAt, l.portAt = l.name+".host", l.name+".port"
		all = append(all, l)
	}
	if c.Relayer.Enabled && c.Relayer.Listen != "" {
		const at = "relayer.listen"
		host, port := listenHostPort(c.Relayer.Listen)
		all = append(all, listener{at, at, at, host, port})
	}
	for i, later := range all {
		for _, first := range all[:i] {
			if later.port > 0 && later.port == first.port && overlap(later.host, first.host) &&
				b.ok(later.portAt, later.hostAt, first.portAt, first.hostAt) {
				at, other := later, first
				if !b.written(at.portAt) && b.written(other.portAt) {
					at, other = other, at // point at what was written, not at a default
				}
				b.fail(at.portAt, "port %d is also that of %s on %s; give each listener its own", at.port, other.name, other.host)
				break
			}
		}
	}
}

// overlap reports whether two hosts may name the same local address. Host
// names other than localhost are only compared with each other.
func overlap(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	x, y := hostAddr(a), hostAddr(b)
	if !x.IsValid() || !y.IsValid() {
		// A name: only a wildcard certainly covers it.
		return x.IsValid() && x.IsUnspecified() || y.IsValid() && y.IsUnspecified()
	}
	if x.IsUnspecified() || y.IsUnspecified() {
		// "::" takes IPv4 as well.
		return x.Is4() == y.Is4() || x == netip.IPv6Unspecified() || y == netip.IPv6Unspecified()
	}
	return x == y
}

func hostAddr(host string) netip.Addr {
	if strings.EqualFold(host, "localhost") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, _ := netip.ParseAddr(host)
	return addr.Unmap()
}

func (b *binder) connection(m *ConnectionManager) {
	const at = "connectionManagerConfig"
	if m.AuthGatewayID == "" && b.ok(at, at+".authGatewayId") {
		b.fail(at+".authGatewayId", "required: write the name that nodes sign for, 1 to 128 bytes")
	}
	if m.PongTimeout == 0 {
		m.PongTimeout = 3 * m.HeartbeatInterval
	} else if m.PongTimeout <= m.HeartbeatInterval && b.ok(at+".heartbeatIntervalSec") {
		b.fail(at+".pongTimeoutSec", "found %d; write more than heartbeatIntervalSec (%d), or 0 for three heartbeats", m.PongTimeout/sec, m.HeartbeatInterval/sec)
	}
}

func (b *binder) httpClient(h *HTTPClient) {
	const at = "httpClientConfig"
	if len(h.AllowedPorts) == 0 && len(h.AllowedPortRanges) == 0 {
		h.AllowedPorts = []int{80, 443}
	}
	h.BlockedHeaders = distinct(append(slices.Clone(builtinBlockedHeaders), h.BlockedHeaders...))
	h.AllowedPorts = distinct(h.AllowedPorts)
	h.AllowedSchemes = distinct(h.AllowedSchemes)
	h.AllowedMethods = distinct(h.AllowedMethods)
	for _, list := range []struct {
		name     string
		networks []netip.Prefix
	}{{"allowedIPsCIDR", h.AllowedIPsCIDR}, {"blockedIPsCIDR", h.BlockedIPsCIDR}} {
		for i, network := range list.networks {
			if network.Bits() == 0 && b.ok(at+"."+list.name) {
				b.warn(index(at+"."+list.name, i), "%s is every address", network)
			}
		}
	}
}

// distinct leaves out what was there before, keeping the order.
func distinct[T comparable](list []T) []T {
	var out []T
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func (b *binder) storage(s *Storage) {
	switch {
	case !b.ok("storage.driver", "storage.dsn"):
	case s.Driver == DriverPostgres && s.DSN == "":
		b.fail("storage.dsn", "missing; driver %q needs a connection string, here or in %s", s.Driver, envName("storage.dsn"))
	case s.Driver == DriverSQLite && dsn.IsConnectionString(s.DSN.Reveal()):
		b.fail("storage.dsn", "a connection string, but driver %q takes the path of a file: set storage.driver to %q", s.Driver, DriverPostgres)
	case s.Driver == DriverMemory && s.DSN != "":
		b.warn("storage.dsn", "not used by driver %q", s.Driver)
	}
}

// handlerRules checks one http-capabilities configuration at path.
func (b *binder) handlerRules(h *Handler, path string) {
	at := func(name string) string { return path + "." + name }

	b.offRate(&h.UserRate.PerWorkflow, at("userRateLimiter"), "perWorkflow")

	const defSend = 10 * time.Second
	if h.NodeSendTimeout == 0 {
		h.NodeSendTimeout = min(defSend, h.MaxTriggerRequestDuration)
	} else if h.NodeSendTimeout > h.MaxTriggerRequestDuration && b.ok(at("maxTriggerRequestDurationMs")) {
		b.warn(at("nodeSendTimeoutMs"), "lowered from %d to %d, maxTriggerRequestDurationMs", h.NodeSendTimeout/ms, h.MaxTriggerRequestDuration/ms)
		h.NodeSendTimeout = h.MaxTriggerRequestDuration
	}

	if initial, most := at("retryConfig.initialIntervalMs"), at("retryConfig.maxIntervalTimeMs"); h.Retry.InitialInterval > h.Retry.MaxInterval && b.ok(initial, most) {
		b.fail(initial, "found %d; write at most maxIntervalTimeMs (%d)", h.Retry.InitialInterval/ms, h.Retry.MaxInterval/ms)
	}

	if clean, pull := at("cleanUpPeriodMs"), at("metadataPullIntervalMs"); h.CleanUpPeriod < 2*h.MetadataPullInterval && b.ok(clean, pull) {
		where := clean
		if !b.chosen(clean) {
			where = pull
		}
		b.fail(where, "cleanUpPeriodMs (%d) is less than twice metadataPullIntervalMs (%d), so metadata would expire between two pulls; write at least %d for the first, or at most %d for the second",
			h.CleanUpPeriod/ms, h.MetadataPullInterval/ms, 2*h.MetadataPullInterval/ms, h.CleanUpPeriod/2/ms)
	}
	// A short cleanUpPeriodMs is fine for metadata. Request ids are reserved
	// for RequestIDPeriod all the same, so this is no error.
	if clean := at("cleanUpPeriodMs"); h.CleanUpPeriod < h.TokenLife() && b.chosen(clean) && b.ok(clean, at("jwtIssuedAtToleranceMs")) {
		b.warn(clean, "request ids stay reserved for %d ms, as long as a token can live, and not only for %d", h.TokenLife()/ms, h.CleanUpPeriod/ms)
	}

	const defReplay = 24 * time.Hour
	if replay := at("jwtReplayPeriodMs"); h.JWTReplayPeriod == 0 {
		h.JWTReplayPeriod = max(defReplay, h.TokenLife())
	} else if h.JWTReplayPeriod < h.TokenLife() && b.ok(at("jwtIssuedAtToleranceMs")) {
		b.warn(replay, "raised from %d to %d: a used token must be remembered as long as it can live, 5 minutes and jwtIssuedAtToleranceMs", h.JWTReplayPeriod/ms, h.TokenLife()/ms)
		h.JWTReplayPeriod = h.TokenLife()
	}
}
