package api

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// sdkRelease is the release of the network's JavaScript SDK that the API is tested with, unchanged.
const sdkRelease = "0.4.3"

// sdkCase is one call of the SDK and what is to come of it.
type sdkCase struct {
	Name      string            `json:"name"`
	URL       string            `json:"url"`
	Operation string            `json:"operation"`
	N         uint32            `json:"n"` // tells the content apart
	Chain     uint64            `json:"chain,omitzero"`
	Instance  bool              `json:"instance,omitzero"` // the SDK makes the payload, too
	Auth      map[string]string `json:"auth,omitzero"`
	KeyAuth   map[string]string `json:"keyAuth,omitzero"` // of the look at keyurl, where it is another
	Change    map[string]any    `json:"change,omitzero"`
	Without   []string          `json:"without,omitzero"`
	Padding   int               `json:"padding,omitzero"`

	end    func(k fhevm.Kind, id string)
	status int // 200: a result
	label  fhevm.Label
	result string // part of it
	field  string // of the first detail
}

// sdkOutcome is what the SDK made of a case.
type sdkOutcome struct {
	Name     string         `json:"name"`
	Result   any            `json:"result"`
	Error    string         `json:"error"`
	Message  string         `json:"message"`
	Status   int            `json:"status"`
	Label    fhevm.Label    `json:"label"`
	Details  []fhevm.Detail `json:"details"`
	Progress []string       `json:"progress"`
}

// sdkServer puts jobs at their end while the SDK polls them: at the second GET, so that the first gets 202.
type sdkServer struct {
	f  *fixture
	mu sync.Mutex
	// polls counts the GETs of a job, ends says what happens to the job with a number.
	polls map[string]int
	ends  map[uint32]func(k fhevm.Kind, id string)
}

