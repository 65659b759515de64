package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dongate/jsonrpc"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
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

// keyFromHex returns the signer of a private key in hex.
func keyFromHex(tb testing.TB, s string) Signer {
	tb.Helper()
	key, err := crypto.HexToECDSA(strings.TrimPrefix(s, "0x"))
	require.NoError(tb, err)
	return NewKeySigner(key)
}

type tokenVector struct {
	Name, PrivateKey, Address, Request, Token string
	IAT, EXP                                  int64
	JTI, Digest                               string
}

// conformance: 3.vectors
// conformance: 3.signature.message
// conformance: 3.signer.recovered
func TestTokenVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadVectors[tokenVector](t, "request_jwt.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			token, err := ParseToken(v.Token, time.Unix(v.IAT+1, 0), 5*time.Minute)
			require.NoError(t, err)
			require.Equal(t, v.Digest, token.Digest)
			require.Equal(t, v.JTI, token.ID)
			require.Equal(t, v.Address, token.Issuer)
			require.Equal(t, v.IAT, token.IssuedAt.Unix())
			require.Equal(t, v.EXP, token.Expires.Unix())

			r, err := jsonrpc.DecodeRequest([]byte(v.Request))
			require.NoError(t, err)
			digest, err := r.Digest()
			require.NoError(t, err)
			require.NoError(t, token.CheckDigest(digest))
			signer, err := token.Signer()
			require.NoError(t, err)
			require.Equal(t, v.Address, signer.Hex())

			// Made again with the same values it is the same token: our own client writes what the public one writes.
			again, err := NewToken(keyFromHex(t, v.PrivateKey), digest, TokenOptions{Now: time.Unix(v.IAT, 0), ID: v.JTI, Issuer: true})
			require.NoError(t, err)
			require.Equal(t, v.Token, again)
		})
	}
}

// conformance: 4.handshake.vectors
func TestHandshakeVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name, PrivateKey, Address, DONID, GatewayID string
		Timestamp                                   uint32
		AuthorizationHeader, ChallengeHeader        string
		ChallengeResponseHex                        string
	}
	for _, v := range loadVectors[vector](t, "handshake.json") {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			s := keyFromHex(t, v.PrivateKey)
			header, err := NewAuthHeader(s, v.Timestamp, v.DONID, v.GatewayID)
			require.NoError(t, err)
			require.Equal(t, v.AuthorizationHeader, header)
			h, err := ParseAuthHeader(v.AuthorizationHeader)
			require.NoError(t, err)
			require.Equal(t, &AuthHeader{Timestamp: v.Timestamp, DONID: v.DONID, GatewayID: v.GatewayID, Signer: s.Address()}, h)
			require.Equal(t, v.Address, strings.ToLower(h.Signer.Hex()))

			want, err := base64.StdEncoding.DecodeString(v.ChallengeHeader)
			require.NoError(t, err)
			challenge, err := NewChallenge(h.Timestamp, h.GatewayID, want[len(want)-32:])
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, challenge))
			ts, id, err := ParseChallenge(challenge)
			require.NoError(t, err)
			require.Equal(t, v.Timestamp, ts)
			require.Equal(t, v.GatewayID, id)

			response, err := s.SignPersonal(challenge)
			require.NoError(t, err)
			require.Equal(t, v.ChallengeResponseHex, hex.EncodeToString(response))
			signer, err := RecoverPersonal(challenge, response)
			require.NoError(t, err)
			require.Equal(t, s.Address(), signer)
		})
	}
}
