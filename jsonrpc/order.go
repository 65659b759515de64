package jsonrpc

import (
	"cmp"
	"slices"
)

// sortKey is what an object's members are sorted by: eight bytes of the name, and which member that is. It holds no pointers, which
// makes sorting many of them several times as fast.
type sortKey struct {
	chunk  uint64
	member uint32
}

// order returns a key for each member, in the order of the members' names, in which they are not. Equal names are neighbours with equal chunks. The
// result is good until the next call.
func (c *canonicalizer) order(members []member) []sortKey {
	c.keys = slices.Grow(c.keys[:0], 2*len(members))[:2*len(members)]
	keys, spare := c.keys[:len(members)], c.keys[len(members):]
	if len(members) == 2 { // the most common size that is out of order, and so the other way round
		keys[0], keys[1] = sortKey{member: 1}, sortKey{member: 0}
		return keys
	}
	for i := range keys {
		keys[i].member = uint32(i)
	}
	c.orderFrom(members, keys, spare, 0)
	return keys
}

// fewKeys is how many keys are sorted by comparing rather than by counting.
const fewKeys = 128

// orderFrom sorts keys by their names' bytes from offset on; all before is equal. The time is linear in the bytes of the names that
// have to be looked at, so names with a long common start cost a sender more than they cost us.
func (c *canonicalizer) orderFrom(members []member, keys, spare []sortKey, offset int) {
	for i := range keys {
		keys[i].chunk = nameChunk(c.text(members[keys[i].member].name), offset)
	}
	if len(keys) <= fewKeys {
		slices.SortFunc(keys, func(a, b sortKey) int {
			if a.chunk != b.chunk {
				return cmp.Compare(a.chunk, b.chunk)
			}
			return compareUTF16(c.text(members[a.member].name), c.text(members[b.member].name))
		})
		return
	}
	sortByChunk(keys, spare)
	for first := 0; first < len(keys); {
		last, longest := first+1, len(c.text(members[keys[first].member].name))
		for ; last < len(keys) && keys[last].chunk == keys[first].chunk; last++ {
			longest = max(longest, len(c.text(members[keys[last].member].name)))
		}
		switch run := keys[first:last]; {
		case len(run) == 1:
		case longest > offset+8:
			c.orderFrom(members, run, spare[:len(run)], offset+8)
		default: // they differ in nothing but zeros at the end
			slices.SortFunc(run, func(a, b sortKey) int {
				return cmp.Compare(len(c.text(members[a.member].name)), len(c.text(members[b.member].name)))
			})
		}
		first = last
	}
}

// sortByChunk sorts keys by chunk, a byte at a time from the last (a radix sort); bytes in which all keys agree are passed over.
// spare is as long as keys.
func sortByChunk(keys, spare []sortKey) {
	var counts [8][256]uint32
	for _, k := range keys {
		for i := range counts {
			counts[i][byte(k.chunk>>(8*i))]++
		}
	}
	from, to := keys, spare
	for i := range counts {
		count := &counts[i]
		if count[byte(from[0].chunk>>(8*i))] == uint32(len(keys)) {
			continue
		}
		next := uint32(0)
		for b, n := range count {
			count[b], next = next, next+n
		}
		for _, k := range from {
			b := byte(k.chunk >> (8 * i))
			to[count[b]] = k
			count[b]++
		}
		from, to = to, from
	}
	if &from[0] != &keys[0] {
		copy(keys, from)
	}
}

// nameChunk is the eight bytes of a name from offset on, zeros after its end, as a number in whose order compareUTF16 puts names that
// are equal before.
func nameChunk(name []byte, offset int) (p uint64) {
	for i := offset; i < offset+8; i++ {
		p <<= 8
		if i < len(name) {
			b := name[i]
			switch {
			case b >= 0xF0: // beyond U+FFFF: before U+E000 to U+FFFF, which start with EE and EF
				b -= 2
			case b >= 0xEE:
				b += 8
			}
			p |= uint64(b)
		}
	}
	return p
}

// compareUTF16 orders names by their UTF-16 code units (RFC 8785 §3.2.3). That is the order of their UTF-8 bytes, save that
// characters beyond U+FFFF, which start with a surrogate in UTF-16, come before U+E000 to U+FFFF.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return cmp.Compare(len(a), len(b))
	}
	return cmp.Compare(utf16Rank(a[i]), utf16Rank(b[i]))
}

// utf16Rank ranks the first differing byte of two valid UTF-8 texts. Continuation bytes never meet leading ones there,
// because all before them is equal.
func utf16Rank(b byte) int {
	switch {
	case b >= 0xF0: // beyond U+FFFF: right before U+E000
		return 0xEE<<8 - 0x100 + int(b)
	default:
		return int(b) << 8
	}
}
