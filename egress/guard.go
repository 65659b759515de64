package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"dongate/config"
)

// guard decides which addresses and ports may be connected to. It never changes.
type guard struct {
	allowed, blocked []netip.Prefix
	ports            portSet
}

func newGuard(c *config.HTTPClient) (*guard, error) {
	g := &guard{allowed: networks(c.AllowedIPs, c.AllowedIPsCIDR), blocked: networks(c.BlockedIPs, c.BlockedIPsCIDR)}
	if len(c.AllowedPorts) == 0 && len(c.AllowedPortRanges) == 0 {
		g.ports.add(80, 80)
		g.ports.add(443, 443)
	}
	for _, p := range c.AllowedPorts {
		if p < 1 || p > 65535 {
			return nil, fmt.Errorf("allowed port %d is not in 1..65535", p)
		}
		g.ports.add(uint16(p), uint16(p))
	}
	for _, r := range c.AllowedPortRanges {
		if r.First < 1 || r.Last < r.First {
			return nil, fmt.Errorf("allowed ports %d-%d are not a range", r.First, r.Last)
		}
		g.ports.add(r.First, r.Last)
	}
	return g, nil
}

// networks puts addresses and networks into one list, IPv4-mapped ones as IPv4, which is how they are dialled.
func networks(addrs []netip.Addr, prefixes []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range addrs {
		a = a.WithZone("").Unmap()
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	return out
}

// check says why a must not be connected to; "" if it may. What the configuration blocks wins, also inside an address that embeds it; what it allows
// is re-admitted in exactly that form (protocol §7).
func (g *guard) check(a netip.Addr) string {
	if a.Zone() != "" {
		return "has a zone"
	}
	a = a.Unmap()
	inside, n := embedded(a)
	for _, p := range g.blocked {
		if p.Contains(a) || n > 0 && p.Contains(inside[0]) || n > 1 && p.Contains(inside[1]) {
			return "is blocked by this gateway's configuration"
		}
	}
	for _, p := range g.allowed {
		if p.Contains(a) {
			return ""
		}
	}
	if class, blocked := Classify(a); blocked {
		return "is " + class.String() + ", not public"
	}
	return ""
}

// seen is what the attempts of one dial met: several addresses of a name, two of them possibly at the same time.
type seen struct {
	permitted, refused atomic.Bool
	why                atomic.Pointer[string]
}

// control is the body of Dialer.ControlContext. address is the literal address and port the next system call connects to.
func (g *guard) control(s *seen, network, address string) error {
	why := g.verdict(network, address)
	if why == "" {
		s.permitted.Store(true)
		return nil
	}
	s.why.CompareAndSwap(nil, &why)
	s.refused.Store(true)
	return errRefusedAddress
}

var errRefusedAddress = errors.New("egress: address refused")

func (g *guard) verdict(network, address string) string {
	if !strings.HasPrefix(network, "tcp") {
		return "is not for TCP"
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return "cannot be understood"
	}
	if !g.ports.has(ap.Port()) {
		return "has a port that is not allowed"
	}
	return g.check(ap.Addr())
}

// outcome turns a failed dial into a refusal when every address of the host was refused, so that nothing was sent. The address itself stays
// out of the text: what our resolver answers is not for strangers.
func (s *seen) outcome(host string, err error) error {
	if s.refused.Load() && !s.permitted.Load() {
		return refuse(ReasonAddress, "the host %s stands for an address that %s; actions can reach public addresses only", shown(host), *s.why.Load())
	}
	return err
}

// portSet has one bit per port.
type portSet [1024]uint64

func (s *portSet) add(first, last uint16) {
	for p := int(first); p <= int(last); p++ {
		s[p/64] |= 1 << (p % 64)
	}
}

func (s *portSet) has(p uint16) bool { return s[p/64]&(1<<(p%64)) != 0 }
