package config

import (
	"fmt"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
)

// Endpoint is the URL of a node. Its path, query and user may hold an API key, so that it never prints more than scheme and host:
// "https://node.example/[secret]". Reveal gives the URL to the one place that dials it.
type Endpoint string

// Reveal returns the URL itself. Never log or wrap what it returns.
func (e Endpoint) Reveal() string { return string(e) }

// Host is the host, with the port where there is one: what a log or a metric may show. "" where there is no URL.
func (e Endpoint) Host() string {
	u, err := url.Parse(string(e))
	if err != nil {
		return ""
	}
	return u.Host
}

// String implements fmt.Stringer. A URL of nothing but scheme and host is whole.
func (e Endpoint) String() string {
	u, err := url.Parse(string(e))
	switch plain := ""; {
	case e == "":
		return ""
	case err != nil:
		return secretMask
	default:
		plain = u.Scheme + "://" + u.Host
		if string(e) == plain || string(e) == plain+"/" {
			return string(e)
		}
		return plain + "/" + secretMask
	}
}

// GoString implements fmt.GoStringer, used by %#v.
func (e Endpoint) GoString() string { return fmt.Sprintf("config.Endpoint(%q)", e.String()) }

// Format implements fmt.Formatter, so that no verb prints the URL.
func (e Endpoint) Format(f fmt.State, verb rune) { formatMasked(f, verb, e.String(), e.GoString()) }

// MarshalJSON implements json.Marshaler.
func (e Endpoint) MarshalJSON() ([]byte, error) { return jsontext.AppendQuote(nil, e.String()) }

// MarshalText implements encoding.TextMarshaler.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
