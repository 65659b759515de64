package chain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/stretchr/testify/require"
)

func addr(n byte) common.Address { return common.Address{19: n} }

func hash(n byte) common.Hash { return common.Hash{0: n} }

func headerJSON(number int64) map[string]any {
	return map[string]any{"number": AtBlock(number), "hash": hash(1), "parentHash": hash(2), "timestamp": "0x9", "baseFeePerGas": "0x7", "extra": "ignored"}
}

// with returns a changed copy; a nil value removes the member.
func with(m map[string]any, name string, value any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	if out[name] = value; value == nil {
		delete(out, name)
	}
	return out
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	s[0].on("eth_getBlockByNumber", result(headerJSON(5)))
	want := Header{5, hash(1), hash(2), 9, num(7)}
	h, err := p.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, h)
	h, err = p.HeaderByTag(t.Context(), "finalized")
	require.NoError(t, err)
	require.Equal(t, want, h)
	h, err = p.HeaderByNumber(t.Context(), 5)
	require.NoError(t, err)
	require.Equal(t, want, h)
	require.Equal(t, []string{`eth_getBlockByNumber["latest",false]`, `eth_getBlockByNumber["finalized",false]`, `eth_getBlockByNumber["0x5",false]`}, callText(s[0].seen()))

	_, err = p.HeaderByNumber(t.Context(), 6)
	require.ErrorIs(t, err, ErrUnavailable, "another block")
	_, err = p.HeaderByNumber(t.Context(), -1)
	require.ErrorIs(t, err, ErrNotFound)

	s[0].clear()
	s[0].on("eth_getBlockByNumber", result(nil))
	_, err = p.HeaderByNumber(t.Context(), 6)
	require.ErrorIs(t, err, ErrNotFound)

	s[0].clear()
	s[0].on("eth_getBlockByNumber", result(with(headerJSON(5), "baseFeePerGas", nil)))
	h, err = p.Head(t.Context())
	require.NoError(t, err)
	require.Nil(t, h.BaseFee)
	for _, bad := range []map[string]any{
		with(headerJSON(5), "hash", nil), with(headerJSON(5), "parentHash", nil), with(headerJSON(5), "number", nil), with(headerJSON(5), "timestamp", nil),
		with(headerJSON(5), "number", "0x8000000000000000"), with(headerJSON(5), "hash", "0x1"), with(headerJSON(5), "baseFeePerGas", 7),
	} {
		s[0].clear()
		s[0].on("eth_getBlockByNumber", result(bad))
		_, err = p.Head(t.Context())
		require.ErrorIs(t, err, ErrUnavailable)
	}
}

func TestSmallReads(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	ctx, a, b := t.Context(), addr(1), addr(2)
	for _, c := range []struct {
		call   func() (any, error)
		result any
		want   any
		sent   string
	}{
		{func() (any, error) { return p.ChainID(ctx) }, "0x9fbf1", uint64(testChain), ``},
		{func() (any, error) { return p.Call(ctx, common.Address{}, b, []byte{0xab}, "", 0) }, "0x01", []byte{1}, `eth_call[{"data":"0xab","to":"B"},"latest"]`},
		{func() (any, error) { return p.Call(ctx, a, b, nil, AtBlock(16), 99) }, "0x", []byte{}, `eth_call[{"data":"0x","from":"A","gas":"0x63","to":"B"},"0x10"]`},
		{func() (any, error) { return p.EstimateGas(ctx, a, b, []byte{1}) }, "0x5208", uint64(21000), `eth_estimateGas[{"data":"0x01","from":"A","to":"B"}]`},
		{func() (any, error) { return p.CodeAt(ctx, a) }, "0x60", []byte{0x60}, `eth_getCode["A","latest"]`},
		{func() (any, error) { return p.Balance(ctx, a) }, "0x10", num(16), `eth_getBalance["A","latest"]`},
		{func() (any, error) { return p.SuggestTip(ctx) }, "0x0", "0", `eth_maxPriorityFeePerGas[]`},
		{func() (any, error) { return p.NonceAt(ctx, a, false) }, "0x0", uint64(0), `eth_getTransactionCount["A","latest"]`},
		{func() (any, error) { return p.NonceAt(ctx, a, true) }, "0x7", uint64(7), `eth_getTransactionCount["A","pending"]`},
	} {
		s[0].clear()
		s[0].add(func(call) bool { return true }, result(c.result))
		if c.sent != "" { // the node's chain is known by now
			s[0].rules[0].match = func(c call) bool { return c.Method != "eth_chainId" }
		}
		got, err := c.call()
		require.NoError(t, err, c.sent)
		require.EqualValues(t, fmt.Sprint(c.want), fmt.Sprint(got))
		if c.sent != "" {
			sent := strings.NewReplacer(strings.ToLower(a.Hex()), "A", strings.ToLower(b.Hex()), "B").Replace(s[0].seen()[0].String())
			require.Equal(t, c.sent, sent)
		}
		for _, bad := range []any{nil, 7, "7", "0xzz", []int{}, map[string]any{}, "0x" + strings.Repeat("f", 65)} {
			s[0].clear()
			s[0].on(strings.SplitN(c.sent+"[", "[", 2)[0], result(bad))
			if _, err := c.call(); c.sent != "" && err != nil {
				require.ErrorIs(t, err, ErrUnavailable)
			} else if c.sent != "" {
				t.Error(c.sent, "took", bad)
			}
		}
		s[0].seen()
	}
}

