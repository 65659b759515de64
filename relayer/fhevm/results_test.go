package fhevm

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
)

func TestDecodeResults(t *testing.T) {
	t.Parallel()
	word := func(v int64) []byte { return common.LeftPadBytes(big.NewInt(v).Bytes(), 32) }
	high := append([]byte{1}, make([]byte, 31)...)

	for _, c := range []struct {
		in   []byte
		want bool
		ok   bool
	}{{word(1), true, true}, {word(0), false, true}, {word(2), false, false}, {high, false, false}, {nil, false, false}, {word(1)[:31], false, false}} {
		got, err := DecodeBool(c.in)
		require.Equal(t, c.want, got)
		require.Equal(t, c.ok, err == nil, "%x", c.in)
		if err != nil {
			require.ErrorIs(t, err, ErrABI)
		}
	}

	n, err := DecodeUint256(high)
	require.NoError(t, err)
	require.Equal(t, new(big.Int).Lsh(big.NewInt(1), 248), n)
	_, err = DecodeUint256(high[:31])
	require.ErrorIs(t, err, ErrABI)

	first, second, err := DecodePair(slices.Concat(word(3), word(4)))
	require.NoError(t, err)
	require.Equal(t, [][32]byte{{31: 3}, {31: 4}}, [][32]byte{first, second})
	_, _, err = DecodePair(word(3))
	require.ErrorIs(t, err, ErrABI)

	block, hash, err := DecodeContextAnchor(slices.Concat(word(3), word(4)))
	require.NoError(t, err)
	require.EqualValues(t, 3, block)
	require.Equal(t, common.Hash{31: 4}, hash)
	for _, in := range [][]byte{nil, word(3), slices.Concat(high, word(4))} {
		_, _, err = DecodeContextAnchor(in)
		require.ErrorIs(t, err, ErrABI)
	}

	calls, err := DecodeMulticall(pack(t, "bytes[]", [][]byte{word(1), {}, {7}}), 3)
	require.NoError(t, err)
	require.Equal(t, [][]byte{word(1), {}, {7}}, calls)
	_, err = DecodeMulticall(pack(t, "bytes[]", [][]byte{{1}}), 2)
	require.ErrorIs(t, err, ErrABI, "a result for each call")
	_, err = DecodeMulticall(nil, 0)
	require.ErrorIs(t, err, ErrABI)

	for _, c := range []struct {
		in   []byte
		want int64
	}{{word(9), 9}, {word(1), 1}, {word(1<<32 - 1), 1<<32 - 1}, {word(0), 0}, {word(1 << 32), 0}, {high, 0}, {nil, 0}} {
		got, err := DecodeThreshold(c.in)
		require.Equal(t, c.want, got)
		require.Equal(t, c.want == 0, err != nil, "%x: 0 is refused", c.in)
	}

	magic := append([]byte{0x16, 0x26, 0xba, 0x7e}, make([]byte, 28)...)
	require.True(t, AcceptsSignature(magic))
	require.True(t, AcceptsSignature(append(slices.Clone(magic), 1)))
	for _, in := range [][]byte{nil, magic[:31], magic[:4], word(1), make([]byte, 32)} {
		require.False(t, AcceptsSignature(in), "%x", in)
	}
}

func TestContextID(t *testing.T) {
	t.Parallel()
	id := [32]byte{7, 31: 1}
	v1 := append([]byte{1}, id[:]...)
	v2 := append(append([]byte{2}, id[:]...), make([]byte, 32)...)
	for _, in := range [][]byte{nil, {}, {0}, {0, 1, 2}} {
		_, ok, err := ContextID(in)
		require.NoError(t, err)
		require.False(t, ok, "%x: the configured threshold", in)
	}
	for _, in := range [][]byte{v1, v2, append(slices.Clone(v1), 9)} {
		got, ok, err := ContextID(in)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, id, got)
	}
	for _, in := range [][]byte{{1}, v1[:32], {2}, v2[:64], append([]byte{3}, id[:]...), {255}} {
		_, ok, err := ContextID(in)
		require.ErrorIs(t, err, ErrABI, "%x", in)
		require.False(t, ok)
	}
}

