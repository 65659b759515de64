package egress

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"dongate/config"
)

// Limits of client certificates.
const (
	// MaxPEMBytes bounds a certificate's and a key's PEM text, each (protocol §7).
	MaxPEMBytes = 64 << 10
	// maxKeyBytes bounds a key's binary form, as checking an RSA key that a stranger made up takes time in the cube of its length: at this bound, which
	// RSA keys of 8192 bits stay below, 10 ms instead of seconds.
	maxKeyBytes = 5 << 10
)

// parseMaterial turns PEM into a certificate that TLS can present. Errors of crypto/x509 may quote the material, so none is passed on.
func parseMaterial(certPEM, keyPEM []byte) (*tls.Certificate, *Refused) {
	switch {
	case len(certPEM) == 0 || len(keyPEM) == 0:
		return nil, refuse(ReasonMTLSKey, "a client certificate needs both certificate and privateKey")
	case len(certPEM) > MaxPEMBytes || len(keyPEM) > MaxPEMBytes:
		return nil, refuse(ReasonMTLSKey, "the client certificate or its key is over %d bytes of PEM", MaxPEMBytes)
	case !hasBlock(certPEM, func(b *pem.Block) bool { return b.Type == "CERTIFICATE" }):
		return nil, refuse(ReasonMTLSKey, "the client certificate holds no PEM block CERTIFICATE")
	case hasBlock(keyPEM, func(b *pem.Block) bool { return b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" }):
		return nil, refuse(ReasonMTLSKey, "the client certificate's key is encrypted; send it in the clear")
	case !hasBlock(keyPEM, func(b *pem.Block) bool { return strings.HasSuffix(b.Type, "PRIVATE KEY") }):
		return nil, refuse(ReasonMTLSKey, "the client certificate's key holds no PEM block PRIVATE KEY")
	case hasBlock(keyPEM, func(b *pem.Block) bool { return len(b.Bytes) > maxKeyBytes }):
		return nil, refuse(ReasonMTLSKey, "the client certificate's key is longer than an RSA key of 8192 bits")
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil && strings.Contains(err.Error(), "does not match") {
		return nil, refuse(ReasonMTLSKey, "the client certificate and its key do not belong together")
	}
	if err != nil {
		return nil, refuse(ReasonMTLSKey, "the client certificate or its key is PEM but not one that can be used (X.509; RSA, ECDSA or Ed25519)")
	}
	return &cert, nil
}

func hasBlock(text []byte, is func(*pem.Block) bool) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return false
		}
		if is(block) {
			return true
		}
		text = rest
	}
}

// quota limits requests with a client certificate: each costs a TLS handshake and a connection of its own. Safe for concurrent use.
type quota struct {
	limiter *rate.Limiter
	slots   chan struct{} // one element per request under way
}

func newQuota(r config.Rate, concurrent int) *quota {
	if concurrent <= 0 {
		concurrent = defaultMTLSConcurrent
	}
	return &quota{limiter: rate.NewLimiter(rate.Limit(max(r.RPS, 0)), max(r.Burst, 0)), slots: make(chan struct{}, concurrent)}
}

func (q *quota) off() bool { return q.limiter.Burst() == 0 }

// enter takes a slot, waiting for it as long as ctx lasts, and then a token, without waiting. A request that finds no slot costs no token, and one for
// which there is no token now does not queue for a slot. g, if it is not nil, knows while it waits.
func (q *quota) enter(ctx context.Context, g *Progress) (leave func(), err error) {
	if q.limiter.Tokens() < 1 {
		return nil, q.refuse()
	}
	none := refuse(ReasonMTLSQuota, "%d requests with a client certificate are under way at this gateway and none ended in time; try again later", cap(q.slots))
	if g != nil {
		g.queued.Store(none)
		defer g.queued.Store(nil)
	}
	select {
	case q.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, none
	}
	leave = func() { <-q.slots }
	if !q.limiter.Allow() {
		leave()
		return nil, q.refuse()
	}
	return leave, nil
}

func (q *quota) refuse() *Refused {
	if q.off() || q.limiter.Limit() == 0 {
		return refuse(ReasonMTLSQuota, "this gateway's quota of requests with a client certificate is used up")
	}
	wait := time.Duration((1 - q.limiter.Tokens()) / float64(q.limiter.Limit()) * float64(time.Second))
	return refuse(ReasonMTLSQuota, "this gateway's quota of requests with a client certificate is used up; try again in %s", max(wait, time.Second).Round(time.Second))
}
