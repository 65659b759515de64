package config

import (
	"fmt"
	"time"
)

const (
	ms  = time.Millisecond
	sec = time.Second

	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40

	// maxCount bounds counts and bursts: far above anything useful, far below
	// overflow.
	maxCount = 1e9
	// writeMargin is how much longer an answer may take to write than its
	// request may last, so that the timeout answer arrives complete
	// (protocol §2).
	writeMargin = 5 * time.Second
)

// table is every member of the file, bound to c and t. It is the one place
// where a member's name, default, bounds and meaning are written down.
func table(c *Config, t *topology) []field {
	return []field{
		section("userServerConfig", "The endpoint for clients.", userServerFields(&c.UserServer)),
		section("nodeServerConfig", "The endpoint for nodes.", nodeServerFields(&c.NodeServer)),
		section("connectionManagerConfig", "Handshake and heartbeat of nodes.", connectionFields(&c.ConnectionManager)),
		section("httpClientConfig", "What outbound HTTP actions may do.", reloadable(httpClientFields(&c.HTTPClient))),
		required(objects("services", &t.services, "Who answers which methods: the text before a method's first `.` names the service.", serviceFields)),
		required(reload(objects("shardedDONs", &t.sharded, "The networks and their nodes.", donFields))),
		legacyField(t),
		boolean("ignoreUnknownHandlers", &c.IgnoreUnknownHandlers, "Leave out handlers that this gateway does not implement, with a warning, instead of refusing the file."),
		section("admin", "The operator's listener: metrics, health, status.", adminFields(&c.Admin)),
		section("storage", "Where durable state lives.", storageFields(&c.Storage)),
		section("log", "What is logged and how.", logFields(&c.Log)),
		duration("shutdownTimeoutMs", &c.ShutdownTimeout, ms, span{def: 30000}, "", "How long a stop waits for open requests; at the deadline each is answered `draining`."),
		duration("drainDelayMs", &c.DrainDelay, ms, span{max: float64(time.Hour / ms)}, "0", "How long a stop goes on taking requests while `/readyz` and `/health` already refuse, so that a load balancer notices; shutdownTimeoutMs begins after it."),
		section("relayer", "The durable relayer of decryption requests and input proofs.", relayerFields(&c.Relayer)),
	}
}

func section(name, doc string, fields []field) field {
	return field{name: name, kind: "an object", doc: doc, fields: fields}
}

// reload marks a member whose change takes effect while running.
func reload(f field) field {
	f.reloadable = true
	return f
}

func reloadable(fields []field) []field {
	for i := range fields {
		fields[i].reloadable = true
		reloadable(fields[i].fields)
	}
	return fields
}

func required(f field) field {
	f.required = true
	return f
}

// listenerFields are the rows that both endpoints share.
func listenerFields(l *Listener, defPort int, defPath string) []field {
	return []field{
		text("host", &l.Host, "0.0.0.0", "The address or host name to listen on.", checkHost),
		port("port", &l.Port, defPort, false, "The port to listen on."),
		text("path", &l.Path, defPath, "The path that is served.", checkPath),
		boolean("tlsEnabled", &l.TLSEnabled, "Whether to speak TLS."),
		reload(text("tlsCertPath", &l.TLSCertPath, "", "PEM file of the certificate and its chain.", checkFileName)),
		reload(text("tlsKeyPath", &l.TLSKeyPath, "", "PEM file of the private key.", checkFileName)),
		text("contentTypeHeader", &l.ContentTypeHeader, "application/json", "The Content-Type of every answer.", checkContentType),
		duration("readTimeoutMillis", &l.ReadTimeout, ms, span{def: 10000}, "", "How long reading a request may take; it never cuts a node's live session."),
		duration("writeTimeoutMillis", &l.WriteTimeout, ms, span{max: float64((maxDuration + writeMargin) / ms)}, "requestTimeoutMillis + 5000", "How long writing may take. For clients never less than the default, so that the timeout answer arrives complete; for nodes also how long a session's queue may stay full."),
		duration("requestTimeoutMillis", &l.RequestTimeout, ms, span{def: 65000}, "", "How long a request may last before it is answered `timeout`."),
		integer("maxRequestBytes", &l.MaxRequestBytes, span{def: mib, min: kib, max: gib}, "bytes", "The largest request body or message of a node."),
	}
}

