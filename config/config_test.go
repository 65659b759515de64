package config

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
)

// document is a configuration under construction, as generic JSON.
type document map[string]any

func read(t *testing.T, name string) document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata, name))
	require.NoError(t, err)
	return decode(t, data)
}

func decode(t require.TestingT, data []byte) document {
	var d document
	require.NoError(t, json.Unmarshal(data, &d))
	return d
}

func (d document) encode() []byte {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		panic(err)
	}
	return data
}

// set writes a value at a path of the reference, in the first element of every
// list.
func (d document) set(path string, v any) document {
	at := map[string]any(d)
	names := strings.Split(path, ".")
	for i, name := range names {
		name, isList := strings.CutSuffix(name, "[]")
		if i == len(names)-1 {
			at[name] = v
			return d
		}
		next, ok := at[name]
		if list, _ := next.([]any); isList && ok {
			next = list[0]
		} else if !ok || next == nil {
			next = map[string]any{}
			at[name] = next
		}
		at = next.(map[string]any)
	}
	return d
}

// get is what stands at a path, and whether anything does.
func (d document) get(path string) (any, bool) {
	var at any = map[string]any(d)
	for _, name := range strings.Split(path, ".") {
		name, isList := strings.CutSuffix(name, "[]")
		object, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = object[name]; !ok {
			return nil, false
		}
		if list, _ := at.([]any); isList {
			if len(list) == 0 {
				return nil, false
			}
			at = list[0]
		}
	}
	return at, true
}

func parse(t require.TestingT, d document, environ ...string) *Config {
	c, err := Parse("test.json", d.encode(), environ)
	require.NoError(t, err)
	return c
}

func problems(t require.TestingT, d document, environ ...string) []Problem {
	_, err := Parse("test.json", d.encode(), environ)
	var p *Problems
	require.ErrorAs(t, err, &p)
	return p.List
}

const handlerPath = "services[].handlers[].config"

func TestEmptyHandlerConfigIsTheTable(t *testing.T) {
	t.Parallel()
	want := Handler{
		NodeRate:                    NodeRates{Global: Rate{500, 500}, PerSender: Rate{100, 100}},
		UserRate:                    UserRates{Global: Rate{1000, 1000}, PerSender: Rate{10, 20}},
		MaxTriggerRequestDuration:   60000 * time.Millisecond,
		NodeSendTimeout:             10000 * time.Millisecond,
		Retry:                       Retry{100 * time.Millisecond, 30000 * time.Millisecond, 2.0},
		NoQuorumGrace:               1000 * time.Millisecond,
		DONUnavailable:              2000 * time.Millisecond,
		MaxOpenBytes:                256 * 1048576,
		CleanUpPeriod:               600000 * time.Millisecond,
		MetadataPullInterval:        60000 * time.Millisecond,
		MetadataAggregationInterval: 60000 * time.Millisecond,
		MetadataPullRequestTimeout:  30000 * time.Millisecond,
		MaxWorkflowsPerNode:         10000,
		MaxMetadataBytes:            256 * 1048576,
		OutboundRequestCacheTTL:     600000 * time.Millisecond,
		MaxCacheBytes:               256 * 1048576,
		MaxConcurrentActions:        256,
		JWTReplayPeriod:             86400000 * time.Millisecond,
		JWTIssuedAtTolerance:        300000 * time.Millisecond,
	}
	for name, config := range map[string]any{"absent": nil, "empty": map[string]any{}} {
		d := read(t, "minimal.json").set(handlerPath, config)
		require.Equal(t, want, parse(t, d).Services[0].Handler, name)
	}
}

