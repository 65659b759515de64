package fhevm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
)

// ErrABI is wrapped by the errors of everything that decodes what a contract returned or emitted.
var ErrABI = errors.New("malformed contract data")

// words reads ABI-encoded values: 32-byte heads, and tails at offsets from the same start. Nothing read lies outside the data and no
// length is believed before it was compared with what is there. Unlike a general decoder it does not build more than was sent:
// many offsets to one long tail are found out by [words.list].
type words []byte

// word returns the i-th head.
func (w words) word(i int) ([32]byte, error) {
	if i < 0 || i >= len(w)/32 {
		return [32]byte{}, fmt.Errorf("%w: word %d of %d bytes", ErrABI, i, len(w))
	}
	return [32]byte(w[32*i:]), nil
}

// small returns the i-th head as a number below limit.
func (w words) small(i int, limit uint64) (uint64, error) {
	head, err := w.word(i)
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint64(head[24:])
	if [24]byte(head[:24]) != ([24]byte{}) || n >= limit {
		return 0, fmt.Errorf("%w: word %d is out of range", ErrABI, i)
	}
	return n, nil
}

// tail returns what follows the offset in the i-th head.
func (w words) tail(i int) (words, error) {
	at, err := w.small(i, uint64(len(w))+1)
	if err != nil {
		return nil, err
	}
	return w[at:], nil
}

// bytes returns a copy of the byte string that the i-th head points to.
func (w words) bytes(i int) ([]byte, error) {
	tail, err := w.tail(i)
	if err != nil {
		return nil, err
	}
	n, err := tail.small(0, uint64(len(tail)))
	if err != nil || n > uint64(len(tail)-32) {
		return nil, fmt.Errorf("%w: the byte string of word %d is cut off", ErrABI, i)
	}
	return append([]byte{}, tail[32:32+n]...), nil
}

// array returns the heads of the array that the i-th head points to, and their number.
func (w words) array(i int) (words, int, error) {
	tail, err := w.tail(i)
	if err != nil {
		return nil, 0, err
	}
	n, err := tail.small(0, uint64(len(tail)))
	if err != nil || n > uint64(len(tail)-32)/32 {
		return nil, 0, fmt.Errorf("%w: the array of word %d is cut off", ErrABI, i)
	}
	return tail[32:], int(n), nil
}

// list returns the byte strings of the array that the i-th head points to. Together they cannot be longer than the data: they
// would have to overlap, which no encoder does and which would let a small log stand for gigabytes.
func (w words) list(i int) ([][]byte, error) {
	heads, n, err := w.array(i)
	if err != nil {
		return nil, err
	}
	out, total := make([][]byte, n), 0
	for j := range out {
		if out[j], err = heads.bytes(j); err != nil {
			return nil, err
		}
		if total += len(out[j]); total > len(w) {
			return nil, fmt.Errorf("%w: the byte strings of word %d overlap", ErrABI, i)
		}
	}
	return out, nil
}

// hashes returns the 32-byte values of the array that the i-th head points to.
func (w words) hashes(i int) ([][32]byte, error) {
	heads, n, err := w.array(i)
	if err != nil {
		return nil, err
	}
	out := make([][32]byte, n)
	for j := range out {
		out[j] = [32]byte(heads[32*j:])
	}
	return out, nil
}

// DecodeBool decodes what a function returned that returns a bool. The error wraps [ErrABI].
func DecodeBool(returned []byte) (bool, error) {
	n, err := words(returned).small(0, 2)
	return n == 1, err
}

// DecodeUint256 decodes what a function returned that returns a uint256. The error wraps [ErrABI].
func DecodeUint256(returned []byte) (*big.Int, error) {
	head, err := words(returned).word(0)
	if err != nil {
		return nil, err
	}
	return word(head), nil
}

// DecodePair decodes two 32-byte values, such as the context and epoch of getCurrentKmsContextAndEpoch. The error wraps [ErrABI].
func DecodePair(returned []byte) (first, second [32]byte, err error) {
	if first, err = words(returned).word(0); err == nil {
		second, err = words(returned).word(1)
	}
	return first, second, err
}

// DecodeContextAnchor decodes what getKmsContextAnchor returned: the block in which the context was announced. The error wraps
// [ErrABI].
func DecodeContextAnchor(returned []byte) (block uint64, hash common.Hash, err error) {
	if block, err = words(returned).small(0, 1<<63); err != nil {
		return 0, common.Hash{}, err
	}
	second, err := words(returned).word(1)
	return block, second, err
}

// DecodeMulticall decodes what multicall returned: one result for each of n calls. The error wraps [ErrABI].
func DecodeMulticall(returned []byte, n int) ([][]byte, error) {
	out, err := words(returned).list(0)
	if err != nil {
		return nil, err
	}
	if len(out) != n {
		return nil, fmt.Errorf("%w: %d results of %d calls", ErrABI, len(out), n)
	}
	return out, nil
}

// DecodeThreshold decodes what getUserDecryptionThresholdForContext returned: 1 to 2³²−1 shares. The error wraps [ErrABI].
func DecodeThreshold(returned []byte) (int64, error) {
	n, err := words(returned).small(0, 1<<32)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("%w: a threshold of 0 shares", ErrABI)
	}
	return int64(n), nil
}

// AcceptsSignature reports whether what isValidSignature returned means yes (ERC-1271): the function's selector and 28 more bytes.
func AcceptsSignature(returned []byte) bool {
	return len(returned) >= 32 && [4]byte(returned) == FuncValidSignature.selector
}

// ContextID returns the KMS context that extra data names. ok is false for version 0 and for empty extra data, which name none: the
// configured threshold applies then. Another version or too few bytes are an error that wraps [ErrABI]. Bytes past those of the
// version are ignored: a share is worth more than its form.
func ContextID(extraData []byte) (id [32]byte, ok bool, err error) {
	if len(extraData) == 0 || extraData[0] == 0 {
		return id, false, nil
	}
	least := map[byte]int{1: 33, 2: 65}[extraData[0]]
	if least == 0 || len(extraData) < least {
		return id, false, fmt.Errorf("%w: extra data of version %d and %d bytes", ErrABI, extraData[0], len(extraData))
	}
	return [32]byte(extraData[1:]), true, nil
}
