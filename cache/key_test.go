package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stream is a hash.Hash that keeps what is written to it.
type stream struct{ bytes.Buffer }

func (s *stream) Sum(b []byte) []byte { sum := sha256.Sum256(s.Bytes()); return append(b, sum[:]...) }
func (s *stream) Size() int           { return sha256.Size }
func (s *stream) BlockSize() int      { return sha256.BlockSize }

// add adds parts: []byte, string, int64, bool, []string, map[string][]string.
func add(h *Hasher, parts []any) {
	for _, p := range parts {
		switch p := p.(type) {
		case []byte:
			h.Bytes(p)
		case string:
			h.String(p)
		case int64:
			h.Int(p)
		case bool:
			h.Bool(p)
		case []string:
			h.Strings(p)
		case map[string][]string:
			h.Map(p)
		default:
			panic(fmt.Sprintf("no part: %T", p))
		}
	}
}

// written is the stream that the parts are hashed as.
func written(parts []any) []byte {
	var s stream
	h := &Hasher{hash: &s}
	add(h, parts)
	h.flush()
	return s.Bytes()
}

func keyOf(parts ...any) Key {
	h := NewHasher()
	add(h, parts)
	return h.Sum()
}

// read takes a stream apart: that it can is why no two lists of parts share one.
func read(t *testing.T, s []byte) []any {
	r := reader{t, s}
	parts := []any{}
	for len(r.s) > 0 {
		parts = append(parts, r.part())
	}
	return parts
}

type reader struct {
	t *testing.T
	s []byte
}

func (r *reader) take(n uint64) []byte {
	require.LessOrEqual(r.t, n, uint64(len(r.s)))
	p := r.s[:n]
	r.s = r.s[n:]
	return slices.Clone(p)
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.s)
	require.Positive(r.t, n)
	r.s = r.s[n:]
	return v
}

func (r *reader) part() any {
	switch kind := r.take(1)[0]; kind {
	case kindBytes:
		return append([]byte{}, r.take(r.number())...)
	case kindString:
		return string(r.take(r.number()))
	case kindInt:
		u := r.number()
		return int64(u>>1) ^ -int64(u&1)
	case kindTrue:
		return true
	case kindFalse:
		return false
	case kindList:
		list := []string{}
		for range r.number() {
			list = append(list, r.part().(string))
		}
		return list
	case kindMap:
		m := map[string][]string{}
		for range r.number() {
			name := r.part().(string)
			m[name] = r.part().([]string)
		}
		return m
	default:
		require.FailNow(r.t, "no kind of part", "%q", kind)
		return nil
	}
}

// someParts reads any bytes as a list of parts.
func someParts(data []byte) []any {
	next := func() (b byte) {
		if len(data) > 0 {
			b, data = data[0], data[1:]
		}
		return b
	}
	text := func() string {
		n := int(next())
		if n >= 0xf0 { // longer than the Hasher's buffer now and then
			return strings.Repeat(string(next()), n*3)
		}
		n = min(n%8, len(data))
		s := string(data[:n])
		data = data[n:]
		return s
	}
	list := func() []string {
		l := make([]string, next()%4)
		for i := range l {
			l[i] = text()
		}
		return l
	}
	parts := []any{}
	for len(data) > 0 {
		switch next() % 7 {
		case 0:
			parts = append(parts, []byte(text()))
		case 1:
			parts = append(parts, text())
		case 2:
			parts = append(parts, int64(int8(next())))
		case 3:
			parts = append(parts, int64(binary.LittleEndian.Uint64(append([]byte(text()), make([]byte, 8)...))))
		case 4:
			parts = append(parts, next()%2 == 0)
		case 5:
			parts = append(parts, list())
		case 6:
			m := map[string][]string{}
			for range next() % 4 {
				m[text()] = list()
			}
			parts = append(parts, m)
		}
	}
	return parts
}

