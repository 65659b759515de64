package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxFileBytes bounds a configuration file. The largest sensible one, a
	// thousand shards of a hundred nodes, is under 10 MiB.
	maxFileBytes = 16 << 20
	// maxTreeDepth bounds nesting, so that reading can be recursive. The
	// documented structure is nine levels deep.
	maxTreeDepth = 64
	// maxTreeValues bounds what a small file of many tiny values can make us
	// hold.
	maxTreeValues = 500_000
)

// node is one JSON value that knows where it was written.
type node struct {
	kind    jsontext.Kind // '{' '[' '"' '0' 't' 'f' 'n'
	pos     int           // byte offset of its first character
	raw     []byte        // its text, aliasing the file
	text    string        // a string's content
	members []member      // of an object, in the order of the file
	items   []*node       // of an array
	env     string        // the variable it comes from, "" for the file
}

// member is one name and value of an object; duplicates are kept.
type member struct {
	name  string
	pos   int
	value *node
}

// syntaxError is why a file is no JSON text at all.
type syntaxError struct {
	pos  int
	text string
}

func (e *syntaxError) Error() string { return e.text }

// parseTree reads exactly one JSON value. Errors are *syntaxError.
func parseTree(data []byte) (*node, error) {
	if err := checkEncoding(data); err != nil {
		return nil, err
	}
	p := treeParser{data: data, dec: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))}
	root, err := p.value(1)
	if err != nil {
		return nil, p.explain(err)
	}
	end := int(p.dec.InputOffset())
	if rest := bytes.TrimLeft(data[end:], " \t\r\n"); len(rest) > 0 {
		return nil, &syntaxError{len(data) - len(rest), "the configuration ends before this: remove what follows it, or the closing bracket that is one too many"}
	}
	return root, nil
}

func checkEncoding(data []byte) error {
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return &syntaxError{0, "the file starts with a UTF-8 byte order mark: save it as UTF-8 without one"}
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return &syntaxError{0, "the file is UTF-16: save it as UTF-8"}
	case len(bytes.TrimSpace(data)) == 0:
		return &syntaxError{0, "the file is empty: write one JSON object"}
	case utf8.Valid(data):
		return nil
	}
	pos := 0
	for {
		r, size := utf8.DecodeRune(data[pos:])
		if r == utf8.RuneError && size == 1 {
			return &syntaxError{pos, fmt.Sprintf("byte 0x%02x is not valid UTF-8: save the file as UTF-8", data[pos])}
		}
		pos += size
	}
}

type treeParser struct {
	data   []byte
	dec    *jsontext.Decoder
	values int
}

func (p *treeParser) value(depth int) (*node, error) {
	p.values++
	kind := p.dec.PeekKind()
	if depth > maxTreeDepth || p.values > maxTreeValues {
		pos := p.next()
		if depth > maxTreeDepth {
			return nil, &syntaxError{pos, fmt.Sprintf("nested deeper than %d levels", maxTreeDepth)}
		}
		return nil, &syntaxError{pos, fmt.Sprintf("more than %d values in one file", maxTreeValues)}
	}
	switch kind {
	case '{', '[':
		return p.container(kind, depth)
	}
	raw, pos, err := p.scalar()
	if err != nil {
		return nil, err
	}
	n := &node{kind: kind, pos: pos, raw: raw}
	if kind == '"' {
		n.text = unquote(raw)
	}
	return n, nil
}

func (p *treeParser) container(kind jsontext.Kind, depth int) (*node, error) {
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, err
	}
	n := &node{kind: kind, pos: int(p.dec.InputOffset()) - 1}
	end := jsontext.Kind(']')
	if kind == '{' {
		end = '}'
	}
	for p.dec.PeekKind() != end {
		if kind == '[' {
			item, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
			continue
		}
		name, pos, err := p.scalar()
		if err != nil {
			return nil, err
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.members = append(n.members, member{unquote(name), pos, value})
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, err
	}
	n.raw = p.data[n.pos:p.dec.InputOffset()]
	return n, nil
}

// scalar reads a name or a value that has no parts.
func (p *treeParser) scalar() (raw []byte, pos int, err error) {
	value, err := p.dec.ReadValue()
	if err != nil {
		return nil, 0, err
	}
	end := int(p.dec.InputOffset())
	pos = end - len(value)
	return p.data[pos:end], pos, nil
}

// next is where the next token starts.
func (p *treeParser) next() int {
	pos := int(p.dec.InputOffset())
	for pos < len(p.data) && strings.IndexByte(" \t\r\n:,", p.data[pos]) >= 0 {
		pos++
	}
	return pos
}

// explain turns the decoder's error into one with a position and, for the
// usual slips, the remedy.
func (p *treeParser) explain(err error) error {
	if own := (*syntaxError)(nil); errors.As(err, &own) {
		return own
	}
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		if errors.Is(err, io.EOF) {
			return &syntaxError{len(p.data), "the file ends too early: a closing bracket or quote is missing"}
		}
		return &syntaxError{p.next(), "not JSON: " + err.Error()}
	}
	pos := min(int(syntactic.ByteOffset), len(p.data))
	if pos == len(p.data) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &syntaxError{pos, "the file ends too early: a closing bracket or quote is missing"}
	}
	rest := p.data[pos:]
	before := bytes.TrimRight(p.data[:pos], " \t\r\n")
	text := "not JSON: " + syntactic.Err.Error()
	switch {
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), rest[0] == '#':
		text = "JSON has no comments: remove this one"
	case (rest[0] == '}' || rest[0] == ']') && bytes.HasSuffix(before, []byte(",")), isTrailingComma(rest):
		text = "a comma before a closing bracket: remove it"
	case rest[0] < ' ' && bytes.ContainsAny(rest[:1], "\t\r\n"):
		text = "a line break or tab inside a text: write it as \\n or \\t, or close the quotes before it"
	case rest[0] == '\'':
		text = "text goes in double quotes, not single ones"
	}
	return &syntaxError{pos, text}
}

func isTrailingComma(rest []byte) bool {
	if rest[0] != ',' {
		return false
	}
	rest = bytes.TrimLeft(rest[1:], " \t\r\n")
	return len(rest) > 0 && (rest[0] == '}' || rest[0] == ']')
}

// unquote returns the content of a JSON string that the decoder has accepted.
func unquote(raw []byte) string {
	text, _ := jsontext.AppendUnquote(nil, raw)
	return string(text)
}

// lineIndex turns byte offsets into lines and columns.
type lineIndex struct {
	data   []byte
	starts []int
}

func newLineIndex(data []byte) *lineIndex {
	x := &lineIndex{data: data, starts: []int{0}}
	for i, c := range data {
		if c == '\n' {
			x.starts = append(x.starts, i+1)
		}
	}
	return x
}

// at returns the 1-based line and the 1-based column, counted in code points.
func (x *lineIndex) at(pos int) (line, column int) {
	line = sort.SearchInts(x.starts, pos+1)
	return line, utf8.RuneCount(x.data[x.starts[line-1]:pos]) + 1
}
