package storage

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Bounds of what one call may ask for or store.
const (
	MaxPage    = 1000    // rows of a page
	MaxPayload = 4 << 20 // bytes of one value
)

// Errors of the guards.
var (
	ErrPageSize    = errors.New("storage: page size out of bounds")
	ErrPayloadSize = errors.New("storage: payload too large")
)

// CheckPage returns ErrPageSize unless rows is from 1 to MaxPage: a page without a bound reads a whole table into memory.
func CheckPage(rows int) error {
	if rows < 1 || rows > MaxPage {
		return fmt.Errorf("%w: %d rows, ask for 1 to %d", ErrPageSize, rows, MaxPage)
	}
	return nil
}

// CheckPayload returns ErrPayloadSize when the value, which is called name in the error, has more than MaxPayload bytes.
func CheckPayload(name string, value []byte) error {
	if len(value) > MaxPayload {
		return fmt.Errorf("%w: %s has %d bytes, at most %d are stored", ErrPayloadSize, name, len(value), MaxPayload)
	}
	return nil
}

// chunkParams is how many parameters of a statement Chunks fills. Either backend takes many more, but SQLite's time grows with the square of
// their number: 0.25 ms for 100, 4 ms for 1000, 3 s for 30 000.
const chunkParams = 500

// Chunks splits the values of an IN list, or the rows of an insert, into parts for a statement each. params is the number of parameters
// that one value takes; a part has 500 in all, or is one value. No values give no part.
func Chunks[T any](values []T, params int) iter.Seq[[]T] {
	return slices.Chunk(values, max(1, chunkParams/max(1, params)))
}
