package keystore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"dongate/token"
)

// The first byte of what is stored says in which form the rest is.
const (
	formPlain byte = 1 // the value
	formAge   byte = 2 // an age file of the length of the id (4 bytes, most significant first), the id and the value
)

// maxKeyFile bounds, in bytes, the file that the keys are read from.
const maxKeyFile = 64 << 10

// Errors of what is stored, for errors.Is.
var (
	// ErrForm: the value is stored plain and must not be, or is encrypted and no key was given.
	ErrForm = errors.New("keystore: the value is stored in another form")
	// ErrSealed: the value cannot be decrypted: it is damaged, or was encrypted with a key that is not among those given.
	ErrSealed = errors.New("keystore: the value cannot be decrypted")
)

// Sealing is the form in which values are stored: encrypted, see [LoadSealing], or plain, see [Plain]. It never changes and nothing prints
// what it holds. It is safe for concurrent use.
type Sealing struct {
	recipient  age.Recipient // nil: plain
	identities []age.Identity
}

// Plain is to store values as they are: whoever can read the database, or a copy of it, has the keys.
func Plain() *Sealing { return &Sealing{} }

// SealingOptions say where the keys are that values are encrypted with: exactly one of File and Env is set. Either holds secret keys of
// age (AGE-SECRET-KEY-…, as age-keygen and [NewKey] make them), one a line; empty lines and those that begin with # do not count. The first
// encrypts, each of them decrypts: to change the key, put the new one first, call [Store.Reseal] and take the old one away. With several
// processes, all of them must have the new key in some place before it is the first of any.
type SealingOptions struct {
	File string // readable by its owner alone
	Env  string // name of an environment variable

	LookupEnv func(name string) (string, bool) // nil: os.LookupEnv
}

// LoadSealing reads the keys. Errors name the file or variable and what to do, never what is in it.
func LoadSealing(o SealingOptions) (*Sealing, error) {
	if (o.File == "") == (o.Env == "") {
		return nil, errors.New("keystore: the key must be in a file or in an environment variable, one of the two")
	}
	if o.File != "" {
		text, err := readKeyFile(o.File)
		if err != nil {
			return nil, fmt.Errorf("keystore: the file of the key: %w", err)
		}
		return parseKeys(text, o.File)
	}
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	text, ok := o.LookupEnv(o.Env)
	if !ok || text == "" {
		return nil, fmt.Errorf("keystore: the environment variable %s is not set", o.Env)
	}
	return parseKeys(text, "the environment variable "+o.Env)
}

// NewKey returns a new secret key, as text that LoadSealing takes.
func NewKey() (string, error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", fmt.Errorf("keystore: making a key: %w", err)
	}
	return key.String(), nil
}

func readKeyFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others (mode %04o): run chmod 600 %[1]s", path, mode.Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxKeyFile {
		return "", fmt.Errorf("%s has more than %d bytes", path, maxKeyFile)
	}
	return string(text), nil
}

func parseKeys(text, where string) (*Sealing, error) {
	// The library's error may repeat a part of the line it could not read.
	bad := fmt.Errorf("keystore: %s holds something else than secret keys of age: make one with age-keygen", where)
	identities, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil || len(identities) == 0 {
		return nil, bad
	}
	s := &Sealing{identities: identities}
	switch first := identities[0].(type) {
	case *age.X25519Identity:
		s.recipient = first.Recipient()
	case *age.HybridIdentity:
		s.recipient = first.Recipient()
	default:
		return nil, bad
	}
	return s, nil
}

// Seal returns what is to be stored for the value of that id.
func (s *Sealing) Seal(id string, value []byte) ([]byte, error) {
	if s.recipient == nil {
		return append([]byte{formPlain}, value...), nil
	}
	var out bytes.Buffer
	out.WriteByte(formAge)
	w, err := age.Encrypt(&out, s.recipient)
	if err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	inner := binary.BigEndian.AppendUint32(nil, uint32(len(id)))
	inner = append(append(inner, id...), value...)
	if _, err := w.Write(inner); err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypting: %w", err)
	}
	return out.Bytes(), nil
}

// Open returns the value of what is stored for that id. A value in the other form than the Sealing's is ErrForm, one that cannot be
// decrypted ErrSealed, and one that was encrypted for another id token.ErrIntegrity.
func (s *Sealing) Open(id string, stored []byte) ([]byte, error) {
	form := formAge
	if s.recipient == nil {
		form = formPlain
	}
	switch {
	case len(stored) == 0 || stored[0] != formAge && stored[0] != formPlain:
		return nil, fmt.Errorf("%w: it begins as nothing that is stored here", token.ErrIntegrity)
	case stored[0] != form && form == formAge:
		return nil, fmt.Errorf("%w: it is not encrypted", ErrForm)
	case stored[0] != form:
		return nil, fmt.Errorf("%w: it is encrypted", ErrForm)
	case form == formPlain:
		return bytes.Clone(stored[1:]), nil
	}
	r, err := age.Decrypt(bytes.NewReader(stored[1:]), s.identities...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	inner, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	if len(inner) < 4 || uint64(len(inner)-4) < uint64(binary.BigEndian.Uint32(inner)) {
		return nil, fmt.Errorf("%w: it was not encrypted here", token.ErrIntegrity)
	}
	n := 4 + int(binary.BigEndian.Uint32(inner))
	if string(inner[4:n]) != id {
		return nil, fmt.Errorf("%w: it was encrypted for another key", token.ErrIntegrity)
	}
	return inner[n:], nil
}

// Encrypted tells whether values are stored encrypted.
func (s *Sealing) Encrypted() bool { return s.recipient != nil }

// String tells the form and nothing of the keys.
func (s Sealing) String() string {
	if s.recipient == nil {
		return "plain"
	}
	return "encrypted"
}

// Format writes the same, whatever the verb.
func (s Sealing) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns the same.
func (s Sealing) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
