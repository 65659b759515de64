package relayer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"dongate/internal/simchain"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
)

// commits makes blocks and answers until something is so, less and less often, so that there are few: every 32nd is final at once.
func (h *house) commits(what string, so func() bool) {
	h.t.Helper()
	next, wait := time.Now(), 50*time.Millisecond
	h.until(what, func() bool {
		if time.Now().Before(next) {
			return so()
		}
		_, err := h.chain.Commit(h.t.Context())
		require.NoError(h.t, err)
		_, err = h.chain.Answer(h.t.Context())
		require.NoError(h.t, err)
		next = time.Now().Add(wait)
		wait += wait / 2
		return so()
	})
}

// afterFinal makes blocks until the newest is one that is final at once, so that the next 31 can be replaced.
func (h *house) afterFinal() {
	h.t.Helper()
	head, err := h.chain.Commit(h.t.Context())
	require.NoError(h.t, err)
	_, err = h.chain.CommitN(h.t.Context(), int(32-head%32))
	require.NoError(h.t, err)
}

// runWith runs a relayer with options that were changed.
func (h *house) runWith(change func(o *Options)) {
	h.t.Helper()
	o := h.options()
	change(&o)
	r, err := New(o)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		require.NoError(h.t, <-done)
	})
}

// After a re-organisation the number of a completed user decryption is another's: it is served what it was completed with, and follows to its new number.
func TestCompletedKeepsItsShares(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		h.afterFinal()
		_, stop := h.run()
		r := h.post(fhevm.EndpointUserDecrypt, 1)
		h.commits("completed", func() bool { return h.job(r).State == fhevm.StateCompleted })
		stop()
		before := h.job(r)
		shares, err := h.store.Shares(t.Context(), before.ID)
		require.NoError(t, err)
		require.NotEmpty(t, shares)
		head, err := h.chain.Commit(t.Context())
		require.NoError(t, err)
		removed, err := h.chain.Rewind(t.Context(), int(head-h.attempts(r)[0].Block.Number)+1, true)
		require.NoError(t, err)
		require.EqualValues(t, head-h.attempts(r)[0].Block.Number+1, removed)
		foreign := h.net.NewRequest(fhevm.EndpointUserDecrypt, 2, time.Now())
		_, err = h.chain.SendRequest(t.Context(), h.net.Accounts[1], foreign.Decoded)
		require.NoError(t, err)
		for range 4 {
			_, err = h.chain.Commit(t.Context())
			require.NoError(t, err)
			_, err = h.chain.Answer(t.Context())
			require.NoError(t, err)
		}
		h.run()
		h.commits("it has its new number", func() bool {
			j := h.job(r)
			return j.Reference != nil && *j.Reference != *before.Reference
		})
		v, err := h.chain.Judge(t.Context())
		require.NoError(t, err)
		require.Equal(t, store.Hash(v.ByContent()[foreign.Content][0].ID), *before.Reference)
		require.Equal(t, store.Hash(v.ByContent()[r.Content][0].ID), *h.job(r).Reference)
		h.commits("its answer under the new number is read", func() bool {
			v, err := h.chain.Judge(t.Context())
			require.NoError(t, err)
			cursor, err := h.store.Cursor(t.Context())
			require.NoError(t, err)
			return v.ByContent()[r.Content][0].Answered != 0 && cursor.Number >= v.Head-1
		})
		now, err := h.store.Shares(t.Context(), before.ID)
		require.NoError(t, err)
		require.Equal(t, shares, now)
	})
}

// Nothing is sent before it is known where events are read from: an answer before that would be lost.
func TestNothingIsSentBeforeTheCursor(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.through(simchain.Rule{Method: "eth_getBlockByNumber", Fault: simchain.FaultHang, Times: 1})
	r := h.post(fhevm.EndpointInputProof, 1)
	h.runWith(func(o *Options) { o.StartBlock = 0 })
	h.ends(r, fhevm.StateCompleted)
}

