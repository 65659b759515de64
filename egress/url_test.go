package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/config"
)

// spellings are hosts of URLs that must be refused without asking a resolver, by the rule that refuses them.
var spellings = map[Reason][]string{
	ReasonAddress: {
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "168.63.129.16", "192.0.0.8",
		"192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]",
		"[0000:0000:0000:0000:0000:0000:0000:0001]", "[::0.0.0.1]", "[::ffff:127.0.0.1]", "[::FFFF:7F00:1]", "[::ffff:7f00:0001]", "[0:0:0:0:0:ffff:127.0.0.1]",
		"[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:FF9B::127.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:808:808::80ff:fffe]", "[fe80::1]",
		"[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[2001:db8::1]", "[3fff::1]", "[2001:2::1]", "[100::1]", "[4000::1]",
	},
	ReasonHost: {
		"127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F000001", "0x7f.1", "0x7f.0.0.0x1", "0177.0.0.1", "017700000001", "127.0.0.01", "127.000.000.001",
		"1.2.3", "1.2.3.4.5", "1.2.3.256", "256.256.256.256", "0", "1", "0x", "0x0", "4294967295", "4294967296", "99999999999999999999", "00", "08",
		"127.0.0.1.", "127.1.", "2130706433.", "0x7f000001.", "8.8.8.8.", "example.0x7f", "example.127", "a.b.0", "foo.0X1F",
		"localhost", "LOCALHOST", "LocalHost", "localhost.", "a.localhost", "a.b.LocalHost.", "localhost.localdomain", "LOCALHOST.LOCALDOMAIN.",
		"localhost4", "localhost6", "ip6-localhost", "ip6-loopback",
		"127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "１２７.0.0.1", "①②⑦.0.0.1", "ｌocalhost", "loc\u212Alhost", "local\u00adhost", "example。com", "bücher.example", "%e3%80%82",
		"127%2e0%2e0%2e1x", "", ".", "..", ".example.com", "example..com", "example.com..", "-a.example", "a-.example", strings.Repeat("a", 64) + ".example",
		strings.Repeat("a.", 127) + "com", "exa_mple.c*m", "a,b", "a;b", "a&b=c", "a$b", "(a)", "a!b", "a~b", "a'b", "a+b", "a=b", "example.com\u200b",
		"[127.0.0.1]", "[8.8.8.8]", "[example.com]", "[]", "[::1%25lo]", "[fe80::1%25eth0]", "[2606:4700::1111%251]", "[::1].example.com", "[v1.a]",
	},
	ReasonPort: {
		"example.com:0", "example.com:00", "example.com:65536", "example.com:99999", "example.com:4294967376", "example.com:", "[2606:4700::1111]:", "1.1.1.1:",
		"example.com:080", "example.com:0443", "example.com:22", "example.com:8080", "1.1.1.1:25", "[2606:4700::1111]:6379", "127.0.0.1:0",
		"[::1].example.com",
	},
	ReasonUserinfo: {"user@example.com", "user:secret@example.com", "@example.com", ":@example.com", "example.com@127.0.0.1", "127.0.0.1@example.com", "a%40b@example.com"},
	ReasonURL: {
		"example.com:http", "example.com:-1", "example.com:+80", "example.com: 80", "exam ple.com", "example.com:80:80", "::1", "::1:80", "[::1", "::1]", "[[::1]]", "example.com%", "example.com%00",
		"example.com%zz", "%6c%6fcalhost", "127%2e0.0.1", "a\tb", "a\nb", "a\rb", "a\x00b", "a\x7fb", "a<b", "a>b", "a\"b", "a b", "a^b", "a`b", "a{b", "a|b", "a\\b",
	},
}

// conformance: 7.refused.port
// conformance: 7.refused.userinfo
// conformance: 7.address.numeric
// conformance: 7.refused.address
func TestHostsRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.Resolver = forbiddenResolver(t) })
	for reason, hosts := range spellings {
		for _, host := range hosts {
			if reason == ReasonHost {
				_, refused := parseTarget(host) // without net/url's help
				require.NotNil(t, refused, "%q", host)
			}
			for _, scheme := range []string{"http", "https", "HTTP"} {
				_, err := client.Prepare(&Request{URL: scheme + "://" + host + "/x"})
				var refused *Refused
				require.ErrorAs(t, err, &refused, "%q", host)
				require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
				if !oneOf(refused.Reason, reason, ReasonURL, ReasonHost) {
					t.Errorf("%q: refused by rule %s (%s), want %s", host, refused.Reason, refused.Msg, reason)
				}
			}
		}
	}
}

