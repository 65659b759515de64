package egress

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxRequestHeaderBytes bounds the names and values a request may set, together.
const MaxRequestHeaderBytes = 64 << 10

// blockedHeaders is the protocol's own list (§7); a configuration adds to it. They frame messages, name the sender, or speak for a proxy, so a
// stranger who sets them could smuggle requests or impersonate others.
var blockedHeaders = []string{
	"host", "content-length", "transfer-encoding", "user-agent", "upgrade", "expect", "connection", "keep-alive", "te", "trailer", "forwarded",
	"proxy-*", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
}

// headerRules are the names a request may not set.
type headerRules struct {
	exact    map[string]bool
	prefixes []string
}

func newHeaderRules(extra []string) (*headerRules, error) {
	r := &headerRules{exact: map[string]bool{}}
	for _, name := range slices.Concat(blockedHeaders, extra) {
		name = comparable(name)
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if !isToken(prefix) || strings.Contains(prefix, "*") {
			return nil, fmt.Errorf("blocked header %q is neither a name nor a prefix such as x-internal-*", name)
		}
		switch {
		case isPrefix && slices.Contains(r.prefixes, prefix):
		case isPrefix:
			r.prefixes = append(r.prefixes, prefix)
		default:
			r.exact[name] = true
		}
	}
	return r, nil
}

// comparable is the form in which names are compared: many servers take X_Real_IP for X-Real-IP.
func comparable(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// rule returns the entry of the list that forbids name, a token; "" if none does.
func (r *headerRules) rule(name string) string {
	var short [64]byte // on the stack
	folded := append(short[:0], name...)
	for i, c := range folded { // comparable, for a token, without allocating
		switch {
		case c == '_':
			folded[i] = '-'
		case 'A' <= c && c <= 'Z':
			folded[i] = c + 'a' - 'A'
		}
	}
	if r.exact[string(folded)] {
		return string(folded)
	}
	for _, p := range r.prefixes {
		if len(folded) >= len(p) && string(folded[:len(p)]) == p {
			return p + "*"
		}
	}
	return ""
}

// Field is one header with one value.
type Field struct{ Name, Value string }

// clean checks headers in both forms and returns them with canonical names, in a map of its own. Values under several spellings of one name are joined in
// the order of the spellings, so that equal requests stay equal. No text quotes a name or a value that a stranger made up.
func (r *headerRules) clean(h map[string][]string, fields []Field) (http.Header, *Refused) {
	n := len(h) + len(fields)
	c := cleaner{rules: r, out: make(http.Header, n+2), all: make([]string, 0, n)}
	var fewNames [16]string // on the stack, as below; more of them are allocated
	for _, name := range sortedNames(h, fewNames[:0]) {
		if err := c.add(name, h[name]...); err != nil {
			return nil, err
		}
	}
	var fewFields [16]Field
	sorted := append(fewFields[:0], fields...)
	slices.SortStableFunc(sorted, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range sorted {
		if err := c.add(f.Name, f.Value); err != nil {
			return nil, err
		}
	}
	return c.out, nil
}

// cleaner is clean at work.
type cleaner struct {
	rules *headerRules
	out   http.Header
	all   []string // the values of most names, which have one
	size  int
}

func (c *cleaner) add(name string, values ...string) *Refused {
	if !isToken(name) {
		return refuse(ReasonHeader, "a header's name is empty or has a character that names cannot have")
	}
	if rule := c.rules.rule(name); rule != "" {
		return refuse(ReasonHeader, "the header %q cannot be set by an action; leave it out", clipName(rule))
	}
	key := http.CanonicalHeaderKey(name)
	for _, value := range values {
		if err := checkValue(value); err != nil {
			return err
		}
		if c.size += len(name) + len(value) + len(": \r\n"); c.size > MaxRequestHeaderBytes {
			return refuse(ReasonHeader, "the request's headers are over %d bytes together", MaxRequestHeaderBytes)
		}
		value = strings.Trim(value, " ")
		if given := c.out[key]; given != nil {
			c.out[key] = append(given, value)
			continue
		}
		c.all = append(c.all, value)
		c.out[key] = c.all[len(c.all)-1 : len(c.all) : len(c.all)]
	}
	return nil
}

func sortedNames(h map[string][]string, names []string) []string {
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkValue refuses control characters of ASCII (CR, LF, NUL and tab among them), of Unicode, and what is not UTF-8.
func checkValue(value string) *Refused {
	if isPrintable(value) {
		return nil
	}
	for i, c := range value {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(value[i:], "\uFFFD"):
			return refuse(ReasonHeader, "a header's value is not valid UTF-8 at byte %d", i)
		case unicode.IsControl(c):
			return refuse(ReasonHeader, "a header's value has the control character %U at byte %d; remove it", c, i)
		}
	}
	return nil
}

// isPrintable reports whether s is nothing but printable ASCII, as nearly all values are.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

func clipName(s string) string { return s[:min(len(s), 64)] }

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// bindsConnection reports whether the credentials in h authenticate the connection rather than the request (RFC 4559, NTLM). Such a connection must
// not be reused: the next request on it would come from someone else.
func bindsConnection(h http.Header) bool {
	for _, v := range h["Authorization"] {
		scheme, _, _ := strings.Cut(v, " ")
		if strings.EqualFold(scheme, "Negotiate") || strings.EqualFold(scheme, "NTLM") {
			return true
		}
	}
	return false
}
