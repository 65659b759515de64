package relayer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
)

// through puts a node that spoils what passes between the relayer and its chain.
func (h *house) through(rules ...simchain.Rule) *simchain.Proxy {
	h.t.Helper()
	p, err := simchain.NewProxy(h.net, 1, rules...)
	require.NoError(h.t, err)
	h.t.Cleanup(p.Close)
	h.nodes, h.ws = []string{p.HTTP()}, []string{p.WS()}
	return p
}

// noSync is a node without eth_sendRawTransactionSync.
var noSync = simchain.Rule{Method: "eth_sendRawTransactionSync", Fault: simchain.FaultError, Code: -32601, Message: "the method does not exist"}

// What the contracts refuse is the request's failure, with the cause that clients are told.
func TestRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}, Fee: 100})
	h.run()
	ctx, signer := t.Context(), h.net.Accounts[0].Address
	n := uint64(0)
	fails := func(e fhevm.Endpoint, cause fhevm.Cause) store.Job {
		t.Helper()
		n++
		j := h.ends(h.post(e, n), fhevm.StateFailure)
		require.Equal(t, string(cause), j.ErrCode, j.ErrReason)
		return j
	}
	require.NoError(t, h.chain.Pause(ctx, true))
	fails(fhevm.EndpointInputProof, fhevm.CauseProtocolPaused)
	fails(fhevm.EndpointPublicDecrypt, fhevm.CauseProtocolPaused)
	require.NoError(t, h.chain.Pause(ctx, false))
	require.NoError(t, h.chain.SetAllowance(ctx, signer, big.NewInt(99)))
	fails(fhevm.EndpointUserDecrypt, fhevm.CauseInsufficientAllowance)
	require.NoError(t, h.chain.SetAllowance(ctx, signer, big.NewInt(1e9)))
	require.NoError(t, h.chain.SetBalance(ctx, signer, big.NewInt(99)))
	fails(fhevm.EndpointUserDecryptV3, fhevm.CauseInsufficientBalance)
	require.NoError(t, h.chain.SetBalance(ctx, signer, big.NewInt(1e9)))

	require.NoError(t, h.chain.SetEverythingAllowed(ctx, false))
	j := fails(fhevm.EndpointPublicDecrypt, fhevm.CauseNotAllowedOnHostACL)
	require.Contains(t, j.ErrReason, "Not allowed on host ACL: ACL check failed for 1 handle(s)")
	require.NoError(t, h.chain.SetEverythingAllowed(ctx, true))
	require.NoError(t, h.chain.SetACLFails(ctx, true))
	fails(fhevm.EndpointUserDecrypt, fhevm.CauseHostACLFailed)
	require.NoError(t, h.chain.SetACLFails(ctx, false))
	require.NoError(t, h.chain.SetReadinessFails(ctx, true))
	fails(fhevm.EndpointUserDecrypt, fhevm.CauseReadinessFailed)
	require.NoError(t, h.chain.SetReadinessFails(ctx, false))
	h.once()

	// The same content again after a failure is a new request, which succeeds now.
	again := h.post(fhevm.EndpointUserDecrypt, n)
	h.ends(again, fhevm.StateCompleted)
	h.once(again)
}

// A proof that the network rejects is a result.
func TestRejectedProof(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{RejectEvery: 1}})
	h.run()
	r := h.post(fhevm.EndpointInputProof, 1)
	j := h.ends(r, fhevm.StateCompleted)
	require.NotNil(t, j.Accepted)
	require.False(t, *j.Accepted)
	h.once(r)
}

// A decryption waits until its ciphertexts are ready, and is timed out if they never are.
func TestReadiness(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}, Closed: true}, func(t *testing.T, h *house) {
		h.o.ReadinessTimeout = 2 * time.Second
		require.NoError(t, h.chain.SetEverythingAllowed(t.Context(), true))
		h.run()
		never := h.post(fhevm.EndpointPublicDecrypt, 1)
		later := h.post(fhevm.EndpointPublicDecrypt, 2)
		require.Equal(t, fhevm.StateQueued, h.job(later).State)
		require.NoError(t, h.chain.SetReady(t.Context(), true, simchain.Handle(2)))
		h.ends(later, fhevm.StateCompleted)
		j := h.ends(never, fhevm.StateTimedOut)
		require.Equal(t, string(fhevm.CauseReadinessTimedOut), j.ErrCode)
		h.once(later)
	})
}

// A request that the nodes do not answer is timed out; an answer after that changes nothing.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{SilentEvery: 1}}, func(t *testing.T, h *house) {
		h.o.Timeouts = map[fhevm.Kind]time.Duration{fhevm.KindUserDecrypt: time.Second}
		h.o.TimeoutSweep = 100 * time.Millisecond
		h.run()
		r := h.post(fhevm.EndpointUserDecrypt, 1)
		j := h.ends(r, fhevm.StateTimedOut)
		require.Equal(t, string(fhevm.CauseResponseTimedOut), j.ErrCode)
		h.once(r)
	})
}

