package egress

import (
	"net/netip"
)

// Class says what an address is for.
type Class uint8

// The classes of addresses. Only Public may be connected to.
const (
	Public        Class = iota
	Invalid             // the zero netip.Addr
	Unspecified         // 0.0.0.0/8, ::
	Loopback            // 127.0.0.0/8, ::1
	Private             // RFC 1918, unique local (RFC 4193), local-use translation (RFC 8215)
	LinkLocal           // 169.254.0.0/16, fe80::/10
	SiteLocal           // fec0::/10, RFC 3879
	CGNAT               // 100.64.0.0/10, RFC 6598
	Metadata            // where clouds hand out credentials to whoever asks
	Benchmark           // RFC 2544, RFC 5180
	Documentation       // RFC 5737, RFC 3849, RFC 9637
	Multicast           // 224.0.0.0/4, ff00::/8
	Broadcast           // 255.255.255.255
	Reserved            // everything else that is not global unicast
	Zoned               // a scope of one machine (RFC 4007), such as 2001:db9::1%eth0
)

var classNames = [...]string{
	Public: "public", Invalid: "invalid", Unspecified: "unspecified", Loopback: "loopback", Private: "private", LinkLocal: "link-local",
	SiteLocal: "site-local", CGNAT: "carrier-grade NAT", Metadata: "cloud metadata", Benchmark: "benchmark", Documentation: "documentation",
	Multicast: "multicast", Broadcast: "broadcast", Reserved: "reserved", Zoned: "zoned",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Classify says what a is for and whether it must not be connected to (protocol §7). It is a pure function over the IANA special-purpose registries
// (RFC 6890), and outside those only 2000::/3 of IPv6 is public, as nothing else is assigned.
//
// Forms that carry an IPv4 address are judged by it: IPv4-mapped addresses (RFC 4291) because that is what is dialled, and NAT64 (64:ff9b::/96, RFC
// 6052), 6to4 (RFC 3056) and Teredo (RFC 4380) because a translator on the way delivers to it. So 64:ff9b::7f00:1 is Loopback while
// 64:ff9b::808:808 is Public, which a gateway behind DNS64 needs. Two are never public: IPv4-compatible addresses, which nothing routes, and the
// local-use 64:ff9b:1::/48, whose embedded address depends on a prefix length that only its network knows.
func Classify(a netip.Addr) (class Class, blocked bool) {
	class = classify(a)
	return class, class != Public
}

func classify(a netip.Addr) Class {
	switch {
	case !a.IsValid():
		return Invalid
	case a.Zone() != "":
		if c := classify(a.WithZone("")); c != Public {
			return c
		}
		return Zoned
	}
	if a = a.Unmap(); a.Is4() {
		return find(table4, a, Public)
	}
	switch a { // before they are taken for IPv4-compatible addresses
	case netip.IPv6Unspecified():
		return Unspecified
	case netip.IPv6Loopback():
		return Loopback
	}
	inside, n := embedded(a)
	if n == 0 {
		return find(table6, a, Reserved)
	}
	for _, v4 := range inside[:n] {
		if c := find(table4, v4, Public); c != Public {
			return c
		}
	}
	if compatible.Contains(a) {
		return Reserved
	}
	return Public
}

type entry struct {
	net   netip.Prefix
	class Class
}

// find returns the class of the first network that holds a.
func find(table []entry, a netip.Addr, otherwise Class) Class {
	for _, e := range table {
		if e.net.Contains(a) {
			return e.class
		}
	}
	return otherwise
}

func at(network string, class Class) entry { return entry{netip.MustParsePrefix(network), class} }

// table4 is the IANA IPv4 Special-Purpose Address Registry and the multicast and reserved blocks of the IPv4 Address Space Registry. Left out, thus
// public, are the blocks that are globally reachable and hold no part of a local network: 192.31.196.0/24 and 192.175.48.0/24 (AS112) and
// 192.52.193.0/24 (AMT). 192.0.0.9 and 192.0.0.10 are called globally reachable too but answer for the *local* network's NAT and relay.
var table4 = []entry{
	at("169.254.169.254/32", Metadata), // most clouds
	at("168.63.129.16/32", Metadata),   // Azure
	at("100.100.100.200/32", Metadata), // Alibaba
	at("192.0.0.192/32", Metadata),     // Oracle, older form
	at("0.0.0.0/8", Unspecified),
	at("10.0.0.0/8", Private),
	at("100.64.0.0/10", CGNAT),
	at("127.0.0.0/8", Loopback),
	at("169.254.0.0/16", LinkLocal),
	at("172.16.0.0/12", Private),
	at("192.0.0.0/24", Reserved), // IETF protocol assignments
	at("192.0.2.0/24", Documentation),
	at("192.88.99.0/24", Reserved), // 6to4 relays, withdrawn by RFC 7526
	at("192.168.0.0/16", Private),
	at("198.18.0.0/15", Benchmark),
	at("198.51.100.0/24", Documentation),
	at("203.0.113.0/24", Documentation),
	at("224.0.0.0/4", Multicast),
	at("255.255.255.255/32", Broadcast),
	at("240.0.0.0/4", Reserved),
}

// table6 is the IANA IPv6 Special-Purpose Address Registry; its last entry is all of the global unicast space. Addresses that embed an IPv4 address
// never get here.
var table6 = []entry{
	at("fd00:ec2::254/128", Metadata),   // AWS
	at("fd00:ec2::23/128", Metadata),    // AWS, credentials of EKS pods
	at("fd20:ce::254/128", Metadata),    // Google
	at("fe80::a9fe:a9fe/128", Metadata), // OpenStack
	at("fd00:42::42/128", Metadata),     // Scaleway
	at("64:ff9b:1::/48", Private),       // local-use translation
	at("fc00::/7", Private),             // unique local
	at("fe80::/10", LinkLocal),
	at("fec0::/10", SiteLocal),
	at("ff00::/8", Multicast),
	at("2001:2::/48", Benchmark),
	at("2001:db8::/32", Documentation),
	at("3fff::/20", Documentation),
	at("2001::/23", Reserved), // IETF protocol assignments: anycast of local services, ORCHID, DRIP
	at("2000::/3", Public),
}

var (
	compatible = netip.MustParsePrefix("::/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// embedded returns the n IPv4 addresses inside an IPv6 address that is not IPv4-mapped.
func embedded(a netip.Addr) (list [2]netip.Addr, n int) {
	if !a.Is6() {
		return list, 0
	}
	b := a.As16()
	switch {
	case compatible.Contains(a), nat64.Contains(a):
		list[0] = netip.AddrFrom4([4]byte(b[12:16]))
		return list, 1
	case sixToFour.Contains(a):
		list[0] = netip.AddrFrom4([4]byte(b[2:6]))
		return list, 1
	case teredo.Contains(a): // the server, and the client's address with every bit turned
		list[0] = netip.AddrFrom4([4]byte(b[4:8]))
		list[1] = netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return list, 2
	}
	return list, 0
}
