package egress

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/config"
)

// conformance: 7.mtls.own-client
func TestMTLS(t *testing.T) {
	t.Parallel()
	servers, clients := newAuthority(t), newAuthority(t)
	var conns atomic.Int64
	demanding := func(s *httptest.Server) {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				conns.Add(1)
			}
		}
	}
	client, url := newTLSOrigin(t, servers, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" "+r.Proto)
	}, demanding, func(c *Config) { c.MTLS = config.Rate{RPS: 1000, Burst: 1000} })

	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for name, key := range map[string]crypto.Signer{"ecdsa": newKey(t), "rsa": rsaKey, "ed25519": edKey} {
		cert, pemKey := clients.issue(t, name, key)
		for range 2 {
			before := conns.Load()
			r, err := fetch(client, &Request{URL: url, CertPEM: cert, KeyPEM: pemKey})
			require.NoError(t, err)
			require.Equal(t, name+" HTTP/2.0", string(r.Body))
			require.Equal(t, before+1, conns.Load(), "a connection of its own")
		}
	}
	// Other encodings of keys.
	cert, _ := clients.issue(t, "pkcs1", rsaKey)
	_, err = fetch(client, &Request{URL: url, CertPEM: cert, KeyPEM: encodePEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey))})
	require.NoError(t, err)

	// Without a certificate, and with one of another authority, the origin refuses; the shared pool has learnt no certificate.
	_, err = fetch(client, &Request{URL: url})
	requireAnyExternal(t, err)
	cert, key := newAuthority(t).issue(t, "stranger", newKey(t))
	_, err = fetch(client, &Request{URL: url, CertPEM: cert, KeyPEM: key})
	requireAnyExternal(t, err)
	require.Zero(t, client.Stats().MTLS)
	client.Close()
	require.Eventually(t, func() bool { return client.Stats().Connections == 0 }, 5*time.Second, time.Millisecond)
}

func requireAnyExternal(t testing.TB, err error) *External {
	t.Helper()
	var external *External
	require.ErrorAs(t, err, &external)
	return external
}

// conformance: 7.mtls.version
// conformance: 7.ca
func TestTLSRules(t *testing.T) {
	t.Parallel()
	servers := newAuthority(t)
	ok := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }

	client, url := newTLSOrigin(t, servers, ok, nil, nil)
	r, err := fetch(client, &Request{URL: url})
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", string(r.Body))

	// Trusted through caPath, as the configuration has it.
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, encodePEM("CERTIFICATE", servers.cert.Raw), 0o600))
	fromFile, err := FromConfig(config.HTTPClient{CAPath: file, AllowedIPs: []netip.Addr{loopback}, AllowedPorts: []int{portIn(t, url)}}, "1")
	require.NoError(t, err)
	r, err = fetch(newClient(t, func(c *Config) { *c = fromFile }), &Request{URL: url})
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)

	client, url = newTLSOrigin(t, servers, ok, nil, func(c *Config) { c.RootCAs = newAuthority(t).pool() })
	_, err = fetch(client, &Request{URL: url})
	require.Contains(t, requireExternal(t, StageTLS, err).Msg, "authority that is not trusted")

	client, url = newTLSOrigin(t, servers, ok, func(s *httptest.Server) { s.TLS.MaxVersion = tls.VersionTLS11; s.TLS.MinVersion = tls.VersionTLS10 }, nil)
	_, err = fetch(client, &Request{URL: url})
	requireExternal(t, StageTLS, err)

	// HTTP where TLS was asked for, and the other way round.
	client, url = newOrigin(t, ok, nil)
	_, err = fetch(client, &Request{URL: "https" + strings.TrimPrefix(url, "http")})
	require.Contains(t, requireExternal(t, StageTLS, err).Msg, "does not speak TLS")
	client, url = newTLSOrigin(t, servers, ok, nil, nil)
	r, err = fetch(client, &Request{URL: "http" + strings.TrimPrefix(url, "https")})
	require.NoError(t, err)
	require.Equal(t, 400, r.StatusCode)
}

