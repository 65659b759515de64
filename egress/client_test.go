package egress

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// conformance: 7.user-agent
func TestDo(t *testing.T) {
	t.Parallel()
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header()["X-Echo"] = []string{r.Method + " " + r.RequestURI, r.UserAgent(), r.Header.Get("X-A")}
		w.Header().Set("X-Length", strconv.FormatInt(r.ContentLength, 10))
		w.Header().Set("X-Latin", "caf\xe9")
		w.WriteHeader(201)
		_, _ = w.Write(body)
	}, func(c *Config) { c.Version = "v1.2.3" })
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		for _, body := range []string{"", "x", strings.Repeat("y", 27033)} {
			start := time.Now()
			r, err := fetch(client, &Request{Method: method, URL: url + "/a?b=c d", Header: map[string][]string{"x-a": {"1", "2"}}, Body: []byte(body)})
			require.NoError(t, err)
			require.Equal(t, 201, r.StatusCode)
			require.Equal(t, body, string(r.Body))
			require.NotNil(t, r.Body)
			require.Equal(t, []string{method + " /a?b=c%20d", "dongate/v1.2.3", "1"}, r.Header["X-Echo"])
			require.Equal(t, []string{strconv.Itoa(len(body))}, r.Header["X-Length"])
			require.Equal(t, []string{"caf\uFFFD"}, r.Header["X-Latin"])
			require.Positive(t, r.Latency)
			require.LessOrEqual(t, r.Latency, time.Since(start))
		}
	}
	require.EqualValues(t, 1, client.Stats().Connections, "one connection served them all")
}

// Every status is an answer.
//
// conformance: 7.answer.status
func TestStatuses(t *testing.T) {
	t.Parallel()
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}, nil)
	for _, status := range []int{200, 204, 205, 206, 300, 301, 304, 307, 400, 401, 404, 407, 408, 418, 421, 425, 429, 451, 500, 502, 503, 504, 511, 599, 999} {
		r, err := fetch(client, &Request{URL: url + "/" + strconv.Itoa(status)})
		require.NoError(t, err, status)
		require.Equal(t, status, r.StatusCode)
	}
}

// conformance: 7.response.decompressed
func TestCompression(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("hello ", 1000)
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked", r.Header.Get("Accept-Encoding"))
		switch r.URL.Path {
		case "/plain":
			_, _ = io.WriteString(w, text)
			return
		case "/empty":
			w.Header().Set("Content-Encoding", "gzip")
			return
		case "/twice":
			w.Header()["Content-Encoding"] = []string{"gzip", "gzip"}
		default:
			w.Header().Set("Content-Encoding", "GZIP")
		}
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, text[:100])
		_ = z.Close()
		z.Reset(w) // a second member
		_, _ = io.WriteString(z, text[100:])
		_ = z.Close()
	}, func(c *Config) { c.MaxResponseBytes = int64(len(text)) })
	for range 3 { // readers are used again
		r, err := fetch(client, &Request{URL: url + "/gzip"})
		require.NoError(t, err)
		require.Equal(t, text, string(r.Body))
		require.Equal(t, []string{"gzip"}, r.Header["X-Asked"])
		require.NotContains(t, r.Header, "Content-Encoding")
		require.NotContains(t, r.Header, "Content-Length")
	}
	_, err := fetch(client, &Request{URL: url + "/gzip", MaxBytes: int64(len(text)) - 1})
	require.Contains(t, requireExternal(t, StageBody, err).Msg, "over 5999 bytes")

	r, err := fetch(client, &Request{URL: url + "/plain"})
	require.NoError(t, err)
	require.Equal(t, text, string(r.Body))
	r, err = fetch(client, &Request{URL: url + "/empty"})
	require.NoError(t, err)
	require.Empty(t, r.Body)

	// What callers set is theirs: they get the bytes as they are.
	for _, h := range []map[string][]string{{"Accept-Encoding": {"gzip"}}, {"accept-encoding": {"br"}}, {"Accept-Encoding": {""}}, {"Range": {"bytes=0-"}}} {
		r, err = fetch(client, &Request{URL: url + "/gzip", Header: h})
		require.NoError(t, err)
		require.Equal(t, "\x1f\x8b", string(r.Body[:2]), h)
		require.Equal(t, []string{"GZIP"}, r.Header["Content-Encoding"])
		for _, asked := range h["Accept-Encoding"] {
			require.Equal(t, []string{asked}, r.Header["X-Asked"])
		}
	}
	r, err = fetch(client, &Request{URL: url + "/twice"})
	require.NoError(t, err)
	require.Equal(t, []string{"gzip", "gzip"}, r.Header["Content-Encoding"], "an encoding we did not ask for is the caller's")
}