func userServerFields(u *UserServer) []field {
	return append(listenerFields(&u.Listener, 5002, "/"),
		reload(boolean("corsEnabled", &u.CORSEnabled, "Whether browsers of other origins may call.")),
		reload(strs("corsAllowedOrigins", &u.CORSAllowedOrigins, "origins", nil, "Exact origins, and `https://*.example.com` for every true subdomain.", checkOrigin)),
		integer("maxBatch", &u.MaxBatch, span{def: 20, min: 1, max: 4096}, "", "The most elements of one JSON-RPC batch."),
		integer("maxConcurrentRequests", &u.MaxConcurrentRequests, span{def: 4096, min: 1, max: maxCount}, "", "The most requests worked on at one time."),
		integer("maxConnections", &u.MaxConnections, span{def: 16384, min: 1, max: maxCount}, "", "The most open client connections."),
		reload(withDefault("off", rps("perAddressRPS", &u.PerAddress.RPS, rateSpan(0, true), "Requests per second of one client address."))),
		reload(withDefault("off, or perAddressRPS rounded up", integer("perAddressBurst", &u.PerAddress.Burst, span{min: 1, max: maxCount, off: true}, "", "Requests that one client address may send at once."))),
		reload(list("trustedProxies", &u.TrustedProxies, "networks", nil, "Networks whose X-Forwarded-For counts, as CIDRs or single addresses.", parsePrefix, printPrefix)),
	)
}

func nodeServerFields(s *NodeServer) []field {
	return append(listenerFields(&s.Listener, 5003, "/node"),
		duration("handshakeTimeoutMillis", &s.HandshakeTimeout, ms, span{def: 10000}, "", "From the upgrade to the verified answer to the challenge."),
		text("clientCAPath", &s.ClientCAPath, "", "PEM file of authorities; when set, nodes must present a certificate of one.", checkFileName),
	)
}

func connectionFields(m *ConnectionManager) []field {
	return []field{
		required(text("authGatewayId", &m.AuthGatewayID, "", "The name that nodes sign for: 1 to 128 bytes.", checkName(128))),
		duration("authTimestampToleranceSec", &m.AuthTimestampTolerance, sec, span{def: 5, max: 3600}, "", "The largest accepted difference between a node's clock and ours."),
		integer("authChallengeLen", &m.AuthChallengeLen, span{def: 32, min: 10, max: 1024}, "random bytes", "The length of a challenge."),
		duration("heartbeatIntervalSec", &m.HeartbeatInterval, sec, span{def: 20, max: 86400}, "", "The time between two pings of a session."),
		duration("pongTimeoutSec", &m.PongTimeout, sec, span{max: 10 * 86400}, "3 heartbeats", "How long a session may be silent; longer than one heartbeat."),
	}
}

