package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// Lengths of DNS names in their text form, RFC 1035 §2.3.4.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// target is where a URL points.
type target struct {
	host    string     // lower-case name, or an address in its canonical form without brackets
	literal netip.Addr // valid when host is an address
	port    string     // as in the URL: "" for the scheme's own, else 1..65535 in its only spelling
}

// authority is the host and port as they stand in a URL.
func (t target) authority() string {
	host := t.host
	if t.literal.Is6() {
		host = "[" + host + "]"
	}
	if t.port != "" {
		host += ":" + t.port
	}
	return host
}

// parseTarget judges the authority of a URL without its userinfo. It accepts names of letters, digits, hyphens and underscores, dotted IPv4 addresses in
// their only canonical spelling and bracketed IPv6 addresses without a zone. Everything else is refused here, because resolvers differ in what they
// make of it: 127.1, 2130706433, 0x7f000001 and 0177.0.0.1 are 127.0.0.1 to inet_aton.
func parseTarget(authority string) (target, *Refused) {
	if rest, ok := strings.CutPrefix(authority, "["); ok {
		inside, port, ok := strings.Cut(rest, "]")
		if !ok {
			return target{}, refuse(ReasonHost, "the URL's host has a bracket that is not closed")
		}
		return parseIPv6(inside, port)
	}
	host, port, found := strings.Cut(authority, ":")
	if found {
		port = ":" + port
	}
	var t target
	var err *Refused
	if t.port, err = parsePort(port); err != nil {
		return t, err
	}
	if err := checkName(host); err != nil {
		return t, err
	}
	t.host = strings.ToLower(host) // after the check that it is ASCII: the Kelvin sign has a lower case, k
	if !endsInNumber(t.host) {
		return t, checkLocal(t.host)
	}
	a, parseErr := netip.ParseAddr(t.host) // has no colon, and package netip takes no number with a zero before it
	if parseErr != nil {
		return t, refuse(ReasonHost, "the host %s is a number but not a canonical address; write an address such as 192.0.2.7 or a name", t.host)
	}
	t.literal = a
	return t, nil
}

func parseIPv6(inside, port string) (target, *Refused) {
	var t target
	var err *Refused
	if t.port, err = parsePort(port); err != nil {
		return t, err
	}
	a, parseErr := netip.ParseAddr(inside)
	switch {
	case strings.Contains(inside, "%"):
		return t, refuse(ReasonHost, "the URL's host has a zone; write an address without one")
	case parseErr != nil || !a.Is6():
		return t, refuse(ReasonHost, "the URL's host in brackets is not an IPv6 address")
	}
	t.host, t.literal = a.String(), a
	return t, nil
}

// parsePort takes what stands behind the host: nothing, or a colon and a number.
func parsePort(s string) (string, *Refused) {
	if s == "" {
		return "", nil
	}
	digits, ok := strings.CutPrefix(s, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 || strconv.FormatUint(n, 10) != digits {
		return "", refuse(ReasonPort, "the URL's port is not a number from 1 to 65535 without leading zeros")
	}
	return digits, nil
}

func checkName(host string) *Refused {
	name := strings.TrimSuffix(host, ".") // a fully qualified name
	if name == "" {
		return refuse(ReasonHost, "the URL has no host")
	}
	if len(name) > maxHostBytes {
		return refuse(ReasonHost, "the URL's host is over %d bytes", maxHostBytes)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabelBytes {
			return refuse(ReasonHost, "the URL's host has a label of no or over %d bytes", maxLabelBytes)
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return refuse(ReasonHost, "the URL's host has a label that starts or ends with a hyphen")
		}
		for _, r := range label {
			if !isHostChar(r) {
				return refuse(ReasonHost, "the URL's host has the character %+q; write names in ASCII letters, digits, '-' and '.' (international names as xn--...)", r)
			}
		}
	}
	return nil
}

func isHostChar(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

// endsInNumber reports whether some resolver could take the name for an IPv4 address: its last label is a decimal, octal or hexadecimal number (the
// same test as in the WHATWG URL standard). No top-level domain is one.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits, hex := strings.CutPrefix(last, "0x")
	for _, c := range []byte(digits) {
		if !('0' <= c && c <= '9' || hex && 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

// checkLocal refuses the names of the machine itself (RFC 6761 §6.3 and those of common hosts files).
func checkLocal(host string) *Refused {
	name := strings.TrimSuffix(host, ".")
	top := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case top == "localhost", top == "localdomain", name == "localhost4", name == "localhost6", name == "ip6-localhost", name == "ip6-loopback":
		return refuse(ReasonHost, "the host %s is the gateway itself; write a public name or address", host)
	}
	return nil
}
