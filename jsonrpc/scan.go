package jsonrpc

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// objectReader reads the members of one JSON object that is all of data. It wraps jsontext's decoder, which checks syntax,
// UTF-8 and repeated names, and is pooled because that decoder is large.
type objectReader struct {
	data []byte
	buf  bytes.Buffer
	dec  jsontext.Decoder
}

var readers = sync.Pool{New: func() any { return new(objectReader) }}

func newObjectReader(data []byte, opts ...jsontext.Options) *objectReader {
	r := readers.Get().(*objectReader)
	r.data = data
	// The decoder reads straight from a bytes.Buffer's memory, so nothing is copied.
	r.buf = *bytes.NewBuffer(data)
	r.dec.Reset(&r.buf, opts...)
	return r
}

func (r *objectReader) free() {
	r.data, r.buf = nil, bytes.Buffer{}
	r.dec.Reset(&r.buf)
	readers.Put(r)
}

// open reads the object's start. ok is false when data is another kind of JSON value, which is then checked to its end.
func (r *objectReader) open() (ok bool, err error) {
	if r.dec.PeekKind() != '{' {
		if _, err := r.dec.ReadValue(); err != nil {
			return false, eofAsUnexpected(err)
		}
		return false, r.end()
	}
	_, err = r.dec.ReadToken()
	return true, err
}

// next reads one member. name is nil after the last one, when data has also been checked to its end. Both slices are
// pieces of data; name is unquoted.
func (r *objectReader) next() (name, value []byte, err error) {
	if r.dec.PeekKind() == '}' {
		if _, err := r.dec.ReadToken(); err != nil {
			return nil, nil, err
		}
		return nil, nil, r.end()
	}
	if name, err = r.piece(); err != nil {
		return nil, nil, err
	}
	if value, err = r.piece(); err != nil {
		return nil, nil, err
	}
	return unquote(name), value, nil
}

// piece reads one value and returns it as a slice of data: what the decoder returns is only valid until its next call.
func (r *objectReader) piece() ([]byte, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, eofAsUnexpected(err)
	}
	end := int(r.dec.InputOffset())
	return r.data[end-len(v) : end : end], nil
}

// end checks that nothing but white space follows.
func (r *objectReader) end() error {
	end := r.dec.InputOffset()
	switch _, err := r.dec.ReadToken(); err {
	case io.EOF:
		return nil
	default:
		return &trailingError{offset: end}
	}
}

type trailingError struct{ offset int64 }

func (e *trailingError) Error() string {
	return fmt.Sprintf("data follows the JSON value that ends at byte %d", e.offset)
}

func eofAsUnexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// unquote returns the text of a valid JSON string, without copying where it has no escapes. What is not a valid string, which a
// lenient reader lets through, gives an empty non-nil text.
func unquote(raw []byte) []byte {
	if len(raw) >= 2 && bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, err := jsontext.AppendUnquote([]byte{}, raw)
	if err != nil {
		return []byte{}
	}
	return text
}

// scanDepth returns how many levels of objects and arrays data has at its deepest place, and whether every one of them is
// closed. It looks at brackets outside strings alone, so it is exact for JSON and harmless for anything else, and it
// must come before a parser because that would hold state for each level.
func scanDepth(data []byte) (deepest int, closed bool) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			i = stringEnd(data, i)
		}
	}
	return deepest, depth == 0
}

// stringEnd returns the index of the quote that ends the string starting at data[start], or len(data).
func stringEnd(data []byte, start int) int {
	for i := start + 1; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(data)
}

// isJSON reports whether data is one JSON value of valid UTF-8 without lone surrogates, whatever its names and depth.
// Beyond the depth that the parser can follow, brackets alone decide.
func isJSON(data []byte) bool {
	const parserDepth = 10_000
	deepest, closed := scanDepth(data)
	if !closed || !utf8.Valid(data) {
		return false
	}
	return deepest > parserDepth || jsontext.Value(data).IsValid(jsontext.AllowDuplicateNames(true))
}

// describeKind names the JSON type of v for an error text.
func describeKind(v jsontext.Value) string {
	switch v.Kind() {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	default:
		return "not JSON"
	}
}