func TestDefaultsOutsideHandlers(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "minimal.json"))
	listener := Listener{
		Host: "0.0.0.0", Port: 5002, Path: "/", ContentTypeHeader: "application/json",
		ReadTimeout: 10 * time.Second, WriteTimeout: 70 * time.Second, RequestTimeout: 65 * time.Second, MaxRequestBytes: 1048576,
	}
	require.Equal(t, UserServer{Listener: listener, MaxBatch: 20, MaxConcurrentRequests: 4096, MaxConnections: 16384}, c.UserServer)
	listener.Port, listener.Path = 5003, "/node"
	require.Equal(t, NodeServer{Listener: listener, HandshakeTimeout: 10 * time.Second}, c.NodeServer)
	require.Equal(t, ConnectionManager{"gateway-1", 5 * time.Second, 32, 20 * time.Second, 60 * time.Second}, c.ConnectionManager)
	require.Equal(t, HTTPClient{
		MaxResponseBytes: 27033, DefaultTimeout: 5 * time.Second, AllowedPorts: []int{80, 443},
		AllowedSchemes: []string{"http", "https"}, AllowedMethods: []string{"GET", "POST", "PUT", "PATCH", "DELETE"},
		BlockedHeaders: builtinBlockedHeaders, MTLS: Rate{1.0 / 30, 0}, MTLSMaxConcurrent: 50,
	}, c.HTTPClient)
	require.Equal(t, Admin{"127.0.0.1", 5004, false, ""}, c.Admin)
	require.Equal(t, Storage{DriverSQLite, "", MigrateAuto}, c.Storage)
	require.Equal(t, Log{"info", "json"}, c.Log)
	require.Equal(t, 30*time.Second, c.ShutdownTimeout)
	require.False(t, c.Relayer.Enabled)
	require.Empty(t, c.Warnings)
	require.Equal(t, []DON{{"don", 1, []Shard{{"don", c.DONs[0].Shards[0].Nodes}}}}, c.DONs)
	require.Equal(t, Node{"node-3", common.HexToAddress("0x03")}, c.DONs[0].Shards[0].Nodes[2])
}

func TestPublishedHandlerConfigLoadsUnchanged(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../testdata/vectors/handler_config.json")
	require.NoError(t, err)
	var config any
	require.NoError(t, json.Unmarshal(data, &config))
	c := parse(t, read(t, "minimal.json").set(handlerPath, config))
	require.Empty(t, c.Warnings)
	h := c.Services[0].Handler
	require.Equal(t, NodeRates{Rate{100, 100}, Rate{10, 20}}, h.NodeRate)
	require.Equal(t, UserRates{Global: Rate{50, 50}, PerSender: Rate{5, 10}}, h.UserRate)
}

