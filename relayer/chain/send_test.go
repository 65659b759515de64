package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

func TestSendRaw(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 2)
	raw := []byte{2, 1}
	s[0].on("eth_sendRawTransaction", result(crypto.Keccak256Hash(raw))).times(1)
	require.NoError(t, p.SendRaw(t.Context(), raw))
	require.Equal(t, []string{`eth_sendRawTransaction["0x0201"]`}, callText(s[0].seen()))

	s[0].on("eth_sendRawTransaction", result(hash(1))).times(1)
	s[1].on("eth_sendRawTransaction", fail(-32000, "already known", nil))
	require.Equal(t, Known, SendError(p.SendRaw(t.Context(), raw)), "another hash is no answer, the other node is asked")
	s[1].clear()
	s[1].on("eth_sendRawTransaction", status(502))
	s[0].on("eth_sendRawTransaction", status(502))
	require.Equal(t, Unavailable, SendError(p.SendRaw(t.Context(), raw)))
}

func TestSendRawSync(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	raw := []byte{2, 1}
	tx := crypto.Keccak256Hash(raw)
	s[0].on("eth_sendRawTransactionSync", result(receiptJSON(tx))).times(1)
	r, err := p.SendRawSync(t.Context(), raw)
	require.NoError(t, err)
	require.Equal(t, tx, r.TxHash)
	require.Equal(t, []string{`eth_sendRawTransactionSync["0x0201",5000]`}, callText(s[0].seen()))

	s[0].on("eth_sendRawTransactionSync", fail(4, "The transaction was added to the transaction pool but wasn't processed in 5s", tx)).times(1)
	_, err = p.SendRawSync(t.Context(), raw)
	require.ErrorIs(t, err, ErrSyncTimeout)
	require.Equal(t, Known, SendError(err))

	s[0].on("eth_sendRawTransactionSync", fail(-32000, "nonce too low: next nonce 5, tx nonce 4", nil)).times(1)
	r, err = p.SendRawSync(t.Context(), raw)
	require.Equal(t, NonceTooLow, SendError(err))
	require.Nil(t, r)

	s[0].on("eth_sendRawTransactionSync", result(receiptJSON(hash(1)))).times(1)
	r, err = p.SendRawSync(t.Context(), raw)
	require.Equal(t, Unavailable, SendError(err))
	require.Nil(t, r)
}

// The wait that the node is asked for leaves time for its answer.
func TestSendRawSyncDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 1)
		s[0].on("eth_sendRawTransactionSync", fail(4, "", nil))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err := p.SendRawSync(ctx, []byte{1})
		require.ErrorIs(t, err, ErrSyncTimeout)
		require.Equal(t, []string{`eth_sendRawTransactionSync["0x01",2000]`}, callText(s[0].seen()))
	})
}

func TestNoSync(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]answer{
		"unknown":       fail(-32601, "the method eth_sendRawTransactionSync does not exist/is not available", nil),
		"other params":  fail(-32602, "too many arguments, want at most 1", nil),
		"not supported": fail(-32004, "Method not supported", nil),
		"by name":       fail(-32600, "Unsupported method: eth_sendRawTransactionSync on ARB", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, _ := newPool(t, 1)
				s[0].on("eth_sendRawTransactionSync", refusal)
				s[0].on("eth_getCode", status(500)).times(1)
				for range 3 {
					_, err := p.SendRawSync(t.Context(), []byte{1})
					require.ErrorIs(t, err, ErrNoSync)
				}
				require.Len(t, s[0].seen(), 1, "it is remembered")
				_, err := p.CodeAt(t.Context(), addr(1))
				require.Error(t, err)
				_, err = p.SendRawSync(t.Context(), []byte{1})
				require.ErrorIs(t, err, ErrNoSync)
				require.Len(t, s[0].seen(), 2, "until the node fails")
			})
		})
	}
}

func TestSendError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]SendClass{
		"already known": Known, "Known transaction: 0xab": Known, "AlreadyKnown": Known, "ALREADY_EXISTS: already known": Known,
		"nonce too low": NonceTooLow, "nonce too low: next nonce 9, tx nonce 8": NonceTooLow, "OldNonce": NonceTooLow,
		"nonce too high: address 0x0, tx: 9 state: 1": NonceTooHigh,
		"replacement transaction underpriced":         Underpriced, "transaction underpriced: gas tip cap 1, minimum needed 2": Underpriced,
		"max fee per gas less than block base fee: address 0x": Underpriced, "transaction gas price below minimum": Underpriced,
		"insufficient funds for gas * price + value": InsufficientFunds, "Upfront cost exceeds account balance": InsufficientFunds,
		"execution reverted": Reverted, "VM Exception while processing transaction: reverted": Reverted,
		"invalid sender": Other, "": Other,
	} {
		require.Equal(t, want, SendError(fmt.Errorf("x: %w", &RPCError{Code: -32000, Message: text})), text)
	}
	require.Equal(t, Reverted, SendError(&RPCError{Code: 3}))
	require.Equal(t, Unavailable, SendError(fmt.Errorf("x: %w", ErrUnavailable)))
	require.Equal(t, Known, SendError(nil))
	require.Equal(t, Other, SendError(context.Canceled))
	require.Equal(t, Other, SendError(ErrNoSync))
}

