package connector_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/connector"
	"dongate/jsonrpc"
)

func TestHandlersAnswer(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	type result struct {
		B int    `json:"b"`
		A string `json:"a"`
	}
	var typedNil *jsonrpc.Error
	for method, h := range map[string]connector.Handler{
		"struct": func(context.Context, *jsonrpc.Request) (any, error) { return result{1, "x"}, nil },
		"raw":    func(context.Context, *jsonrpc.Request) (any, error) { return jsontext.Value(`{"n": 1.0}`), nil },
		"params": func(_ context.Context, r *jsonrpc.Request) (any, error) { return r.Params, nil },
		"map": func(context.Context, *jsonrpc.Request) (any, error) {
			return map[string]int{"b": 1, "a": 2, "c": 3}, nil
		},
		"failure": func(context.Context, *jsonrpc.Request) (any, error) {
			return nil, fmt.Errorf("wrapped: %w", &jsonrpc.Error{Code: 7, Message: "no", Data: jsontext.Value(`[1]`)})
		},
		"other":    func(context.Context, *jsonrpc.Request) (any, error) { return nil, errors.New("password is hunter2") },
		"typednil": func(context.Context, *jsonrpc.Request) (any, error) { return nil, typedNil },
		"panic":    func(context.Context, *jsonrpc.Request) (any, error) { panic("password is hunter2") },
		"null":     func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil },
		"rawbad":   func(context.Context, *jsonrpc.Request) (any, error) { return jsontext.Value(`{"a":`), nil },
		"baddata": func(context.Context, *jsonrpc.Request) (any, error) {
			return nil, &jsonrpc.Error{Code: 7, Message: "no", Data: jsontext.Value(`{`)}
		},
		"func":    func(context.Context, *jsonrpc.Request) (any, error) { return func() {}, nil },
		"marshal": func(context.Context, *jsonrpc.Request) (any, error) { return panics{}, nil },
		"large":   func(context.Context, *jsonrpc.Request) (any, error) { return strings.Repeat("x", 1<<20), nil },
		"from": func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
			g, _ := connector.GatewayFrom(ctx)
			return g.URL, nil
		},
	} {
		c.Handle(method, h)
	}
	p := d.accept()
	const internal = `"error":{"code":-32603,"message":"internal error of the node"}}`
	for method, want := range map[string]string{
		"struct":   `"result":{"b":1,"a":"x"}}`,
		"raw":      `"result":{"n": 1.0}}`,
		"params":   `"result":{"n":9007199254740993}}`,
		"map":      `"result":{"a":2,"b":1,"c":3}}`,
		"failure":  `"error":{"code":7,"message":"no","data":[1]}}`,
		"other":    internal,
		"typednil": internal,
		"panic":    internal,
		"null":     internal,
		"rawbad":   internal,
		"baddata":  internal,
		"func":     internal,
		"marshal":  internal,
		"large":    `"error":{"code":-32603,"message":"the node's answer is larger than a gateway accepts"}}`,
		"from":     `"result":"` + d.url + `"}`,
		"unknown":  `"error":{"code":-32601,"message":"the node does not know this method"}}`,
	} {
		p.send("id-"+method, method, `{"n":9007199254740993}`)
		text, _ := p.read()
		require.Equal(t, `{"jsonrpc":"2.0","id":"id-`+method+`","method":"`+method+`",`+want, text)
	}
	eventually(t, "every handler is counted out", func() bool { return c.Stats().Handling == 0 })
	s := c.Stats()
	require.EqualValues(t, 2, s.Gateways[0].Panics)
	require.EqualValues(t, 1, s.Gateways[0].Unhandled)
	require.EqualValues(t, 1, s.Gateways[0].TooLarge)
	require.Zero(t, s.HandlingBytes)
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("password is hunter2") }

func TestHandleRefusesProgrammingErrors(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	h := func(context.Context, *jsonrpc.Request) (any, error) { return nil, nil }
	c.Handle("m", h)
	for _, method := range []string{"", "m", "pull_workflow_metadata"} {
		require.Panics(t, func() { c.Handle(method, h) }, method)
	}
	require.Panics(t, func() { c.Handle("n", nil) })
}

