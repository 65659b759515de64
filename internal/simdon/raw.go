package simdon

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"dongate/auth"
)

// Upgrade opens a connection with the given Authorization header, as auth.NewAuthHeader makes it or not, and returns it
// before the challenge is answered: what comes next is up to the caller. The response is there also with an error, when
// the gateway answered at all; its status says why it refused.
func Upgrade(ctx context.Context, url, header string) (conn *websocket.Conn, challenge []byte, resp *http.Response, err error) {
	h := http.Header{}
	if header != "" {
		h.Set("Authorization", header)
	}
	conn, resp, err = new(websocket.Dialer).DialContext(ctx, url, h)
	if err != nil {
		return nil, nil, resp, err
	}
	challenge, err = base64.StdEncoding.DecodeString(resp.Header.Get("Challenge"))
	if err != nil {
		_ = conn.Close()
		return nil, nil, resp, fmt.Errorf("challenge: %w", err)
	}
	return conn, challenge, resp, nil
}

// Answer writes the signed challenge.
func Answer(conn *websocket.Conn, s auth.Signer, challenge []byte) error {
	sig, err := s.SignPersonal(challenge)
	if err != nil {
		return err
	}
	return conn.WriteMessage(websocket.BinaryMessage, sig)
}

// DialRaw performs the whole handshake, for this second, and hands over the bare connection: nobody reads it, answers its
// pings or limits what is written to it. A second dial of one node within a second is refused by the gateway; DialRawAt
// takes another one.
func DialRaw(ctx context.Context, url string, s auth.Signer, shardID, gatewayID string) (*websocket.Conn, error) {
	return DialRawAt(ctx, url, s, shardID, gatewayID, uint32(time.Now().Unix()))
}

// DialRawAt is DialRaw with a header signed for the given second.
func DialRawAt(ctx context.Context, url string, s auth.Signer, shardID, gatewayID string, second uint32) (*websocket.Conn, error) {
	header, err := auth.NewAuthHeader(s, second, shardID, gatewayID)
	if err != nil {
		return nil, err
	}
	conn, challenge, _, err := Upgrade(ctx, url, header)
	if err != nil {
		return nil, err
	}
	if err := Answer(conn, s, challenge); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
