package jsonrpc

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
func loadVectors[T any](tb testing.TB, name string) []T {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", name))
	require.NoError(tb, err)
	var out []T
	require.NoError(tb, json.Unmarshal(data, &out, json.MatchCaseInsensitiveNames(true)))
	require.NotEmpty(tb, out)
	return out
}

type requestVector struct{ Name, Request, Digest, Error string }

// conformance: 1.digest.request
func TestRequestDigestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors[requestVector](t, "request_digest.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			r, err := DecodeRequest([]byte(v.Request))
			switch v.Error {
			case "":
				require.NoError(t, err)
				d, err := r.Digest()
				require.NoError(t, err)
				require.Equal(t, v.Digest, hex.EncodeToString(d[:]))
			case "decode":
				require.IsType(t, &DecodeError{}, err)
			case "digest":
				require.IsType(t, &DecodeError{}, err)
				// The digest does not rely on that: a request made elsewhere has none either.
				var raw struct {
					Params jsontext.Value `json:"params"`
				}
				require.NoError(t, json.Unmarshal([]byte(v.Request), &raw, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)))
				_, err = (&Request{ID: "req-1", Method: "m", Params: raw.Params}).Digest()
				require.ErrorIs(t, err, ErrCanonical)
			default:
				t.Fatalf("unknown kind of refusal %q", v.Error)
			}
		})
	}
}

// conformance: 1.digest.response
func TestResponseDigestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors[struct{ Name, Response, Digest string }](t, "response_digest.json") {
		r, err := DecodeResponse([]byte(v.Response))
		require.NoError(t, err, v.Name)
		d, err := r.Digest()
		require.NoError(t, err, v.Name)
		require.Equal(t, v.Digest, hex.EncodeToString(d[:]), v.Name)
	}
}
