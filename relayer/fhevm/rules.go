package fhevm

import (
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Literals of the unified user decryption (relayer reference §1.4).
const (
	attestationUnified = "eip712-unified-user-decrypt-v1"
	payloadVersion     = "2.0"
	payloadType        = "user_decryption"
)

// Options are what a request is checked against besides itself.
type Options struct {
	Now          time.Time // the present, for timestamps
	MaxHandles   int       // most handles per request; 0: no limit of ours
	MaxContracts int       // most contract addresses per request; 0: no limit of ours
}

// seconds returns the present in Unix seconds; a clock before 1970 counts as 0.
func (o *Options) seconds() uint64 { return uint64(max(o.Now.Unix(), 0)) }

func maxHandles(o *Options) int   { return o.MaxHandles }
func maxContracts(o *Options) int { return o.MaxContracts }

// literal allows one value.
func literal(want, issue string) rule {
	return func(v string, _ *Options) string {
		if v != want {
			return issue
		}
		return ""
	}
}

func ruleAddress(v string, _ *Options) string {
	switch {
	case !strings.HasPrefix(v, "0x"):
		return issuePrefix
	case len(v) != 42:
		return issueLength42
	case !isHex(v[2:]):
		return issueAddressHex
	}
	return ""
}

func ruleHandle(v string, _ *Options) string {
	switch {
	case !strings.HasPrefix(v, "0x"):
		return issuePrefix
	case len(v) != 66:
		return issueLength64
	case !isHex(v[2:]):
		return issueHex
	}
	return ""
}

// rulePlainHex is for hex without 0x that must not be empty.
func rulePlainHex(v string, _ *Options) string {
	switch {
	case strings.HasPrefix(v, "0x"):
		return issueNoPrefix
	case v == "":
		return issueEmpty
	case !isHex(v):
		return issueHex
	}
	return ""
}

// ruleSignature is for the 65 bytes of an older user decryption's signature.
func ruleSignature(v string, _ *Options) string {
	switch {
	case strings.HasPrefix(v, "0x"):
		return issueNoPrefix
	case len(v) != 130:
		return issueLength130
	case !isHex(v):
		return issueHex
	}
	return ""
}

// rulePrefixedHex is for hex with 0x that must not be empty.
func rulePrefixedHex(v string, _ *Options) string {
	switch {
	case !strings.HasPrefix(v, "0x"):
		return issuePrefix
	case len(v) == 2:
		return issueEmpty
	case !isHex(v[2:]):
		return issueHex
	}
	return ""
}

// ruleOptionalHex is for hex with 0x; the empty string stands for no bytes.
func ruleOptionalHex(v string, _ *Options) string {
	switch {
	case v == "":
		return ""
	case !strings.HasPrefix(v, "0x"):
		return issuePrefix
	case !isHex(v[2:]):
		return issueHex
	}
	return ""
}

func ruleChainID(v string, _ *Options) string {
	if _, ok := parseChainID(v); !ok {
		return issueChainID
	}
	return ""
}

// ruleTimestamp is for Unix seconds that have passed. Every value past 64 bits lies in the future.
func ruleTimestamp(v string, o *Options) string {
	n, ok := parseU256(v)
	switch {
	case !ok:
		return issueU256
	case !n.IsUint64() || n.Uint64() > o.seconds():
		return issueFuture
	}
	return ""
}

// ruleDecimalTimestamp is ruleTimestamp for decimal digits alone.
func ruleDecimalTimestamp(v string, o *Options) string {
	if issue := ruleTimestamp(v, o); issue != "" {
		return issue
	}
	if _, ok := parseDecimal(v, 64); !ok {
		return issueU64
	}
	return ""
}

func ruleU32(v string, _ *Options) string {
	if _, ok := parseDecimal(v, 32); !ok {
		return issueU32
	}
	return ""
}

func ruleU64(v string, _ *Options) string {
	if _, ok := parseDecimal(v, 64); !ok {
		return issueU64
	}
	return ""
}

// ruleExtraData is for the extra data of decryptions: version 0, version 1 with a context id, version 2 with a context id and an
// epoch id. Sizes are exact.
func ruleExtraData(v string, _ *Options) string {
	const context, epoch = "07", "08"
	switch {
	case v == "0x00":
		return ""
	case len(v) == 68 && strings.HasPrefix(v, "0x01") && isHex(v[2:]) && v[4:6] == context:
		return ""
	case len(v) == 132 && strings.HasPrefix(v, "0x02") && isHex(v[2:]) && v[4:6] == context && v[68:70] == epoch:
		return ""
	}
	return issueExtraData
}

// wholeValiditySeconds refuses a validity that is over. Its members are startTimestamp and durationSeconds.
func wholeValiditySeconds(n *node, o *Options) string {
	start, _ := parseDecimal(n.at(0).text, 64)
	duration, _ := parseDecimal(n.at(1).text, 64)
	end := start + duration
	if end < start {
		end = math.MaxUint64
	}
	if end <= o.seconds() {
		return issueExpired
	}
	return ""
}

// isHex reports whether s is hex digits of either case, two for each byte.
func isHex(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return false
		}
	}
	return len(s)%2 == 0
}

// unhex decodes what a rule has found to be hex, with or without 0x.
func unhex(s string) []byte {
	b, _ := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	return b
}

// parseDecimal reads digits alone (no sign, no space) that fit bits.
func parseDecimal(s string, bits int) (uint64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(s, 10, bits)
	return n, err == nil
}

// parseChainID reads 64 bits in decimal, or in hex after 0x.
func parseChainID(s string) (uint64, bool) {
	digits, isHexNumber := strings.CutPrefix(s, "0x")
	if !isHexNumber {
		return parseDecimal(s, 64)
	}
	if strings.ContainsAny(digits, "+-_") {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	return n, err == nil
}

// parseU256 reads 256 bits in decimal, or in hex after 0x. Long input costs no more than a look at each byte.
func parseU256(s string) (*big.Int, bool) {
	digits, base, most := s, 10, 78
	if cut, ok := strings.CutPrefix(s, "0x"); ok {
		digits, base, most = cut, 16, 64
	}
	for i := range len(digits) {
		c := digits[i] | 0x20
		if (c < '0' || c > '9') && (base == 10 || c < 'a' || c > 'f') {
			return nil, false
		}
	}
	if digits == "" {
		return nil, false
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		digits = "0"
	}
	if len(digits) > most {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits, base)
	return n, ok && n.BitLen() <= 256
}
