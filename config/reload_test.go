package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// whileRunning are the members that a reload applies, the others need a restart.
// Both lists are written by hand: whoever adds a member decides which it is, and
// makes the gateway keep that promise.
var (
	whileRunning = []string{
		"userServerConfig.tlsCertPath",
		"userServerConfig.tlsKeyPath",
		"userServerConfig.corsEnabled",
		"userServerConfig.corsAllowedOrigins",
		"userServerConfig.perAddressRPS",
		"userServerConfig.perAddressBurst",
		"userServerConfig.trustedProxies",
		"nodeServerConfig.tlsCertPath",
		"nodeServerConfig.tlsKeyPath",
		"httpClientConfig.maxResponseBytes",
		"httpClientConfig.defaultTimeout",
		"httpClientConfig.allowedPorts",
		"httpClientConfig.allowedPortRanges",
		"httpClientConfig.allowedSchemes",
		"httpClientConfig.allowedMethods",
		"httpClientConfig.blockedHeaders",
		"httpClientConfig.allowedIPs",
		"httpClientConfig.allowedIPsCIDR",
		"httpClientConfig.blockedIPs",
		"httpClientConfig.blockedIPsCIDR",
		"httpClientConfig.caPath",
		"httpClientConfig.mtlsRPS",
		"httpClientConfig.mtlsBurst",
		"httpClientConfig.mtlsMaxConcurrent",
		"services[].handlers[].config.nodeRateLimiter.globalRPS",
		"services[].handlers[].config.nodeRateLimiter.globalBurst",
		"services[].handlers[].config.nodeRateLimiter.perSenderRPS",
		"services[].handlers[].config.nodeRateLimiter.perSenderBurst",
		"services[].handlers[].config.userRateLimiter.globalRPS",
		"services[].handlers[].config.userRateLimiter.globalBurst",
		"services[].handlers[].config.userRateLimiter.perSenderRPS",
		"services[].handlers[].config.userRateLimiter.perSenderBurst",
		"services[].handlers[].config.userRateLimiter.perWorkflowRPS",
		"services[].handlers[].config.userRateLimiter.perWorkflowBurst",
		"services[].handlers[].config.maxTriggerRequestDurationMs",
		"services[].handlers[].config.nodeSendTimeoutMs",
		"services[].handlers[].config.retryConfig.initialIntervalMs",
		"services[].handlers[].config.retryConfig.maxIntervalTimeMs",
		"services[].handlers[].config.retryConfig.multiplier",
		"services[].handlers[].config.noQuorumGraceMs",
		"services[].handlers[].config.donUnavailableMs",
		"services[].handlers[].config.maxOpenBytes",
		"services[].handlers[].config.cleanUpPeriodMs",
		"services[].handlers[].config.metadataPullIntervalMs",
		"services[].handlers[].config.metadataAggregationIntervalMs",
		"services[].handlers[].config.metadataPullRequestTimeoutMs",
		"services[].handlers[].config.maxWorkflowsPerNode",
		"services[].handlers[].config.maxMetadataBytes",
		"services[].handlers[].config.outboundRequestCacheTTLMs",
		"services[].handlers[].config.maxCacheBytes",
		"services[].handlers[].config.maxConcurrentActions",
		"services[].handlers[].config.jwtReplayPeriodMs",
		"services[].handlers[].config.jwtIssuedAtToleranceMs",
		"shardedDONs",
		"dons",
		"log.level",
	}
	needsRestart = []string{
		"userServerConfig.host",
		"userServerConfig.port",
		"userServerConfig.path",
		"userServerConfig.tlsEnabled",
		"userServerConfig.contentTypeHeader",
		"userServerConfig.readTimeoutMillis",
		"userServerConfig.writeTimeoutMillis",
		"userServerConfig.requestTimeoutMillis",
		"userServerConfig.maxRequestBytes",
		"userServerConfig.maxBatch",
		"userServerConfig.maxConcurrentRequests",
		"userServerConfig.maxConnections",
		"nodeServerConfig.host",
		"nodeServerConfig.port",
		"nodeServerConfig.path",
		"nodeServerConfig.tlsEnabled",
		"nodeServerConfig.contentTypeHeader",
		"nodeServerConfig.readTimeoutMillis",
		"nodeServerConfig.writeTimeoutMillis",
		"nodeServerConfig.requestTimeoutMillis",
		"nodeServerConfig.maxRequestBytes",
		"nodeServerConfig.handshakeTimeoutMillis",
		"nodeServerConfig.clientCAPath",
		"connectionManagerConfig.authGatewayId",
		"connectionManagerConfig.authTimestampToleranceSec",
		"connectionManagerConfig.authChallengeLen",
		"connectionManagerConfig.heartbeatIntervalSec",
		"connectionManagerConfig.pongTimeoutSec",
		"services",
		"ignoreUnknownHandlers",
		"admin.host",
		"admin.port",
		"admin.adminPprof",
		"admin.tokenFile",
		"storage.driver",
		"storage.dsn",
		"storage.migrate",
		"log.format",
		"shutdownTimeoutMs",
		"drainDelayMs",
		"relayer.enabled",
		"relayer.listen",
		"relayer.chain.rpcURLs",
		"relayer.chain.readURLs",
		"relayer.chain.chainId",
		"relayer.chain.listeners",
		"relayer.chain.startBlock",
		"relayer.chain.maxBlocksPerQuery",
		"relayer.chain.confirmations",
		"relayer.chain.resendAfter",
		"relayer.chain.bumpAfter",
		"relayer.chain.callTimeout",
		"relayer.chain.maxFeeGwei",
		"relayer.contracts.decryption",
		"relayer.contracts.inputVerification",
		"relayer.contracts.protocolConfig",
		"relayer.contracts.kmsGeneration",
		"relayer.contracts.protocolChainId",
		"relayer.contracts.feeToken",
		"relayer.contracts.feeSpender",
		"relayer.hostChains",
		"relayer.signer.keystore",
		"relayer.signer.keyFile",
		"relayer.signer.keyEnv",
		"relayer.signer.passwordFile",
		"relayer.signer.passwordEnv",
		"relayer.signer.minBalance",
		"relayer.signer.minFeeTokens",
		"relayer.queues.inputProof.tps",
		"relayer.queues.inputProof.capacity",
		"relayer.queues.inputProof.margin",
		"relayer.queues.publicDecrypt.tps",
		"relayer.queues.publicDecrypt.capacity",
		"relayer.queues.publicDecrypt.margin",
		"relayer.queues.userDecrypt.tps",
		"relayer.queues.userDecrypt.capacity",
		"relayer.queues.userDecrypt.margin",
		"relayer.readiness.timeout",
		"relayer.readiness.poll",
		"relayer.readiness.concurrency",
		"relayer.timeouts.inputProof",
		"relayer.timeouts.publicDecrypt",
		"relayer.timeouts.userDecrypt",
		"relayer.timeouts.sweep",
		"relayer.expiry.enabled",
		"relayer.expiry.interval",
		"relayer.expiry.inputProof",
		"relayer.expiry.publicDecrypt",
		"relayer.expiry.userDecrypt",
		"relayer.retryAfter.min",
		"relayer.retryAfter.max",
		"relayer.retryAfter.margin",
		"relayer.retryAfter.readiness",
		"relayer.retryAfter.inputProof",
		"relayer.retryAfter.publicDecrypt",
		"relayer.retryAfter.userDecrypt",
		"relayer.retryAfter.confirmation",
		"relayer.threshold",
		"relayer.additionalShares",
		"relayer.additionalSharesTimeout",
		"relayer.keyurl.source",
		"relayer.keyurl.poll",
		"relayer.keyurl.value.publicKey.dataId",
		"relayer.keyurl.value.publicKey.urls",
		"relayer.keyurl.value.crs.dataId",
		"relayer.keyurl.value.crs.urls",
		"relayer.erc1271Gas",
		"relayer.apiKeys",
		"relayer.quotas.perKeyRPS",
		"relayer.quotas.perAddressRPS",
		"relayer.quotas.maxHandles",
		"relayer.quotas.maxContracts",
		"relayer.corsAllowedOrigins",
	}
)

