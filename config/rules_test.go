package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func one(t *testing.T, d document) Problem {
	t.Helper()
	list := problems(t, d)
	require.Len(t, list, 1, "%v", list)
	return list[0]
}

// conformance: 2.timeout.complete
func TestUserWriteTimeoutIsRaised(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		request, write int
		want           time.Duration
		warned         bool
	}{
		{0, 0, 70 * time.Second, false},
		{10000, 0, 15 * time.Second, false},
		{10000, 14999, 15 * time.Second, true},
		{10000, 15000, 15 * time.Second, false},
		{10000, 20000, 20 * time.Second, false},
	} {
		for _, section := range []string{"userServerConfig", "nodeServerConfig"} {
			got := parse(t, read(t, "minimal.json").set(section+".requestTimeoutMillis", c.request).set(section+".writeTimeoutMillis", c.write))
			if section == "userServerConfig" {
				require.Equal(t, c.want, got.UserServer.WriteTimeout)
				require.Equal(t, c.warned, len(got.Warnings) == 1)
			} else if c.write > 0 {
				// A node's write timeout is about one write, not about an answer.
				require.Equal(t, time.Duration(c.write)*time.Millisecond, got.NodeServer.WriteTimeout)
				require.Empty(t, got.Warnings)
			}
		}
	}
}

// conformance: 4.header.ids
func TestIdsFitTheirFields(t *testing.T) {
	t.Parallel()
	with := func(name string, shards int) document {
		d := read(t, "minimal.json").set("services[].dons", []string{name}).set("shardedDONs[].donName", name)
		var list []any
		for s := range shards {
			list = append(list, map[string]any{"nodes": someNodes(4*s+1, 4)})
		}
		return d.set("shardedDONs[].shards", list)
	}
	parse(t, with(strings.Repeat("d", 64), 1))
	require.Contains(t, one(t, with(strings.Repeat("d", 65), 1)).Text, "65 bytes")
	parse(t, with(strings.Repeat("d", 62), 2))
	require.Contains(t, one(t, with(strings.Repeat("d", 63), 2)).Text, "65 bytes")
	parse(t, with(strings.Repeat("d", 61), 11))
	require.Contains(t, one(t, with(strings.Repeat("d", 62), 11)).Text, "65 bytes")
	// Bytes, not characters.
	require.Contains(t, one(t, with(strings.Repeat("é", 33), 1)).Text, "66 bytes")

	parse(t, read(t, "minimal.json").set("connectionManagerConfig.authGatewayId", strings.Repeat("g", 128)))
	require.Contains(t, one(t, read(t, "minimal.json").set("connectionManagerConfig.authGatewayId", strings.Repeat("g", 129))).Text, "129 bytes")
}

func someNodes(first, n int) []any {
	var list []any
	for i := range n {
		list = append(list, map[string]any{"address": fmt.Sprintf("0x%040x", first+i)})
	}
	return list
}

// conformance: 4.shard.ids
func TestShardIds(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "full.json"))
	require.Equal(t, "alpha", c.DONs[0].Shards[0].ID)
	require.Equal(t, "alpha_1", c.DONs[0].Shards[1].ID)
	require.Equal(t, "beta", c.DONs[1].Shards[0].ID)
}

// conformance: 4.shard.one
func TestNodeInTwoShardsIsRefused(t *testing.T) {
	t.Parallel()
	d := read(t, "minimal.json").set("shardedDONs[].shards", []any{
		map[string]any{"nodes": someNodes(1, 4)}, map[string]any{"nodes": someNodes(4, 4)},
	})
	require.Equal(t, "shardedDONs[0].shards[1].nodes[0].address", one(t, d).Path)
}

// conformance: 6.expiry.config
func TestCleanUpPeriodCoversTwoPulls(t *testing.T) {
	t.Parallel()
	with := func(clean, pull int) document {
		return read(t, "minimal.json").set(handlerPath+".cleanUpPeriodMs", clean).set(handlerPath+".metadataPullIntervalMs", pull)
	}
	parse(t, with(120000, 0))
	require.Contains(t, one(t, with(119999, 0)).Text, "write at least 120000")
	parse(t, with(0, 300000))
	require.Contains(t, one(t, with(0, 300001)).Text, "at most 300000")
	parse(t, with(2000, 1000))
}

// conformance: 5.id.reserved
func TestRequestIDPeriodCoversATokensLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		clean, tolerance int
		want             time.Duration
		warned           bool
	}{
		{0, 0, 10 * time.Minute, false},
		{900000, 0, 15 * time.Minute, false},
		{240000, 0, 10 * time.Minute, true},
		{240000, 1000, 301 * time.Second, true},
		{0, 1200000, 25 * time.Minute, false},
	} {
		got := parse(t, read(t, "minimal.json").set(handlerPath+".cleanUpPeriodMs", c.clean).set(handlerPath+".jwtIssuedAtToleranceMs", c.tolerance))
		require.Equal(t, c.want, got.Services[0].Handler.RequestIDPeriod())
		require.Equal(t, c.warned, len(got.Warnings) == 1, "%v", got.Warnings)
	}
}

