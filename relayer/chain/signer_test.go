package chain

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

const testKey = "b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291"

func write(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	return path
}

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func keystoreFile(t *testing.T, password string) string {
	t.Helper()
	key, err := crypto.HexToECDSA(testKey)
	require.NoError(t, err)
	text, err := keystore.EncryptKey(&keystore.Key{Address: crypto.PubkeyToAddress(key.PublicKey), PrivateKey: key}, password, 2, 1)
	require.NoError(t, err)
	return write(t, 0o644, string(text))
}

func TestLoadSigner(t *testing.T) {
	t.Parallel()
	store := keystoreFile(t, "pass word")
	for name, o := range map[string]SignerOptions{
		"key file":              {KeyFile: write(t, 0o600, testKey)},
		"key file, 0x and line": {KeyFile: write(t, 0o400, "0x"+testKey+"\n")},
		"key variable":          {KeyEnv: "K", LookupEnv: env("K", testKey)},
		"keystore and file":     {Keystore: store, PasswordFile: write(t, 0o600, "pass word\r\n")},
		"keystore and variable": {Keystore: store, PasswordEnv: "P", LookupEnv: env("P", "pass word")},
	} {
		s, err := LoadSigner(o)
		require.NoError(t, err, name)
		require.Equal(t, "0x71562b71999873DB5b286dF957af199Ec94617F7", s.Address().Hex(), name)
	}
	open := write(t, 0o644, testKey)
	for want, o := range map[string]SignerOptions{
		"exactly one of keystore, keyFile and keyEnv":             {},
		"exactly one of keystore, keyFile and keyEnv ":            {KeyFile: open, KeyEnv: "K"},
		"run chmod 600 " + open:                                   {KeyFile: open},
		"does not hold a private key":                             {KeyFile: write(t, 0o600, testKey[:63]+"g")},
		"does not hold a private key: 64 hex digits are expected": {KeyFile: write(t, 0o600, "")},
		"larger than 65536 bytes":                                 {KeyFile: write(t, 0o600, string(make([]byte, maxKeyFile+1)))},
		"no such file":                                            {KeyFile: filepath.Join(t.TempDir(), "none")},
		"variable K is not set":                                   {KeyEnv: "K", LookupEnv: env()},
		"the environment variable K does not hold":                {KeyEnv: "K", LookupEnv: env("K", testKey+"00")},
		"needs exactly one of a password file":                    {Keystore: store},
		"needs exactly one of a password file and":                {Keystore: store, PasswordEnv: "P", PasswordFile: open},
		"variable P is not set":                                   {Keystore: store, PasswordEnv: "P", LookupEnv: env()},
		"the password is wrong":                                   {Keystore: store, PasswordEnv: "P", LookupEnv: env("P", testKey)},
		"can be read by others (mode 0644)":                       {Keystore: store, PasswordFile: open},
		"is not an encrypted key of version 3":                    {Keystore: write(t, 0o600, `{"version":3}`), PasswordEnv: "P", LookupEnv: env("P", "x")},
	} {
		s, err := LoadSigner(o)
		require.Nil(t, s)
		require.ErrorContains(t, err, strings.TrimSpace(want))
		require.NotContains(t, err.Error(), testKey[:20])
	}
}

func TestSignerPrintsNoKey(t *testing.T) {
	t.Parallel()
	s, err := LoadSigner(SignerOptions{KeyEnv: "K", LookupEnv: env("K", testKey)})
	require.NoError(t, err)
	key, _ := hex.DecodeString(testKey)
	inside := struct {
		S *Signer
		V Signer
	}{s, *s}
	text, err := json.Marshal(inside)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		text = append(text, fmt.Sprintf(verb+verb+verb, s, *s, inside)...)
	}
	require.Contains(t, string(text), s.Address().Hex())
	require.NotContains(t, string(text), testKey[:16])
	require.NotContains(t, string(text), fmt.Sprintf("%X", key[:8]))
	require.NotContains(t, string(text), new(big.Int).SetBytes(key).String()[:16])
}

func TestSign(t *testing.T) {
	t.Parallel()
	s, err := LoadSigner(SignerOptions{KeyEnv: "K", LookupEnv: env("K", testKey)})
	require.NoError(t, err)
	to := addr(1)
	tx := &types.DynamicFeeTx{ChainID: big.NewInt(testChain), Nonce: 7, GasTipCap: num(1), GasFeeCap: num(9), Gas: 21000, To: &to, Data: []byte{1}}
	raw, hash, err := s.Sign(tx)
	require.NoError(t, err)
	again, _, err := s.Sign(tx)
	require.NoError(t, err)
	require.Equal(t, raw, again)
	require.Equal(t, crypto.Keccak256Hash(raw), hash)
	var back types.Transaction
	require.NoError(t, back.UnmarshalBinary(raw))
	from, err := types.Sender(types.LatestSignerForChainID(tx.ChainID), &back)
	require.NoError(t, err)
	require.Equal(t, s.Address(), from)
	require.EqualValues(t, 7, back.Nonce())
	_, _, err = s.Sign(&types.DynamicFeeTx{})
	require.ErrorContains(t, err, "chain id is missing")
}
