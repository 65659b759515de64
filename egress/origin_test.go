package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// pipe is a client whose connections are pipes to serve, for use in a synctest bubble: time is the bubble's, and a goroutine left behind fails the test.
func pipe(t testing.TB, serve func(net.Conn), change func(*Config)) *Client {
	return newClient(t, func(c *Config) {
		c.dial = func(_ context.Context, network, address string) (net.Conn, error) {
			if network != "tcp" || !strings.HasPrefix(address, "example.com:") {
				return nil, errors.New("asked for another host: " + address) // a proxy?
			}
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				serve(theirs)
			}()
			return ours, nil
		}
		if change != nil {
			change(c)
		}
	})
}

// readRequest reads a whole request.
func readRequest(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if err != nil {
		return nil
	}
	return req
}

// script is an origin that reads the request, writes text and, unless it is said to stall, closes.
func script(text string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, text)
	}
}

// stalling reads the request, writes text and then nothing.
func stalling(text string) func(net.Conn) {
	return func(c net.Conn) {
		script(text)(c)
		hang(c)
	}
}

// hang waits until the client is gone.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// endless writes head and then text for ever.
func endless(head, text string) func(net.Conn) {
	return func(c net.Conn) {
		script(head)(c)
		for {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

// trickle writes a byte of text per second.
func trickle(head, text string) func(net.Conn) {
	return func(c net.Conn) {
		script(head)(c)
		for {
			time.Sleep(time.Second)
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
	}
}

func zip(data []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.String()
}

const (
	ok      = "HTTP/1.1 200 OK\r\n"
	gzipped = ok + "Content-Encoding: gzip\r\n\r\n"
	chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	kb      = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// conformance: 7.answer.failed
// conformance: 7.response.headers
// conformance: 7.response.decompressed
func TestMisbehavingOrigins(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	bomb := zip(make([]byte, 100<<20))
	for _, c := range []struct {
		name    string
		serve   func(net.Conn)
		stage   Stage
		timeout bool
		text    string
	}{
		{"closes at once", func(net.Conn) {}, StageHeaders, false, "closed by the endpoint"},
		{"closes after the request", script(""), StageHeaders, false, "closed by the endpoint"},
		{"closes in the status line", script("HTTP/1.1 20"), StageHeaders, false, "not valid HTTP"},
		{"closes in the headers", script(ok + "A: b\r\n"), StageHeaders, false, "closed by the endpoint"},
		{"closes in the body", script(ok + "Content-Length: 100\r\n\r\nabc"), StageBody, false, "closed by the endpoint"},
		{"closes in a chunk", script(chunked + "64\r\nabc"), StageBody, false, "closed by the endpoint"},
		{"closes between chunks", script(chunked + "3\r\nabc\r\n"), StageBody, false, "closed by the endpoint"},

		{"other protocol", script("SSH-2.0-OpenSSH_9.9\r\n"), StageHeaders, false, "not valid HTTP"},
		{"status line without status", script("HTTP/1.1\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"status line with a word", script("HTTP/1.1 abc OK\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"status of two digits", script("HTTP/1.1 20 OK\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"status of four digits", script("HTTP/1.1 2000 OK\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"negative status", script("HTTP/1.1 -20 OK\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"status 0", script("HTTP/1.1 000 OK\r\n\r\n"), StageHeaders, false, "status 0"},
		{"odd version", script("HTTP/x.y 200 OK\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"zeros", script(strings.Repeat("\x00", 5000) + "\r\n"), StageHeaders, false, "not valid HTTP"},
		{"endless status line", endless("", kb), StageHeaders, false, "headers are over"},
		{"header without colon", script(ok + "A\r\n\r\n"), StageHeaders, false, "not valid HTTP"},
		{"two lengths", script(ok + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), StageHeaders, false, "not valid HTTP"},
		{"negative length", script(ok + "Content-Length: -3\r\n\r\nabcd"), StageHeaders, false, "not valid HTTP"},
		{"odd transfer encoding", script(ok + "Transfer-Encoding: gzip, chunked\r\n\r\n"), StageHeaders, false, "not valid HTTP"},

		{"10 MB in one header", script(ok + "A: " + strings.Repeat("b", 10<<20) + "\r\n\r\n"), StageHeaders, false, "headers are over 65536"},
		{"10 MB in many headers", script(ok + strings.Repeat("A: b\r\n", 10<<20/6) + "\r\n"), StageHeaders, false, "headers are over 65536"},
		{"64 kB and one more", script(ok + "A: " + strings.Repeat("b", MaxResponseHeaderBytes) + "\r\n\r\n"), StageHeaders, false, "headers are over 65536"},
		{"endless headers", endless(ok, "A: "+kb+"\r\n"), StageHeaders, false, "headers are over 65536"},
		{"10 MB of trailers", script(chunked + "3\r\nabc\r\n0\r\n" + strings.Repeat("A: b\r\n", 10<<20/6) + "\r\n"), StageBody, false, "not valid HTTP"},
		{"1xx storm", endless("", "HTTP/1.1 103 Early Hints\r\nLink: "+kb+"\r\n\r\n"), StageHeaders, false, "headers are over 65536"},
		{"100 storm", endless("", "HTTP/1.1 100 Continue\r\n\r\n"), StageHeaders, false, "headers are over 65536"},
		{"101", script("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + big), StageHeaders, false, "status 101"},
		{"101 and a stall", stalling("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), StageHeaders, false, "status 101"},

		{"endless body", endless(ok+"\r\n", kb), StageBody, false, "over 1000 bytes"},
		{"endless chunks", endless(chunked, "40\r\n"+kb+"\r\n"), StageBody, false, "over 1000 bytes"},
		{"length over the limit", stalling(ok + "Content-Length: 1001\r\n\r\n"), StageBody, false, "over 1000 bytes"},
		{"length of a petabyte", stalling(ok + "Content-Length: 1125899906842624\r\n\r\n"), StageBody, false, "over 1000 bytes"},
		{"chunk of words", script(chunked + "zz\r\nabc\r\n0\r\n\r\n"), StageBody, false, "not valid HTTP"},
		{"chunk too long", script(chunked + "ffffffffffffffffff\r\nabc\r\n"), StageBody, false, "not valid HTTP"},
		{"chunk longer than said", script(chunked + "3\r\nabcdef\r\n0\r\n\r\n"), StageBody, false, "not valid HTTP"},
		{"chunk shorter than said", script(chunked + "9\r\nabc\r\n0\r\n\r\n"), StageBody, false, ""},
		{"negative chunk", script(chunked + "-3\r\nabc\r\n0\r\n\r\n"), StageBody, false, "not valid HTTP"},
		{"endless chunk size", endless(chunked, "0000000000000000"), StageBody, false, "not valid HTTP"},
		{"endless chunk extension", endless(chunked, "3;a="+big+"\r\nabc\r\n"), StageBody, false, "not valid HTTP"},
		{"many extensions", endless(chunked, "1;a="+kb+kb+kb+"\r\nx\r\n"), StageBody, false, "not valid HTTP"},

		{"gzip that is none", script(gzipped + "plain text"), StageBody, false, "not the gzip"},
		{"truncated gzip", script(gzipped + zip([]byte("hello, hello, hello"))[:20]), StageBody, false, "not the gzip"},
		{"gzip cut in its header", script(gzipped + zip(nil)[:5]), StageBody, false, "not the gzip"},
		{"gzip with a wrong checksum", script(gzipped + strings.Replace(zip([]byte("hello")), "\x86\xa6\x10\x36", "\x86\xa6\x10\x37", 1)), StageBody, false, "not the gzip"},
		{"garbage behind the gzip", script(gzipped + zip([]byte("hello")) + "garbage"), StageBody, false, "not the gzip"},
		{"gzip and length, closed early", script(ok + "Content-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n" + zip([]byte("hello"))), StageBody, false, "closed by the endpoint"},
		{"gzip bomb", script(gzipped + bomb), StageBody, false, "over 1000 bytes"},
		{"endless empty gzips", endless(gzipped, strings.Repeat(zip(nil), 100)), StageBody, false, "far more bytes"},
		{"endless empty blocks in a gzip", endless(gzipped+zip(nil)[:10], strings.Repeat("\x00\x00\x00\xff\xff", 1000)), StageBody, false, "far more bytes"},
		{"10 MB of a name in a gzip", endless(gzipped+"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff", kb), StageBody, false, "not the gzip"},

		{"never reads the request", func(net.Conn) { time.Sleep(time.Hour) }, StageHeaders, true, "waiting for the response's headers"},
		{"reads half of the request", func(c net.Conn) { _, _ = c.Read(make([]byte, 10)); time.Sleep(time.Hour) }, StageHeaders, true, "waiting for the response's headers"},
		{"never answers", hang, StageHeaders, true, "waiting for the response's headers"},
		{"stalls in the status line", stalling("HTTP/1.1 2"), StageHeaders, true, "waiting for the response's headers"},
		{"stalls in the headers", stalling(ok + "A: "), StageHeaders, true, "waiting for the response's headers"},
		{"stalls after a 100", stalling("HTTP/1.1 100 Continue\r\n\r\n"), StageHeaders, true, "waiting for the response's headers"},
		{"trickles headers", trickle(ok, "A: b\r\n"), StageHeaders, true, "waiting for the response's headers"},
		{"trickles 1xx", trickle("", "HTTP/1.1 103 x\r\n\r\n"), StageHeaders, true, "waiting for the response's headers"},
		{"stalls before the body", stalling(ok + "Content-Length: 9\r\n\r\n"), StageBody, true, "reading the response's body"},
		{"stalls in the body", stalling(ok + "Content-Length: 9\r\n\r\nabc"), StageBody, true, "reading the response's body"},
		{"stalls in a chunk", stalling(chunked + "9\r\nabc"), StageBody, true, "reading the response's body"},
		{"stalls in a gzip", stalling(gzipped + zip([]byte("hello"))[:15]), StageBody, true, "reading the response's body"},
		{"trickles the body", trickle(ok+"\r\n", "x"), StageBody, true, "reading the response's body"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := pipe(t, c.serve, func(c *Config) { c.MaxResponseBytes = 1000 })
				start := time.Now()
				_, err := fetch(client, &Request{Method: "POST", URL: "http://example.com/", Body: []byte(big), Timeout: 20 * time.Second})
				external := requireExternal(t, c.stage, err)
				require.Contains(t, external.Msg, c.text)
				require.Equal(t, c.timeout, external.Timeout, external.Msg)
				if c.timeout {
					require.Equal(t, 20*time.Second, time.Since(start))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Contains(t, external.Msg, "no complete response within 20s")
				}
				client.Close()
				synctest.Wait()
				require.Zero(t, client.Stats().Connections, "the connection is not kept")
				time.Sleep(2 * time.Hour) // origins that sleep
			})
		})
	}
}

// FuzzResponse: whatever an origin sends is a response within its limits or an error, and the connection is let go.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		ok + "Content-Length: 3\r\n\r\nabc", chunked + "3\r\nabc\r\n0\r\n\r\n", gzipped + zip([]byte("hello")), "HTTP/1.1 100 Continue\r\n\r\n" + ok + "\r\n",
		"HTTP/1.0 204 \r\n\r\n", ok + "X: caf\xe9\r\n\r\n", "HTTP/1.1 101 x\r\n\r\n", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			client := pipe(t, func(c net.Conn) {
				readRequest(bufio.NewReader(c))
				_, _ = c.Write(data)
			}, func(c *Config) { c.MaxResponseBytes = 100 })
			r, err := fetch(client, &Request{URL: "http://example.com/", Timeout: time.Second})
			if err != nil {
				requireAnyExternal(t, err)
				require.LessOrEqual(t, len(err.Error()), MaxErrorBytes)
			} else {
				require.LessOrEqual(t, len(r.Body), 100)
				require.GreaterOrEqual(t, r.StatusCode, 200)
				for name, values := range r.Header {
					require.True(t, utf8.ValidString(name+strings.Join(values, "")))
				}
			}
			client.Close()
			synctest.Wait()
			require.Zero(t, client.Stats().Connections)
		})
	})
}
