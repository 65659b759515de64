package chain

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"
)

func num(n int) *big.Int { return big.NewInt(int64(n)) }

func TestPoolOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]PoolOptions{
		"the chain id is missing":             {URLs: []string{"http://a"}},
		"no node is named":                    {ChainID: 1},
		"17 nodes are more than 16":           {ChainID: 1, URLs: make([]string, 17)},
		"node 2: not an http or https URL":    {ChainID: 1, URLs: []string{"http://a", "ws://b/" + secret}},
		"node 1: not an http or https URL":    {ChainID: 1, URLs: []string{"http://a\x7f" + secret}},
		"x: node 1: not an http or https URL": {ChainID: 1, URLs: []string{"http:///" + secret}},
	} {
		o.Name = "x"
		_, err := NewPool(o)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), secret)
	}
}

// What sends a call to the next node, and what is told to whom where there is none.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, brief, outcome string
		first                answer
	}{
		{"500", "HTTP status 500", "failed", status(500)},
		{"503", "HTTP status 503", "failed", status(503)},
		{"429", "HTTP status 429", "failed", status(429)},
		{"401", "HTTP status 401", "failed", status(401)},
		{"redirect", "HTTP status 302", "failed", status(302)},
		{"404 with a page", "HTTP status 404", "failed", status(404)},
		{"not JSON", "malformed answer", "malformed", body("<html>" + secret)},
		{"empty", "malformed answer", "malformed", body("")},
		{"cut off", "malformed answer", "malformed", body(`{"jsonrpc":"2.0","id":2,"resu`)},
		{"another id", "malformed answer", "malformed", body(`{"jsonrpc":"2.0","id":99,"result":"0x1"}`)},
		{"no id", "malformed answer", "malformed", body(`{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"limit"}}`)},
		{"neither", "malformed answer", "malformed", body(`{"jsonrpc":"2.0","id":2}`)},
		{"another form", "malformed answer", "malformed", result([]string{secret})},
		{"null", "malformed answer", "malformed", result(nil)},
		{"a list", "malformed answer", "malformed", body(`[]`)},
		{"too large", "malformed answer", "malformed", func(w http.ResponseWriter, _ *http.Request, _ call) { w.Write(make([]byte, maxReply+1)) }},
		{"hangs", "no answer in time", "timeout", hang},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var outcomes []string
				p, s, _ := newPool(t, 2, func(o *PoolOptions) {
					o.Observe = func(method, outcome string, took time.Duration) { outcomes = append(outcomes, method+" "+outcome) }
				})
				s[0].on("eth_estimateGas", c.first)
				s[1].on("eth_estimateGas", result("0x5"))
				for range 2 {
					gas, err := p.EstimateGas(t.Context(), addr(1), addr(2), []byte{1})
					require.NoError(t, err)
					require.EqualValues(t, 5, gas)
				}
				require.Len(t, s[0].seen(), 1)
				require.Len(t, s[1].seen(), 2)
				require.Equal(t, []string{"eth_chainId ok", "eth_estimateGas " + c.outcome, "eth_chainId ok", "eth_estimateGas ok", "eth_estimateGas ok"}, outcomes)

				s[1].clear()
				s[1].on("eth_estimateGas", c.first)
				_, err := p.EstimateGas(t.Context(), addr(1), addr(2), []byte{1})
				require.ErrorIs(t, err, ErrUnavailable)
				require.Equal(t, "test chain: no node answered: "+c.brief, err.Error())
			})
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	p, _, logs := newPool(t, 1, func(o *PoolOptions) { o.HTTP = &http.Client{Transport: network{}} })
	_, err := p.ChainID(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	require.Equal(t, "test chain: no node answered: connection refused", err.Error())
	require.Equal(t, "a.test", logs.All()[0].ContextMap()["host"])
}

func TestErrorIsAnAnswer(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 2)
	s[0].on("eth_estimateGas", func(w http.ResponseWriter, r *http.Request, c call) {
		w.WriteHeader(http.StatusBadRequest) // some nodes do
		fail(-32000, "upstream https://u:p@h/"+secret+" says\x00no", nil)(w, r, c)
	})
	_, err := p.EstimateGas(t.Context(), addr(1), addr(2), nil)
	var e *RPCError
	require.ErrorAs(t, err, &e)
	require.Equal(t, &RPCError{Code: -32000, Message: "upstream (URL) says?no"}, e)
	require.NotErrorIs(t, err, ErrUnavailable)
	require.Empty(t, s[1].seen())
}

func TestOtherChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 2)
		s[0].on("eth_chainId", result("0x1"))
		s[1].on("eth_gasPrice", result("0x1"))
		s[1].on("eth_maxPriorityFeePerGas", result("0x7"))
		tip, err := p.SuggestTip(t.Context())
		require.NoError(t, err)
		require.Equal(t, num(7), tip)
		require.Empty(t, s[0].seen())

		s[1].on("eth_getBalance", status(500)).times(1)
		_, err = p.Balance(t.Context(), addr(1))
		require.EqualError(t, err, "test chain: no node answered: the node is of another chain")
		require.Empty(t, s[0].seen())

		// A node is asked again once it failed: another may stand behind the name.
		s[1].on("eth_chainId", result("0x2"))
		s[1].seen()
		_, err = p.Balance(t.Context(), addr(1))
		require.ErrorIs(t, err, ErrUnavailable)
		require.Empty(t, s[1].seen())
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 3)
		for _, n := range s {
			n.on("eth_blockNumber", status(500))
		}
		names := func() (out string) {
			for _, n := range p.order() {
				out += n.host[:1]
			}
			return out
		}
		p.failed(p.nodes[0], "m", errMalformed)
		require.Equal(t, "bca", names())
		p.answered(p.nodes[2], time.Now())
		require.Equal(t, "cba", names())
		time.Sleep(minBackoff)
		require.Equal(t, "cab", names())

		for i, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			for range 5 { // together they count once
				p.failed(p.nodes[0], "m", errMalformed)
			}
			require.Equal(t, "cba", names())
			time.Sleep(want*time.Second - 1)
			require.Equal(t, "cba", names(), i)
			time.Sleep(time.Nanosecond)
			require.Equal(t, "cab", names(), i)
		}
		// All failed: the one that may be tried soonest is tried first.
		p.failed(p.nodes[0], "m", errMalformed)
		time.Sleep(time.Millisecond)
		p.failed(p.nodes[1], "m", errMalformed)
		p.failed(p.nodes[2], "m", errMalformed)
		require.Equal(t, "bca", names())
		p.answered(p.nodes[0], time.Now())
		require.Equal(t, "abc", names())
		require.Equal(t, 2, logs.FilterMessage("node in use").Len())
	})
}

func TestCallerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 2)
		s[0].on("eth_getCode", hang)
		s[1].on("eth_getCode", result("0x"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := p.CodeAt(ctx, addr(1))
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUnavailable)
		require.Empty(t, s[1].seen(), "who gave up gets no second try")

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.CodeAt(ctx, addr(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), secret)
		_, err = p.CodeAt(t.Context(), addr(1))
		require.NoError(t, err)
		require.Len(t, s[0].seen(), 2, "a node that is too slow comes last")
	})
}

func TestPoolConcurrently(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 3)
	s[0].on("eth_getTransactionCount", status(500))
	s[1].on("eth_getTransactionCount", result("0x3"))
	s[2].on("eth_getTransactionCount", result("0x3"))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			n, err := p.NonceAt(context.Background(), addr(1), true)
			if err != nil || n != 3 {
				t.Error(n, err)
			}
		})
	}
	wg.Wait()
}

// The pool's own HTTP client, over sockets.
func TestOwnClient(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var auth string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/ok":
			text, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":"%s"}`, between(string(text), `"id":`, ","), hexutil.EncodeUint64(testChain))
		case "/redirect":
			http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			z.Write(bytes.Repeat([]byte(" "), 2*maxReply))
			z.Close()
			w.Write(packed.Bytes())
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 100<<10))
		case "/gone":
			panic(http.ErrAbortHandler)
		}
	}))
	defer srv.Close()
	for path, want := range map[string]string{
		"ok": "", "redirect": "HTTP status 307", "bomb": "malformed answer", "headers": "the connection failed", "gone": "the connection failed",
	} {
		url := strings.Replace(srv.URL, "http://", "http://user:"+secret+"@", 1) + "/" + path
		p, err := NewPool(PoolOptions{Name: "x", ChainID: testChain, URLs: []string{url}})
		require.NoError(t, err)
		_, err = p.ChainID(t.Context())
		if want == "" {
			require.NoError(t, err)
			require.NotEmpty(t, auth)
		} else {
			require.EqualError(t, err, "x: no node answered: "+want)
		}
		p.Close()
	}
	p, err := NewPool(PoolOptions{Name: "x", ChainID: testChain, URLs: []string{"http://127.0.0.1:1/" + secret}})
	require.NoError(t, err)
	_, err = p.ChainID(t.Context())
	require.EqualError(t, err, "x: no node answered: connection refused")
}

func between(s, a, b string) string {
	_, s, _ = strings.Cut(s, a)
	s, _, _ = strings.Cut(s, b)
	return s
}

func TestBrief(t *testing.T) {
	t.Parallel()
	require.Equal(t, "the connection failed", brief(errors.New("x "+secret)))
	require.Equal(t, "malformed answer", brief(fmt.Errorf("%w: %s", errMalformed, secret)))
}
