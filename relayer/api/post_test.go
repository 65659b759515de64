package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

func decode(t testing.TB, text string, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), v))
}

// What is posted is stored so that the same call is made of it, whatever the database does to the JSON.
func TestPostStores(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		for i, e := range fhevm.Endpoints {
			id := f.made(t, e, 1)
			j, err := f.store.Job(t.Context(), e.Kind(), id)
			require.NoError(t, err)
			want, err := fhevm.Decode(e, []byte(bodyOf(e, 1)), fhevm.Options{Now: f.clock.now()})
			require.NoError(t, err)
			got, err := fhevm.DecodeStored(e.Kind(), j.ReqType, j.Request)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, want.Calldata(), got.Calldata())
			require.Equal(t, store.Hash(got.JobID()), j.IntJobID)
			require.Equal(t, fhevm.FirstState(e.Kind()), j.State)
			require.EqualValues(t, i+1, f.notified.Load())
		}
	})
}

func TestPostOnce(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		const callers = 1000
		var (
			wg  sync.WaitGroup
			mu  sync.Mutex
			ids = map[string]int{}
		)
		for range callers {
			wg.Go(func() {
				a := f.do(t, "POST", string(fhevm.EndpointPublicDecrypt), bodyOf(fhevm.EndpointPublicDecrypt, 7))
				mu.Lock()
				defer mu.Unlock()
				if a.status == 202 {
					ids[a.body.Result.JobID]++
				}
			})
		}
		wg.Wait()
		require.Len(t, ids, 1)
		for _, n := range ids {
			require.Equal(t, callers, n)
		}
		counts, err := f.store.Counts(t.Context(), fhevm.KindPublicDecrypt)
		require.NoError(t, err)
		require.Equal(t, []store.StateCount{{State: fhevm.StateQueued, Count: 1}}, counts)
		require.EqualValues(t, 1, f.notified.Load())
	})
}

// A live or completed job is repeated, one that failed or timed out is not.
func TestPostRepeated(t *testing.T) {
	t.Parallel()
	each(t, nil, func(t *testing.T, f *fixture) {
		for i, to := range fhevm.States {
			for _, e := range fhevm.Endpoints {
				if to == fhevm.StateQueued && e.Kind() == fhevm.KindInputProof {
					continue
				}
				id := f.made(t, e, i)
				f.walk(t, e.Kind(), id, to, store.Cause{Code: "x"})
				again := f.do(t, "POST", string(e), bodyOf(e, i))
				require.Equal(t, 202, again.status)
				require.Equal(t, "queued", again.body.Status)
				if to == fhevm.StateFailure || to == fhevm.StateTimedOut {
					require.NotEqual(t, id, again.body.Result.JobID)
				} else {
					require.Equal(t, id, again.body.Result.JobID)
				}
				if to == fhevm.StateCompleted {
					require.Equal(t, 1, again.retryAfter, "there is nothing to wait for")
				}
			}
		}
	})
}

func TestPostRetryAfter(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	require.Equal(t, 3, f.do(t, "POST", "/v2/input-proof", bodyOf(fhevm.EndpointInputProof, 1)).retryAfter)
	require.Equal(t, 8, f.do(t, "POST", "/v2/public-decrypt", bodyOf(fhevm.EndpointPublicDecrypt, 1)).retryAfter)
	require.Equal(t, 13, f.do(t, "POST", "/v2/public-decrypt", bodyOf(fhevm.EndpointPublicDecrypt, 2)).retryAfter, "one is before it")
	require.Equal(t, 8, f.do(t, "POST", "/v3/user-decrypt", bodyOf(fhevm.EndpointUserDecryptV3, 1)).retryAfter)
}

