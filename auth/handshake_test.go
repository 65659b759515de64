package auth

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headerBytes returns the signed header of arbitrary field contents, each zero-padded.
func headerBytes(tb testing.TB, donID, gatewayID string) []byte {
	tb.Helper()
	b := []byte{0, 0, 0, 7}
	b = append(b, (donID + strings.Repeat("\x00", DONIDBytes))[:DONIDBytes]...)
	b = append(b, (gatewayID + strings.Repeat("\x00", GatewayIDBytes))[:GatewayIDBytes]...)
	sig, err := NewKeySigner(testKey(tb, 1)).SignPersonal(b)
	require.NoError(tb, err)
	return append(b, sig...)
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// conformance: 4.header.padding
func TestParseAuthHeaderFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, don, gateway string
		ok                 bool
	}{
		{"ordinary", "workflow_1", "gateway-1", true},
		{"one byte each", "d", "g", true},
		{"filled to the last byte", strings.Repeat("d", 64), strings.Repeat("g", 128), true},
		{"one less", strings.Repeat("d", 63), strings.Repeat("g", 127), true},
		{"no text", "\xff\xfe", "\x01", true},
		{"DON all zeros", "", "g", false},
		{"gateway all zeros", "d", "", false},
		{"both all zeros", "", "", false},
		{"DON with junk after zeros", "d\x00x", "g", false},
		{"DON with junk in the last byte", "d" + strings.Repeat("\x00", 62) + "x", "g", false},
		{"gateway with junk after zeros", "d", "g\x00x", false},
		{"gateway with junk in the last byte", "d", "g" + strings.Repeat("\x00", 126) + "x", false},
		{"zeros before the DON", "\x00d", "g", false},
		{"zeros before the gateway", "d", "\x00g", false},
	} {
		h, err := ParseAuthHeader(encode(headerBytes(t, c.don, c.gateway)))
		if !c.ok {
			require.ErrorIs(t, err, ErrHandshake, c.name)
			require.NotErrorIs(t, err, ErrHandshakeEncoding)
			require.Nil(t, h)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, &AuthHeader{Timestamp: 7, DONID: c.don, GatewayID: c.gateway, Signer: NewKeySigner(testKey(t, 1)).Address()}, h)
	}
}

// conformance: 4.header.encoding
// conformance: 4.header.bytes
func TestParseAuthHeaderEncoding(t *testing.T) {
	t.Parallel()
	good := headerBytes(t, "d", "g")
	text := encode(good)
	badSig := bytes.Clone(good)
	copy(badSig[196:], make([]byte, 64))
	badV := bytes.Clone(good)
	badV[260] = 9
	for _, c := range []struct {
		name, header string
		want         error
	}{
		{"good", text, nil},
		{"513 characters", strings.Repeat("A", 513), ErrHandshakeEncoding},
		{"a megabyte", strings.Repeat("A", 1<<20), ErrHandshakeEncoding},
		{"512 characters", strings.Repeat("A", 512), ErrHandshake},
		{"not base64", "!" + text[1:], ErrHandshakeEncoding},
		{"with a scheme", "Bearer " + text, ErrHandshakeEncoding},
		{"line break", text[:8] + "\n" + text[8:], ErrHandshakeEncoding},
		{"padding missing", encode(good[:260])[:347], ErrHandshakeEncoding},
		{"url alphabet", strings.Repeat("_", 348), ErrHandshakeEncoding},
		{"stray bits", encode(good[:259])[:346] + "B=", ErrHandshakeEncoding},
		{"empty", "", ErrHandshake},
		{"260 bytes", encode(good[:260]), ErrHandshake},
		{"262 bytes", encode(append(bytes.Clone(good), 0)), ErrHandshake},
		{"no signature", encode(good[:196]), ErrHandshake},
		{"signature of zeros", encode(badSig), ErrHandshake},
		{"v out of range", encode(badV), ErrHandshake},
		{"all zeros", encode(make([]byte, 261)), ErrHandshake},
	} {
		_, err := ParseAuthHeader(c.header)
		if c.want == nil {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, c.want, c.name)
		require.Less(t, len(err.Error()), 200)
	}
}

