package config

import (
	"net/netip"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// HandlerHTTPCapabilities is the name of the one handler this gateway
// implements: signed workflow triggers and the nodes' outbound HTTP actions.
const HandlerHTTPCapabilities = "http-capabilities"

// ServiceWorkflows is the service of a handler in the older file form that
// names none.
const ServiceWorkflows = "workflows"

// MaxTokenLife is the longest life a request JWT may give itself
// (protocol §3: exp − iat is at most five minutes).
const MaxTokenLife = 5 * time.Minute

// Config is one configuration file with defaults filled in, both file forms
// normalised to services and sharded DONs, and every rule checked.
//
// A Config is a value: nothing in it refers to a running object, Parse never
// hands out the same memory twice, and nobody changes it afterwards. It may be
// read from any number of goroutines.
type Config struct {
	UserServer        UserServer
	NodeServer        NodeServer
	ConnectionManager ConnectionManager
	HTTPClient        HTTPClient

	// Services is never empty; names are unique, and each names DONs of DONs.
	Services []Service
	// DONs is never empty; names, shard ids and node addresses are unique over
	// the whole file.
	DONs []DON

	Admin   Admin
	Storage Storage
	Log     Log

	// ShutdownTimeout is how long a stop waits for open requests to be
	// answered. Default 30 s, never below 1 ms.
	ShutdownTimeout time.Duration
	// DrainDelay is how long a stop goes on taking requests while /readyz and
	// /health already refuse, before ShutdownTimeout begins. Default 0.
	DrainDelay time.Duration

	// IgnoreUnknownHandlers turns a handler that this gateway does not
	// implement from an error into a warning.
	IgnoreUnknownHandlers bool

	// Relayer is off unless the file enables it.
	Relayer Relayer

	// Warnings lists what was accepted but is probably not what was meant, or
	// was changed while loading, in the order of the file.
	Warnings []Problem
}

// Listener is what the client and the node endpoint have in common.
type Listener struct {
	// Host is an IP address or a host name; "" never occurs after loading.
	Host string
	// Port is 0..65535; 0 asks the system for any free port.
	Port int
	// Path starts with "/".
	Path string

	TLSEnabled bool
	// TLSCertPath and TLSKeyPath name PEM files; both are set when TLSEnabled.
	// Whether they can be read is for CheckFiles.
	TLSCertPath, TLSKeyPath string

	// ContentTypeHeader is the Content-Type of every answer.
	ContentTypeHeader string

	// ReadTimeout bounds reading one request; on the node endpoint only the
	// upgrade request, never a live session.
	ReadTimeout time.Duration
	// WriteTimeout bounds writing one answer. On the client endpoint it is at
	// least RequestTimeout + 5 s, so that the timeout answer always arrives
	// complete (protocol §2). On the node endpoint it bounds one write and how
	// long a session's queue may stay full (protocol §4).
	WriteTimeout time.Duration
	// RequestTimeout bounds one request from its arrival to its answer.
	RequestTimeout time.Duration
	// MaxRequestBytes bounds a request body or a node's message: 1 KiB..1 GiB.
	MaxRequestBytes int64
}

// UserServer is the client endpoint (`userServerConfig`, protocol §2).
type UserServer struct {
	Listener

	CORSEnabled bool
	// CORSAllowedOrigins are exact origins ("https://app.example.com") or
	// wildcards for true subdomains ("https://*.example.com"), lower-case.
	CORSAllowedOrigins []string

	// MaxBatch is the most elements of one JSON-RPC batch.
	MaxBatch int
	// MaxConcurrentRequests is the size of the gate in front of everything.
	MaxConcurrentRequests int
	// MaxConnections is the most open client connections.
	MaxConnections int

	// PerAddress limits requests by client address; off by default.
	PerAddress Rate
	// TrustedProxies are the networks whose X-Forwarded-For is believed;
	// masked, in the order of the file.
	TrustedProxies []netip.Prefix
}

// NodeServer is the node endpoint (`nodeServerConfig`, protocol §4).
type NodeServer struct {
	Listener

	// HandshakeTimeout bounds the time from the upgrade to the verified
	// answer to the challenge.
	HandshakeTimeout time.Duration
	// ClientCAPath names a PEM file of authorities; when set, nodes must
	// present a certificate. Requires TLSEnabled.
	ClientCAPath string
}

// ConnectionManager is the node handshake and heartbeat
// (`connectionManagerConfig`, protocol §4).
type ConnectionManager struct {
	// AuthGatewayID is the name nodes sign for: 1..128 bytes of printable text.
	AuthGatewayID string
	// AuthTimestampTolerance is the largest accepted clock difference, in
	// whole seconds.
	AuthTimestampTolerance time.Duration
	// AuthChallengeLen is the number of random bytes in a challenge: 10..1024.
	AuthChallengeLen int
	// HeartbeatInterval is the time between two pings of one session.
	HeartbeatInterval time.Duration
	// PongTimeout is how long a session may be silent; longer than
	// HeartbeatInterval.
	PongTimeout time.Duration
}

// Rate is a token bucket. The zero value means that there is no limit, save
// for HTTPClient.MTLS, where a burst of 0 means that nothing is let through.
type Rate struct {
	// RPS is how many tokens come back per second.
	RPS float64
	// Burst is how many tokens the bucket holds.
	Burst int
}

// Off reports whether the rate limits nothing.
func (r Rate) Off() bool { return r == Rate{} }

// PortRange is an inclusive range of ports, 1 <= First <= Last <= 65535.
type PortRange struct {
	First, Last uint16
}

// HTTPClient is what nodes' outbound HTTP actions may do (`httpClientConfig`,
// protocol §7).
type HTTPClient struct {
	// MaxResponseBytes bounds a response body after decompression.
	MaxResponseBytes int64
	// DefaultTimeout is for actions that name no timeout; at most 60 s.
	DefaultTimeout time.Duration

	// AllowedPorts and AllowedPortRanges together are the ports that may be
	// dialled: 80 and 443 where the file names neither.
	AllowedPorts      []int
	AllowedPortRanges []PortRange
	// AllowedSchemes are lower-case: "http", "https" or both.
	AllowedSchemes []string
	// AllowedMethods are upper-case.
	AllowedMethods []string
	// BlockedHeaders are the headers a node may not set: the protocol's own
	// list, which a file can extend and never shorten. Lower-case, "_" as "-";
	// an entry that ends in "*" is a prefix.
	BlockedHeaders []string

	// AllowedIPs and AllowedIPsCIDR re-admit addresses that the built-in table
	// refuses; they do not make the list exclusive.
	AllowedIPs     []netip.Addr
	AllowedIPsCIDR []netip.Prefix
	// BlockedIPs and BlockedIPsCIDR are refused besides the built-in table.
	BlockedIPs     []netip.Addr
	BlockedIPsCIDR []netip.Prefix

	// CAPath names a PEM file trusted besides the system's roots; "" for none.
	CAPath string

	// MTLS limits actions with a client certificate. A Burst of 0, the
	// default, refuses all of them.
	MTLS Rate
	// MTLSMaxConcurrent is the most such actions at one time.
	MTLSMaxConcurrent int
}

// Service is one entry of `services`: a method's text before the first "."
// names it.
type Service struct {
	Name string
	// DONs are names of Config.DONs, without repetition, in the order of the
	// file, which is the order of precedence nowhere.
	DONs []string
	// HandlerName is HandlerHTTPCapabilities.
	HandlerName string
	Handler     Handler
}

// NodeRates limit what nodes send unasked: actions and pushes of metadata.
type NodeRates struct {
	// Global is per shard, PerSender per node.
	Global, PerSender Rate
}

// UserRates limit triggers.
type UserRates struct {
	// Global is per handler, PerSender per workflow owner. PerWorkflow is off
	// (zero) unless the file sets it.
	Global, PerSender, PerWorkflow Rate
}

// Retry is the backoff of sends to one node: uniform between InitialInterval
// and a step that grows by Multiplier up to MaxInterval (protocol §5).
type Retry struct {
	// InitialInterval <= MaxInterval.
	InitialInterval, MaxInterval time.Duration
	// Multiplier is 1..100.
	Multiplier float64
}

// Handler is the `config` of an http-capabilities handler. Every duration is
// positive and a whole number of milliseconds.
type Handler struct {
	NodeRate NodeRates
	UserRate UserRates

	// MaxTriggerRequestDuration is the deadline of a trigger.
	MaxTriggerRequestDuration time.Duration
	// NodeSendTimeout bounds one send to one node; at most
	// MaxTriggerRequestDuration.
	NodeSendTimeout time.Duration
	Retry           Retry

	// NoQuorumGrace is how long changed votes are waited for when no quorum is
	// possible any more, and how long an agreed error is held.
	NoQuorumGrace time.Duration
	// DONUnavailable is how long no node of any assigned shard may be
	// connected before a request is given up.
	DONUnavailable time.Duration
	// MaxOpenBytes bounds the bodies and answers of all open requests.
	MaxOpenBytes int64

	// CleanUpPeriod is how long an observation of a disconnected node lives,
	// and how often the response cache is swept. At least twice
	// MetadataPullInterval. Request ids use RequestIDPeriod.
	CleanUpPeriod time.Duration
	// MetadataPullInterval is the time between two pulls from a node.
	MetadataPullInterval time.Duration
	// MetadataAggregationInterval is the time between two rebuilds of the view.
	MetadataAggregationInterval time.Duration
	// MetadataPullRequestTimeout closes a pull that no newer pull closed.
	MetadataPullRequestTimeout time.Duration
	MaxWorkflowsPerNode        int
	MaxMetadataBytes           int64

	// OutboundRequestCacheTTL, MaxCacheBytes and MaxConcurrentActions belong
	// to actions (protocol §7).
	OutboundRequestCacheTTL time.Duration
	MaxCacheBytes           int64
	MaxConcurrentActions    int

	// JWTReplayPeriod is how long a used token is remembered on disk; at least
	// MaxTokenLife + JWTIssuedAtTolerance.
	JWTReplayPeriod time.Duration
	// JWTIssuedAtTolerance is how far in the future a token's iat may lie.
	JWTIssuedAtTolerance time.Duration
}

// TokenLife is the longest time for which a token that this handler accepts
// now can still be accepted: MaxTokenLife + JWTIssuedAtTolerance.
func (h *Handler) TokenLife() time.Duration { return MaxTokenLife + h.JWTIssuedAtTolerance }

// RequestIDPeriod is how long a request id stays reserved after its request
// ended: CleanUpPeriod, and at least as long as a token can live (protocol §5),
// so that a file with a short CleanUpPeriod never lets an id be used again
// while the token of its first use is still valid.
func (h *Handler) RequestIDPeriod() time.Duration { return max(h.CleanUpPeriod, h.TokenLife()) }

// DON is one decentralised oracle network.
type DON struct {
	Name string
	// F is the most faulty nodes that each shard tolerates; each has at least
	// 3F+1 nodes.
	F      int
	Shards []Shard
}

// Shard is one group of a DON's nodes. Shard 0 of DON "x" has ID "x", shard
// n > 0 has "x_n" (protocol §4); 1..64 bytes.
type Shard struct {
	ID    string
	Nodes []Node
}

// Node is one member of exactly one shard of the whole file.
type Node struct {
	// Name is for people: the status page and log lines. Never "": it is the
	// address where the file names none.
	Name    string
	Address common.Address
}

// Admin is the operator's listener (`admin`).
type Admin struct {
	Host string
	// Port is 0..65535, or -1 when the listener is off.
	Port int
	// Pprof serves Go profiles below /debug/pprof.
	Pprof bool
	// TokenFile names the file with the token that changing requests must
	// carry; "" for none, and then they are refused unless Host is loopback.
	TokenFile string
}

// Enabled reports whether the operator's listener is to be opened.
func (a Admin) Enabled() bool { return a.Port >= 0 }

// Storage drivers.
const (
	DriverSQLite   = "sqlite"
	DriverPostgres = "postgres"
	DriverMemory   = "memory"
)

// Values of Storage.Migrate.
const (
	MigrateAuto   = "auto"
	MigrateManual = "manual"
)

// Storage says where durable state lives (`storage`).
type Storage struct {
	// Driver is one of DriverSQLite, DriverPostgres and DriverMemory.
	Driver string
	// DSN is the data source: a file for sqlite ("" for the default file), a
	// connection string for postgres (never ""), unused for memory.
	DSN Secret
	// Migrate is MigrateAuto (schema brought up to date at start) or
	// MigrateManual (start refuses an older schema).
	Migrate string
}

// Log says what is logged and how (`log`).
type Log struct {
	// Level is "debug", "info", "warn" or "error".
	Level string
	// Format is "json" or "console".
	Format string
}
