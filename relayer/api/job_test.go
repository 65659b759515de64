package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// Every state and cause, to a caller with and without the SDK's header.
func TestJobOutcomes(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		n := 0
		for _, e := range fhevm.Endpoints {
			for _, row := range fhevm.StatusTable() {
				k := e.Kind()
				if k == fhevm.KindInputProof && (row.State == fhevm.StateQueued || row.Cause == fhevm.CauseReadinessTimedOut || row.Cause == fhevm.CauseNotAllowedOnHostACL || row.Cause == fhevm.CauseHostACLFailed) {
					continue
				}
				if row.State == fhevm.StateCompleted {
					continue // see below
				}
				n++
				id := f.made(t, e, n)
				f.walk(t, k, id, row.State, store.Cause{Code: string(row.Cause), Reason: "because " + string(row.Cause)})
				for header, want := range map[string]fhevm.Outcome{"": row.Outcome, sdk: row.SDK} {
					a := f.do(t, "GET", string(e)+"/"+id, "", sdkName, header)
					require.Equal(t, want.Status, a.status, "%s %s %s", e, row.State, row.Cause)
					require.Equal(t, want.Label, a.body.Error.Label)
					switch a.status {
					case 202:
						require.Equal(t, "queued", a.body.Status)
						require.Equal(t, string(row.State), a.body.State)
					case 400, 503, 504:
						require.Equal(t, id, a.body.JobID)
						require.Equal(t, string(row.State), a.body.State)
					}
					require.NotContains(t, a.body.Error.Message, "reason not available")
				}
			}
		}
	})
}

func TestJobResults(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		get := func(e fhevm.Endpoint, n int) got {
			id := f.made(t, e, n)
			f.walk(t, e.Kind(), id, fhevm.StateCompleted, store.Cause{})
			f.clock.advance(5 * time.Second)
			a := f.do(t, "GET", string(e)+"/"+id, "", sdkName, sdk)
			require.Equal(t, 200, a.status)
			require.Equal(t, "succeeded", a.body.Status)
			return a
		}
		require.Contains(t, get(fhevm.EndpointInputProof, 1).raw, `"result":{"accepted":true,"extraData":"0x00","handles":["0x01`+strings.Repeat("00", 31)+`"],"signatures":["0x`+strings.Repeat("00", 65)+`"]}`)
		require.Contains(t, get(fhevm.EndpointPublicDecrypt, 1).raw, `"result":{"decryptedValue":"2a","signatures":["01","02"],"extraData":"0x00"}`)
		for i, e := range []fhevm.Endpoint{fhevm.EndpointUserDecrypt, fhevm.EndpointDelegatedUserDecrypt, fhevm.EndpointUserDecryptV3} {
			require.Contains(t, get(e, i).raw, `"result":{"result":[{"payload":"0700","signature":"08","extraData":"0x00"},{"payload":"0701","signature":"08","extraData":"0x00"},{"payload":"0702","signature":"08","extraData":"0x00"}]}`)
		}

		// A rejected proof is an answer.
		e := fhevm.EndpointInputProof
		id := f.made(t, e, 2)
		j := f.walk(t, e.Kind(), id, fhevm.StateReceiptReceived, store.Cause{})
		_, err := f.store.Complete(t.Context(), e.Kind(), *j.Reference, store.Response{Reason: fhevm.ReasonRejected, TxHash: "0x01"}, store.Event{})
		require.NoError(t, err)
		a := f.do(t, "GET", string(e)+"/"+id, "")
		require.Equal(t, 200, a.status)
		require.Contains(t, a.raw, `"result":{"accepted":false,"extraData":"0x00"}`)
	})
}

// A user decryption waits some seconds for more shares than the threshold.
func TestJobSpareShares(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		e := fhevm.EndpointUserDecryptV3
		completed := func(n int) (store.Job, string) {
			id := f.made(t, e, n)
			return f.walk(t, e.Kind(), id, fhevm.StateCompleted, store.Cause{}), string(e) + "/" + id
		}
		j, path := completed(1)
		a := f.do(t, "GET", path, "")
		require.Equal(t, 202, a.status)
		require.Equal(t, "completed", a.body.State)
		require.Equal(t, 5, a.retryAfter)
		f.clock.advance(3500 * time.Millisecond)
		require.Equal(t, 2, f.do(t, "GET", path, "").retryAfter)
		f.share(t, j, 3, 3)
		require.Equal(t, 202, f.do(t, "GET", path, "").status)
		f.share(t, j, 4, 3)
		a = f.do(t, "GET", path, "")
		require.Equal(t, 200, a.status)
		require.Len(t, a.body.Result.Result, 5)
		f.share(t, j, 5, 3)
		require.Len(t, f.do(t, "GET", path, "").body.Result.Result, 6, "all that are there")

		_, path = completed(2)
		f.clock.advance(5 * time.Second)
		require.Len(t, f.do(t, "GET", path, "").body.Result.Result, 3)

		// A re-organisation takes the shares' block: the result stays.
		require.NoError(t, f.store.DropBlock(t.Context(), hashOf("block")))
		require.Len(t, f.do(t, "GET", path, "").body.Result.Result, 3)

		f.with(t, func(o *Options) { o.AdditionalShares = 0 })
		_, path = completed(3)
		require.Equal(t, 200, f.do(t, "GET", path, "").status)
	})
}