// Every byte of the header is under the signature.
func TestAuthHeaderIsSigned(t *testing.T) {
	t.Parallel()
	good := headerBytes(t, strings.Repeat("d", 64), strings.Repeat("g", 128))
	signer := NewKeySigner(testKey(t, 1)).Address()
	for i := range signedHeaderBytes {
		b := bytes.Clone(good)
		b[i] ^= 1
		if h, err := ParseAuthHeader(encode(b)); err == nil {
			require.NotEqual(t, signer, h.Signer, "byte %d", i)
		}
	}
}

// conformance: 4.header.ids
func TestNewAuthHeaderRefuses(t *testing.T) {
	t.Parallel()
	s := NewKeySigner(testKey(t, 1))
	for _, c := range []struct{ don, gateway, says string }{
		{strings.Repeat("d", 65), "g", "DON id has 65 bytes, its field holds 64"},
		{"d", strings.Repeat("g", 129), "gateway id has 129 bytes, its field holds 128"},
		{"", "g", "DON id is empty"},
		{"d", "", "gateway id is empty"},
		{"d\x00", "g", "zero byte"},
		{"d", "g\x00g", "zero byte"},
	} {
		_, err := NewAuthHeader(s, 1, c.don, c.gateway)
		require.ErrorContains(t, err, c.says)
	}
	header, err := NewAuthHeader(s, 1<<32-1, strings.Repeat("d", 64), strings.Repeat("g", 128))
	require.NoError(t, err)
	require.Len(t, header, 348)
	h, err := ParseAuthHeader(header)
	require.NoError(t, err)
	require.EqualValues(t, 1<<32-1, h.Timestamp)
}

// conformance: 4.handshake.challenge
func TestChallenge(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 32, 1024} {
		random := bytes.Repeat([]byte{0xa5}, n)
		for _, id := range []string{"g", strings.Repeat("g", 128)} {
			b, err := NewChallenge(0x01020304, id, random)
			require.NoError(t, err)
			require.Len(t, b, 132+n)
			require.Equal(t, []byte{1, 2, 3, 4}, b[:4])
			require.Equal(t, random, b[132:])
			ts, got, err := ParseChallenge(b)
			require.NoError(t, err)
			require.EqualValues(t, 0x01020304, ts)
			require.Equal(t, id, got)
		}
	}
	for _, c := range []struct {
		id     string
		random int
	}{{"g", 9}, {"g", 1025}, {"g", 0}, {"", 32}, {strings.Repeat("g", 129), 32}, {"g\x00", 32}} {
		_, err := NewChallenge(1, c.id, make([]byte, c.random))
		require.Error(t, err)
	}
	good, err := NewChallenge(1, "g", make([]byte, 32))
	require.NoError(t, err)
	empty, junk := bytes.Clone(good), bytes.Clone(good)
	empty[4], junk[131] = 0, 1
	for _, b := range [][]byte{nil, good[:4], good[:132], good[:141], append(good, make([]byte, 1000)...), empty, junk} {
		_, _, err := ParseChallenge(b)
		require.ErrorIs(t, err, ErrHandshake)
	}
}

func FuzzParseAuthHeader(f *testing.F) {
	f.Add(encode(headerBytes(f, "d", "g")))
	f.Add(encode(headerBytes(f, strings.Repeat("d", 64), strings.Repeat("g", 128))))
	f.Add(encode(headerBytes(f, "d\x00x", "")))
	f.Add("")
	f.Fuzz(func(t *testing.T, header string) {
		h, err := ParseAuthHeader(header)
		if err != nil {
			require.Nil(t, h)
			return
		}
		require.LessOrEqual(t, len(header), MaxAuthHeaderChars)
		// What was read writes the same signed bytes again.
		b, err := base64.StdEncoding.DecodeString(header)
		require.NoError(t, err)
		again, err := NewAuthHeader(NewKeySigner(testKey(t, 1)), h.Timestamp, h.DONID, h.GatewayID)
		require.NoError(t, err)
		b2, err := base64.StdEncoding.DecodeString(again)
		require.NoError(t, err)
		require.Equal(t, b[:signedHeaderBytes], b2[:signedHeaderBytes])
	})
}

func FuzzParseChallenge(f *testing.F) {
	good, err := NewChallenge(1, "g", make([]byte, 32))
	require.NoError(f, err)
	f.Add(good)
	f.Add(good[:140])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		ts, id, err := ParseChallenge(data)
		if err != nil {
			require.ErrorIs(t, err, ErrHandshake)
			return
		}
		again, err := NewChallenge(ts, id, data[challengeOverhead:])
		require.NoError(t, err)
		require.Equal(t, data, again)
	})
}
