package jsonrpc

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// repeatedName returns where a member name starts that an object in data has twice, escapes resolved; -1 if none has. data must
// be valid JSON of at most [MaxDepth] levels. The parser's own search costs several times as much for an object of a
// hundred thousand members, and a sender chooses how many there are.
func repeatedName(data []byte) int {
	f := nameFinders.Get().(*nameFinder)
	defer f.free()
	f.src = data
	return f.find()
}

// nameFinder walks through a text and keeps the names of every object that is open.
type nameFinder struct {
	src    []byte
	refs   []nameRef // innermost object last
	starts []int     // for each open object, where its names start in refs; -1 for an array
	copied []byte    // the unescaped texts of names that have escapes
	table  []uint32  // hash table of one object: positions in refs, plus one
	tags   []uint32  // a part of the hash of each name in table
	seed   maphash.Seed
}

// nameRef is a name and where its string starts in the source.
type nameRef struct {
	textRef
	at uint32
}

var nameFinders = sync.Pool{New: func() any { return &nameFinder{seed: maphash.MakeSeed()} }}

func (f *nameFinder) free() {
	f.src = nil
	if max(cap(f.copied), 16*cap(f.refs), 4*cap(f.table)) > maxPooled {
		return
	}
	nameFinders.Put(f)
}

func (f *nameFinder) find() int {
	f.refs, f.starts, f.copied = f.refs[:0], f.starts[:0], f.copied[:0]
	named := false // the next string is a name
	for i := 0; i < len(f.src); i++ {
		switch f.src[i] {
		case '{':
			f.starts = append(f.starts, len(f.refs))
			named = true
		case '[':
			f.starts = append(f.starts, -1)
			named = false
		case '}', ']':
			last := len(f.starts) - 1
			if first := f.starts[last]; first >= 0 {
				if at := f.repeated(f.refs[first:]); at >= 0 {
					return at
				}
				f.refs = f.refs[:first]
			}
			f.starts = f.starts[:last]
		case ',':
			named = f.starts[len(f.starts)-1] >= 0
		case '"':
			end := stringEnd(f.src, i)
			if named {
				f.refs = append(f.refs, f.name(i, end))
				named = false
			}
			i = end
		}
	}
	return -1
}

// name returns the text of the string between the quotes at start and end.
func (f *nameFinder) name(start, end int) nameRef {
	if bytes.IndexByte(f.src[start+1:end], '\\') < 0 {
		return nameRef{textRef{start: uint32(start + 1), end: uint32(end)}, uint32(start)}
	}
	first := len(f.copied)
	f.copied, _ = jsontext.AppendUnquote(f.copied, f.src[start:end+1])
	return nameRef{textRef{start: uint32(first), end: uint32(len(f.copied)), copied: true}, uint32(start)}
}

func (f *nameFinder) text(r nameRef) []byte {
	if r.copied {
		return f.copied[r.start:r.end]
	}
	return f.src[r.start:r.end]
}

// fewNames is how many names are compared with one another rather than hashed.
const fewNames = 8

// repeated returns where the first of an object's names starts that came before, or -1.
func (f *nameFinder) repeated(names []nameRef) int {
	if len(names) <= fewNames {
		for i := range names {
			for j := range i {
				if bytes.Equal(f.text(names[i]), f.text(names[j])) {
					return int(names[i].at)
				}
			}
		}
		return -1
	}
	// Open addressing at a load of at most one half. The hash is keyed: nobody can send names that meet.
	size := 4
	for size < 2*len(names) {
		size *= 2
	}
	f.table = slices.Grow(f.table[:0], size)[:size]
	f.tags = slices.Grow(f.tags[:0], size)[:size]
	clear(f.table)
	for i, ref := range names {
		text := f.text(ref)
		hash := maphash.Bytes(f.seed, text)
		tag, slot := uint32(hash>>32), int(hash)&(size-1)
		for ; f.table[slot] != 0; slot = (slot + 1) & (size - 1) {
			if f.tags[slot] == tag && bytes.Equal(f.text(names[f.table[slot]-1]), text) {
				return int(ref.at)
			}
		}
		f.table[slot], f.tags[slot] = uint32(i+1), tag
	}
	return -1
}