// A gateway is not trusted more than it trusts nodes.
func TestMalformedMessagesAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	c.Handle("m", func(context.Context, *jsonrpc.Request) (any, error) { return 1, nil })
	p := d.accept()
	bad := []string{
		``, `{`, `[]`, `null`, `"x"`, `{"jsonrpc":"2.0"}`, "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"m\"}",
		`{"jsonrpc":"1.0","id":"a","method":"m"}`, `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":"","method":"m"}`,
		`{"jsonrpc":"2.0","id":"a","method":""}`, `{"jsonrpc":"2.0","id":"a","id":"a","method":"m"}`,
		`{"jsonrpc":"2.0","id":"other/a","method":"m"}`, `{"jsonrpc":"2.0","id":"m/","method":"m"}`, `{"jsonrpc":"2.0","id":"/","method":"m"}`,
		`{"jsonrpc":"2.0","id":"a","method":"pull_workflow_metadata"}`, `{"jsonrpc":"2.0","id":"a","method":"http_action"}`, `{"jsonrpc":"2.0","id":"pull_workflow_metadata/","method":"pull_workflow_metadata"}`,
		`{"jsonrpc":"2.0","id":"a","method":"m"}{}`, `{"jsonrpc":"2.0","id":"a","method":"m","params":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 513) + `","method":"m"}`, `{"jsonrpc":"2.0","id":"a","method":"` + strings.Repeat("m", 129) + `"}`,
		`{"jsonrpc":"2.0","id":"a","method":"m","result":1}`[:40],
	}
	for _, text := range bad {
		p.write(websocket.BinaryMessage, text)
	}
	p.write(websocket.TextMessage, `{"jsonrpc":"2.0","id":"text","method":"m"}`)
	p.send("good", "m", `null`)
	_, r := p.read()
	require.Equal(t, "good", r.ID, "nothing before it was answered")
	s := c.Stats().Gateways[0]
	require.EqualValues(t, len(bad)+1, s.Malformed)
	require.EqualValues(t, len(bad)+2, s.Received)
	require.EqualValues(t, 1, s.Sessions)
}

// An exchange that the node did not start, or no longer knows, must not be answered: the gateway would take the answer
// for a new message of its method.
func TestUnknownExchangeIsNotAnswered(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	p := d.accept()
	p.send("other/0x01/uuid", "other", `{}`)
	p.send("plain", "unknown", `{}`)
	_, r := p.read()
	require.Equal(t, "plain", r.ID)
	require.EqualValues(t, 2, c.Stats().Gateways[0].Unhandled)
}

// conformance: 4.frames.binary
func TestLargeAnswerIsOneFrame(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	var written bytes.Buffer
	var mu sync.Mutex
	large := strings.Repeat("0123456789", 50_000)
	c, stop := start(t, func(c *connector.Config) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.dial(ctx, network, address)
			return &tapConn{Conn: conn, tap: func(b []byte) { mu.Lock(); written.Write(b); mu.Unlock() }}, err
		}
	}, d)
	c.Handle("m", func(context.Context, *jsonrpc.Request) (any, error) { return large, nil })
	p := d.accept()
	p.send("a", "m", `{}`)
	_, r := p.read()
	require.Equal(t, `"`+large+`"`, string(r.Result))
	stop()
	mu.Lock()
	defer mu.Unlock()
	_, frames, ok := bytes.Cut(written.Bytes(), []byte("\r\n\r\n"))
	require.True(t, ok)
	var kinds []byte
	for len(frames) > 0 {
		kinds = append(kinds, frames[0])
		n, header := int(frames[1]&0x7f), 2
		switch n {
		case 126:
			n, header = int(frames[2])<<8|int(frames[3]), 4
		case 127:
			n, header = int(frames[6])<<24|int(frames[7])<<16|int(frames[8])<<8|int(frames[9]), 10
		}
		frames = frames[header+4+n:]
	}
	binary := bytes.Count(kinds, []byte{0x82})
	require.Equal(t, 2, binary, "the signed challenge and the answer, in whole frames: %x", kinds)
	require.Len(t, kinds, binary+bytes.Count(kinds, []byte{0x8a})+bytes.Count(kinds, []byte{0x88}), "and pongs and a close: %x", kinds)
}