// TestEveryMemberTakesEffect sets one member at a time and looks at what
// changed: a row of the table that is bound to the wrong variable shows here.
func TestEveryMemberTakesEffect(t *testing.T) {
	t.Parallel()
	full := read(t, "full.json")
	// What else must be there for a value to be legal, and what else it moves.
	needs := map[string]map[string]any{
		"userServerConfig.tlsEnabled":                     {"userServerConfig.tlsCertPath": "c", "userServerConfig.tlsKeyPath": "k"},
		"nodeServerConfig.tlsEnabled":                     {"nodeServerConfig.tlsCertPath": "c", "nodeServerConfig.tlsKeyPath": "k"},
		"nodeServerConfig.clientCAPath":                   {"nodeServerConfig.tlsEnabled": true, "nodeServerConfig.tlsCertPath": "c", "nodeServerConfig.tlsKeyPath": "k"},
		"userServerConfig.perAddressBurst":                {"userServerConfig.perAddressRPS": 1},
		"storage.driver":                                  {"storage.dsn": "x"},
		"storage.dsn":                                     {"storage.driver": "memory"},
		handlerPath + ".userRateLimiter.perWorkflowBurst": {handlerPath + ".userRateLimiter.perWorkflowRPS": 1},
		"connectionManagerConfig.pongTimeoutSec":          {"connectionManagerConfig.heartbeatIntervalSec": 10},
		"relayer.contracts.feeToken":                      {"relayer.contracts.feeToken": "0x0000000000000000000000000000000000000001", "relayer.contracts.feeSpender": "0x0000000000000000000000000000000000000001"},
		"relayer.contracts.feeSpender":                    {"relayer.contracts.feeToken": "0x0000000000000000000000000000000000000001", "relayer.contracts.feeSpender": "0x0000000000000000000000000000000000000001"},
		handlerPath + ".retryConfig.initialIntervalMs":    {},
	}
	moves := map[string]string{
		"userServerConfig.requestTimeoutMillis":         "userServerConfig.writeTimeoutMillis",
		"nodeServerConfig.requestTimeoutMillis":         "nodeServerConfig.writeTimeoutMillis",
		"userServerConfig.perAddressRPS":                "userServerConfig.perAddressBurst",
		"connectionManagerConfig.heartbeatIntervalSec":  "connectionManagerConfig.pongTimeoutSec",
		handlerPath + ".userRateLimiter.perWorkflowRPS": handlerPath + ".userRateLimiter.perWorkflowBurst",
		"httpClientConfig.allowedPortRanges":            "httpClientConfig.allowedPorts",
		"relayer.chain.rpcURLs":                         "relayer.chain.readURLs",
		"relayer.signer.keystore":                       "relayer.signer.passwordEnv",
		"relayer.queues.inputProof.capacity":            "relayer.queues.inputProof.margin",
		"relayer.queues.publicDecrypt.capacity":         "relayer.queues.publicDecrypt.margin",
		"relayer.queues.userDecrypt.capacity":           "relayer.queues.userDecrypt.margin",
	}
	// What full.json cannot have beside what it has.
	full.set("relayer.signer.keyFile", "k").set("relayer.signer.keyEnv", "K").set("relayer.signer.passwordEnv", "P").set("relayer.apiKeys[].keyEnv", "A")
	// A smaller write timeout than the default would be raised.
	full.set("userServerConfig.writeTimeoutMillis", 80000)
	// The gateway's id of full.json is that of minimal.json.
	full.set("connectionManagerConfig.authGatewayId", "another")
	for _, m := range Reference() {
		if strings.HasPrefix(m.Path, "dons") || strings.HasSuffix(m.Path, ".serviceName") || strings.HasSuffix(m.Path, "handlers[].name") {
			continue
		}
		written, ok := full.get(m.Path)
		require.True(t, ok, "full.json has no %s", m.Path)
		if m.Type == "an object" || m.Type == "a list of objects" || strings.HasPrefix(m.Path, "shardedDONs") || m.Path == "services[].dons" ||
			strings.HasPrefix(m.Path, "relayer.") && strings.Contains(m.Path, "[]") || m.Path == "relayer.enabled" {
			continue
		}
		before := read(t, "minimal.json")
		for path, v := range needs[m.Path] {
			before.set(path, v)
		}
		after := decode(t, before.encode()).set(m.Path, written)
		want := []string{m.Path}
		if also, ok := moves[m.Path]; ok {
			want = append(want, also)
		}
		var got []string
		for _, change := range Changes(parse(t, before), parse(t, after)) {
			got = append(got, strings.NewReplacer("services[0]", "services[]", "handlers[0]", "handlers[]").Replace(change.Path))
			require.Equal(t, got[len(got)-1] == m.Path && m.Reloadable, change.Reloadable && got[len(got)-1] == m.Path, m.Path)
		}
		require.ElementsMatch(t, want, got, m.Path)
		if m.Env != "" && m.Type != "a list of URLs" {
			require.Equal(t, Changes(parse(t, before), parse(t, before, m.Env+"="+envText(written))), Changes(parse(t, before), parse(t, after)), m.Env)
		}
	}
}

func envText(v any) string {
	if f, ok := v.(float64); ok {
		return plain(f)
	}
	return fmt.Sprint(v)
}

func TestZeroAndNullMeanTheDefault(t *testing.T) {
	t.Parallel()
	want := parse(t, read(t, "minimal.json"))
	zeros, nulls := read(t, "minimal.json"), read(t, "minimal.json")
	for _, m := range Reference() {
		if strings.HasPrefix(m.Path, "dons") || m.Required || strings.HasPrefix(m.Path, "shardedDONs") || m.Type == "an object" ||
			strings.HasPrefix(m.Path, "relayer.") && strings.Contains(m.Path, "[]") {
			continue
		}
		if !strings.HasSuffix(m.Path, ".name") {
			nulls.set(m.Path, nil)
		}
		switch {
		case strings.HasSuffix(m.Path, ".port"):
		case strings.HasPrefix(m.Type, "an integer"), m.Type == "a number", strings.HasPrefix(m.Type, "a Go duration"):
			zeros.set(m.Path, 0)
		case strings.HasPrefix(m.Type, "a list"):
			zeros.set(m.Path, []any{})
		case m.Type == "a string":
			zeros.set(m.Path, "")
		}
	}
	require.Equal(t, want, parse(t, zeros))
	require.Equal(t, want, parse(t, nulls))
}

