package chain

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/stretchr/testify/require"
)

// A node that answers but knows no receipts must not hide those of the next.
func TestReceiptFromAny(t *testing.T) {
	t.Parallel()
	const method = "eth_getTransactionReceipt"
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 3)
		get := func() (*types.Receipt, error) { return p.ReceiptFromAny(t.Context(), hash(1)) }
		s[0].on(method, result(nil))
		s[1].on(method, fail(-32000, "no", nil))
		s[2].on(method, result(receiptJSON(hash(1)))).times(1)
		s[2].on(method, result(nil))
		r, err := get()
		require.NoError(t, err)
		require.Equal(t, hash(1), r.TxHash)
		require.Same(t, p.nodes[0], p.preferred)
		_, err = get()
		require.ErrorIs(t, err, ErrNotFound)

		// One that hangs costs its time-out only where nobody else answered, or once in a while.
		s[2].clear()
		s[2].on(method, hang)
		start := time.Now()
		for range 3 {
			_, err = get()
			require.ErrorIs(t, err, ErrNotFound)
		}
		require.Equal(t, DefaultCallTimeout, time.Since(start))

		s[0].clear()
		s[0].on(method, status(500))
		_, err = get()
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotFound)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.ReceiptFromAny(ctx, hash(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestDemote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 2)
		for i, n := range s {
			n.on("eth_getBalance", result([]string{"0x1", "0x2"}[i]))
		}
		ask := func() int64 {
			b, err := p.Balance(t.Context(), addr(1))
			require.NoError(t, err)
			return b.Int64()
		}
		require.EqualValues(t, 1, ask())
		p.Demote()
		require.EqualValues(t, 2, ask())
		require.Equal(t, 1, logs.FilterMessage("node failed").Len())
		time.Sleep(time.Minute)
		require.EqualValues(t, 2, ask(), "it does not come back by itself")
		p.Demote()
		require.EqualValues(t, 1, ask())
		p.Demote()
		time.Sleep(time.Minute) // nobody asked meanwhile
		require.EqualValues(t, 2, ask())

		alone, s, _ := newPool(t, 1)
		s[0].on("eth_getBalance", result("0x3"))
		alone.Demote()
		b, err := alone.Balance(t.Context(), addr(1))
		require.NoError(t, err)
		require.EqualValues(t, 3, b.Int64())
	})
}
