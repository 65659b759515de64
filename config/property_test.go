package config

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// narrowed keeps random values inside the rules that look at two members.
var narrowed = map[string][2]float64{
	"connectionManagerConfig.pongTimeoutSec":       {86401, 864000},
	handlerPath + ".retryConfig.initialIntervalMs": {1, 30000},
	handlerPath + ".retryConfig.maxIntervalTimeMs": {30000, 1e6},
	handlerPath + ".cleanUpPeriodMs":               {600000, 1e9},
	handlerPath + ".metadataPullIntervalMs":        {1, 300000},
	"userServerConfig.port":                        {0, 4999},
	"nodeServerConfig.port":                        {6000, 65535},
	"admin.port":                                   {-1, -1},
	"relayer.readiness.timeout":                    {3600e3, 7200e3},
	"relayer.readiness.poll":                       {10, 1800e3},
	"relayer.retryAfter.min":                       {1e3, 300e3},
	"relayer.retryAfter.max":                       {300e3, 3600e3},
	"relayer.queues.inputProof.margin":             {1, 9},
	"relayer.queues.publicDecrypt.margin":          {1, 9},
	"relayer.queues.userDecrypt.margin":            {1, 9},
	"relayer.queues.inputProof.capacity":           {10, 20000},
	"relayer.queues.publicDecrypt.capacity":        {10, 20000},
	"relayer.queues.userDecrypt.capacity":          {10, 20000},
}

// drawNumber is a value inside the bounds of the reference.
func drawNumber(t *rapid.T, m Member) any {
	var lo, hi float64
	_, err := fmt.Sscanf(strings.TrimSuffix(m.Bounds, ";"), "%g to %g", &lo, &hi)
	require.NoError(t, err, m.Path)
	if n, ok := narrowed[m.Path]; ok {
		lo, hi = n[0], n[1]
	}
	if rapid.IntRange(0, 9).Draw(t, "zero") == 0 && !strings.HasSuffix(m.Path, ".port") {
		return 0
	}
	if strings.Contains(m.Bounds, "-1 = off") && rapid.IntRange(0, 4).Draw(t, "off") == 0 {
		return -1
	}
	if strings.HasPrefix(m.Type, "an integer") {
		return rapid.Int64Range(int64(lo), int64(hi)).Draw(t, m.Path)
	}
	return rapid.Float64Range(lo, hi).Draw(t, m.Path)
}

var drawnLists = map[string][]string{
	"userServerConfig.corsAllowedOrigins": {"https://a.example", "http://b.example:8080", "https://*.c.example"},
	"userServerConfig.trustedProxies":     {"10.0.0.0/8", "192.0.2.1", "2001:db8::/32"},
	"httpClientConfig.allowedPortRanges":  {"1-2", "8000-9000", "65535"},
	"httpClientConfig.allowedSchemes":     {"HTTP", "https"},
	"httpClientConfig.allowedMethods":     {"GET", "patch", "PURGE"},
	"httpClientConfig.blockedHeaders":     {"Host", "x-a", "X_B", "x-c-*"},
	"httpClientConfig.allowedIPs":         {"10.0.0.1", "fd00::1", "::ffff:10.0.0.2"},
	"httpClientConfig.allowedIPsCIDR":     {"10.0.0.0/8", "fd00::/8"},
	"httpClientConfig.blockedIPs":         {"192.0.2.1"},
	"httpClientConfig.blockedIPsCIDR":     {"0.0.0.0/0", "192.0.2.77/24"},
}

var drawnStrings = map[string][]string{
	"host": {"127.0.0.1", "::1", "gateway.example"}, "path": {"/", "/a/b"}, "contentTypeHeader": {"text/plain", "application/json; charset=utf-8"},
	"level": {"debug", "WARN"}, "format": {"console"}, "driver": {"sqlite", "memory"}, "migrate": {"manual"}, "authGatewayId": {"g", "ü gateway"},
	"caPath": {"a.pem"}, "defaultTimeout": {"1s", "250ms", "1m", "1234567ns"},
}

// drawDuration is a duration inside the bounds of the reference, in one of its forms.
func drawDuration(t *rapid.T, m Member) any {
	bounds, _, wholeSeconds := strings.Cut(m.Bounds, ", in whole seconds")
	least, most, _ := strings.Cut(bounds, " to ")
	lo, err := time.ParseDuration(least)
	require.NoError(t, err, m.Path)
	hi, err := time.ParseDuration(most)
	require.NoError(t, err, m.Path)
	unit := time.Millisecond
	if wholeSeconds {
		unit = time.Second
	}
	if n, ok := narrowed[m.Path]; ok {
		lo, hi = time.Duration(n[0])*ms, time.Duration(n[1])*ms
	}
	d := time.Duration(rapid.Int64Range(int64(lo/unit), int64(hi/unit)).Draw(t, m.Path)) * unit
	return rapid.SampledFrom([]any{d.String(), int64(d / ms), short(d), 0, "0s"}).Draw(t, "form")
}

