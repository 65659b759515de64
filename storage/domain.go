package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"text/template"
)

// MaxNameBytes is how long a name in a schema may be. PostgreSQL cuts longer ones, so that two could become one.
const MaxNameBytes = 63

// Domain is a set of tables with one sequence of migrations.
//
// A migration is a file NNNNN_name.sql in goose's format, of the part that follows "-- +goose Up" alone: schemas only go forward. It is a
// template (text/template) with these values:
//
//	{{.Prefix}}                   what every name of this domain begins with
//	{{.Time}} {{.Bytes}}          column types: of a [Time], of bytes
//	{{.Amount}} {{.Movement}}     column types: of an [Amount], of a [Movement]
//	{{if .Postgres}} {{if .SQLite}}
//
// On SQLite all pending migrations of a call run in one transaction, with foreign keys checked before its end and not in between, so that
// tables can be rebuilt. On PostgreSQL each runs in its own.
type Domain struct {
	Name string // lower-case letters, digits and underscores, beginning with a letter
	FS   fs.FS  // usually embedded
	Dir  string // where in FS the files are; "": at the top
	// Prefix distinguishes several sets of the same tables in one database, like "net_chan_ns_". Spelt like Name, or empty.
	Prefix string
}

var (
	namePattern     = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	longNamePattern = regexp.MustCompile(fmt.Sprintf(`[A-Za-z_\x80-\xff][\w$\x80-\xff]{%d,}|"[^"\n]{%d,}"`, MaxNameBytes, MaxNameBytes+1))
)

// versionTable is where goose keeps which migrations were applied.
func (d Domain) versionTable() string { return d.Prefix + d.Name + versionTableSuffix }

const versionTableSuffix = "_migrations"

// String returns the domain's name, with its prefix where it has one.
func (d Domain) String() string {
	if d.Prefix == "" {
		return d.Name
	}
	return d.Name + " (" + d.Prefix + ")"
}

// columns are the values of a migration's template.
type columns struct {
	Prefix                        string
	Postgres, SQLite              bool
	Time, Bytes, Amount, Movement string
}

func (d Domain) columns(b Backend) columns {
	if b == Postgres {
		return columns{d.Prefix, true, false, "TIMESTAMPTZ", "BYTEA", "NUMERIC(78,0)", "NUMERIC(78,0)"}
	}
	return columns{d.Prefix, false, true, "TEXT", "BLOB", "BLOB", "BLOB"}
}

// render returns the domain's migrations as SQL for the backend.
func (d Domain) render(b Backend) (rendered, error) {
	switch {
	case !namePattern.MatchString(d.Name):
		return rendered{}, fmt.Errorf("the name %q of a domain must be lower-case letters, digits and underscores", d.Name)
	case d.Prefix != "" && !namePattern.MatchString(d.Prefix):
		return rendered{}, fmt.Errorf("%s: the prefix must be lower-case letters, digits and underscores", d)
	case len(d.versionTable()) > MaxNameBytes:
		return rendered{}, fmt.Errorf("%s: the name %q is longer than %d bytes", d, d.versionTable(), MaxNameBytes)
	}
	dir := d.FS
	if d.Dir != "" {
		sub, err := fs.Sub(d.FS, d.Dir)
		if err != nil {
			return rendered{}, err
		}
		dir = sub
	}
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		return rendered{}, err
	}
	out := rendered{dir, make(map[string]string, len(names))}
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err == nil {
			out.texts[name], err = d.renderFile(b, string(text))
		}
		if err != nil {
			return rendered{}, fmt.Errorf("%s: migration %s: %w", d, path.Base(name), err)
		}
	}
	if len(out.texts) == 0 {
		return rendered{}, fmt.Errorf("%s has no migrations", d)
	}
	return out, nil
}

func (d Domain) renderFile(b Backend, text string) (string, error) {
	if strings.Contains(text, "+goose NO TRANSACTION") {
		return "", errors.New("must run in a transaction")
	}
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var sql bytes.Buffer
	if err := t.Execute(&sql, d.columns(b)); err != nil {
		return "", err
	}
	if long := longNamePattern.Find(sql.Bytes()); long != nil {
		return "", fmt.Errorf("the name %s is longer than %d bytes", long, MaxNameBytes)
	}
	return sql.String(), nil
}

// rendered is a directory whose migrations read as what became of them.
type rendered struct {
	fs.FS
	texts map[string]string
}

func (r rendered) Open(name string) (fs.File, error) {
	file, err := r.FS.Open(name)
	if text, ok := r.texts[name]; ok && err == nil {
		return renderedFile{file, strings.NewReader(text)}, nil
	}
	return file, err
}

type renderedFile struct {
	fs.File
	text *strings.Reader
}

func (f renderedFile) Read(p []byte) (int, error) { return f.text.Read(p) }
