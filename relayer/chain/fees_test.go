package chain

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFeesAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ceiling, base, tip *big.Int
		cap, tipWant       int64 // cap -1: refused
	}{
		{nil, num(100), num(3), 203, 3},
		{nil, nil, nil, 0, 0},
		{num(203), num(100), num(3), 203, 3},
		{num(150), num(100), num(3), 150, 3},
		{num(100), num(100), num(3), 100, 3},
		{num(2), num(1), num(3), 2, 2},
		{num(99), num(100), num(3), -1, 0},
	} {
		fee, err := Fees{c.ceiling}.At(c.base, c.tip)
		if c.cap < 0 {
			require.ErrorIs(t, err, ErrFeeCeiling)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []int64{c.cap, c.tipWant}, []int64{fee.Cap.Int64(), fee.Tip.Int64()})
	}
}

func TestBump(t *testing.T) {
	t.Parallel()
	numbers := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<40))
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *big.Int { return big.NewInt(numbers.Draw(t, name)) }
		old, market, f := Fee{draw("cap"), draw("tip")}, Fee{draw("market"), draw("market tip")}, Fees{draw("ceiling")}
		if old.Tip.Cmp(old.Cap) > 0 {
			old.Tip.Set(old.Cap)
		}
		if rapid.Bool().Draw(t, "no market") {
			market = Fee{}
		}
		if rapid.Bool().Draw(t, "no ceiling") {
			f.Ceiling = nil
		}
		before := []string{old.Cap.String(), old.Tip.String()}
		bumped, err := f.Bump(old, market)
		require.Equal(t, before, []string{old.Cap.String(), old.Tip.String()})
		if err != nil {
			require.ErrorIs(t, err, ErrFeeCeiling)
			require.NotNil(t, f.Ceiling)
			require.Positive(t, eighthMore(old.Cap).Cmp(f.Ceiling))
			return
		}
		for _, pair := range [][2]*big.Int{{old.Cap, bumped.Cap}, {old.Tip, bumped.Tip}} {
			require.Positive(t, pair[1].Cmp(pair[0]))
			eight, nine := new(big.Int).Mul(pair[1], num(8)), new(big.Int).Mul(pair[0], num(9))
			require.GreaterOrEqual(t, eight.Cmp(nine), 0, "an eighth")
		}
		require.LessOrEqual(t, bumped.Tip.Cmp(bumped.Cap), 0)
		if f.Ceiling != nil {
			require.LessOrEqual(t, bumped.Cap.Cmp(f.Ceiling), 0)
		} else if market.Cap != nil {
			require.GreaterOrEqual(t, bumped.Cap.Cmp(market.Cap), 0)
		}
	})
}