// What a live job is told: its place, and to come back later the longer it takes.
func TestJobPending(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		e := fhevm.EndpointUserDecrypt
		var ids []string
		for n := range 3 {
			ids = append(ids, f.made(t, e, n))
		}
		told := func(id string, state fhevm.State, position, size, retryAfter int) {
			t.Helper()
			a := f.do(t, "GET", string(e)+"/"+id, "")
			require.Equal(t, 202, a.status)
			require.Equal(t, string(state), a.body.State)
			require.Equal(t, position, *a.body.QueuePosition)
			require.Equal(t, size, *a.body.TxQueueSize)
			require.Equal(t, retryAfter, a.retryAfter)
		}
		told(ids[0], fhevm.StateQueued, 0, 0, 8)
		told(ids[2], fhevm.StateQueued, 2, 0, 13)
		require.Equal(t, fhevm.FormatTime(f.clock.now()), f.do(t, "GET", string(e)+"/"+ids[0], "").body.UpdatedAt)
		f.clock.advance(2 * time.Second)
		f.walk(t, e.Kind(), ids[0], fhevm.StateProcessing, store.Cause{})
		f.walk(t, e.Kind(), ids[2], fhevm.StateProcessing, store.Cause{})
		told(ids[0], fhevm.StateProcessing, 0, 2, 8)
		told(ids[2], fhevm.StateProcessing, 1, 2, 8)
		told(ids[1], fhevm.StateQueued, 0, 2, 8)
		f.walk(t, e.Kind(), ids[2], fhevm.StateTxInFlight, store.Cause{})
		f.clock.advance(2 * time.Second)
		told(ids[2], fhevm.StateTxInFlight, 0, 1, 8)

		id := f.made(t, e, 9)
		f.walk(t, e.Kind(), id, fhevm.StateReceiptReceived, store.Cause{})
		for _, step := range []struct {
			age  time.Duration
			want int
		}{{0, 4}, {time.Minute, 10}, {time.Minute, 30}, {3 * time.Minute, 60}, {10 * time.Minute, 300}, {24 * time.Hour, 300}} {
			f.clock.advance(step.age)
			a := f.do(t, "GET", string(e)+"/"+id, "")
			require.Equal(t, step.want, a.retryAfter)
			require.Nil(t, a.body.QueuePosition)
			require.Nil(t, a.body.TxQueueSize)
		}
	})
}

func TestJobID(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		id := f.made(t, fhevm.EndpointUserDecrypt, 1)
		for _, e := range fhevm.Endpoints {
			want := 404
			if e.Kind() == fhevm.KindUserDecrypt {
				want = 202 // any id of the kind on any of its paths
			}
			require.Equal(t, want, f.do(t, "GET", string(e)+"/"+id, "").status, e)
			require.Equal(t, want, f.do(t, "GET", string(e)+"/"+strings.ToUpper(id), "").status, e)
			a := f.do(t, "GET", string(e)+"/"+uuid.NewString(), "")
			require.Equal(t, 404, a.status)
			require.Equal(t, "Request not found", a.body.Error.Message)
			for _, bad := range []string{"x", "1", "%00", "%F0%9F%92%A3", strings.ReplaceAll(id, "-", ""), "urn:uuid:" + id, "{" + id + "}", id + "0", strings.Repeat("a", 5000), "'%20OR%201=1", "{job_id}"} {
				a := f.do(t, "GET", string(e)+"/"+bad, "", sdkName, sdk)
				require.Equal(t, 400, a.status, bad)
				require.Equal(t, "Validation failed for 1 field in the request: job_id", a.body.Error.Message)
				require.Equal(t, []fhevm.Detail{{Field: "job_id", Issue: "Must be a UUID"}}, a.body.Error.Details)
			}
		}
	})
}

// A reason without a text, and a database that does not answer.
func TestJobFailures(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	e := fhevm.EndpointPublicDecrypt
	id := f.made(t, e, 1)
	f.walk(t, e.Kind(), id, fhevm.StateFailure, store.Cause{})
	require.Equal(t, "Request failed (reason not available)", f.do(t, "GET", string(e)+"/"+id, "").body.Error.Message)
	live := f.made(t, e, 2)

	require.NoError(t, f.db.Close())
	for _, id := range []string{id, live} {
		a := f.do(t, "GET", string(e)+"/"+id, "")
		require.Equal(t, 500, a.status)
		require.Equal(t, "Database error", a.body.Error.Message)
	}
	for _, e := range fhevm.Endpoints {
		a := f.do(t, "POST", string(e), bodyOf(e, 3))
		require.Equal(t, 500, a.status)
		require.Equal(t, "Internal server error", a.body.Error.Message)
	}
}