// The figures are the reference's (§6.5, §6.6).
func TestDecodeRevert(t *testing.T) {
	t.Parallel()
	figures := map[string]struct {
		name  string
		cause Cause
		retry bool
	}{
		"d93c0665": {"EnforcedPause", CauseProtocolPaused, false},
		"e450d38c": {"ERC20InsufficientBalance", CauseInsufficientBalance, false},
		"fb8f41b2": {"ERC20InsufficientAllowance", CauseInsufficientAllowance, false},
		"2a873d27": {"InvalidUserSignature", CauseInvalidSignature, false},
		"f645eedf": {"ECDSAInvalidSignature", CauseInvalidSignature, false},
		"fce698f7": {"ECDSAInvalidSignatureLength", CauseInvalidSignature, false},
		"d78bce0c": {"ECDSAInvalidSignatureS", CauseInvalidSignature, false},
		"0666cbdf": {"CiphertextMaterialNotFound", CauseReverted, true},
	}
	require.Len(t, ContractErrors, len(figures))
	for selector, want := range figures {
		for _, tail := range []string{"", strings.Repeat("00", 96)} {
			require.Equal(t, Revert{want.cause, want.retry, "execution reverted: " + want.name}, DecodeRevert(common.FromHex(selector+tail)), selector)
		}
	}
	for _, e := range ContractErrors {
		require.Contains(t, figures, common.Bytes2Hex(e.Selector[:]), e.Signature)
	}

	text := func(s string) []byte { return append(common.FromHex("08c379a0"), pack(t, "string", s)...) }
	for _, c := range []struct {
		data   []byte
		reason string
	}{
		{nil, "execution reverted without a reason"},
		{[]byte{1, 2, 3}, "execution reverted without a reason"},
		{text("no such handle"), "execution reverted: no such handle"},
		{text("paused d93c0665"), "execution reverted: paused d93c0665"}, // hex in a text classifies nothing
		{text("a\nb\x00\xffc\u202e"), "execution reverted: a?b??c?"},
		{text(strings.Repeat("x", 10_000)), "execution reverted: " + strings.Repeat("x", 256) + "…"},
		{append(common.FromHex("4e487b71"), common.LeftPadBytes([]byte{0x11}, 32)...), "execution reverted: arithmetic underflow or overflow"},
		{common.FromHex("08c379a0"), "execution reverted with error 0x08c379a0"},
		{common.FromHex("0xdeadbeef00"), "execution reverted with error 0xdeadbeef"},
		{common.FromHex("0xdeadbeefd93c0665"), "execution reverted with error 0xdeadbeef"},
	} {
		require.Equal(t, Revert{CauseReverted, false, c.reason}, DecodeRevert(c.data))
	}
}

// FuzzDecodeResults checks that nothing a contract returns or reverts with makes a decoder panic.
func FuzzDecodeResults(f *testing.F) {
	f.Add(pack(f, "bytes[]", [][]byte{{1}, {}}))
	f.Add(append(common.FromHex("08c379a0"), pack(f, "string", "why")...))
	f.Add(append(common.FromHex("4e487b71"), make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := DecodeRevert(data)
		require.NotEmpty(t, r.Reason)
		require.Less(t, len(r.Reason), 1200)
		require.Contains(t, Causes, r.Cause)
		if list, err := DecodeMulticall(data, 2); err == nil {
			require.LessOrEqual(t, len(list[0])+len(list[1]), len(data))
		}
		if n, err := DecodeThreshold(data); err == nil {
			require.Positive(t, n)
		}
		_, _ = DecodeBool(data)
		_, _ = DecodeUint256(data)
		_, _, _ = DecodePair(data)
		_, _, _ = DecodeContextAnchor(data)
		_, _, _ = ContextID(data)
		AcceptsSignature(data)
	})
}
