package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers over UDP on loopback. A name has a list of answers, each a list of addresses separated by spaces; the n-th lookup gets the n-th answer,
// later ones the last. "silent" never answers, other names do not exist.
type nameServer struct {
	conn    net.PacketConn
	names   map[string][]string
	mu      sync.Mutex
	lookups map[string]int // of A records
}

func newNameServer(t testing.TB, names map[string][]string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &nameServer{conn: conn, names: names, lookups: map[string]int{}}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() { conn.Close(); <-done })
	return s
}

func (s *nameServer) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups[name]
}

// resolver asks s whatever name server the system is configured with.
func (s *nameServer) resolver() *net.Resolver {
	system := systemResolver()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return system.Dial(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) serve() {
	buf := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		if reply := s.answer(m); reply != nil {
			_, _ = s.conn.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) answer(m dnsmessage.Message) []byte {
	q := m.Questions[0]
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	if name == "silent.test" {
		return nil
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	answers, ok := s.names[name]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	s.mu.Lock()
	n := min(s.lookups[name], len(answers)-1)
	if q.Type == dnsmessage.TypeA {
		s.lookups[name]++
	}
	s.mu.Unlock()
	if ok {
		for text := range strings.FieldsSeq(answers[n]) {
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			switch a := netip.MustParseAddr(text); {
			case a.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
	}
	reply, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return reply
}

// 127.0.0.2 plays the public address: re-admitted by configuration, so that no test leaves this machine. 127.0.0.1 and ::1 are what must not be reached.
const public = "127.0.0.2"

// newDNSClient makes a client that may reach public on port and looks names up in names.
func newDNSClient(t testing.TB, port int, names map[string][]string) (*Client, *nameServer) {
	s := newNameServer(t, names)
	return newClient(t, func(c *Config) {
		c.AllowedIPs = []netip.Addr{netip.MustParseAddr(public)}
		c.AllowedPorts = []int{port}
		c.Resolver = s.resolver()
	}), s
}

// conformance: 7.address.dialled
func TestNamesOfForbiddenAddresses(t *testing.T) {
	t.Parallel()
	forbidden := newTrap(t, "127.0.0.1:0")
	port := forbidden.port()
	client, _ := newDNSClient(t, port, map[string][]string{
		"public-first.test":    {public + " 127.0.0.1"}, // nobody listens on public: the second address is tried
		"forbidden-first.test": {"127.0.0.1 " + public},
		"many.test":            {"127.0.0.1 10.0.0.1 169.254.169.254 ::1 fd00:ec2::254 64:ff9b::7f00:1 ::ffff:127.0.0.1"},
		"only.test":            {"127.0.0.1"},
		"only6.test":           {"::1"},
		"mapped.test":          {"::ffff:127.0.0.1"},
		"unspecified.test":     {"0.0.0.0"},
		"unspecified6.test":    {"::"},
		"metadata.test":        {"169.254.169.254"},
		"rebind.test":          {public, "127.0.0.1"},
	})
	for name, text := range map[string]string{"public-first.test": "connection refused", "forbidden-first.test": "the others cannot be reached"} {
		_, err := fetch(client, &Request{URL: "http://" + name + ":" + strconv.Itoa(port) + "/"})
		require.Contains(t, requireExternal(t, StageConnect, err).Msg, text, name)
	}
	for name, class := range map[string]string{
		"many.test": "", "only.test": "is loopback", "only6.test": "is loopback", "mapped.test": "is loopback", "unspecified.test": "is unspecified", "unspecified6.test": "is unspecified",
		"metadata.test": "is cloud metadata",
	} {
		_, err := fetch(client, &Request{URL: "http://" + name + ":" + strconv.Itoa(port) + "/"})
		refused := requireRefused(t, ReasonAddress, err)
		require.Contains(t, refused.Msg, class+", not public", name)
		for _, secret := range []string{"127.0.0.1", "10.0.0.1", "169.254", "::1"} {
			require.NotContains(t, refused.Msg, secret, "what our resolver answers is not for strangers")
		}
	}
	forbidden.requireUntouched(t)
	require.Zero(t, client.Stats().Connections)
}

// A name that changes its mind between two requests, and one of which only some addresses may be reached.
//
// conformance: 7.address.dialled
func TestNamesThatChange(t *testing.T) {
	t.Parallel()
	forbidden := newTrap(t, "127.0.0.1:0")
	l, err := net.Listen("tcp", net.JoinHostPort(public, strconv.Itoa(forbidden.port())))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	client, names := newDNSClient(t, forbidden.port(), map[string][]string{
		"rebind.test": {public, "127.0.0.1"}, "mixed.test": {"127.0.0.1 " + public},
	})
	port := ":" + strconv.Itoa(forbidden.port())

	r, err := fetch(client, &Request{URL: "http://rebind.test" + port})
	require.NoError(t, err)
	require.Equal(t, "rebind.test"+port, string(r.Body))
	client.Close() // so that the next request dials
	_, err = fetch(client, &Request{URL: "http://rebind.test" + port})
	requireRefused(t, ReasonAddress, err)
	require.Equal(t, 2, names.count("rebind.test"), "one lookup per dial, none beside it")

	r, err = fetch(client, &Request{URL: "http://mixed.test" + port})
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)
	forbidden.requireUntouched(t)
}

// Whatever Prepare might let through, the dialler refuses: requests made without it.
//
// conformance: 7.address.dialled
func TestDialerAlone(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		forbidden := newTrap(t, address)
		port := strconv.Itoa(forbidden.port())
		client := newClient(t, func(c *Config) {
			c.AllowedPorts = []int{forbidden.port()}
			c.Resolver = newNameServer(t, map[string][]string{"localhost.test": {"127.0.0.1 ::1"}}).resolver()
		})
		for _, host := range []string{"127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0", "[::1%25lo]", "localhost.test", "localhost", "[fe80::1%25lo]"} {
			p, err := client.Prepare(&Request{URL: "http://example.com:" + port + "/", Timeout: 5 * time.Second})
			require.NoError(t, err)
			p.url.Host = strings.Replace(host, "%25", "%", 1) + ":" + port
			_, err = client.Do(t.Context(), p)
			requireRefused(t, ReasonAddress, err)
		}
		// A port that is not allowed.
		p, err := newClient(t, func(c *Config) { c.AllowedIPs = []netip.Addr{loopback, netip.IPv6Loopback()} }).Prepare(&Request{URL: "http://example.com/"})
		require.NoError(t, err)
		p.url.Host = forbidden.listener.Addr().String()
		_, err = newClient(t, func(c *Config) { c.AllowedIPs = []netip.Addr{loopback, netip.IPv6Loopback()} }).Do(t.Context(), p)
		requireRefused(t, ReasonAddress, err)
		forbidden.requireUntouched(t)
	}
}

// conformance: 7.redirects
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	forbidden := newTrap(t, public+":0")
	port := strconv.Itoa(forbidden.port())
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header().Set("Location", r.URL.Query().Get("to"))
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "moved "+r.Header.Get("Cookie")+r.Header.Get("Referer"))
	}, func(c *Config) { c.AllowedPorts = append(c.AllowedPorts, forbidden.port()) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{"http://" + public + ":" + port + "/", "http://127.2:" + port, "//" + public + ":" + port, "http://169.254.169.254/", "http://localhost/", "file:///etc/passwd", "/elsewhere", "\x00", ""} {
			for _, method := range []string{"GET", "POST"} {
				p, err := client.Prepare(&Request{URL: url, Method: method, Body: []byte("b")})
				require.NoError(t, err)
				query := p.url.Query()
				query.Set("status", strconv.Itoa(status))
				query.Set("to", to)
				p.url.RawQuery = query.Encode()
				r, err := client.Do(t.Context(), p)
				if to == "\x00" { // not even valid HTTP
					continue
				}
				require.NoError(t, err, "%d %q", status, to)
				require.Equal(t, status, r.StatusCode)
				require.Equal(t, "moved ", string(r.Body), "no cookie, no referer")
				require.Equal(t, to, r.Header["Location"][0])
			}
		}
	}
	forbidden.requireUntouched(t)
}

