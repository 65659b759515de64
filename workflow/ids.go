package workflow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Widths and bounds of identifiers (protocol §2, §6).
const (
	// MaxIDDigits is the number of hex digits of a workflow id in normal form.
	MaxIDDigits = 64
	// MaxOwnerDigits is the number of hex digits of an owner's address in normal form.
	MaxOwnerDigits = 40
	// MaxNameBytes bounds a workflow's name in clear, in bytes.
	MaxNameBytes = 64
	// MaxTagBytes bounds a workflow's tag, in bytes.
	MaxTagBytes = 32

	// nameHashChars is how much of the name's SHA-256, in hex characters, goes into a name hash.
	nameHashChars = 10
	// nameHashDigits is the number of hex digits of a name hash: each of those characters is hex-encoded once more.
	nameHashDigits = 2 * nameHashChars
)

const hexPrefix = "0x"

// NormalizeID returns the normal form of a workflow id: "0x" and 64 lower-case hex digits (66 characters). s is 1 to 64
// lower-case hex digits with or without "0x"; fewer are padded on the left with zeros (protocol §2). Anything else,
// upper case included, is an error that says what to send instead. Safe for concurrent use.
func NormalizeID(s string) (string, error) { return normalizeHex(s, MaxIDDigits) }

// NormalizeOwner returns the normal form of an owner's address: "0x" and 40 lower-case hex digits (42 characters). The
// rules are those of [NormalizeID] with 1 to 40 digits (protocol §2). Safe for concurrent use.
func NormalizeOwner(s string) (string, error) { return normalizeHex(s, MaxOwnerDigits) }

func normalizeHex(s string, width int) (string, error) {
	digits := strings.TrimPrefix(s, hexPrefix)
	if len(digits) == 0 || len(digits) > width || !isLowerHex(digits) {
		return "", fmt.Errorf("%s is not 1 to %d lower-case hex digits, with or without 0x%s", quoteShort(s), width, hexHint(digits, width))
	}
	if len(digits) == width {
		if len(digits) != len(s) {
			return s, nil
		}
		return hexPrefix + digits, nil
	}
	return hexPrefix + strings.Repeat("0", width-len(digits)) + digits, nil
}

// hexHint says which part of the rule was broken, so that the sender need not count digits.
func hexHint(digits string, width int) string {
	switch {
	case len(digits) == 0:
		return " (it has no digits)"
	case len(digits) > width:
		return fmt.Sprintf(" (it has %d)", len(digits))
	case isLowerHex(strings.ToLower(digits)):
		return " (write it in lower case)"
	default:
		return ""
	}
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isFixedHex reports whether s is "0x" and exactly n lower-case hex digits.
func isFixedHex(s string, n int) bool {
	return len(s) == len(hexPrefix)+n && strings.HasPrefix(s, hexPrefix) && isLowerHex(s[len(hexPrefix):])
}

// HashName returns the hash by which nodes and the gateway look a workflow's name up: "0x" and the hex of the first 10
// ASCII characters of the lower-case hex SHA-256 of the name (protocol §2). Any string has one. Safe for concurrent use.
func HashName(name string) string {
	sum := sha256.Sum256([]byte(name))
	var text [nameHashChars]byte
	hex.Encode(text[:], sum[:nameHashChars/2])
	out := make([]byte, len(hexPrefix)+nameHashDigits)
	copy(out, hexPrefix)
	hex.Encode(out[len(hexPrefix):], text[:])
	return string(out)
}

// ExecutionID returns the id under which nodes log the execution that a request starts: the lower-case hex SHA-256 of
// the workflow id without "0x" and the request id (protocol §5). workflowID should be in normal form; it is not checked.
// Safe for concurrent use.
func ExecutionID(workflowID, requestID string) string {
	return hashHex(strings.TrimPrefix(workflowID, hexPrefix), requestID)
}

// TriggerExecutionID is [ExecutionID] for the trigger with index 0 of the workflow: the same text with "0" appended is
// hashed (protocol §5). Safe for concurrent use.
func TriggerExecutionID(workflowID, requestID string) string {
	return hashHex(strings.TrimPrefix(workflowID, hexPrefix), requestID, "0")
}

func hashHex(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}