// A nonce that was used so long ago that its block is not looked for is given up all the same.
func TestNonceUsedLongAgo(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{KMS: &simchain.KMSOptions{}})
	h.o.blocksBack = 50
	p := h.through(noSync, simchain.Rule{Method: "eth_sendRawTransaction", Fault: simchain.FaultCut})
	_, stop := h.run()
	r := h.post(fhevm.EndpointInputProof, 1)
	h.until("in flight", func() bool { return h.job(r).State == fhevm.StateTxInFlight })
	stop()
	p.SetRules()
	h.spend(0)
	_, err := h.chain.CommitN(t.Context(), 200)
	require.NoError(t, err)
	h.run()
	h.commits("completed", func() bool { return h.job(r).State == fhevm.StateCompleted })
	all := h.attempts(r)
	require.Equal(t, store.Lost, all[0].Result)
	require.Greater(t, all[len(all)-1].Nonce, all[0].Nonce)
	h.once(r)
}

// A chain that does not say a threshold holds up the user decryptions that need it, and nothing else; when it answers they complete.
func TestThresholdsHang(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	p, err := simchain.NewProxy(h.net, 1, simchain.Rule{Method: "eth_call", Fault: simchain.FaultHang})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	pool, err := chain.NewPool(chain.PoolOptions{Name: "host chain", URLs: []string{p.HTTP()}, ChainID: h.net.ChainID, CallTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	thresholds, err := chain.NewThresholds(chain.ThresholdOptions{Pool: pool, ProtocolConfig: h.net.ProtocolConfig, Static: h.net.Threshold})
	require.NoError(t, err)
	h.runWith(func(o *Options) { o.Thresholds = thresholds })
	waits := h.post(fhevm.EndpointUserDecryptV3, 1)
	h.until("every share is stored", func() bool {
		j := h.job(waits)
		shares, err := h.store.Shares(t.Context(), j.ID)
		require.NoError(t, err)
		return len(shares) == h.net.Nodes
	})
	other := h.post(fhevm.EndpointPublicDecrypt, 2)
	h.ends(other, fhevm.StateCompleted)
	require.Equal(t, fhevm.StateReceiptReceived, h.job(waits).State)
	p.SetRules()
	h.ends(waits, fhevm.StateCompleted)
}

// What was answered in time counts, however late it is read: after an outage longer than the limit nothing is timed out before it was looked for.
func TestAnsweredDuringAnOutage(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		_, stop := h.run()
		r := h.post(fhevm.EndpointPublicDecrypt, 1)
		h.until("the chain has it", func() bool {
			_, err := h.chain.Commit(t.Context())
			require.NoError(t, err)
			return h.job(r).State == fhevm.StateReceiptReceived
		})
		stop()
		for range 3 {
			_, err := h.chain.Answer(t.Context())
			require.NoError(t, err)
			_, err = h.chain.Commit(t.Context())
			require.NoError(t, err)
		}
		p := h.through(simchain.Rule{Method: "eth_getLogs", Fault: simchain.FaultCut}) // so that the times are looked at first
		later := func() time.Time { return time.Now().Add(time.Hour) }
		h.runWith(func(o *Options) { o.Now, o.TimeoutSweep = later, 10*time.Millisecond })
		require.NoError(t, p.Wait(t.Context(), simchain.FaultCut, 20))
		require.Equal(t, fhevm.StateReceiptReceived, h.job(r).State)
		p.SetRules()
		h.ends(r, fhevm.StateCompleted)
	})
}

// What no node would take is refused before it has a nonce.
func TestTooLargeARequest(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.run()
	r := h.net.NewRequest(fhevm.EndpointInputProof, 1, time.Now())
	proof := *r.Decoded.(*fhevm.InputProof)
	proof.Ciphertext = make([]byte, maxTxBytes)
	large := h.insert(simchain.Request{Endpoint: r.Endpoint, Decoded: &proof})
	j := h.ends(large, fhevm.StateFailure)
	require.Equal(t, string(fhevm.CauseTransactionFailed), j.ErrCode)
	require.Contains(t, j.ErrReason, "too large")
	require.Empty(t, h.attempts(large))
	proof.Ciphertext = make([]byte, maxTxBytes-2*envelopeBytes)
	fits := h.insert(simchain.Request{Endpoint: r.Endpoint, Decoded: &proof})
	h.ends(fits, fhevm.StateCompleted)
}

