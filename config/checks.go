package config

import (
	"fmt"
	"mime"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ethereum/go-ethereum/common"
)

// maxActionTimeout is the longest an action may take (protocol §7).
const maxActionTimeout = 60 * time.Second

// builtinBlockedHeaders are what a node may never set (protocol §7): what the
// HTTP client itself decides, and what a proxy would be believed for.
var builtinBlockedHeaders = []string{
	"host", "content-length", "transfer-encoding", "user-agent", "upgrade", "expect", "connection", "keep-alive",
	"te", "trailer", "forwarded", "proxy-*", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
}

// The checks below return the value in its normal form, or what to write
// instead, to follow "found …; write ".

func acceptText(s string) (string, string) { return s, "" }

func checkHost(s string) (string, string) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.String(), ""
	}
	for _, r := range s {
		if !isAlnum(r) && r != '.' && r != '-' && r != '_' {
			return "", `an IP address (IPv6 without brackets) or a host name; the port goes in "port"`
		}
	}
	return s, ""
}

func checkPath(s string) (string, string) {
	const want = `a path that starts with "/", without spaces, "?", "#" and "%"`
	if s[0] != '/' {
		return "", want
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || strings.ContainsRune("?#%", r) {
			return "", want
		}
	}
	return s, ""
}

func checkFileName(s string) (string, string) {
	if strings.ContainsRune(s, 0) {
		return "", "a file name without NUL bytes"
	}
	return s, ""
}

func checkContentType(s string) (string, string) {
	const want = `a media type such as "application/json", without line breaks`
	for _, r := range s {
		if r < ' ' || r > '~' {
			return "", want
		}
	}
	if media, _, err := mime.ParseMediaType(s); err != nil || !strings.Contains(media, "/") {
		return "", want
	}
	return s, ""
}

// checkName accepts printable text of at most limit bytes: a name is padded
// with zero bytes on the wire and shown in logs, so it holds no control
// characters.
func checkName(limit int) func(string) (string, string) {
	return func(s string) (string, string) {
		want := fmt.Sprintf("1 to %d bytes of printable text", limit)
		if s == "" {
			return "", want
		}
		if len(s) > limit {
			return "", fmt.Sprintf("%s (these are %d bytes)", want, len(s))
		}
		for _, r := range s {
			if !unicode.IsPrint(r) {
				return "", want
			}
		}
		return s, ""
	}
}

func checkServiceName(s string) (string, string) {
	if strings.Contains(s, ".") {
		return "", `a name without ".": a method's text before its first "." names the service`
	}
	return checkName(128)(s)
}

// checkOrigin accepts what a browser sends as Origin, and a wildcard for the
// subdomains of an https host.
func checkOrigin(s string) (string, string) {
	const want = `an origin such as "https://app.example.com" or "https://*.example.com": scheme, host and port, no path and no trailing "/"`
	s = strings.ToLower(s)
	host := s
	if rest, wildcard := strings.CutPrefix(s, "https://*."); wildcard {
		host = "https://" + rest
		if !strings.Contains(rest, ".") {
			return "", want + "; a wildcard needs a domain with a dot"
		}
	}
	u, err := url.Parse(host)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != host || u.User != nil {
		return "", want
	}
	for _, r := range u.Hostname() {
		if !isAlnum(r) && !strings.ContainsRune(".-_:", r) {
			return "", want + "; an international name goes in its xn-- form"
		}
	}
	switch p := u.Port(); {
	case strings.HasPrefix(u.Hostname(), "."), u.Hostname() == "":
		return "", want
	case p == "" && strings.HasSuffix(u.Host, ":"):
		return "", want
	case u.Scheme == "https" && p == "443", u.Scheme == "http" && p == "80":
		return "", "the origin without its default port, as browsers send it"
	case p != "":
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "", want
		}
	}
	return s, ""
}

