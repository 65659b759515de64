package fhevm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyURLs(t *testing.T) {
	t.Parallel()
	id, hexID := [32]byte{31: 0xab}, strings.Repeat("00", 31)+"ab"
	require.Equal(t, "https://s/b/p/PublicKey/"+hexID, MaterialURL("https://s/b/", "p", MaterialPublicKey, id))
	require.Equal(t, "https://s/b/p/CRS/"+hexID, MaterialURL("https://s/b", "p", MaterialCRS, id))
	r := KeyURLs(KeyMaterial{id, []string{"https://k"}}, KeyMaterial{[32]byte{}, nil})
	require.Equal(t, 200, r.Status)
	require.Zero(t, r.RetryAfter)
	require.Equal(t, `{"status":"succeeded","response":{"fheKeyInfo":[{"fhePublicKey":{"dataId":"0x`+hexID+`","urls":["https://k"]}}],"crs":{"2048":{"dataId":"0x`+strings.Repeat("00", 32)+`","urls":[]}}}}`, string(r.Body))
}
