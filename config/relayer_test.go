package config

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/relayer/store"
)

const relayerFile = "../testdata/relayer.json"

func readRelayer(t *testing.T) document {
	t.Helper()
	data, err := os.ReadFile(relayerFile)
	require.NoError(t, err)
	return decode(t, data)
}

// enabledRelayer is the least that an enabled relayer needs.
func enabledRelayer(t *testing.T) document {
	address := func(n int) string { return fmt.Sprintf("0x%040x", n) }
	return read(t, "minimal.json").set("relayer", map[string]any{
		"enabled":    true,
		"chain":      map[string]any{"rpcURLs": []any{"https://node.example"}, "chainId": 10901},
		"contracts":  map[string]any{"decryption": address(1), "inputVerification": address(2), "protocolConfig": address(3), "kmsGeneration": address(4)},
		"hostChains": []any{map[string]any{"chainId": 1, "rpcURL": "https://host.example", "acl": address(5)}},
		"signer":     map[string]any{"keyEnv": "RELAYER_KEY"},
	})
}

func TestRelayerDefaults(t *testing.T) {
	t.Parallel()
	queue := RelayerQueue{TPS: 20, Capacity: 11000, Margin: 1000}
	want := Relayer{
		Chain: RelayerChain{
			MaxBlocksPerQuery: 1000, ResendAfter: 2 * time.Second, BumpAfter: 30 * time.Second, CallTimeout: 10 * time.Second, MaxFee: 500,
		},
		Signer:    RelayerSigner{MinBalance: 0.01, MinFeeTokens: 1},
		Queues:    RelayerQueues{queue, queue, queue},
		Readiness: RelayerReadiness{30 * time.Minute, 3 * time.Second, 250},
		Timeouts:  RelayerTimeouts{30 * time.Minute, 30 * time.Minute, 30 * time.Minute, time.Minute},
		Expiry:    RelayerExpiry{false, 5 * time.Minute, 7 * 24 * time.Hour, 365 * 24 * time.Hour, 7 * 24 * time.Hour},
		RetryAfter: RelayerRetryAfter{
			Min: time.Second, Max: 300 * time.Second, Margin: 0.2, Readiness: 4 * time.Second,
			InputProof: 2 * time.Second, PublicDecrypt: 6 * time.Second, UserDecrypt: 6 * time.Second, Confirmation: 250 * time.Millisecond,
		},
		Threshold: 9, AdditionalShares: 2, AdditionalSharesTimeout: 5 * time.Second,
		KeyURL: RelayerKeyURL{Source: KeyURLChain, Poll: 12 * time.Second}, ERC1271Gas: 250000,
		Quotas: RelayerQuotas{MaxHandles: 256},
	}
	for name, section := range map[string]any{"absent": nil, "empty": map[string]any{}, "off": map[string]any{"enabled": false}} {
		require.Equal(t, want, parse(t, read(t, "minimal.json").set("relayer", section)).Relayer, name)
	}
}

// TestRelayerFile: the full file holds every member, and what it says of defaults is so.
func TestRelayerFile(t *testing.T) {
	t.Parallel()
	full := readRelayer(t)
	written := parse(t, full)
	require.Empty(t, written.Warnings)
	for _, m := range Reference() {
		switch m.Path {
		case "relayer.signer.keyFile", "relayer.signer.keyEnv", "relayer.signer.passwordEnv", "relayer.apiKeys[].keyFile":
			continue // each is in the place of another
		}
		if strings.HasPrefix(m.Path, "relayer") {
			_, ok := full.get(m.Path)
			require.True(t, ok, "relayer.json has no %s", m.Path)
		}
	}
	for _, member := range []string{
		"queues", "readiness", "timeouts", "expiry", "retryAfter", "threshold", "additionalShares", "additionalSharesTimeout", "keyurl", "erc1271Gas",
	} {
		delete(full["relayer"].(map[string]any), member)
	}
	for _, path := range []string{
		"chain.maxBlocksPerQuery", "chain.confirmations", "chain.resendAfter", "chain.bumpAfter", "chain.callTimeout", "chain.maxFeeGwei",
		"contracts.protocolChainId", "signer.minBalance", "signer.minFeeTokens",
	} {
		full.set("relayer."+path, nil)
	}
	require.Equal(t, written, parse(t, full))
}

