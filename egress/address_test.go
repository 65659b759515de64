package egress

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// conformance: 7.refused.address
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  Class
		addrs string
	}{
		{Unspecified, "0.0.0.0 0.0.0.1 0.255.255.255 :: ::ffff:0.0.0.0 64:ff9b:: ::2"},
		{Public, "1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.215.14"},
		{Private, "10.0.0.0 10.1.2.3 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255"},
		{Public, "172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0"},
		{CGNAT, "100.64.0.0 100.127.255.255"},
		{Public, "100.63.255.255 100.128.0.0"},
		{Loopback, "127.0.0.0 127.0.0.1 127.0.0.53 127.255.255.255 ::1"},
		{Public, "126.255.255.255 128.0.0.0"},
		{LinkLocal, "169.254.0.0 169.254.255.255 169.254.169.253 fe80::1 febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{Metadata, "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fe80::a9fe:a9fe fd00:42::42"},
		{Public, "169.253.255.255 169.255.0.0 168.63.129.15 168.63.129.17"},
		{Reserved, "192.0.0.0 192.0.0.8 192.0.0.9 192.0.0.10 192.0.0.170 192.0.0.255 192.88.99.0 192.88.99.1 192.88.99.255"},
		{Documentation, "192.0.2.0 192.0.2.255 198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 2001:db8::1 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 3fff::1 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{Public, "192.0.1.0 192.0.3.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 192.88.98.255 192.88.100.0"},
		{Public, "192.31.196.1 192.52.193.1 192.175.48.1 2620:4f:8000::1"},
		{Benchmark, "198.18.0.0 198.19.255.255 2001:2::1 2001:2:0:ffff:ffff:ffff:ffff:ffff"},
		{Public, "198.17.255.255 198.20.0.0"},
		{Multicast, "224.0.0.0 224.0.0.1 233.252.0.1 239.255.255.255 ff00:: ff02::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{Reserved, "240.0.0.0 255.255.255.254"},
		{Broadcast, "255.255.255.255"},
		{Public, "223.255.255.255"},

		{Private, "fc00:: fd00::1 fd12:3456:789a::1 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{SiteLocal, "fec0:: feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{Public, "2000:: 2606:4700:4700::1111 2a00:1450:4001::200e 2001:200::1 2001:4860:4860::8888 2001:db7:ffff:: 2001:db9:: 3ffe:ffff:: 3fff:1000:: 3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{Reserved, "100::1 100:0:0:1::1 200::1 400:: 1fff:ffff:: 4000:: 5f00::1 8000:: e000:: fbff:: fe00::1 fe7f:: ::1:0:0:0 ::fffe:0:0 ::ffff:0:7f00:1"},
		{Reserved, "2001:1::1 2001:1::2 2001:1::3 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"},

		// IPv4-mapped: what is dialled is the IPv4 address.
		{Loopback, "::ffff:127.0.0.1 ::ffff:7f00:1 0:0:0:0:0:ffff:127.1.2.3"},
		{Private, "::ffff:10.0.0.1 ::ffff:192.168.1.1"},
		{Metadata, "::ffff:169.254.169.254 ::ffff:168.63.129.16"},
		{Public, "::ffff:8.8.8.8"},
		// IPv4-compatible: never public.
		{Loopback, "::127.0.0.1 ::7f00:1"},
		{Private, "::10.0.0.1"},
		{Reserved, "::8.8.8.8"},
		// NAT64.
		{Loopback, "64:ff9b::7f00:1 64:ff9b::127.0.0.1"},
		{Private, "64:ff9b::10.0.0.1 64:ff9b::192.168.0.1 64:ff9b:1::1 64:ff9b:1::8.8.8.8 64:ff9b:1:ffff:ffff:ffff:ffff:ffff"},
		{Metadata, "64:ff9b::a9fe:a9fe 64:ff9b::169.254.169.254"},
		{CGNAT, "64:ff9b::100.64.0.1"},
		{Public, "64:ff9b::8.8.8.8"},
		{Reserved, "64:ff9b::1:7f00:1 64:ff9b:2::1 64:ff9a::1"},
		// 6to4: the address is in the second and third group.
		{Loopback, "2002:7f00:1:: 2002:7f00:1::1"},
		{Private, "2002:a00:1:: 2002:c0a8:101:1:2:3:4:5"},
		{LinkLocal, "2002:a9fe:1::"},
		{Metadata, "2002:a9fe:a9fe::1"},
		{Public, "2002:808:808::1"},
		// Teredo: server in the third and fourth group, the client's inverted at the end.
		{Loopback, "2001:0:7f00:1:0:0:f7f7:f7f7 2001:0:808:808:0:0:80ff:fffe"},
		{Private, "2001:0:808:808:0:0:f5ff:fffe"},
		{Metadata, "2001:0:808:808:0:0:5601:5601"},
		{Public, "2001:0:808:808:0:0:f7f7:f7f7"},
		// Zones.
		{LinkLocal, "fe80::1%eth0 fe80::1%25"},
		{Loopback, "::1%lo ::ffff:127.0.0.1%lo"},
		{Zoned, "2606:4700:4700::1111%eth0 ::ffff:8.8.8.8%1"},
	} {
		for text := range strings.FieldsSeq(c.addrs) {
			a := netip.MustParseAddr(text)
			class, blocked := Classify(a)
			require.Equal(t, c.want, class, "%s: %s", text, class)
			require.Equal(t, class != Public, blocked, text)
			require.Equal(t, class, dumbClass(a), "twin of %s", text)
		}
	}
	class, blocked := Classify(netip.Addr{})
	require.Equal(t, Invalid, class)
	require.True(t, blocked)
	require.Equal(t, "unknown", Class(200).String())
	for c := Public; c <= Zoned; c++ {
		require.NotEmpty(t, c.String())
	}
}

// dumbClass is Classify again, without tables, prefixes or embedded addresses as values: bounds of integers, and the digits of addresses.
func dumbClass(a netip.Addr) Class {
	if a == (netip.Addr{}) {
		return Invalid
	}
	if zone := a.Zone(); zone != "" {
		if c := dumbClass(netip.MustParseAddr(strings.TrimSuffix(a.String(), "%"+zone))); c != Public {
			return c
		}
		return Zoned
	}
	if a.Is4() {
		b := a.As4()
		return dumb4(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	x := hex.EncodeToString(b[:]) // 32 digits
	v4 := func(from int) uint32 {
		var n uint32
		fmt.Sscanf(x[from:from+8], "%08x", &n)
		return n
	}
	zeros := func(n int) bool { return strings.HasPrefix(x, strings.Repeat("0", n)) }
	switch {
	case zeros(32):
		return Unspecified
	case zeros(31) && x[31] == '1':
		return Loopback
	case zeros(20) && x[20:24] == "ffff":
		return dumb4(v4(24))
	case zeros(24):
		if c := dumb4(v4(24)); c != Public {
			return c
		}
		return Reserved
	case x[:24] == "0064ff9b0000000000000000":
		return dumb4(v4(24))
	case x[:12] == "0064ff9b0001":
		return Private
	case x[:4] == "2002":
		return dumb4(v4(4))
	case x[:8] == "20010000":
		if server := dumb4(v4(8)); server != Public {
			return server
		}
		return dumb4(^v4(24))
	case x == "fd000ec2000000000000000000000254", x == "fd000ec2000000000000000000000023", x == "fd2000ce000000000000000000000254",
		x == "fe8000000000000000000000a9fea9fe", x == "fd000042000000000000000000000042":
		return Metadata
	case x[:2] == "ff":
		return Multicast
	case x[:2] == "fc" || x[:2] == "fd":
		return Private
	case x[:3] >= "fe8" && x[:3] <= "feb":
		return LinkLocal
	case x[:3] >= "fec" && x[:3] <= "fef":
		return SiteLocal
	case x[:12] == "200100020000":
		return Benchmark
	case x[:8] == "20010db8", x[:5] == "3fff0":
		return Documentation
	case x[:8] <= "200101ff" && x[:4] == "2001":
		return Reserved
	case x[0] == '2' || x[0] == '3':
		return Public
	}
	return Reserved
}

func dumb4(n uint32) Class {
	a, b, c, d := n>>24, n>>16&255, n>>8&255, n&255
	switch {
	case n == 0xa9fea9fe, n == 168<<24|63<<16|129<<8|16, n == 100<<24|100<<16|100<<8|200, a == 192 && b == 0 && c == 0 && d == 192:
		return Metadata
	case n == 0xffffffff:
		return Broadcast
	case a == 0:
		return Unspecified
	case a == 10, a == 172 && b/16 == 1, a == 192 && b == 168:
		return Private
	case a == 127:
		return Loopback
	case a == 100 && b/64 == 1:
		return CGNAT
	case a == 169 && b == 254:
		return LinkLocal
	case a == 192 && b == 0 && c == 0, a == 192 && b == 88 && c == 99, a >= 240:
		return Reserved
	case a == 192 && b == 0 && c == 2, a == 198 && b == 51 && c == 100, a == 203 && b == 0 && c == 113:
		return Documentation
	case a == 198 && b/2 == 9:
		return Benchmark
	case a >= 224:
		return Multicast
	}
	return Public
}

// interesting draws addresses near the bounds of every table entry, embedded in every form.
func interesting(t *rapid.T) netip.Addr {
	var v4 [4]byte
	if rapid.Bool().Draw(t, "near4") {
		v4 = near(rapid.SampledFrom(table4).Draw(t, "entry4").net, t).As4()
	} else {
		copy(v4[:], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
	}
	var b [16]byte
	copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6"))
	switch rapid.IntRange(0, 8).Draw(t, "form") {
	case 0:
		return netip.AddrFrom4(v4)
	case 1:
		return netip.AddrFrom16(netip.AddrFrom4(v4).As16())
	case 2: // IPv4-compatible
		b = [16]byte{12: v4[0], v4[1], v4[2], v4[3]}
	case 3: // NAT64
		b = [16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: v4[0], v4[1], v4[2], v4[3]}
	case 4:
		copy(b[:], []byte{0x20, 2, v4[0], v4[1], v4[2], v4[3]})
	case 5:
		copy(b[:], []byte{0x20, 1, 0, 0, v4[0], v4[1], v4[2], v4[3]})
	case 6:
		copy(b[:], []byte{0x20, 1, 0, 0, 8, 8, 8, 8})
		copy(b[12:], []byte{^v4[0], ^v4[1], ^v4[2], ^v4[3]})
	case 7:
		return near(rapid.SampledFrom(table6).Draw(t, "entry6").net, t)
	}
	a := netip.AddrFrom16(b)
	if rapid.IntRange(0, 9).Draw(t, "zone") == 0 {
		a = a.WithZone("eth0")
	}
	return a
}

func near(p netip.Prefix, t *rapid.T) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	for _, a := range []netip.Addr{p.Addr(), last, p.Addr().Prev(), last.Next()}[rapid.IntRange(0, 3).Draw(t, "side"):] {
		if a.IsValid() {
			return a
		}
	}
	return p.Addr()
}

func TestClassifyTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := interesting(t)
		class, blocked := Classify(a)
		if want := dumbClass(a); class != want || blocked != (want != Public) {
			t.Fatalf("%s: %s, twin %s", a, class, want)
		}
	})
}

func FuzzClassify(f *testing.F) {
	for _, e := range append(table4, table6...) {
		f.Add(e.net.Addr().AsSlice(), "")
	}
	f.Add(netip.MustParseAddr("64:ff9b::7f00:1").AsSlice(), "eth0")
	f.Fuzz(func(t *testing.T, b []byte, zone string) {
		a, _ := netip.AddrFromSlice(b)
		if a.Is6() && !a.Is4In6() {
			a = a.WithZone(zone)
		}
		class, blocked := Classify(a)
		require.Equal(t, dumbClass(a), class)
		require.Equal(t, class != Public, blocked)
	})
}
