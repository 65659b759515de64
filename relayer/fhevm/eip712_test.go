package fhevm

import (
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/signer/core/apitypes"
	"github.com/stretchr/testify/require"
)

// The figures are the reference's (§6.9).
func TestTypeHashes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0x4ee965201c2f6fd39bb37401a5de0ea2362ef4db8199c112ec67d694006e114e", RequestTypeHash.Hex())
	require.True(t, strings.HasPrefix(DomainTypeHash.Hex(), "0x8b73c3c6"), DomainTypeHash.Hex())
}

// The hash equals that of go-ethereum's general implementation.
func TestSigningHash(t *testing.T) {
	t.Parallel()
	decryption := common.HexToAddress("0x5D8BD78e2ea6bbE41f26dFe9fdaEAa349e077478")
	_, _, _, _, r := samples()
	for _, allowed := range [][]common.Address{nil, {common.HexToAddress(addr1)}, {common.HexToAddress(addr1), common.HexToAddress(addr3)}} {
		r.AllowedContracts = allowed
		list := []any{}
		for _, a := range allowed {
			list = append(list, a.Hex())
		}
		data := apitypes.TypedData{
			Types: apitypes.Types{
				"EIP712Domain": {{Name: "name", Type: "string"}, {Name: "version", Type: "string"}, {Name: "chainId", Type: "uint256"}, {Name: "verifyingContract", Type: "address"}},
				"UserDecryptRequestVerification": {{Name: "userAddress", Type: "address"}, {Name: "publicKey", Type: "bytes"}, {Name: "allowedContracts", Type: "address[]"},
					{Name: "startTimestamp", Type: "uint256"}, {Name: "durationSeconds", Type: "uint256"}, {Name: "extraData", Type: "bytes"}},
			},
			PrimaryType: "UserDecryptRequestVerification",
			Domain:      apitypes.TypedDataDomain{Name: "Decryption", Version: "1", ChainId: math.NewHexOrDecimal256(7), VerifyingContract: decryption.Hex()},
			Message: apitypes.TypedDataMessage{
				"userAddress": r.UserAddress.Hex(), "publicKey": hexutil.Encode(r.PublicKey), "allowedContracts": list,
				"startTimestamp": math.NewHexOrDecimal256(5), "durationSeconds": math.NewHexOrDecimal256(6), "extraData": hexutil.Encode(r.ExtraData),
			},
		}
		want, _, err := apitypes.TypedDataAndHash(data)
		require.NoError(t, err)
		require.Equal(t, common.Hash(want), r.SigningHash(decryption))
	}
	require.NotPanics(t, func() { (&UnifiedUserDecrypt{}).SigningHash(decryption) })
}

func TestSignedByUser(t *testing.T) {
	t.Parallel()
	key, err := crypto.ToECDSA(common.LeftPadBytes([]byte{1}, 32))
	require.NoError(t, err)
	_, _, _, _, r := samples()
	r.UserAddress = crypto.PubkeyToAddress(key.PublicKey)
	hash := r.SigningHash(common.HexToAddress(addr1))
	sig, err := crypto.Sign(hash[:], key)
	require.NoError(t, err)
	with := func(change func(sig []byte) []byte) *UnifiedUserDecrypt {
		other := *r
		other.Signature = change(slices.Clone(sig))
		return &other
	}
	good := with(func(s []byte) []byte { return s })
	require.True(t, good.SignedByUser(hash))
	high := with(func(s []byte) []byte { s[64] += 27; return s })
	kept := slices.Clone(high.Signature)
	require.True(t, high.SignedByUser(hash))
	require.Equal(t, kept, high.Signature, "the signature goes on chain as it came")
	require.False(t, good.SignedByUser(common.Hash{}))
	require.False(t, good.SignedByUser(r.SigningHash(common.HexToAddress(addr2))), "another contract")
	for name, change := range map[string]func([]byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"short":   func(s []byte) []byte { return s[:64] },
		"long":    func(s []byte) []byte { return append(s, 0) },
		"v":       func(s []byte) []byte { s[64] = 2; return s },
		"v again": func(s []byte) []byte { s[64] = 255; return s },
		"zero":    func(s []byte) []byte { return make([]byte, 65) },
		"r":       func(s []byte) []byte { s[0] ^= 1; return s },
	} {
		require.False(t, with(change).SignedByUser(hash), name)
	}
}
