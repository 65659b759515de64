package egress

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// stdlog collects what net/http prints to the standard logger.
var stdlog lockedBuffer

func TestMain(m *testing.M) {
	if os.Getenv(originVariable) != "" {
		serveBenchmarkOrigin()
		return
	}
	// A proxy in the environment, which no request may ask.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		os.Setenv(name, "http://192.31.196.77:3128")
	}
	log.SetOutput(&stdlog)
	goleak.VerifyTestMain(m)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var loopback = netip.MustParseAddr("127.0.0.1")

// newClient makes a client that is closed with the test. Nil changes nothing.
func newClient(t testing.TB, change func(*Config)) *Client {
	t.Helper()
	var c Config
	if change != nil {
		change(&c)
	}
	client, err := New(c)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// newOrigin serves h on 127.0.0.1 and returns a client that may reach it.
func newOrigin(t testing.TB, h http.HandlerFunc, change func(*Config)) (*Client, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	client := newClient(t, func(c *Config) {
		c.AllowedIPs = []netip.Addr{loopback}
		c.AllowedPorts = []int{portIn(t, s.URL)}
		if change != nil {
			change(c)
		}
	})
	return client, s.URL
}

func portIn(t testing.TB, rawURL string) int {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	return port
}

func fetch(c *Client, r *Request) (*Response, error) {
	p, err := c.Prepare(r)
	if err != nil {
		return nil, err
	}
	return c.Do(context.Background(), p)
}

func requireRefused(t testing.TB, want Reason, err error) *Refused {
	t.Helper()
	var refused *Refused
	require.ErrorAs(t, err, &refused)
	require.Equal(t, want, refused.Reason, refused.Msg)
	require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
	return refused
}

func requireExternal(t testing.TB, want Stage, err error) *External {
	t.Helper()
	var external *External
	require.ErrorAs(t, err, &external)
	require.Equal(t, want, external.Stage, external.Msg)
	require.LessOrEqual(t, len(external.Msg), MaxErrorBytes)
	require.Equal(t, external.Timeout, errors.Is(err, context.DeadlineExceeded), external.Msg)
	return external
}

// trap counts the connections that reach an address that nothing may reach.
type trap struct {
	listener net.Listener
	count    atomic.Int64
	done     chan struct{}
}

func newTrap(t testing.TB, address string) *trap {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	trap := &trap{listener: l, done: make(chan struct{})}
	go func() {
		defer close(trap.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			trap.count.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-trap.done })
	return trap
}

func (tr *trap) port() int { return tr.listener.Addr().(*net.TCPAddr).Port }

// requireUntouched connects once itself: connections are accepted in their order, so whatever came before was counted.
func (tr *trap) requireUntouched(t testing.TB) {
	t.Helper()
	c, err := net.Dial("tcp", tr.listener.Addr().String())
	require.NoError(t, err)
	_, _ = c.Read(make([]byte, 1))
	c.Close()
	require.EqualValues(t, 1, tr.count.Load(), "a connection reached a forbidden address")
}
