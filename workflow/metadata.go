package workflow

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// KeyTypeECDSAEVM is the one key type of the protocol: an Ethereum address whose key signs the request (protocol §6).
const KeyTypeECDSAEVM = "ecdsa_evm"

// MaxKeys is the most authorised keys one workflow may have (protocol §6).
const MaxKeys = 100

// Key names a signer that may trigger a workflow.
type Key struct {
	KeyType   string `json:"keyType"`   // always KeyTypeECDSAEVM
	PublicKey string `json:"publicKey"` // the signer's address, "0x" and 40 lower-case hex digits
}

// compareKeys is the order in which keys are digested (protocol §1).
func compareKeys(a, b Key) int {
	if c := strings.Compare(a.KeyType, b.KeyType); c != 0 {
		return c
	}
	return strings.Compare(a.PublicKey, b.PublicKey)
}

// Selector identifies a workflow, by its id and by its reference (owner, name, tag).
type Selector struct {
	WorkflowID    string `json:"workflowID"`    // "0x" and 64 hex digits
	WorkflowOwner string `json:"workflowOwner"` // "0x" and 40 hex digits
	WorkflowName  string `json:"workflowName"`  // the name's hash, see HashName: "0x" and 20 hex digits
	WorkflowTag   string `json:"workflowTag"`   // 1 to 32 bytes of UTF-8
}

// Metadata is what a node reports about one workflow (protocol §6).
type Metadata struct {
	Selector       Selector `json:"WorkflowSelector"`
	AuthorizedKeys []Key    `json:"AuthorizedKeys"`
}

// DecodeMetadata decodes one metadata object and normalises it ([Metadata.Normalize]). Member names are case-exact and
// must not repeat; unknown members are ignored. The result shares no memory with raw. The error says which member is
// wrong and repeats at most a few dozen bytes of it. Safe for concurrent use.
func DecodeMetadata(raw jsontext.Value) (Metadata, error) {
	var m Metadata
	if err := json.Unmarshal(raw, &m); err != nil {
		return Metadata{}, fmt.Errorf("workflow metadata is not of its JSON form: %w", bounded(err))
	}
	if err := m.Normalize(); err != nil {
		return Metadata{}, err
	}
	return m, nil
}

// Normalize brings m into the one form that is digested and compared: hex in lower case, keys sorted by (keyType,
// publicKey). It then applies every rule of protocol §6: id 66 characters, owner 42, name hash 22, tag 1 to 32 bytes, 1
// to [MaxKeys] keys of type [KeyTypeECDSAEVM] with 42 characters each and no duplicates. Upper-case hex is a leniency
// towards nodes. On an error m may be partly normalised and must not be used. The keys are sorted in place.
func (m *Metadata) Normalize() error {
	s := &m.Selector
	for _, f := range []struct {
		name   string
		value  *string
		digits int
	}{
		{"workflowID", &s.WorkflowID, MaxIDDigits},
		{"workflowOwner", &s.WorkflowOwner, MaxOwnerDigits},
		{"workflowName", &s.WorkflowName, nameHashDigits},
	} {
		*f.value = lowerASCII(*f.value)
		if !isFixedHex(*f.value, f.digits) {
			return fmt.Errorf("workflow metadata: %s %s is not 0x and %d hex digits", f.name, quoteShort(*f.value), f.digits)
		}
	}
	if err := textLength(s.WorkflowTag, MaxTagBytes); err != nil {
		return fmt.Errorf("workflow metadata: workflowTag %w", err)
	}
	if !utf8.ValidString(s.WorkflowTag) {
		return errors.New("workflow metadata: workflowTag is not UTF-8")
	}
	return m.normalizeKeys()
}

func (m *Metadata) normalizeKeys() error {
	keys := m.AuthorizedKeys
	if len(keys) == 0 || len(keys) > MaxKeys {
		return fmt.Errorf("workflow metadata: %d authorised keys, want 1 to %d", len(keys), MaxKeys)
	}
	for i := range keys {
		k := &keys[i]
		if k.KeyType != KeyTypeECDSAEVM {
			return fmt.Errorf("workflow metadata: key %d has type %s, want %q", i, quoteShort(k.KeyType), KeyTypeECDSAEVM)
		}
		k.PublicKey = lowerASCII(k.PublicKey)
		if !isFixedHex(k.PublicKey, MaxOwnerDigits) {
			return fmt.Errorf("workflow metadata: key %d is %s, want 0x and %d hex digits", i, quoteShort(k.PublicKey), MaxOwnerDigits)
		}
	}
	slices.SortFunc(keys, compareKeys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return fmt.Errorf("workflow metadata: key %s is listed twice", quoteShort(keys[i].PublicKey))
		}
	}
	return nil
}

// lowerASCII lowers A to Z alone: no other character may turn into a hex digit.
func lowerASCII(s string) string {
	i := strings.IndexFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' })
	if i < 0 {
		return s
	}
	b := []byte(s)
	for ; i < len(b); i++ {
		if 'A' <= b[i] && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// Digest returns the metadata digest (protocol §1): the SHA-256 of the RFC 8785 canonical form of m with its keys sorted.
// Two observations agree exactly when their digests are equal. It does not change m and may be called concurrently
// with other readers. m should be normalised; text that is not UTF-8 is digested with U+FFFD in its place.
func (m *Metadata) Digest() [32]byte {
	keys := m.AuthorizedKeys
	if !slices.IsSortedFunc(keys, compareKeys) {
		keys = slices.Clone(keys)
		slices.SortFunc(keys, compareKeys)
	}
	// Members in RFC 8785 order, written out: there are six names and they never change.
	b := make([]byte, 0, 320+96*len(keys))
	b = append(b, `{"AuthorizedKeys":[`...)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMember(b, `{"keyType":`, k.KeyType)
		b = appendMember(b, `,"publicKey":`, k.PublicKey)
		b = append(b, '}')
	}
	b = appendMember(b, `],"WorkflowSelector":{"workflowID":`, m.Selector.WorkflowID)
	b = appendMember(b, `,"workflowName":`, m.Selector.WorkflowName)
	b = appendMember(b, `,"workflowOwner":`, m.Selector.WorkflowOwner)
	b = appendMember(b, `,"workflowTag":`, m.Selector.WorkflowTag)
	return sha256.Sum256(append(b, "}}"...))
}

// appendMember appends name, which carries its own punctuation, and the JSON string of value.
func appendMember(b []byte, name, value string) []byte {
	b, _ = jsontext.AppendQuote(append(b, name...), value) // the error tells of replaced UTF-8, see Digest
	return b
}