// Events that come twice and in any order, and before the receipt, lead to the same results.
func TestEventsInAnyOrder(t *testing.T) {
	t.Parallel()
	kms := &simchain.KMSOptions{Duplicates: 2, Shuffle: true, Missing: 3, Seed: 7}
	each(t, simchain.Options{Interval: interval, KMS: kms}, func(t *testing.T, h *house) {
		p := h.through(noSync, simchain.Rule{Method: "eth_getTransactionReceipt", Fault: simchain.FaultNull, Times: 60},
			simchain.Rule{Method: "eth_getLogs", Fault: simchain.FaultShuffle, Chance: 0.5}, simchain.Rule{Method: "eth_getLogs", Fault: simchain.FaultRepeat})
		h.run()
		var all []request
		for n, e := range fhevm.Endpoints {
			all = append(all, h.post(e, uint64(n)))
		}
		for _, r := range all {
			h.ends(r, fhevm.StateCompleted)
		}
		require.Equal(t, 60, p.Counts()[simchain.FaultNull])
		h.once(all...)
		h.until("no early event is left", func() bool {
			for _, k := range fhevm.Kinds {
				early, err := h.store.EarlyMatched(t.Context(), k, 10)
				require.NoError(t, err)
				if len(early) > 0 {
					return false
				}
			}
			return true
		})
	})
}

// The answer to a send is lost, the node hangs, errs or cannot be reached: one transaction each all the same.
func TestNodeFails(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]simchain.Rule{
		"answers lost":   {{Method: "eth_sendRawTransactionSync", Fault: simchain.FaultDrop}, {Method: "eth_sendRawTransaction", Fault: simchain.FaultDrop, Times: 3}},
		"sends fail":     {{Method: "eth_sendRawTransactionSync", Fault: simchain.FaultCut, Times: 5}, {Method: "eth_sendRawTransaction", Fault: simchain.FaultError, Times: 5}},
		"everything":     {{Fault: simchain.FaultError, Chance: 0.1}, {Fault: simchain.FaultStatus, Chance: 0.05}, {Fault: simchain.FaultGarbage, Chance: 0.05}},
		"nonces too low": {{Method: "eth_getTransactionCount", Fault: simchain.FaultOffset, Delta: -1, Chance: 0.5}},
		"says too low":   {noSync, {Method: "eth_sendRawTransaction", Fault: simchain.FaultError, Code: -32000, Message: "nonce too low", Times: 4}, {Method: "eth_getTransactionCount", Fault: simchain.FaultOffset, Delta: 5, After: 1, Times: 30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
			h.through(rules...)
			h.run()
			var all []request
			for n, e := range fhevm.Endpoints {
				all = append(all, h.post(e, uint64(n)), h.post(e, uint64(n+100)))
			}
			for _, r := range all {
				h.ends(r, fhevm.StateCompleted)
			}
			h.once(all...)
		})
	}
}

// A first nonce that is too high leaves a gap, which is found and closed.
func TestNonceTooHigh(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.through(simchain.Rule{Method: "eth_getTransactionCount", Fault: simchain.FaultOffset, Delta: 2, Times: 2})
	h.run()
	r := h.post(fhevm.EndpointPublicDecrypt, 1)
	h.ends(r, fhevm.StateCompleted)
	h.once(r)
	all, err := h.store.Attempts(t.Context(), fhevm.KindPublicDecrypt, h.job(r).ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, all[0].Nonce)
}

// A transaction that pays too little is replaced with the same nonce and a higher fee, and both are known for the receipt.
func TestReplacement(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.o.BumpAfter = 300 * time.Millisecond
	// The node takes the first transaction, but it never gets to a block.
	h.through(noSync, simchain.Rule{Method: "eth_sendRawTransaction", Fault: simchain.FaultResult, Result: json.RawMessage(`"0x` + common.Bytes2Hex(make([]byte, 32)) + `"`), Times: 2})
	h.run()
	r := h.post(fhevm.EndpointPublicDecrypt, 1)
	j := h.ends(r, fhevm.StateCompleted)
	all, err := h.store.Attempts(t.Context(), j.Kind, j.ID)
	require.NoError(t, err)
	for _, a := range all {
		require.Equal(t, all[0].Nonce, a.Nonce)
	}
	h.once(r)
}

// A nonce that somebody else used with the same key is given up, once the chain shows it, and not before.
func TestNonceUsedElsewhere(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		// The first send is swallowed; then another transaction of the account takes its nonce.
		p := h.through(noSync, simchain.Rule{Method: "eth_sendRawTransaction", Fault: simchain.FaultHang, Times: 1})
		h.run()
		r := h.post(fhevm.EndpointPublicDecrypt, 1)
		require.NoError(t, p.Wait(t.Context(), simchain.FaultHang, 1))
		h.spend(0)
		_, err := h.chain.CommitN(t.Context(), 40) // what was mined stays
		require.NoError(t, err)
		j := h.ends(r, fhevm.StateCompleted)
		all, err := h.store.Attempts(t.Context(), j.Kind, j.ID)
		require.NoError(t, err)
		require.Equal(t, store.Lost, all[0].Result)
		require.Greater(t, all[len(all)-1].Nonce, all[0].Nonce)
		h.once(r)
	})
}

