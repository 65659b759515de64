package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// sample returns valid metadata in normal form.
func sample() Metadata {
	return Metadata{
		Selector: Selector{
			WorkflowID:    "0x" + strings.Repeat("1a", 32),
			WorkflowOwner: "0x" + strings.Repeat("2b", 20),
			WorkflowName:  HashName("settlement"),
			WorkflowTag:   "v1",
		},
		AuthorizedKeys: []Key{address(1), address(2)},
	}
}

func address(n int) Key { return Key{KeyType: KeyTypeECDSAEVM, PublicKey: fmt.Sprintf("0x%040x", n)} }

func encode(t testing.TB, m Metadata) jsontext.Value {
	t.Helper()
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return b
}

// conformance: 6.valid.lowered
func TestMetadataLowersHex(t *testing.T) {
	t.Parallel()
	want := sample()
	want.AuthorizedKeys = []Key{address(0xab), address(0xcd)}
	upper := want
	upper.Selector.WorkflowID = strings.ToUpper(want.Selector.WorkflowID)
	upper.Selector.WorkflowOwner = "0x" + strings.ToUpper(want.Selector.WorkflowOwner[2:])
	upper.Selector.WorkflowName = "0x" + strings.ToUpper(want.Selector.WorkflowName[2:])
	upper.AuthorizedKeys = []Key{
		{KeyType: KeyTypeECDSAEVM, PublicKey: "0x" + strings.ToUpper(address(0xcd).PublicKey[2:])},
		{KeyType: KeyTypeECDSAEVM, PublicKey: "0x" + strings.ToUpper(address(0xab).PublicKey[2:])},
	}
	got, err := DecodeMetadata(encode(t, upper))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, want.Digest(), got.Digest())
}

// conformance: 6.valid.selector
// conformance: 6.valid.keys
func TestMetadataRules(t *testing.T) {
	t.Parallel()
	keys := func(n int) (out []Key) {
		for i := range n {
			out = append(out, address(i))
		}
		return out
	}
	for _, c := range []struct {
		name   string
		change func(*Metadata)
		says   string // "" is accepted
	}{
		{"as it is", func(*Metadata) {}, ""},
		{"longest tag", func(m *Metadata) { m.Selector.WorkflowTag = strings.Repeat("x", 32) }, ""},
		{"longest tag of other letters", func(m *Metadata) { m.Selector.WorkflowTag = strings.Repeat("é", 16) }, ""},
		{"one key", func(m *Metadata) { m.AuthorizedKeys = keys(1) }, ""},
		{"100 keys", func(m *Metadata) { m.AuthorizedKeys = keys(100) }, ""},
		{"id short", func(m *Metadata) { m.Selector.WorkflowID = m.Selector.WorkflowID[:65] }, "workflowID"},
		{"id long", func(m *Metadata) { m.Selector.WorkflowID += "0" }, "workflowID"},
		{"id without 0x", func(m *Metadata) { m.Selector.WorkflowID = strings.Repeat("a", 66) }, "workflowID"},
		{"id not hex", func(m *Metadata) { m.Selector.WorkflowID = "0x" + strings.Repeat("g", 64) }, "workflowID"},
		{"id with a letter that lowers to k", func(m *Metadata) { m.Selector.WorkflowID = "0x" + strings.Repeat("a", 61) + "\u212a" }, "workflowID"},
		{"id empty", func(m *Metadata) { m.Selector.WorkflowID = "" }, "workflowID"},
		{"owner short", func(m *Metadata) { m.Selector.WorkflowOwner = "0x12" }, "workflowOwner"},
		{"owner long", func(m *Metadata) { m.Selector.WorkflowOwner += "00" }, "workflowOwner"},
		{"owner empty", func(m *Metadata) { m.Selector.WorkflowOwner = "" }, "workflowOwner"},
		{"name in clear", func(m *Metadata) { m.Selector.WorkflowName = "settlement" }, "workflowName"},
		{"name hash long", func(m *Metadata) { m.Selector.WorkflowName += "0" }, "workflowName"},
		{"name hash empty", func(m *Metadata) { m.Selector.WorkflowName = "" }, "workflowName"},
		{"tag empty", func(m *Metadata) { m.Selector.WorkflowTag = "" }, "workflowTag"},
		{"tag long", func(m *Metadata) { m.Selector.WorkflowTag = strings.Repeat("x", 33) }, "workflowTag"},
		{"tag long in bytes", func(m *Metadata) { m.Selector.WorkflowTag = strings.Repeat("é", 17) }, "34 bytes"},
		{"no keys", func(m *Metadata) { m.AuthorizedKeys = nil }, "0 authorised keys"},
		{"101 keys", func(m *Metadata) { m.AuthorizedKeys = keys(101) }, "101 authorised keys"},
		{"key type unknown", func(m *Metadata) { m.AuthorizedKeys[1].KeyType = "ed25519" }, "ed25519"},
		{"key type in another case", func(m *Metadata) { m.AuthorizedKeys[1].KeyType = "ECDSA_EVM" }, "ECDSA_EVM"},
		{"key type empty", func(m *Metadata) { m.AuthorizedKeys[1].KeyType = "" }, "key 1 has type"},
		{"key short", func(m *Metadata) { m.AuthorizedKeys[1].PublicKey = "0xab" }, "key 1 is"},
		{"key without 0x", func(m *Metadata) { m.AuthorizedKeys[1].PublicKey = strings.Repeat("a", 42) }, "key 1 is"},
		{"key twice", func(m *Metadata) { m.AuthorizedKeys[1] = m.AuthorizedKeys[0] }, "listed twice"},
		{"key twice in two cases", func(m *Metadata) {
			m.AuthorizedKeys = []Key{address(0xab), {KeyType: KeyTypeECDSAEVM, PublicKey: strings.ToUpper(address(0xab).PublicKey)}}
		}, "listed twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := sample()
			c.change(&m)
			got, err := DecodeMetadata(encode(t, m))
			if c.says == "" {
				require.NoError(t, err)
				require.Equal(t, m, got)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.Zero(t, got)
			require.Less(t, len(err.Error()), 250)
		})
	}
}

