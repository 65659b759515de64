package connector

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"dongate/auth"
)

const (
	// maxHandshakeBytes bounds what a gateway may send until the handshake is through, TLS included: the library reads
	// the answer's header without a limit of its own.
	maxHandshakeBytes = 256 << 10
	// readBuffer is what one connection keeps for reading.
	readBuffer = 4 << 10
	// maxRefusalText bounds how much of a refusal's body the log repeats.
	maxRefusalText = 200
)

var (
	errChallenge     = errors.New("the gateway's challenge is not acceptable")
	errCompression   = errors.New("the gateway answered with WebSocket extensions that were not asked for")
	errHandshakeSize = fmt.Errorf("the gateway sent more than %d bytes before the handshake was through", maxHandshakeBytes)
)

// dial opens a connection and proves the node's identity with a header signed for the given second (protocol §4). On
// success the signed challenge is written; only what comes next tells whether the gateway accepted it.
func (l *link) dial(ctx context.Context, second uint32) (*websocket.Conn, error) {
	c := &l.c.config
	ctx, cancel := context.WithTimeout(ctx, c.HandshakeTimeout)
	defer cancel()
	header, err := auth.NewAuthHeader(c.Signer, second, c.DONID, l.gateway.ID)
	if err != nil {
		return nil, err
	}
	var under *handshakeConn
	dialer := websocket.Dialer{
		TLSClientConfig: c.TLS,
		ReadBufferSize:  readBuffer,
		WriteBufferSize: 1 << 10, // for the upgrade request only: frames are written by session
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			under = &handshakeConn{Conn: conn}
			under.left.Store(maxHandshakeBytes)
			// The library waits for the answer without looking at ctx.
			context.AfterFunc(ctx, under.abandon)
			return under, nil
		},
	}
	ws, resp, err := dialer.DialContext(ctx, l.gateway.URL, http.Header{"Authorization": {header}})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, dialError(resp, err)
	}
	if err := answerChallenge(ws, resp, c.Signer, second, l.gateway.ID, c.HandshakeTimeout); err != nil {
		_ = ws.Close()
		return nil, err
	}
	if !under.release() {
		_ = ws.Close()
		return nil, context.Cause(ctx)
	}
	return ws, nil
}

func dialError(resp *http.Response, err error) error {
	if resp == nil || !errors.Is(err, websocket.ErrBadHandshake) {
		return fmt.Errorf("connect: %w", err)
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusalText)) // the library has read the body into memory
	return &refusedError{status: resp.StatusCode, text: strings.ToValidUTF8(strings.TrimSpace(string(text)), "")}
}

// answerChallenge signs the gateway's challenge, if it is one for this node's attempt with this gateway: the node must
// not sign whatever a gateway likes.
func answerChallenge(ws *websocket.Conn, resp *http.Response, s auth.Signer, second uint32, gatewayID string, timeout time.Duration) error {
	if resp.Header.Get("Sec-Websocket-Extensions") != "" {
		return errCompression
	}
	values := resp.Header.Values("Challenge")
	if len(values) != 1 {
		return fmt.Errorf("%w: %d Challenge headers", errChallenge, len(values))
	}
	challenge, err := base64.StdEncoding.DecodeString(values[0])
	if err != nil {
		return fmt.Errorf("%w: it is not base64", errChallenge)
	}
	ts, id, err := auth.ParseChallenge(challenge)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errChallenge, err)
	case ts != second:
		return fmt.Errorf("%w: it is for another timestamp than the one sent", errChallenge)
	case id != gatewayID:
		return fmt.Errorf("%w: it names the gateway %q, not %q", errChallenge, id, gatewayID)
	}
	sig, err := s.SignPersonal(challenge)
	if err != nil {
		return fmt.Errorf("sign the challenge: %w", err)
	}
	conn := ws.NetConn()
	_ = conn.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(appendFrame(nil, websocket.BinaryMessage, sig)); err != nil {
		return fmt.Errorf("answer the challenge: %w", err)
	}
	return nil
}

// handshakeConn limits what is read until release, and can be abandoned until then.
type handshakeConn struct {
	net.Conn
	left  atomic.Int64 // bytes that may still be read; unlimited after release
	state atomic.Int32 // 0 pending, 1 released, 2 abandoned
}

func (c *handshakeConn) release() bool { return c.state.CompareAndSwap(0, 1) }

func (c *handshakeConn) abandon() {
	if c.state.CompareAndSwap(0, 2) {
		_ = c.Conn.Close()
	}
}

func (c *handshakeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.state.Load() != 1 && c.left.Add(-int64(n)) < 0 {
		return 0, errHandshakeSize
	}
	return n, err
}