func TestMinusOneIsOff(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"RPS", "Burst"} {
		d := read(t, "minimal.json").
			set("userServerConfig.perAddressRPS", 5).set("userServerConfig.perAddress"+member, -1).
			set(handlerPath+".userRateLimiter.perWorkflowRPS", 5).set(handlerPath+".userRateLimiter.perWorkflow"+member, -1).
			set("admin.port", -1)
		c := parse(t, d)
		require.True(t, c.UserServer.PerAddress.Off())
		require.True(t, c.Services[0].Handler.UserRate.PerWorkflow.Off())
		require.False(t, c.Admin.Enabled())
	}
}

func TestWrittenPortZeroIsAnyPort(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "minimal.json").set("userServerConfig.port", 0).set("nodeServerConfig.port", 0), "DONGATE_ADMIN_PORT=0")
	require.Zero(t, c.UserServer.Port)
	require.Zero(t, c.NodeServer.Port)
	require.Zero(t, c.Admin.Port)
	require.True(t, c.Admin.Enabled())
}

func TestBurstFollowsItsRate(t *testing.T) {
	t.Parallel()
	for rps, burst := range map[float64]int{0.2: 1, 1: 1, 2.5: 3, 100: 100} {
		c := parse(t, read(t, "minimal.json").set("userServerConfig.perAddressRPS", rps))
		require.Equal(t, Rate{rps, burst}, c.UserServer.PerAddress)
	}
}

func TestNumberNotations(t *testing.T) {
	t.Parallel()
	at := `"shutdownTimeoutMs": `
	minimal, err := os.ReadFile(testdata + "/minimal.json")
	require.NoError(t, err)
	parseWith := func(number string) (*Config, error) {
		return Parse("x", slices.Concat([]byte("{"+at+number+","), minimal[1:]), nil)
	}
	for _, good := range []string{"60000", "6e4", "60000.0", "600000e-1", "6.0E+4"} {
		c, err := parseWith(good)
		require.NoError(t, err, good)
		require.Equal(t, time.Minute, c.ShutdownTimeout)
	}
	for _, zero := range []string{"0", "-0", "0.0", "0e99"} {
		c, err := parseWith(zero)
		require.NoError(t, err, zero)
		require.Equal(t, 30*time.Second, c.ShutdownTimeout)
	}
	for _, bad := range []string{"0.5", "-1", "1e-400", "1e400", "9223372036854775807", "18446744073709551616", "1e16", "315360000001", `"60000"`, "true"} {
		_, err := parseWith(bad)
		require.ErrorContains(t, err, "shutdownTimeoutMs: found ", bad)
	}
}

func TestDefaultTimeoutForms(t *testing.T) {
	t.Parallel()
	for value, want := range map[any]time.Duration{
		"7s": 7 * time.Second, "1m": time.Minute, "1500ms": 1500 * time.Millisecond, 7e9: 7 * time.Second,
		"0": 5 * time.Second, 0: 5 * time.Second, "": 5 * time.Second,
	} {
		if value == "" {
			continue // an empty text is no duration
		}
		require.Equal(t, want, parse(t, read(t, "minimal.json").set("httpClientConfig.defaultTimeout", value)).HTTPClient.DefaultTimeout, value)
	}
	for _, bad := range []any{"", "7", "-7s", -7e9, "2m", 5000, 1.5, "9999999h", math.MaxFloat64, true} {
		require.Len(t, problems(t, read(t, "minimal.json").set("httpClientConfig.defaultTimeout", bad)), 1, bad)
	}
	c := parse(t, read(t, "minimal.json"), "DONGATE_HTTPCLIENTCONFIG_DEFAULTTIMEOUT=7s")
	require.Equal(t, 7*time.Second, c.HTTPClient.DefaultTimeout)
	c = parse(t, read(t, "minimal.json"), "DONGATE_HTTPCLIENTCONFIG_DEFAULTTIMEOUT=7000000000")
	require.Equal(t, 7*time.Second, c.HTTPClient.DefaultTimeout)
}

