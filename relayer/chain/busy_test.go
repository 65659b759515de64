package chain

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

// busyAnswers say nothing about the call.
var busyAnswers = map[string]answer{
	"limit exceeded":  fail(-32005, "limit exceeded", nil),
	"rate limited":    fail(-32005, "daily request count exceeded, request rate limited", map[string]any{"see": "https://h/" + secret}),
	"HTTP's code":     fail(429, "Your app has exceeded its compute units per second capacity.", nil),
	"another code":    fail(-32000, "Too Many Requests", nil),
	"over rate limit": fail(-32016, "over rate limit", nil),
}

var internalAnswers = map[string]answer{
	"internal": fail(-32603, "Internal error", nil),
	"gateway":  fail(-32000, "Bad gateway", nil),
}

// A node that is over its limit or broken within is left for the next one, like one that failed; only the last one's word counts.
func TestBusyNodeIsLeft(t *testing.T) {
	t.Parallel()
	for _, list := range []map[string]answer{busyAnswers, internalAnswers} {
		for name, a := range list {
			p, s, logs := newPool(t, 2)
			s[0].on("eth_estimateGas", a)
			s[1].on("eth_estimateGas", result("0x5"))
			for range 2 {
				gas, err := p.EstimateGas(t.Context(), addr(1), addr(2), nil)
				require.NoError(t, err, name)
				require.EqualValues(t, 5, gas)
			}
			require.Len(t, s[0].seen(), 1, "%s: it comes last for a while", name)
			require.Len(t, s[1].seen(), 2)
			require.Equal(t, 1, logs.FilterMessage("node failed").Len())

			s[1].clear()
			s[1].on("eth_estimateGas", a)
			_, err := p.EstimateGas(t.Context(), addr(1), addr(2), nil)
			require.True(t, Busy(err), name)
			require.NotErrorIs(t, err, ErrUnavailable)
			require.Len(t, s[0].seen(), 1)
			require.Len(t, s[1].seen(), 1)

			s[0].clear()
			s[0].on("eth_estimateGas", status(500))
			_, err = p.EstimateGas(t.Context(), addr(1), addr(2), nil)
			require.Error(t, err)
		}
	}
}

// What a node still answered before it failed does not bring it back.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 2)
		s[0].on("eth_getBalance", func(w http.ResponseWriter, r *http.Request, c call) {
			time.Sleep(time.Second / 2)
			result("0x1")(w, r, c)
		})
		s[1].on("eth_getBalance", result("0x2"))
		s[0].on("eth_estimateGas", fail(-32005, "rate limited", nil))
		s[1].on("eth_estimateGas", result("0x5"))
		var wg sync.WaitGroup
		wg.Go(func() {
			b, err := p.Balance(t.Context(), addr(1))
			require.NoError(t, err)
			require.EqualValues(t, 1, b.Int64())
		})
		time.Sleep(time.Millisecond)
		_, err := p.EstimateGas(t.Context(), addr(1), addr(2), nil)
		require.NoError(t, err)
		wg.Wait()
		b, err := p.Balance(t.Context(), addr(1))
		require.NoError(t, err)
		require.EqualValues(t, 2, b.Int64())
		require.Equal(t, 1, logs.FilterMessage("node failed").Len())
	})
}

// A node that is alone is not said to have failed with each answer.
func TestBusyNodeAlone(t *testing.T) {
	t.Parallel()
	p, s, logs := newPool(t, 1)
	s[0].on("eth_estimateGas", fail(-32005, "rate limited", nil))
	for range 3 {
		_, err := p.EstimateGas(t.Context(), addr(1), addr(2), nil)
		require.True(t, Busy(err))
	}
	require.Zero(t, logs.Len())
}