// Which rule refuses malformed hosts is net/url's affair in part; those of meaning are ours.
func oneOf(got, want Reason, others ...Reason) bool {
	if got == want {
		return true
	}
	if want != ReasonHost && want != ReasonPort && want != ReasonURL {
		return false
	}
	for _, o := range others {
		if got == o {
			return true
		}
	}
	return false
}

// forbiddenResolver fails the test when it is asked.
func forbiddenResolver(t testing.TB) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("a resolver was asked")
		return nil, errors.New("no resolver in this test")
	}}
}

func TestURLsRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t, nil)
	for _, c := range []struct {
		want Reason
		url  string
	}{
		{ReasonScheme, ""}, {ReasonScheme, "example.com"}, {ReasonScheme, "//example.com/"}, {ReasonScheme, "/etc/passwd"}, {ReasonScheme, "ftp://example.com/"},
		{ReasonScheme, "file:///etc/passwd"}, {ReasonScheme, "gopher://example.com/"}, {ReasonScheme, "ws://example.com/"}, {ReasonScheme, "data:,x"},
		{ReasonScheme, "javascript:alert(1)"}, {ReasonScheme, "unix:///run/docker.sock"}, {ReasonScheme, "httpss://example.com"}, {ReasonScheme, "http //example.com"},
		{ReasonHost, "http:"}, {ReasonHost, "http:example.com"}, {ReasonHost, "http:/example.com"}, {ReasonHost, "http://"}, {ReasonHost, "http:///example.com"},
		{ReasonHost, "http:///"}, {ReasonHost, "https://?x=example.com"}, {ReasonURL, "http:\\\\example.com"}, {ReasonURL, "https://example.com/%zz"},
		{ReasonURL, "https://example.com/#"}, {ReasonURL, "https://example.com/a#b"}, {ReasonURL, "https://example.com/a\r\nHost: evil"},
		{ReasonURL, "https://example.com/\x00"}, {ReasonURL, "https://example.com/?\n"}, {ReasonURL, " https://example.com/"}, {ReasonURL, "\thttps://example.com"},
		{ReasonURL, "https://example.com/" + strings.Repeat("a", MaxURLBytes)}, {ReasonURL, ":"}, {ReasonURL, "://example.com"}, {ReasonURL, "1http://example.com"},
	} {
		_, err := client.Prepare(&Request{URL: c.url})
		var refused *Refused
		require.ErrorAs(t, err, &refused, "%.80q", c.url)
		if refused.Reason != c.want && !(refused.Reason == ReasonHost && c.want == ReasonURL) {
			t.Errorf("%.80q: refused by rule %s (%s), want %s", c.url, refused.Reason, refused.Msg, c.want)
		}
		require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
	}
}

func TestURLsAccepted(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.AllowedPorts = []int{80, 443, 65535} })
	for _, c := range []struct{ url, want, host string }{
		{"http://example.com", "http://example.com", "example.com"},
		{"HTTPS://Example.COM:443/A?b=C", "https://example.com:443/A?b=C", "example.com"},
		{"https://example.com./", "https://example.com./", "example.com."},
		{"https://a_b.xn--bcher-kva.example/", "https://a_b.xn--bcher-kva.example/", "a_b.xn--bcher-kva.example"},
		{"https://1.1.1.1:65535/", "https://1.1.1.1:65535/", "1.1.1.1"},
		{"https://[2606:4700:4700:0:0:0:0:1111]:443/", "https://[2606:4700:4700::1111]:443/", "2606:4700:4700::1111"},
		{"https://[::FFFF:1.1.1.1]/", "https://[::ffff:1.1.1.1]/", "::ffff:1.1.1.1"},
		{"https://[64:ff9b::8.8.8.8]/", "https://[64:ff9b::808:808]/", "64:ff9b::808:808"},
		{"https://0x7f000001.example/", "https://0x7f000001.example/", "0x7f000001.example"},
		{"https://127.0.0.1.example/", "https://127.0.0.1.example/", "127.0.0.1.example"},
		{"https://localhost.example/", "https://localhost.example/", "localhost.example"},
		{"https://xlocalhost/", "https://xlocalhost/", "xlocalhost"},
		{"https://0xg/", "https://0xg/", "0xg"},
		{"https://example.com//a/../b?q=a b\"<>ü", "https://example.com//a/../b?q=a%20b%22%3C%3E%C3%BC", "example.com"},
		{"https://example.com/a b", "https://example.com/a%20b", "example.com"},
		{"https://example.com?x", "https://example.com?x", "example.com"},
		{"https://example.com/%2e%2E/%20?%20", "https://example.com/%2e%2E/%20?%20", "example.com"},
	} {
		p, err := client.Prepare(&Request{URL: c.url})
		require.NoError(t, err, c.url)
		require.Equal(t, c.want, p.URL())
		require.Equal(t, c.host, p.Host())
		again, err := client.Prepare(&Request{URL: p.URL()})
		require.NoError(t, err, c.url)
		require.Equal(t, p.URL(), again.URL())
	}
}

