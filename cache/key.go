package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// Key says which requests are the same. It is a SHA-256, so that nobody can make up two requests with one key.
type Key [sha256.Size]byte

// Kinds of parts, the first byte of each in the hashed stream. After it: the length in bytes and the bytes; or the value, zigzag; or nothing; or the
// number of parts that belong to the list, or of names that belong to the map. Lengths and numbers are varints. A reader could take the stream apart
// again, so that different parts give different streams.
const (
	kindBytes  = 'b'
	kindString = 's'
	kindInt    = 'i'
	kindTrue   = 't'
	kindFalse  = 'f'
	kindList   = 'l'
	kindMap    = 'm'
)

// Hasher makes a [Key] from the parts of a request (protocol §7). Each part carries its kind and its length, so that different lists of parts never
// give the same key: ("ab", "c") and ("a", "bc") differ, as do a text and the same bytes, and a list and its elements one by one. It takes parts of any
// length and number. Not for use by several goroutines at once.
type Hasher struct {
	hash hash.Hash
	buf  [256]byte // collects small parts: a call of the hash for each would cost more than hashing them
	n    int
}

// NewHasher returns a Hasher without parts.
func NewHasher() *Hasher { return &Hasher{hash: sha256.New()} }

// Reset forgets all parts, for using the Hasher again without allocating.
func (h *Hasher) Reset() {
	h.hash.Reset()
	h.n = 0
}

// Bytes adds a part. Nil and empty are the same.
func (h *Hasher) Bytes(p []byte) {
	h.head(kindBytes, uint64(len(p)))
	if len(p) > len(h.buf) {
		h.flush()
		h.hash.Write(p)
		return
	}
	addBytes(h, p)
}

// String adds a part.
func (h *Hasher) String(s string) {
	h.head(kindString, uint64(len(s)))
	addBytes(h, s)
}

// Int adds a part.
func (h *Hasher) Int(i int64) {
	h.head(kindInt, uint64(i)<<1^uint64(i>>63))
}

// Bool adds a part.
func (h *Hasher) Bool(b bool) {
	kind := byte(kindFalse)
	if b {
		kind = kindTrue
	}
	addBytes(h, []byte{kind})
}

// Strings adds a list as one part. Its order counts; nil and empty are the same.
func (h *Hasher) Strings(list []string) {
	h.head(kindList, uint64(len(list)))
	for _, s := range list {
		h.String(s)
	}
}

// Map adds a map as one part: names sorted, the order of each name's values kept. A name without values is not the same as no name.
func (h *Hasher) Map(m map[string][]string) {
	h.head(kindMap, uint64(len(m)))
	var few [32]string // on the stack; more names than that are allocated
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h.String(name)
		h.Strings(m[name])
	}
}

// Sum returns the key of the parts so far. More may be added after it, for another key.
func (h *Hasher) Sum() Key {
	h.flush()
	return Key(h.hash.Sum(h.buf[:0]))
}

func (h *Hasher) head(kind byte, n uint64) {
	if len(h.buf)-h.n < 1+binary.MaxVarintLen64 {
		h.flush()
	}
	h.buf[h.n] = kind
	h.n += 1 + binary.PutUvarint(h.buf[h.n+1:], n)
}

func addBytes[T []byte | string](h *Hasher, p T) {
	for len(p) > 0 {
		if h.n == len(h.buf) {
			h.flush()
		}
		n := copy(h.buf[h.n:], p)
		h.n += n
		p = p[n:]
	}
}

func (h *Hasher) flush() {
	h.hash.Write(h.buf[:h.n])
	h.n = 0
}
