package token

import (
	"context"
	"errors"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTxKnowsItsDatabase(t *testing.T) {
	t.Parallel()
	a := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	b := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	tx, err := Begin(t.Context(), a)
	require.NoError(t, err)
	require.NoError(t, tx.On(a))
	require.ErrorIs(t, tx.On(b), ErrOtherDatabase)
	require.ErrorIs(t, Tx{}.On(a), ErrOtherDatabase)
	require.NoError(t, tx.Rollback())

	failure := errors.New("no")
	require.ErrorIs(t, InTx(t.Context(), a, func(_ context.Context, tx Tx) error {
		require.NoError(t, tx.On(a))
		return failure
	}), failure)
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	largest := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), MaxAmountBits), big.NewInt(1))
	for _, v := range []*big.Int{new(big.Int), big.NewInt(7), new(big.Int).Lsh(big.NewInt(1), 255), largest} {
		a, err := Amount(v)
		require.NoError(t, err)
		require.Equal(t, v.String(), a.String())
		m, err := Movement(new(big.Int).Neg(v))
		require.NoError(t, err)
		require.Equal(t, new(big.Int).Neg(v).String(), m.String())
	}
	_, err := Amount(nil)
	require.ErrorIs(t, err, ErrAmountMissing)
	_, err = Amount(big.NewInt(-1))
	require.ErrorIs(t, err, ErrAmountNegative)
	_, err = Amount(new(big.Int).Add(largest, big.NewInt(1)))
	require.ErrorIs(t, err, ErrAmountOutOfRange)
	_, err = Movement(nil)
	require.ErrorIs(t, err, ErrAmountMissing)
	_, err = Movement(new(big.Int).Neg(new(big.Int).Add(largest, big.NewInt(1))))
	require.ErrorIs(t, err, ErrAmountOutOfRange)
}
