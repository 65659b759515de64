package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/auth"
)

// selfSigned writes a certificate for 127.0.0.1 and returns its files and a pool
// that trusts it.
func selfSigned(t *testing.T) (certPath, keyPath string, pool *x509.CertPool) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	dir := t.TempDir()
	certPath, keyPath = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certPath, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return certPath, keyPath, pool
}

// conformance: 2.http.versions
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, keyFile, pool := selfSigned(t)
	files := map[string]any{"tlsEnabled": true, "tlsCertPath": cert, "tlsKeyPath": keyFile}
	r := newRig(t, rigSpec{user: files, node: files})
	s := r.shards["don"][0]
	header, err := auth.NewAuthHeader(s, uint32(time.Now().Unix()), "don", testGatewayID)
	require.NoError(t, err)
	d := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: pool}}
	ws, _, err := d.DialContext(context.Background(), "wss://"+r.srv.Address(NodeListener)+"/node", http.Header{"Authorization": {header}})
	require.NoError(t, err)
	require.NoError(t, ws.Close())

	for _, h2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}
		client := &http.Client{Transport: transport}
		resp, err := client.Post("https://"+r.srv.Address(UserListener)+"/", "application/json", bytes.NewReader([]byte(`{`)))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 400, resp.StatusCode)
		require.Equal(t, h2, resp.ProtoMajor == 2)
		transport.CloseIdleConnections()
	}
	old := tls.Dialer{Config: &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11}}
	_, err = old.Dial("tcp", r.srv.Address(UserListener))
	require.Error(t, err, "TLS 1.1 is refused")
}

// http2Client speaks HTTP/2 only.
func http2Client(t *testing.T, pool *x509.CertPool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// traceConn notes the local address of the connection a request goes out on.
func traceConn(req *http.Request, used *net.Addr) *http.Request {
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { *used = i.Conn.LocalAddr() },
	}))
}