// Bad key material is refused before it costs a token.
//
// conformance: 7.mtls.material
// conformance: 7.mtls.off
func TestMaterialRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.MTLS = config.Rate{RPS: 0.001, Burst: 1} })
	ca := newAuthority(t)
	cert, key := ca.issue(t, "a", newKey(t))
	otherCert, otherKey := ca.issue(t, "b", newKey(t))
	block, _ := pem.Decode(cert)
	keyBlock, _ := pem.Decode(key)
	pad := func(b []byte, n int) []byte { return append(bytes.Repeat([]byte("\n"), n-len(b)), b...) }
	broken := append([]byte(nil), block.Bytes...)
	broken[len(broken)/2] ^= 0xff
	for name, m := range map[string]struct{ cert, key []byte }{
		"no key":             {cert, nil},
		"no certificate":     {nil, key},
		"garbage":            {[]byte("garbage"), []byte("garbage")},
		"garbage key":        {cert, []byte("garbage")},
		"garbage inside":     {encodePEM("CERTIFICATE", []byte("garbage")), key},
		"garbage key inside": {cert, encodePEM("PRIVATE KEY", []byte("garbage"))},
		"swapped":            {key, cert},
		"two certificates":   {cert, cert},
		"two keys":           {key, key},
		"another's key":      {cert, otherKey},
		"another's cert":     {otherCert, key},
		"DER":                {block.Bytes, keyBlock.Bytes},
		"truncated":          {cert[:len(cert)/2], key},
		"truncated key":      {cert, key[:len(key)/2]},
		"certificate 1 over": {pad(cert, MaxPEMBytes+1), key},
		"key 1 over":         {cert, pad(key, MaxPEMBytes+1)},
		"10 MB":              {bytes.Repeat([]byte("a"), 10<<20), key},
		"encrypted":          {cert, encodePEM("ENCRYPTED PRIVATE KEY", keyBlock.Bytes)},
		"encrypted, older":   {cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: keyBlock.Bytes})},
		"public key":         {cert, encodePEM("PUBLIC KEY", block.Bytes)},
		"huge key":           {cert, encodePEM("RSA PRIVATE KEY", hugeKey(t))},
		"many blocks":        {bytes.Repeat([]byte("-----BEGIN A-----\n-----END A-----\n"), 1900), key},
		"nothing but begins": {bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\n"), 2300), key},
	} {
		start := time.Now()
		_, err := client.Prepare(&Request{URL: "https://example.com/", CertPEM: m.cert, KeyPEM: m.key})
		require.Error(t, err, name)
		requireRefused(t, ReasonMTLSKey, err)
		require.Less(t, time.Since(start), time.Second, name)
	}
	_, refused := parseMaterial(cert, encodePEM("RSA PRIVATE KEY", hugeKey(t)))
	require.Contains(t, refused.Msg, "longer than", "refused without looking at its numbers")
	_, err := client.Prepare(&Request{URL: "http://example.com/", CertPEM: cert, KeyPEM: key})
	requireRefused(t, ReasonMTLSKey, err)

	p, err := client.Prepare(&Request{URL: "https://example.com/", CertPEM: pad(cert, MaxPEMBytes), KeyPEM: pad(key, MaxPEMBytes)})
	require.NoError(t, err)
	gotCert, gotKey := p.ClientCertificate()
	require.Len(t, gotCert, MaxPEMBytes)
	require.Len(t, gotKey, MaxPEMBytes)
	require.EqualValues(t, 1, client.mtls.limiter.Tokens(), "the token is still there")

	off := newClient(t, func(c *Config) { c.MTLS.RPS = 100 })
	_, err = off.Prepare(&Request{URL: "https://example.com/", CertPEM: cert, KeyPEM: key})
	requireRefused(t, ReasonMTLSOff, err)
	_, err = off.Prepare(&Request{URL: "https://example.com/", KeyPEM: []byte("garbage")})
	requireRefused(t, ReasonMTLSOff, err)
}

func FuzzMaterial(f *testing.F) {
	cert, key := newAuthority(f).issue(f, "a", newKey(f))
	f.Add(cert, key)
	f.Add(key, cert)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		got, refused := parseMaterial(cert, key)
		if refused != nil {
			require.LessOrEqual(t, len(refused.Msg), MaxErrorBytes)
			require.Nil(t, got)
			return
		}
		require.NotEmpty(t, got.Certificate)
		require.Implements(t, (*crypto.Signer)(nil), got.PrivateKey)
	})
}

// hugeKey is the form of an RSA key whose check would take seconds.
func hugeKey(t testing.TB) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), 20_000)
	n.SetBit(n, 0, 1)
	der, err := asn1.Marshal(struct {
		Version               int
		N                     *big.Int
		E                     int
		D, P, Q, Dp, Dq, Qinv *big.Int
	}{0, n, 65537, n, n, n, n, n, n})
	require.NoError(t, err)
	return der
}

// mtlsBubble is a client inside a synctest bubble whose dials hang until their request ends, or fail at once after release is closed.
func mtlsBubble(t *testing.T, r config.Rate, concurrent int) (do func(timeout time.Duration) error, client *Client, release chan struct{}) {
	release = make(chan struct{})
	client = newClient(t, func(c *Config) {
		c.MTLS, c.MTLSMaxConcurrent = r, concurrent
		c.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-release:
				return nil, errors.New("released")
			}
		}
	})
	cert, key := newAuthority(t).issue(t, "a", newKey(t))
	return func(timeout time.Duration) error {
		_, err := fetch(client, &Request{URL: "https://example.com/", CertPEM: cert, KeyPEM: key, Timeout: timeout})
		return err
	}, client, release
}

// conformance: 7.mtls.quota
func TestMTLSRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, client, release := mtlsBubble(t, config.Rate{RPS: 1.0 / 30, Burst: 2}, 0)
		close(release)
		for range 2 {
			requireAnyExternal(t, do(time.Second))
		}
		refused := requireRefused(t, ReasonMTLSQuota, do(time.Second))
		require.Contains(t, refused.Msg, "try again in 30s")
		time.Sleep(30*time.Second + time.Millisecond)
		requireAnyExternal(t, do(time.Second))
		requireRefused(t, ReasonMTLSQuota, do(time.Second))
		require.Zero(t, client.Stats().MTLS)
	})
}

