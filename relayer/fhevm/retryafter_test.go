package fhevm

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	c := DefaultRetryAfter()
	idle := Load{TPS: 20, Concurrency: 250}
	for _, test := range []struct {
		k    Kind
		s    State
		age  time.Duration
		l    Load
		eta  time.Duration
		want int
	}{
		{KindInputProof, StateProcessing, 0, idle, 2250 * time.Millisecond, 3},
		{KindInputProof, StateQueued, 0, idle, 2250 * time.Millisecond, 3},
		{KindUserDecrypt, StateQueued, 0, idle, 6250 * time.Millisecond, 8},
		{KindPublicDecrypt, StateQueued, time.Hour, idle, 6250 * time.Millisecond, 8},
		{KindUserDecrypt, StateQueued, 0, Load{TPS: 20, Concurrency: 250, ReadinessQueue: 251, TxQueue: 3}, 14400 * time.Millisecond, 18},
		{KindUserDecrypt, StateProcessing, 0, Load{TPS: 20, Concurrency: 250, ReadinessQueue: 251, TxQueue: 3}, 6400 * time.Millisecond, 8},
		{KindInputProof, StateProcessing, 0, Load{TPS: 20, TxQueue: 155}, 10 * time.Second, 12},
		{KindInputProof, StateProcessing, 0, Load{TPS: 3, TxQueue: 1}, 2584 * time.Millisecond, 4},
		{KindInputProof, StateTxInFlight, 0, idle, 2 * time.Second, 3},
		{KindUserDecrypt, StateTxInFlight, 0, idle, 6 * time.Second, 8},
		{KindInputProof, StateProcessing, 0, Load{}, 302250 * time.Millisecond, 300},
		{KindUserDecrypt, StateQueued, 0, Load{TPS: 20}, 306250 * time.Millisecond, 300},
		{KindUserDecrypt, StateQueued, 0, Load{TPS: math.Inf(1), Concurrency: math.MaxInt64, ReadinessQueue: 1}, 10250 * time.Millisecond, 13},

		{KindUserDecrypt, StateReceiptReceived, -time.Hour, idle, 0, 4},
		{KindUserDecrypt, StateReceiptReceived, 0, idle, 0, 4},
		{KindUserDecrypt, StateReceiptReceived, time.Minute - 1, idle, 0, 4},
		{KindUserDecrypt, StateReceiptReceived, time.Minute, idle, 0, 10},
		{KindInputProof, StateReceiptReceived, 2*time.Minute - 1, idle, 0, 10},
		{KindUserDecrypt, StateReceiptReceived, 2 * time.Minute, idle, 0, 30},
		{KindUserDecrypt, StateReceiptReceived, 5*time.Minute - 1, idle, 0, 30},
		{KindUserDecrypt, StateReceiptReceived, 5 * time.Minute, idle, 0, 60},
		{KindUserDecrypt, StateReceiptReceived, 15*time.Minute - 1, idle, 0, 60},
		{KindUserDecrypt, StateReceiptReceived, 15 * time.Minute, idle, 0, 300},
		{KindUserDecrypt, StateReceiptReceived, math.MaxInt64, idle, 0, 300},
		{KindUserDecrypt, StateReceiptReceived, math.MinInt64, idle, 0, 4},
		{KindUserDecrypt, StateCompleted, 0, idle, 0, 1},
	} {
		require.Equal(t, test.eta, c.ETA(test.k, test.s, test.l), "%+v", test)
		require.Equal(t, test.want, c.Seconds(test.k, test.s, test.age, test.l), "%+v", test)
	}

	narrow := c
	narrow.Min, narrow.Max = 5*time.Second, 20*time.Second
	require.Equal(t, 5, narrow.Seconds(KindUserDecrypt, StateReceiptReceived, 0, idle))
	require.Equal(t, 20, narrow.Seconds(KindUserDecrypt, StateReceiptReceived, time.Hour, idle))
	require.Equal(t, 5, narrow.Remaining(time.Millisecond))
	require.Equal(t, 7, narrow.Remaining(6001*time.Millisecond))
	require.Equal(t, 20, narrow.Remaining(time.Hour))
	require.Equal(t, 1, RetryAfter{}.Seconds(KindInputProof, StateProcessing, 0, idle), "no configuration at all")
}

