package egress

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func prepareHeader(c *Client, h map[string][]string) (*Prepared, error) {
	return c.Prepare(&Request{URL: "https://example.com/", Header: h})
}

// conformance: 7.refused.headers
func TestHeadersBlocked(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.BlockedHeaders = []string{"X_Secret", "x-internal-*"} })
	for _, name := range []string{
		"Host", "host", "HOST", "Content-Length", "content_length", "Transfer-Encoding", "transfer_encoding", "User-Agent", "user_agent", "Upgrade", "Expect",
		"Connection", "Keep-Alive", "keep_alive", "TE", "te", "Trailer", "Forwarded", "Proxy-Authorization", "proxy_authorization", "Proxy-Connection", "PROXY-", "proxy_x",
		"X-Forwarded-For", "x_forwarded_for", "X_Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "x_real_ip", "x-secret", "X-SECRET", "X_Internal_Anything",
		"x-internal-",
	} {
		_, err := prepareHeader(client, map[string][]string{"Accept": {"*/*"}, name: {"v"}})
		requireRefused(t, ReasonHeader, err)
		_, err = prepareHeader(client, map[string][]string{name: nil})
		requireRefused(t, ReasonHeader, err)
		requireRefused(t, ReasonHeader, client.CheckFields([]Field{{"Accept", "*/*"}, {name, "v"}}))
	}
	for _, name := range []string{"Accept", "Authorization", "Cookie", "X-Forwarded", "X-Proxy-Authorization", "Proxy", "X-Internal", "X-Api-Key", "my_header", "Hosts", "Content-Type", "~!#$%&'*+-.^_`|"} {
		_, err := prepareHeader(client, map[string][]string{name: {"v"}})
		require.NoError(t, err, name)
		require.NoError(t, client.CheckFields([]Field{{name, "v"}}))
	}
	require.NoError(t, client.CheckFields(nil))
}

// The protocol's list is enforced whatever the configuration says.
func TestHeadersBlockedByConfiguration(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.BlockedHeaders = []string{"x-only"} })
	_, err := prepareHeader(client, map[string][]string{"Host": {"v"}})
	requireRefused(t, ReasonHeader, err)
}

// conformance: 7.refused.control
func TestHeadersMalformed(t *testing.T) {
	t.Parallel()
	client := newClient(t, nil)
	for _, name := range []string{"", " ", "a b", "Host ", " Host", "Host:", "a:b", ":path", "a\r\nb", "a\x00", "ä", "a\u00a0", "(a)", "a/b", "a\"", "a,b", "{a}", "a\x7f", "a@b", "Ｈost"} {
		_, err := prepareHeader(client, map[string][]string{name: {"v"}})
		requireRefused(t, ReasonHeader, err)
	}
	for _, value := range []string{"\r", "\n", "\x00", "a\r\nHost: b", "a\nb", "a\tb", "\x01", "\x1b[31m", "\x7f", "\u0080", "\u0085", "\u009f", "\x85", "\xff", "a\xc3", "\xed\xa0\x80"} {
		_, err := prepareHeader(client, map[string][]string{"X-A": {"fine", value}})
		requireRefused(t, ReasonHeader, err)
	}
	for _, value := range []string{"", " ", "a b", "Bearer x.y.z", "ü", "世界", "\u00a0", "\ufffd", "😀", "a,b;c=\"d\""} {
		p, err := prepareHeader(client, map[string][]string{"X-A": {value}})
		require.NoError(t, err, "%q", value)
		require.Equal(t, []string{strings.Trim(value, " ")}, p.Header()["X-A"])
	}
	_, err := prepareHeader(client, map[string][]string{"X-A": {strings.Repeat("a", MaxRequestHeaderBytes)}})
	requireRefused(t, ReasonHeader, err)
	_, err = prepareHeader(client, map[string][]string{"X-A": make([]string, 20_000)})
	requireRefused(t, ReasonHeader, err)
}

