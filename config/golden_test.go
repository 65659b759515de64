package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the expected reports in testdata/config")

const testdata = "../testdata/config"

// environOf reads the variables beside a test file, nil when it has none.
func environOf(t *testing.T, file string) []string {
	data, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".env")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run go test -update")
	require.Equal(t, string(want), got)
}

// TestInvalidFiles has one file for each kind of mistake, beside the report
// that an operator reads.
func TestInvalidFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(testdata + "/invalid/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 60)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			c, err := Parse(filepath.Base(file), data, environOf(t, file))
			require.Nil(t, c)
			var problems *Problems
			require.ErrorAs(t, err, &problems)
			require.NotContains(t, err.Error(), "hunter2", "a secret")
			golden(t, strings.TrimSuffix(file, ".json")+".txt", err.Error()+"\n")
		})
	}
}

// TestValidFiles shows the effective configuration and the warnings of each
// file that loads.
func TestValidFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"minimal", "full", "network", "legacy", "warnings"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Load(filepath.Join(testdata, name+".json"), nil)
			require.NoError(t, err)
			golden(t, filepath.Join(testdata, name+".print.txt"), string(c.Print()))
			var warnings strings.Builder
			for _, w := range c.Warnings {
				warnings.WriteString(w.String() + "\n")
			}
			golden(t, filepath.Join(testdata, name+".warnings.txt"), warnings.String())
		})
	}
}
