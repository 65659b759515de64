package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrCanonical is wrapped by the errors of Digest, VoteDigest and SortMembers: the value has no canonical form, because it is not
// JSON, repeats a name, holds a lone surrogate or is nested deeper than [MaxDepth].
var ErrCanonical = errors.New("the value has no canonical form")

// numberForm says how a canonical text writes numbers. Everything else is the same in all forms: no white space, members
// sorted by the UTF-16 code units of their names, strings escaped as RFC 8785 §3.2.2.2 says.
type numberForm uint8

const (
	numbersRFC8785  numberForm = iota // as the nearest double, RFC 8785 §3.2.2.3
	numbersVerbatim                   // as they came
	numbersExact                      // sign, digits without outer zeros, decimal exponent; see appendExact
)

// canonicalizer writes the canonical text of JSON values in one pass. It is a complete strict parser of its own rather than a
// layer over the library's, because a digest is computed for every request and every node's answer, and votes need numbers in a form that
// the library does not write. The tests hold the common forms to the library's results.
type canonicalizer struct {
	form      numberForm
	src       []byte
	pos       int
	dst       []byte
	depth     int
	members   []member // of the objects that are open, innermost last
	keys      []sortKey
	scratch   []byte // one object's text while it is reordered
	unescaped []byte // one string's text while it is unescaped
	names     []byte // the unescaped texts of names that have escapes
}

// member is one member of an object: where its text lies in dst, and the name it sorts by. An offset fits because maxText bounds
// every text.
type member struct {
	name       textRef
	start, end uint32
}

// textRef is a piece of src, or of names when it had to be unescaped.
type textRef struct {
	start, end uint32
	copied     bool
}

// maxText bounds what is canonicalized, in bytes: no message comes near it.
const maxText = 1 << 30

// maxPooled bounds a buffer that waits in a pool for the next value, in bytes: enough for a message of a megabyte, so that a flood of
// them is not a flood of garbage. Pools let go of what is not used from one garbage collection to the next.
const maxPooled = 8 << 20

var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

func newCanonicalizer(form numberForm) *canonicalizer {
	c := canonicalizers.Get().(*canonicalizer)
	c.form = form
	c.dst = c.dst[:0]
	return c
}

func (c *canonicalizer) free() {
	c.src = nil
	if max(cap(c.dst), cap(c.scratch), cap(c.unescaped), cap(c.names), 20*cap(c.members), 16*cap(c.keys)) > maxPooled {
		return
	}
	canonicalizers.Put(c)
}

// append writes the canonical text of v, which must be one JSON value, to c.dst.
func (c *canonicalizer) append(v []byte) error {
	if len(v) > maxText {
		return fmt.Errorf("%w: it has %d bytes", ErrCanonical, len(v))
	}
	c.src, c.pos, c.depth, c.members, c.names = v, 0, 0, c.members[:0], c.names[:0]
	c.dst = slices.Grow(c.dst, len(v))
	c.space()
	if err := c.value(); err != nil {
		return err
	}
	c.space()
	if c.pos != len(c.src) {
		return c.syntax()
	}
	return nil
}

func (c *canonicalizer) syntax() error {
	return fmt.Errorf("%w: syntax error at byte %d", ErrCanonical, c.pos)
}

