package connector_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"dongate/auth"
	"dongate/connector"
)

func TestHandshakeIsSignedForShardGatewayAndClock(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	clock := time.Unix(1764500000, 987654321)
	c, _ := start(t, func(c *connector.Config) { c.Now = func() time.Time { return clock } }, d)
	d.accept()
	h := <-d.headers
	require.Equal(t, &auth.AuthHeader{Timestamp: 1764500000, DONID: donID, GatewayID: gatewayID,
		Signer: auth.NewKeySigner(testKey(t)).Address()}, h)
	waitConnected(t, c, 1)
	require.True(t, c.Connected(d.url))
	require.False(t, c.Connected("ws://elsewhere/node"))
}

// A node signs only a challenge that carries its own timestamp and its gateway's id.
// conformance: 4.handshake.challenge
func TestChallengeThatIsNotOursIsNeverSigned(t *testing.T) {
	t.Parallel()
	random := make([]byte, 32)
	challenge := func(ts uint32, id string) []string {
		b, err := auth.NewChallenge(ts, id, random)
		require.NoError(t, err)
		return []string{base64.StdEncoding.EncodeToString(b)}
	}
	for name, header := range map[string]func(ts uint32) http.Header{
		"missing": func(uint32) http.Header { return http.Header{} },
		"twice": func(ts uint32) http.Header {
			return http.Header{"Challenge": append(challenge(ts, gatewayID), challenge(ts, gatewayID)...)}
		},
		"another timestamp": func(ts uint32) http.Header { return http.Header{"Challenge": challenge(ts+1, gatewayID)} },
		"another gateway":   func(ts uint32) http.Header { return http.Header{"Challenge": challenge(ts, "gateway-2")} },
		"not base64":        func(uint32) http.Header { return http.Header{"Challenge": {"§"}} },
		"a bare hash":       func(uint32) http.Header { return http.Header{"Challenge": {base64.StdEncoding.EncodeToString(random)}} },
		"too long": func(ts uint32) http.Header {
			b, _ := auth.NewChallenge(ts, gatewayID, random)
			return http.Header{"Challenge": {base64.StdEncoding.EncodeToString(append(b, make([]byte, 1024)...))}}
		},
		"junk in the padding": func(ts uint32) http.Header {
			b, _ := auth.NewChallenge(ts, gatewayID, random)
			b[4+auth.GatewayIDBytes-1] = 'x'
			return http.Header{"Challenge": {base64.StdEncoding.EncodeToString(b)}}
		},
		"extensions": func(ts uint32) http.Header {
			return http.Header{"Challenge": challenge(ts, gatewayID),
				"Sec-Websocket-Extensions": {"permessage-deflate; server_no_context_takeover; client_no_context_takeover"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			closed := make(chan error, 1)
			d.answer(func(w http.ResponseWriter, r *http.Request) bool {
				h, err := auth.ParseAuthHeader(r.Header.Get("Authorization"))
				if err != nil {
					return false
				}
				conn, buf, err := w.(http.Hijacker).Hijack()
				if err != nil {
					return false
				}
				defer conn.Close()
				accept := acceptKey(r.Header.Get("Sec-Websocket-Key"))
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n", accept)
				_ = header(h.Timestamp).Write(conn)
				_, _ = fmt.Fprint(conn, "\r\n")
				_ = conn.SetReadDeadline(time.Now().Add(patience))
				_, err = buf.ReadByte()
				select {
				case closed <- err:
				default:
				}
				return true
			})
			signer := &countingSigner{Signer: auth.NewKeySigner(testKey(t))}
			c, stop := start(t, func(c *connector.Config) { c.Signer, c.Backoff.Initial, c.Backoff.Max = signer, time.Hour, time.Hour }, d)
			require.Error(t, <-closed, "the node answered")
			eventually(t, "the failure is counted", func() bool { return c.Stats().Gateways[0].Failed == 1 })
			stop()
			require.EqualValues(t, 1, signer.signed.Load(), "only its own header")
			require.Zero(t, c.Stats().Gateways[0].Sessions)
		})
	}
}

func TestRefusalsAreCountedBackedOffAndExplained(t *testing.T) {
	t.Parallel()
	for status, hint := range map[int]string{400: "read the handshake", 401: "DONID", 429: "pending", 404: "path", 503: "starting"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			d := newDouble(t)
			d.answer(func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, strings.Repeat("no", 1000), status)
				return true
			})
			core, logs := observer.New(zapcore.WarnLevel)
			c, stop := start(t, func(c *connector.Config) {
				c.Log = zap.New(core)
				c.Backoff = connector.Backoff{Initial: time.Hour, Max: time.Hour}
			}, d)
			eventually(t, "counted", func() bool { return c.Stats().Gateways[0].Refused == 1 })
			eventually(t, "logged", func() bool { return logs.Len() == 1 })
			stop()
			s := c.Stats().Gateways[0]
			require.EqualValues(t, 1, s.Attempts)
			require.Contains(t, s.LastError, fmt.Sprint(status))
			require.Less(t, len(s.LastError), 300, "what a gateway says is bounded")
			entry := logs.All()[0]
			require.Equal(t, "gateway refused the handshake", entry.Message)
			require.Contains(t, entry.ContextMap()["hint"], hint)
			require.GreaterOrEqual(t, entry.ContextMap()["retry"], 30*time.Minute)
		})
	}
}

