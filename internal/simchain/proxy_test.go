package simchain_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
)

// stub is a node whose answers a test writes: the result of every call, as JSON.
func stub(t *testing.T, result string) simchain.Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct{ ID json.RawMessage }
		_ = json.NewDecoder(r.Body).Decode(&call)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(call.ID)+`,"result":`+result+`}`)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return simchain.Config{HTTP: "http://" + listener.Addr().String()}
}

func proxy(t *testing.T, c simchain.Config, rules ...simchain.Rule) *simchain.Proxy {
	t.Helper()
	p, err := simchain.NewProxy(c, 7, rules...)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func client(t *testing.T, url string) *rpc.Client {
	t.Helper()
	c, err := rpc.DialContext(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestProxyFaults(t *testing.T) {
	t.Parallel()
	node := stub(t, `["0x1","0x2","0x3","0x4"]`)
	quantity := stub(t, `"0x5"`)
	for _, test := range []struct {
		name   string
		node   simchain.Config
		rule   simchain.Rule
		result string
		check  func(t *testing.T, err error)
	}{
		{"error", node, simchain.Rule{Fault: simchain.FaultError, Code: -32000, Message: "no"}, "", func(t *testing.T, err error) {
			var e rpc.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, -32000, e.ErrorCode())
		}},
		{"status", node, simchain.Rule{Fault: simchain.FaultStatus, Code: 429}, "", func(t *testing.T, err error) {
			var e rpc.HTTPError
			require.ErrorAs(t, err, &e)
			require.Equal(t, 429, e.StatusCode)
		}},
		{"cut", node, simchain.Rule{Fault: simchain.FaultCut}, "", func(t *testing.T, err error) { require.ErrorIs(t, err, io.EOF) }},
		{"drop", node, simchain.Rule{Fault: simchain.FaultDrop}, "", func(t *testing.T, err error) { require.ErrorIs(t, err, io.EOF) }},
		{"garbage", node, simchain.Rule{Fault: simchain.FaultGarbage}, "", func(t *testing.T, err error) {
			var e *json.SyntaxError
			require.ErrorAs(t, err, &e)
		}},
		{"null", node, simchain.Rule{Fault: simchain.FaultNull}, `null`, nil},
		{"result", node, simchain.Rule{Fault: simchain.FaultResult, Result: json.RawMessage(`{"a":1}`)}, `{"a":1}`, nil},
		{"slow", node, simchain.Rule{Fault: simchain.FaultSlow, Delay: time.Millisecond}, `["0x1","0x2","0x3","0x4"]`, nil},
		{"shuffle", node, simchain.Rule{Fault: simchain.FaultShuffle}, `["0x3","0x4","0x2","0x1"]`, nil},
		{"repeat", node, simchain.Rule{Fault: simchain.FaultRepeat}, `["0x1","0x1","0x2","0x2","0x3","0x3","0x4","0x4"]`, nil},
		{"offset", quantity, simchain.Rule{Fault: simchain.FaultOffset, Delta: -2}, `"0x3"`, nil},
		{"offset below zero", quantity, simchain.Rule{Fault: simchain.FaultOffset, Delta: -6}, `"0x0"`, nil},
		{"offset of a list", node, simchain.Rule{Fault: simchain.FaultOffset, Delta: 1}, `["0x1","0x2","0x3","0x4"]`, nil},
		{"repeated quantity", quantity, simchain.Rule{Fault: simchain.FaultRepeat}, `"0x5"`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.rule.Times, test.rule.Method = 1, "m"
			p := proxy(t, test.node, test.rule)
			c := client(t, p.HTTP())
			var got json.RawMessage
			err := c.CallContext(t.Context(), &got, "m")
			if test.check != nil {
				require.Error(t, err)
				test.check(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, test.result, string(got))
			}
			require.NoError(t, c.CallContext(t.Context(), &got, "m"), "once only")
			require.NoError(t, c.CallContext(t.Context(), &got, "other"))
			require.Equal(t, map[string]int{"m": 2, "other": 1}, p.Calls())
			require.Equal(t, map[simchain.Fault]int{test.rule.Fault: 1}, p.Counts())
			require.NoError(t, p.Wait(t.Context(), test.rule.Fault, 1))
			require.NoError(t, p.WaitCall(t.Context(), "m", 2))
		})
	}
}

func TestProxyHang(t *testing.T) {
	t.Parallel()
	p := proxy(t, stub(t, `1`), simchain.Rule{Fault: simchain.FaultHang, Times: 2})
	c := client(t, p.HTTP())
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 2)
	go func() { answered <- c.CallContext(ctx, nil, "m") }()
	require.NoError(t, p.Wait(t.Context(), simchain.FaultHang, 1))
	cancel()
	require.ErrorIs(t, <-answered, context.Canceled)
	go func() { answered <- c.CallContext(t.Context(), nil, "m") }()
	require.NoError(t, p.Wait(t.Context(), simchain.FaultHang, 2))
	p.Close()
	require.Error(t, <-answered, "nobody waits for a proxy that is gone")
	require.ErrorIs(t, p.Wait(ctx, simchain.FaultHang, 3), context.Canceled)
}

