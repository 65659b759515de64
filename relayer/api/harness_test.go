package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
	"dongate/storage/storagetest"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite openapi.yml")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hostChain = 11155111
	hex29     = "000102030405060708090a0b0c0d0e0f101112131415" // before the chain id
	addr1     = "0x1111111111111111111111111111111111111111"
	addr2     = "0x2222222222222222222222222222222222222222"
	addr3     = "0x3333333333333333333333333333333333333333"
	sdk       = "@zama-fhe/relayer-sdk"
	unknownID = "6f2b0c57-0b0e-4c39-9a55-000000000000"
)

var sig65 = strings.Repeat("ab", 65)

// handleOf is the n-th handle of a host chain.
func handleOf(chain uint64, n int) string { return fmt.Sprintf("0x%s%016x%04x", hex29, chain, n) }

// bodyOf is a valid body whose content is the n-th.
func bodyOf(e fhevm.Endpoint, n int) string {
	h := handleOf(hostChain, n)
	pairs := `"handleContractPairs":[{"handle":"` + h + `","contractAddress":"` + addr1 + `"}]`
	legacy := pairs + `,"contractsChainId":"11155111","contractAddresses":["` + addr1 + `","` + addr3 + `"],"signature":"` + sig65 + `","publicKey":"0707","extraData":"0x00"`
	switch e {
	case fhevm.EndpointInputProof:
		return fmt.Sprintf(`{"contractChainId":"0xaa36a7","contractAddress":"%s","userAddress":"%s","ciphertextWithInputVerification":"%08x","extraData":"0x00"}`, addr1, addr2, n)
	case fhevm.EndpointPublicDecrypt:
		return `{"ciphertextHandles":["` + h + `"],"extraData":"0x00"}`
	case fhevm.EndpointUserDecrypt:
		return `{` + legacy + `,"requestValidity":{"startTimestamp":"1700000000","durationDays":"10"},"userAddress":"` + addr2 + `"}`
	case fhevm.EndpointDelegatedUserDecrypt:
		return `{` + legacy + `,"delegatorAddress":"` + addr2 + `","delegateAddress":"` + addr3 + `","startTimestamp":"1700000000","durationDays":"10"}`
	}
	return `{"attestationType":"eip712-unified-user-decrypt-v1","signature":"0x` + sig65 + `","attestedPayload":{"version":"2.0","type":"user_decryption",
		"handles":[{"ctHandle":"` + h + `","contractAddress":"` + addr1 + `","ownerAddress":"` + addr2 + `"}],"userAddress":"` + addr2 + `","allowedContracts":["` + addr1 + `"],
		"requestValidity":{"startTimestamp":"1700000000","durationSeconds":"200000000"},"publicKey":"0x0707","extraData":"0x00"}}`
}

// clock only moves by hand.
type clock struct{ ms atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// signatures answers as it is told.
type signatures struct {
	signed atomic.Bool
	err    atomic.Pointer[error]
}

func (s *signatures) Signed(*fhevm.UnifiedUserDecrypt) bool { return s.signed.Load() }

func (s *signatures) Check(ctx context.Context, r *fhevm.UnifiedUserDecrypt) error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

func (s *signatures) answer(err error) { s.err.Store(&err) }

// fixture is a handler over a database.
type fixture struct {
	*Handler
	store      *store.Store
	db         *storage.DB
	clock      *clock
	signatures *signatures
	blocked    atomic.Value // fhevm.Label
	notified   atomic.Int64
	epoch      int64
	nonce      int64

	mu   sync.Mutex
	seen map[string]bool // operation, status and label
}

func newFixture(t testing.TB, db *storage.DB, change func(*Options)) *fixture {
	t.Helper()
	require.NoError(t, db.Migrate(t.Context(), store.Domain))
	f := &fixture{db: db, clock: &clock{}, signatures: &signatures{}, seen: map[string]bool{}}
	f.clock.ms.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli())
	f.store = store.New(db, store.Options{Now: f.clock.now})
	f.blocked.Store(fhevm.Label(""))
	f.with(t, change)
	return f
}

// with puts another handler over the same database.
func (f *fixture) with(t testing.TB, change func(*Options)) {
	t.Helper()
	o := Options{
		Store: f.store, Now: f.clock.now, Limits: map[fhevm.Kind]Queue{}, ReadinessConcurrency: 250, RetryAfter: fhevm.DefaultRetryAfter(),
		Threshold: 9, AdditionalShares: 2, AdditionalSharesTimeout: 5 * time.Second,
		Signatures: f.signatures, HostChains: func(id uint64) bool { return id == hostChain || id == 1 },
		Blocked: func() (fhevm.Label, bool) { l := f.blocked.Load().(fhevm.Label); return l, l != "" },
		Notify:  func(fhevm.Kind) { f.notified.Add(1) },
	}
	for _, k := range fhevm.Kinds {
		o.Limits[k] = Queue{TPS: 20, Capacity: 11_000, Margin: 1000}
	}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	require.NoError(t, err)
	f.Handler = h
}