// Of two that wait for a slot, one gets the last token; the other leaves its slot.
func TestMTLSLastToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, client, release := mtlsBubble(t, config.Rate{RPS: 0.0001, Burst: 2}, 1)
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- do(time.Minute) }()
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		refused := 0
		for range 3 {
			if err := <-results; errors.As(err, new(*Refused)) {
				refused++
			}
		}
		require.Equal(t, 1, refused)
		require.Zero(t, client.Stats().MTLS)
	})
}

// conformance: 7.mtls.slot
func TestMTLSConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, client, release := mtlsBubble(t, config.Rate{RPS: 0.001, Burst: 100}, 50)
		results := make(chan error, 100)
		for range 50 {
			go func() { results <- do(10 * time.Second) }()
		}
		synctest.Wait()
		require.Equal(t, 50, client.Stats().MTLS)
		tokens := client.mtls.limiter.Tokens()

		// One that waits for a slot waits no longer than its own timeout, and costs no token.
		start := time.Now()
		requireRefused(t, ReasonMTLSQuota, do(500*time.Millisecond))
		require.Equal(t, 500*time.Millisecond, time.Since(start))
		require.InDelta(t, tokens, client.mtls.limiter.Tokens(), 0.1)

		// One for which there is no token does not wait for a slot.
		require.True(t, client.mtls.limiter.AllowN(time.Now(), int(client.mtls.limiter.Tokens())))
		start = time.Now()
		requireRefused(t, ReasonMTLSQuota, do(time.Second))
		require.Zero(t, time.Since(start))
		client.mtls.limiter.SetBurst(200)
		client.mtls.limiter.SetLimit(1)
		time.Sleep(time.Second)

		// One with more time gets the slot of one that ended.
		start = time.Now()
		go func() { results <- do(20 * time.Second) }()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Len(t, results, 50)
		require.Equal(t, 1, client.Stats().MTLS)
		close(release)
		synctest.Wait()
		require.Len(t, results, 51)
		require.Equal(t, 9*time.Second, time.Since(start))
		require.Zero(t, client.Stats().MTLS)
		require.Zero(t, client.Stats().Connections)
	})
}

// Whoever gives up while a shared request waits for its place can be told that nothing was sent.
func TestProgressOfAQueuedRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, client, release := mtlsBubble(t, config.Rate{RPS: 0.001, Burst: 100}, 1)
		go func() { _ = do(10 * time.Second) }()
		synctest.Wait()
		cert, key := newAuthority(t).issue(t, "a", newKey(t))
		p, err := client.Prepare(&Request{URL: "https://example.com/", CertPEM: cert, KeyPEM: key, Timeout: time.Second})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var g Progress
		require.NoError(t, g.Refusal(), "not under way")
		outcome := make(chan error, 1)
		go func() {
			_, err := client.DoShared(ctx, p, &g)
			outcome <- err
		}()
		time.Sleep(5 * time.Second) // longer than the time of the one who asked: ctx alone bounds it
		synctest.Wait()
		refused := requireRefused(t, ReasonMTLSQuota, g.Refusal())
		require.Contains(t, refused.Msg, "none ended in time")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.NoError(t, g.Refusal(), "it has the place of the other")
		require.Empty(t, outcome)
		close(release)
		requireAnyExternal(t, <-outcome)
		require.NoError(t, g.Refusal())

		client.mtls.slots <- struct{}{}
		_, err = client.DoShared(ctx, p, &g)
		requireRefused(t, ReasonMTLSQuota, err)
		require.NoError(t, g.Refusal())
	})
}

// A new configuration is no way to a full bucket of requests with a client certificate, nor to twice the places.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		do, old, release := mtlsBubble(t, config.Rate{RPS: 1.0 / 30, Burst: 3}, 1)
		waiting := make(chan error, 1)
		go func() { waiting <- do(time.Minute) }()
		synctest.Wait()
		doNew, successor, released := mtlsBubble(t, config.Rate{RPS: 1, Burst: 2}, 1)
		close(released)
		successor.TakeOver(old)
		require.Equal(t, 1, successor.Stats().MTLS, "its place is taken")
		requireRefused(t, ReasonMTLSQuota, doNew(10*time.Millisecond))
		close(release)
		requireAnyExternal(t, <-waiting)
		for range 2 {
			requireAnyExternal(t, doNew(time.Second))
		}
		requireRefused(t, ReasonMTLSQuota, doNew(time.Second))
		other := newClient(t, func(c *Config) { c.MTLS, c.MTLSMaxConcurrent = config.Rate{}, 7 })
		other.TakeOver(successor)
		require.Equal(t, 7, cap(other.mtls.slots))
		require.True(t, other.mtls.off())
	})
}
