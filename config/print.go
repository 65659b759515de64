package config

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Print returns the effective configuration as indented JSON: every member of
// the table with the value in force, in the newer file form whichever form was
// read. Parse reads it back to an equal Config, save for secrets, which are
// shown as "[secret]" and refused with a text that says so; give those by
// their environment variables.
func (c *Config) Print() []byte {
	p := newPrinter(false, "  ")
	p.object(tableOf(c))
	return append(p.bytes(), '\n')
}

// printer writes JSON. Errors of the encoder are left aside: it writes to
// memory, and every string was checked to be UTF-8 when it was read.
type printer struct {
	buf    bytes.Buffer
	enc    *jsontext.Encoder
	reveal bool // secrets in clear, for comparing two configurations
}

func newPrinter(reveal bool, indent string) *printer {
	p := &printer{reveal: reveal}
	options := []jsontext.Options{jsontext.Multiline(false)}
	if indent != "" {
		options = []jsontext.Options{jsontext.WithIndent(indent)}
	}
	p.enc = jsontext.NewEncoder(&p.buf, options...)
	return p
}

func (p *printer) bytes() []byte { return bytes.TrimRight(p.buf.Bytes(), "\n") }

func (p *printer) open(kind jsontext.Kind) {
	if kind == '{' {
		_ = p.enc.WriteToken(jsontext.BeginObject)
	} else {
		_ = p.enc.WriteToken(jsontext.BeginArray)
	}
}

func (p *printer) close(kind jsontext.Kind) {
	if kind == '}' {
		_ = p.enc.WriteToken(jsontext.EndObject)
	} else {
		_ = p.enc.WriteToken(jsontext.EndArray)
	}
}

func (p *printer) str(s string)    { _ = p.enc.WriteToken(jsontext.String(s)) }
func (p *printer) integer(i int64) { _ = p.enc.WriteToken(jsontext.Int(i)) }
func (p *printer) float(x float64) { _ = p.enc.WriteToken(jsontext.Float(x)) }
func (p *printer) boolean(b bool)  { _ = p.enc.WriteToken(jsontext.Bool(b)) }

func (p *printer) object(fields []field) {
	p.open('{')
	for i := range fields {
		f := &fields[i]
		switch {
		case f.fields != nil:
			p.str(f.name)
			p.object(f.fields)
		case f.write != nil:
			p.str(f.name)
			f.write(p)
		}
	}
	p.close('}')
}