// drawnValues are values of the relayer's members that no bound describes.
var drawnValues = map[string][]any{
	"relayer.listen":                  {"", ":3000", "127.0.0.1:0", "[::1]:3001", "relayer.example:3002"},
	"relayer.chain.rpcURLs":           {[]any{}, []any{"https://a.example"}, []any{"http://127.0.0.1:8545", "https://b.example/"}},
	"relayer.chain.readURLs":          {[]any{}, []any{"https://r.example"}},
	"relayer.chain.listeners":         {nil, []any{}, []any{map[string]any{"url": "wss://a.example"}, map[string]any{"type": "polling", "url": "http://a.example:1"}}},
	"relayer.hostChains":              {nil, []any{map[string]any{"chainId": 1, "rpcURL": "https://h.example", "acl": "0x00000000000000000000000000000000000000aa"}}},
	"relayer.contracts.decryption":    {"", "0x00000000000000000000000000000000000000Ab"},
	"relayer.signer.keyEnv":           {"", "RELAYER_KEY", "DONGATE_RELAYER_KEY"},
	"relayer.apiKeys":                 {nil, []any{map[string]any{"name": "a", "keyEnv": "A"}, map[string]any{"name": "b", "keyFile": "b.key"}}},
	"relayer.corsAllowedOrigins":      {[]any{}, []any{"https://a.example"}},
	"relayer.keyurl.source":           {"chain", "CONFIG"},
	"relayer.keyurl.value.crs.dataId": {"", "0x" + strings.Repeat("0c", 32)},
	"relayer.keyurl.value.crs.urls":   {[]any{}, []any{"https://k.example/crs?x=1"}},
}

// drawConfig is a random legal file.
func drawConfig(t *rapid.T) document {
	d := drawTopology(t)
	for _, m := range Reference() {
		if strings.HasPrefix(m.Path, "dons") || strings.HasPrefix(m.Path, "shardedDONs") ||
			strings.HasPrefix(m.Path, "services") && !strings.HasPrefix(m.Path, handlerPath+".") || !rapid.Bool().Draw(t, "written "+m.Path) {
			continue
		}
		name := m.Path[strings.LastIndexByte(m.Path, '.')+1:]
		switch {
		case drawnLists[m.Path] != nil:
			d.set(m.Path, rapid.SliceOfN(rapid.SampledFrom(drawnLists[m.Path]), 0, 4).Draw(t, m.Path))
		case m.Path == "httpClientConfig.allowedPorts":
			d.set(m.Path, rapid.SliceOfN(rapid.IntRange(1, 65535), 0, 4).Draw(t, m.Path))
		case drawnValues[m.Path] != nil:
			d.set(m.Path, rapid.SampledFrom(drawnValues[m.Path]).Draw(t, m.Path))
		case strings.HasPrefix(m.Path, "relayer.") && (m.Secret || strings.Contains(m.Path, "[]")):
		case strings.HasPrefix(m.Type, "a Go duration"):
			d.set(m.Path, drawDuration(t, m))
		case drawnStrings[name] != nil:
			d.set(m.Path, rapid.SampledFrom(drawnStrings[name]).Draw(t, m.Path))
		case m.Type == "true or false" && name != "tlsEnabled" && m.Path != "relayer.enabled":
			d.set(m.Path, rapid.Bool().Draw(t, m.Path))
		case m.Bounds != "":
			d.set(m.Path, drawNumber(t, m))
		}
	}
	return d
}

func drawTopology(t *rapid.T) document {
	var dons, names []any
	next := 1
	for i := range rapid.IntRange(1, 3).Draw(t, "DONs") {
		f := rapid.IntRange(0, 2).Draw(t, "f")
		var shards []any
		for range rapid.IntRange(1, 3).Draw(t, "shards") {
			n := 3*f + 1 + rapid.IntRange(0, 2).Draw(t, "extra")
			shards = append(shards, map[string]any{"nodes": someNodes(next, n)})
			next += n
		}
		name := fmt.Sprintf("don %c", 'a'+i)
		dons, names = append(dons, map[string]any{"donName": name, "f": f, "shards": shards}), append(names, name)
	}
	handlers := []any{map[string]any{"name": HandlerHTTPCapabilities, "config": map[string]any{}}}
	return document{
		"connectionManagerConfig": map[string]any{"authGatewayId": "g"},
		"services":                []any{map[string]any{"serviceName": "workflows", "dons": names, "handlers": handlers}},
		"shardedDONs":             dons,
	}
}