func TestHeadersSent(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.Version = "v1.2 (x)\r\n" })
	p, err := prepareHeader(client, map[string][]string{"x-a": {"1", " 2 "}, "X-A": {"0"}, "accept": {"a"}, "Empty": {}, "my_name": {"u"}})
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"X-A": {"0", "1", "2"}, "Accept": {"a"}, "My_name": {"u"}, "User-Agent": {"dongate/v1.2--x---"}, "Accept-Encoding": {"gzip"},
	}, p.Header())
	require.Equal(t, []string{"Accept", "Accept-Encoding", "My_name", "User-Agent", "X-A"}, p.HeaderNames())
	require.True(t, p.gunzip)

	for name, value := range map[string]string{"accept-encoding": "identity", "Accept_Encoding": "", "ACCEPT-ENCODING": "", "range": "bytes=0-1"} {
		p, err := prepareHeader(client, map[string][]string{name: {value}})
		require.NoError(t, err)
		require.Equal(t, name == "Accept_Encoding", p.gunzip, name) // a name of its own
	}
	p, err = prepareHeader(newClient(t, nil), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"dongate/dev"}, p.Header()["User-Agent"])

	fields := []Field{{"x-a", "1"}, {"accept", "a"}, {"X-A", "0"}, {"my_name", "u"}, {"x-a", " 2 "}}
	p, err = client.Prepare(&Request{URL: "https://example.com/", Header: map[string][]string{"X-A": {"9"}}, Fields: fields})
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"X-A": {"9", "0", "1", "2"}, "Accept": {"a"}, "My_name": {"u"}, "User-Agent": {"dongate/v1.2--x---"}, "Accept-Encoding": {"gzip"},
	}, p.Header())
	require.Equal(t, Field{"x-a", "1"}, fields[0], "in the order in which they were given")

	// What was given stays as it was, and what was prepared does not follow it.
	given := map[string][]string{"X-A": {" 1"}}
	p, err = prepareHeader(client, given)
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"X-A": {" 1"}}, given)
	given["X-A"][0] = "2"
	require.Equal(t, []string{"1"}, p.Header()["X-A"])
}

// Credentials that belong to a connection are not left behind for the next caller.
func TestConnectionBoundCredentials(t *testing.T) {
	t.Parallel()
	client := newClient(t, nil)
	for value, want := range map[string]bool{"Negotiate abc": true, "NTLM x": true, "negotiate": true, "Bearer NTLM": false, "Basic x": false, "": false} {
		p, err := prepareHeader(client, map[string][]string{"authorization": {value}})
		require.NoError(t, err)
		require.Equal(t, want, p.request(newAttempt(t.Context(), 1)).Close, value)
	}
}

func FuzzHeader(f *testing.F) {
	rules, err := newHeaderRules([]string{"x-internal-*"})
	require.NoError(f, err)
	f.Add("Host", "a")
	f.Add("X-A", "a\r\nb")
	f.Add("x_real_ip", "ü")
	f.Add("proxy-x", "\x85")
	f.Fuzz(func(t *testing.T, name, value string) {
		out, refused := rules.clean(map[string][]string{name: {value}}, nil)
		same, refusedField := rules.clean(nil, []Field{{name, value}})
		require.Equal(t, out, same)
		require.Equal(t, refused, refusedField)
		folded := strings.Map(func(r rune) rune {
			if r == '_' {
				return '-'
			}
			return unicode.ToLower(r)
		}, name)
		bad := strings.HasPrefix(folded, "proxy-") || strings.HasPrefix(folded, "x-internal-") || slices.Contains(blockedHeaders, folded) ||
			name == "" || strings.ContainsAny(value, "\r\n\t\x00\x7f") || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) ||
			strings.ContainsAny(name, " \r\n\t\x00:\x7f") || len(name)+len(value) > MaxRequestHeaderBytes
		if refused != nil {
			require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
			if !bad && isToken(name) {
				require.Greater(t, len(name)+len(value)+4, MaxRequestHeaderBytes, "%q: %q refused: %s", name, value, refused.Msg)
			}
			return
		}
		require.False(t, bad, "%q: %q", name, value)
		require.Len(t, out, 1)
	})
}