// each runs a test with a handler on every kind of database.
func each(t *testing.T, change func(*Options), test func(t *testing.T, f *fixture)) {
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		test(t, newFixture(t, open(t), change))
	})
}

// memory is for what does not depend on the database.
func memory(t testing.TB, change func(*Options)) *fixture {
	return newFixture(t, storagetest.Open(t, storagetest.Config(t, storage.DriverMemory)), change)
}

// got is an answer.
type got struct {
	status     int
	header     http.Header
	raw        string
	retryAfter int
	body       struct {
		Status        string `json:"status"`
		RequestID     string `json:"requestId"`
		JobID         string `json:"jobId"`
		State         string `json:"state"`
		UpdatedAt     string `json:"updatedAt"`
		QueuePosition *int   `json:"queuePosition"`
		TxQueueSize   *int   `json:"txQueueSize"`
		Result        struct {
			JobID    string `json:"jobId"`
			Accepted *bool  `json:"accepted"`
			Result   []any  `json:"result"`
		} `json:"result"`
		Error struct {
			Label   fhevm.Label    `json:"label"`
			Message string         `json:"message"`
			Details []fhevm.Detail `json:"details"`
		} `json:"error"`
	}
}

// do sends a request and compares the answer with what the OpenAPI document says of it.
func (f *fixture) do(t testing.TB, method, path, body string, headers ...string) got {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return f.send(t, r)
}

func (f *fixture) send(t testing.TB, r *http.Request) got {
	t.Helper()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	out := got{status: w.Code, header: w.Header(), raw: w.Body.String()}
	require.Equal(t, "no-store", out.header.Get("Cache-Control"))
	require.Equal(t, "nosniff", out.header.Get("X-Content-Type-Options"))
	if v := out.header.Get("Retry-After"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		require.True(t, n >= 1 && n <= 300, "Retry-After %d", n)
		out.retryAfter = n
	}
	if out.header.Get("Content-Type") == "application/json" && r.Method != http.MethodHead {
		require.NoError(t, json.Unmarshal([]byte(out.raw), &out.body), out.raw)
	}
	f.compare(t, r, out)
	return out
}

// compare fails unless the answer is one that the document has, member by member.
func (f *fixture) compare(t testing.TB, r *http.Request, out got) {
	t.Helper()
	path := r.URL.Path
	if at, id := f.find(path); id != "" {
		path = at.path
	}
	method := strings.ToLower(strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1))
	ops := operations()
	i := slices.IndexFunc(ops, func(op operation) bool { return op.path == path && op.method == method })
	if i < 0 || out.status == http.StatusMethodNotAllowed {
		require.Equal(t, "failed", out.body.Status)
		require.NotEmpty(t, out.body.Error.Message)
		return
	}
	j := slices.IndexFunc(ops[i].responses, func(r response) bool { return r.status == out.status })
	require.GreaterOrEqual(t, j, 0, "%s %s answers %d, which is not documented: %s", r.Method, path, out.status, out.raw)
	doc := ops[i].responses[j]
	f.mu.Lock()
	f.seen[fmt.Sprint(method, " ", path, " ", out.status, " ", out.body.Error.Label)] = true
	f.mu.Unlock()
	if doc.labels != nil {
		require.Contains(t, doc.labels, out.body.Error.Label, path)
	}
	if doc.retryAfter {
		require.NotZero(t, out.retryAfter, "%s %s %d", r.Method, path, out.status)
	} else {
		require.Zero(t, out.retryAfter, "%s %s %d", r.Method, path, out.status)
	}
	if doc.media == "" && r.Method != http.MethodHead {
		var v any
		require.NoError(t, json.Unmarshal([]byte(out.raw), &v))
		require.NoError(t, doc.schema.conforms(v), out.raw)
	}
}

