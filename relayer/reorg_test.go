package relayer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// A re-organisation takes the transaction's block between receipt and response: the request follows the chain to its new place, and what the nodes
// forgot is sent again, with the same bytes.
func TestReorganisation(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]bool{"mined again": false, "dropped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{DelayBlocks: 4}}, func(t *testing.T, h *house) {
				h.run()
				var all []request
				for n := range uint64(4) {
					for _, e := range []fhevm.Endpoint{fhevm.EndpointInputProof, fhevm.EndpointPublicDecrypt, fhevm.EndpointUserDecryptV3} {
						all = append(all, h.post(e, n))
					}
					last := all[len(all)-1]
					h.until("the chain has it", func() bool { return h.job(last).Reference != nil })
					_, err := h.chain.Reorg(t.Context(), 2, drop)
					require.NoError(t, err)
				}
				h.settled(all)
			})
		})
	}
}

// settled waits until every request is completed under the number that the chain knows it by, and no transaction is adrift.
func (h *house) settled(all []request) {
	h.t.Helper()
	for _, r := range all {
		h.ends(r, fhevm.StateCompleted)
	}
	h.until("nothing is adrift", func() bool {
		adrift, err := h.store.Adrift(h.t.Context(), 0, 10)
		require.NoError(h.t, err)
		return len(adrift) == 0
	})
	h.once(all...)
}

// A completed request whose blocks are taken away stays completed, and its transaction gets back to the chain, so that its nonce holds nobody up.
func TestReorganisationAfterCompletion(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		h.run()
		commit := func(what string, so func() bool) {
			h.until(what, func() bool {
				_, err := h.chain.Commit(t.Context())
				require.NoError(t, err)
				_, err = h.chain.Answer(t.Context())
				require.NoError(t, err)
				return so()
			})
		}
		r := h.post(fhevm.EndpointUserDecrypt, 1)
		commit("completed", func() bool { return h.job(r).State == fhevm.StateCompleted })
		mined := h.attempts(r)[0]
		head, err := h.chain.Commit(t.Context())
		require.NoError(t, err)
		replaced, err := h.chain.Reorg(t.Context(), int(head-mined.Block.Number)+1, true)
		require.NoError(t, err)
		if int64(replaced) < head-mined.Block.Number+1 {
			t.Logf("the transaction's block was final already: only %d blocks could be replaced", replaced)
		}
		next := h.post(fhevm.EndpointUserDecrypt, 2)
		commit("the next one is completed", func() bool { return h.job(next).State == fhevm.StateCompleted })
		h.settled([]request{r, next})
		require.Equal(t, store.Mined, h.attempts(r)[0].Result)
	})
}

func (h *house) attempts(r request) []store.Attempt {
	h.t.Helper()
	all, err := h.store.Attempts(h.t.Context(), r.Decoded.Kind(), h.job(r).ID)
	require.NoError(h.t, err)
	return all
}

// After a re-organisation the number of our request can be another's, whose answer must not become ours.
func TestNumberIsAnothersAfterReorganisation(t *testing.T) {
	t.Parallel()
	kms := &simchain.KMSOptions{}
	each(t, simchain.Options{KMS: kms}, func(t *testing.T, h *house) {
		h.afterFinal()
		require.NoError(t, h.chain.SetKMS(t.Context(), nil))
		_, stop := h.run()
		r := h.post(fhevm.EndpointPublicDecrypt, 1)
		h.commits("it has a number", func() bool { return h.job(r).Reference != nil })
		stop()
		require.NoError(t, h.chain.SetKMS(t.Context(), kms))
		old := *h.job(r).Reference
		head, err := h.chain.Commit(t.Context())
		require.NoError(t, err)
		_, err = h.chain.Rewind(t.Context(), int(head-h.attempts(r)[0].Block.Number)+1, true)
		require.NoError(t, err)
		foreign := h.net.NewRequest(fhevm.EndpointPublicDecrypt, 2, time.Now())
		_, err = h.chain.SendRequest(t.Context(), h.net.Accounts[1], foreign.Decoded)
		require.NoError(t, err)
		for range 4 {
			_, err = h.chain.Commit(t.Context())
			require.NoError(t, err)
			_, err = h.chain.Answer(t.Context())
			require.NoError(t, err)
		}
		v, err := h.chain.Judge(t.Context())
		require.NoError(t, err)
		require.Equal(t, old, store.Hash(v.ByContent()[foreign.Content][0].ID))
		require.NotZero(t, v.ByContent()[foreign.Content][0].Answered)

		h.run()
		h.until("completed", func() bool {
			_, err := h.chain.Commit(t.Context())
			require.NoError(t, err)
			_, err = h.chain.Answer(t.Context())
			require.NoError(t, err)
			return h.job(r).State == fhevm.StateCompleted
		})
		j := h.job(r)
		require.NotEqual(t, old, *j.Reference)
		got, err := fhevm.DecodeResult(j.Kind, false, j.Result)
		require.NoError(t, err)
		require.Equal(t, kms.PublicResult(fhevm.Reference(*j.Reference), h.net.Nodes, r.Decoded.(*fhevm.PublicDecrypt).ExtraData), got)
	})
}