func httpClientFields(h *HTTPClient) []field {
	return []field{
		integer("maxResponseBytes", &h.MaxResponseBytes, span{def: 27033, min: 1, max: gib}, "bytes", "The largest response body, decompressed."),
		timeout("defaultTimeout", &h.DefaultTimeout, 5*sec, ms, maxActionTimeout, "For actions that name no timeout."),
		withDefault("[80,443] where allowedPortRanges is empty too", list("allowedPorts", &h.AllowedPorts, "ports", nil, "Ports that may be dialled, together with allowedPortRanges.", parsePort, printPort)),
		list("allowedPortRanges", &h.AllowedPortRanges, "port ranges", nil, "Inclusive ranges such as `\"8000-8100\"`.", parsePortRange, printPortRange),
		strs("allowedSchemes", &h.AllowedSchemes, "schemes", []string{"http", "https"}, "URL schemes: http, https or both.", checkScheme),
		strs("allowedMethods", &h.AllowedMethods, "methods", []string{"GET", "POST", "PUT", "PATCH", "DELETE"}, "HTTP methods.", checkMethod),
		strs("blockedHeaders", &h.BlockedHeaders, "header names", builtinBlockedHeaders, "Headers a node may not set. A file adds to the built-in list and cannot shorten it; `proxy-*` is a prefix.", checkHeader),
		list("allowedIPs", &h.AllowedIPs, "addresses", nil, "Re-admitted addresses; they do not make the list exclusive.", parseAddr, printAddr),
		list("allowedIPsCIDR", &h.AllowedIPsCIDR, "networks", nil, "Re-admitted networks.", parsePrefix, printPrefix),
		list("blockedIPs", &h.BlockedIPs, "addresses", nil, "Addresses refused besides the built-in ones.", parseAddr, printAddr),
		list("blockedIPsCIDR", &h.BlockedIPsCIDR, "networks", nil, "Networks refused besides the built-in ones.", parsePrefix, printPrefix),
		text("caPath", &h.CAPath, "", "PEM file trusted besides the system's roots.", checkFileName),
		withDefault("1/30", rps("mtlsRPS", &h.MTLS.RPS, rateSpan(1.0/30, false), "Actions with a client certificate per second.")),
		integer("mtlsBurst", &h.MTLS.Burst, span{min: 1, max: maxCount}, "", "Such actions at once; 0 refuses all of them."),
		integer("mtlsMaxConcurrent", &h.MTLSMaxConcurrent, span{def: 50, min: 1, max: maxCount}, "", "Such actions under way at one time."),
	}
}

func adminFields(a *Admin) []field {
	return []field{
		text("host", &a.Host, "127.0.0.1", "The address or host name to listen on.", checkHost),
		port("port", &a.Port, 5004, true, "The port to listen on."),
		boolean("adminPprof", &a.Pprof, "Whether Go profiles are served."),
		text("tokenFile", &a.TokenFile, "", "File with a token of 16 to 1024 visible characters that `POST /reload` must carry as `Authorization: Bearer`; without one it is refused unless host is a loopback address.", checkFileName),
	}
}

func storageFields(s *Storage) []field {
	return []field{
		oneOf("driver", &s.Driver, "The database.", DriverSQLite, DriverPostgres, DriverMemory),
		hidden("dsn", &s.DSN, "The file of sqlite, or the connection string of postgres."),
		oneOf("migrate", &s.Migrate, "Whether an older schema is brought up to date at start, or refused.", MigrateAuto, MigrateManual),
	}
}

func logFields(l *Log) []field {
	return []field{
		reload(oneOf("level", &l.Level, "The least severe level that is logged.", "info", "debug", "warn", "error")),
		oneOf("format", &l.Format, "The form of a log line.", "json", "console"),
	}
}