// conforms compares a decoded JSON value with the schema: no member too many, none missing.
func (s *schema) conforms(v any) error {
	switch v := v.(type) {
	case map[string]any:
		if s.kind != "object" {
			return errors.New("an object")
		}
		left := len(v)
		for _, m := range s.members {
			value, ok := v[m.name]
			switch {
			case !ok && !m.optional:
				return fmt.Errorf("%s is missing", m.name)
			case !ok:
				continue
			}
			left--
			if err := m.conforms(value); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		for _, value := range v {
			if s.entries == nil {
				break
			}
			left--
			if err := s.entries.conforms(value); err != nil {
				return err
			}
		}
		if left != 0 {
			return fmt.Errorf("%d members are not documented", left)
		}
		return nil
	case []any:
		if s.kind != "array" || s.filled && len(v) == 0 {
			return errors.New("an array")
		}
		for _, entry := range v {
			if err := s.entries.conforms(entry); err != nil {
				return err
			}
		}
		return nil
	case string:
		if s.kind != "string" || s.enum != nil && !slices.Contains(s.enum, v) || s.pattern != "" && !regexp.MustCompile(s.pattern).MatchString(v) {
			return fmt.Errorf("%q", v)
		}
		return nil
	case float64:
		if s.kind != "integer" {
			return errors.New("a number")
		}
		return nil
	case bool:
		if s.kind != "boolean" {
			return errors.New("a boolean")
		}
		return nil
	}
	return errors.New("null")
}

// post makes a job and returns its id.
func (f *fixture) made(t testing.TB, e fhevm.Endpoint, n int) string {
	t.Helper()
	a := f.do(t, "POST", string(e), bodyOf(e, n))
	require.Equal(t, 202, a.status, a.raw)
	return a.body.Result.JobID
}

func hashOf(parts ...any) [32]byte { return sha256.Sum256(fmt.Append(nil, parts...)) }

// walk takes a job to a state as the dispatcher would, and in timed_out and failure gives it the cause.
func (f *fixture) walk(t testing.TB, k fhevm.Kind, id string, to fhevm.State, cause store.Cause) store.Job {
	t.Helper()
	ctx := t.Context()
	j, err := f.store.Job(ctx, k, id)
	require.NoError(t, err)
	if f.epoch == 0 {
		f.epoch, err = f.store.NextEpoch(ctx)
		require.NoError(t, err)
	}
	owner := store.Owner{Kind: k, ID: j.ID, Epoch: f.epoch}
	_, err = f.store.Claim(ctx, k, f.epoch, 1000)
	require.NoError(t, err)
	moved := func(ok bool, err error) { t.Helper(); require.NoError(t, err); require.True(t, ok) }
	done := func() bool {
		j, err = f.store.Job(ctx, k, id)
		require.NoError(t, err)
		return j.State == to
	}
	if done() {
		return j
	}
	if to == fhevm.StateTimedOut && j.State == fhevm.StateQueued && cause.Code == string(fhevm.CauseReadinessTimedOut) {
		moved(f.store.NotReady(ctx, owner, cause))
		require.True(t, done())
		return j
	}
	if to == fhevm.StateFailure {
		moved(f.store.Fail(ctx, owner, j.State, cause))
		require.True(t, done())
		return j
	}
	if j.State == fhevm.StateQueued {
		moved(f.store.Ready(ctx, owner))
		if done() {
			return j
		}
	}
	ref := hashOf("reference", id)
	f.nonce++
	hash := hashOf("tx", f.nonce)
	moved(f.store.BeginSend(ctx, owner, store.Attempt{Signer: common.Address{1}, Nonce: f.nonce, FeeCap: storage.Uint64Amount(2), TipCap: storage.Uint64Amount(1), Hash: hash, Raw: []byte{2}}))
	if done() {
		return j
	}
	ok, _, err := f.store.Receipt(ctx, k, j.ID, hash, store.Block{Number: 1, Hash: hashOf("block")}, ref)
	moved(ok, err)
	if done() {
		return j
	}
	if to == fhevm.StateTimedOut {
		f.clock.advance(time.Hour)
		_, err = f.store.TimeOut(ctx, k, f.clock.now(), 1000, cause)
		require.NoError(t, err)
		require.True(t, done())
		return j
	}
	switch k {
	case fhevm.KindInputProof:
		result, err := fhevm.EncodeResult(fhevm.ProofResult{Accepted: true, Handles: [][32]byte{{1}}, Signatures: [][]byte{make([]byte, 65)}}, ref)
		require.NoError(t, err)
		_, err = f.store.Complete(ctx, k, ref, store.Response{Result: result, Accepted: true, TxHash: "0x01"}, store.Event{})
		require.NoError(t, err)
	case fhevm.KindPublicDecrypt:
		result, err := fhevm.EncodeResult(fhevm.PublicResult{DecryptedValue: []byte{42}, Signatures: [][]byte{{1}, {2}}, ExtraData: []byte{0}}, ref)
		require.NoError(t, err)
		_, err = f.store.Complete(ctx, k, ref, store.Response{Result: result, TxHash: "0x01"}, store.Event{})
		require.NoError(t, err)
	default:
		f.share(t, j, 0, 3)
		f.share(t, j, 1, 3)
		f.share(t, j, 2, 3)
	}
	require.True(t, done())
	return j
}

// share stores a node's share of a job.
func (f *fixture) share(t testing.TB, j store.Job, index, threshold int64) {
	t.Helper()
	share, signature, extra := fhevm.EncodeShare(fhevm.Share{Payload: []byte{7, byte(index)}, Signature: []byte{8}, ExtraData: []byte{0}})
	_, err := f.store.AddShare(t.Context(), store.Share{Reference: *j.Reference, Index: index, Share: share, Signature: signature, ExtraData: extra, TxHash: "0x01"},
		store.Event{BlockHash: hashOf("block"), LogIndex: index}, threshold)
	require.NoError(t, err)
}