func TestDecodeMetadataForm(t *testing.T) {
	t.Parallel()
	valid := string(encode(t, sample()))
	_, err := DecodeMetadata(jsontext.Value(strings.Replace(valid, "{", `{"extra":{"a":[1]},`, 1)))
	require.NoError(t, err, "unknown members are ignored")
	for _, c := range []struct{ in, says string }{
		{"", "syntax error"},
		{"null", "workflowID"},
		{"5", "not an object"},
		{`"x"`, "not an object"},
		{"[]", "not an object"},
		{valid + "1", "syntax error"},
		{valid[:len(valid)-1], "syntax error"},
		{strings.Replace(valid, "WorkflowSelector", "workflowSelector", 1), "workflowID"},
		{strings.Replace(valid, `"workflowTag":"v1"`, `"workflowTag":1`, 1), `"/WorkflowSelector/workflowTag" is of the wrong type`},
		{strings.Replace(valid, `"workflowTag":"v1"`, `"workflowTag":"v1","workflowTag":"v2"`, 1), "there twice"},
		{strings.Replace(valid, `"workflowTag":"v1"`, `"workflowTag":null`, 1), "workflowTag"},
		{strings.Replace(valid, `"workflowTag":"v1"`, `"workflowTag":"\ud800"`, 1), "syntax error"},
		{strings.Replace(valid, `"AuthorizedKeys":[`, `"AuthorizedKeys":[null,`, 1), "key 0 has type"},
		{strings.Replace(valid, `"AuthorizedKeys":[`, `"AuthorizedKeys":[[],`, 1), "wrong type"},
		{`{"` + strings.Repeat("x", 100_000) + `":1,"` + strings.Repeat("x", 100_000) + `":1}`, "there twice"},
	} {
		_, err := DecodeMetadata(jsontext.Value(c.in))
		require.ErrorContains(t, err, c.says, "%.200s", c.in)
		require.Less(t, len(err.Error()), 250)
	}
	m := sample()
	m.Selector.WorkflowTag = "\xff"
	require.ErrorContains(t, m.Normalize(), "UTF-8")
}

// Everything that is reported is part of the digest, and nothing else.
func TestMetadataDigestCovers(t *testing.T) {
	t.Parallel()
	base := sample()
	seen := map[[32]byte]string{base.Digest(): "base"}
	for name, change := range map[string]func(*Metadata){
		"id":      func(m *Metadata) { m.Selector.WorkflowID = "0x" + strings.Repeat("0", 64) },
		"owner":   func(m *Metadata) { m.Selector.WorkflowOwner = "0x" + strings.Repeat("0", 40) },
		"name":    func(m *Metadata) { m.Selector.WorkflowName = HashName("other") },
		"tag":     func(m *Metadata) { m.Selector.WorkflowTag = "v2" },
		"escape":  func(m *Metadata) { m.Selector.WorkflowTag = `v"1` },
		"one key": func(m *Metadata) { m.AuthorizedKeys = m.AuthorizedKeys[:1] },
		"key":     func(m *Metadata) { m.AuthorizedKeys = []Key{address(1), address(3)} },
		"type": func(m *Metadata) {
			m.AuthorizedKeys = []Key{address(1), {KeyType: "x", PublicKey: address(2).PublicKey}}
		},
	} {
		m := sample()
		change(&m)
		require.NotContains(t, seen, m.Digest(), name)
		seen[m.Digest()] = name
	}
	turned := sample()
	slices.Reverse(turned.AuthorizedKeys)
	require.Equal(t, base.Digest(), turned.Digest())
	require.Equal(t, address(2), turned.AuthorizedKeys[0], "Digest leaves the keys where they are")
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add([]byte(encode(f, sample())))
	for _, s := range []string{"", "null", "{}", `{"WorkflowSelector":{},"AuthorizedKeys":[{}]}`, `{"AuthorizedKeys":[null]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMetadata(data)
		if err != nil {
			require.Less(t, len(err.Error()), 500)
			return
		}
		// What is accepted is in normal form: it decodes to itself, and its digest is that of the canonical form.
		again, err := DecodeMetadata(encode(t, m))
		require.NoError(t, err)
		require.Equal(t, m, again)
		canonical := encode(t, m)
		require.NoError(t, canonical.Canonicalize())
		require.Equal(t, sum(canonical), m.Digest())
	})
}