func TestRevert(t *testing.T) {
	t.Parallel()
	paused := hexutil.Encode(crypto.Keccak256([]byte("EnforcedPause()"))[:4])
	for name, c := range map[string]struct {
		answer answer
		cause  fhevm.Cause // "": no revert
	}{
		"go-ethereum":       {fail(3, "execution reverted", paused), fhevm.CauseProtocolPaused},
		"word before":       {fail(-32015, "VM execution error.", "Reverted "+paused), fhevm.CauseProtocolPaused},
		"no data":           {fail(-32000, "execution reverted", nil), fhevm.CauseReverted},
		"odd data":          {fail(3, "execution reverted", "0xabc"), fhevm.CauseReverted},
		"data object":       {fail(3, "execution reverted", map[string]any{"a": 1}), fhevm.CauseReverted},
		"out of gas":        {fail(-32000, "out of gas", nil), fhevm.CauseReverted},
		"selector in words": {fail(-32000, "execution reverted: d93c0665", nil), fhevm.CauseReverted},
		"other":             {fail(-32000, "header not found", nil), ""},
		"not answered":      {status(500), ""},
	} {
		p, s, _ := newPool(t, 1)
		s[0].on("eth_call", c.answer)
		_, err := p.Call(t.Context(), addr(1), addr(2), nil, Latest, 0)
		require.Error(t, err)
		r, ok := Revert(err)
		require.Equal(t, c.cause != "", ok, name)
		require.Equal(t, c.cause, r.Cause, name)
	}
	_, ok := Revert(nil)
	require.False(t, ok)
	_, ok = Revert(errors.New("execution reverted"))
	require.False(t, ok)
}

func TestClean(t *testing.T) {
	t.Parallel()
	const id, address = "0123456789abcdef0123456789abcdef", "0x5D8BD78e2ea6bbE41f26dFe9fdaEAa349e077478"
	for said, want := range map[string]string{
		"see wss://k@h/" + secret + " or HTTPS://H/x":                               "see (URL) or (URL)",
		"project ID " + id + " request rate exceeded; see eth.example.com/v3/" + id: "project ID (key) request rate exceeded; see (URL)",
		"dial tcp 10.0.0.7:8545: refused":                                           "dial tcp (URL): refused",
		"dial [2001:db8::1]:8545: refused, geth-1:8545/ab":                          "dial (URL): refused, (URL)",
		"upstream user:pw@node and a.b.io?k=1 and localhost/x":                      "upstream (URL) and (URL) and (URL)",
		"no route /v2/short":                                                        "no route (URL)",
		"bad apikey=short, api key: short":                                          "bad apikey=(key) api key: (key)",
		"the key 4b1f8c1e-55a2-4c80-9d5e-0a4ad9a5d1b2 is gone":                      "the key (key) is gone",
		// What a person needs stays.
		"the method eth_sendRawTransactionSync does not exist/is not available":              "the method eth_sendRawTransactionSync does not exist/is not available",
		"insufficient funds: address " + address + " have 0.5 want 100000000000000000000001": "insufficient funds: address " + address + " have 0.5 want 100000000000000000000001",
		"nonce too low: next nonce 9, tx nonce 8":                                            "nonce too low: next nonce 9, tx nonce 8",
		"a\nb\xff": "a?b?",
	} {
		require.Equal(t, want, clean(said))
	}
	require.Equal(t, strings.Repeat("a", maxMessage), clean(strings.Repeat("a", 1<<20)))
	require.NotContains(t, clean(strings.Repeat("a", maxMessage-12)+" https://h/"+secret), "s3")
	require.LessOrEqual(t, len(clean(strings.Repeat("é", maxMessage))), maxMessage)
	for n := 0; n < 5*maxMessage; n += 11 { // wherever it is cut
		for _, before := range []string{strings.Repeat("b", n), strings.Repeat("b ", n/2), strings.Repeat(" ", n), "https://" + strings.Repeat("b", n)} {
			require.NotContains(t, clean(before+" "+id+id), id[:12])
		}
	}
}