// Whatever the numbers, the answer is within the bounds; with sane numbers it is the formula's, computed here with fractions.
func TestRetryAfterProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string) time.Duration { return time.Duration(rapid.Int64().Draw(t, name)) }
		c := RetryAfter{
			Min: time.Duration(rapid.IntRange(1, 100).Draw(t, "min")) * time.Second, Max: time.Duration(rapid.IntRange(100, 10000).Draw(t, "max")) * time.Second,
			Margin: rapid.Float64().Draw(t, "margin"), Readiness: duration("r"), InputProof: duration("p"), PublicDecrypt: duration("d"), UserDecrypt: duration("u"), Confirmation: duration("t"),
		}
		l := Load{rapid.Int64().Draw(t, "q"), rapid.Float64().Draw(t, "tps"), rapid.Int64().Draw(t, "rq"), rapid.Int64().Draw(t, "c")}
		k, s := rapid.SampledFrom(Kinds).Draw(t, "kind"), rapid.SampledFrom(States).Draw(t, "state")
		got := c.Seconds(k, s, duration("age"), l)
		require.GreaterOrEqual(t, got, int(c.Min/time.Second))
		require.LessOrEqual(t, got, int(c.Max/time.Second))
		require.GreaterOrEqual(t, c.ETA(k, s, l), time.Duration(0))
	})
	rapid.Check(t, func(t *rapid.T) {
		ms := func(name string) int64 { return int64(rapid.IntRange(0, 100_000).Draw(t, name)) }
		percent := int64(rapid.IntRange(0, 200).Draw(t, "margin"))
		p, conf, ready := ms("p"), ms("t"), ms("r")
		q, tps, rq, conc := int64(rapid.IntRange(0, 5000).Draw(t, "q")), int64(rapid.IntRange(1, 1000).Draw(t, "tps")), int64(rapid.IntRange(0, 5000).Draw(t, "rq")), int64(rapid.IntRange(1, 500).Draw(t, "c"))
		c := RetryAfter{Min: time.Second, Max: 1_000_000 * time.Second, Margin: float64(percent) / 100, Readiness: time.Duration(ready) * time.Millisecond,
			UserDecrypt: time.Duration(p) * time.Millisecond, Confirmation: time.Duration(conf) * time.Millisecond}
		ceil := func(a, b int64) int64 { return (a + b - 1) / b }
		raw := ceil(rq, conc)*ready + ceil(q*1000, tps) + p + conf
		exact := new(big.Rat).Mul(big.NewRat(raw, 1000), big.NewRat(100+percent, 100))
		want := new(big.Int).Div(new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1))), exact.Denom()).Int64()
		want = min(max(want, 1), 1_000_000)
		require.EqualValues(t, want, c.Seconds(KindUserDecrypt, StateQueued, 0, Load{q, float64(tps), rq, conc}))
	})
	for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		c := DefaultRetryAfter()
		c.Margin = odd
		got := c.Seconds(KindUserDecrypt, StateQueued, 0, Load{math.MaxInt64, odd, math.MaxInt64, 1})
		require.GreaterOrEqual(t, got, 1, odd)
		require.LessOrEqual(t, got, 300, odd)
	}
}

func TestSharesReady(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored, threshold, additional int64
		since, timeout                time.Duration
		ready                         bool
		wait                          time.Duration
	}{
		{9, 9, 2, 0, 5 * time.Second, false, 5 * time.Second},
		{10, 9, 2, 4 * time.Second, 5 * time.Second, false, time.Second},
		{11, 9, 2, 0, 5 * time.Second, true, 0},
		{13, 9, 2, 0, 5 * time.Second, true, 0},
		{9, 9, 2, 5 * time.Second, 5 * time.Second, true, 0},
		{9, 9, 0, 0, 5 * time.Second, true, 0},
		{9, 9, 2, 0, 0, true, 0},
		{9, 9, 2, -time.Hour, 5 * time.Second, true, 0}, // a clock that went back must not hold a result back
	} {
		ready, wait := SharesReady(c.stored, c.threshold, c.additional, c.since, c.timeout)
		require.Equal(t, c.ready, ready, "%+v", c)
		require.Equal(t, c.wait, wait, "%+v", c)
	}
}
