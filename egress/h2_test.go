package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2/hpack"
)

// Types and flags of HTTP/2 frames, RFC 9113 §6.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway, frameContinuation = 0, 1, 3, 4, 6, 7, 9

	endStream, endHeaders = 1, 4
)

// h2Origin is the server's side of one HTTP/2 connection, frame by frame.
type h2Origin struct {
	conn    net.Conn
	window  uint32 // the client's SETTINGS_INITIAL_WINDOW_SIZE
	headers bytes.Buffer
	encoder *hpack.Encoder
}

// h2Pipe is pipe over TLS and HTTP/2: serve gets the connection after settings were exchanged and the headers of the first request read. What the
// client sends after that is read and dropped, save for ends of streams.
func h2Pipe(t testing.TB, serve func(*h2Origin, uint32), change func(*Config)) *Client {
	a := newAuthority(t)
	config := a.serverConfig(t)
	config.NextProtos = []string{"h2"}
	return pipe(t, func(raw net.Conn) {
		conn := tls.Server(raw, config)
		preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if _, err := io.ReadFull(conn, preface); err != nil {
			return
		}
		o := &h2Origin{conn: conn}
		o.encoder = hpack.NewEncoder(&o.headers)
		if o.frame(frameSettings, 0, 0, nil) != nil {
			return
		}
		streams := make(chan uint32, 16)
		go func() {
			defer close(streams)
			for {
				var head [9]byte
				if _, err := io.ReadFull(conn, head[:]); err != nil {
					return
				}
				payload := make([]byte, binary.BigEndian.Uint32(head[:4])>>8)
				if _, err := io.ReadFull(conn, payload); err != nil {
					return
				}
				switch head[3] {
				case frameHeaders:
					streams <- binary.BigEndian.Uint32(head[5:])
				case frameSettings:
					for i := 0; i+6 <= len(payload); i += 6 {
						if binary.BigEndian.Uint16(payload[i:]) == 4 {
							o.window = binary.BigEndian.Uint32(payload[i+2:])
						}
					}
				}
			}
		}()
		for id := range streams {
			serve(o, id)
		}
		conn.Close()
	}, func(c *Config) {
		c.RootCAs = a.pool()
		c.MaxResponseBytes = 1000
		if change != nil {
			change(c)
		}
	})
}

func (o *h2Origin) frame(kind, flags byte, id uint32, payload []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), id)
	_, err := o.conn.Write(append(b, payload...))
	return err
}

// respond writes response headers; pairs are names and values.
func (o *h2Origin) respond(id uint32, end bool, pairs ...string) error {
	o.headers.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = o.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	flags := byte(endHeaders)
	if end {
		flags |= endStream
	}
	return o.frame(frameHeaders, flags, id, o.headers.Bytes())
}

// until repeats f until it fails.
func until(f func() error) {
	for f() == nil {
	}
}

