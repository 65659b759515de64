package connector

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// conformance: 4.frames.binary
func TestFrameIsOneFinalMaskedFrame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 300), rapid.SampledFrom([]int{125, 126, 65535, 65536, 70001})).Draw(t, "length")
		data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte"), 7, 1}, n/3+1)[:n]
		kept := bytes.Clone(data)
		f := appendFrame([]byte("before"), websocket.BinaryMessage, data)
		require.Equal(t, kept, data, "the message itself is not masked")
		f, ok := bytes.CutPrefix(f, []byte("before"))
		require.True(t, ok)

		// Read back by the letter of RFC 6455 §5.2.
		require.Equal(t, byte(0x82), f[0], "FIN, no reserved bits, binary")
		require.NotZero(t, f[1]&0x80, "MASK")
		length, f := int(f[1]&0x7f), f[2:]
		switch length {
		case 126:
			length, f = int(binary.BigEndian.Uint16(f)), f[2:]
			require.Greater(t, length, 125, "the shortest form")
		case 127:
			length, f = int(binary.BigEndian.Uint64(f)), f[8:]
			require.Greater(t, length, 65535, "the shortest form")
		}
		key, f := f[:4], f[4:]
		require.Equal(t, n, length)
		require.Len(t, f, n)
		for i := range f {
			require.Equal(t, data[i], f[i]^key[i%4])
		}
	})
}
