package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// Queue bounds the jobs of one kind that wait for their transaction.
type Queue struct {
	TPS float64 // transactions sent per second, for Retry-After
	// Capacity less Margin is how many jobs may wait before new ones get 429. They are known up to [store.MaxCount] per state, so that more
	// than that is refused.
	Capacity, Margin int
}

// APIKey is a secret that callers send, and the name it is counted under. The name is not secret.
type APIKey struct {
	Name   string
	Secret []byte
}

// VersionInfo is what /version answers.
type VersionInfo struct{ Name, Version, Build string }

// SignatureChecker checks the signature of a unified user decryption.
type SignatureChecker interface {
	// Signed reports whether the user's own key made it, without asking anybody. It is called for any number of requests at a time.
	Signed(r *fhevm.UnifiedUserDecrypt) bool
	// Check is for a request that is not Signed: the user may be a contract. It returns nil when the signature holds, an error that is
	// [fhevm.ErrSignature] when it does not, and another error when that could not be found out.
	Check(ctx context.Context, r *fhevm.UnifiedUserDecrypt) error
}

// Options are what a Handler works with. Store, Limits, Signatures and HostChains are required.
type Options struct {
	Store *store.Store
	Log   *zap.Logger      // nil: silent
	Now   func() time.Time // nil: time.Now; should be the store's clock

	Limits               map[fhevm.Kind]Queue // of every kind
	ReadinessConcurrency int                  // readiness checks at a time, for Retry-After
	RetryAfter           fhevm.RetryAfter
	// A completed user decryption is handed out once Threshold (where its own is not known) and AdditionalShares shares are stored, or
	// AdditionalSharesTimeout after its completion (relayer reference §4.7).
	Threshold, AdditionalShares int64
	AdditionalSharesTimeout     time.Duration

	Signatures SignatureChecker
	HostChains func(chainID uint64) bool
	// Blocked tells why no transaction can be paid or sent at present, if so: new requests get 503 with the label. nil: never.
	Blocked func() (fhevm.Label, bool)
	// KeyURL returns the key material; ok is false before it is known. nil: never known.
	KeyURL func() (key, crs fhevm.KeyMaterial, ok bool)
	// Notify is called after a job was inserted. It must not block. nil: nobody is told.
	Notify func(fhevm.Kind)

	Keys []APIKey // none: callers need no key
	// PerKeyRPS and PerAddressRPS bound the POSTs of one key and of one client address per second; 0: no bound. A burst of one second's worth,
	// at least one, is allowed. Of IPv6 a /64 counts as one address.
	PerKeyRPS, PerAddressRPS float64
	MaxHandles, MaxContracts int // per request; 0: as many as a body holds
	// ClientIP finds a client's address behind the operator's proxies. nil: the peer's.
	ClientIP func(*http.Request) netip.Addr
	// AllowOrigin tells whether pages of an origin may call from a browser, with cookies. nil: none.
	AllowOrigin func(origin string) bool

	Version VersionInfo
	// Health returns what the relayer depends on and whether it works. It is asked at most once a second, for at most 5 s. nil: nothing.
	Health   func(ctx context.Context) map[string]bool
	Draining func() bool           // nil: never
	Metrics  prometheus.Registerer // nil: not registered
}

// complete checks o and fills in what may be left out.
func (o *Options) complete() error {
	switch {
	case o.Store == nil || o.Signatures == nil || o.HostChains == nil:
		return errors.New("relayer API: store, signatures and host chains are required")
	case o.Threshold <= 0:
		return errors.New("relayer API: the threshold is not above zero")
	}
	for _, k := range fhevm.Kinds {
		q, ok := o.Limits[k]
		if room := q.Capacity - q.Margin; !ok || room <= 0 || room > store.MaxCount {
			return fmt.Errorf("relayer API: the queue of %s has room for %d jobs; 1 to %d are possible", k, room, store.MaxCount)
		}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Blocked == nil {
		o.Blocked = func() (fhevm.Label, bool) { return "", false }
	}
	if o.KeyURL == nil {
		o.KeyURL = func() (key, crs fhevm.KeyMaterial, ok bool) { return }
	}
	if o.Notify == nil {
		o.Notify = func(fhevm.Kind) {}
	}
	if o.ClientIP == nil {
		o.ClientIP = peer
	}
	if o.Health == nil {
		o.Health = func(context.Context) map[string]bool { return nil }
	}
	if o.Draining == nil {
		o.Draining = func() bool { return false }
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	return nil
}

func peer(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr().Unmap().WithZone("")
}