func checkScheme(s string) (string, string) {
	s = strings.ToLower(s)
	if s != "http" && s != "https" {
		return "", `"http" or "https"`
	}
	return s, ""
}

func checkMethod(s string) (string, string) {
	s = strings.ToUpper(s)
	if !isToken(s) || s == "CONNECT" || s == "TRACE" {
		return "", `an HTTP method such as "GET"; CONNECT and TRACE are never allowed`
	}
	return s, ""
}

func checkHeader(s string) (string, string) {
	s = strings.ReplaceAll(strings.ToLower(s), "_", "-")
	if !isToken(strings.TrimSuffix(s, "*")) || strings.Contains(strings.TrimSuffix(s, "*"), "*") {
		return "", `a header's name such as "x-api-key", or a prefix such as "x-internal-*"`
	}
	return s, ""
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	for _, r := range s {
		if !isAlnum(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return false
		}
	}
	return s != ""
}

func isAlnum(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func parsePort(n *node) (int, string) {
	x, ok := value{n: n}.float(true)
	if !ok || x < 1 || x > 65535 {
		return 0, "a port from 1 to 65535"
	}
	return int(x), ""
}

func printPort(p *printer, port int) { p.integer(int64(port)) }

func parsePortRange(n *node) (PortRange, string) {
	const want = `a range of ports from 1 to 65535 such as "8000-8100", or one port such as "8443"`
	if n.kind != '"' {
		return PortRange{}, want
	}
	first, last, isRange := strings.Cut(n.text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if errA != nil || errB != nil || a < 1 || b < a {
		return PortRange{}, want
	}
	return PortRange{uint16(a), uint16(b)}, ""
}

func printPortRange(p *printer, r PortRange) {
	p.str(fmt.Sprintf("%d-%d", r.First, r.Last))
}

func parseAddr(n *node) (netip.Addr, string) {
	const want = `an IP address such as "192.0.2.7"`
	if n.kind != '"' {
		return netip.Addr{}, want
	}
	addr, err := netip.ParseAddr(n.text)
	if err != nil || addr.Zone() != "" {
		if strings.Contains(n.text, "/") {
			return netip.Addr{}, want + "; a network goes in the member whose name ends in CIDR"
		}
		return netip.Addr{}, want
	}
	return addr.Unmap(), ""
}

func printAddr(p *printer, a netip.Addr) { p.str(a.String()) }

// parsePrefix accepts a CIDR, whose host bits are cleared, or one address.
func parsePrefix(n *node) (netip.Prefix, string) {
	const want = `a network such as "10.0.0.0/8", or one address`
	if n.kind != '"' {
		return netip.Prefix{}, want
	}
	if addr, err := netip.ParseAddr(n.text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), ""
	}
	prefix, err := netip.ParsePrefix(n.text)
	if err != nil {
		return netip.Prefix{}, want
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), ""
}

func printPrefix(p *printer, x netip.Prefix) { p.str(x.String()) }

// addressField is a node's address. The checksum of a mixed-case address is
// not verified: files in the wild have addresses in any case.
func addressField(name string, dst *common.Address, doc string) field {
	return field{
		name: name, kind: "a string", doc: doc, scalar: 's',
		reset: func() { *dst = common.Address{} },
		read: func(v value) {
			const want = "an address: 0x and 40 hex digits, in quotes"
			if v.n.kind != '"' {
				v.fail(want)
				return
			}
			digits, ok := strings.CutPrefix(v.n.text, "0x")
			if !ok {
				digits, ok = strings.CutPrefix(v.n.text, "0X")
			}
			if !ok || len(digits) != 2*common.AddressLength || !common.IsHexAddress(digits) {
				if len(digits) != len(v.n.text) && len(digits) != 2*common.AddressLength {
					v.fail(fmt.Sprintf("%s (these are %d)", want, len(digits)))
					return
				}
				v.fail(want)
				return
			}
			*dst = common.HexToAddress(digits)
		},
		write: func(p *printer) { p.str(dst.Hex()) },
	}
}
