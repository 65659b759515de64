package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/config"
)

const canary = "c4n4ry"

// requireSilent fails when the canary can be got out of err by any way of printing it.
func requireSilent(t testing.TB, name string, err error) {
	t.Helper()
	require.Error(t, err, name)
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, strings.ToLower(fmt.Sprintf(verb, e)), canary, "%s, %s", name, verb)
		}
		require.LessOrEqual(t, len(e.Error()), MaxErrorBytes)
	}
}

// conformance: 7.secrets
func TestRefusalsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.MTLS = config.Rate{RPS: 1, Burst: 100}; c.BlockedHeaders = []string{"x-internal-*"} })
	pem := []byte("-----BEGIN " + canary + " PRIVATE KEY-----\n" + canary + "\n-----END " + canary + " PRIVATE KEY-----\n")
	cert, key := newAuthority(t).issue(t, canary, newKey(t))
	for name, r := range map[string]Request{
		"scheme":         {URL: "ftp://example.com/" + canary + "?" + canary},
		"odd scheme":     {URL: canary + "://example.com/"},
		"userinfo":       {URL: "https://user:" + canary + "@example.com/"},
		"userinfo, port": {URL: "https://user:" + canary + "/@example.com/"},
		"port":           {URL: "https://example.com:" + canary + "/"},
		"query":          {URL: "https://example.com:0/?" + canary},
		"path":           {URL: "https://127.0.0.1/" + canary + "%zz"},
		"fragment":       {URL: "https://example.com/#" + canary},
		"no slash":       {URL: "https://example.com&token=" + canary},
		"control":        {URL: "https://example.com/" + canary + "\n"},
		"too long":       {URL: "https://example.com/" + strings.Repeat(canary, MaxURLBytes)},
		"local":          {URL: "https://127.0.0.1/?" + canary},
		"method":         {URL: "https://example.com/", Method: canary},
		"header value":   {URL: "https://example.com/", Header: map[string][]string{"Authorization": {"Bearer " + canary + "\n"}}},
		"header UTF-8":   {URL: "https://example.com/", Header: map[string][]string{"Authorization": {"Bearer " + canary + "\xff"}}},
		"header name":    {URL: "https://example.com/", Header: map[string][]string{canary + "\n": {"a"}}},
		"header blocked": {URL: "https://example.com/", Header: map[string][]string{"Host": {canary}}},
		"header prefix":  {URL: "https://example.com/", Header: map[string][]string{"x-internal-" + canary: {canary}}},
		"header size":    {URL: "https://example.com/", Header: map[string][]string{"a": {strings.Repeat(canary, MaxRequestHeaderBytes)}}},
		"PEM":            {URL: "https://example.com/", CertPEM: pem, KeyPEM: pem},
		"PEM, http":      {URL: "http://example.com/", CertPEM: cert, KeyPEM: key},
		"PEM, key":       {URL: "https://example.com/", CertPEM: cert, KeyPEM: pem},
		"PEM, cert":      {URL: "https://example.com/", CertPEM: pem, KeyPEM: key},
		"PEM, swapped":   {URL: "https://example.com/", CertPEM: key, KeyPEM: cert},
	} {
		r.Body = []byte(canary)
		_, err := client.Prepare(&r)
		requireSilent(t, name, err)
	}
}

// What origins, resolvers and TLS peers say does not get into our errors either, nor onto the standard logger.
//
// conformance: 7.secrets
func TestFailuresHoldNoSecrets(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	certPEM, keyPEM := a.issue(t, canary, newKey(t))
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	dials := func(err error) func(*Config) {
		return func(c *Config) { c.dial = func(context.Context, string, string) (net.Conn, error) { return nil, err } }
	}
	for _, c := range []struct {
		name, scheme string
		serve        func(net.Conn)
		change       func(*Config)
	}{
		{"status line", "http", script("HTTP/1.1 " + canary + "\r\n\r\n"), nil},
		{"protocol", "http", script(canary + "\r\n\r\n"), nil},
		{"header line", "http", script(ok + canary + "\r\n\r\n"), nil},
		{"length", "http", script(ok + "Content-Length: " + canary + "\r\n\r\n"), nil},
		{"lengths", "http", script(ok + "Content-Length: 1" + canary + "\r\nContent-Length: 2\r\n\r\n"), nil},
		{"transfer encoding", "http", script(ok + "Transfer-Encoding: " + canary + "\r\n\r\n"), nil},
		{"chunk", "http", script(chunked + canary + "\r\n"), nil},
		{"trailer", "http", script(chunked + "0\r\n" + canary + "\r\n\r\n"), nil},
		{"gzip", "http", script(gzipped + canary), nil},
		{"body", "http", script(ok + "Content-Length: 100\r\n\r\n" + canary), nil},
		{"too large", "http", script(ok + "\r\n" + strings.Repeat(canary, 10_000)), nil},
		{"101", "http", script("HTTP/1.1 101 " + canary + "\r\nUpgrade: " + canary + "\r\nConnection: upgrade\r\n\r\n"), nil},
		{"stall", "http", stalling(ok + "A: " + canary), nil},
		{"not TLS", "https", func(c net.Conn) { _, _ = io.WriteString(c, canary+canary) }, nil},
		{"certificate", "https", func(c net.Conn) {
			_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake()
		}, nil},
		{"dial", "http", nil, dials(errors.New(canary))},
		{"dial, op", "http", nil, dials(&net.OpError{Op: canary, Net: canary, Err: errors.New(canary)})},
		{"DNS", "http", nil, dials(&net.DNSError{Err: canary, Name: canary, Server: canary, IsNotFound: true})},
		{"DNS, failure", "https", nil, dials(&net.DNSError{Err: canary, Name: canary, Server: canary})},
		{"timeout", "http", nil, dials(&net.DNSError{Err: canary, Server: canary, IsTimeout: true})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := pipe(t, c.serve, c.change)
				_, err := fetch(client, &Request{
					Method: "POST", URL: c.scheme + "://example.com/" + canary + "?" + canary, Header: map[string][]string{"X-A": {canary}}, Body: []byte(canary),
					Timeout: time.Second,
				})
				requireAnyExternal(t, err)
				requireSilent(t, c.name, err)
				client.Close()
				synctest.Wait()
			})
		})
	}
	t.Cleanup(func() { require.NotContains(t, stdlog.String(), canary) })
}

func TestErrorTextsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 400)
	for _, err := range []error{refuse(ReasonHost, "%s", long), fail(StageDNS, "%s", long)} {
		require.LessOrEqual(t, len(err.Error()), MaxErrorBytes)
		require.True(t, strings.HasSuffix(err.Error(), "ü..."))
	}
	require.Equal(t, 83, len(shown(strings.Repeat("a", 253))))
}
