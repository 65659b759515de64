package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Sizes of the node handshake, in bytes unless they say otherwise (protocol §4).
const (
	// DONIDBytes is the field of a DON shard's id, and the longest such id.
	DONIDBytes = 64
	// GatewayIDBytes is the field of the gateway's id, and the longest such id.
	GatewayIDBytes = 128
	// AuthHeaderBytes is the decoded length of a node's Authorization header.
	AuthHeaderBytes = signedHeaderBytes + SignatureBytes
	// MaxAuthHeaderChars is the longest Authorization header that is looked at, in characters.
	MaxAuthHeaderChars = 512
	// MinChallengeRandom and MaxChallengeRandom bound the random bytes of a challenge.
	MinChallengeRandom = 10
	MaxChallengeRandom = 1024

	timestampBytes    = 4
	signedHeaderBytes = timestampBytes + DONIDBytes + GatewayIDBytes
	challengeOverhead = timestampBytes + GatewayIDBytes
)

// Errors of ParseAuthHeader, to be told apart with errors.Is.
var (
	// ErrHandshakeEncoding: the header is over 512 characters or not base64; answered 400.
	ErrHandshakeEncoding = errors.New("the authorization header is not readable")
	// ErrHandshake: the header's bytes are wrong; answered 401. Errors of ParseChallenge wrap it too.
	ErrHandshake = errors.New("the handshake is not acceptable")
)

// AuthHeader is a node's Authorization header with a valid signature. Whether the DON, the signer, the gateway id and the timestamp are
// the right ones is for the caller to check.
type AuthHeader struct {
	Timestamp uint32         // seconds since 1970, by the node's clock
	DONID     string         // id of the DON shard, 1 to 64 bytes of any kind
	GatewayID string         // id of the gateway, 1 to 128 bytes of any kind
	Signer    common.Address // the node's address, recovered from the signature
}

// NewAuthHeader returns the value of the Authorization header with which the node of s opens a session (protocol §4): base64 of timestamp, DON id,
// gateway id and signature. The ids must fit their fields; they are never truncated.
func NewAuthHeader(s Signer, ts uint32, donID, gatewayID string) (string, error) {
	b := make([]byte, 0, AuthHeaderBytes)
	b = binary.BigEndian.AppendUint32(b, ts)
	b, err := appendID(b, "DON id", donID, DONIDBytes)
	if err != nil {
		return "", err
	}
	if b, err = appendID(b, "gateway id", gatewayID, GatewayIDBytes); err != nil {
		return "", err
	}
	sig, err := s.SignPersonal(b)
	if err != nil {
		return "", fmt.Errorf("sign the authorization header: %w", err)
	}
	if len(sig) != SignatureBytes {
		return "", fmt.Errorf("sign the authorization header: the signer gave %d bytes, want %d", len(sig), SignatureBytes)
	}
	return base64.StdEncoding.EncodeToString(append(b, sig...)), nil
}

// ParseAuthHeader decodes the Authorization header of a node and recovers its signer. The error wraps [ErrHandshakeEncoding] or
// [ErrHandshake], its text is for the log.
func ParseAuthHeader(header string) (*AuthHeader, error) {
	if len(header) > MaxAuthHeaderChars {
		return nil, fmt.Errorf("%w: it has %d characters, at most %d are accepted", ErrHandshakeEncoding, len(header), MaxAuthHeaderChars)
	}
	b, err := decodeBase64(header)
	if err != nil {
		return nil, fmt.Errorf("%w: it is not base64", ErrHandshakeEncoding)
	}
	if len(b) != AuthHeaderBytes {
		return nil, fmt.Errorf("%w: the header has %d bytes, want %d", ErrHandshake, len(b), AuthHeaderBytes)
	}
	h := &AuthHeader{Timestamp: binary.BigEndian.Uint32(b)}
	if h.DONID, err = parseID("DON id", b[timestampBytes:][:DONIDBytes]); err != nil {
		return nil, err
	}
	if h.GatewayID, err = parseID("gateway id", b[timestampBytes+DONIDBytes:][:GatewayIDBytes]); err != nil {
		return nil, err
	}
	if h.Signer, err = RecoverPersonal(b[:signedHeaderBytes], b[signedHeaderBytes:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return h, nil
}

// NewChallenge returns the challenge that the gateway sends when it upgrades (protocol §4): the node's own timestamp, the gateway's id and
// random bytes, 10 to 1024 of them. The header is its base64 (standard, padded).
func NewChallenge(ts uint32, gatewayID string, random []byte) ([]byte, error) {
	if len(random) < MinChallengeRandom || len(random) > MaxChallengeRandom {
		return nil, fmt.Errorf("a challenge needs %d to %d random bytes, not %d", MinChallengeRandom, MaxChallengeRandom, len(random))
	}
	b := make([]byte, 0, challengeOverhead+len(random))
	b, err := appendID(binary.BigEndian.AppendUint32(b, ts), "gateway id", gatewayID, GatewayIDBytes)
	if err != nil {
		return nil, err
	}
	return append(b, random...), nil
}

// ParseChallenge decodes a challenge, for the node's side. A node signs the challenge only if timestamp and gateway id are those it sent: otherwise
// it would sign whatever a gateway likes. The error wraps [ErrHandshake].
func ParseChallenge(b []byte) (ts uint32, gatewayID string, err error) {
	if random := len(b) - challengeOverhead; random < MinChallengeRandom || random > MaxChallengeRandom {
		return 0, "", fmt.Errorf("%w: the challenge has %d bytes, want %d to %d", ErrHandshake, len(b),
			challengeOverhead+MinChallengeRandom, challengeOverhead+MaxChallengeRandom)
	}
	gatewayID, err = parseID("gateway id", b[timestampBytes:challengeOverhead])
	if err != nil {
		return 0, "", err
	}
	return binary.BigEndian.Uint32(b), gatewayID, nil
}

// decodeBase64 decodes standard base64 in its one spelling: padded, no stray bits and, unlike the library, no line breaks.
func decodeBase64(s string) ([]byte, error) {
	for i := range len(s) {
		if s[i] == '\r' || s[i] == '\n' {
			return nil, base64.CorruptInputError(i)
		}
	}
	return base64.StdEncoding.Strict().DecodeString(s)
}

// appendID appends id and zeros to its field's end.
func appendID(b []byte, what, id string, size int) ([]byte, error) {
	switch {
	case id == "":
		return nil, fmt.Errorf("the %s is empty", what)
	case len(id) > size:
		return nil, fmt.Errorf("the %s has %d bytes, its field holds %d", what, len(id), size)
	case bytes.IndexByte([]byte(id), 0) >= 0:
		return nil, fmt.Errorf("the %s holds a zero byte, which would end it", what)
	}
	return append(append(b, id...), make([]byte, size-len(id))...), nil
}

// parseID reads an id and checks that zeros follow it to the end of its field, which it may also fill to the last byte.
func parseID(what string, field []byte) (string, error) {
	id, padding := field, []byte(nil)
	if i := bytes.IndexByte(field, 0); i >= 0 {
		id, padding = field[:i], field[i:]
	}
	if len(id) == 0 {
		return "", fmt.Errorf("%w: the %s is empty", ErrHandshake, what)
	}
	for _, c := range padding {
		if c != 0 {
			return "", fmt.Errorf("%w: the %s is not followed by zeros to the end of its field", ErrHandshake, what)
		}
	}
	return string(id), nil
}
