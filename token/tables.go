package token

import (
	"embed"
	"errors"
	"fmt"
	"strings"

	"dongate/storage"
)

//go:embed migrations
var migrations embed.FS

// TMS names a token management system: where on which network its tokens live.
type TMS struct {
	Network   string
	Channel   string
	Namespace string
}

// String returns the three parts, separated by commas.
func (t TMS) String() string { return t.Network + "," + t.Channel + "," + t.Namespace }

// ErrTMS: tables cannot be named after this token management system.
var ErrTMS = errors.New("token: no tables can be named after this token management system")

// maxPrefix leaves room for the longest name of a table, an index or a trigger.
const maxPrefix = storage.MaxNameBytes - len("tokens_spendable_amount")

// Prefix returns what the names of the TMS's tables begin with: the three parts, each ended by "__". In a part _ becomes _u, - becomes _d,
// . becomes _f and a capital letter _x and the small one, so that different TMSs have different tables. Parts of anything else, a network
// that does not begin with a letter, and names that would be too long are refused with ErrTMS.
func (t TMS) Prefix() (string, error) {
	var b strings.Builder
	for _, part := range []string{t.Network, t.Channel, t.Namespace} {
		for _, c := range []byte(part) {
			switch {
			case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
				b.WriteByte(c)
			case c >= 'A' && c <= 'Z':
				b.WriteString("_x" + string(c+'a'-'A'))
			case c == '_':
				b.WriteString("_u")
			case c == '-':
				b.WriteString("_d")
			case c == '.':
				b.WriteString("_f")
			default:
				return "", fmt.Errorf("%w: %.100q has other characters than letters, digits, '_', '-' and '.'", ErrTMS, part)
			}
		}
		b.WriteString("__")
	}
	prefix := b.String()
	switch {
	case prefix[0] < 'a' || prefix[0] > 'z':
		return "", fmt.Errorf("%w: the network %.100q does not begin with a small letter", ErrTMS, t.Network)
	case len(prefix) > maxPrefix:
		return "", fmt.Errorf("%w: %q is longer than %d bytes", ErrTMS, prefix, maxPrefix)
	}
	return prefix, nil
}

// Tables returns all token tables of one TMS, with the prefix that [TMS.Prefix] returns. Every database in which one of the TMS's stores
// lives has all of them; those of stores that live elsewhere stay empty.
func Tables(prefix string) storage.Domain {
	return storage.Domain{Name: "token", FS: migrations, Dir: "migrations", Prefix: prefix}
}
