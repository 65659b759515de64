package query

import (
	"encoding"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Ordering is the order of a listing: a [Sort].
type Ordering interface {
	orders() ([]Order, error)
	past(*position) (Cond, error)
}

// Sort is an order in which every row has its own place: by a column and, where that is equal, by one that is unique, both in the same
// direction. Neither may be NULL. An index over both, in this order, makes pages cost their size.
//
// K and I are string, int, int32, int64, []byte or a type that is its own text (encoding.TextMarshaler and, for a pointer,
// TextUnmarshaler), such as a time.
type Sort[K, I any] struct {
	key  Column[K]
	id   Column[I]
	desc bool
}

// SortBy sorts by key, then by id, which is unique among rows of equal key.
func SortBy[K, I any](key Column[K], id Column[I]) Sort[K, I] { return Sort[K, I]{key: key, id: id} }

// SortByID sorts by a unique column alone.
func SortByID[I any](id Column[I]) Sort[I, I] { return Sort[I, I]{key: id, id: id} }

// Desc is the same order backwards.
func (s Sort[K, I]) Desc() Sort[K, I] {
	s.desc = !s.desc
	return s
}

// Read returns p as a page that was read: it had n rows and the last was at (key, id). The [Pagination.Next] of it then continues after
// that row, if p is by keyset, and is empty if p had room for more rows.
func (s Sort[K, I]) Read(p Pagination, n int, key K, id I) Pagination {
	p.ended = int64(n) < p.size
	if p.strategy != ByKeyset || n == 0 {
		return p
	}
	k, kok := keyText(key)
	i, iok := keyText(id)
	if kok && iok { // else the next page counts rows
		p.last = &position{s.label(), k, i}
	}
	return p
}

// label names the order in a cursor, so that one from another listing is refused.
func (s Sort[K, I]) label() string {
	var b strings.Builder
	b.WriteString(s.key.Name())
	if s.key.c != s.id.c {
		b.WriteByte(',')
		b.WriteString(s.id.Name())
	}
	if s.desc {
		b.WriteString(" desc")
	}
	return b.String()
}

func (s Sort[K, I]) orders() ([]Order, error) {
	_, kerr := parseKey[K]("")
	_, ierr := parseKey[I]("")
	switch {
	case kerr == errKeyType:
		return nil, fmt.Errorf("%w: column %s is of a type by which no page can be continued", ErrIncomplete, s.key.Name())
	case ierr == errKeyType:
		return nil, fmt.Errorf("%w: column %s is of a type by which no page can be continued", ErrIncomplete, s.id.Name())
	case s.key.c == s.id.c:
		return []Order{{s.id.c, s.desc}}, nil
	default:
		return []Order{{s.key.c, s.desc}, {s.id.c, s.desc}}, nil
	}
}

func (s Sort[K, I]) past(at *position) (Cond, error) {
	if at.sort != s.label() {
		return Cond{}, fmt.Errorf("%w: it is of a listing sorted by %q, not by %q", ErrCursor, at.sort, s.label())
	}
	key, err := parseKey[K](at.key)
	if err != nil {
		return Cond{}, err
	}
	id, err := parseKey[I](at.id)
	if err != nil {
		return Cond{}, err
	}
	op := GT
	if s.desc {
		op = LT
	}
	if s.key.c == s.id.c {
		return s.id.compare(op, id), nil
	}
	return Cond{kind: custom, right: &past{s.key.c, s.id.c, key, id, op}}, nil
}

// maxKeyText is the longest value a cursor holds, in bytes. A page that ends at a longer one is continued by counting.
const maxKeyText = 1024

// keyText is v as text; false if v cannot be in a cursor.
func keyText(v any) (string, bool) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case int:
		s = strconv.Itoa(v)
	case int32:
		s = strconv.FormatInt(int64(v), 10)
	case int64:
		s = strconv.FormatInt(v, 10)
	case []byte:
		s = base64.RawURLEncoding.EncodeToString(v)
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		if err != nil {
			return "", false
		}
		s = string(text)
	default:
		return "", false
	}
	return s, goodKeyText(s)
}

// goodKeyText refuses what JSON would change and what PostgreSQL takes in no text.
func goodKeyText(s string) bool {
	return len(s) <= maxKeyText && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}

var errKeyType = fmt.Errorf("%w: unknown type of column", ErrCursor)

// parseKey is keyText backwards. Numbers have one form only.
func parseKey[T any](s string) (T, error) {
	var v T
	var err error
	switch p := any(&v).(type) {
	case *string:
		*p = s
	case *int:
		*p, err = parseInt[int](s, strconv.IntSize)
	case *int32:
		*p, err = parseInt[int32](s, 32)
	case *int64:
		*p, err = parseInt[int64](s, 64)
	case *[]byte:
		*p, err = base64.RawURLEncoding.Strict().DecodeString(s)
	case encoding.TextUnmarshaler:
		err = p.UnmarshalText([]byte(s))
	default:
		return v, errKeyType
	}
	if err != nil {
		return v, fmt.Errorf("%w: %q is not a value of the column", ErrCursor, s)
	}
	return v, nil
}

func parseInt[T int | int32 | int64](s string, bits int) (T, error) {
	n, err := strconv.ParseInt(s, 10, bits)
	if err == nil && strconv.FormatInt(n, 10) != s {
		err = strconv.ErrSyntax
	}
	return T(n), err
}
