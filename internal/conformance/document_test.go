package conformance

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the documents that come from the code")

const (
	root         = "../.."
	documentPath = root + "/docs/conformance.md"
)

// Every rule has a test, every marker a rule, and docs/conformance.md says so.
func TestDocument(t *testing.T) {
	t.Parallel()
	tests, err := Markers(os.DirFS(root))
	require.NoError(t, err)
	sections := Sections()
	require.NoError(t, Check(sections, tests))
	want := Document(sections, tests)
	if *updateDocs {
		require.NoError(t, os.WriteFile(documentPath, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(documentPath)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "docs/conformance.md is out of date: run `make docs`")
}
