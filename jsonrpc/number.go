package jsonrpc

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// number is a JSON number (RFC 8259 §6) taken apart: ±whole.fraction × 10^±exponent. The pieces are digits alone and point
// into the message.
type number struct {
	text     []byte
	negative bool
	whole    []byte
	fraction []byte
	exponent []byte
	expMinus bool
}

// parseNumber reads the number at the start of b. ok is false when none starts there.
func parseNumber(b []byte) (n number, ok bool) {
	i := 0
	if i < len(b) && b[i] == '-' {
		n.negative = true
		i++
	}
	if n.whole, i = digits(b, i); len(n.whole) == 0 || len(n.whole) > 1 && n.whole[0] == '0' {
		return n, false
	}
	if i < len(b) && b[i] == '.' {
		if n.fraction, i = digits(b, i+1); len(n.fraction) == 0 {
			return n, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			n.expMinus = b[i] == '-'
			i++
		}
		if n.exponent, i = digits(b, i); len(n.exponent) == 0 {
			return n, false
		}
	}
	n.text = b[:i]
	return n, true
}

func digits(b []byte, from int) (run []byte, end int) {
	end = from
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	return b[from:end], end
}

// safeDigits is how many decimal digits a double keeps whatever they are (DBL_DIG).
const safeDigits = 15

// short reports whether n has so few digits and so plain a form that its canonical form certainly has its value.
func (n *number) short() bool {
	return n.exponent == nil && len(n.whole)+len(n.fraction) <= safeDigits
}

// appendRFC8785 writes n as RFC 8785 §3.2.2.3 does: as ECMAScript writes the nearest double. What is too large for a double
// becomes the largest one, as the network's own library has it.
func (n *number) appendRFC8785(dst []byte) []byte {
	if n.short() && n.fraction == nil && (!n.negative || n.whole[0] != '0') {
		return append(dst, n.text...)
	}
	f, _ := strconv.ParseFloat(string(n.text), 64) // the error tells of ±Inf alone: the syntax is known to be right
	switch {
	case f == 0:
		return append(dst, '0')
	case math.IsInf(f, 0):
		f = math.Copysign(math.MaxFloat64, f)
	}
	return jsontext.AppendFloat(dst, f, 64)
}

// appendExact writes n so that two numbers have the same text exactly when they have the same value: "-" if negative, the
// digits without outer zeros, "e" and the decimal exponent; zero is "0". Its cost is linear in the digits, of the
// exponent too: nothing is expanded and no big integer is built.
func (n *number) appendExact(dst []byte) []byte {
	whole := bytes.TrimLeft(n.whole, "0")
	fraction := n.fraction
	shift := -len(fraction) // added to the exponent, since the digits are read as an integer
	if len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	trimmed := bytes.TrimRight(fraction, "0")
	shift += len(fraction) - len(trimmed)
	if fraction = trimmed; len(fraction) == 0 {
		trimmed = bytes.TrimRight(whole, "0")
		shift += len(whole) - len(trimmed)
		whole = trimmed
	}
	if len(whole)+len(fraction) == 0 {
		return append(dst, '0')
	}
	if n.negative {
		dst = append(dst, '-')
	}
	dst = append(dst, whole...)
	dst = append(dst, fraction...)
	return appendExponent(append(dst, 'e'), n.exponent, n.expMinus, shift)
}

// appendExponent writes the decimal number ±exponent + shift.
func appendExponent(dst, exponent []byte, minus bool, shift int) []byte {
	const fitsInt64 = 17 // digits, with room for any shift
	exponent = bytes.TrimLeft(exponent, "0")
	if len(exponent) <= fitsInt64 {
		var e int64
		for _, digit := range exponent {
			e = 10*e + int64(digit-'0')
		}
		if minus {
			e = -e
		}
		return strconv.AppendInt(dst, e+int64(shift), 10)
	}
	// The shift is at most the length of a message, so it can change neither the sign nor, but for one digit more or less,
	// the length of so large an exponent.
	if minus {
		dst = append(dst, '-')
		shift = -shift
	}
	start := len(dst)
	dst = append(dst, exponent...)
	return addToDecimal(dst, start, shift)
}

// addToDecimal adds n, which is smaller in magnitude, to the decimal number dst[start:].
func addToDecimal(dst []byte, start, n int) []byte {
	for i := len(dst) - 1; i >= start && n != 0; i-- {
		n += int(dst[i] - '0')
		digit := (n%10 + 10) % 10
		n = (n - digit) / 10
		dst[i] = byte('0' + digit)
	}
	switch {
	case n > 0: // a carry out of the first digit is 1
		dst = append(dst, 0)
		copy(dst[start+1:], dst[start:])
		dst[start] = '1'
	case dst[start] == '0': // a borrow took the first digit
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

// number reads one number and writes it in c's form.
func (c *canonicalizer) number() error {
	n, ok := parseNumber(c.src[c.pos:])
	if !ok {
		return c.syntax()
	}
	c.pos += len(n.text)
	switch c.form {
	case numbersRFC8785:
		c.dst = n.appendRFC8785(c.dst)
	case numbersExact:
		c.dst = n.appendExact(c.dst)
	default:
		c.dst = append(c.dst, n.text...)
	}
	return nil
}
