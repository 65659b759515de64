package egress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/config"
)

// conformance: 7.address.readmit
// conformance: 7.address.block
func TestGuardLists(t *testing.T) {
	t.Parallel()
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, p := range list {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	g, err := newGuard(&config.HTTPClient{
		AllowedIPs:     []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.5"), netip.MustParseAddr("fe80::7%eth0")},
		AllowedIPsCIDR: prefixes("10.1.0.0/16", "fd00::/8", "::ffff:172.16.0.0/120", "10.9.9.9/24"),
		BlockedIPs:     []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("203.0.114.7")},
		BlockedIPsCIDR: prefixes("8.8.8.0/24", "2606::/16", "::ffff:9.9.9.0/120"),
	})
	require.NoError(t, err)
	for _, c := range []struct{ addrs, want string }{
		{"127.0.0.1 ::ffff:127.0.0.1 10.0.0.5 10.1.0.0 10.1.255.255 fd00::1 172.16.0.9 10.9.9.1 fe80::7", ""},
		{"1.1.1.1 2a00::1", ""}, // what is allowed is not all that is allowed
		{"127.0.0.2 ::1 64:ff9b::127.0.0.1 2002:7f00:1::", "is loopback, not public"},
		{"10.0.0.4 10.2.0.0 172.16.1.0 64:ff9b::10.0.0.5", "is private, not public"},
		{"169.254.169.254", "is cloud metadata, not public"},
		{"10.1.2.3 203.0.114.7 8.8.8.8 2606::1 9.9.9.9 ::ffff:8.8.8.8", "is blocked by this gateway's configuration"},
		{"64:ff9b::8.8.8.8 2002:808:808::1 2001:0:101:101:0:0:f7f7:f7f7 2001:0:808:808:0:0:fefe:fefe ::8.8.8.8", "is blocked by this gateway's configuration"},
		{"2a00::1%eth0 fe80::7%eth0 fd00::1%1", "has a zone"},
	} {
		for text := range strings.FieldsSeq(c.addrs) {
			require.Equal(t, c.want, g.check(netip.MustParseAddr(text)), text)
		}
	}
	require.NotEmpty(t, g.check(netip.Addr{}))
}

// The guard fails closed on whatever the dialer might hand it.
func TestGuardVerdict(t *testing.T) {
	t.Parallel()
	g, err := newGuard(&config.HTTPClient{})
	require.NoError(t, err)
	for _, c := range []struct{ network, address, want string }{
		{"tcp4", "8.8.8.8:443", ""},
		{"tcp6", "[2606:4700::1111]:80", ""},
		{"tcp4", "8.8.8.8:22", "has a port that is not allowed"},
		{"tcp4", "8.8.8.8:0", "has a port that is not allowed"},
		{"tcp4", "127.0.0.1:80", "is loopback, not public"},
		{"tcp6", "[::ffff:127.0.0.1]:80", "is loopback, not public"},
		{"tcp6", "[fe80::1%eth0]:80", "has a zone"},
		{"udp4", "8.8.8.8:443", "is not for TCP"},
		{"unix", "/run/docker.sock", "is not for TCP"},
		{"tcp", "example.com:443", "cannot be understood"},
		{"tcp", "", "cannot be understood"},
		{"tcp4", "8.8.8.8", "cannot be understood"},
	} {
		require.Equal(t, c.want, g.verdict(c.network, c.address), "%s %s", c.network, c.address)
	}
	for _, c := range []config.HTTPClient{
		{AllowedPorts: []int{0}}, {AllowedPorts: []int{65536}}, {AllowedPorts: []int{-1}},
		{AllowedPortRanges: []config.PortRange{{First: 0, Last: 9}}}, {AllowedPortRanges: []config.PortRange{{First: 9, Last: 8}}},
	} {
		_, err := newGuard(&c)
		require.Error(t, err)
	}
	g, err = newGuard(&config.HTTPClient{AllowedPortRanges: []config.PortRange{{First: 65530, Last: 65535}, {First: 63, Last: 65}}})
	require.NoError(t, err)
	for p := range 65536 {
		require.Equal(t, p >= 65530 || p >= 63 && p <= 65, g.ports.has(uint16(p)), p)
	}
}