// A gateway that never stops sending header lines must not fill the node's memory.
func TestEndlessUpgradeAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	sent := make(chan int, 1)
	d.answer(func(w http.ResponseWriter, _ *http.Request) bool {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return false
		}
		defer conn.Close()
		n, err := fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n")
		for total := n; ; total += n {
			if err != nil {
				sent <- total
				return true
			}
			n, err = fmt.Fprintf(conn, "X-Filler: %s\r\n", strings.Repeat("x", 8<<10))
		}
	})
	c, stop := start(t, func(c *connector.Config) { c.Backoff = connector.Backoff{Initial: time.Hour, Max: time.Hour} }, d)
	require.Less(t, <-sent, 64<<20, "what fits socket buffers, and no more")
	eventually(t, "counted", func() bool { return c.Stats().Gateways[0].Failed == 1 })
	stop()
	require.Contains(t, c.Stats().Gateways[0].LastError, "before the handshake")
}

func TestStalledHandshakeEndsWithRunAndWithItsTimeout(t *testing.T) {
	t.Parallel()
	listen := func(t *testing.T) (url string, accepted chan net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		accepted = make(chan net.Conn, 4)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		return "ws://" + l.Addr().String() + "/node", accepted
	}
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		url, accepted := listen(t)
		_, stop := start(t, func(c *connector.Config) {
			c.Gateways = []connector.Gateway{{URL: url, ID: gatewayID}}
			c.HandshakeTimeout = time.Hour
		})
		conn := <-accepted
		defer conn.Close()
		_, err := bufio.NewReader(conn).ReadString('\n') // the request is there, the answer is not
		require.NoError(t, err)
		stop() // fails the test unless Run returns
	})
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		url, accepted := listen(t)
		c, _ := start(t, func(c *connector.Config) {
			c.Gateways = []connector.Gateway{{URL: url, ID: gatewayID}}
			c.HandshakeTimeout = 50 * time.Millisecond
		})
		conn := <-accepted
		defer conn.Close()
		eventually(t, "the attempt fails", func() bool { return c.Stats().Gateways[0].Failed >= 1 })
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	d := &double{t: t, id: gatewayID, over: make(chan struct{}), peers: make(chan *peer, 4), headers: make(chan *auth.AuthHeader, 4)}
	server := httptest.NewTLSServer(d)
	t.Cleanup(func() { close(d.over); server.Close() })
	d.url = "wss" + strings.TrimPrefix(server.URL, "https") + "/node"

	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	c, stop := start(t, func(c *connector.Config) { c.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12} }, d)
	p := d.accept()
	waitConnected(t, c, 1)
	p.send("r1", "m", "{}")
	_, r := p.read()
	require.Equal(t, "r1", r.ID)
	stop()
	p.close()

	// Without the authority there is no session, and nothing was signed over to the gateway.
	c, stop = start(t, func(c *connector.Config) { c.Backoff = connector.Backoff{Initial: time.Hour, Max: time.Hour} }, d)
	eventually(t, "refused", func() bool { return c.Stats().Gateways[0].Failed == 1 })
	stop()
	require.Contains(t, c.Stats().Gateways[0].LastError, "certificate")
}

