package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testChain = 654321

// call is one JSON-RPC call as a stub got it.
type call struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
}

func (c call) String() string {
	params, _ := json.Marshal(c.Params)
	return c.Method + string(params)
}

// to returns what an eth_call is put to and its data.
func (c call) to() (to common.Address, data []byte) {
	var args struct {
		To   common.Address `json:"to"`
		Data hexutil.Bytes  `json:"data"`
	}
	if len(c.Params) > 0 {
		json.Unmarshal(c.Params[0], &args)
	}
	return args.To, args.Data
}

type answer func(w http.ResponseWriter, r *http.Request, c call)

// rule is one line of a stub's list: the first that matches and is not used up answers.
type rule struct {
	match  func(c call) bool
	answer answer
	left   int // -1: without end
}

// stub is a node: an ordered list of rules. eth_chainId is answered with testChain unless a rule says otherwise.
type stub struct {
	mu    sync.Mutex
	rules []*rule
	calls []call // eth_chainId left out
}

func (s *stub) add(match func(call) bool, a answer) *rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &rule{match, a, -1}
	s.rules = append(s.rules, r)
	return r
}

func (s *stub) on(method string, a answer) *rule {
	return s.add(func(c call) bool { return c.Method == method }, a)
}

// onCall answers an eth_call of a function.
func (s *stub) onCall(to common.Address, selector [4]byte, a answer) *rule {
	return s.add(func(c call) bool {
		got, data := c.to()
		return c.Method == "eth_call" && got == to && len(data) >= 4 && [4]byte(data) == selector
	}, a)
}

func (r *rule) times(n int) { r.left = n }

// clear forgets all rules.
func (s *stub) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// seen returns the calls since the last time.
func (s *stub) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	return out
}

func (s *stub) find(c call) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Method != "eth_chainId" {
		s.calls = append(s.calls, c)
	}
	for _, r := range s.rules {
		if r.left != 0 && r.match(c) {
			r.left--
			return r.answer
		}
	}
	if c.Method == "eth_chainId" {
		return result(hexutil.Uint64(testChain))
	}
	return fail(-32601, "no rule for "+c.Method, nil)
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	s.find(c)(w, r, c)
}

func result(v any) answer {
	return func(w http.ResponseWriter, _ *http.Request, c call) {
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": c.ID, "result": v})
	}
}

func fail(code int, message string, data any) answer {
	return func(w http.ResponseWriter, _ *http.Request, c call) {
		e := map[string]any{"code": code, "message": message}
		if data != nil {
			e["data"] = data
		}
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": c.ID, "error": e})
	}
}

func status(code int) answer {
	return func(w http.ResponseWriter, _ *http.Request, _ call) {
		http.Error(w, "see https://up.stream/"+secret, code)
	}
}

func body(text string) answer {
	return func(w http.ResponseWriter, _ *http.Request, _ call) { io.WriteString(w, text) }
}

// hang answers nothing until the caller gives up.
func hang(_ http.ResponseWriter, r *http.Request, _ call) { <-r.Context().Done() }

// network is stubs by host, without sockets.
type network map[string]*stub

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	s := n[r.URL.Host]
	if s == nil {
		return nil, syscall.ECONNREFUSED
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// secret stands in every URL of the tests and must not come out anywhere.
const secret = "s3cr3t-key"

// newPool returns a pool over stubs a, b, … and what it logs.
func newPool(t *testing.T, n int, change ...func(*PoolOptions)) (*Pool, []*stub, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	net, stubs := network{}, make([]*stub, n)
	o := PoolOptions{Name: "test chain", ChainID: testChain, Log: zap.New(core), HTTP: &http.Client{Transport: net}, CallTimeout: 10 * time.Second}
	for i := range stubs {
		host := fmt.Sprintf("%c.test", 'a'+i)
		stubs[i] = &stub{}
		net[host] = stubs[i]
		o.URLs = append(o.URLs, "https://user:"+secret+"@"+host+"/v1/"+secret)
	}
	for _, c := range change {
		c(&o)
	}
	p, err := NewPool(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close()
		for _, l := range logs.All() {
			require.NotContains(t, fmt.Sprint(l.Message, l.ContextMap()), secret)
		}
	})
	return p, stubs, logs
}

// callText returns what a pool's calls looked like, in short.
func callText(calls []call) []string {
	out := []string{}
	for _, c := range calls {
		out = append(out, c.String())
	}
	return out
}

func words(values ...any) hexutil.Bytes {
	var out []byte
	for _, v := range values {
		switch v := v.(type) {
		case int:
			out = append(out, common.LeftPadBytes(num(v).Bytes(), 32)...)
		case common.Address:
			out = append(out, common.LeftPadBytes(v[:], 32)...)
		case [32]byte:
			out = append(out, v[:]...)
		case string:
			out = append(out, common.RightPadBytes([]byte(v), (len(v)+31)/32*32)...)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return out
}
