package auth

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Limits on a request JWT (protocol §3).
const (
	// MaxTokenBytes is the longest token that is looked at. Those of existing clients have about 400 bytes.
	MaxTokenBytes = 4096
	// MaxTokenTTL is the longest a token may live, from iat to exp.
	MaxTokenTTL = 5 * time.Minute
	// MaxTokenIDBytes is the longest jti, in bytes.
	MaxTokenIDBytes = 128
)

// ErrToken is wrapped by every error about a token. The text of such an error is a sentence for the client that reads on
// after "Auth failure: "; it never holds the token or a piece of its signature.
var ErrToken = errors.New("the JWT is not acceptable")

// TokenError is the error of ParseToken, CheckDigest and Signer. It wraps [ErrToken].
type TokenError struct {
	Reason TokenReason
	Msg    string
}

// TokenReason classifies a refusal, for a metric's label.
type TokenReason string

// The reasons for which a token is refused.
const (
	TokenMalformed TokenReason = "malformed" // size, shape, encoding, JSON, types
	TokenAlgorithm TokenReason = "algorithm" // alg is not ETH, or crit is there
	TokenTimes     TokenReason = "times"     // exp, iat or nbf
	TokenClaims    TokenReason = "claims"    // jti or digest missing or of the wrong form
	TokenDigest    TokenReason = "digest"    // signed for another request
	TokenSignature TokenReason = "signature" // no key has made the signature
	TokenIssuer    TokenReason = "issuer"    // iss is not the signer
)

// Error implements error.
func (e *TokenError) Error() string { return e.Msg }

// Unwrap makes errors.Is(err, ErrToken) hold.
func (e *TokenError) Unwrap() error { return ErrToken }

func tokenError(reason TokenReason, format string, args ...any) error {
	return &TokenError{Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Token is a request JWT whose form and times were found good. Its signature and its digest are still to be checked, by
// [Token.Signer] and [Token.CheckDigest]. It is immutable and safe for concurrent use.
type Token struct {
	Digest   string    // "0x" and the lower-case hex of the request digest it was signed for
	ID       string    // jti, 1 to 128 bytes; unique per signer
	Issuer   string    // iss, as sent; "" when absent
	IssuedAt time.Time // iat, to the microsecond
	Expires  time.Time // exp, to the microsecond

	signed    string // header.payload, what the signature covers
	signature []byte
}

// ParseToken checks everything about a token that needs neither the request's body nor a signature recovery (protocol §3): size, shape, strict
// base64url, alg ETH, no crit, the signature's length, and the claims: digest of its form, jti of 1 to 128 bytes, 0 < exp − iat
// ≤ 5 min, iat at most iatTolerance after now, exp after now, nbf (where present) not later than iatTolerance after now. aud, sub
// and unknown claims are ignored. The error is a *TokenError.
func ParseToken(raw string, now time.Time, iatTolerance time.Duration) (*Token, error) {
	if len(raw) > MaxTokenBytes {
		return nil, tokenError(TokenMalformed, "JWT token has %d bytes, at most %d are accepted", len(raw), MaxTokenBytes)
	}
	if !tokenAlphabet(raw) {
		return nil, tokenError(TokenMalformed, "JWT token is malformed: it must be three base64url parts without padding, joined by dots")
	}
	if err := checkHeader(raw); err != nil {
		return nil, err
	}
	var c claims
	parsed, parts, err := tokenParser.ParseUnverified(raw, &c)
	var refused *TokenError
	switch {
	case errors.As(err, &refused): // from claims.UnmarshalJSON
		return nil, refused
	case err != nil:
		return nil, tokenError(TokenMalformed, "JWT token is malformed: send header.payload.signature, each base64url without padding, header and payload JSON objects")
	case parsed.Method.Alg() != Algorithm:
		return nil, tokenError(TokenAlgorithm, "JWT alg must be %s", Algorithm)
	case len(parsed.Signature) != SignatureBytes:
		return nil, tokenError(TokenMalformed, "JWT signature has %d bytes, want %d", len(parsed.Signature), SignatureBytes)
	}
	if err := c.check(now, iatTolerance); err != nil {
		return nil, err
	}
	return &Token{
		Digest: c.digest, ID: c.id, Issuer: c.issuer, IssuedAt: c.issuedAt, Expires: c.expires,
		signed: raw[:len(parts[0])+1+len(parts[1])], signature: parsed.Signature,
	}, nil
}

// CheckDigest checks that t was signed for the request whose digest is d. The error is a *TokenError.
func (t *Token) CheckDigest(d [32]byte) error {
	if want := digestClaim(d); t.Digest != want {
		return tokenError(TokenDigest, "JWT digest %s does not match the request, whose digest is %s: sign the digest of exactly the request you send", t.Digest, want)
	}
	return nil
}

// Signer recovers the address that signed t and checks that a non-empty iss names it, in any case. The error is a
// *TokenError. Every call recovers anew.
func (t *Token) Signer() (common.Address, error) {
	address, err := RecoverPersonal([]byte(t.signed), t.signature)
	if err != nil {
		return common.Address{}, tokenError(TokenSignature, "JWT signature is invalid: %s", strings.TrimPrefix(err.Error(), ErrSignature.Error()+": "))
	}
	if t.Issuer != "" && !strings.EqualFold(t.Issuer, address.Hex()) {
		return common.Address{}, tokenError(TokenIssuer, "JWT iss is not the address that signed the token (%s)", strings.ToLower(address.Hex()))
	}
	return address, nil
}

func digestClaim(d [32]byte) string { return "0x" + hex.EncodeToString(d[:]) }

// TokenOptions are the choices of NewToken. The zero value is a token for now that lives 5 minutes, has a random jti and no iss.
type TokenOptions struct {
	Now    time.Time     // zero: time.Now(); cut to the second
	TTL    time.Duration // 0: MaxTokenTTL; whole seconds, at most MaxTokenTTL
	ID     string        // jti, at most 128 bytes; "": a random UUID
	Issuer bool          // write iss
	Random io.Reader     // source of the UUID; nil: crypto/rand
}

// NewToken returns a request JWT for the request with the given digest, signed by s (protocol §3).
func NewToken(s Signer, digest [32]byte, o TokenOptions) (string, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.TTL == 0 {
		o.TTL = MaxTokenTTL
	}
	if o.TTL < time.Second || o.TTL > MaxTokenTTL {
		return "", fmt.Errorf("a JWT must live 1 s to %v, not %v", MaxTokenTTL, o.TTL)
	}
	if len(o.ID) > MaxTokenIDBytes {
		return "", fmt.Errorf("a JWT's jti must have at most %d bytes, not %d", MaxTokenIDBytes, len(o.ID))
	}
	if o.ID == "" {
		if o.Random == nil {
			o.Random = rand.Reader
		}
		id, err := uuid.NewRandomFromReader(o.Random)
		if err != nil {
			return "", fmt.Errorf("make a JWT's jti: %w", err)
		}
		o.ID = id.String()
	}
	c := &newClaims{Digest: digestClaim(digest), IssuedAt: o.Now.Unix(), Expires: o.Now.Unix() + int64(o.TTL/time.Second), ID: o.ID}
	if o.Issuer {
		c.Issuer = s.Address().Hex()
	}
	token, err := jwt.NewWithClaims(methodETH{}, c).SignedString(s)
	if err != nil {
		return "", fmt.Errorf("sign a JWT: %w", err)
	}
	return token, nil
}