// conformance: 7.request.max-bytes
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
		_, _ = w.Write(make([]byte, n))
	}, func(c *Config) { c.MaxResponseBytes, c.AllowedMethods = 100_000, []string{"GET", "HEAD"} })
	for _, path := range []string{"/length", "/chunked"} {
		for _, limit := range []int64{1, 2, 511, 512, 513, 4096, 65535, 65536, 65537, 100_000} {
			for _, n := range []int64{limit - 1, limit} {
				r, err := fetch(client, &Request{URL: fmt.Sprintf("%s%s?n=%d", url, path, n), MaxBytes: limit})
				require.NoError(t, err, "%d of %d", n, limit)
				require.Len(t, r.Body, int(n))
			}
			_, err := fetch(client, &Request{URL: fmt.Sprintf("%s%s?n=%d", url, path, limit+1), MaxBytes: limit})
			require.Contains(t, requireExternal(t, StageBody, err).Msg, fmt.Sprintf("over %d bytes", limit))
		}
	}
	r, err := fetch(client, &Request{Method: "HEAD", URL: url + "/length?n=1000", MaxBytes: 1})
	require.NoError(t, err)
	require.Empty(t, r.Body)
	require.Equal(t, []string{"1000"}, r.Header["Content-Length"])
}

// conformance: 7.response.headers
func TestResponseHeaderLimit(t *testing.T) {
	t.Parallel()
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Header().Set("A", strings.Repeat("b", n))
	}, nil)
	r, err := fetch(client, &Request{URL: url + "?n=65000"})
	require.NoError(t, err)
	require.Len(t, r.Header["A"][0], 65000)
	_, err = fetch(client, &Request{URL: url + "?n=65537"})
	requireExternal(t, StageHeaders, err)
}

func TestStallsBeforeTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url string
		dial      dialFunc
		stage     Stage
		text      string
	}{
		{"connect", "http://example.com/", func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, StageDNS, "looking up the host"},
		{"TLS, silent", "https://example.com/", func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go hang(theirs)
			return ours, nil
		}, StageTLS, "in the TLS handshake"},
		{"TLS, never reads", "https://example.com/", func(context.Context, string, string) (net.Conn, error) {
			ours, _ := net.Pipe()
			return ours, nil
		}, StageTLS, "in the TLS handshake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, timeout := range []time.Duration{time.Millisecond, 3 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					client := newClient(t, func(config *Config) { config.dial = c.dial })
					start := time.Now()
					_, err := fetch(client, &Request{URL: c.url, Timeout: timeout})
					external := requireExternal(t, c.stage, err)
					require.True(t, external.Timeout)
					require.Contains(t, external.Msg, c.text)
					require.Equal(t, timeout, time.Since(start))
					synctest.Wait()
					require.Zero(t, client.Stats().Connections, "a dial ends with its request")

					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(timeout/2, func() { cancel(errors.New("nobody waits")) })
					p, err := client.Prepare(&Request{URL: c.url, Timeout: timeout})
					require.NoError(t, err)
					_, err = client.Do(ctx, p)
					external = requireAnyExternal(t, err)
					require.ErrorIs(t, err, context.Canceled)
					require.False(t, external.Timeout)
					synctest.Wait()
					require.Zero(t, client.Stats().Connections)
				})
			}
		})
	}
	// With time left, a handshake is given up by itself.
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, func(c *Config) {
			c.dial = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go hang(theirs)
				return ours, nil
			}
		})
		start := time.Now()
		_, err := fetch(client, &Request{URL: "https://example.com/", Timeout: MaxTimeout})
		require.True(t, requireExternal(t, StageTLS, err).Timeout)
		require.Equal(t, handshakeTimeout, time.Since(start))
	})
}

func TestConnectRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	client, _ := newOrigin(t, nil, func(c *Config) { c.AllowedPorts = []int{port} })
	_, err = fetch(client, &Request{URL: fmt.Sprintf("http://127.0.0.1:%d/", port)})
	require.Equal(t, "127.0.0.1: connection refused", requireExternal(t, StageConnect, err).Msg)
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("CANARY") }

type panickingBody struct{}

func (panickingBody) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(panickingReader{})}, nil
}

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("CANARY") }

