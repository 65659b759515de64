package relayer

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/api"
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
				shares, err = h.store.Shares(t.Context(), j.ID)
				require.NoError(t, err)
				return len(shares) == h.net.Nodes
			})
		}
		h.once(all...)
	})
}

// A thousand clients post the same at once: one job, one row, one transaction.
func TestIdenticalRequests(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		r, _ := h.run()
		limits := map[fhevm.Kind]api.Queue{}
		for _, k := range fhevm.Kinds {
			limits[k] = api.Queue{TPS: 20, Capacity: 11_000, Margin: 1000}
		}
		handler, err := api.New(api.Options{Store: h.store, Limits: limits, RetryAfter: fhevm.DefaultRetryAfter(), Threshold: h.net.Threshold,
			ReadinessConcurrency: 250, Signatures: noSignatures{}, HostChains: func(uint64) bool { return true }, Notify: r.Notify})
		require.NoError(t, err)
		posted := h.net.NewRequest(fhevm.EndpointUserDecrypt, 1, time.Now())
		var wg sync.WaitGroup
		jobs := make([]string, 1000)
		for i := range jobs {
			wg.Go(func() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, string(posted.Endpoint), bytes.NewReader(posted.Body)))
				var answer struct{ Result struct{ JobID string } }
				if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusAccepted {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				jobs[i] = answer.Result.JobID
			})
		}
		wg.Wait()
		for _, job := range jobs {
			require.Equal(t, jobs[0], job)
		}
		one := request{posted, jobs[0]}
		h.ends(one, fhevm.StateCompleted)
		require.Len(t, h.attempts(one), 1)
		h.once(one)
		counts, err := h.store.Counts(t.Context(), fhevm.KindUserDecrypt)
		require.NoError(t, err)
		require.Equal(t, []store.StateCount{{State: fhevm.StateCompleted, Count: 1}}, counts)
	})
}

type noSignatures struct{}

func (noSignatures) Check(context.Context, *fhevm.UnifiedUserDecrypt) error { return nil }

func (noSignatures) Signed(*fhevm.UnifiedUserDecrypt) bool { return true }
