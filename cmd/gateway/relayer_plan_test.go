package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dongate/config"
	"dongate/relayer/fhevm"
	"dongate/storage"
)

// relayerTree is testdata/relayer.json, with files that are there.
func relayerTree(t *testing.T) map[string]any {
	data, err := os.ReadFile("../../testdata/relayer.json")
	require.NoError(t, err)
	key := filepath.Join(t.TempDir(), "api-key")
	require.NoError(t, os.WriteFile(key, []byte("partner-key-0123456789"), 0o600))
	text := strings.ReplaceAll(string(data), "/etc/dongate/partner-api-key", key)
	var tree map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &tree))
	return tree
}

var planEnvironment = []string{"APP_API_KEY=app-key-0123456789", "OTHER_API_KEY=other-key-0123456789"}

func planOf(t *testing.T, tree map[string]any) *relayerPlan {
	t.Helper()
	data, err := json.Marshal(tree)
	require.NoError(t, err)
	c, err := config.Parse("relayer.json", data, nil)
	require.NoError(t, err, string(data))
	p, problems := planRelayer(&c.Relayer, planEnvironment)
	require.Empty(t, problems)
	return p
}

// set changes the value at a path such as "relayer.apiKeys[1].name", where nil removes it.
func set(t *testing.T, tree map[string]any, path string, value any) {
	t.Helper()
	var at any = tree
	steps := regexp.MustCompile(`[^.\[\]]+`).FindAllString(path, -1)
	for _, s := range steps[:len(steps)-1] {
		if list, ok := at.([]any); ok {
			n, err := strconv.Atoi(s)
			require.NoError(t, err)
			at = list[n]
			continue
		}
		m := at.(map[string]any)
		if m[s] == nil {
			m[s] = map[string]any{}
		}
		at = m[s]
	}
	last := steps[len(steps)-1]
	if list, ok := at.([]any); ok {
		n, err := strconv.Atoi(last)
		require.NoError(t, err)
		list[n] = value
	} else if value == nil {
		delete(at.(map[string]any), last)
	} else {
		at.(map[string]any)[last] = value
	}
}