type tapConn struct {
	net.Conn
	tap func([]byte)
}

func (c *tapConn) Write(b []byte) (int, error) {
	c.tap(b)
	return c.Conn.Write(b)
}

func TestPingsAreAnsweredWithTheirPayload(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	start(t, nil, d)
	p := d.accept()
	pongs := make(chan string, 16)
	p.conn.SetPongHandler(func(s string) error { pongs <- s; return nil })
	var reader sync.WaitGroup
	reader.Go(func() { _ = p.ended() })
	for s := range pongs {
		if s == "first" {
			break
		}
	}
	require.NoError(t, p.conn.WriteControl(websocket.PingMessage, []byte("second"), time.Now().Add(patience)))
	require.Equal(t, "second", <-pongs)
	p.close()
	reader.Wait()
}

func TestMessageOverTheReadLimitEndsTheSession(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, func(c *connector.Config) { c.MaxReadBytes = 1000 }, d)
	p := d.accept()
	waitConnected(t, c, 1)
	p.write(websocket.BinaryMessage, strings.Repeat(" ", 1001))
	require.True(t, websocket.IsCloseError(p.ended(), websocket.CloseMessageTooBig))
	d.accept()
	waitConnected(t, c, 1)
	require.EqualValues(t, 1, c.Stats().Gateways[0].Lost)
}

func TestRunEndsSessionsWithGoingAwayAndHandlersWithTheirContext(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, stop := start(t, nil, d)
	cause := make(chan error, 1)
	entered := make(chan struct{})
	c.Handle("m", func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		close(entered)
		<-ctx.Done()
		cause <- ctx.Err()
		return 1, nil
	})
	p := d.accept()
	p.send("a", "m", `{}`)
	<-entered
	stop()
	require.ErrorIs(t, <-cause, context.Canceled)
	require.True(t, websocket.IsCloseError(p.ended(), websocket.CloseGoingAway))
	require.False(t, c.Connected(d.url))
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, stop := start(t, nil, d)
	d.accept()
	waitConnected(t, c, 1)
	require.ErrorIs(t, c.Run(context.Background()), connector.ErrRunning)
	stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, c.Run(ctx), "it may run again; with a context that has ended it does nothing")

	// The next session is signed for another second than the last.
	first := (<-d.headers).Timestamp
	run(t, c)
	d.accept()
	require.NotEqual(t, first, (<-d.headers).Timestamp)
}

func TestHandlersAreBoundedAndRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*connector.Config){
		"count": func(c *connector.Config) { c.MaxConcurrent = 2 },
		"bytes": func(c *connector.Config) { c.MaxConcurrentBytes = 250 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			release := make(chan struct{})
			var most, now atomic.Int32
			c, _ := start(t, bound, d)
			c.Handle("m", func(context.Context, *jsonrpc.Request) (any, error) {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				<-release
				now.Add(-1)
				return 1, nil
			})
			p := d.accept()
			params := `{"fill":"` + strings.Repeat("x", 60) + `"}` // about 115 bytes a message
			for i := range 5 {
				p.send(fmt.Sprint(i), "m", params)
			}
			for i := 2; i < 5; i++ {
				_, r := p.read()
				require.Equal(t, fmt.Sprint(i), r.ID)
				require.Equal(t, jsonrpc.CodeInternalError, r.Error.Code)
				require.Contains(t, r.Error.Message, "busy")
			}
			require.EqualValues(t, 3, c.Stats().Gateways[0].Busy)
			close(release)
			for range 2 {
				_, r := p.read()
				require.Nil(t, r.Error)
			}
			eventually(t, "there is room again", func() bool { return c.Stats().Handling == 0 })
			p.send("again", "m", params)
			_, r := p.read()
			require.Nil(t, r.Error)
			require.LessOrEqual(t, most.Load(), int32(2))
		})
	}
}

