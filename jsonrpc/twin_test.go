package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
)

// The second implementation of what this package computes: slow, in big numbers and trees, and as obvious as possible. Numbers
// whose exponent is beyond maxTwinExponent are out of its reach.

const maxTwinExponent = 400

var errTwinReach = errors.New("out of the twin's reach")

// twinNumber returns the value of a JSON number.
func twinNumber(text string) (*big.Rat, error) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if e, err := strconv.Atoi(text[i+1:]); err != nil || e > maxTwinExponent || e < -maxTwinExponent {
			return nil, errTwinReach
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("no number: %q", text)
	}
	return r, nil
}

// twinExact writes a number as VoteDigest wants it, by dividing tens out of it.
func twinExact(r *big.Rat) string {
	if r.Sign() == 0 {
		return "0"
	}
	ten, n, e := big.NewInt(10), new(big.Rat).Set(r), 0
	for !n.IsInt() {
		n.Mul(n, new(big.Rat).SetInt(ten))
		e--
	}
	whole := new(big.Int).Set(n.Num())
	for {
		q, m := new(big.Int).QuoRem(whole, ten, new(big.Int))
		if m.Sign() != 0 {
			break
		}
		whole = q
		e++
	}
	return fmt.Sprintf("%se%d", whole, e)
}

// twinRFC8785 is the value that RFC 8785 gives a number.
func twinRFC8785(r *big.Rat) *big.Rat {
	f, _ := r.Float64()
	switch {
	case math.IsInf(f, 1):
		f = math.MaxFloat64
	case math.IsInf(f, -1):
		f = -math.MaxFloat64
	}
	return new(big.Rat).SetFloat64(f)
}

// twinInexact reports whether the shortest decimal that ECMAScript prints for the nearest double has another value than text.
func twinInexact(text string) (bool, error) {
	r, err := twinNumber(text)
	if err != nil {
		return false, err
	}
	f, _ := twinRFC8785(r).Float64()
	printed, err := twinNumber(strconv.FormatFloat(f, 'e', -1, 64))
	if err != nil {
		return false, err
	}
	return printed.Cmp(r) != 0, nil
}

// twinCanonical writes v with exact numbers, by way of a tree. first is the first number in v that is inexact.
func twinCanonical(v []byte) (text string, first string, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	text, err = twinValue(d, 0, &first)
	if err != nil {
		return "", "", err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return "", "", errors.New("trailing data")
	}
	return text, first, nil
}

func twinValue(d *jsontext.Decoder, depth int, first *string) (string, error) {
	token, err := d.ReadToken()
	if err != nil {
		return "", err
	}
	switch token.Kind() {
	case '0':
		text := token.String()
		r, err := twinNumber(text)
		if err != nil {
			return "", err
		}
		inexact, err := twinInexact(text)
		if inexact && *first == "" {
			*first = text
		}
		return twinExact(r), err
	case '"':
		quoted, err := jsontext.AppendQuote(nil, token.String())
		return string(quoted), err
	case '[', '{':
		if depth == MaxDepth {
			return "", errors.New("too deep")
		}
		var parts [][2]string
		for d.PeekKind() != ']' && d.PeekKind() != '}' {
			var name string
			if token.Kind() == '{' {
				t, err := d.ReadToken()
				if err != nil {
					return "", err
				}
				name = t.String()
			}
			value, err := twinValue(d, depth+1, first)
			if err != nil {
				return "", err
			}
			if token.Kind() == '{' {
				quoted, _ := jsontext.AppendQuote(nil, name)
				value = string(quoted) + ":" + value
			}
			parts = append(parts, [2]string{name, value})
		}
		end, err := d.ReadToken()
		if err != nil {
			return "", err
		}
		if token.Kind() == '{' {
			slices.SortFunc(parts, func(a, b [2]string) int {
				return slices.Compare(utf16.Encode([]rune(a[0])), utf16.Encode([]rune(b[0])))
			})
		}
		var values []string
		for _, p := range parts {
			values = append(values, p[1])
		}
		return token.String() + strings.Join(values, ",") + end.String(), nil
	default:
		return token.String(), nil
	}
}
