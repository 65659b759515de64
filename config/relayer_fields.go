package config

import (
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// extent is the default and the bounds of a duration.
type extent struct {
	def, min, max time.Duration
	// step is what a duration must be a whole multiple of; 0: a millisecond.
	step time.Duration
}

// lasting is a duration in the relayer's section: a Go duration, or an integer of milliseconds. A written 0 means the default.
func lasting(name string, dst *time.Duration, e extent, doc string) field {
	if e.min == 0 {
		e.min = ms
	}
	if e.max == 0 {
		e.max = maxDuration
	}
	whole := ""
	if e.step == sec {
		whole = ", in whole seconds"
	}
	e.step = max(e.step, ms)
	want := fmt.Sprintf(`a Go duration such as "90s", or an integer of milliseconds, from %s to %s%s, or 0 for the default (%s)`,
		short(e.min), short(e.max), whole, short(e.def))
	return field{
		name: name, kind: "a Go duration or an integer of milliseconds", def: strconv.Quote(short(e.def)),
		bounds: short(e.min) + " to " + short(e.max) + whole, doc: doc, scalar: 'd',
		reset: func() { *dst = e.def },
		read: func(v value) {
			d, ok := v.duration()
			switch {
			case !ok, d != 0 && (d < e.min || d > e.max), d%e.step != 0:
				v.fail(want)
			case d != 0:
				*dst = d
			}
		},
		write: func(p *printer) { p.str(short(*dst)) },
	}
}

// duration reads a Go duration or milliseconds.
func (v value) duration() (time.Duration, bool) {
	if v.n.kind == '"' {
		d, err := time.ParseDuration(v.n.text)
		return d, err == nil
	}
	x, ok := v.float(true)
	if !ok || math.Abs(x) > float64(maxDuration/ms) {
		return 0, false
	}
	return time.Duration(x) * ms, true
}

// short is a duration without zeros at its end: "8760h", not "8760h0m0s".
func short(d time.Duration) string {
	s := d.String()
	if d >= time.Minute && strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if d >= time.Hour && strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// chainID is an EIP-155 chain id.
func chainID(name string, dst *uint64, def, doc string) field {
	return withDefault(def, integer(name, dst, span{min: 1, max: 1 << 53}, "", doc))
}

// contract is an address that may be left out: then it is zero, and prints as "".
func contract(name string, dst *common.Address, def, doc string) field {
	f := withDefault(def, addressField(name, dst, doc))
	read, write := f.read, f.write
	f.read = func(v value) {
		if v.n.kind == '"' && v.n.text == "" {
			return
		}
		read(v)
		if v.b.ok(v.path) && *dst == (common.Address{}) {
			v.fail("the contract's address; nothing is at the zero address")
		}
	}
	f.write = func(p *printer) {
		if *dst == (common.Address{}) {
			p.str("")
			return
		}
		write(p)
	}
	return f
}

// dataID is the id of key material: 32 bytes.
func dataID(name string, dst *common.Hash, doc string) field {
	return field{
		name: name, kind: "a string", doc: doc, scalar: 's',
		reset: func() { *dst = common.Hash{} },
		read: func(v value) {
			if v.n.kind == '"' && v.n.text == "" {
				return
			}
			b, err := hex.DecodeString(strings.TrimPrefix(v.n.text, "0x"))
			if v.n.kind != '"' || !strings.HasPrefix(v.n.text, "0x") || err != nil || len(b) != common.HashLength {
				v.fail("an id: 0x and 64 hex digits, in quotes")
				return
			}
			*dst = common.BytesToHash(b)
		},
		write: func(p *printer) {
			if *dst == (common.Hash{}) {
				p.str("")
				return
			}
			p.str(dst.Hex())
		},
	}
}

// endpoint is the URL of a node. No message shows it.
func endpoint(name string, dst *Endpoint, doc string, schemes ...string) field {
	return field{
		name: name, kind: "a URL", bounds: strings.Join(schemes, ", "), doc: doc, scalar: 's', secret: true,
		reset: func() { *dst = "" },
		read: func(v value) {
			if v.n.kind == '"' && v.n.text == "" {
				return
			}
			*dst = v.endpoint(schemes)
		},
		write: func(p *printer) { p.endpoint(*dst) },
	}
}

// endpoints is a list of at most eight URLs of nodes.
func endpoints(name string, dst *[]Endpoint, def, doc string, schemes ...string) field {
	const most = 8
	return field{
		name: name, kind: "a list of URLs", def: def, bounds: fmt.Sprintf("at most %d; %s", most, strings.Join(schemes, ", ")), doc: doc, secret: true,
		reset: func() { *dst = nil },
		read: func(v value) {
			switch {
			case v.n.kind != '[':
				v.b.fail(v.path, `this is not a list; write the nodes' URLs as ["https://…"]`)
				return
			case len(v.n.items) > most:
				v.fail(fmt.Sprintf("at most %d URLs (these are %d)", most, len(v.n.items)))
				return
			}
			for i, item := range v.n.items {
				at := index(v.path, i)
				item = v.b.override(at, item)
				e := value{v.b, item, at}.endpoint(schemes)
				if e == "" {
					v.b.bad[v.path] = true
					continue
				}
				*dst = append(*dst, e)
			}
		},
		write: func(p *printer) {
			p.open('[')
			for _, e := range *dst {
				p.endpoint(e)
			}
			p.close(']')
		},
	}
}

func (p *printer) endpoint(e Endpoint) {
	if p.reveal {
		p.str(e.Reveal())
	} else {
		p.str(e.String())
	}
}

// endpoint reads a URL of one of the schemes, "" when it is none. What is wrong with it is told without repeating any of it.
func (v value) endpoint(schemes []string) Endpoint {
	example := fmt.Sprintf("a URL such as %q", schemes[0]+"://node.example:8545")
	if v.n.kind != '"' {
		v.b.fail(v.path, "this URL is not a string; write %s", example)
		return ""
	}
	u, err := url.Parse(v.n.text)
	switch {
	case strings.Contains(v.n.text, secretMask):
		v.b.fail(v.path, "found a URL with %q, which a printed configuration holds in the place of a secret; write the URL itself, or set the variable %s",
			secretMask, envName(v.path))
	case err != nil || len(v.n.text) > maxURL || strings.ContainsFunc(v.n.text, func(r rune) bool { return r <= ' ' || r > '~' }):
		v.b.fail(v.path, "this is not a URL that can be used; write %s, other characters than letters, digits and -._~:/?#[]@!$&'()*+,;= as %%XX", example)
	case !slices.Contains(schemes, u.Scheme):
		v.b.fail(v.path, "this URL does not start with %s; write %s", strings.Join(schemes, ":// or ")+"://", example)
	case u.Hostname() == "" || u.Opaque != "" || !goodPort(u):
		v.b.fail(v.path, "this URL has no host, or a port that is none; write %s", example)
	case u.Fragment != "":
		v.b.fail(v.path, `this URL has a "#", and what follows is never sent; write %s, a "#" in it as %%23`, example)
	default:
		return Endpoint(v.n.text)
	}
	return ""
}

// maxURL bounds a URL in bytes.
const maxURL = 2048

func goodPort(u *url.URL) bool {
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		return err == nil && n > 0
	}
	return !strings.HasSuffix(u.Host, ":")
}

// checkPublicURL accepts a URL that clients are told.
func checkPublicURL(s string) (string, string) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || !goodPort(u) || len(s) > maxURL ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", `a URL such as "https://keys.example/PublicKey/…" that clients can fetch`
	}
	return s, ""
}

// variableName is strict, so that few secrets pass for a name.
var variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)

// variable is the name of an environment variable that holds a secret. What is no name may be the secret itself, so that no
// message repeats it.
func variable(name string, dst *string, def, doc string) field {
	f := withDefault(def, text(name, dst, "", doc, acceptText))
	f.read = func(v value) {
		switch {
		case v.n.kind != '"' || v.n.text != "" && !variableName.MatchString(v.n.text):
			v.b.fail(v.path, `this is not the name of a variable; write a name such as "RELAYER_KEY" (A to Z, 0 to 9 and _), never the secret itself`)
		case v.n.text != "":
			*dst = v.n.text
		}
	}
	return f
}

// checkListen accepts host:port; a host of "" is every address, port 0 any free port.
func checkListen(s string) (string, string) {
	const want = `host:port such as "127.0.0.1:3000", ":3000" or "[::1]:3000"; port 0 is any free one`
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", want
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", want
	}
	if host != "" {
		var wrong string
		if host, wrong = checkHost(host); wrong != "" {
			return "", want
		}
	}
	return net.JoinHostPort(host, port), ""
}