// conformance: 7.panic
func TestPanicsEndOneRequest(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"transport": func(c *Config) { c.transport = panicking{} },
		"body":      func(c *Config) { c.transport = panickingBody{} },
		"dial":      func(c *Config) { c.dial = func(context.Context, string, string) (net.Conn, error) { panic("CANARY") } },
	} {
		for _, scheme := range []string{"http", "https"} {
			var stack atomic.Value
			client := newClient(t, func(c *Config) {
				change(c)
				c.OnPanic = func(b []byte) { stack.Store(string(b)) }
			})
			for range 3 {
				_, err := fetch(client, &Request{URL: scheme + "://example.com/"})
				require.NotContains(t, requireExternal(t, StagePanic, err).Msg, "CANARY", name)
				require.Contains(t, stack.Load(), "egress")
				require.NotContains(t, stack.Load(), "CANARY")
			}
			require.Zero(t, client.Stats().Connections)
		}
	}
}

// Idle connections are bounded per host and in total, open ones too, and an origin that keeps all its connections busy does not hurt another.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const together = 40
		release, met := make(chan struct{}), make(chan struct{})
		var arrived atomic.Int64
		client := newClient(t, func(c *Config) {
			c.MaxConns = 50
			c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					r := bufio.NewReader(theirs)
					for readRequest(r) != nil {
						switch {
						case strings.HasPrefix(address, "slow"):
							<-release
						case strings.HasPrefix(address, "meet"): // all at once, so that each has its connection
							if arrived.Add(1) == together {
								close(met)
							}
							<-met
						}
						_, _ = io.WriteString(theirs, ok+"Content-Length: 0\r\n\r\n")
					}
				}()
				return ours, nil
			}
		})
		all := func(n int, host func(i int) string, timeout time.Duration) (failed int) {
			var wg sync.WaitGroup
			var errs atomic.Int64
			for i := range n {
				wg.Go(func() {
					if _, err := fetch(client, &Request{URL: "http://" + host(i) + "/", Timeout: timeout}); err != nil {
						requireAnyExternal(t, err)
						errs.Add(1)
					}
				})
			}
			wg.Wait()
			return int(errs.Load())
		}
		require.Zero(t, all(40, func(int) string { return "slow.test" }, time.Second)-40)
		synctest.Wait()
		require.Zero(t, client.Stats().Connections)
		require.Zero(t, all(together, func(int) string { return "meet.test" }, time.Second))
		synctest.Wait()
		require.EqualValues(t, idlePerHost, client.Stats().Connections)

		// Idle connections give way, busy ones do not.
		for i := range 49 {
			require.Zero(t, all(1, func(int) string { return fmt.Sprintf("host%d.test", i) }, time.Second))
			synctest.Wait()
			require.LessOrEqual(t, client.Stats().Connections, int64(50))
		}
		client.Close()
		for range 50 {
			go func() { _, _ = fetch(client, &Request{URL: "http://slow.test/", Timeout: 30 * time.Second}) }()
		}
		synctest.Wait()
		require.EqualValues(t, 50, client.Stats().Connections)
		_, err := fetch(client, &Request{URL: "http://fast.test/"})
		require.Contains(t, requireExternal(t, StageConnect, err).Msg, "too many open connections")
		close(release)
		synctest.Wait()
		_, err = fetch(client, &Request{URL: "http://fast.test/"})
		require.NoError(t, err)
		require.LessOrEqual(t, client.Stats().Connections, int64(50))
		client.Close()
		synctest.Wait()
		require.Zero(t, client.Stats().Connections)
	})
}

// A shared call goes on while its context does, whatever its own time limit.
func TestSharedCallIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := pipe(t, func(c net.Conn) {
			readRequest(bufio.NewReader(c))
			time.Sleep(5 * time.Second)
			_, _ = io.WriteString(c, ok+"Content-Length: 4\r\n\r\nlate")
		}, nil)
		p, err := client.Prepare(&Request{URL: "http://example.com/", Timeout: time.Second})
		require.NoError(t, err)
		_, err = client.Do(t.Context(), p)
		require.True(t, requireExternal(t, StageHeaders, err).Timeout)
		for _, within := range []time.Duration{4 * time.Second, 6 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			start := time.Now()
			r, err := client.DoShared(ctx, p, nil)
			if within > 5*time.Second {
				require.NoError(t, err)
				require.Equal(t, "late", string(r.Body))
				continue
			}
			require.True(t, requireExternal(t, StageHeaders, err).Timeout)
			require.Equal(t, within, time.Since(start))
		}
		client.Close()
		synctest.Wait()
	})
}

// Memory that was given back holds another body, never two at a time.
func TestFreedBodies(t *testing.T) {
	t.Parallel()
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(r.URL.RawQuery, 3000))
	}, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				query := fmt.Sprint(i, "-", j)
				r, err := fetch(client, &Request{URL: url + "?" + query})
				if err != nil || string(r.Body) != strings.Repeat(query, 3000) {
					t.Errorf("%s: %v", query, err)
					return
				}
				if j%3 > 0 {
					r.Free()
				}
			}
		})
	}
	wg.Wait()
	r, err := fetch(client, &Request{URL: url + "?x"})
	require.NoError(t, err)
	r.Free()
	r.Free() // once is enough
	require.Nil(t, r.Body)
}