// A transaction that no node takes is given up for one that only uses its nonce, so that the next ones are not held up.
func TestCancellation(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	h.o.ResendAfter = 20 * time.Millisecond
	h.through(noSync, simchain.Rule{Method: "eth_sendRawTransaction", Fault: simchain.FaultError, Code: -32000, Message: "we do not like it", Times: refusedTries})
	h.run()
	r := h.post(fhevm.EndpointPublicDecrypt, 1)
	j := h.ends(r, fhevm.StateFailure)
	require.Equal(t, string(fhevm.CauseTransactionFailed), j.ErrCode)
	all, err := h.store.Attempts(t.Context(), j.Kind, j.ID)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.True(t, all[1].Cancels)
	require.Equal(t, store.Mined, all[1].Result)
	next := h.post(fhevm.EndpointPublicDecrypt, 2)
	h.ends(next, fhevm.StateCompleted)
	h.once(next)
}

// spend uses the relayer's account for a transfer of its own with a nonce.
func (h *house) spend(nonce uint64) {
	h.t.Helper()
	o := h.options()
	d := &dispatcher{Relayer: &Relayer{o: o}}
	fee, err := d.fee(context.Background())
	require.NoError(h.t, err)
	a, err := d.cancel(nonce, fee)
	require.NoError(h.t, err)
	require.NoError(h.t, o.Send.SendRaw(context.Background(), a.Raw))
}

// A node that cannot answer for many blocks, or not in time, is asked for fewer.
func TestManyBlocksAreTooMany(t *testing.T) {
	t.Parallel()
	const most = 10
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"no answer": func(w http.ResponseWriter) { w.WriteHeader(http.StatusGatewayTimeout) },
		"too many logs": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"query returned more than 10000 results"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, storage.DriverSQLite, simchain.Options{KMS: &simchain.KMSOptions{}})
			head, err := h.chain.CommitN(t.Context(), 100)
			require.NoError(t, err)
			target, err := url.Parse(h.net.HTTP)
			require.NoError(t, err)
			pass := httputil.NewSingleHostReverseProxy(target)
			node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				var call struct {
					Method string
					Params []struct{ FromBlock, ToBlock hexutil.Uint64 }
				}
				if err == nil && json.Unmarshal(body, &call) == nil && call.Method == "eth_getLogs" && call.Params[0].ToBlock-call.Params[0].FromBlock >= most {
					refuse(w)
					return
				}
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				pass.ServeHTTP(w, r)
			}))
			t.Cleanup(node.Close)
			h.nodes = []string{node.URL}
			h.run()
			h.until("the cursor is at the head", func() bool {
				cursor, err := h.store.Cursor(t.Context())
				return err == nil && cursor.Number >= head
			})
		})
	}
}

// Where there is no contract nothing is sent: the transaction would succeed, and the fee be lost.
func TestNoContract(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval})
	o := h.options()
	core, logs := observer.New(zap.ErrorLevel)
	o.Log, o.InputVerification = zap.New(core), common.Address{1, 2, 3}
	r, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	posted := h.post(fhevm.EndpointInputProof, 1)
	h.until("it is noticed", func() bool { return logs.FilterMessageSnippet("no contract").Len() > 1 })
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, fhevm.StateProcessing, h.job(posted).State)
	require.Empty(t, h.attempts(posted))
}

// Every move is counted, and the gauges follow the database.
func TestMetrics(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	registry := prometheus.NewRegistry()
	h.o.Metrics = registry
	r, _ := h.run()
	posted := h.post(fhevm.EndpointPublicDecrypt, 1)
	r.Notify(fhevm.KindPublicDecrypt)
	h.ends(posted, fhevm.StateCompleted)
	value := func(name string, labels ...string) float64 { return gathered(t, registry, name, labels...) }
	for _, e := range store.Edges {
		if e.From == "" || e.To == fhevm.StateFailure || e.To == fhevm.StateTimedOut {
			continue
		}
		h.until("counted", func() bool {
			return value("relayer_transitions_total", "public_decrypt", string(e.From), string(e.To)) == 1
		})
	}
	require.EqualValues(t, 1, value("relayer_request_status_duration_seconds", "public_decrypt", "queued"))
	h.until("counted", func() bool { return value("relayer_request_count", "public_decrypt", "completed") == 1 })
	require.EqualValues(t, 1, value("relayer_dispatcher_lock_held"))
	require.Positive(t, value("relayer_gateway_cursor_block"))
}

// gathered is a metric's value, or a histogram's number of observations; -1: there is none with these labels' values.
func gathered(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			if f.GetName() == name && !slices.ContainsFunc(labels, func(l string) bool { return !has[l] }) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}
