package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the documents that come from the code")

func TestReferenceDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Configuration\n\nOne JSON file. Names match in any case. Absent or 0 means the default; `gateway check` reports every problem at once, and\n" +
		"`gateway check --print` shows what is in effect. **R**: a reload (SIGHUP, `POST /reload` of the admin listener, `gateway reload`) applies it; the others need a restart. An environment variable replaces the file's value;\ninside a list 0 stands for the number of the element, which the file must have.\nGenerated from the code.\n\n" +
		"| member | type | default | | meaning | environment |\n| --- | --- | --- | --- | --- | --- |\n")
	cell := func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ") }
	for _, m := range Reference() {
		marks := ""
		if m.Reloadable {
			marks = "R"
		}
		def := m.Default
		if m.Required {
			def = "required"
		}
		kind := m.Type
		if m.Bounds != "" {
			kind += ", " + m.Bounds
		}
		env := ""
		if m.Env != "" {
			env = "`" + m.Env + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Path, cell(kind), cell(def), marks, cell(m.Doc), env)
	}
	path := "../docs/configuration.md"
	if *updateDocs {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
		return
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, b.String() == string(got), "docs/configuration.md is out of date: run `make docs`")
}
