package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"dongate/ratelimit"
)

// apiKeyHeader is the header, and the cookie, in which a key comes unless it is a bearer token, as the SDK sends it.
const apiKeyHeader = "x-api-key"

// keyring is the API keys by their hash.
type keyring []struct {
	name string
	hash [sha256.Size]byte
}

func newKeyring(keys []APIKey) (keyring, error) {
	out := make(keyring, len(keys))
	for i, k := range keys {
		if k.Name == "" || len(k.Secret) == 0 {
			return nil, errors.New("relayer API: an API key needs a name and a secret")
		}
		out[i].name, out[i].hash = k.Name, sha256.Sum256(k.Secret)
		for _, other := range out[:i] {
			if other.name == k.Name || other.hash == out[i].hash {
				return nil, fmt.Errorf("relayer API: the API key %q is there twice", k.Name)
			}
		}
	}
	return out, nil
}

// find returns the name of a key. Without any, everybody is known and has no name. How long it takes says nothing about the keys.
func (k keyring) find(presented string) (name string, known bool) {
	if len(k) == 0 {
		return "", true
	}
	hash, at := sha256.Sum256([]byte(presented)), -1
	for i := range k {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k[i].hash[:]), i, at)
	}
	if at < 0 {
		return "", false
	}
	return k[at].name, true
}

// presentedKey returns the key that a request carries: that of the header, else the bearer token, else that of the cookie. A cookie, which a
// browser sends on its own, counts only for pages of this host and of allowed origins.
func presentedKey(r *http.Request, allowed func(origin string) bool) string {
	if key := r.Header.Get(apiKeyHeader); key != "" {
		return key
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && token != "" {
		return strings.TrimSpace(token)
	}
	cookie, err := r.Cookie(apiKeyHeader)
	if err != nil {
		return ""
	}
	if origin := r.Header.Get("Origin"); origin != "" && (allowed == nil || !allowed(origin)) {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return ""
		}
	}
	return cookie.Value
}

// maxAddresses bounds the addresses whose buckets are remembered.
const maxAddresses = 100_000

// quotas are the rates of POSTs; nil: none.
type quotas struct{ limiter *ratelimit.Keyed }

func newQuotas(o *Options) *quotas {
	if o.PerAddressRPS <= 0 && o.PerKeyRPS <= 0 {
		return nil
	}
	rate := func(rps float64) ratelimit.Rate {
		return ratelimit.Rate{RPS: rps, Burst: int(min(max(1, math.Ceil(rps)), math.MaxInt32))}
	}
	return &quotas{ratelimit.NewKeyed(
		ratelimit.Tier{Rate: rate(o.PerAddressRPS), MaxKeys: maxAddresses},
		ratelimit.Tier{Rate: rate(o.PerKeyRPS), MaxKeys: max(1, len(o.Keys))})}
}

// take returns 0 where the POST is within the rates, else how long to wait. A caller without a known key counts for its address alone.
func (q *quotas) take(address netip.Addr, key string, now time.Time) time.Duration {
	if q == nil {
		return 0
	}
	if address.Is6() {
		if prefix, err := address.WithZone("").Prefix(64); err == nil {
			address = prefix.Addr()
		}
	}
	keys := []string{address.String(), key}
	if key == "" {
		keys = keys[:1]
	}
	ok, wait, _ := q.limiter.AllowKeys(now, keys...)
	if ok {
		return 0
	}
	return max(wait, 1)
}
