package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const someRequest = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

// rawClient is a client connection whose bytes a test chooses.
type rawClient struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (r *rig) rawClient(t *testing.T) *rawClient {
	conn, err := r.dial(UserListener)(context.Background(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &rawClient{t, conn, bufio.NewReader(conn)}
}

func (c *rawClient) send(text string) {
	go func() { _, _ = io.WriteString(c.Conn, text) }() // a pipe's end may have gone
}

// answer reads a complete answer.
func (c *rawClient) answer() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	_, err = io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp
}

// A stop closes connections without a request, and answers one of which a part has
// come, be it the second on its connection and its header not complete.
func TestDrainAnswersWhatHasBegun(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true})
		idle, fresh, first, second, body, stuck := r.rawClient(t), r.rawClient(t), r.rawClient(t), r.rawClient(t), r.rawClient(t), r.rawClient(t)
		for _, c := range []*rawClient{idle, second, stuck} {
			c.send(someRequest)
			require.Equal(t, 400, c.answer().StatusCode)
		}
		first.send("POST / HT")
		second.send("PO")
		stuck.send("P")
		body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
		synctest.Wait()
		start := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- r.srv.Shutdown(t.Context()) }()
		synctest.Wait()
		_, err := r.dial(UserListener)(context.Background(), "", "")
		require.NoError(t, err, "open while a request is")
		body.send("}")
		require.Equal(t, 400, body.answer().StatusCode)
		for _, c := range []*rawClient{idle, fresh} {
			_, err := c.in.ReadByte()
			require.Error(t, err)
		}
		require.Less(t, time.Since(start), time.Second)
		first.send("TP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
		second.send(someRequest[2:])
		for _, c := range []*rawClient{first, second} {
			a := c.answer()
			require.Equal(t, 503, a.StatusCode)
			require.True(t, a.Close)
		}
		require.NoError(t, <-stopped, "the one that goes on sending is cut off")
		require.Equal(t, answerGrace, time.Since(start))
		_, err = stuck.in.ReadByte()
		require.Error(t, err)
	})
}

// The same over TLS, and a stop does not wait for what HTTP/2 leaves open.
func TestDrainTLS(t *testing.T) {
	t.Parallel()
	cert, keyFile, pool := selfSigned(t)
	r := newRig(t, rigSpec{user: map[string]any{"tlsEnabled": true, "tlsCertPath": cert, "tlsKeyPath": keyFile}})
	dial := func() *rawClient {
		conn, err := tls.Dial("tcp", r.srv.Address(UserListener), &tls.Config{RootCAs: pool})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return &rawClient{t, conn, bufio.NewReader(conn)}
	}
	idle, second := dial(), dial()
	for _, c := range []*rawClient{idle, second} {
		c.send(someRequest)
		require.Equal(t, 400, c.answer().StatusCode)
	}
	client := http2Client(t, pool)
	resp, err := client.Get("https://" + r.srv.Address(UserListener) + "/health")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	l := r.srv.listeners[UserListener]
	_, err = io.WriteString(second.Conn, "PO")
	require.NoError(t, err)
	begun := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.open {
			c.mu.Lock()
			if c.begun && !c.exempt {
				n++
			}
			c.mu.Unlock()
		}
		return n
	}
	r.eventually(func() bool { return begun() == 1 }, "two letters have come")
	stopped := make(chan error, 1)
	go func() { stopped <- r.srv.Shutdown(t.Context()) }()
	_, err = idle.in.ReadByte()
	require.Error(t, err)
	second.send(someRequest[2:])
	require.Equal(t, 503, second.answer().StatusCode)
	require.NoError(t, <-stopped)
}

// While it leaves, the gateway serves, and says everywhere that it is leaving.
func TestLeaveBeforeDrain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, top: map[string]any{"drainDelayMs": 5000}})
		w := theWorkflow()
		r.connectAll(nil, w)
		require.True(t, r.srv.Ready(t.Context()).Ready)
		start := time.Now()
		left := make(chan struct{})
		go func() { defer close(left); r.srv.Leave() }()
		synctest.Wait()
		ready := r.srv.Ready(t.Context())
		require.False(t, ready.Ready)
		require.True(t, ready.Draining)
		c := r.rawClient(t)
		c.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		require.Equal(t, 503, c.answer().StatusCode)
		require.Equal(t, 200, r.trigger(w, "").status)
		c.send(someRequest)
		require.True(t, c.answer().Close)
		require.False(t, r.srv.Draining(), "nothing is refused yet")
		<-left
		require.Equal(t, 5*time.Second, time.Since(start))
		require.NoError(t, r.srv.Shutdown(t.Context()))
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pipes := newPipeNet()
		inner, err := pipes.listen("", "")
		require.NoError(t, err)
		l := newConnections(inner, 1)
		accepted := make(chan net.Conn)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				accepted <- c
			}
		}()
		dial := func() {
			go func() {
				c, err := pipes.dial(inner.Addr().String())
				if err == nil {
					t.Cleanup(func() { _ = c.Close() })
				}
			}()
			synctest.Wait()
		}
		take := func() net.Conn {
			synctest.Wait()
			select {
			case c := <-accepted:
				return c
			default:
				return nil
			}
		}
		dial()
		dial()
		dial()
		first := take()
		require.NotNil(t, first)
		require.Nil(t, take(), "there is room for one")
		l.setMost(2)
		require.NotNil(t, take())
		require.Nil(t, take())
		require.NoError(t, first.Close())
		require.NoError(t, first.Close())
		third := take()
		require.NotNil(t, third)
		require.Nil(t, take())
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
		_ = third.Close()
	})
}
