package auth

import (
	"crypto/ecdsa"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/math"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

// testKey returns the n-th test key.
func testKey(tb testing.TB, n byte) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := crypto.ToECDSA(append(make([]byte, 31), n))
	require.NoError(tb, err)
	return key
}

// sig joins r, s and v to a signature.
func sig(r, s *big.Int, v byte) []byte {
	return append(append(math.PaddedBigBytes(r, 32), math.PaddedBigBytes(s, 32)...), v)
}

// conformance: 3.signature.form
// conformance: 3.signature.high-s
func TestRecoverPersonalForms(t *testing.T) {
	t.Parallel()
	order := crypto.S256().Params().N
	msg := []byte("hello")
	for n := byte(1); n <= 16; n++ {
		signer := NewKeySigner(testKey(t, n))
		low, err := signer.SignPersonal(msg)
		require.NoError(t, err)
		r, s, v := new(big.Int).SetBytes(low[:32]), new(big.Int).SetBytes(low[32:64]), low[64]
		high := new(big.Int).Sub(order, s)
		require.Positive(t, high.Cmp(s), "signers make the low form")
		for name, form := range map[string][]byte{
			"low": low, "low, 27": sig(r, s, v+27), "high": sig(r, high, 1-v), "high, 27": sig(r, high, 28-v),
		} {
			before := append([]byte(nil), form...)
			got, err := RecoverPersonal(msg, form)
			require.NoError(t, err, name)
			require.Equal(t, signer.Address(), got, name)
			require.Equal(t, before, form, "the signature is not touched")
		}
		for name, form := range map[string][]byte{"other v": sig(r, s, 1-v), "high s with the low v": sig(r, high, v)} {
			got, err := RecoverPersonal(msg, form)
			if err == nil { // another key's signature, or none
				require.NotEqual(t, signer.Address(), got, name)
			}
		}
		got, err := RecoverPersonal([]byte("hullo"), low)
		if err == nil {
			require.NotEqual(t, signer.Address(), got)
		}
	}
}

// The cases that signature libraries are known to get wrong.
//
// conformance: 3.signature.form
func TestRecoverPersonalRefuses(t *testing.T) {
	t.Parallel()
	curve := crypto.S256().Params()
	msg := []byte("hello")
	z := new(big.Int).SetBytes(personalHash(msg))
	valid, err := NewKeySigner(testKey(t, 7)).SignPersonal(msg)
	require.NoError(t, err)
	r, s, v := new(big.Int).SetBytes(valid[:32]), new(big.Int).SetBytes(valid[32:64]), valid[64]
	zero, n, one := new(big.Int), curve.N, big.NewInt(1)
	all := new(big.Int).Sub(new(big.Int).Lsh(one, 256), one)
	offCurve := big.NewInt(5) // no point of the curve has this x
	require.Nil(t, new(big.Int).ModSqrt(big.NewInt(5*5*5+7), curve.P))

	for name, form := range map[string][]byte{
		"nil": nil, "empty": {}, "one byte": {0}, "64 bytes": valid[:64], "66 bytes": append(append([]byte(nil), valid...), 0), "zeros": make([]byte, 65),
		"r zero": sig(zero, s, v), "s zero": sig(r, zero, v), "both zero": sig(zero, zero, v), "r n": sig(n, s, v), "s n": sig(r, n, v),
		"r above n": sig(new(big.Int).Add(n, one), s, v), "s above n": sig(r, new(big.Int).Add(n, one), v), "r 2^256-1": sig(all, s, v), "s 2^256-1": sig(r, all, v),
		"r p": sig(curve.P, s, v), "no point at r": sig(offCurve, s, v), "no point at r, odd": sig(offCurve, s, 1-v),
		"v 2": sig(r, s, 2), "v 3": sig(r, s, 3), "v 4": sig(r, s, 4), "v 26": sig(r, s, 26), "v 29": sig(r, s, 29), "v 30": sig(r, s, 30), "v 31": sig(r, s, 31),
		"v 35": sig(r, s, 35), "v 37": sig(r, s, 37), "v 128": sig(r, s, 128), "v 227": sig(r, s, 227), "v 255": sig(r, s, 255),
		// With the generator as R and z as s, the key would be the point at infinity.
		"key at infinity": sig(curve.Gx, z, byte(curve.Gy.Bit(0))),
	} {
		got, err := RecoverPersonal(msg, form)
		require.ErrorIs(t, err, ErrSignature, name)
		require.Zero(t, got, name)
	}
	for name, form := range map[string][]byte{"r 1": sig(one, s, 0), "s 1": sig(r, one, v), "s n-1": sig(r, new(big.Int).Sub(n, one), v)} {
		got, err := RecoverPersonal(msg, form)
		require.NoError(t, err, name)
		require.NotEqual(t, crypto.PubkeyToAddress(testKey(t, 7).PublicKey), got, name)
	}
}

// The personal message is prefixed with its length in bytes, so it is no transaction and no other message.
func TestPersonalHash(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// Published examples of personal messages.
		"hello world": "0xd9eba16ed0ecae432b71fe008c98cc872bb4cc214d3220a36f365326cf807d68",
		"":            crypto.Keccak256Hash([]byte("\x19Ethereum Signed Message:\n0")).Hex(),
		"é":           crypto.Keccak256Hash([]byte("\x19Ethereum Signed Message:\n2é")).Hex(),
	} {
		require.Equal(t, want, common.BytesToHash(personalHash([]byte(text))).Hex())
	}
}

// brokenSigner fails, or signs with too few bytes.
type brokenSigner struct {
	Signer
	sig []byte
	err error
}

func (s brokenSigner) SignPersonal([]byte) ([]byte, error) { return s.sig, s.err }

func TestBrokenSigner(t *testing.T) {
	t.Parallel()
	boom := errors.New("no device")
	for _, s := range []brokenSigner{{err: boom}, {sig: make([]byte, 64)}} {
		_, err := NewAuthHeader(s, 1, "d", "g")
		require.Error(t, err)
		_, err = NewToken(s, [32]byte{}, TokenOptions{})
		require.Error(t, err)
	}
}

func BenchmarkRecoverPersonal(b *testing.B) {
	msg := []byte("hello")
	valid, err := NewKeySigner(testKey(b, 1)).SignPersonal(msg)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := RecoverPersonal(msg, valid); err != nil {
			b.Fatal(err)
		}
	}
}
