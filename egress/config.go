package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"dongate/config"
)

// Defaults of protocol §8, used where a Config leaves zero.
const (
	defaultMaxResponseBytes = 27033
	defaultTimeout          = 5 * time.Second
	defaultMTLSConcurrent   = 50

	// DefaultMaxConns bounds open connections, idle ones included; far above the requests that run at one time.
	DefaultMaxConns = 1024

	// maxCAFileBytes is ten times what all the world's public roots take.
	maxCAFileBytes = 4 << 20
)

// Config is what a Client is made of. The zero value is the protocol's default, with mTLS off.
type Config struct {
	// HTTPClient holds the rules; zero members mean their default. CAPath is not read: see RootCAs.
	config.HTTPClient

	// Version goes into User-Agent: dongate/<version>; "" is dev.
	Version string

	// RootCAs are trusted for https; nil means the system's roots alone.
	RootCAs *x509.CertPool

	// MaxConns bounds open connections, idle ones included; 0 means DefaultMaxConns. At the bound idle connections are closed, and if that does not
	// help, requests that need a new one fail.
	MaxConns int

	// Resolver looks up names; nil means the system's name servers, asked by Go's own resolver.
	Resolver *net.Resolver

	// OnPanic, if set, is told when a request ended by a panic, with the stack. The stack holds no values. It must not block.
	OnPanic func(stack []byte)

	// Connect, if set, opens the connections instead of TCP: to addresses that have passed every check. Names cannot be looked up then. For tests of
	// programs that use this package.
	Connect func(ctx context.Context, address netip.AddrPort) (net.Conn, error)

	// dial replaces name resolution, guard and connecting in tests.
	dial dialFunc
	// transport replaces net/http in tests.
	transport http.RoundTripper
}

// FromConfig makes a Config from the configuration file's section and reads the authorities in caPath, which are trusted besides the system's roots.
func FromConfig(c config.HTTPClient, version string) (Config, error) {
	out := Config{HTTPClient: c, Version: version}
	if c.CAPath == "" {
		return out, nil
	}
	pem, err := readFile(c.CAPath)
	if err != nil {
		return Config{}, fmt.Errorf("httpClientConfig.caPath: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return Config{}, fmt.Errorf("httpClientConfig.caPath: reading the system's roots, which are trusted besides it: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return Config{}, fmt.Errorf("httpClientConfig.caPath: %s holds no PEM certificate", c.CAPath)
	}
	out.RootCAs = pool
	return out, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCAFileBytes+1))
	if err == nil && len(data) > maxCAFileBytes {
		err = fmt.Errorf("%s is over %d bytes", name, maxCAFileBytes)
	}
	return data, err
}

// New makes a Client. Its errors name what is wrong with c; a configuration that package config accepted has none.
func New(c Config) (*Client, error) {
	g, guardErr := newGuard(&c.HTTPClient)
	headers, headersErr := newHeaderRules(c.BlockedHeaders)
	methods, methodsErr := methodSet(&c.AllowedMethods)
	schemesErr := checkSchemes(&c.AllowedSchemes)
	if err := errors.Join(guardErr, headersErr, methodsErr, schemesErr); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	client := &Client{
		guard: g, headers: headers, methods: methods, methodList: c.AllowedMethods, schemes: c.AllowedSchemes,
		timeout: clampTimeout(c.DefaultTimeout, defaultTimeout), maxBytes: c.MaxResponseBytes, maxConns: int64(c.MaxConns),
		userAgent: []string{"dongate/" + productVersion(c.Version)}, rootCAs: c.RootCAs, resolver: c.Resolver, onPanic: c.OnPanic,
		mtls: newQuota(c.MTLS, c.MTLSMaxConcurrent), dialer: c.dial, connector: c.Connect, transport: c.transport,
		makingRoom: make(chan struct{}, 1), seed: maphash.MakeSeed(),
	}
	if client.maxBytes <= 0 {
		client.maxBytes = defaultMaxResponseBytes
	}
	if client.maxConns <= 0 {
		client.maxConns = DefaultMaxConns
	}
	if client.resolver == nil {
		client.resolver = systemResolver()
	}
	if client.transport == nil {
		client.pool = client.newTransport(nil)
		client.transport = client.pool
	}
	return client, nil
}

func methodSet(list *[]string) (map[string]bool, error) {
	if len(*list) == 0 {
		*list = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	}
	set := map[string]bool{}
	for _, m := range *list {
		// CONNECT would open a tunnel through whatever answers; TRACE hands back headers that intermediaries added.
		if !isToken(m) || m != strings.ToUpper(m) || m == http.MethodConnect || m == http.MethodTrace {
			return nil, fmt.Errorf("allowed method %q is not an upper-case method other than CONNECT and TRACE", m)
		}
		set[m] = true
	}
	return set, nil
}

func checkSchemes(list *[]string) error {
	if len(*list) == 0 {
		*list = []string{"http", "https"}
	}
	for _, s := range *list {
		if !slices.Contains([]string{"http", "https"}, s) {
			return fmt.Errorf("allowed scheme %q is neither http nor https", s)
		}
	}
	return nil
}

// productVersion makes s a product's version as RFC 9110 §10.1.5 has it: a token.
func productVersion(s string) string {
	if s == "" {
		return "dev"
	}
	return strings.Map(func(r rune) rune {
		if r > 0x7f || !isToken(string(r)) {
			return '-'
		}
		return r
	}, s)
}
