package jsonrpc

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// InexactNumberError names a number whose value its canonical form would change.
type InexactNumberError struct {
	Pointer string // where the number is, as a JSON pointer (RFC 6901) into the value that was checked
	Number  string // the number as sent, of any length
}

// Error implements error. The text is meant for the sender and is bounded.
func (e *InexactNumberError) Error() string {
	number, pointer := e.Number, e.Pointer
	if len(number) > maxQuoted {
		number = number[:maxQuoted] + "…"
	}
	const maxPointer = 100
	if len(pointer) > maxPointer {
		pointer = quoteShort(pointer)
	}
	return fmt.Sprintf("the number %s at %s cannot be signed exactly, because its canonical form (RFC 8785) has another value: send it as a string", number, pointer)
}

// CheckExactNumbers returns an *InexactNumberError for the first number in v that its RFC 8785 canonical form changes in
// value: the signature would hold for another number as well (protocol §1). 1.0, 1e3 and 0.1 pass, 9007199254740993, 1e400 and
// 3.141592653589793238462643383279 do not. v must be JSON; if it is not, the error may be of another type, or nil.
func CheckExactNumbers(v jsontext.Value) error {
	for i := 0; i < len(v); i++ {
		switch b := v[i]; {
		case b == '"':
			i = stringEnd(v, i)
		case b == '-' || '0' <= b && b <= '9':
			n, ok := parseNumber(v[i:])
			if !ok {
				return fmt.Errorf("invalid number at byte %d", i)
			}
			if !n.exact() {
				return &InexactNumberError{Pointer: pointerAt(v, i), Number: string(n.text)}
			}
			i += len(n.text) - 1
		}
	}
	return nil
}

// exact reports whether the canonical form of n has n's value.
func (n *number) exact() bool {
	if len(n.whole)+len(n.fraction) <= safeDigits && len(n.exponent) <= 2 { // far inside a double's range
		return true
	}
	var space [2][64]byte
	canonical, ok := parseNumber(n.appendRFC8785(space[0][:0]))
	return ok && bytes.Equal(n.appendExact(space[1][:0]), canonical.appendExact(make([]byte, 0, 64)))
}

// pointerAt returns the JSON pointer of the value that starts at v[offset].
func pointerAt(v jsontext.Value, offset int) string {
	r := newObjectReader(v, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	defer r.free()
	for int(r.dec.InputOffset()) <= offset {
		if _, err := r.dec.ReadToken(); err != nil {
			break
		}
	}
	return string(r.dec.StackPointer())
}