func TestProxyDown(t *testing.T) {
	t.Parallel()
	p := proxy(t, stub(t, `1`))
	c := client(t, p.HTTP())
	require.NoError(t, c.CallContext(t.Context(), nil, "m"))
	p.SetDown(true)
	require.Error(t, c.CallContext(t.Context(), nil, "m"))
	p.SetDown(false)
	require.NoError(t, c.CallContext(t.Context(), nil, "m"))
}

// Chance follows from the seed, and each call of a list is spoiled by itself.
func TestProxyChance(t *testing.T) {
	t.Parallel()
	node := stub(t, `1`)
	run := func() string {
		p := proxy(t, node, simchain.Rule{Method: "m", Fault: simchain.FaultNull, Chance: 0.5, After: 2})
		c := client(t, p.HTTP())
		var pattern strings.Builder
		for range 4 {
			var got [8]json.RawMessage
			batch := make([]rpc.BatchElem, len(got))
			for i := range got {
				batch[i] = rpc.BatchElem{Method: "m", Result: &got[i]}
			}
			require.NoError(t, c.BatchCallContext(t.Context(), batch))
			for i := range got {
				require.NoError(t, batch[i].Error)
				pattern.WriteString(map[bool]string{true: "x", false: "."}[string(got[i]) == "null"])
			}
		}
		return pattern.String()
	}
	first := run()
	require.Equal(t, first, run())
	require.Contains(t, first, "x")
	require.Regexp(t, `^\.\..*\.`, first)
}

// connection is one WebSocket through a proxy.
type connection struct {
	t  *testing.T
	ws *websocket.Conn
	id int
}

func connect(t *testing.T, p *simchain.Proxy) *connection {
	t.Helper()
	ws, resp, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	t.Cleanup(func() { _ = ws.Close() })
	require.NoError(t, ws.SetReadDeadline(time.Now().Add(time.Minute)))
	return &connection{t: t, ws: ws}
}

func (c *connection) call(method string, params ...any) {
	c.t.Helper()
	c.id++
	if params == nil {
		params = []any{}
	}
	require.NoError(c.t, c.ws.WriteJSON(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params}))
}

// read returns the next answer or notification in few words.
func (c *connection) read() string {
	c.t.Helper()
	_, body, err := c.ws.ReadMessage()
	if err != nil {
		return "closed"
	}
	var m struct {
		Result json.RawMessage
		Error  *struct{ Message string }
		Params struct{ Result struct{ Number string } }
	}
	switch err := json.Unmarshal(body, &m); {
	case err != nil:
		return string(body)
	case m.Error != nil:
		return m.Error.Message
	case m.Params.Result.Number != "":
		return "head " + m.Params.Result.Number
	default:
		return string(m.Result)
	}
}

func TestProxySocket(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1})
	p := proxy(t, c.Config())
	ctx := t.Context()
	one := connect(t, p)
	ask := func(f simchain.Fault, more func(*simchain.Rule)) string {
		r := simchain.Rule{Method: "eth_chainId", Fault: f, Times: 1}
		if more != nil {
			more(&r)
		}
		p.SetRules(r)
		one.call("eth_chainId")
		return one.read()
	}
	require.Equal(t, `"0x539"`, ask("", nil))
	require.Equal(t, "internal error", ask(simchain.FaultError, nil))
	require.Equal(t, `"0x53b"`, ask(simchain.FaultOffset, func(r *simchain.Rule) { r.Delta = 2 }))
	require.Equal(t, "null", ask(simchain.FaultNull, nil))
	require.Equal(t, `"0x539"`, ask(simchain.FaultSlow, func(r *simchain.Rule) { r.Delay = time.Millisecond }))
	require.Equal(t, "<html>not JSON</html>", ask(simchain.FaultGarbage, nil))
	for _, f := range []simchain.Fault{simchain.FaultCut, simchain.FaultStatus, simchain.FaultDrop} {
		require.Equal(t, "closed", ask(f, nil))
		one = connect(t, p)
	}
	p.SetRules(simchain.Rule{Method: "eth_chainId", Fault: simchain.FaultHang, Times: 1})
	one.call("eth_chainId")
	one.call("net_version")
	require.Equal(t, `"1337"`, one.read(), "the first is never answered")

	one.call("eth_subscribe", "newHeads")
	require.Regexp(t, `^"0x`, one.read())
	p.SetRules(simchain.Rule{Method: "eth_subscription", Fault: simchain.FaultRepeat, Times: 1},
		simchain.Rule{Method: "eth_subscription", Fault: simchain.FaultDrop, Times: 1},
		simchain.Rule{Method: "eth_subscription", Fault: simchain.FaultSlow, Times: 1, Delay: time.Millisecond},
		simchain.Rule{Method: "eth_subscription", Fault: simchain.FaultCut})
	for range 4 {
		_, err := c.Commit(ctx)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"head 0x2", "head 0x2", "head 0x4", "closed"}, []string{one.read(), one.read(), one.read(), one.read()},
		"the first twice, the second never")

	one = connect(t, p)
	p.SetDown(true)
	require.Equal(t, "closed", one.read())
	_, resp, err := websocket.DefaultDialer.DialContext(ctx, p.WS(), nil)
	require.Error(t, err)
	require.Nil(t, resp)
	p.SetDown(false)
	one = connect(t, p)
	p.Close()
	require.Equal(t, "closed", one.read())
}
