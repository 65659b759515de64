package relayer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// Each kind in each of its forms gets to its result with one transaction.
func TestEveryEndpoint(t *testing.T) {
	t.Parallel()
	kms := &simchain.KMSOptions{}
	each(t, simchain.Options{Interval: interval, KMS: kms}, func(t *testing.T, h *house) {
		h.run()
		var all []request
		for _, e := range fhevm.Endpoints {
			for n := range uint64(3) {
				all = append(all, h.post(e, n))
			}
		}
		for _, r := range all {
			j := h.ends(r, fhevm.StateCompleted)
			require.NotNil(t, j.Reference)
			ref := fhevm.Reference(*j.Reference)
			if r.Decoded.Kind() != fhevm.KindUserDecrypt {
				got, err := fhevm.DecodeResult(j.Kind, j.Accepted != nil && *j.Accepted, j.Result)
				require.NoError(t, err)
				if j.Kind == fhevm.KindInputProof {
					require.Equal(t, kms.ProofResult(ref, h.net.Nodes), got)
				} else {
					require.Equal(t, kms.PublicResult(ref, h.net.Nodes, r.Decoded.(*fhevm.PublicDecrypt).ExtraData), got)
				}
				continue
			}
			require.EqualValues(t, h.net.Threshold, j.Threshold)
			var shares []store.Share
			h.until("every share, late ones too", func() bool {
				var err error
				shares, err = h.store.Shares(t.Context(), *j.Reference)
				require.NoError(t, err)
				return len(shares) == h.net.Nodes
			})
		}
		h.once(all...)
	})
}