// conformance: 7.request.scheme
// conformance: 7.refused.method
func TestMethodsAndSchemes(t *testing.T) {
	t.Parallel()
	client := newClient(t, nil)
	for method, want := range map[string]string{"": "GET", "get": "GET", "Post": "POST", "PUT": "PUT", "patch": "PATCH", "DELETE": "DELETE"} {
		p, err := client.Prepare(&Request{Method: method, URL: "http://example.com/"})
		require.NoError(t, err)
		require.Equal(t, want, p.Method())
	}
	for _, method := range []string{"HEAD", "OPTIONS", "CONNECT", "TRACE", "GET ", "G\r\nET", "ſet", "PROPFIND", strings.Repeat("x", 1<<20)} {
		_, err := client.Prepare(&Request{Method: method, URL: "http://example.com/"})
		requireRefused(t, ReasonMethod, err)
	}
	only := newClient(t, func(c *Config) { c.AllowedSchemes, c.AllowedMethods = []string{"https"}, []string{"HEAD"} })
	_, err := only.Prepare(&Request{Method: "HEAD", URL: "http://example.com/"})
	requireRefused(t, ReasonScheme, err)
	_, err = only.Prepare(&Request{Method: "GET", URL: "https://example.com/"})
	requireRefused(t, ReasonMethod, err)
	_, err = only.Prepare(&Request{Method: "HEAD", URL: "https://example.com/"})
	require.NoError(t, err)

	for _, c := range []config.HTTPClient{
		{AllowedSchemes: []string{"ftp"}}, {AllowedMethods: []string{"CONNECT"}}, {AllowedMethods: []string{"TRACE"}}, {AllowedMethods: []string{"get"}},
		{AllowedMethods: []string{"A B"}}, {BlockedHeaders: []string{"a b"}}, {BlockedHeaders: []string{"*"}}, {BlockedHeaders: []string{"a*b*"}}, {AllowedPorts: []int{0}},
	} {
		_, err := New(Config{HTTPClient: c})
		require.Error(t, err)
	}
}

// errStop keeps dialledAddress from sending anything.
var errStop = errors.New("stop before connecting")

// dialledAddress is what package net would connect to for host, which it must not have to look up.
func dialledAddress(t testing.TB, host string) (out netip.Addr) {
	d := net.Dialer{Resolver: forbiddenResolver(t), Control: func(_, address string, _ syscall.RawConn) error {
		out = netip.MustParseAddrPort(address).Addr()
		return errStop
	}}
	_, err := d.Dial("tcp", net.JoinHostPort(host, "443"))
	require.Error(t, err)
	return out
}