// classified reports whether a member stands in one of the lists. Sections do
// not; a list of objects stands for what is in it, save for handlers, whose
// configurations are compared member by member.
func classified(m Member) bool {
	inHandler := strings.HasPrefix(m.Path, handlerPath+".")
	return m.Type != "an object" && (!strings.Contains(m.Path, "[]") || inHandler)
}

func TestEveryMemberIsClassified(t *testing.T) {
	t.Parallel()
	for _, m := range Reference() {
		if !classified(m) {
			continue
		}
		require.True(t, slices.Contains(whileRunning, m.Path) != slices.Contains(needsRestart, m.Path), "%s is to be in exactly one of whileRunning and needsRestart", m.Path)
		require.Equal(t, slices.Contains(whileRunning, m.Path), m.Reloadable, m.Path)
	}
	for _, path := range append(slices.Clone(whileRunning), needsRestart...) {
		require.True(t, slices.ContainsFunc(Reference(), func(m Member) bool { return m.Path == path && classified(m) }), "no member %s", path)
	}
}

// Each member of full.json, changed alone, is either applied or said to need a
// restart, as the lists have it, and never both.
func TestReloadAppliesWhatItMay(t *testing.T) {
	t.Parallel()
	running, file := parse(t, read(t, "minimal.json")), parse(t, read(t, "full.json").set("services[].serviceName", "workflows"))
	require.Equal(t, running.Services[0].Name, file.Services[0].Name)
	effective := Reload(running, file)
	var applied, left []string
	for _, c := range Changes(running, effective) {
		require.True(t, c.Reloadable, c.Path)
		applied = append(applied, generic(c.Path))
	}
	for _, c := range Changes(effective, file) {
		left = append(left, generic(c.Path))
	}
	for _, path := range whileRunning {
		switch path {
		case "dons": // read as the newer form
		case "userServerConfig.tlsCertPath", "userServerConfig.tlsKeyPath", "nodeServerConfig.tlsCertPath", "nodeServerConfig.tlsKeyPath":
			require.Contains(t, left, path, "TLS is off until the restart")
		default:
			require.Contains(t, applied, path)
			require.NotContains(t, left, path)
		}
	}
	for _, path := range needsRestart {
		require.NotContains(t, applied, path)
	}
	for _, path := range left {
		require.True(t, slices.Contains(needsRestart, path) || strings.Contains(path, ".tls"), path)
	}
	require.Empty(t, Changes(file, Reload(file, file)))
	require.Equal(t, parse(t, read(t, "minimal.json")), running, "neither argument is changed")
}