func TestRelayerFollowsOtherMembers(t *testing.T) {
	t.Parallel()
	r := parse(t, enabledRelayer(t)).Relayer
	require.True(t, r.Enabled)
	require.Equal(t, []Endpoint{"https://node.example"}, r.Chain.ReadURLs)
	require.Equal(t, RelayerQuotas{MaxHandles: 256}, r.Quotas)
	require.EqualValues(t, 1, r.Contracts.ProtocolChainID)
	require.Empty(t, r.Signer.PasswordEnv)
	r = parse(t, enabledRelayer(t).set("relayer.signer", map[string]any{"keystore": "k"}).set("relayer.contracts.protocolChainId", 10901)).Relayer
	require.Equal(t, DefaultPasswordEnv, r.Signer.PasswordEnv)
	require.EqualValues(t, 10901, r.Contracts.ProtocolChainID)
	r = parse(t, enabledRelayer(t).set("relayer.queues.inputProof.capacity", 50).
		set("relayer.queues.userDecrypt.margin", -1).set("relayer.retryAfter.margin", -1).set("relayer.additionalShares", -1).
		set("relayer.signer.minBalance", -1).set("relayer.signer.minFeeTokens", -1).set("relayer.quotas.perAddressRPS", -1).set("relayer.quotas.maxHandles", -1)).Relayer
	require.Equal(t, RelayerQueue{20, 50, 5}, r.Queues.InputProof)
	require.Equal(t, RelayerQueue{20, 11000, 0}, r.Queues.UserDecrypt)
	require.Zero(t, r.RetryAfter.Margin)
	require.Zero(t, r.AdditionalShares)
	require.Zero(t, r.Signer.MinBalance)
	require.Zero(t, r.Signer.MinFeeTokens)
	require.Equal(t, RelayerQuotas{}, r.Quotas)
}

func TestRelayerWarnings(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct {
		set map[string]any
		at  string
	}{
		"no keys":          {map[string]any{"relayer.quotas.perKeyRPS": 5}, "relayer.quotas.perKeyRPS"},
		"no keystore":      {map[string]any{"relayer.signer.passwordEnv": "P"}, "relayer.signer.passwordEnv"},
		"no keystore file": {map[string]any{"relayer.signer.passwordFile": "p"}, "relayer.signer.passwordFile"},
		"value unused":     {map[string]any{"relayer.keyurl.value.crs.urls": []any{"https://k.example"}}, "relayer.keyurl.value.crs"},
		"static threshold": {map[string]any{
			"relayer.contracts.protocolConfig": "", "relayer.keyurl.source": "config",
			"relayer.keyurl.value.crs.dataId": "0x" + strings.Repeat("01", 32), "relayer.keyurl.value.crs.urls": []any{"https://k.example"},
			"relayer.keyurl.value.publicKey.dataId": "0x" + strings.Repeat("02", 32), "relayer.keyurl.value.publicKey.urls": []any{"https://k.example"},
		}, "relayer.contracts"},
	} {
		d := enabledRelayer(t)
		for member, v := range c.set {
			d.set(member, v)
		}
		warnings := parse(t, d).Warnings
		require.Len(t, warnings, 1, path)
		require.Equal(t, c.at, warnings[0].Path)
	}
}

// TestRelayerListener: its own port is compared with the others only while it is used.
func TestRelayerListener(t *testing.T) {
	t.Parallel()
	with := func(listen string, enabled bool) document {
		return enabledRelayer(t).set("relayer.listen", listen).set("relayer.enabled", enabled)
	}
	for listen, want := range map[string]string{
		":5002": "relayer.listen", "127.0.0.1:5003": "relayer.listen", "[::1]:5004": "", "127.0.0.1:5004": "relayer.listen", ":0": "", ":3000": "",
	} {
		if want == "" {
			parse(t, with(listen, true))
			continue
		}
		require.Equal(t, want, one(t, with(listen, true)).Path, listen)
		parse(t, with(listen, false))
	}
	for _, path := range []string{"/v2", "/v2/x", "/v3/", "/liveness", "/healthz", "/version", "/docs", "/openapi.yml"} {
		require.Equal(t, "userServerConfig.path", one(t, enabledRelayer(t).set("userServerConfig.path", path)).Path)
		parse(t, with(":3000", true).set("userServerConfig.path", path))
	}
	for _, path := range []string{"/", "/v2x", "/rpc", "/versions"} {
		parse(t, enabledRelayer(t).set("userServerConfig.path", path))
	}
}