// Whatever the section says is in the plan: each member that is changed changes it.
func TestPlanUsesEveryMember(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	const address = "0x00000000000000000000000000000000000000ff"
	const id = "0x00000000000000000000000000000000000000000000000000000000000000ff"
	other := filepath.Join(t.TempDir(), "other-key")
	require.NoError(t, os.WriteFile(other, []byte("another-key-0123456789"), 0o600))
	keyFromEnv := func(tree m) {
		signer := tree["relayer"].(m)["signer"].(m)
		delete(signer, "keystore")
		delete(signer, "passwordFile")
		signer["keyEnv"] = "RELAYER_KEY"
	}
	keyFromFile := func(tree m) {
		keyFromEnv(tree)
		set(t, tree, "relayer.signer.keyEnv", nil)
		set(t, tree, "relayer.signer.keyFile", "key")
	}
	passwordFromEnv := func(tree m) {
		set(t, tree, "relayer.signer.passwordFile", nil)
		set(t, tree, "relayer.signer.passwordEnv", "PASSWORD")
	}
	expires := func(tree m) { set(t, tree, "relayer.expiry.enabled", true) }
	configured := func(tree m) {
		set(t, tree, "relayer.keyurl", m{"source": "config", "value": m{
			"publicKey": m{"dataId": "0x" + strings.Repeat("01", 32), "urls": []any{"https://a.example"}},
			"crs":       m{"dataId": "0x" + strings.Repeat("02", 32), "urls": []any{"https://a.example"}},
		}})
	}
	changes := map[string]struct {
		to     any
		before func(m) // what the member needs to have an effect
	}{
		"listen":                        {to: "127.0.0.1:3001"},
		"chain.rpcURLs":                 {to: []any{"https://another.example"}},
		"chain.readURLs":                {to: []any{"https://another.example"}},
		"chain.chainId":                 {to: 10902},
		"chain.listeners[0]":            {to: m{"type": "polling", "url": "https://another.example"}},
		"chain.listeners[0].url":        {to: "wss://another.example"},
		"chain.listeners[1].url":        {to: "https://another.example"},
		"chain.startBlock":              {to: 7},
		"chain.maxBlocksPerQuery":       {to: 999},
		"chain.confirmations":           {to: 3},
		"chain.resendAfter":             {to: "3s"},
		"chain.bumpAfter":               {to: "31s"},
		"chain.callTimeout":             {to: "11s"},
		"chain.maxFeeGwei":              {to: 501},
		"contracts.decryption":          {to: address},
		"contracts.inputVerification":   {to: address},
		"contracts.protocolConfig":      {to: address},
		"contracts.kmsGeneration":       {to: address},
		"contracts.protocolChainId":     {to: 10901},
		"contracts.feeToken":            {to: address},
		"contracts.feeSpender":          {to: address},
		"hostChains[0].chainId":         {before: func(tree m) { set(t, tree, "relayer.contracts.protocolChainId", nil) }, to: 1},
		"hostChains[0].rpcURL":          {to: "https://another.example"},
		"hostChains[0].acl":             {to: address},
		"signer.keystore":               {to: "another.json"},
		"signer.keyFile":                {before: keyFromFile, to: "another-key"},
		"signer.keyEnv":                 {before: keyFromEnv, to: "ANOTHER_KEY"},
		"signer.passwordFile":           {to: "another-password"},
		"signer.passwordEnv":            {before: passwordFromEnv, to: "ANOTHER_PASSWORD"},
		"signer.minBalance":             {to: -1},
		"signer.minFeeTokens":           {to: 2},
		"readiness.timeout":             {to: "31m"},
		"readiness.poll":                {to: "4s"},
		"readiness.concurrency":         {to: 251},
		"timeouts.sweep":                {to: "2m"},
		"expiry.enabled":                {to: true},
		"expiry.interval":               {before: expires, to: "6m"},
		"retryAfter.min":                {to: "2s"},
		"retryAfter.max":                {to: "4m"},
		"retryAfter.margin":             {to: -1},
		"retryAfter.readiness":          {to: "5s"},
		"retryAfter.confirmation":       {to: "1s"},
		"threshold":                     {to: 10},
		"additionalShares":              {to: -1},
		"additionalSharesTimeout":       {to: "6s"},
		"keyurl.source":                 {before: func(tree m) { configured(tree); set(t, tree, "relayer.keyurl.source", "chain") }, to: "config"},
		"keyurl.poll":                   {to: "13s"},
		"keyurl.value.publicKey.dataId": {before: configured, to: id},
		"keyurl.value.publicKey.urls":   {before: configured, to: []any{"https://b.example"}},
		"keyurl.value.crs.dataId":       {before: configured, to: id},
		"keyurl.value.crs.urls":         {before: configured, to: []any{"https://b.example"}},
		"erc1271Gas":                    {to: 250001},
		"apiKeys[0].name":               {to: "another"},
		"apiKeys[0].keyEnv":             {to: "OTHER_API_KEY"},
		"apiKeys[1].keyFile":            {to: other},
		"quotas.perKeyRPS":              {to: 51},
		"quotas.perAddressRPS":          {to: -1},
		"quotas.maxHandles":             {to: 65},
		"quotas.maxContracts":           {to: 11},
		"corsAllowedOrigins":            {to: []any{"https://another.example"}},
		"queues.inputProof.tps":         {to: 21},
		"queues.inputProof.capacity":    {to: 12000},
		"queues.inputProof.margin":      {to: 999},
		"queues.publicDecrypt.tps":      {to: 21},
		"queues.publicDecrypt.capacity": {to: 12000},
		"queues.publicDecrypt.margin":   {to: 999},
		"queues.userDecrypt.tps":        {to: 21},
		"queues.userDecrypt.capacity":   {to: 12000},
		"queues.userDecrypt.margin":     {to: 999},
	}
	for _, section := range []string{"timeouts", "expiry", "retryAfter"} {
		for _, kind := range []string{"inputProof", "publicDecrypt", "userDecrypt"} {
			c := changes[section+"."+kind]
			c.to = "29m"
			if section == "expiry" {
				c.before = expires
			}
			changes[section+"."+kind] = c
		}
	}
	known := map[string]bool{"enabled": true, "chain.listeners[].type": true} // which has to fit its URL
	for member, c := range changes {
		known[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(member, "[]")] = true
		tree := relayerTree(t)
		if c.before != nil {
			c.before(tree)
		}
		before := planOf(t, tree)
		require.Equal(t, before, planOf(t, tree), member)
		set(t, tree, "relayer."+member, c.to)
		require.NotEqual(t, before, planOf(t, tree), "relayer.%s is not used", member)
	}
	for _, r := range config.Reference() {
		if member, ok := strings.CutPrefix(r.Path, "relayer."); ok && !strings.HasSuffix(r.Type, "object") && !strings.Contains(r.Type, "objects") {
			require.True(t, known[member], "no change of relayer.%s (%s) is tried", member, r.Type)
		}
	}
}