// Requests that cannot be estimated hold up no others, and those that never can are refused.
func TestEstimatesThatFail(t *testing.T) {
	t.Parallel()
	for message, failure := range map[string]bool{"gas required exceeds allowance (16777216)": true, "internal error": false} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
			p := h.through(simchain.Rule{Method: "eth_estimateGas", Fault: simchain.FaultError, Code: -32000, Message: message, Times: 4})
			h.o.MaxInFlight = 1
			h.run()
			var all []request
			for n := range uint64(4) {
				all = append(all, h.post(fhevm.EndpointPublicDecrypt, n))
			}
			require.NoError(t, p.Wait(t.Context(), simchain.FaultError, 4))
			other := h.post(fhevm.EndpointInputProof, 3)
			h.ends(other, fhevm.StateCompleted)
			for _, r := range all {
				if failure {
					require.Equal(t, string(fhevm.CauseTransactionFailed), h.ends(r, fhevm.StateFailure).ErrCode)
				} else {
					h.ends(r, fhevm.StateCompleted)
				}
			}
		})
	}
}

// Where the node in use keeps no receipts, the others are asked.
func TestNodeWithoutReceipts(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.through(noSync, simchain.Rule{Method: "eth_getTransactionReceipt", Fault: simchain.FaultNull})
	h.nodes, h.ws = append(h.nodes, h.net.HTTP), nil
	h.run()
	h.ends(h.post(fhevm.EndpointInputProof, 1), fhevm.StateCompleted)
}

// A node's words, which may hold the key of its account, are not stored for clients.
func TestNodesWords(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef"
	for _, method := range []string{"eth_call", "eth_estimateGas"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
			h.through(simchain.Rule{Method: method, Fault: simchain.FaultError, Code: -32000, Message: fmt.Sprintf("project %s; gas required exceeds what eth.example.com/v3/%s allows", key, key)})
			h.run()
			j := h.ends(h.post(fhevm.EndpointPublicDecrypt, 2), fhevm.StateFailure)
			require.NotContains(t, j.ErrReason, key)
			require.NotContains(t, j.ErrReason, "example.com")
		})
	}
}

// The operator's pause also stops what is being estimated.
func TestPauseDuringEstimate(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	p := h.through(simchain.Rule{Method: "eth_estimateGas", Fault: simchain.FaultSlow, Delay: 300 * time.Millisecond})
	h.run()
	r := h.post(fhevm.EndpointInputProof, 1)
	require.NoError(t, p.Wait(t.Context(), simchain.FaultSlow, 1))
	require.NoError(t, h.store.SetPaused(t.Context(), true))
	calls := p.Calls()["eth_blockNumber"] + p.Calls()["eth_getBlockByNumber"]
	h.until("time passes", func() bool { return p.Calls()["eth_blockNumber"]+p.Calls()["eth_getBlockByNumber"] > calls+60 })
	require.Equal(t, fhevm.StateProcessing, h.job(r).State)
	require.NoError(t, h.store.SetPaused(t.Context(), false))
	h.ends(r, fhevm.StateCompleted)
}

// An event that is larger than what may be stored is left out, and the events behind it are read.
func TestTooLargeAnEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	registry := prometheus.NewRegistry()
	h.o.Metrics = registry
	r, err := New(h.options())
	require.NoError(t, err)
	d := &dispatcher{Relayer: r, log: zap.NewNop()}
	require.NoError(t, d.apply(t.Context(), responseLog(t, make([]byte, storage.MaxPayload/2))))
	require.NoError(t, d.apply(t.Context(), responseLog(t, []byte{1, 2, 3})))
	require.EqualValues(t, 1, gathered(t, registry, "relayer_gateway_malformed_events_total"))
}

// responseLog is the event of a public decryption's response.
func responseLog(t *testing.T, result []byte) types.Log {
	t.Helper()
	argument := func(name string) abi.Argument {
		typ, err := abi.NewType(name, "", nil)
		require.NoError(t, err)
		return abi.Argument{Type: typ}
	}
	data, err := abi.Arguments{argument("bytes"), argument("bytes[]"), argument("bytes")}.Pack(result, [][]byte{{1}}, []byte{0})
	require.NoError(t, err)
	return types.Log{Topics: []common.Hash{fhevm.EventPublicResponse.Topic, {31: 9}}, Data: data, BlockHash: common.Hash{1}, BlockNumber: 1, Index: uint(len(result))}
}