func TestNetworksAndAddresses(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "minimal.json").
		set("userServerConfig.trustedProxies", []string{"10.1.2.3/8", "192.0.2.7", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104"}).
		set("httpClientConfig.allowedIPs", []string{"::ffff:10.0.0.1", "FD00::1"}).
		set("httpClientConfig.allowedPortRanges", []string{"8000-8100", "9000"}).
		set("httpClientConfig.blockedHeaders", []string{"X_Secret", "Host"}).
		set("httpClientConfig.allowedMethods", []string{"get", "GET"}).
		set("userServerConfig.corsAllowedOrigins", []string{"HTTPS://App.Example.com", "http://localhost:3000", "https://[::1]:8443", "https://*.example.com"}))
	require.Equal(t, []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::1/128"),
		netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8"),
	}, c.UserServer.TrustedProxies)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, c.HTTPClient.AllowedIPs)
	require.Equal(t, []PortRange{{8000, 8100}, {9000, 9000}}, c.HTTPClient.AllowedPortRanges)
	require.Empty(t, c.HTTPClient.AllowedPorts, "a file that names ranges means only those")
	require.Equal(t, append(slices.Clone(builtinBlockedHeaders), "x-secret"), c.HTTPClient.BlockedHeaders)
	require.Equal(t, []string{"GET"}, c.HTTPClient.AllowedMethods)
	require.Equal(t, []string{"https://app.example.com", "http://localhost:3000", "https://[::1]:8443", "https://*.example.com"}, c.UserServer.CORSAllowedOrigins)
}

func TestLoadNamesAMissingFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "none.json"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "none.json: there is no such file")
	_, err = Load(t.TempDir(), nil)
	require.ErrorContains(t, err, "cannot be read")
}

func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	_, err := Parse("big", make([]byte, maxFileBytes+1), nil)
	require.ErrorContains(t, err, "larger than 16 MiB")
	for name, data := range map[string]string{
		"deep":         strings.Repeat("[", 1_000_000),
		"many values":  `{"relayer": [` + strings.Repeat("1,", maxTreeValues) + "1]}",
		"many unknown": "{" + strings.Repeat(`"a":1,`, 400_000) + `"b":1}`,
		"many wrong":   `{"services": [` + strings.Repeat("1,", 400_000) + "1]}",
	} {
		_, err := Parse(name, []byte(data), nil)
		var p *Problems
		require.ErrorAs(t, err, &p, name)
		require.LessOrEqual(t, len(p.List), MaxProblems, name)
		if strings.HasPrefix(name, "many u") || strings.HasPrefix(name, "many w") {
			require.Greater(t, len(p.List)+p.More, 400_000, name)
		}
	}
}

func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	paths, envs := map[string]bool{}, map[string]bool{}
	for _, m := range Reference() {
		require.NotEmpty(t, m.Doc, m.Path)
		require.NotEmpty(t, m.Type, m.Path)
		require.False(t, paths[m.Path], m.Path)
		paths[m.Path] = true
		if m.Env != "" {
			require.False(t, envs[m.Env], m.Env)
			require.NotContains(t, ReservedEnv, m.Env)
			require.False(t, strings.HasPrefix(m.Env, ReservedEnvPrefix), m.Env)
			envs[m.Env] = true
		}
		if m.Default != "" && m.Bounds != "" && !strings.Contains(m.Default, "0") {
			require.NotEqual(t, m.Default, m.Bounds, m.Path)
		}
	}
	require.True(t, envs["DONGATE_USERSERVERCONFIG_PORT"])
	require.True(t, paths[handlerPath+".retryConfig.multiplier"])
	require.True(t, paths["dons[].members[].address"])
}