// conformance: 3.replay.period
func TestReplayPeriodCoversATokensLife(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		replay, tolerance int
		want              time.Duration
		warned            bool
	}{
		{0, 0, 24 * time.Hour, false},
		{600000, 0, 10 * time.Minute, false},
		{599999, 0, 10 * time.Minute, true},
		{0, 86400000, 24*time.Hour + 5*time.Minute, false},
	} {
		got := parse(t, read(t, "minimal.json").set(handlerPath+".jwtReplayPeriodMs", c.replay).set(handlerPath+".jwtIssuedAtToleranceMs", c.tolerance))
		require.Equal(t, c.want, got.Services[0].Handler.JWTReplayPeriod)
		require.Equal(t, c.warned, len(got.Warnings) == 1, "%v", got.Warnings)
	}
}

func TestNodeSendTimeoutIsCapped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		trigger, send int
		want          time.Duration
		warned        bool
	}{
		{0, 0, 10 * time.Second, false},
		{5000, 0, 5 * time.Second, false},
		{5000, 4000, 4 * time.Second, false},
		{5000, 6000, 5 * time.Second, true},
	} {
		got := parse(t, read(t, "minimal.json").set(handlerPath+".maxTriggerRequestDurationMs", c.trigger).set(handlerPath+".nodeSendTimeoutMs", c.send))
		require.Equal(t, c.want, got.Services[0].Handler.NodeSendTimeout)
		require.Equal(t, c.warned, len(got.Warnings) == 1, "%v", got.Warnings)
	}
}

func TestListenersOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"0.0.0.0", "0.0.0.0", true},
		{"0.0.0.0", "127.0.0.1", true},
		{"::", "127.0.0.1", true},
		{"::", "0.0.0.0", true},
		{"0.0.0.0", "::1", false},
		{"127.0.0.1", "127.0.0.2", false},
		{"localhost", "127.0.0.1", true},
		{"LOCALHOST", "localhost", true},
		{"a.example", "b.example", false},
		{"a.example", "0.0.0.0", true},
		{"::ffff:127.0.0.1", "127.0.0.1", true},
		{"::1", "::1", true},
	} {
		require.Equal(t, c.want, overlap(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, overlap(c.b, c.a), "%s %s", c.b, c.a)
		d := read(t, "minimal.json").set("userServerConfig.host", c.a).set("nodeServerConfig.host", c.b).
			set("userServerConfig.port", 7000).set("nodeServerConfig.port", 7000)
		_, err := Parse("x", d.encode(), nil)
		require.Equal(t, c.want, err != nil, "%s %s: %v", c.a, c.b, err)
	}
}

func TestOlderFormSharesAService(t *testing.T) {
	t.Parallel()
	c := parse(t, read(t, "legacy.json"))
	require.Len(t, c.Services, 2)
	require.Equal(t, "workflows", c.Services[0].Name)
	require.Equal(t, []string{"don_a", "don_b"}, c.Services[0].DONs)
	require.Equal(t, 30*time.Second, c.Services[0].Handler.MaxTriggerRequestDuration)
	require.Equal(t, "other", c.Services[1].Name)
	require.Equal(t, []string{"don_c"}, c.Services[1].DONs)
	require.Equal(t, Shard{ID: "don_b", Nodes: c.DONs[1].Shards[0].Nodes}, c.DONs[1].Shards[0])
	require.Len(t, c.DONs[1].Shards[0].Nodes, 2)
}

func TestUnknownHandlersLeaveTheOthersInPlace(t *testing.T) {
	t.Parallel()
	d := read(t, "minimal.json").set("ignoreUnknownHandlers", true)
	service := d["services"].([]any)[0]
	d["services"] = []any{
		map[string]any{"serviceName": "vault", "dons": []string{"don"}, "handlers": []any{map[string]any{"name": "vault", "config": map[string]any{"Any": 1, "any": 2}}}},
		service,
		map[string]any{"serviceName": "second", "dons": []string{"don"}, "handlers": []any{map[string]any{"name": HandlerHTTPCapabilities}}},
	}
	// The position of what is left is that of the file.
	require.Equal(t, "services[2].dons[0]", one(t, d).Path)
	d["services"] = d["services"].([]any)[:2]
	c := parse(t, d)
	require.Len(t, c.Services, 1)
	require.Equal(t, "workflows", c.Services[0].Name)
	require.Equal(t, "services[0].handlers[0].name", c.Warnings[0].Path)
}
