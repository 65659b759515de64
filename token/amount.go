package token

import (
	"fmt"
	"math/big"

	"dongate/storage"
)

// MaxAmountBits is how many bits an amount may have: those of 2^255, which the largest sums of a ledger reach.
const MaxAmountBits = 256

// Amount returns v as it is stored. It is ErrAmountMissing, ErrAmountNegative or ErrAmountOutOfRange that it can fail with.
func Amount(v *big.Int) (storage.Amount, error) {
	switch {
	case v == nil:
		return storage.Amount{}, ErrAmountMissing
	case v.Sign() < 0:
		return storage.Amount{}, fmt.Errorf("%w: %.100s", ErrAmountNegative, v)
	case v.BitLen() > MaxAmountBits:
		return storage.Amount{}, fmt.Errorf("%w: %d bits", ErrAmountOutOfRange, v.BitLen())
	}
	return storage.NewAmount(v)
}

// Movement returns v as it is stored, or ErrAmountMissing or ErrAmountOutOfRange.
func Movement(v *big.Int) (storage.Movement, error) {
	switch {
	case v == nil:
		return storage.Movement{}, ErrAmountMissing
	case v.BitLen() > MaxAmountBits:
		return storage.Movement{}, fmt.Errorf("%w: %d bits", ErrAmountOutOfRange, v.BitLen())
	}
	return storage.NewMovement(v)
}