// What a contract answers is the same everywhere, whatever words and codes it comes with.
func TestContractsAnswerIsFinal(t *testing.T) {
	t.Parallel()
	text := append(crypto.Keccak256([]byte("Error(string)"))[:4], words(32, 10, "rate limit")...)
	for name, a := range map[string]answer{
		"revert":            fail(3, "execution reverted: rate limit", hexutil.Encode(text)),
		"internal code":     fail(-32603, "execution reverted", pausedData),
		"internal, data":    fail(-32603, "Internal JSON-RPC error.", pausedData),
		"out of gas":        fail(-32603, "out of gas", nil),
		"another answer":    fail(-32000, "header not found", nil),
		"unknown method":    fail(-32601, "the method does not exist", nil),
		"more than a block": fail(-32000, "gas required exceeds allowance (16777216)", nil),
	} {
		p, s, _ := newPool(t, 2)
		s[0].on("eth_call", a)
		s[1].on("eth_call", result("0x"))
		_, err := p.Call(t.Context(), addr(1), addr(2), nil, Latest, 0)
		var answer *RPCError
		require.ErrorAs(t, err, &answer, name)
		require.False(t, Busy(err), name)
		require.Empty(t, s[1].seen(), name)
	}
}

// A node's word on a transaction is not put to another, unless it has none because of its limit.
func TestBusyNodeAndSends(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		method, raw := "eth_sendRawTransaction", []byte{2, 1}
		send := func(p *Pool) error { return p.SendRaw(t.Context(), raw) }
		if sync {
			method += "Sync"
			send = func(p *Pool) error { _, err := p.SendRawSync(t.Context(), raw); return err }
		}
		for name, a := range busyAnswers {
			p, s, _ := newPool(t, 2)
			s[0].on(method, a)
			s[1].on(method, fail(-32000, "already known", nil))
			require.Equal(t, Known, SendError(send(p)), "%s %s", method, name)
			s[1].clear()
			s[1].on(method, a)
			err := send(p)
			require.Equal(t, Unavailable, SendError(err), "%s %s: nobody has judged it", method, name)
			require.True(t, Busy(err))
		}
		finals := map[string]answer{
			"nonce": fail(-32005, "nonce too low", nil), "underpriced": fail(-32005, "transaction underpriced", nil),
			"funds": fail(-32603, "insufficient funds for gas", nil), "revert": fail(3, "execution reverted: rate limit", nil),
		}
		for name, a := range internalAnswers {
			finals[name] = a
		}
		for name, a := range finals {
			p, s, _ := newPool(t, 2)
			s[0].on(method, a)
			require.NotEqual(t, Unavailable, SendError(send(p)), fmt.Sprint(method, " ", name))
			require.Empty(t, s[1].seen(), name)
		}
	}
	// A limit that names the call does not say that the node has no such call.
	p, s, _ := newPool(t, 1)
	s[0].on("eth_sendRawTransactionSync", fail(-32005, "rate limit of eth_sendRawTransactionSync exceeded", nil))
	_, err := p.SendRawSync(t.Context(), []byte{1})
	require.NotErrorIs(t, err, ErrNoSync)
	require.Equal(t, Unavailable, SendError(err))
}

func TestBusyNodeAndLogs(t *testing.T) {
	t.Parallel()
	for text, many := range map[string]bool{"query returned more than 10000 results": true, "request rate exceeded": false} {
		p, s, _ := newPool(t, 2)
		s[0].on("eth_getLogs", fail(-32005, text, nil))
		s[1].on("eth_getLogs", result([]any{}))
		_, err := p.Logs(t.Context(), 1, 2, nil, nil)
		if many {
			require.ErrorIs(t, err, ErrTooMany)
			require.Empty(t, s[1].seen())
			continue
		}
		require.NoError(t, err)
		s[1].clear()
		s[1].on("eth_getLogs", fail(-32005, text, nil))
		_, err = p.Logs(t.Context(), 1, 2, nil, nil)
		require.True(t, Busy(err))
		require.NotErrorIs(t, err, ErrTooMany)
	}
}