// A row that cannot be read is a fault of ours, without words about it.
func TestJobUnreadable(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		e := fhevm.EndpointPublicDecrypt
		id := f.made(t, e, 1)
		j := f.walk(t, e.Kind(), id, fhevm.StateReceiptReceived, store.Cause{})
		_, err := f.store.Complete(t.Context(), e.Kind(), *j.Reference, store.Response{Result: []byte(`{"signatures":[1]}`), TxHash: "0x01"}, store.Event{})
		require.NoError(t, err)
		a := f.do(t, "GET", string(e)+"/"+id, "")
		require.Equal(t, 500, a.status)
		require.Equal(t, "Internal server error", a.body.Error.Message)
	})
}

// Every answer that the document has is given, and no other.
func TestDocumentAnswers(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	n := 0
	for _, e := range fhevm.Endpoints {
		post := func(body string, headers ...string) { f.do(t, "POST", string(e), body, headers...) }
		n++
		post(bodyOf(e, n))
		for _, body := range []string{"", "{}", strings.Replace(bodyOf(e, n), addr1, "x", 1), strings.Replace(bodyOf(e, n), "0x00", "x", 1), strings.Repeat(" ", fhevm.MaxBodyBytes+1)} {
			post(body)
			post(body, sdkName, sdk)
		}
		post(strings.Replace(bodyOf(e, n), handleOf(hostChain, n), handleOf(9, n), 1))
		for _, l := range []fhevm.Label{fhevm.LabelProtocolPaused, fhevm.LabelInsufficientBalance, fhevm.LabelInsufficientAllowance, fhevm.LabelGatewayNotReachable} {
			f.blocked.Store(l)
			post(bodyOf(e, n+1000))
		}
		f.blocked.Store(fhevm.Label(""))

		get := func(id string) {
			f.do(t, "GET", string(e)+"/"+id, "")
			f.do(t, "GET", string(e)+"/"+id, "", sdkName, sdk)
		}
		get("x")
		get(unknownID)
		for _, row := range fhevm.StatusTable() {
			k := e.Kind()
			if k == fhevm.KindInputProof && (row.State == fhevm.StateQueued || row.Cause == fhevm.CauseReadinessTimedOut || row.Cause == fhevm.CauseNotAllowedOnHostACL || row.Cause == fhevm.CauseHostACLFailed) {
				continue
			}
			n++
			id := f.made(t, e, n)
			f.walk(t, k, id, row.State, store.Cause{Code: string(row.Cause)})
			f.clock.advance(5 * time.Second)
			get(id)
		}
	}
	f.do(t, "GET", "/v2/keyurl", "")
	f.with(t, func(o *Options) {
		o.KeyURL = func() (key, crs fhevm.KeyMaterial, ok bool) {
			return fhevm.KeyMaterial{URLs: []string{"https://a"}}, fhevm.KeyMaterial{URLs: []string{"https://b"}}, true
		}
		o.Keys = []APIKey{{"a", []byte("key")}}
		for _, k := range fhevm.Kinds {
			o.Limits[k] = Queue{TPS: 1, Capacity: 1}
		}
	})
	for _, path := range []string{"/v2/keyurl", "/liveness", "/healthz", "/version", "/docs", "/openapi.yml"} {
		f.do(t, "GET", path, "")
		f.do(t, "GET", path, "", "x-api-key", "key")
	}
	for _, e := range fhevm.Endpoints {
		f.do(t, "POST", string(e), "")
		f.do(t, "GET", string(e)+"/"+unknownID, "")
		f.made2(t, e)
		f.do(t, "POST", string(e), bodyOf(e, 9001), "x-api-key", "key")
	}
	f.with(t, func(o *Options) { o.Draining = func() bool { return true } })
	f.do(t, "GET", "/healthz", "")
	require.NoError(t, f.db.Close())
	for _, e := range fhevm.Endpoints {
		f.do(t, "POST", string(e), bodyOf(e, 9002))
		f.do(t, "GET", string(e)+"/"+unknownID, "")
	}

	documented := map[string]bool{}
	for _, op := range operations() {
		for _, r := range op.responses {
			labels := r.labels
			if labels == nil {
				labels = []fhevm.Label{""}
			}
			for _, l := range labels {
				documented[fmt.Sprint(op.method, " ", op.path, " ", r.status, " ", l)] = true
			}
		}
	}
	require.Equal(t, documented, f.seen)
}

// made2 fills a queue of one.
func (f *fixture) made2(t *testing.T, e fhevm.Endpoint) {
	f.do(t, "POST", string(e), bodyOf(e, 9000), "x-api-key", "key")
}
