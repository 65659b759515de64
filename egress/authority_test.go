package egress

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates of tests.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

// issue makes a certificate for key, with name as its subject, for 127.0.0.1 and example.com, and returns both as PEM.
func (a *authority) issue(t testing.TB, name string, key crypto.Signer) (certPEM, keyPEM []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"example.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", keyDER)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// serverConfig is what an origin with a certificate of a needs.
func (a *authority) serverConfig(t testing.TB) *tls.Config {
	t.Helper()
	cert, err := tls.X509KeyPair(a.issue(t, "origin", newKey(t)))
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// newTLSOrigin is newOrigin over TLS, HTTP/2 included, with a client that trusts it.
func newTLSOrigin(t testing.TB, a *authority, h http.HandlerFunc, server func(*httptest.Server), change func(*Config)) (*Client, string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = a.serverConfig(t)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if server != nil {
		server(s)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	client := newClient(t, func(c *Config) {
		c.AllowedIPs = []netip.Addr{loopback}
		c.AllowedPorts = []int{portIn(t, s.URL)}
		c.RootCAs = a.pool()
		if change != nil {
			change(c)
		}
	})
	return client, s.URL
}