func (c *canonicalizer) space() {
	for c.pos < len(c.src) && isSpace(c.src[c.pos]) {
		c.pos++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// take skips white space and reads b if it comes next.
func (c *canonicalizer) take(b byte) bool {
	c.space()
	if c.pos < len(c.src) && c.src[c.pos] == b {
		c.pos++
		return true
	}
	return false
}

func (c *canonicalizer) value() error {
	if c.pos == len(c.src) {
		return c.syntax()
	}
	switch c.src[c.pos] {
	case '{':
		return c.nested((*canonicalizer).object)
	case '[':
		return c.nested((*canonicalizer).array)
	case '"':
		_, err := c.string(false)
		return err
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	default:
		return c.number()
	}
}

func (c *canonicalizer) nested(read func(*canonicalizer) error) error {
	if c.depth++; c.depth > MaxDepth {
		return fmt.Errorf("%w: it is nested deeper than %d levels", ErrCanonical, MaxDepth)
	}
	err := read(c)
	c.depth--
	return err
}

func (c *canonicalizer) literal(text string) error {
	if len(c.src)-c.pos < len(text) || string(c.src[c.pos:c.pos+len(text)]) != text {
		return c.syntax()
	}
	c.pos += len(text)
	c.dst = append(c.dst, text...)
	return nil
}

func (c *canonicalizer) array() error {
	c.pos++
	c.dst = append(c.dst, '[')
	if c.take(']') {
		c.dst = append(c.dst, ']')
		return nil
	}
	for {
		c.space()
		if err := c.value(); err != nil {
			return err
		}
		if c.take(']') {
			c.dst = append(c.dst, ']')
			return nil
		}
		if !c.take(',') {
			return c.syntax()
		}
		c.dst = append(c.dst, ',')
	}
}

func (c *canonicalizer) object() error {
	c.pos++
	c.dst = append(c.dst, '{')
	if c.take('}') {
		c.dst = append(c.dst, '}')
		return nil
	}
	first, sorted := len(c.members), true
	for {
		c.space()
		start := len(c.dst)
		if c.pos == len(c.src) || c.src[c.pos] != '"' {
			return c.syntax()
		}
		name, err := c.string(true)
		if err != nil {
			return err
		}
		if !c.take(':') {
			return c.syntax()
		}
		c.dst = append(c.dst, ':')
		c.space()
		if err := c.value(); err != nil {
			return err
		}
		if n := len(c.members); sorted && n > first {
			sorted = compareUTF16(c.text(c.members[n-1].name), c.text(name)) < 0
		}
		c.members = append(c.members, member{name: name, start: uint32(start), end: uint32(len(c.dst))})
		if c.take('}') {
			break
		}
		if !c.take(',') {
			return c.syntax()
		}
		c.dst = append(c.dst, ',')
	}
	if !sorted {
		if err := c.reorder(c.members[first:]); err != nil {
			return err
		}
	}
	c.members = c.members[:first]
	c.dst = append(c.dst, '}')
	return nil
}

// reorder puts the text of an object's members, which is the end of c.dst, in order.
func (c *canonicalizer) reorder(members []member) error {
	base := members[0].start
	keys := c.order(members)
	for i := 1; i < len(keys); i++ {
		if name := c.text(members[keys[i].member].name); keys[i].chunk == keys[i-1].chunk && bytes.Equal(name, c.text(members[keys[i-1].member].name)) {
			return fmt.Errorf("%w: the member %s is there twice", ErrCanonical, quoteShort(string(name)))
		}
	}
	c.scratch = append(c.scratch[:0], c.dst[base:]...)
	c.dst = c.dst[:base]
	for i, k := range keys {
		if i > 0 {
			c.dst = append(c.dst, ',')
		}
		m := &members[k.member]
		c.dst = append(c.dst, c.scratch[m.start-base:m.end-base]...)
	}
	return nil
}

// text returns the text of a name.
func (c *canonicalizer) text(r textRef) []byte {
	if r.copied {
		return c.names[r.start:r.end]
	}
	return c.src[r.start:r.end]
}

// string reads one string and writes its canonical text. The unquoted text is returned; if the string has escapes, only with
// isName.
func (c *canonicalizer) string(isName bool) (textRef, error) {
	start, ascii := c.pos, true
	i := start + 1
	for ; i < len(c.src); i++ {
		b := c.src[i]
		if b == '"' {
			break
		}
		if b < ' ' || b == '\\' {
			return c.escaped(isName)
		}
		ascii = ascii && b < utf8.RuneSelf
	}
	if i == len(c.src) {
		return textRef{}, c.syntax()
	}
	text := c.src[start+1 : i]
	if !ascii && !utf8.Valid(text) {
		return textRef{}, fmt.Errorf("%w: the string at byte %d is not UTF-8", ErrCanonical, start)
	}
	c.pos = i + 1
	c.dst = append(c.dst, c.src[start:i+1]...)
	return textRef{start: uint32(start + 1), end: uint32(i)}, nil
}

// escaped reads a string that has escapes, or a control character that makes it invalid.
func (c *canonicalizer) escaped(isName bool) (name textRef, err error) {
	end := stringEnd(c.src, c.pos)
	if end == len(c.src) {
		return textRef{}, c.syntax()
	}
	c.unescaped, err = jsontext.AppendUnquote(c.unescaped[:0], c.src[c.pos:end+1])
	if err == nil {
		c.dst, err = jsontext.AppendQuote(c.dst, c.unescaped)
	}
	if err != nil {
		return textRef{}, fmt.Errorf("%w: invalid string at byte %d", ErrCanonical, c.pos)
	}
	c.pos = end + 1
	if isName {
		start := len(c.names)
		c.names = append(c.names, c.unescaped...)
		name = textRef{start: uint32(start), end: uint32(len(c.names)), copied: true}
	}
	return name, nil
}

// SortMembers returns v without white space and with the members of every object in the order of RFC 8785 §3.2.3, numbers
// keeping their digits exactly: the form in which the gateway hands a client's input to nodes (protocol §5). The result shares no
// memory with v. The error wraps [ErrCanonical].
func SortMembers(v jsontext.Value) (jsontext.Value, error) {
	c := newCanonicalizer(numbersVerbatim)
	defer c.free()
	if err := c.append(v); err != nil {
		return nil, err
	}
	return slices.Clone(c.dst), nil
}