// FuzzKeyParts holds that different lists of parts are different streams before they are hashed.
//
// conformance: 7.cache.key
func FuzzKeyParts(f *testing.F) {
	f.Add([]byte("\x01\x02ab\x01\x01c"), []byte("\x01\x01a\x01\x02bc"))
	f.Add([]byte("\x05\x02\x01a\x01b"), []byte("\x01\x01a\x01\x01b"))
	f.Add([]byte("\x00\xf1x\x03\x08\xff\xff\xff\xff\xff\xff\xff\xff"), []byte("\x01\xf1x\x02\x80\x04\x00"))
	f.Add([]byte("\x06\x02\x01X\x02\x01a\x01b\x01b\x00"), []byte("\x06\x02\x01X\x01\x01a\x01b\x01\x01b"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		pa, pb := someParts(a), someParts(b)
		sa, sb := written(pa), written(pb)
		require.Equal(t, pa, read(t, sa))
		require.Equal(t, pb, read(t, sb))
		same := reflect.DeepEqual(pa, pb)
		require.Equal(t, same, bytes.Equal(sa, sb))
		require.Equal(t, same, keyOf(pa...) == keyOf(pb...))
		require.Equal(t, Key(sha256.Sum256(sa)), keyOf(pa...))
	})
}

// conformance: 7.cache.key
func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	lists := [][]any{
		{},
		{""}, {"", ""},
		{[]byte{}},
		{"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"},
		{[]byte("abc")},
		{[]string{"a", "bc"}}, {[]string{"ab", "c"}}, {[]string{"bc", "a"}}, {[]string{}}, {[]string{""}},
		{[]string{"a"}, "bc"}, {[]string{}, "a", "bc"},
		// Protocol §7: method, URL and body may spell each other.
		{"POST", "http://h/p", []byte("GET/x")}, {"GET", "http://h/p/POST", []byte("x")},
		{map[string][]string{"X": {"a", "b"}}}, {map[string][]string{"X": {"a"}, "b": {}}}, {map[string][]string{"X": {"a"}, "b": nil, "c": {}}},
		{map[string][]string{"X": {"b", "a"}}}, {map[string][]string{}}, {map[string][]string{"": {}}}, {map[string][]string{"": {""}}},
		{int64(0)}, {int64(1)}, {int64(-1)}, {int64(-1 << 63)}, {int64(1<<63 - 1)}, {int64(0), int64(0)},
		{true}, {false}, {true, false}, {false, true},
		{strings.Repeat("x", 300)}, {[]byte(strings.Repeat("x", 300))}, {strings.Repeat("x", 299), "x"}, {strings.Repeat("x", 301)},
	}
	seen := map[Key][]any{}
	for _, l := range lists {
		k := keyOf(l...)
		require.NotContains(t, seen, k, "%q and %q", l, seen[k])
		seen[k] = l
		require.Equal(t, k, keyOf(l...))
	}
}

func TestKeyOfMapHasNoOrder(t *testing.T) {
	t.Parallel()
	m := map[string][]string{}
	for i := range 100 { // more names than fit on the stack
		m[fmt.Sprint("name", i)] = []string{fmt.Sprint(i), ""}
	}
	want := keyOf(m)
	for range 20 {
		require.Equal(t, want, keyOf(m))
	}
}

// Whatever the Hasher's buffer holds when a part comes.
func TestKeyPartsAtEveryOffset(t *testing.T) {
	t.Parallel()
	for n := range 600 {
		parts := []any{strings.Repeat("x", n), int64(-1 << 63), []byte(strings.Repeat("y", n)), true}
		require.Equal(t, parts, read(t, written(parts)))
	}
}

func TestHasherReuse(t *testing.T) {
	t.Parallel()
	h := NewHasher()
	h.String("a")
	h.Bytes(nil)
	require.Equal(t, keyOf("a", []byte{}), h.Sum())
	require.Equal(t, keyOf("a", []byte{}), h.Sum(), "asked twice")
	h.Int(7)
	require.Equal(t, keyOf("a", []byte{}, int64(7)), h.Sum(), "more parts after a sum")
	h.Reset()
	require.Equal(t, keyOf(), h.Sum())
	h.String(strings.Repeat("y", 1000))
	h.Reset()
	h.Bool(true)
	require.Equal(t, keyOf(true), h.Sum())
}

func TestHasherAllocations(t *testing.T) {
	h := NewHasher()
	header := map[string][]string{"accept": {"application/json"}, "x-request": {"a", "b"}}
	body := bytes.Repeat([]byte("b"), 1024)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.Reset()
		h.String("don")
		h.Map(header)
		h.Bytes(body)
		h.Int(1 << 20)
		h.Bool(false)
		h.Sum()
	}))
}
