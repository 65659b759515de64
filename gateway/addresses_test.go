package gateway

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		remote    string
		forwarded []string
		want      string
	}{
		"no proxy":                          {"192.0.2.7:1234", nil, "192.0.2.7"},
		"forged header of an untrusted":     {"192.0.2.7:1234", []string{"198.51.100.1"}, "192.0.2.7"},
		"behind a trusted proxy":            {"10.1.1.1:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		"last untrusted entry":              {"10.1.1.1:1234", []string{"203.0.113.9, 198.51.100.1, 10.2.2.2"}, "198.51.100.1"},
		"over all lines":                    {"10.1.1.1:1234", []string{"203.0.113.9", "198.51.100.1", "10.2.2.2"}, "198.51.100.1"},
		"forged first entry does not count": {"10.1.1.1:1234", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		"unreadable makes it the peer's":    {"10.1.1.1:1234", []string{"198.51.100.1, nonsense"}, "10.1.1.1"},
		"only trusted":                      {"10.1.1.1:1234", []string{"10.3.3.3"}, "10.1.1.1"},
		"IPv6 and mapped":                   {"[::ffff:10.1.1.1]:1234", []string{"2001:db8::1"}, "2001:db8::1"},
		"zone is dropped":                   {"[fe80::1%eth0]:1234", nil, "fe80::1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, clientAddress(tt.remote, tt.forwarded, trusted).String())
		})
	}
}

// conformance: 2.cors.origins
func TestOriginAllowed(t *testing.T) {
	t.Parallel()
	allowed := []string{"https://app.example.org", "https://*.example.com"}
	for origin, want := range map[string]bool{
		"https://app.example.org":         true,
		"https://APP.example.org":         true,
		"http://app.example.org":          false,
		"https://app.example.org:8443":    false,
		"https://a.example.com":           true,
		"https://a.b.example.com":         true,
		"https://example.com":             false,
		"https://.example.com":            false,
		"https://evilexample.com":         false,
		"https://a.example.com.evil.net":  false,
		"https://evil.net/.example.com":   false,
		"https://evil.net?x=.example.com": false,
		"https://evil.net#.example.com":   false,
		"https://u:p@a.example.com":       false,
		"http://a.example.com":            false,
		"null":                            false,
		"":                                false,
	} {
		require.Equal(t, want, originAllowed(origin, allowed), origin)
	}
}