func TestEndpointsNeverPrint(t *testing.T) {
	t.Parallel()
	for url, shown := range map[Endpoint]string{
		"":                               "",
		"https://node.example":           "https://node.example",
		"http://127.0.0.1:8545/":         "http://127.0.0.1:8545/",
		"https://node.example/hunter2":   "https://node.example/[secret]",
		"https://node.example?k=hunter2": "https://node.example/[secret]",
		"wss://hunter2:x@node.example:1": "wss://node.example:1/[secret]",
		"://hunter2":                     "[secret]",
	} {
		require.Equal(t, shown, url.String())
		text, err := url.MarshalText()
		require.NoError(t, err)
		data, err := json.Marshal([]Endpoint{url})
		require.NoError(t, err)
		all := []string{string(text), string(data), url.Host()}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			all = append(all, fmt.Sprintf(verb, url), fmt.Sprintf(verb, HostChain{RPCURL: url}))
		}
		for _, s := range all {
			require.NotContains(t, s, "hunter2")
			require.NotContains(t, s, fmt.Sprintf("%x", "hunter2"))
		}
	}
	require.Equal(t, "node.example:1", Endpoint("wss://u:p@node.example:1/k").Host())
	before := parse(t, enabledRelayer(t).set("relayer.chain.rpcURLs", []any{"https://node.example/1"}))
	after := parse(t, enabledRelayer(t).set("relayer.chain.rpcURLs", []any{"https://node.example/2"}))
	require.Equal(t, []Change{{"relayer.chain.rpcURLs", false}, {"relayer.chain.readURLs", false}}, Changes(before, after))
}

// TestVariablesReachIntoLists: a node's URL is the one member of a list's element that the environment can replace.
func TestVariablesReachIntoLists(t *testing.T) {
	t.Parallel()
	d := enabledRelayer(t).
		set("relayer.chain.rpcURLs", []any{"https://a.example", "https://b.example"}).
		set("relayer.chain.listeners", []any{map[string]any{"type": "subscription"}})
	r := parse(t, d,
		"DONGATE_RELAYER_CHAIN_RPCURLS_1=https://b.example/key",
		"DONGATE_RELAYER_CHAIN_LISTENERS_0_URL=wss://a.example/key",
		"DONGATE_RELAYER_HOSTCHAINS_0_RPCURL=https://host.example/key",
		"DONGATE_RELAYER_CHAIN_RPCURLS_0=",
	).Relayer
	require.Equal(t, []Endpoint{"https://a.example", "https://b.example/key"}, r.Chain.RPCURLs)
	require.Equal(t, Endpoint("wss://a.example/key"), r.Chain.Listeners[0].URL)
	require.Equal(t, Endpoint("https://host.example/key"), r.HostChains[0].RPCURL)
	for _, strange := range []string{"HOSTCHAINS_1_RPCURL", "HOSTCHAINS_00_RPCURL", "HOSTCHAINS_99999_RPCURL", "HOSTCHAINS__RPCURL", "CHAIN_RPCURLS_1", "CHAIN_LISTENERS_0_URL", "APIKEYS_0_NAME", "CHAIN_CHAINID_0"} {
		list := problems(t, enabledRelayer(t), "DONGATE_RELAYER_"+strange+"=https://x.example")
		require.Len(t, list, 1, strange)
		require.Equal(t, "DONGATE_RELAYER_"+strange, list[0].Path)
	}
}

// TestVariablesOfSecretsAreKnown: a name of ours in keyEnv is not an unknown variable.
func TestVariablesOfSecretsAreKnown(t *testing.T) {
	t.Parallel()
	parse(t, enabledRelayer(t).set("relayer.signer.keyEnv", "DONGATE_RELAYER_KEY").set("relayer.apiKeys", []any{map[string]any{"name": "a", "keyEnv": "DONGATE_APP_KEY"}}),
		"DONGATE_RELAYER_KEY=1", "DONGATE_APP_KEY=2")
	require.Len(t, problems(t, enabledRelayer(t), "DONGATE_RELAYER_KEY=1"), 1)
}

func TestCheckSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	const key = "hunter2hunter2hunter2"
	private, open, empty, long := file("private", key, 0o600), file("open", key+"\n", 0o644), file("empty", " \n", 0o600), file("long", strings.Repeat("x", maxSecretFile+1), 0o600)
	missing := filepath.Join(dir, "missing")
	environ := []string{"KEY=" + key, "OTHER= " + key + " ", "SHORT=hunter2", "SPACE=hunter2 hunter2 hunter2", "BLANK= "}
	type m = map[string]any
	keys := func(list ...m) m {
		for i := range list {
			list[i]["name"] = fmt.Sprint("client ", i)
		}
		return m{"relayer.apiKeys": list}
	}
	for name, c := range map[string]struct {
		set  m
		want []string // path and part of the text
	}{
		"key in a variable":          {m{"relayer.signer": m{"keyEnv": "KEY"}}, nil},
		"no such variable":           {m{"relayer.signer": m{"keyEnv": "NONE"}}, []string{"relayer.signer.keyEnv: the variable NONE is not set"}},
		"blank variable":             {m{"relayer.signer": m{"keyEnv": "BLANK"}}, []string{"relayer.signer.keyEnv: the variable BLANK is not set"}},
		"key in a file":              {m{"relayer.signer": m{"keyFile": private}}, nil},
		"key that others can read":   {m{"relayer.signer": m{"keyFile": open}}, []string{"relayer.signer.keyFile: other users can use"}},
		"missing file":               {m{"relayer.signer": m{"keyFile": missing}}, []string{"relayer.signer.keyFile: cannot read"}},
		"directory":                  {m{"relayer.signer": m{"keyFile": dir}}, []string{"relayer.signer.keyFile: cannot read"}},
		"empty file":                 {m{"relayer.signer": m{"keyFile": empty}}, []string{"relayer.signer.keyFile: "}},
		"keystore":                   {m{"relayer.signer": m{"keystore": open, "passwordEnv": "KEY"}}, nil},
		"keystore, password in file": {m{"relayer.signer": m{"keystore": open, "passwordFile": private}}, nil},
		"password others can read":   {m{"relayer.signer": m{"keystore": open, "passwordFile": open}}, []string{"relayer.signer.passwordFile: other users can use"}},
		"keystore without password":  {m{"relayer.signer": m{"keystore": open}}, []string{"relayer.signer.passwordEnv: the variable DONGATE_KEYSTORE_PASSWORD is not set"}},
		"password file missing":      {m{"relayer.signer": m{"keystore": open, "passwordFile": missing}}, []string{"relayer.signer.passwordFile: cannot read"}},
		"a device, as a pipe":        {m{"relayer.signer": m{"keyFile": os.DevNull}}, nil},
		"API keys":                   {keys(m{"keyEnv": "KEY"}), nil},
		"API key in a file":          {keys(m{"keyFile": open}), nil},
		"same API key":               {keys(m{"keyEnv": "KEY"}, m{"keyEnv": "OTHER"}), []string{"relayer.apiKeys[1].keyEnv: this key is also that of \"client 0\""}},
		"short API key":              {keys(m{"keyEnv": "SHORT"}), []string{"relayer.apiKeys[0].keyEnv: this key has 7 characters"}},
		"API key with spaces":        {keys(m{"keyEnv": "SPACE"}), []string{"relayer.apiKeys[0].keyEnv: this key has characters"}},
		"long API key file":          {keys(m{"keyFile": long}), []string{"relayer.apiKeys[0].keyFile: cannot read"}},
		"every one":                  {keys(m{"keyEnv": "NONE"}, m{"keyFile": missing}), []string{"relayer.apiKeys[0].keyEnv: the variable", "relayer.apiKeys[1].keyFile: cannot read"}},
		"off":                        {m{"relayer.enabled": false, "relayer.signer": m{"keyEnv": "NONE"}}, nil},
	} {
		d := enabledRelayer(t).set("relayer.signer.keyEnv", "KEY")
		for path, v := range c.set {
			d.set(path, v)
		}
		list := parse(t, d).CheckSecrets(environ)
		require.Len(t, list, len(c.want), "%s: %v", name, list)
		for i, p := range list {
			require.True(t, strings.HasPrefix(p.String(), c.want[i]), "%s: %s", name, p)
			require.NotContains(t, p.String(), "hunter2")
		}
	}
	r := parse(t, enabledRelayer(t).set("relayer.apiKeys", []any{m{"name": "a", "keyEnv": "OTHER"}})).Relayer
	got, list := r.ReadAPIKeys(environ)
	require.Empty(t, list)
	require.Equal(t, []ClientKey{{"a", key}}, got)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", got, got, got), "hunter2")
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	wei := func(s string) *big.Int {
		n, ok := new(big.Int).SetString(s, 10)
		require.True(t, ok)
		return n
	}
	require.Equal(t, wei("500000000000"), Gwei(500).Wei())
	require.Equal(t, wei("100000000"), Gwei(0.1).Wei())
	require.Equal(t, wei("10000000000000000"), Coins(0.01).Wei())
	require.Equal(t, wei("1000000000000000000000000000000000"), Coins(1e15).Wei())
	require.Zero(t, Coins(0).Wei().Sign())
	require.Zero(t, Gwei(math.Inf(1)).Wei().Sign())
}

func TestShortDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 61 * time.Minute: "1h1m",
		time.Hour + time.Second: "1h0m1s", 8760 * time.Hour: "8760h", 10 * time.Hour: "10h", 250 * time.Millisecond: "250ms", 20 * time.Minute: "20m",
	} {
		require.Equal(t, want, short(d))
		back, err := time.ParseDuration(short(d))
		require.NoError(t, err)
		require.Equal(t, d, back)
	}
}

// What the configuration allows to wait is what can be counted.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	require.Equal(t, store.MaxCount, maxWaiting)
}