// A certificate is replaced where TLS is on already.
func TestReloadCertificate(t *testing.T) {
	t.Parallel()
	running := parse(t, read(t, "full.json"))
	file := parse(t, read(t, "full.json").set("userServerConfig.tlsCertPath", "/new.crt").set("nodeServerConfig.tlsKeyPath", "/new.key"))
	effective := Reload(running, file)
	require.Empty(t, Changes(effective, file))
	require.Equal(t, []Change{{"userServerConfig.tlsCertPath", true}, {"nodeServerConfig.tlsKeyPath", true}}, Changes(running, effective))
}

// A service that the file lacks keeps its handler, one that is new waits for the restart.
func TestReloadServices(t *testing.T) {
	t.Parallel()
	running := parse(t, read(t, "minimal.json"))
	file := parse(t, read(t, "minimal.json").set("services[].serviceName", "other").set("services[].handlers[].config.maxConcurrentActions", 3))
	effective := Reload(running, file)
	require.Equal(t, running.Services, effective.Services)
	require.Equal(t, []Change{{"services", false}}, Changes(effective, file))
}

// Whatever two files hold, what Reload left is what needs a restart, and what it
// applied is what does not.
func TestReloadRandom(t *testing.T) {
	t.Parallel()
	full, minimal := read(t, "full.json"), read(t, "minimal.json").encode()
	var members []Member
	for _, m := range Reference() {
		if _, ok := full.get(m.Path); ok && classified(m) && m.Path != "services" && !strings.HasPrefix(m.Path, "relayer") && !strings.Contains(m.Path, "tls") && !strings.HasPrefix(m.Path, "storage") && m.Path != "nodeServerConfig.clientCAPath" {
			members = append(members, m)
		}
	}
	require.Greater(t, len(members), 60)
	rapid.Check(t, func(t *rapid.T) {
		d := decode(t, minimal)
		for _, m := range members {
			if rapid.Bool().Draw(t, m.Path) {
				v, _ := full.get(m.Path)
				d.set(m.Path, v)
			}
		}
		running, err := Parse("a.json", minimal, nil)
		require.NoError(t, err)
		file, err := Parse("b.json", d.encode(), nil)
		if err != nil {
			t.Skip("not a legal combination")
		}
		effective := Reload(running, file)
		for _, c := range Changes(running, effective) {
			require.True(t, c.Reloadable, c.Path)
		}
		for _, c := range Changes(effective, file) {
			require.False(t, c.Reloadable, c.Path)
		}
		require.Empty(t, Changes(effective, Reload(effective, file)), "a second time changes nothing")
	})
}

// generic is a path with [] for every element of a list.
func generic(path string) string {
	return strings.NewReplacer("services[0]", "services[]", "handlers[0]", "handlers[]").Replace(path)
}
