package storage

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// ErrAmountRange: the number does not fit. Amounts are 0 to 2^256-1, movements the same with either sign.
var ErrAmountRange = errors.New("storage: amount out of range")

const amountBytes = 32

// Amount is a quantity of up to 256 bits, exact on both backends: 32 bytes, most significant first, on SQLite, whose order as bytes is that
// of the numbers, and NUMERIC(78,0) on PostgreSQL, see {{.Amount}} of [Domain]. SQLite cannot add them up: sums are for Go. Amounts can
// be compared with ==. The zero value is 0. To give one to a statement, use [Amount.Bind].
type Amount struct{ b [amountBytes]byte }

// NewAmount returns v as an Amount, or ErrAmountRange.
func NewAmount(v *big.Int) (Amount, error) {
	if v == nil || v.Sign() < 0 || v.BitLen() > 8*amountBytes {
		return Amount{}, fmt.Errorf("%w: %.100s", ErrAmountRange, v)
	}
	var a Amount
	v.FillBytes(a.b[:])
	return a, nil
}

// Uint64Amount returns v as an Amount.
func Uint64Amount(v uint64) Amount {
	a, _ := NewAmount(new(big.Int).SetUint64(v)) // fits
	return a
}

// Big returns the number; it belongs to the caller.
func (a Amount) Big() *big.Int { return new(big.Int).SetBytes(a.b[:]) }

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Amount) Cmp(b Amount) int { return slices.Compare(a.b[:], b.b[:]) }

// String returns the number in decimal.
func (a Amount) String() string { return a.Big().String() }

// Bind returns the argument that stands for a in a statement of that backend.
func (a Amount) Bind(b Backend) any {
	if b == Postgres {
		return a.String()
	}
	return a.b[:]
}

// Scan implements sql.Scanner.
func (a *Amount) Scan(src any) error {
	var v *big.Int
	switch src := src.(type) {
	case []byte: // SQLite's
		if len(src) != amountBytes {
			return fmt.Errorf("storage: an amount has %d bytes, not %d", amountBytes, len(src))
		}
		a.b = [amountBytes]byte(src)
		return nil
	case string: // PostgreSQL's
		var err error
		if v, err = parseDecimal(src); err != nil {
			return err
		}
	default: // a float64 among them: it is not exact
		return fmt.Errorf("storage: an amount cannot be read from %T", src)
	}
	parsed, err := NewAmount(v)
	if err == nil {
		*a = parsed
	}
	return err
}

// Movement is what an [Amount] changed by: the same with a sign. On SQLite it has 33 bytes, whose order is that of the numbers: 1 and the
// number, or 0 and the complement of the number without its sign.
type Movement struct {
	negative  bool
	magnitude Amount
}

// NewMovement returns v as a Movement, or ErrAmountRange.
func NewMovement(v *big.Int) (Movement, error) {
	if v == nil {
		return Movement{}, fmt.Errorf("%w: %s", ErrAmountRange, v)
	}
	magnitude, err := NewAmount(new(big.Int).Abs(v))
	return Movement{v.Sign() < 0, magnitude}, err
}

// Big returns the number; it belongs to the caller.
func (m Movement) Big() *big.Int {
	v := m.magnitude.Big()
	if m.negative {
		v.Neg(v)
	}
	return v
}

// String returns the number in decimal.
func (m Movement) String() string { return m.Big().String() }

// Bind returns the argument that stands for m in a statement of that backend.
func (m Movement) Bind(b Backend) any {
	if b == Postgres {
		return m.String()
	}
	bytes := append([]byte{1}, m.magnitude.b[:]...)
	if m.negative {
		complement(bytes)
		bytes[0] = 0
	}
	return bytes
}

// Scan implements sql.Scanner.
func (m *Movement) Scan(src any) error {
	var v *big.Int
	switch src := src.(type) {
	case []byte: // SQLite's
		if len(src) != 1+amountBytes || src[0] > 1 {
			return fmt.Errorf("storage: a movement has %d bytes and begins with 0 or 1", 1+amountBytes)
		}
		bytes := slices.Clone(src)
		if src[0] == 0 {
			complement(bytes)
		}
		v = new(big.Int).SetBytes(bytes[1:])
		if src[0] == 0 {
			v.Neg(v)
		}
	case string: // PostgreSQL's
		var err error
		if v, err = parseDecimal(src); err != nil {
			return err
		}
	default:
		return fmt.Errorf("storage: a movement cannot be read from %T", src)
	}
	parsed, err := NewMovement(v)
	if err == nil {
		*m = parsed
	}
	return err
}

func complement(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// parseDecimal reads PostgreSQL's text of a whole number. Longer ones than fit are refused before they are worked on.
func parseDecimal(text string) (*big.Int, error) {
	const maxDigits = 78 // of 2^256-1
	v, ok := new(big.Int), false
	if len(text) <= maxDigits+1 {
		v, ok = v.SetString(text, 10)
	}
	if !ok {
		return nil, fmt.Errorf("storage: %.100q is not a whole number of up to %d digits", text, maxDigits)
	}
	return v, nil
}
