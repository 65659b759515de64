package workflow

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// loadVectors reads one of the protocol's vector files into a slice of T.
func loadVectors[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", name))
	require.NoError(t, err)
	var out []T
	require.NoError(t, json.Unmarshal(data, &out, json.MatchCaseInsensitiveNames(true)))
	require.NotEmpty(t, out)
	return out
}

// conformance: 2.select.hash
func TestHashNameVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors[struct{ Name, Hash string }](t, "workflow_name.json") {
		require.Equal(t, v.Hash, HashName(v.Name), "name %q", v.Name)
	}
}

// conformance: 5.execution.ids
func TestExecutionIDVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		WorkflowID string `json:"workflowID"`
		RequestID  string `json:"requestID"`
		First      string `json:"executionID"`
		Second     string `json:"executionIDTriggerIndex0"`
	}
	for _, v := range loadVectors[vector](t, "execution_id.json") {
		require.Equal(t, v.First, ExecutionID(v.WorkflowID, v.RequestID))
		require.Equal(t, v.First, ExecutionID(v.WorkflowID[2:], v.RequestID), "without 0x")
		require.Equal(t, v.Second, TriggerExecutionID(v.WorkflowID, v.RequestID))
	}
}

// conformance: 1.digest.metadata
func TestMetadataDigestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors[struct{ Name, Metadata, Digest string }](t, "metadata_digest.json") {
		m, err := DecodeMetadata(jsontext.Value(v.Metadata))
		require.NoError(t, err, v.Name)
		d := m.Digest()
		require.Equal(t, v.Digest, hex.EncodeToString(d[:]), v.Name)

		// The digest itself does not rely on Normalize having sorted the keys, and leaves them where they are.
		var raw Metadata
		require.NoError(t, json.Unmarshal([]byte(v.Metadata), &raw))
		first := raw.AuthorizedKeys[0]
		require.Equal(t, d, raw.Digest(), v.Name)
		require.Equal(t, first, raw.AuthorizedKeys[0], v.Name)
	}
}
