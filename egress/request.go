package egress

import (
	"crypto/tls"
	"hash/maphash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a request.
const (
	// MaxTimeout is the longest a request may take; longer ones are shortened to it (protocol §7).
	MaxTimeout = 60 * time.Second
	// MaxURLBytes is more than any server takes.
	MaxURLBytes = 64 << 10
)

// Request is what a node asks for. Nothing in it may be changed once it was given to Prepare.
type Request struct {
	Method string // "" is GET; any case
	URL    string
	Header map[string][]string
	Fields []Field // more headers
	Body   []byte

	Timeout  time.Duration // for everything, from waiting for an mTLS slot to the last byte; 0 or less is the client's default; at most MaxTimeout
	MaxBytes int64         // of the response's body, decompressed; 0 or less is the client's limit, else the smaller of both

	// CertPEM and KeyPEM are a client certificate (with its chain) and its key, at most MaxPEMBytes each; both or neither.
	CertPEM, KeyPEM []byte
}

// Prepared is a Request that passed every check that needs no network. It is immutable and may be sent any number of times, also at the same time.
type Prepared struct {
	*checkedURL
	method   string
	header   http.Header
	body     []byte
	timeout  time.Duration
	maxBytes int64

	cert            *tls.Certificate
	certPEM, keyPEM []byte

	gunzip  bool // we asked for gzip, so we undo it
	oneShot bool // the connection must not be reused
}

// Method is upper-case.
func (p *Prepared) Method() string { return p.method }

// URL is the normalised URL: scheme and host in lower case, addresses in canonical form, characters that no URL may have percent-encoded.
func (p *Prepared) URL() string { return p.text }

// Host is the URL's host without port and brackets. It is fit for a log.
func (p *Prepared) Host() string { return p.host }

// Header is what will be sent, ours included, with canonical names. It must not be changed.
func (p *Prepared) Header() http.Header { return p.header }

// HeaderNames returns the names in Header, sorted.
func (p *Prepared) HeaderNames() []string { return sortedNames(p.header, nil) }

// Body must not be changed.
func (p *Prepared) Body() []byte { return p.body }

// MaxBytes is the limit of the response's body that applies.
func (p *Prepared) MaxBytes() int64 { return p.maxBytes }

// Timeout is the time limit that applies: more than 0, at most MaxTimeout.
func (p *Prepared) Timeout() time.Duration { return p.timeout }

// ClientCertificate returns the PEM certificate and key as they came; nil without mTLS. For a cache's key, not for a log.
func (p *Prepared) ClientCertificate() (certPEM, keyPEM []byte) { return p.certPEM, p.keyPEM }

func clampTimeout(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		d = otherwise
	}
	return min(d, MaxTimeout)
}

// Prepare checks everything that needs no network and takes no token of any quota. Its error is a *Refused.
func (c *Client) Prepare(r *Request) (*Prepared, error) {
	p := &Prepared{method: strings.ToUpper(r.Method), body: r.Body, timeout: clampTimeout(r.Timeout, c.timeout), maxBytes: c.maxBytes}
	if p.method == "" {
		p.method = http.MethodGet
	}
	if !c.methods[p.method] {
		return nil, refuse(ReasonMethod, "the method is not one of %s", strings.Join(c.methodList, ", "))
	}
	if r.MaxBytes > 0 {
		p.maxBytes = min(r.MaxBytes, c.maxBytes)
	}
	var refused *Refused
	if p.checkedURL, refused = c.checkURL(r.URL); refused != nil {
		return nil, refused
	}
	if err := c.prepareHeader(p, r.Header, r.Fields); err != nil {
		return nil, err
	}
	if err := c.prepareCertificate(p, r); err != nil {
		return nil, err
	}
	return p, nil
}

// CheckFields checks headers that will not be sent, by the same rules as those that will. Its error is a *Refused.
func (c *Client) CheckFields(fields []Field) error {
	if _, err := c.headers.clean(nil, fields); err != nil {
		return err
	}
	return nil
}

// checkedURL is a URL that passed. Nobody may change it: requests share it.
type checkedURL struct {
	raw  string // as it came
	url  *url.URL
	text string // normalised
	host string // without port and brackets, for texts
}

