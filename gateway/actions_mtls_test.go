package gateway

import (
	"bytes"
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
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientCertificate is a self-signed certificate and its key, both PEM.
func clientCertificate(t testing.TB) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the node's"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// mtlsOrigin is an endpoint that demands a client certificate, each connection of
// which it counts, and the configuration that allows it with a quota of so many.
func mtlsOrigin(t *testing.T, quota int) (url string, cfg map[string]any, conns *atomic.Int64) {
	cert, key := clientCertificate(t)
	own, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	conns = new(atomic.Int64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, cert, 0o600))
	cfg = allow(t, s.URL)
	merge(cfg["httpClientConfig"].(map[string]any), map[string]any{"caPath": file, "mtlsRPS": 0.0001, "mtlsBurst": quota})
	return s.URL, cfg, conns
}

// conformance: 7.mtls.own-client
// conformance: 7.mtls.material
// conformance: 7.mtls.quota
// conformance: 7.mtls.hit
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	u, cfg, conns := mtlsOrigin(t, 2)
	r := newRig(t, rigSpec{top: cfg, handler: unlimited()})
	n := r.connectAll(nil, theWorkflow())["don"][0]
	cert, key := clientCertificate(t)
	other, _ := clientCertificate(t)
	ask := func(cert, key []byte, cached any) acted {
		return n.reply(n.ask(theWorkflow(), map[string]any{"url": u, "cacheSettings": cached, "mtlsAuth": map[string]any{"certificate": cert, "privateKey": key}}))
	}
	big := append(bytes.Repeat([]byte("\n"), 64<<10), cert...)
	for name, m := range map[string][2][]byte{
		"garbage": {[]byte("garbage"), []byte("garbage")}, "oversized": {big, key}, "oversized key": {cert, append(bytes.Repeat([]byte("\n"), 64<<10), key...)},
		"swapped": {key, cert}, "another's": {other, key}, "no key": {cert, nil}, "truncated": {cert[:len(cert)/2], key},
		"garbage inside": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")}), key},
	} {
		for range 3 {
			a := ask(m[0], m[1], nil)
			require.True(t, a.Validation, "%s: %+v", name, a)
		}
	}
	require.Zero(t, conns.Load(), "nothing was sent")

	stored := map[string]any{"maxAgeMs": 60_000, "store": true}
	for i, cached := range []any{nil, stored} { // the quota of two is all there
		a := ask(cert, key, cached)
		require.Equal(t, "hello the node's", string(a.Body), a.ErrorMessage)
		require.EqualValues(t, i+1, conns.Load(), "a connection of its own")
	}
	a := ask(cert, key, nil)
	require.True(t, a.Validation, "%+v", a)
	require.Contains(t, a.ErrorMessage, "quota")
	a = ask(cert, key, stored)
	require.Equal(t, "hello the node's", string(a.Body), "a response from the cache costs nothing")
	require.EqualValues(t, 2, conns.Load())

	a = n.reply(n.ask(theWorkflow(), map[string]any{"url": u}))
	require.True(t, a.External, "without a certificate the endpoint refuses: %+v", a)
}

// conformance: 7.mtls.off
func TestClientCertificatesAreOffByDefault(t *testing.T) {
	t.Parallel()
	u, cfg, conns := mtlsOrigin(t, 0)
	delete(cfg["httpClientConfig"].(map[string]any), "mtlsBurst")
	r := newRig(t, rigSpec{top: cfg})
	n := r.connectAll(nil, theWorkflow())["don"][0]
	cert, key := clientCertificate(t)
	a := n.reply(n.ask(theWorkflow(), map[string]any{"url": u, "mtlsAuth": map[string]any{"certificate": cert, "privateKey": key}}))
	require.True(t, a.Validation, "%+v", a)
	require.Contains(t, a.ErrorMessage, "mtlsBurst")
	require.Zero(t, conns.Load())
}
