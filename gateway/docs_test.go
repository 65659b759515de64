package gateway

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the documents that come from the code")

// document compares a file below docs/ with what the code says, or rewrites it.
func document(t *testing.T, name, want string) {
	t.Helper()
	path := "../docs/" + name
	if *updateDocs {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, want == string(got), "docs/%s is out of date: run `make docs`", name)
}

func TestMetricsDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{})
	ch := make(chan *prometheus.Desc, 1000)
	r.srv.metrics.registry.Describe(ch)
	close(ch)
	var rows []string
	for d := range ch {
		// fqName, help and variableLabels have no accessors but String.
		s := d.String()
		field := func(name, end string) string {
			_, rest, _ := strings.Cut(s, name)
			v, _, _ := strings.Cut(rest, end)
			return v
		}
		labels := strings.Trim(field("variableLabels: {", "}"), " ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", field(`fqName: "`, `"`), strings.ReplaceAll(labels, ",", ", "), field(`help: "`, `", `)))
	}
	slices.Sort(rows)
	require.NotEmpty(t, rows)
	document(t, "metrics.md", "# Metrics\n\nWhat `/metrics` on the admin listener says, in Prometheus' text format. Labels have bounded values: the reasons of\n"+
		"[errors.md](errors.md), and the shards and nodes of the configuration. A name that ends in `_total` is a counter,\n"+
		"one that ends in `_duration_seconds` a histogram, the rest are gauges. Generated from the code.\n\n"+
		"| name | labels | meaning |\n| --- | --- | --- |\n"+strings.Join(rows, "\n")+"\n")
}

func TestErrorsDocument(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Errors\n\nEvery refusal is a JSON-RPC error whose `data.reason` is one of these. Decide on the reason; the text is for people.\n" +
		"An error on which the nodes agreed comes with HTTP 200 and the nodes' own code and has no `data.reason` of ours.\nGenerated from the code.\n\n" +
		"| `data.reason` | code | HTTP | meaning |\n| --- | --- | --- | --- |\n")
	for _, reason := range outcomes {
		row, ok := refusals[reason]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s |\n", reason, row.code, row.status, row.meaning)
	}
	b.WriteString("\nAnswers with HTTP 429 and 503 carry `Retry-After` in whole seconds (in a batch: `data.retryAfterMs`). A request refused with `rate_limited`,\n" +
		"`overloaded`, `unavailable` or `draining` before its dispatch has not used up its token: send the same bytes again.\n" +
		"`timeout`, `no_quorum`, `don_unavailable` and a `draining` that says so came after the dispatch: the request may have run, and needs a new\nid and token to be tried again.\n")
	document(t, "errors.md", b.String())
}