func (s *sdkServer) serve(t *testing.T, change func(*Options)) string {
	s.f.with(t, change)
	h := s.f.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, id := h.find(r.URL.Path); id != "" {
			s.poll(t, fhevm.Endpoint(strings.TrimSuffix(at.path, jobSuffix)).Kind(), id)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v2"
}

func (s *sdkServer) poll(t *testing.T, k fhevm.Kind, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.polls[id]++; s.polls[id] {
	case 2:
		j, err := s.f.store.Job(t.Context(), k, id)
		require.NoError(t, err)
		r, err := fhevm.DecodeStored(k, j.ReqType, j.Request)
		require.NoError(t, err)
		var n uint32
		if proof, ok := r.(*fhevm.InputProof); ok {
			n = binary.BigEndian.Uint32(proof.Ciphertext)
		} else {
			h := r.Handles()[0]
			n = binary.BigEndian.Uint32(h[:])
		}
		if end := s.ends[n]; end != nil {
			end(k, id)
		}
	case 3: // completed, waits for spare shares
		s.f.clock.advance(5 * time.Second)
	}
}

// The network's SDK understands every answer: each state and cause, each refusal, and keys however it sends them.
func TestSDK(t *testing.T) {
	t.Parallel()
	dir := installSDK(t)
	newServer := func() *sdkServer {
		return &sdkServer{f: memory(t, nil), polls: map[string]int{}, ends: map[uint32]func(fhevm.Kind, string){}}
	}
	s, forgetful := newServer(), newServer()
	f := s.f
	key := fhevm.KeyMaterial{ID: [32]byte{1}, URLs: []string{"https://keys.example/PublicKey"}}
	with := func(change func(*Options)) func(*Options) {
		return func(o *Options) {
			o.KeyURL = func() (fhevm.KeyMaterial, fhevm.KeyMaterial, bool) { return key, key, true }
			if change != nil {
				change(o)
			}
		}
	}
	url, forgets := s.serve(t, with(nil)), forgetful.serve(t, with(nil))

	var cases []*sdkCase
	add := func(c *sdkCase) *sdkCase {
		if c.URL == "" {
			c.URL = url
		}
		c.N = uint32(len(cases) + 1)
		cases = append(cases, c)
		if c.end != nil {
			s.ends[c.N], forgetful.ends[c.N] = c.end, c.end
		}
		return c
	}
	to := func(state fhevm.State, cause fhevm.Cause) func(fhevm.Kind, string) {
		return func(k fhevm.Kind, id string) {
			f.walk(t, k, id, state, store.Cause{Code: string(cause), Reason: "why"})
		}
	}
	results := map[string]string{
		"inputProof": `"accepted":true`, "publicDecrypt": `"decryptedValue":"2a"`,
		"userDecrypt": `"payload":"0700"`, "delegatedUserDecrypt": `"payload":"0700"`,
	}
	for _, op := range []string{"inputProof", "publicDecrypt", "userDecrypt", "delegatedUserDecrypt"} {
		for _, row := range fhevm.StatusTable() {
			decryptOnly := row.Cause == fhevm.CauseReadinessTimedOut || row.Cause == fhevm.CauseNotAllowedOnHostACL || row.Cause == fhevm.CauseHostACLFailed
			if row.SDK.Status == 202 || decryptOnly && op == "inputProof" {
				continue
			}
			c := add(&sdkCase{Name: op + " " + string(row.State) + " " + string(row.Cause), Operation: op, end: to(row.State, row.Cause), status: row.SDK.Status, label: row.SDK.Label})
			if c.status == 200 {
				c.result = results[op]
			}
		}
		add(&sdkCase{Name: op + " expired", URL: forgets, Operation: op, status: 404, label: fhevm.LabelNotFound, end: func(k fhevm.Kind, id string) {
			forgetful.f.walk(t, k, id, fhevm.StateFailure, store.Cause{})
			_, err := forgetful.f.store.Expire(t.Context(), k, forgetful.f.clock.now().Add(time.Hour), 1000)
			require.NoError(t, err)
		}})
		first := map[string]string{"inputProof": "userAddress", "publicDecrypt": "ciphertextHandles"}[op]
		if first == "" {
			first = "contractAddresses"
		}
		add(&sdkCase{Name: op + " missing", Operation: op, Without: []string{first}, status: 400, label: fhevm.LabelMissingFields, field: first})
		add(&sdkCase{Name: op + " wrong", Operation: op, Change: map[string]any{"extraData": "00"}, status: 400, label: fhevm.LabelValidationFailed, field: "extraData"})
		add(&sdkCase{Name: op + " large", Operation: op, Padding: fhevm.MaxBodyBytes, status: 400, label: fhevm.LabelRequestError})
		if op != "inputProof" {
			add(&sdkCase{Name: op + " chain", Operation: op, Chain: 5, status: 400, label: fhevm.LabelValidationFailed, field: map[string]string{"publicDecrypt": "ciphertextHandles[0]"}[op]})
			// The SDK looks into the result afterwards, which no node has signed: it must have got it.
			add(&sdkCase{Name: op + " instance", Operation: op, Instance: true, end: to(fhevm.StateCompleted, "")})
		}
	}
	add(&sdkCase{Name: "malformed", Operation: "inputProof", Change: map[string]any{"contractChainId": true}, status: 400, label: fhevm.LabelMalformedJSON})
	add(&sdkCase{Name: "rejected", Operation: "inputProof", end: func(k fhevm.Kind, id string) {
		j := f.walk(t, k, id, fhevm.StateReceiptReceived, store.Cause{})
		_, err := f.store.Complete(t.Context(), k, *j.Reference, store.Response{Reason: fhevm.ReasonRejected, TxHash: "0x01"}, store.Event{})
		require.NoError(t, err)
	}})
	for _, l := range []fhevm.Label{fhevm.LabelProtocolPaused, fhevm.LabelInsufficientBalance, fhevm.LabelInsufficientAllowance, fhevm.LabelGatewayNotReachable} {
		blocked := s.serve(t, with(func(o *Options) { o.Blocked = func() (fhevm.Label, bool) { return l, true } }))
		add(&sdkCase{Name: "blocked " + string(l), URL: blocked, Operation: "inputProof", status: 503, label: l})
	}

	broken := newServer()
	require.NoError(t, broken.f.db.Close())
	add(&sdkCase{Name: "database down", URL: broken.serve(t, with(nil)), Operation: "inputProof", status: 500, label: fhevm.LabelInternalServerError})

	// Throttled by its address, then let through: the clock goes on by a second at each look.
	throttled := s.serve(t, with(func(o *Options) {
		o.PerAddressRPS, o.RetryAfter.Max = 1.0/20, 10*time.Second
		o.Now = func() time.Time { f.clock.advance(time.Second); return f.clock.now() }
	}))
	for range 2 {
		add(&sdkCase{Name: "throttled", URL: throttled, Operation: "publicDecrypt", end: to(fhevm.StateCompleted, ""), status: 200, result: results["publicDecrypt"]})
	}
	keyed := s.serve(t, with(func(o *Options) { o.Keys = []APIKey{{"a", []byte("secret")}} }))
	for name, auth := range map[string]map[string]string{
		"header": {"__type": "ApiKeyHeader", "value": "secret"}, "bearer": {"__type": "BearerToken", "token": "secret"}, "cookie": {"__type": "ApiKeyCookie", "value": "secret"},
	} {
		add(&sdkCase{Name: "key in " + name, URL: keyed, Operation: "publicDecrypt", Auth: auth, end: to(fhevm.StateCompleted, ""), status: 200, result: results["publicDecrypt"]})
		wrong := map[string]string{}
		for k, v := range auth {
			wrong[k] = strings.Replace(v, "secret", "wrong", 1)
		}
		add(&sdkCase{Name: "wrong key in " + name, URL: keyed, Operation: "publicDecrypt", Auth: wrong, KeyAuth: auth, status: 401, label: fhevm.LabelUnauthorized})
	}

	outcomes, throttlings := runSDK(t, dir, cases), 0
	for i, c := range cases {
		o := outcomes[i]
		require.Equal(t, c.Name, o.Name)
		if c.label != "" {
			require.Equal(t, "RelayerV2ResponseApiError", o.Error, "%s: %+v", c.Name, o)
			require.Equal(t, c.status, o.Status, c.Name)
			require.Equal(t, c.label, o.Label, c.Name)
			require.Equal(t, "failed", o.Progress[len(o.Progress)-1], c.Name)
			if c.field != "" {
				require.Equal(t, c.field, o.Details[0].Field, c.Name)
			}
			continue
		}
		if c.Name == "rejected" {
			require.Equal(t, "RelayerV2ResponseInputProofRejectedError", o.Error, "%+v", o)
			continue
		}
		if slices.Contains(o.Progress, "throttled") {
			throttlings++
		}
		require.Contains(t, o.Progress, "queued", "%s: %+v", c.Name, o)
		require.Equal(t, "succeeded", o.Progress[len(o.Progress)-1], "%s: %+v", c.Name, o)
		if !c.Instance {
			require.Empty(t, o.Error, "%s: %+v", c.Name, o)
			text, err := json.Marshal(o.Result, json.Deterministic(true))
			require.NoError(t, err)
			require.Contains(t, string(text), c.result, c.Name)
		}
	}
	require.Equal(t, 1, throttlings)
}

// installSDK brings the SDK as its lock file pins it and returns where it is.
func installSDK(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if testing.Short() {
				t.Skipf("%s is not installed", program)
			}
			t.Fatalf("the test with the network's SDK needs %s: install it (Debian: apt-get install nodejs npm), or run the tests with -short", program)
		}
	}
	dir, err := filepath.Abs("testdata/sdk")
	require.NoError(t, err)
	if sdkInstalled(t, dir) != sdkRelease {
		if testing.Short() {
			t.Skip("the SDK is not installed")
		}
		install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = dir
		out, err := install.CombinedOutput()
		require.NoError(t, err, "npm ci: %s", out)
	}
	require.Equal(t, sdkRelease, sdkInstalled(t, dir))
	return dir
}

func sdkInstalled(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", "@zama-fhe", "relayer-sdk", "package.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	require.NoError(t, err)
	var pkg struct {
		Version string `json:"version"`
	}
	require.NoError(t, json.Unmarshal(text, &pkg))
	return pkg.Version
}

func runSDK(t *testing.T, dir string, cases []*sdkCase) []sdkOutcome {
	t.Helper()
	in, err := json.Marshal(cases)
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	node := exec.CommandContext(t.Context(), "node", "client.mjs")
	node.Dir, node.Stdin, node.Stdout, node.Stderr = dir, bytes.NewReader(in), &stdout, &stderr
	require.NoError(t, node.Run(), stderr.String())
	var out struct {
		Version  string         `json:"version"`
		KeyURLs  map[string]any `json:"keyURLs"`
		Outcomes []sdkOutcome   `json:"outcomes"`
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &out), stdout.String())
	require.Equal(t, sdkRelease, out.Version)
	require.Len(t, out.Outcomes, len(cases))
	require.Contains(t, out.KeyURLs, "https://keys.example/PublicKey", "what /v2/keyurl answers")
	return out.Outcomes
}
