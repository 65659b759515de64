package chain

import (
	"errors"
	"fmt"
	"math/big"
)

// ErrFeeCeiling: the fee that would be needed is above what the operator allows.
var ErrFeeCeiling = errors.New("the fee is above its ceiling")

// Fee is what a transaction pays, in wei per gas.
type Fee struct {
	Cap *big.Int // at most, base fee and tip together
	Tip *big.Int // to the block's maker; never above Cap
}

// Fees decides what transactions pay. It is a value without state.
type Fees struct {
	Ceiling *big.Int // the highest cap, in wei per gas; nil: none
}

// At returns the fee for a first attempt: room for the base fee to double, and the tip. baseFee may be nil, as in [Header]. Under a ceiling the
// cap is less, down to the base fee itself; beyond, the error wraps [ErrFeeCeiling].
func (f Fees) At(baseFee, tip *big.Int) (Fee, error) {
	base, fee := orZero(baseFee), Fee{new(big.Int), new(big.Int).Set(orZero(tip))}
	fee.Cap.Lsh(base, 1)
	fee.Cap.Add(fee.Cap, fee.Tip)
	if f.Ceiling == nil || fee.Cap.Cmp(f.Ceiling) <= 0 {
		return fee, nil
	}
	if base.Cmp(f.Ceiling) > 0 {
		return Fee{}, fmt.Errorf("%w: the base fee is %s wei per gas, the ceiling %s", ErrFeeCeiling, base, f.Ceiling)
	}
	fee.Cap.Set(f.Ceiling)
	if fee.Tip.Cmp(fee.Cap) > 0 {
		fee.Tip.Set(fee.Cap)
	}
	return fee, nil
}

// Bump returns the fee for a transaction that replaces one with the old fee: both parts an eighth higher, rounded up and by at least 1 wei, since
// nodes take a replacement only where both have grown by a tenth; and not below the market's fee of now, which may be the zero Fee. Where the
// ceiling forbids the eighth, the error wraps [ErrFeeCeiling]: the old one has to do.
func (f Fees) Bump(old, market Fee) (Fee, error) {
	least := Fee{eighthMore(old.Cap), eighthMore(old.Tip)}
	if f.Ceiling != nil && least.Cap.Cmp(f.Ceiling) > 0 {
		return Fee{}, fmt.Errorf("%w: a replacement needs %s wei per gas, the ceiling is %s", ErrFeeCeiling, least.Cap, f.Ceiling)
	}
	out := Fee{larger(least.Cap, market.Cap), larger(least.Tip, market.Tip)}
	if f.Ceiling != nil && out.Cap.Cmp(f.Ceiling) > 0 {
		out.Cap.Set(f.Ceiling)
	}
	if out.Tip.Cmp(out.Cap) > 0 { // the cap of an old fee is at least its tip, and so is an eighth more
		out.Tip.Set(out.Cap)
	}
	return out, nil
}

// eighthMore returns n · 9/8 rounded up, and n + 1 at least.
func eighthMore(n *big.Int) *big.Int {
	more := new(big.Int).Add(orZero(n), big.NewInt(7))
	more.Rsh(more, 3)
	if more.Sign() == 0 {
		more.SetInt64(1)
	}
	return more.Add(more, orZero(n))
}

func larger(a, b *big.Int) *big.Int {
	if b != nil && b.Cmp(a) > 0 {
		a = b
	}
	return new(big.Int).Set(a)
}

func orZero(n *big.Int) *big.Int {
	if n == nil {
		return new(big.Int)
	}
	return n
}