// checkURL checks a URL, or remembers that it did: the nodes of a DON ask for the same one, and again and again.
func (c *Client) checkURL(raw string) (*checkedURL, *Refused) {
	if len(raw) > MaxURLBytes {
		return nil, refuse(ReasonURL, "the URL is over %d bytes", MaxURLBytes)
	}
	place := &c.checked[maphash.String(c.seed, raw)%uint64(len(c.checked))]
	if known := place.Load(); known != nil && known.raw == raw {
		return known, nil
	}
	u, refused := c.checkNewURL(raw)
	if refused != nil {
		return nil, refused
	}
	place.Store(u)
	return u, nil
}

func (c *Client) checkNewURL(raw string) (*checkedURL, *Refused) {
	// url.Parse's errors quote the URL.
	u, err := url.Parse(raw)
	if err != nil {
		return nil, refuse(ReasonURL, "the URL cannot be understood; write one such as https://api.example.com/path")
	}
	if !slices.Contains(c.schemes, u.Scheme) {
		return nil, refuse(ReasonScheme, "the URL does not start with %s://", strings.Join(c.schemes, ":// or "))
	}
	switch {
	case u.User != nil:
		return nil, refuse(ReasonUserinfo, "the URL holds a user name before its host; use the Authorization header")
	case u.Opaque != "" || u.Host == "":
		return nil, refuse(ReasonHost, "the URL has no host")
	case strings.Contains(raw, "#"):
		return nil, refuse(ReasonURL, "the URL has a fragment (#...), which is never sent; remove it")
	}
	t, refused := parseTarget(u.Host)
	if refused != nil {
		return nil, refused
	}
	if port := portOf(u.Scheme, t.port); !c.guard.ports.has(port) {
		return nil, refuse(ReasonPort, "the port %d is not allowed by this gateway's configuration", port)
	}
	if t.literal.IsValid() {
		if why := c.guard.check(t.literal); why != "" {
			return nil, refuse(ReasonAddress, "the address %s %s; actions can reach public addresses only", t.host, why)
		}
	}
	u.Host = t.authority()
	u.RawQuery = encodeQuery(u.RawQuery)
	return &checkedURL{raw: raw, url: u, text: u.String(), host: t.host}, nil
}

// portOf takes a port that parseTarget accepted.
func portOf(scheme, port string) uint16 {
	if port == "" {
		if scheme == "https" {
			return 443
		}
		return 80
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}

// encodeQuery percent-encodes what would end or garble the request line: url.Parse leaves a query as it is, spaces included.
func encodeQuery(q string) string {
	const hex = "0123456789ABCDEF"
	if !strings.ContainsFunc(q, outsideQuery) {
		return q
	}
	var b strings.Builder
	for _, c := range []byte(q) {
		if outsideQuery(rune(c)) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func outsideQuery(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>' }

func (c *Client) prepareHeader(p *Prepared, h map[string][]string, fields []Field) *Refused {
	header, err := c.headers.clean(h, fields)
	if err != nil {
		return err
	}
	header["User-Agent"] = c.userAgent
	// Who sets Accept-Encoding gets the bytes as they come; a range of a compressed body cannot be decompressed.
	if header["Accept-Encoding"] == nil && header["Range"] == nil {
		header["Accept-Encoding"], p.gunzip = acceptGzip, true
	}
	p.header, p.oneShot = header, bindsConnection(header)
	return nil
}

var acceptGzip = []string{"gzip"}

func (c *Client) prepareCertificate(p *Prepared, r *Request) *Refused {
	if len(r.CertPEM) == 0 && len(r.KeyPEM) == 0 {
		return nil
	}
	if c.mtls.off() {
		return refuse(ReasonMTLSOff, "client certificates are switched off at this gateway (mtlsBurst is 0)")
	}
	if p.url.Scheme != "https" {
		return refuse(ReasonMTLSKey, "a client certificate needs an https URL")
	}
	cert, err := parseMaterial(r.CertPEM, r.KeyPEM)
	if err != nil {
		return err
	}
	p.cert, p.certPEM, p.keyPEM = cert, r.CertPEM, r.KeyPEM
	return nil
}
