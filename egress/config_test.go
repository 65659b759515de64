package egress

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/config"
)

// The zero Config is what an empty section of a configuration file means.
func TestDefaultsAreTheFiles(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "config", "minimal.json"))
	require.NoError(t, err)
	file, err := config.Parse("minimal.json", data, nil)
	require.NoError(t, err)
	c, err := FromConfig(file.HTTPClient, "")
	require.NoError(t, err)
	fromFile, err := New(c)
	require.NoError(t, err)
	zero := newClient(t, nil)

	require.ElementsMatch(t, blockedHeaders, file.HTTPClient.BlockedHeaders)
	require.Equal(t, zero.guard, fromFile.guard)
	require.Equal(t, zero.headers, fromFile.headers)
	require.Equal(t, zero.methods, fromFile.methods)
	require.Equal(t, zero.schemes, fromFile.schemes)
	require.Equal(t, zero.maxBytes, fromFile.maxBytes)
	require.Equal(t, zero.timeout, fromFile.timeout)
	require.True(t, fromFile.mtls.off())
	require.True(t, zero.mtls.off())
	require.Equal(t, cap(zero.mtls.slots), cap(fromFile.mtls.slots))
}

// conformance: 7.timeout.default
// conformance: 7.timeout.clamp
// conformance: 7.request.max-bytes
func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	client := newClient(t, func(c *Config) { c.MaxResponseBytes, c.DefaultTimeout = 1000, 7*time.Second })
	for given, want := range map[time.Duration]time.Duration{
		0: 7 * time.Second, -1: 7 * time.Second, time.Millisecond: time.Millisecond, MaxTimeout: MaxTimeout, MaxTimeout + 1: MaxTimeout,
		(1<<32 - 1) * time.Millisecond: MaxTimeout, 1<<63 - 1: MaxTimeout,
	} {
		p, err := client.Prepare(&Request{URL: "https://example.com", Timeout: given})
		require.NoError(t, err)
		require.Equal(t, want, p.Timeout())
	}
	for given, want := range map[int64]int64{0: 1000, -5: 1000, 1: 1, 999: 999, 1000: 1000, 1001: 1000, 1 << 62: 1000} {
		p, err := client.Prepare(&Request{URL: "https://example.com", MaxBytes: given})
		require.NoError(t, err)
		require.Equal(t, want, p.MaxBytes())
	}
	p, err := newClient(t, func(c *Config) { c.DefaultTimeout = time.Hour }).Prepare(&Request{URL: "https://example.com"})
	require.NoError(t, err)
	require.Equal(t, MaxTimeout, p.Timeout())
	require.EqualValues(t, 27033, p.MaxBytes())
}

// conformance: 7.ca
func TestAuthorities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, data, 0o600))
		return name
	}
	ca := newAuthority(t)
	good := write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
	c, err := FromConfig(config.HTTPClient{CAPath: good}, "1")
	require.NoError(t, err)
	system, err := x509.SystemCertPool()
	require.NoError(t, err)
	system.AddCert(ca.cert)
	require.True(t, system.Equal(c.RootCAs), "besides the system's roots, not instead of them")

	for _, name := range []string{filepath.Join(dir, "none.pem"), dir, write("empty.pem", nil), write("garbage.pem", []byte("garbage")), write("huge.pem", make([]byte, maxCAFileBytes+1))} {
		_, err := FromConfig(config.HTTPClient{CAPath: name}, "1")
		require.ErrorContains(t, err, "httpClientConfig.caPath")
	}
}