func TestSignatureTheGatewayDoesNotLikeIsNoSession(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	d.id = "gateway-1"
	bad := &lyingSigner{Signer: auth.NewKeySigner(testKey(t))}
	c, stop := start(t, func(c *connector.Config) {
		c.Signer = bad
		c.Backoff = connector.Backoff{Initial: time.Hour, Max: time.Hour}
	}, d)
	eventually(t, "counted as a failure, not as a lost session", func() bool { return c.Stats().Gateways[0].Failed == 1 })
	stop()
	require.Zero(t, c.Stats().Gateways[0].Sessions)
	require.Zero(t, c.Stats().Gateways[0].Lost)
}

// lyingSigner signs the second thing wrong.
type lyingSigner struct {
	auth.Signer
	calls int
}

func (s *lyingSigner) SignPersonal(msg []byte) ([]byte, error) {
	if s.calls++; s.calls > 1 {
		msg = append([]byte("x"), msg...)
	}
	return s.Signer.SignPersonal(msg)
}

func TestSignerThatFails(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	c, stop := start(t, func(c *connector.Config) {
		c.Signer = failingSigner{c.Signer}
		c.Backoff = connector.Backoff{Initial: time.Hour, Max: time.Hour}
	}, d)
	eventually(t, "counted", func() bool { return c.Stats().Gateways[0].Failed == 1 })
	stop()
	require.Contains(t, c.Stats().Gateways[0].LastError, "the key store is locked")
}

type failingSigner struct{ auth.Signer }

func (failingSigner) SignPersonal([]byte) ([]byte, error) {
	return nil, errors.New("the key store is locked")
}

func TestNewNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := connector.New(connector.Config{
		DONID: strings.Repeat("d", 65), ReadTimeout: -1, PushRPS: -1,
		Backoff: connector.Backoff{Initial: time.Minute, Max: time.Second},
		Gateways: []connector.Gateway{
			{URL: "https://a/node", ID: "x"}, {URL: "ws://user:secret@b/node", ID: "x"}, {URL: "ws://c/node"},
			{URL: "ws://d/node", ID: strings.Repeat("g", 129)}, {URL: "ws://c/node", ID: "y"},
		},
	})
	for _, want := range []string{"Signer", "DONID has 65", "ReadTimeout", "PushRPS", "Backoff", "Gateways[0]: URL", "Gateways[1]: URL", "Gateways[2]: ID has 0", "Gateways[3]: ID has 129", "Gateways[4]: its URL is there twice"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "secret")
	_, err = connector.New(connector.Config{DONID: "x", Signer: auth.NewKeySigner(testKey(t))})
	require.ErrorContains(t, err, "Gateways is empty")
}

func TestWaitConnected(t *testing.T) {
	t.Parallel()
	d := newDouble(t)
	d.silent.Store(true) // the handshake is through, but nothing says so
	c, _ := start(t, nil, d)
	p := d.accept()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	require.ErrorContains(t, c.WaitConnected(ctx, 1), "0 of 1 gateways are connected: enough")
	require.ErrorContains(t, c.WaitConnected(context.Background(), 2), "1 are configured")
	require.NoError(t, c.WaitConnected(ctx, 0))
	require.NoError(t, p.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)))
	waitConnected(t, c, 1)
	p.close()
	eventually(t, "the loss is noticed", func() bool { return c.Stats().Gateways[0].Lost == 1 })
}

// acceptKey is Sec-WebSocket-Accept (RFC 6455 §4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