// TestPrintedConfigurationLoadsAgain is the promise of `check --print`.
func TestPrintedConfigurationLoadsAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := parse(t, drawConfig(t))
		printed := c.Print()
		again, err := Parse("printed", printed, nil)
		require.NoError(t, err, "%s", printed)
		require.Equal(t, string(printed), string(again.Print()))
		require.Empty(t, Changes(c, again))
		c.Warnings, again.Warnings = nil, nil
		require.Equal(t, c, again)
	})
	for _, name := range []string{"minimal", "network", "legacy", "full"} {
		c, err := Load(filepath.Join(testdata, name+".json"), nil)
		require.NoError(t, err)
		// full.json has secrets: printing hides them and variables bring them back.
		again, err := Parse("printed", c.Print(), secretsOf(c))
		require.NoError(t, err)
		c.Warnings, again.Warnings = nil, nil
		require.Equal(t, c, again, name)
	}
}

// secretsOf are the variables that bring back what printing hides.
func secretsOf(c *Config) []string {
	environ := []string{"DONGATE_STORAGE_DSN=" + c.Storage.DSN.Reveal()}
	add := func(path string, i int, member string, e Endpoint) {
		environ = append(environ, envName(index(path, i)+member)+"="+e.Reveal())
	}
	for i, e := range c.Relayer.Chain.RPCURLs {
		add("relayer.chain.rpcURLs", i, "", e)
	}
	for i, e := range c.Relayer.Chain.ReadURLs {
		add("relayer.chain.readURLs", i, "", e)
	}
	for i, l := range c.Relayer.Chain.Listeners {
		add("relayer.chain.listeners", i, ".url", l.URL)
	}
	for i, h := range c.Relayer.HostChains {
		add("relayer.hostChains", i, ".rpcURL", h.RPCURL)
	}
	return environ
}

// TestNamesMatchInAnyCase loads full.json and legacy.json with the letters of
// their member names in random case.
func TestNamesMatchInAnyCase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"full.json", "legacy.json", "network.json"} {
		data, err := os.ReadFile(filepath.Join(testdata, name))
		require.NoError(t, err)
		want, err := Parse("x", data, nil)
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			got, err := Parse("x", mixCase(t, data), nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

// mixCase changes the case of member names and of nothing else: one draw
// decides which letters.
func mixCase(t *rapid.T, data []byte) []byte {
	mask, step := rapid.Uint64().Draw(t, "mask"), 0
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		start := strings.IndexByte(line, '"')
		end := strings.Index(line, `":`)
		if start < 0 || end < start {
			continue
		}
		name := strings.Map(func(r rune) rune {
			step++
			if mask>>(step%64)&1 == 1 {
				return unicode.ToUpper(r)
			}
			return unicode.ToLower(r)
		}, line[start:end])
		lines[i] = line[:start] + name + line[end:]
	}
	return []byte(strings.Join(lines, "\n"))
}

// twinDistance is the definition of editDistance, without its table.
func twinDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[0] == b[0] {
		cost = 0
	}
	d := min(twinDistance(a[1:], b)+1, twinDistance(a, b[1:])+1, twinDistance(a[1:], b[1:])+cost)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, twinDistance(a[2:], b[2:])+1)
	}
	return d
}

func TestEditDistance(t *testing.T) {
	t.Parallel()
	word := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		require.Equal(t, twinDistance(a, b), editDistance(a, b))
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"port", "path", "host", "cleanUpPeriodMs", "f"}
	for name, want := range map[string]string{
		"prot": "port", "PORTS": "port", "cleanupPeriod": "cleanUpPeriodMs", "cleanUpPeriodMS": "cleanUpPeriodMs",
		"colour": "", "": "", "g": "", "po": "", strings.Repeat("p", 10000): "",
	} {
		require.Equal(t, want, nearest(name, known), name)
	}
}

// TestColumnsCountCharacters: a position is what an editor shows.
func TestColumnsCountCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("a\né🙂\r"))).Draw(t, "text")
		x := newLineIndex([]byte(text))
		line, column := 1, 1
		for pos, r := range text + "." {
			gotLine, gotColumn := x.at(pos)
			require.Equal(t, [2]int{line, column}, [2]int{gotLine, gotColumn})
			column++
			if r == '\n' {
				line, column = line+1, 1
			}
		}
	})
}

func TestPlainNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1000000000", plain(1e9))
	require.Equal(t, "0.000001", plain(1e-6))
	require.Less(t, float64(tib), math.Pow(2, 53))
	require.Less(t, float64(maxDuration), math.Pow(2, 63))
}
