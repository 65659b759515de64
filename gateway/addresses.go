package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// maxAddresses bounds the client addresses whose buckets are remembered.
const maxAddresses = 100_000

// allowAddress takes a token of the client's address; without a limit there always
// is one.
func (srv *Server) allowAddress(r *http.Request, now time.Time) (bool, time.Duration) {
	user := &srv.current().config.UserServer
	if user.PerAddress.RPS <= 0 {
		return true, 0
	}
	return srv.addresses.Allow(clientAddress(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), user.TrustedProxies).String(), now)
}

// clientAddress is the address a request counts for: the peer's, or, when the
// peer is a trusted proxy, the last address over all X-Forwarded-For lines that
// is not itself trusted. An unreadable entry makes it the peer's; no other header
// counts (protocol §8, trustedProxies).
func clientAddress(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	peer, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	peer = peer.Unmap().WithZone("")
	if !isTrusted(peer, trusted) {
		return peer
	}
	for i := len(forwarded) - 1; i >= 0; i-- {
		entries := strings.Split(forwarded[i], ",")
		for j := len(entries) - 1; j >= 0; j-- {
			a, err := netip.ParseAddr(strings.TrimSpace(entries[j]))
			if err != nil {
				return peer
			}
			if a = a.Unmap().WithZone(""); !isTrusted(a, trusted) {
				return a
			}
		}
	}
	return peer
}

func isTrusted(a netip.Addr, trusted []netip.Prefix) bool {
	for _, p := range trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