// Config.Connect is no way round the address check.
func TestConnectHook(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	client := newClient(t, func(c *Config) {
		c.Connect = func(_ context.Context, address netip.AddrPort) (net.Conn, error) {
			asked.Add(1)
			require.Equal(t, netip.MustParseAddrPort("8.8.8.8:80"), address)
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				script(ok + "Content-Length: 4\r\n\r\nhere")(theirs)
			}()
			return ours, nil
		}
	})
	p, err := client.Prepare(&Request{URL: "http://8.8.8.8/"})
	require.NoError(t, err)
	r, err := client.Do(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "here", string(r.Body))
	p.url.Host = "127.0.0.1:80" // as if Prepare had let it through
	_, err = client.Do(t.Context(), p)
	requireRefused(t, ReasonAddress, err)
	p.url.Host = "example.com:80"
	_, err = client.Do(t.Context(), p)
	requireExternal(t, StageDNS, err)
	require.EqualValues(t, 1, asked.Load())
}

// A redirect to whatever host there is to forbid is an answer like any other: nobody looks the host up or connects to it.
//
// conformance: 7.redirects
func TestRedirectsToEveryForbiddenHost(t *testing.T) {
	t.Parallel()
	forbidden := newTrap(t, public+":0")
	client, url := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header()["Location"] = []string{r.Header.Get("To")}
		w.WriteHeader(status)
	}, func(c *Config) { c.Resolver = forbiddenResolver(t) })
	hosts := []string{forbidden.listener.Addr().String()}
	for _, spelt := range spellings {
		hosts = append(hosts, spelt...)
	}
	for _, host := range hosts {
		if checkValue(host) != nil {
			continue // a header cannot hold it
		}
		for _, status := range []string{"301", "302", "307", "308"} {
			r, err := fetch(client, &Request{URL: url + "/" + status, Header: map[string][]string{"To": {"http://" + host + "/"}}})
			require.NoError(t, err, "%s %q", status, host)
			require.Equal(t, status, strconv.Itoa(r.StatusCode))
		}
	}
	forbidden.requireUntouched(t)
	require.EqualValues(t, 1, client.Stats().Connections, "the origin's")
}