// closing is a connection that tells when it begins to close.
type closing struct {
	net.Conn
	begins func()
}

func (c *closing) Close() error {
	c.begins()
	return c.Conn.Close()
}

// At the bound, dials that come while another's idle connections are being closed for one of them all find a place there.
func TestDialsAtOneInstantShareTheIdleConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle, more = 10, 9
		outcomes := make(chan error, more)
		var client *Client
		var once sync.Once
		met, arrived := make(chan struct{}), atomic.Int64{}
		ask := func(url string) error {
			_, err := fetch(client, &Request{URL: url, Timeout: time.Second})
			return err
		}
		client = newClient(t, func(c *Config) {
			c.MaxConns = idle
			c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					r := bufio.NewReader(theirs)
					for readRequest(r) != nil {
						if strings.HasPrefix(address, "first") {
							if arrived.Add(1) == idle {
								close(met)
							}
							<-met
						}
						_, _ = io.WriteString(theirs, ok+"Content-Length: 0\r\n\r\n")
					}
				}()
				return &closing{ours, func() {
					once.Do(func() { // none of the others is closed yet
						for i := range more {
							go func() { outcomes <- ask(fmt.Sprintf("http://other%d.test/", i)) }()
						}
						synctest.Wait()
					})
				}}, nil
			}
		})
		var wg sync.WaitGroup
		for range idle {
			wg.Go(func() { require.NoError(t, ask("http://first.test/")) })
		}
		wg.Wait()
		synctest.Wait()
		require.EqualValues(t, idle, client.Stats().Connections)
		require.NoError(t, ask("http://last.test/"))
		for range more {
			require.NoError(t, <-outcomes)
		}
		require.LessOrEqual(t, client.Stats().Connections, int64(idle))

		// Whoever waits for another to have made room waits no longer than its own time.
		client.makingRoom <- struct{}{}
		client.open.Add(idle)
		start := time.Now()
		external := requireExternal(t, StageConnect, ask("http://late.test/"))
		require.True(t, external.Timeout, external.Msg)
		require.Equal(t, time.Second, time.Since(start))
		<-client.makingRoom
		client.open.Add(-idle)
		client.Close()
		synctest.Wait()
		require.Zero(t, client.Stats().Connections)
	})
}

func TestIdleConnectionsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := pipe(t, func(c net.Conn) {
			r := bufio.NewReader(c)
			for readRequest(r) != nil {
				_, _ = io.WriteString(c, ok+"Content-Length: 0\r\n\r\n")
			}
		}, nil)
		_, err := fetch(client, &Request{URL: "http://example.com/"})
		require.NoError(t, err)
		time.Sleep(idleTimeout - time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, client.Stats().Connections)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, client.Stats().Connections)
	})
	require.False(t, newClient(t, nil).pool.DisableKeepAlives)
	require.True(t, newClient(t, nil).newTransport(&tls.Certificate{}).DisableKeepAlives)
}

// Many requests of one Prepared at the same time, over both versions of HTTP.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}
	plain, plainURL := newOrigin(t, echo, nil)
	secure, secureURL := newTLSOrigin(t, newAuthority(t), echo, nil, nil)
	for client, url := range map[*Client]string{plain: plainURL, secure: secureURL} {
		p, err := client.Prepare(&Request{Method: "POST", URL: url, Body: []byte(strings.Repeat("x", 20_000)), Timeout: MaxTimeout})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 5 {
					r, err := client.Do(context.Background(), p)
					if err != nil || len(r.Body) != 20_000 {
						t.Errorf("%v", err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// The environment of this test names a proxy for every scheme, and hosts are none that are exempt.
//
// conformance: 7.proxy
func TestEnvironmentProxiesAreIgnored(t *testing.T) {
	t.Parallel()
	for scheme, want := range map[string]string{"http": "example.com:80", "https": "example.com:443"} {
		var dialled atomic.Value
		client := newClient(t, func(c *Config) {
			c.dial = func(_ context.Context, _, address string) (net.Conn, error) {
				dialled.Store(address)
				return nil, errors.New("seen")
			}
		})
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "example.com"}})
		require.NoError(t, err)
		require.NotNil(t, proxy, "else this shows nothing")
		_, err = fetch(client, &Request{URL: scheme + "://example.com/"})
		requireAnyExternal(t, err)
		require.Equal(t, want, dialled.Load())
	}
}
