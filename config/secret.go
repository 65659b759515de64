package config

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// secretMask stands for a secret wherever it would be printed. A file that
// holds it in the place of a secret is refused with a text that says so.
const secretMask = "[secret]"

// Secret is text that never prints: every verb of fmt, String, GoString and
// JSON give "[secret]", or "" when there is none. Reveal gives the text to
// the one place that needs it.
type Secret string

// Reveal returns the text itself. Never log or wrap what it returns.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return secretMask
}

// GoString implements fmt.GoStringer, used by %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format implements fmt.Formatter, so that verbs which ignore String, such as
// %x, do not print the text either.
func (s Secret) Format(f fmt.State, verb rune) { formatMasked(f, verb, s.String(), s.GoString()) }

// formatMasked writes what every verb shows of a value whose text is not for showing.
func formatMasked(f fmt.State, verb rune, text, goText string) {
	if verb == 'q' {
		text = fmt.Sprintf("%q", text)
	} else if verb == 'v' && f.Flag('#') {
		text = goText
	}
	_, _ = f.Write([]byte(text))
}

// MarshalJSON implements json.Marshaler.
func (s Secret) MarshalJSON() ([]byte, error) {
	return jsontext.AppendQuote(nil, s.String())
}

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
