package backup

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token/keystore"
)

// kind is what a column holds, and so how it is spelt in a backup and given to the database.
type kind uint8

const (
	text     kind = iota // string
	integer              // int64
	data                 // []byte, nil for NULL; base64 in a backup
	moment               // storage.Time
	document             // string: JSON
	secret               // []byte: opened, and sealed in the database
)

// rule is what becomes of a column of a row that is in the database already.
type rule uint8

const (
	equal rule = iota // must be the same
	keep              // the database's stays: it may have gone on, or been made at another time
	fill              // the same, or the database's is empty and takes the backup's
)

type column struct {
	name string
	kind kind
	rule rule
}

// table is one that cannot be rebuilt from the ledger, wholly or in part.
type table struct {
	name    string
	of      func(Stores) *storage.DB
	key     int // so many of the columns, from the first, are the primary key
	columns []column
}

// tables are in the order in which they can be filled.
var tables = []table{
	{"id_cfgs", identities, 3, []column{{"id", text, equal}, {"type", text, equal}, {"url", text, equal}, {"conf", data, equal}, {"raw", data, equal}, {"conf_id", text, equal}}},
	{"id_info", identities, 1, []column{{"identity_hash", text, equal}, {"identity", data, equal}, {"identity_audit_info", data, equal},
		{"token_metadata", data, equal}, {"token_metadata_audit_info", data, equal}}},
	{"id_signers", identities, 1, []column{{"identity_hash", text, equal}, {"identity", data, equal}, {"info", data, equal}}},
	{"wallets", identities, 3, []column{{"identity_hash", text, equal}, {"wallet_id", text, equal}, {"role_id", integer, equal}, {"meta", data, equal},
		{"enrollment_id", text, equal}, {"created_at", moment, keep}, {"conf_id", text, equal}}},
	{"key_store", func(s Stores) *storage.DB { return s.Keys }, 1, []column{{"key", text, equal}, {"val", secret, equal}}},
	{"requests", func(s Stores) *storage.DB { return s.Transactions }, 1, requestColumns},
	{"aud_requests", func(s Stores) *storage.DB { return s.Audit }, 1, requestColumns},
}

func identities(s Stores) *storage.DB { return s.Identities }

var requestColumns = []column{{"tx_id", text, equal}, {"request", data, equal}, {"status", integer, keep}, {"status_message", text, keep},
	{"application_metadata", document, fill}, {"public_metadata", document, fill}, {"pp_hash", data, keep}, {"stored_at", moment, keep}}

func (t table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// sqlTable is the table with its columns for package query.
func (t table) sqlTable(prefix string) (query.Table, []query.Column[any]) {
	q := query.NewTable(prefix + t.name)
	columns := make([]query.Column[any], len(t.columns))
	for i, c := range t.columns {
		columns[i] = query.NewColumn[any](q, c.name)
	}
	return q, columns
}

// row has a value per column, of the types that the kinds say.
type row []any

func (t table) describe(r row) string { return fmt.Sprintf("%s %.200q", t.name, r[:t.key]) }

// scan reads a row, with secrets opened.
func (t table) scan(rows *sql.Rows, sealing *keystore.Sealing) (row, error) {
	dest := make([]any, len(t.columns))
	for i, c := range t.columns {
		switch c.kind {
		case text, document:
			dest[i] = new(string)
		case integer:
			dest[i] = new(int64)
		case moment:
			dest[i] = new(storage.Time)
		case data, secret:
			dest[i] = new(sql.Null[[]byte])
		}
	}
	if err := rows.Scan(dest...); err != nil {
		return nil, err
	}
	r := make(row, len(dest))
	for i, d := range dest {
		switch v := d.(type) {
		case *string:
			r[i] = *v
		case *int64:
			r[i] = *v
		case *storage.Time:
			r[i] = *v
		case *sql.Null[[]byte]:
			b := v.V
			if v.Valid && b == nil {
				b = []byte{}
			}
			r[i] = b
		}
		if t.columns[i].kind == secret {
			if sealing == nil {
				return nil, errors.New("there are keys, and it was not said how they are stored")
			}
			value, err := sealing.Open(r[0].(string), r[i].([]byte))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.describe(r), err)
			}
			r[i] = value
		}
	}
	return r, nil
}