func TestAnswerGoesToTheNewestConnectionOfItsGateway(t *testing.T) {
	t.Parallel()
	one, two := newDouble(t), newDouble(t)
	c, _ := start(t, nil, one, two)
	release := make(chan struct{})
	entered := make(chan struct{})
	c.Handle("m", func(ctx context.Context, _ *jsonrpc.Request) (any, error) {
		entered <- struct{}{}
		select {
		case <-release:
			return "done", nil
		case <-ctx.Done():
			return "cancelled", nil
		}
	})
	p, q := one.accept(), two.accept()
	p.send("a", "m", `{}`)
	<-entered
	q.send("b", "m", `{}`)
	<-entered
	p.close() // the handler does not notice
	p = one.accept()
	close(release)
	_, r := p.read()
	require.Equal(t, "a", r.ID)
	require.Equal(t, `"done"`, string(r.Result))
	_, r = q.read()
	require.Equal(t, "b", r.ID)
}

func TestAnswerWaitsForTheGatewayToComeBack(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	gone := make(chan struct{})
	c.Handle("m", func(context.Context, *jsonrpc.Request) (any, error) { <-gone; return 1, nil })
	p := d.accept()
	waitConnected(t, c, 1)
	p.send("a", "m", `{}`)
	eventually(t, "it arrives", func() bool { return c.Stats().Handling == 1 })
	var up atomic.Bool
	d.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		if !up.Load() {
			w.WriteHeader(503)
		}
		return !up.Load()
	})
	p.close()
	eventually(t, "it is lost", func() bool { return !c.Connected(d.url) })
	close(gone)
	eventually(t, "it waits", func() bool { return c.Stats().Gateways[0].Queued == 1 })
	up.Store(true)
	_, r := d.accept().read()
	require.Equal(t, "a", r.ID)
}

func TestSend(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	var seen []string
	var mu sync.Mutex
	c, stop := start(t, func(c *connector.Config) {
		c.QueueMessages = 2
		c.Observe = func(m connector.Message) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprintf("%v %s", m.Sent, m.Data))
		}
	}, d)
	ok := &jsonrpc.Response{ID: "a", Method: "m", Result: jsontext.Value(`1`)}
	require.ErrorIs(t, c.Send("ws://elsewhere", ok), connector.ErrUnknownGateway)
	require.ErrorContains(t, c.Send(d.url, &jsonrpc.Response{ID: "a"}), "send")
	require.ErrorContains(t, c.Send(d.url, &jsonrpc.Response{Result: jsontext.Value(`1`)}), "id is empty")
	require.ErrorContains(t, c.Send(d.url, &jsonrpc.Response{ID: "a", Result: jsontext.Value(`{`)}), "not JSON")
	require.ErrorIs(t, c.Send(d.url, &jsonrpc.Response{ID: "a", Result: jsontext.Value(`"` + strings.Repeat("x", 1<<20) + `"`)}), connector.ErrTooLarge)

	p := d.accept()
	require.NoError(t, c.Send(d.url, ok))
	text, _ := p.read()
	eventually(t, "it is out", func() bool { return c.Stats().Gateways[0].Queued == 0 })
	stop()
	require.NoError(t, c.Send(d.url, ok))
	require.NoError(t, c.Send(d.url, ok))
	require.ErrorIs(t, c.Send(d.url, ok), connector.ErrQueueFull)
	require.EqualValues(t, 1, c.Stats().Gateways[0].QueueFull)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"true " + text}, seen)
}

func TestSendersAndReadersDoNotRace(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, _ := start(t, nil, d)
	c.Handle("m", func(_ context.Context, r *jsonrpc.Request) (any, error) { return r.Params, nil })
	p := d.accept()
	const n = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			p.send(fmt.Sprint(i), "m", fmt.Sprintf(`{"i":%d}`, i))
			c.Connected(d.url)
			c.Stats()
		}
	})
	got := make(map[string]string)
	for range n {
		_, r := p.read()
		got[r.ID] = string(r.Result)
	}
	wg.Wait()
	for i := range n {
		require.Equal(t, fmt.Sprintf(`{"i":%d}`, i), got[fmt.Sprint(i)])
	}
}
