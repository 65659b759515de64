package connector

import (
	"encoding/binary"
	"math/rand/v2"
)

// appendFrame appends data as one final, masked frame with the given opcode (RFC 6455 §5.2). The library cuts a client's message into
// frames of its write buffer's size, and the protocol wants every message in one frame, whatever its size (protocol §4);
// a frame written with a single call also takes no buffer per connection.
func appendFrame(dst []byte, opcode int, data []byte) []byte {
	const final, masked = 0x80, 0x80
	dst = append(dst, final|byte(opcode))
	switch n := len(data); {
	case n < 126:
		dst = append(dst, masked|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, masked|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, masked|127), uint64(n))
	}
	key := rand.Uint32() // unpredictable: seeded by the system, ChaCha8
	dst = binary.LittleEndian.AppendUint32(dst, key)
	start := len(dst)
	dst = append(dst, data...)
	mask(dst[start:], key)
	return dst
}

// mask applies the masking key, whose first byte on the wire is its lowest, to b.
func mask(b []byte, key uint32) {
	wide := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(key >> (8 * (i & 3)))
	}
}
