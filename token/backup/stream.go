package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"filippo.io/age"
)

const (
	format  = "dongate token backup"
	version = 1
	// maxLine bounds, in bytes, a line of a backup: a row has up to 12 MiB of bytes, which base64 makes a third more.
	maxLine = 64 << 20
	// maxWorkFactor bounds what opening a backup may cost: 1 GiB of memory and some seconds. age itself uses 18.
	maxWorkFactor = 20
)

// line is a line of a backup: exactly one of the three is there.
type line struct {
	Header *header           `json:"backup,omitempty"`
	Table  string            `json:"table,omitempty"`
	Row    []json.RawMessage `json:"row,omitempty"`
	End    map[string]int64  `json:"end,omitempty"` // rows by table
}

type header struct {
	Format  string              `json:"format"`
	Version int                 `json:"version"`
	Prefix  string              `json:"prefix"`
	Created time.Time           `json:"created"`
	Columns map[string][]string `json:"columns"` // of each table, in the order of its rows
}

func newHeader(prefix string, created time.Time) *header {
	h := &header{format, version, prefix, created.UTC().Truncate(time.Second), map[string][]string{}}
	for _, t := range tables {
		h.Columns[t.name] = t.names()
	}
	return h
}

func (h *header) check() error {
	switch {
	case h == nil || h.Format != format:
		return fmt.Errorf("%w: it does not begin as a backup", ErrDamaged)
	case h.Version != version || !maps.EqualFunc(h.Columns, newHeader("", h.Created).Columns, slices.Equal):
		return fmt.Errorf("%w: %d instead of %d, or with other tables", ErrVersion, h.Version, version)
	}
	return nil
}

// reader reads the lines of a backup.
type reader struct {
	plain   *bufio.Reader
	buffer  []byte // of the line that was read
	summary Summary
}

// open reads the beginning of a backup.
func open(r io.Reader, identity age.Identity) (*reader, error) {
	plain, err := age.Decrypt(r, identity)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return nil, ErrPassphrase
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return openPlain(plain)
}

func openPlain(plain io.Reader) (*reader, error) {
	b := &reader{plain: bufio.NewReaderSize(plain, 64<<10)}
	first, err := b.line()
	if err != nil {
		return nil, err
	}
	if err := first.Header.check(); err != nil {
		return nil, err
	}
	b.summary = newSummary(first.Header.Prefix, first.Header.Created)
	return b, nil
}

func (b *reader) line() (l line, err error) {
	b.buffer = b.buffer[:0]
	for {
		part, err := b.plain.ReadSlice('\n')
		if b.buffer = append(b.buffer, part...); err == nil {
			break
		}
		switch {
		case err == io.EOF:
			return l, fmt.Errorf("%w: its end is missing", ErrDamaged)
		case err != bufio.ErrBufferFull:
			return l, fmt.Errorf("%w: %w", ErrDamaged, err)
		case len(b.buffer) > maxLine:
			return l, fmt.Errorf("%w: a line has more than %d bytes", ErrDamaged, maxLine)
		}
	}
	d := json.NewDecoder(bytes.NewReader(b.buffer))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return l, fmt.Errorf("%w: a line cannot be read: %w", ErrDamaged, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return l, fmt.Errorf("%w: a line has more than one value", ErrDamaged)
	}
	return l, nil
}

// next returns the next row and the place of its table in tables; io.EOF when all rows were read and were as many as there should be.
func (b *reader) next() (int, row, error) {
	l, err := b.line()
	if err != nil {
		return 0, nil, err
	}
	if l.End != nil {
		return 0, nil, b.end(l.End)
	}
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == l.Table })
	if i < 0 || l.Header != nil {
		return 0, nil, fmt.Errorf("%w: a line is no row", ErrDamaged)
	}
	r, err := tables[i].decode(l.Row)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: a row of %s: %w", ErrDamaged, l.Table, err)
	}
	b.summary.Tables[i].Rows++
	return i, r, nil
}

// end compares what was read with what was written, and returns io.EOF if nothing follows.
func (b *reader) end(want map[string]int64) error {
	for _, c := range b.summary.Tables {
		if want[c.Table] != c.Rows {
			return fmt.Errorf("%w: %d rows of %s instead of %d", ErrDamaged, c.Rows, c.Table, want[c.Table])
		}
	}
	switch _, err := b.plain.ReadByte(); err {
	case io.EOF:
		return io.EOF
	case nil:
		return fmt.Errorf("%w: something follows its end", ErrDamaged)
	default:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
}

// passphraseIdentity opens backups, and repeated readings of one at the cost of one.
type passphraseIdentity struct {
	scrypt *age.ScryptIdentity
	stanza *age.Stanza
	key    []byte
}

func newPassphrase(passphrase string) (*passphraseIdentity, error) {
	scrypt, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, errors.New("backup: the passphrase is empty")
	}
	scrypt.SetMaxWorkFactor(maxWorkFactor)
	return &passphraseIdentity{scrypt: scrypt}, nil
}

// Unwrap implements age.Identity.
func (p *passphraseIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	if p.key != nil && len(stanzas) == 1 && stanzas[0].Type == p.stanza.Type && slices.Equal(stanzas[0].Args, p.stanza.Args) && bytes.Equal(stanzas[0].Body, p.stanza.Body) {
		return p.key, nil
	}
	key, err := p.scrypt.Unwrap(stanzas)
	if err == nil {
		p.key, p.stanza = key, stanzas[0]
	}
	return key, err
}