func logJSON(block int64, index int, a common.Address, topics ...common.Hash) map[string]any {
	return map[string]any{
		"address": a, "topics": topics, "data": "0x", "blockNumber": AtBlock(block), "blockHash": hash(byte(block)), "logIndex": fmt.Sprintf("0x%x", index),
		"transactionHash": hash(9), "transactionIndex": "0x0", "removed": false,
	}
}

func receiptJSON(tx common.Hash, change ...func(map[string]any)) map[string]any {
	m := map[string]any{
		"transactionHash": tx, "status": "0x1", "blockNumber": "0x5", "blockHash": hash(5), "cumulativeGasUsed": "0x1", "gasUsed": "0x1", "type": "0x2",
		"logsBloom": types.Bloom{}, "logs": []any{logJSON(5, 0, addr(1), hash(3))}, "contractAddress": nil, "transactionIndex": "0x0", "l1Fee": "0x1",
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	get := func(answer any) (*types.Receipt, error) {
		s[0].clear()
		s[0].on("eth_getTransactionReceipt", result(answer))
		return p.Receipt(t.Context(), hash(1))
	}
	r, err := get(receiptJSON(hash(1)))
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Status)
	require.Equal(t, num(5), r.BlockNumber)
	require.Len(t, r.Logs, 1)
	r, err = get(receiptJSON(hash(1), func(m map[string]any) { m["status"] = "0x0" }))
	require.NoError(t, err)
	require.Zero(t, r.Status)
	_, err = get(nil)
	require.ErrorIs(t, err, ErrNotFound)
	for name, change := range map[string]func(map[string]any){
		"another transaction": func(m map[string]any) { m["transactionHash"] = hash(2) },
		"no status":           func(m map[string]any) { delete(m, "status") },
		"status 2":            func(m map[string]any) { m["status"] = "0x2" },
		"no block":            func(m map[string]any) { m["blockNumber"] = nil },
		"no block hash":       func(m map[string]any) { m["blockHash"] = nil },
		"large block":         func(m map[string]any) { m["blockNumber"] = "0x8000000000000000" },
		"null log":            func(m map[string]any) { m["logs"] = []any{nil} },
		"no logs":             func(m map[string]any) { delete(m, "logs") },
	} {
		r, err := get(receiptJSON(hash(1), change))
		require.ErrorIs(t, err, ErrUnavailable, name)
		require.Nil(t, r, name)
	}
}