// bind returns the row as arguments for the database, with secrets sealed.
func (t table) bind(r row, sealing *keystore.Sealing) ([]any, error) {
	args := make([]any, len(r))
	for i, c := range t.columns {
		switch v := r[i].(type) {
		case []byte:
			if c.kind == secret {
				if sealing == nil {
					return nil, errors.New("there are keys, and it was not said how to store them")
				}
				sealed, err := sealing.Seal(r[0].(string), v)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", t.describe(r), err)
				}
				v = sealed
			}
			if v != nil {
				args[i] = v
			}
		default:
			args[i] = v
		}
	}
	return args, nil
}

// encode returns the row as it is spelt in a backup.
func (t table) encode(r row) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, len(r))
	for i, c := range t.columns {
		v := r[i]
		switch c.kind {
		case moment:
			v = v.(storage.Time).UTC().Format(time.RFC3339Nano)
		case document:
			canonical, err := canonical(v.(string))
			if err != nil {
				return nil, fmt.Errorf("%s: %s is no JSON: %w", t.describe(r), c.name, err)
			}
			v = canonical
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		out[i] = text
	}
	return out, nil
}

// decode is the reverse of encode, for anything that may be in a backup.
func (t table) decode(values []json.RawMessage) (row, error) {
	if len(values) != len(t.columns) {
		return nil, fmt.Errorf("%d columns instead of %d", len(values), len(t.columns))
	}
	r := make(row, len(values))
	for i, c := range t.columns {
		var err error
		switch c.kind {
		case text, document:
			r[i], err = decodeAs[string](values[i])
			if err == nil && c.kind == document && !json.Valid([]byte(r[i].(string))) {
				err = errors.New("no JSON")
			}
		case integer:
			r[i], err = decodeAs[int64](values[i])
		case moment:
			var at time.Time
			at, err = decodeAs[time.Time](values[i])
			r[i] = storage.NewTime(at)
		case data, secret:
			var b []byte
			err = json.Unmarshal(values[i], &b)
			if c.kind == secret && err == nil && len(b) == 0 {
				err = errors.New("empty")
			}
			r[i] = b
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return r, nil
}

func decodeAs[T any](text json.RawMessage) (v T, err error) {
	if string(text) == "null" {
		return v, errors.New("nothing there")
	}
	err = json.Unmarshal(text, &v)
	return v, err
}

// merge compares a row of the database with one of the backup of the same key. It returns what is to be filled in, by column, or what
// differs.
func (t table) merge(ours, theirs row) (filled map[int]any, differs string) {
	for i, c := range t.columns {
		switch {
		case c.rule == keep || same(c.kind, ours[i], theirs[i]):
		case c.rule == fill && emptyDocument(ours[i].(string)):
			if filled == nil {
				filled = map[int]any{}
			}
			filled[i] = theirs[i]
		case c.rule == fill && emptyDocument(theirs[i].(string)): // there is more in the database
		default:
			return nil, c.name
		}
	}
	return filled, ""
}

func same(k kind, a, b any) bool {
	switch k {
	case data, secret:
		return bytes.Equal(a.([]byte), b.([]byte))
	case document:
		x, errX := canonical(a.(string))
		y, errY := canonical(b.(string))
		return errX == nil && errY == nil && x == y
	case moment:
		return a.(storage.Time).Equal(b.(storage.Time).Time)
	}
	return a == b
}

// canonical is one spelling of all that mean the same document, since PostgreSQL keeps neither spaces nor order.
func canonical(text string) (string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // all digits
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	out, err := json.Marshal(v)
	return string(out), err
}

func emptyDocument(text string) bool { return text == "{}" || text == "null" }