// handlerFields is the `config` of an http-capabilities handler.
func handlerFields(h *Handler) []field {
	return reloadable([]field{
		section("nodeRateLimiter", "Limits what nodes send unasked.", append(
			rateFields("global", &h.NodeRate.Global, 500, 500, "one shard"),
			rateFields("perSender", &h.NodeRate.PerSender, 100, 100, "one node")...)),
		section("userRateLimiter", "Limits triggers.", append(append(
			rateFields("global", &h.UserRate.Global, 1000, 1000, "all owners"),
			rateFields("perSender", &h.UserRate.PerSender, 10, 20, "one workflow owner")...),
			withDefault("off", rps("perWorkflowRPS", &h.UserRate.PerWorkflow.RPS, rateSpan(0, true), "Per second, of one workflow.")),
			withDefault("off, or perWorkflowRPS rounded up", integer("perWorkflowBurst", &h.UserRate.PerWorkflow.Burst, span{min: 1, max: maxCount, off: true}, "", "At once, of one workflow.")))),
		duration("maxTriggerRequestDurationMs", &h.MaxTriggerRequestDuration, ms, span{def: 60000}, "", "The deadline of a trigger."),
		duration("nodeSendTimeoutMs", &h.NodeSendTimeout, ms, span{}, "10000, or maxTriggerRequestDurationMs if that is less", "How long one send to one node may take."),
		section("retryConfig", "Sends to a node are repeated until delivered.", []field{
			duration("initialIntervalMs", &h.Retry.InitialInterval, ms, span{def: 100}, "", "The shortest wait."),
			duration("maxIntervalTimeMs", &h.Retry.MaxInterval, ms, span{def: 30000}, "", "The longest wait."),
			number("multiplier", span{def: 2, min: 1, max: 100}, "a number", false, "How much the wait grows.",
				func(x float64) { h.Retry.Multiplier = x }, func(p *printer) { p.float(h.Retry.Multiplier) }, nil),
		}),
		duration("noQuorumGraceMs", &h.NoQuorumGrace, ms, span{def: 1000}, "", "How long changed votes are waited for when no quorum is possible any more."),
		duration("donUnavailableMs", &h.DONUnavailable, ms, span{def: 2000}, "", "How long no node may be connected before a request is given up."),
		bytesOf("maxOpenBytes", &h.MaxOpenBytes, "Bodies and answers of all open requests together."),
		duration("cleanUpPeriodMs", &h.CleanUpPeriod, ms, span{def: 600000}, "", "When the word of a disconnected node expires, and how long a request id stays reserved after its request; ids are reserved at least as long as a token can live."),
		duration("metadataPullIntervalMs", &h.MetadataPullInterval, ms, span{def: 60000}, "", "The time between two pulls of metadata from a node; at most half of cleanUpPeriodMs."),
		duration("metadataAggregationIntervalMs", &h.MetadataAggregationInterval, ms, span{def: 60000}, "", "The time between two rebuilds of the view of workflows."),
		duration("metadataPullRequestTimeoutMs", &h.MetadataPullRequestTimeout, ms, span{def: 30000}, "", "When a pull closes by itself."),
		integer("maxWorkflowsPerNode", &h.MaxWorkflowsPerNode, span{def: 10000, min: 1, max: maxCount}, "", "The most workflows of which one node is believed."),
		bytesOf("maxMetadataBytes", &h.MaxMetadataBytes, "All observed metadata together."),
		duration("outboundRequestCacheTTLMs", &h.OutboundRequestCacheTTL, ms, span{def: 600000}, "", "How long a stored response may be returned."),
		bytesOf("maxCacheBytes", &h.MaxCacheBytes, "The response cache."),
		integer("maxConcurrentActions", &h.MaxConcurrentActions, span{def: 256, min: 1, max: maxCount}, "", "The most upstream calls at one time."),
		duration("jwtReplayPeriodMs", &h.JWTReplayPeriod, ms, span{}, "86400000, or a token's longest life if that is more", "How long a used token is remembered on disk; never less than a token can live."),
		duration("jwtIssuedAtToleranceMs", &h.JWTIssuedAtTolerance, ms, span{def: 300000, max: 86400000}, "", "How far in the future a token may be issued."),
	})
}

func rateFields(prefix string, r *Rate, defRPS float64, defBurst float64, of string) []field {
	return []field{
		rps(prefix+"RPS", &r.RPS, rateSpan(defRPS, false), fmt.Sprintf("Per second, of %s.", of)),
		integer(prefix+"Burst", &r.Burst, span{def: defBurst, min: 1, max: maxCount}, "", fmt.Sprintf("At once, of %s.", of)),
	}
}

// rateSpan admits one event in eleven days to a billion per second.
func rateSpan(def float64, off bool) span {
	return span{def: def, min: 1e-6, max: 1e9, off: off}
}

func bytesOf(name string, dst *int64, doc string) field {
	return integer(name, dst, span{def: 256 * mib, min: 1, max: tib}, "bytes", doc)
}

// withDefault replaces the default's text where it depends on other members.
func withDefault(def string, f field) field {
	f.def = def
	return f
}