func TestTransaction(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	for _, c := range []struct {
		answer         any
		known, pending bool
		failed         bool
	}{
		{nil, false, false, false},
		{map[string]any{"hash": hash(1), "blockHash": nil}, true, true, false},
		{map[string]any{"hash": hash(1)}, true, true, false},
		{map[string]any{"hash": hash(1), "blockHash": hash(4)}, true, false, false},
		{map[string]any{"hash": hash(2), "blockHash": hash(4)}, false, false, true},
		{"0x", false, false, true},
	} {
		s[0].clear()
		s[0].on("eth_getTransactionByHash", result(c.answer))
		known, pending, err := p.Transaction(t.Context(), hash(1))
		require.Equal(t, c.failed, err != nil, err)
		require.Equal(t, []bool{c.known, c.pending}, []bool{known, pending})
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	ask := func(logs ...any) ([]types.Log, error) {
		s[0].clear()
		s[0].on("eth_getLogs", result(append([]any{}, logs...)))
		return p.Logs(t.Context(), 5, 7, []common.Address{addr(1), addr(2)}, []common.Hash{hash(3), hash(4)})
	}
	removed := with(logJSON(5, 8, addr(1), hash(3)), "removed", true)
	got, err := ask(logJSON(7, 1, addr(2), hash(4), hash(8)), logJSON(5, 2, addr(1), hash(3)), logJSON(5, 1, addr(1), hash(3)), removed, logJSON(7, 1, addr(2), hash(4), hash(8)))
	require.NoError(t, err)
	var order []string
	for _, l := range got {
		order = append(order, fmt.Sprint(l.BlockNumber, "/", l.Index))
	}
	require.Equal(t, []string{"5/1", "5/2", "7/1"}, order)
	var filter map[string]any
	require.NoError(t, json.Unmarshal(s[0].seen()[0].Params[0], &filter))
	require.Equal(t, map[string]any{
		"fromBlock": "0x5", "toBlock": "0x7", "address": []any{strings.ToLower(addr(1).Hex()), strings.ToLower(addr(2).Hex())},
		"topics": []any{[]any{hash(3).Hex(), hash(4).Hex()}},
	}, filter)

	got, err = ask()
	require.NoError(t, err)
	require.Empty(t, got)
	for name, bad := range map[string]any{
		"block before": logJSON(4, 0, addr(1), hash(3)), "block after": logJSON(8, 0, addr(1), hash(3)), "contract": logJSON(5, 0, addr(3), hash(3)),
		"topic": logJSON(5, 0, addr(1), hash(5)), "no topic": with(logJSON(5, 0, addr(1)), "topics", []any{}), "no block": with(logJSON(5, 0, addr(1), hash(3)), "blockHash", nil),
		"null": nil, "no address": with(logJSON(5, 0, addr(1), hash(3)), "address", nil),
	} {
		_, err := ask(bad)
		require.ErrorIs(t, err, ErrUnavailable, name)
	}
	for _, r := range [][2]int64{{-1, 1}, {2, 1}} {
		_, err := p.Logs(t.Context(), r[0], r[1], nil, nil)
		require.Error(t, err)
	}
}

func TestTooManyLogs(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 2)
	for _, c := range []struct {
		answer answer
		many   bool
	}{
		{fail(-32005, "query returned more than 10000 results", nil), true},
		{fail(-32602, "block range is too wide", nil), true},
		{fail(-32000, "exceed maximum block range: 5000", nil), true},
		{fail(-32000, "Log response size exceeded.", nil), true},
		{body(strings.Repeat(" ", maxLogsReply+1)), true},
		{fail(-32000, "header not found", nil), false},
	} {
		s[0].clear()
		s[0].on("eth_getLogs", c.answer)
		_, err := p.Logs(t.Context(), 1, 2, nil, nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.Equal(t, c.many, strings.Contains(err.Error(), ErrTooMany.Error()), err)
		if c.many {
			require.ErrorIs(t, err, ErrTooMany)
		}
	}
	require.Empty(t, s[1].seen(), "it is an answer")
}

// What a node writes is read without a panic and without holding more than it wrote.
func FuzzReplies(f *testing.F) {
	for _, v := range []any{headerJSON(5), receiptJSON(hash(1)), []any{logJSON(5, 0, addr(1), hash(3))}, nil, "0x", []any{}} {
		text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "result": v})
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"execution reverted","data":"0x08c379a0"}}`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		for _, decode := range []func([]byte) error{
			func(b []byte) error { _, err := decodeHeader(b); return err },
			func(b []byte) error {
				r, err := decodeReceipt(b, hash(1))
				if (err == nil) != (r != nil) {
					t.Fatal("neither receipt nor error")
				}
				return err
			},
			func(b []byte) error {
				logs, err := decodeLogs(b, 5, 7, []common.Address{addr(1)}, []common.Hash{hash(3)})
				if len(logs) > len(reply) {
					t.Fatal("more logs than bytes")
				}
				return err
			},
		} {
			err := decodeReply(reply, 1, decode)
			if err != nil && len(err.Error()) > 2*maxMessage {
				t.Fatal("an unbounded error")
			}
			Revert(err)
			SendError(err)
		}
	})
}