// conformance: 7.answer.failed
func TestDNSFailures(t *testing.T) {
	t.Parallel()
	client, _ := newDNSClient(t, 80, nil)
	_, err := fetch(client, &Request{URL: "http://nowhere.test/"})
	external := requireExternal(t, StageDNS, err)
	require.Equal(t, "nowhere.test: no such host", external.Msg)
	require.False(t, external.Timeout)

	start := time.Now()
	_, err = fetch(client, &Request{URL: "http://silent.test/", Timeout: 150 * time.Millisecond})
	external = requireExternal(t, StageDNS, err)
	require.True(t, external.Timeout)
	require.Less(t, time.Since(start), 2*time.Second)

	failing := newClient(t, func(c *Config) {
		c.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no route to 10.9.8.7:53")
		}}
	})
	_, err = fetch(failing, &Request{URL: "http://nowhere.test/"})
	require.NotContains(t, requireExternal(t, StageDNS, err).Msg, "10.9.8.7")
}

func TestSystemResolverEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithCancel(context.Background())
	conn, err := systemResolver().Dial(ctx, "udp", silent.LocalAddr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.Implements(t, (*net.PacketConn)(nil), conn, "else the resolver takes it for TCP")
	cancel()
	_, err = conn.Read(make([]byte, 1))
	require.True(t, isTimeout(err), "%v", err)
}
