package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dongate/config"
	"dongate/storage"
)

// relayerMetrics describes every metric of a gateway with the relayer that one without has not, as "name | labels | help".
func relayerMetrics(t *testing.T) (rows, names []string) {
	c, err := config.Parse("relayer.json", []byte(documentedRelayer(t)), nil)
	require.NoError(t, err)
	key := strings.Repeat("01", 32)
	c.Relayer.Signer = config.RelayerSigner{KeyEnv: "RELAYER_KEY"}
	c.Storage.DSN = config.Secret(filepath.Join(t.TempDir(), "relayer.db"))
	w, l := &world{environ: []string{"RELAYER_KEY=" + key}}, &loaded{file: "relayer.json", config: c}
	db, err := storage.Open(t.Context(), storageConfig(w, l, nil))
	require.NoError(t, err)
	defer db.Close()
	log, err := newLogger(config.Log{Level: "error"}, os.Stderr)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	r, err := newRelayerRun(t.Context(), w, l, db, log, registry, func() bool { return false }, func() *config.Config { return c })
	require.NoError(t, err)
	defer func() { require.NoError(t, r.halt()) }()
	ch := make(chan *prometheus.Desc, 1000)
	registry.Describe(ch)
	close(ch)
	for d := range ch {
		s := d.String() // name, help and labels have no accessors
		field := func(name, end string) string {
			_, rest, _ := strings.Cut(s, name)
			v, _, _ := strings.Cut(rest, end)
			return v
		}
		name := field(`fqName: "`, `"`)
		names = append(names, name)
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, strings.ReplaceAll(strings.Trim(field("variableLabels: {", "}"), " "), ",", ", "), field(`help: "`, `", `)))
	}
	slices.Sort(rows)
	return rows, names
}

// documentedRelayer is the configuration of docs/relayer.md.
func documentedRelayer(t *testing.T) string {
	text, err := os.ReadFile("../../docs/relayer.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "```json\n")
	require.True(t, ok)
	block, _, _ := strings.Cut(rest, "```")
	return block
}

// TestDocumentRelayerMetrics keeps docs/relayer-metrics.md equal to the code, and the metrics of docs/relayer.md to those there are.
func TestDocumentRelayerMetrics(t *testing.T) {
	t.Parallel()
	const path = "../../docs/relayer-metrics.md"
	rows, names := relayerMetrics(t)
	text := "# Metrics of the relayer\n\nWhat `/metrics` shows besides [metrics.md](metrics.md) where `relayer.enabled` is true. Labels have bounded values. A name that ends in `_total` is a\n" +
		"counter, one that ends in `_duration_seconds`, `_eta_seconds` or `_shares` a histogram, the rest are gauges. Generated from the code.\n\n" +
		"| name | labels | meaning |\n| --- | --- | --- |\n" + strings.Join(rows, "\n") + "\n"
	if *updateDocs {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err, "run: make docs")
	require.Equal(t, string(written), text, "run: make docs")

	page, err := os.ReadFile("../../docs/relayer.md")
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`\brelayer_[a-z_]+`).FindAllString(string(page), -1) {
		if series := regexp.MustCompile(`_duration_seconds_(count|sum|bucket)$`).FindStringSubmatch(name); series != nil { // of a histogram
			name = strings.TrimSuffix(name, "_"+series[1])
		}
		require.Contains(t, names, name, "docs/relayer.md")
	}
}

// The configuration in docs/relayer.md has no problem and no warning.
func TestDocumentedRelayer(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("relayer.md", []byte(documentedRelayer(t)), nil)
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	require.True(t, c.Relayer.Enabled)
}