// Every label of a POST with its message and details.
func TestPostRefuses(t *testing.T) {
	t.Parallel()
	f := memory(t, func(o *Options) { o.MaxHandles, o.MaxContracts = 2, 2 })
	const (
		p, pub, u, d, v3 = fhevm.EndpointInputProof, fhevm.EndpointPublicDecrypt, fhevm.EndpointUserDecrypt, fhevm.EndpointDelegatedUserDecrypt, fhevm.EndpointUserDecryptV3
		malformed        = "Invalid JSON format"
		extraData        = "Must be 0x00, 0x01 and a contextId, or 0x02, a contextId and an epochId; each id is 32 bytes, a contextId begins with 07, an epochId with 08"
	)
	h := handleOf(hostChain, 1)
	at := func(field string) string { return "Validation failed for 1 field in the request: " + field }
	future := fmt.Sprint(f.clock.now().Unix() + 1)
	for _, c := range []struct {
		e              fhevm.Endpoint
		old, new       string
		label          fhevm.Label
		message        string
		field, problem string // of the first detail
	}{
		{p, `{`, `[`, fhevm.LabelMalformedJSON, malformed, "", ""},
		{p, `}`, ``, fhevm.LabelMalformedJSON, malformed, "", ""},
		{p, `"0xaa36a7"`, `true`, fhevm.LabelMalformedJSON, malformed, "", ""},
		{p, `"extraData"`, `"extraData":"0x00","extraData"`, fhevm.LabelMalformedJSON, malformed, "", ""},
		{p, `"extraData"`, "\"\xff\":1,\"extraData\"", fhevm.LabelMalformedJSON, malformed, "", ""},
		{p, `"extraData":"0x00"`, `"x":1`, fhevm.LabelMissingFields, "Missing 1 required field in the request: extraData", "extraData", "Required but missing"},
		{u, `"startTimestamp":"1700000000","durationDays":"10"`, ``, fhevm.LabelMissingFields,
			"Missing 2 required fields in the request: requestValidity.startTimestamp, requestValidity.durationDays", "requestValidity.startTimestamp", "Required but missing"},
		{p, `"` + addr2 + `"`, `7`, fhevm.LabelValidationFailed, at("request"), "request", "Value must be a string"},
		{pub, `["` + h + `"]`, `{}`, fhevm.LabelValidationFailed, at("request"), "request", "Invalid data type"},
		{v3, `"version"`, `"verison":1,"version"`, fhevm.LabelValidationFailed, at("attestedPayload.verison"), "attestedPayload.verison", "Unknown field"},
		{p, `"0xaa36a7"`, `"0xzz"`, fhevm.LabelValidationFailed, at("contractChainId"), "contractChainId", "Must be decimal number or 0x hex string"},
		{p, addr1, addr1[2:], fhevm.LabelValidationFailed, at("contractAddress"), "contractAddress", "Must start with 0x"},
		{p, addr1, addr1 + "0", fhevm.LabelValidationFailed, at("contractAddress"), "contractAddress", "Must be 42 characters long"},
		{p, addr2, addr2[:41] + "g", fhevm.LabelValidationFailed, at("userAddress"), "userAddress", "Contains invalid hex characters"},
		{p, `"00000001"`, `"0x01"`, fhevm.LabelValidationFailed, at("ciphertextWithInputVerification"), "ciphertextWithInputVerification", "Must not start with 0x"},
		{p, `"00000001"`, `""`, fhevm.LabelValidationFailed, at("ciphertextWithInputVerification"), "ciphertextWithInputVerification", "Must not be empty"},
		{p, `"00000001"`, `"0"`, fhevm.LabelValidationFailed, at("ciphertextWithInputVerification"), "ciphertextWithInputVerification", "Invalid hex string"},
		{p, `"0x00"`, `"0x01"`, fhevm.LabelValidationFailed, at("extraData"), "extraData", "Must be 0x00"},
		{pub, `["` + h + `"]`, `[]`, fhevm.LabelValidationFailed, at("ciphertextHandles"), "ciphertextHandles", "Must not be empty"},
		{pub, `["` + h + `"]`, `["","",""]`, fhevm.LabelValidationFailed,
			"Validation failed for 4 fields in the request: ciphertextHandles, ciphertextHandles[0], ciphertextHandles[1], ciphertextHandles[2]", "ciphertextHandles", "Must not have more than 2 entries"},
		{pub, h, h[:64], fhevm.LabelValidationFailed, at("ciphertextHandles[0]"), "ciphertextHandles[0]", "Must be 64 characters long"},
		{pub, `"0x00"`, `"0x03"`, fhevm.LabelValidationFailed, at("extraData"), "extraData", extraData},
		{u, sig65, sig65 + "00", fhevm.LabelValidationFailed, at("signature"), "signature", "Must be 130 characters long"},
		{u, `["` + addr1, `["` + addr2 + `","` + addr1, fhevm.LabelValidationFailed, at("contractAddresses"), "contractAddresses", "Must not have more than 2 entries"},
		{u, `"1700000000"`, `"` + future + `"`, fhevm.LabelValidationFailed, at("requestValidity.startTimestamp"), "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, `"99999999999999999999999999"`, fhevm.LabelValidationFailed, at("requestValidity.startTimestamp"), "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, `"soon"`, fhevm.LabelValidationFailed, at("requestValidity.startTimestamp"), "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{d, `"10"`, `"4294967296"`, fhevm.LabelValidationFailed, at("durationDays"), "durationDays", "Value must be a valid u32 number"},
		{v3, `"200000000"`, `"1e3"`, fhevm.LabelValidationFailed, at("attestedPayload.requestValidity.durationSeconds"), "attestedPayload.requestValidity.durationSeconds", "Value must be a valid u64 number"},
		{v3, `"200000000"`, `"1"`, fhevm.LabelValidationFailed, at("attestedPayload.requestValidity"), "attestedPayload.requestValidity", "requestValidity window has already expired"},
		{v3, `eip712-unified-user-decrypt-v1`, `x`, fhevm.LabelValidationFailed, at("attestationType"), "attestationType", "Unsupported attestationType; expected one of: [eip712-unified-user-decrypt-v1]"},
		{v3, `"2.0"`, `"2"`, fhevm.LabelValidationFailed, at("attestedPayload.version"), "attestedPayload.version", `Unsupported version; expected "2.0"`},
		{v3, `"user_decryption"`, `""`, fhevm.LabelValidationFailed, at("attestedPayload.type"), "attestedPayload.type", `Unsupported payload type; expected "user_decryption"`},
		{v3, `[{"ctHandle"`, `[{"ctHandle":"` + handleOf(1, 1) + `","contractAddress":"` + addr1 + `","ownerAddress":"` + addr2 + `"},{"ctHandle"`, fhevm.LabelValidationFailed,
			at("attestedPayload.handles[1].ctHandle"), "attestedPayload.handles[1].ctHandle", "All handles must belong to one host chain"},
		{pub, h, handleOf(5, 1), fhevm.LabelHostChainNotSupported, "Host chain ID 5 is not supported by this relayer", "", ""},
		{u, h, handleOf(5, 1), fhevm.LabelHostChainNotSupported, "Host chain ID 5 is not supported by this relayer", "", ""},
	} {
		body := strings.Replace(bodyOf(c.e, 1), c.old, c.new, 1)
		require.NotEqual(t, bodyOf(c.e, 1), body, "%s in the body of %s", c.old, c.e)
		a := f.do(t, "POST", string(c.e), body)
		require.Equal(t, 400, a.status, "%s: %s", body, a.raw)
		require.Equal(t, c.label, a.body.Error.Label, a.raw)
		require.Equal(t, c.message, a.body.Error.Message)
		if c.field == "" {
			require.Empty(t, a.body.Error.Details)
		} else {
			require.Equal(t, fhevm.Detail{Field: c.field, Issue: c.problem}, a.body.Error.Details[0])
		}

		forSDK := f.do(t, "POST", string(c.e), body, sdkName, sdk)
		require.Equal(t, 400, forSDK.status)
		if c.label == fhevm.LabelHostChainNotSupported {
			require.Equal(t, fhevm.LabelValidationFailed, forSDK.body.Error.Label)
			require.Equal(t, c.message, forSDK.body.Error.Details[0].Issue)
			require.Contains(t, forSDK.body.Error.Details[0].Field, "andle")
		} else {
			require.Equal(t, a.body.Error, forSDK.body.Error)
		}
	}
	for _, k := range fhevm.Kinds {
		counts, err := f.store.Counts(t.Context(), k)
		require.NoError(t, err)
		require.Empty(t, counts, "nothing of it was stored")
	}
}

func TestPostBody(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	large := `{"contractChainId":"` + strings.Repeat("1", fhevm.MaxBodyBytes) + `"}`
	for _, body := range []io.Reader{strings.NewReader(large), iotest.OneByteReader(strings.NewReader(large))} {
		a := f.send(t, httptest.NewRequestWithContext(t.Context(), "POST", "/v2/input-proof", body))
		require.Equal(t, 413, a.status)
		require.Equal(t, fhevm.LabelRequestError, a.body.Error.Label)
		require.Equal(t, "Request body is larger than 1048576 bytes", a.body.Error.Message)
	}
	require.Equal(t, 400, f.do(t, "POST", "/v2/input-proof", large, sdkName, sdk).status)

	exact := bodyOf(fhevm.EndpointInputProof, 1)
	exact += strings.Repeat(" ", fhevm.MaxBodyBytes-len(exact))
	require.Equal(t, 202, f.do(t, "POST", "/v2/input-proof", exact).status)

	a := f.send(t, httptest.NewRequestWithContext(t.Context(), "POST", "/v2/input-proof", iotest.ErrReader(errors.New("broken off"))))
	require.Equal(t, 400, a.status)
	require.Equal(t, fhevm.LabelRequestError, a.body.Error.Label)
	require.Equal(t, "Failed to read request body", a.body.Error.Message)
}

func TestPostSignature(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	e := fhevm.EndpointUserDecryptV3

	f.signatures.answer(fmt.Errorf("looked at it: %w", fhevm.ErrSignature))
	a := f.do(t, "POST", string(e), bodyOf(e, 1))
	require.Equal(t, 400, a.status)
	require.Equal(t, "Validation failed for 1 field(s)", a.body.Error.Message)
	require.Equal(t, []fhevm.Detail{{Field: "signature", Issue: "Signature is invalid"}}, a.body.Error.Details)

	f.signatures.answer(errors.New("https://node.example/secret does not answer"))
	a = f.do(t, "POST", string(e), bodyOf(e, 1))
	require.Equal(t, 500, a.status)
	require.Equal(t, "Internal server error", a.body.Error.Message)
	require.NotContains(t, a.raw, "secret")

	// The older forms are for the contract to judge.
	require.Equal(t, 202, f.do(t, "POST", "/v2/user-decrypt", bodyOf(fhevm.EndpointUserDecrypt, 1)).status)

	// While every place is taken, a caller waits until it is gone.
	f.signatures.answer(nil)
	for range maxSignatureChecks {
		f.checks <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	a = f.send(t, httptest.NewRequestWithContext(ctx, "POST", string(e), strings.NewReader(bodyOf(e, 1))))
	require.Equal(t, 429, a.status)
	// Who needs no place does not wait for one.
	f.signatures.signed.Store(true)
	require.Equal(t, 202, f.do(t, "POST", string(e), bodyOf(e, 2)).status)
	f.signatures.signed.Store(false)
	<-f.checks
	require.Equal(t, 202, f.do(t, "POST", string(e), bodyOf(e, 1)).status)
}

// A full queue refuses new requests, never repeated ones, and has room again once its jobs go on.
func TestPostFull(t *testing.T) {
	t.Parallel()
	each(t, func(o *Options) { o.Limits[fhevm.KindPublicDecrypt] = Queue{TPS: 20, Capacity: 5, Margin: 2} }, func(t *testing.T, f *fixture) {
		e := fhevm.EndpointPublicDecrypt
		var ids []string
		for n := range 3 {
			ids = append(ids, f.made(t, e, n))
		}
		full := func(n int) {
			t.Helper()
			a := f.do(t, "POST", string(e), bodyOf(e, n))
			require.Equal(t, 429, a.status, a.raw)
			require.Equal(t, 4, a.retryAfter)
			require.Equal(t, "Server is experiencing high processing load: relayer is currently processing too many requests", a.body.Error.Message)
			require.Equal(t, ids[2], f.do(t, "POST", string(e), bodyOf(e, 2)).body.Result.JobID)
		}
		full(3)
		require.Equal(t, 202, f.do(t, "POST", "/v2/user-decrypt", bodyOf(fhevm.EndpointUserDecrypt, 3)).status, "another queue")
		f.clock.advance(time.Second)
		full(4)
		f.walk(t, e.Kind(), ids[0], fhevm.StateProcessing, store.Cause{})
		f.clock.advance(time.Second)
		full(5)
		f.walk(t, e.Kind(), ids[1], fhevm.StateTxInFlight, store.Cause{})
		full(6) // not counted again before a second has passed
		f.clock.advance(time.Second)
		f.made(t, e, 7)
		full(8)
	})
}

func TestPostBlocked(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	e := fhevm.EndpointInputProof
	id := f.made(t, e, 1)
	for label, message := range map[fhevm.Label]string{
		fhevm.LabelInsufficientBalance:   "The relayer's balance does not cover the fee",
		fhevm.LabelInsufficientAllowance: "The relayer's allowance does not cover the fee",
		fhevm.LabelProtocolPaused:        "The protocol is paused",
		fhevm.LabelGatewayNotReachable:   "The gateway chain cannot be reached",
	} {
		f.blocked.Store(label)
		for _, header := range []string{"", sdk} {
			a := f.do(t, "POST", string(e), bodyOf(e, 2), sdkName, header)
			require.Equal(t, 503, a.status)
			require.Equal(t, label, a.body.Error.Label)
			require.Equal(t, message, a.body.Error.Message)
			require.Equal(t, 30, a.retryAfter)
		}
		require.Equal(t, id, f.do(t, "POST", string(e), bodyOf(e, 1)).body.Result.JobID, "it costs nothing")
		require.Equal(t, 400, f.do(t, "POST", string(e), "{}").status, "a mistake is told all the same")
	}
	f.blocked.Store(fhevm.Label(""))
	f.made(t, e, 2)

	// A process that ends says when another will do.
	f.with(t, func(o *Options) { o.Draining = func() bool { return true } })
	f.blocked.Store(fhevm.LabelGatewayNotReachable)
	a := f.do(t, "POST", string(e), bodyOf(e, 3))
	require.Equal(t, 503, a.status)
	require.Equal(t, 1, a.retryAfter)
}