// What the plan of the full file says, where a mistake would be hard to see.
func TestPlan(t *testing.T) {
	t.Parallel()
	p := planOf(t, relayerTree(t))
	require.Equal(t, []string{"https://gateway-chain.example", "https://gateway-chain-2.example"}, p.send.URLs)
	require.Equal(t, []string{"https://gateway-chain-reads.example", "https://gateway-chain-2.example"}, p.read.URLs) // with the polled listener
	require.Equal(t, []string{"wss://gateway-chain.example"}, p.relayer.Subscriptions)
	require.False(t, p.shared)
	require.Zero(t, p.protocol)
	require.Nil(t, p.keyURL.Static)
	require.EqualValues(t, 500_000_000_000, p.relayer.Fees.Ceiling.Int64())
	require.Zero(t, p.relayer.ExpiryInterval)
	require.Equal(t, "app-key-0123456789", string(p.api.Keys[0].Secret))
	require.Equal(t, "partner-key-0123456789", string(p.api.Keys[1].Secret))
	require.Equal(t, fhevm.DefaultRetryAfter(), p.api.RetryAfter)

	tree := relayerTree(t)
	set(t, tree, "relayer.chain.readURLs", nil)
	set(t, tree, "relayer.chain.listeners", nil)
	set(t, tree, "relayer.contracts.protocolChainId", 10901)
	set(t, tree, "relayer.signer.minFeeTokens", -1)
	p = planOf(t, tree)
	require.True(t, p.shared)
	require.Equal(t, -1, p.protocol)
	require.Zero(t, p.account.MinAllowance.Sign()) // not nil, which would be a floor of 1
}

// Whatever the configuration takes, the relayer's parts take, too.
func TestPlanAtTheBounds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"as it is":        {},
		"largest queue":   {"queues.inputProof.capacity": 21000, "queues.inputProof.margin": 1000},
		"smallest queue":  {"queues.userDecrypt": map[string]any{"capacity": 1}},
		"most nodes":      {"chain.rpcURLs": nodes("send", 8), "chain.readURLs": nodes("read", 8), "chain.listeners": pollers(5)},
		"client listener": {"listen": ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := relayerTree(t)
			set(t, tree, "relayer.signer", map[string]any{"keyEnv": "RELAYER_KEY"})
			set(t, tree, "storage.dsn", filepath.Join(t.TempDir(), "relayer.db"))
			for member, value := range change {
				set(t, tree, "relayer."+member, value)
			}
			data, err := json.Marshal(tree)
			require.NoError(t, err)
			c, err := config.Parse("relayer.json", data, nil)
			require.NoError(t, err)
			w := &world{environ: append([]string{"RELAYER_KEY=" + strings.Repeat("01", 32)}, planEnvironment...)}
			l := &loaded{file: "relayer.json", config: c}
			db, err := storage.Open(t.Context(), storageConfig(w, l, nil))
			require.NoError(t, err)
			defer db.Close()
			log, err := newLogger(config.Log{Level: "error"}, os.Stderr)
			require.NoError(t, err)
			r, err := newRelayerRun(t.Context(), w, l, db, log, prometheus.NewRegistry(), func() bool { return false }, func() *config.Config { return l.config })
			require.NoError(t, err)
			require.Equal(t, c.Relayer.Listen, r.served().Listen)
			_, err = newRelayerRun(t.Context(), w, l, db, log, prometheus.NewRegistry(), func() bool { return false }, func() *config.Config { return l.config })
			require.ErrorContains(t, err, "another process runs the relayer on this database")
			require.NoError(t, r.halt())
		})
	}
}

func nodes(name string, n int) (list []any) {
	for i := range n {
		list = append(list, fmt.Sprintf("https://%s-%d.example", name, i))
	}
	return list
}

func pollers(n int) (list []any) {
	for _, u := range nodes("poll", n) {
		list = append(list, map[string]any{"type": "polling", "url": u})
	}
	return list
}