// conformance: 7.answer.failed
func TestMisbehavingHTTP2Origins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		serve   func(*h2Origin, uint32)
		stage   Stage
		timeout bool
		text    string
	}{
		{"never answers", func(*h2Origin, uint32) {}, StageHeaders, true, "waiting for the response's headers"},
		{"closes", func(o *h2Origin, _ uint32) { o.conn.Close() }, StageHeaders, false, "example.com: "},
		{"resets the stream", func(o *h2Origin, id uint32) { _ = o.frame(frameReset, 0, id, []byte{0, 0, 0, 2}) }, StageHeaders, false, "not valid HTTP"},
		{"says good-bye", func(o *h2Origin, id uint32) {
			_ = o.frame(frameGoAway, 0, 0, []byte("\x00\x00\x00\x01\x00\x00\x00\x0bCANARY"))
			o.conn.Close()
		}, StageHeaders, false, "example.com: "},
		{"no status", func(o *h2Origin, id uint32) { _ = o.respond(id, true, "a", "b") }, StageHeaders, false, "not valid HTTP"},
		{"stalls after 14 kB of headers", func(o *h2Origin, id uint32) {
			_ = o.respond(id, false, ":status", "200", "a", strings.Repeat("b", 14000))
		}, StageBody, true, "reading the response's body"},
		{"headers over 64 kB by references", func(o *h2Origin, id uint32) {
			pairs := []string{":status", "200"}
			for range 100 {
				pairs = append(pairs, "a", strings.Repeat("b", 1000)) // one byte each after the first
			}
			_ = o.respond(id, false, pairs...)
		}, StageHeaders, false, "headers are over"},
		{"endless continuations", func(o *h2Origin, id uint32) {
			o.headers.Reset()
			_ = o.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			_ = o.frame(frameHeaders, 0, id, o.headers.Bytes())
			o.headers.Reset()
			_ = o.encoder.WriteField(hpack.HeaderField{Name: "a", Value: strings.Repeat("b", 1000), Sensitive: true})
			until(func() error { return o.frame(frameContinuation, 0, id, o.headers.Bytes()) })
		}, StageHeaders, false, "example.com: "},
		{"1xx storm", func(o *h2Origin, id uint32) {
			until(func() error { return o.respond(id, false, ":status", "103", "link", strings.Repeat("b", 1000)) })
		}, StageHeaders, false, "headers are over"},
		{"pings for ever", func(o *h2Origin, _ uint32) {
			until(func() error { return o.frame(framePing, 0, 0, make([]byte, 8)) })
		}, StageHeaders, false, "example.com: "},
		{"settings for ever", func(o *h2Origin, _ uint32) {
			until(func() error { return o.frame(frameSettings, 0, 0, []byte{0, 4, 0, 0, 0, 1}) })
		}, StageHeaders, false, "example.com: "},
		{"unknown frames for ever", func(o *h2Origin, _ uint32) {
			until(func() error { return o.frame(0xee, 0, 0, make([]byte, 1000)) })
		}, StageHeaders, false, "example.com: "},
		{"endless body", func(o *h2Origin, id uint32) {
			_ = o.respond(id, false, ":status", "200")
			until(func() error { return o.frame(frameData, 0, id, make([]byte, 100)) })
		}, StageBody, false, "over 1000 bytes"},
		{"body stalls", func(o *h2Origin, id uint32) {
			_ = o.respond(id, false, ":status", "200", "content-length", "100")
			_ = o.frame(frameData, 0, id, make([]byte, 50))
		}, StageBody, true, "reading the response's body"},
		{"body shorter than said", func(o *h2Origin, id uint32) {
			_ = o.respond(id, false, ":status", "200", "content-length", "100")
			_ = o.frame(frameData, endStream, id, make([]byte, 50))
		}, StageBody, false, "closed by the endpoint"},
		{"data before headers", func(o *h2Origin, id uint32) { _ = o.frame(frameData, endStream, id, nil) }, StageHeaders, false, "not valid HTTP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := h2Pipe(t, c.serve, nil)
				start := time.Now()
				_, err := fetch(client, &Request{URL: "https://example.com/", Timeout: 10 * time.Second})
				external := requireExternal(t, c.stage, err)
				require.Contains(t, external.Msg, c.text)
				require.NotContains(t, external.Msg, "CANARY")
				require.Equal(t, c.timeout, external.Timeout, external.Msg)
				require.LessOrEqual(t, time.Since(start), 10*time.Second)
				client.Close()
				synctest.Wait()
				time.Sleep(time.Minute) // pings that wait for an answer
				require.Zero(t, client.Stats().Connections)
			})
		})
	}
}

// An origin cannot keep us busy on a connection that nobody uses any more.
func TestIdleFloodEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := h2Pipe(t, func(o *h2Origin, id uint32) {
			_ = o.respond(id, true, ":status", "204")
			until(func() error { return o.frame(framePing, 0, 0, make([]byte, 8)) })
		}, nil)
		r, err := fetch(client, &Request{URL: "https://example.com/"})
		require.NoError(t, err)
		require.Equal(t, 204, r.StatusCode)
		synctest.Wait() // without any time passing
		require.Zero(t, client.Stats().Connections)
	})
}

// What an origin may send ahead of our reading is kept in memory, so it is little.
func TestHTTP2Window(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var window uint32
		client := h2Pipe(t, func(o *h2Origin, id uint32) {
			window = o.window
			_ = o.respond(id, true, ":status", "200")
		}, nil)
		_, err := fetch(client, &Request{URL: "https://example.com/"})
		require.NoError(t, err)
		require.EqualValues(t, h2StreamBuffer, window)
	})
}

// An idle HTTP/2 connection is kept, used again, and closed after a while.
func TestHTTP2ConnectionIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		client := h2Pipe(t, func(o *h2Origin, id uint32) { _ = o.respond(id, true, ":status", "200") }, func(c *Config) {
			dial := c.dial
			c.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials++
				return dial(ctx, network, address)
			}
		})
		for range 3 {
			_, err := fetch(client, &Request{URL: "https://example.com/"})
			require.NoError(t, err)
		}
		require.Equal(t, 1, dials)
		require.EqualValues(t, 1, client.Stats().Connections)
		time.Sleep(idleTimeout + time.Second)
		synctest.Wait()
		require.Zero(t, client.Stats().Connections)
	})
}