// Whatever passes as an address is the one that is dialled, and whatever passes as a name is none that a resolver could take for an address.
func checkTarget(t testing.TB, authority string) {
	got, refused := parseTarget(authority)
	if refused != nil {
		require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
		return
	}
	if got.port != "" {
		n, err := strconv.Atoi(got.port)
		require.NoError(t, err)
		require.True(t, n > 0 && n < 65536 && strconv.Itoa(n) == got.port, got.port)
	}
	again, refused := parseTarget(got.authority())
	require.Nil(t, refused, authority)
	require.Equal(t, got, again)
	if got.literal.IsValid() {
		require.Empty(t, got.literal.Zone())
		dialled := dialledAddress(t, got.host)
		if !got.literal.IsUnspecified() { // package net takes :: for 0.0.0.0
			require.Equal(t, got.literal.Unmap(), dialled, authority)
		}
		ours, _ := Classify(got.literal)
		theirs, _ := Classify(dialled)
		require.Equal(t, theirs, ours)
		return
	}
	_, err := netip.ParseAddr(got.host)
	require.Error(t, err, authority)
	require.False(t, looseAddress(got.host), authority)
	name := strings.TrimRight(strings.ToLower(got.host), ".")
	require.False(t, name == "localhost" || strings.HasSuffix(name, ".localhost"), authority)
}

// looseAddress is a dumb inet_aton: one to four numbers in C's notation, with or without a dot at the end.
func looseAddress(s string) bool {
	parts := strings.Split(strings.TrimSuffix(s, "."), ".")
	for _, p := range parts {
		base := 10
		if hex, ok := strings.CutPrefix(strings.ToLower(p), "0x"); ok {
			base, p = 16, "0"+hex
		}
		if _, err := strconv.ParseUint(p, base, 64); err != nil { // octal digits are decimal ones
			return false
		}
	}
	return len(parts) <= 4
}

func FuzzHost(f *testing.F) {
	for _, hosts := range spellings {
		for _, h := range hosts {
			f.Add(h)
		}
	}
	for _, h := range []string{"example.com", "1.1.1.1", "1.1.1.1:443", "[2606:4700::1111]:80", "a_b.example.", "[::ffff:8.8.8.8]", "0xg.example"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, authority string) { checkTarget(t, authority) })
}

// A prepared request is exactly one request on the wire, to the host that was checked.
func FuzzPrepare(f *testing.F) {
	client := newClient(f, nil)
	f.Add("GET", "https://example.com/a?b", "X-A", "v", []byte("body"))
	f.Add("post", "http://1.1.1.1/ü?q=a b", "x_real_ip", "a\r\nHost: b", []byte{})
	f.Add("PUT", "http://[2606:4700::1111]:80//x", "Accept-Encoding", "br", []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, method, url, name, value string, body []byte) {
		p, err := client.Prepare(&Request{Method: method, URL: url, Header: map[string][]string{name: {value, value}, "x-other": {"1"}}, Body: body})
		if err != nil {
			var refused *Refused
			require.ErrorAs(t, err, &refused)
			require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
			return
		}
		sent := p.request(newAttempt(context.Background(), 1))
		var wire bytes.Buffer
		require.NoError(t, sent.Write(&wire))
		r := bufio.NewReader(&wire)
		got, err := http.ReadRequest(r)
		require.NoError(t, err, "%q", url)
		require.Equal(t, p.Method(), got.Method)
		require.Equal(t, p.url.Host, got.Host)
		require.Equal(t, p.url.RequestURI(), got.RequestURI)
		want := p.Header().Clone()
		if len(body) > 0 || method != "" && p.Method() != "GET" && p.Method() != "DELETE" {
			want.Set("Content-Length", strconv.Itoa(len(body)))
		}
		require.Equal(t, want, got.Header)
		all := new(bytes.Buffer)
		_, err = all.ReadFrom(got.Body)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, all.Bytes()))
		require.Zero(t, r.Buffered(), "bytes behind the request")
	})
}

// A URL that was checked is remembered, one that was refused is checked again, and many different ones push each other out.
func TestCheckedURLs(t *testing.T) {
	t.Parallel()
	c, err := New(Config{})
	require.NoError(t, err)
	first, refused := c.checkURL("HTTPS://Example.com:443/a b?x=ü")
	require.Nil(t, refused)
	again, refused := c.checkURL("HTTPS://Example.com:443/a b?x=ü")
	require.Nil(t, refused)
	require.Same(t, first, again)
	require.Equal(t, first.url.String(), first.text)
	for range 2 {
		_, refused = c.checkURL("https://127.0.0.1/")
		require.NotNil(t, refused)
	}
	for n := range 10 * checkedURLs {
		raw := fmt.Sprintf("https://example.com/%d", n)
		u, refused := c.checkURL(raw)
		require.Nil(t, refused)
		require.Equal(t, raw, u.text)
	}
}
