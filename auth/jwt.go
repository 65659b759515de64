package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// Algorithm is the one value of alg that is accepted.
const Algorithm = "ETH"

// methodETH is the JWT signing method of the protocol: an EIP-191 personal signature over header.payload.
type methodETH struct{}

func init() {
	jwt.RegisterSigningMethod(Algorithm, func() jwt.SigningMethod { return methodETH{} })
}

// tokenParser decodes tokens. What it would check of the claims is checked by claims.check instead, whose rules are stricter.
var tokenParser = jwt.NewParser(jwt.WithValidMethods([]string{Algorithm}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// Alg implements jwt.SigningMethod.
func (methodETH) Alg() string { return Algorithm }

// Verify implements jwt.SigningMethod. key is the common.Address that must have signed.
func (methodETH) Verify(signed string, sig []byte, key any) error {
	want, ok := key.(common.Address)
	if !ok {
		return jwt.ErrInvalidKeyType
	}
	if got, err := RecoverPersonal([]byte(signed), sig); err != nil || got != want {
		return jwt.ErrSignatureInvalid
	}
	return nil
}

// Sign implements jwt.SigningMethod. key is a Signer.
func (methodETH) Sign(signed string, key any) ([]byte, error) {
	s, ok := key.(Signer)
	if !ok {
		return nil, jwt.ErrInvalidKeyType
	}
	sig, err := s.SignPersonal([]byte(signed))
	if err == nil && len(sig) != SignatureBytes {
		return nil, fmt.Errorf("the signer gave %d bytes, want %d", len(sig), SignatureBytes)
	}
	return sig, err
}

// tokenAlphabet reports whether s has the characters of a token alone. It comes before the base64 decoder, which passes over
// line breaks: one token must not have two spellings.
func tokenAlphabet(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// checkHeader decodes the header strictly, which the JWT library does not: it would take the last of two algs.
func checkHeader(raw string) error {
	part, _, _ := strings.Cut(raw, ".")
	data, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return tokenError(TokenMalformed, "JWT header is not base64url without padding")
	}
	var h struct {
		Algorithm string         `json:"alg"`
		Type      string         `json:"typ"`
		Critical  jsontext.Value `json:"crit"`
	}
	switch err := json.Unmarshal(data, &h); {
	case err != nil:
		return tokenError(TokenMalformed, "JWT header is not a JSON object with strings alg and typ")
	case h.Algorithm != Algorithm:
		return tokenError(TokenAlgorithm, "JWT alg must be %s", Algorithm)
	case h.Critical != nil:
		return tokenError(TokenAlgorithm, "JWT header has crit, which is not supported")
	case h.Type != "" && !strings.EqualFold(h.Type, "JWT"):
		return tokenError(TokenMalformed, "JWT typ must be JWT")
	}
	return nil
}

// claims are the claims of a token being parsed. They decode themselves, because the JWT library would take names in any case and
// the last of two equal ones.
type claims struct {
	noClaims
	digest, id, issuer string
	issuedAt, expires  time.Time
	notBefore          time.Time // zero when absent
}

// UnmarshalJSON implements the interface of encoding/json, which the JWT library decodes with.
func (c *claims) UnmarshalJSON(data []byte) error {
	var wire struct {
		Digest    string         `json:"digest"`
		ID        string         `json:"jti"`
		Issuer    string         `json:"iss"`
		IssuedAt  jsontext.Value `json:"iat"`
		Expires   jsontext.Value `json:"exp"`
		NotBefore jsontext.Value `json:"nbf"`
	}
	// A syntax error, two members of one name, or a wrong type; null leaves a zero value, which is refused or absent.
	if json.Unmarshal(data, &wire) != nil {
		return tokenError(TokenMalformed, "JWT payload is not a JSON object with strings digest, jti and iss")
	}
	c.digest, c.id, c.issuer = wire.Digest, wire.ID, wire.Issuer
	var err error
	if c.issuedAt, err = numericDate("iat", wire.IssuedAt); err != nil {
		return err
	}
	if c.expires, err = numericDate("exp", wire.Expires); err != nil {
		return err
	}
	if wire.NotBefore != nil {
		c.notBefore, err = numericDate("nbf", wire.NotBefore)
	}
	return err
}

// numericDate reads a NumericDate (RFC 7519 §2): seconds since 1970, with or without a fraction, here before the year 10000.
func numericDate(name string, v jsontext.Value) (time.Time, error) {
	const year10000 = 253402300800
	if v == nil {
		return time.Time{}, tokenError(TokenTimes, "JWT %s is missing", name)
	}
	seconds, err := strconv.ParseFloat(string(v), 64)
	if v.Kind() != '0' || err != nil || seconds < 0 || seconds >= year10000 {
		return time.Time{}, tokenError(TokenTimes, "JWT %s is not a number of seconds since 1970", name)
	}
	// Rounding to the microsecond keeps two equal decimal fractions equal in differences.
	return time.UnixMicro(int64(math.Round(seconds * 1e6))), nil
}

// check applies the rules of protocol §3 to the values.
func (c *claims) check(now time.Time, tolerance time.Duration) error {
	switch life := c.expires.Sub(c.issuedAt); {
	case !validDigestClaim(c.digest):
		return tokenError(TokenClaims, "JWT digest is missing or is not 0x and 64 lower-case hex digits")
	case len(c.id) == 0 || len(c.id) > MaxTokenIDBytes:
		return tokenError(TokenClaims, "JWT jti has %d bytes, want 1 to %d", len(c.id), MaxTokenIDBytes)
	case life <= 0:
		return tokenError(TokenTimes, "JWT exp is not after iat")
	case life > MaxTokenTTL:
		return tokenError(TokenTimes, "JWT lives %v from iat to exp, at most %v is accepted", life, MaxTokenTTL)
	case !c.expires.After(now):
		return tokenError(TokenTimes, "JWT token is expired since %v: sign a new one", now.Sub(c.expires).Round(time.Second))
	case c.issuedAt.After(now.Add(tolerance)):
		return tokenError(TokenTimes, "JWT iat is %v in the future, at most %v is accepted: check the clock", c.issuedAt.Sub(now).Round(time.Second), tolerance)
	case c.notBefore.After(now.Add(tolerance)):
		return tokenError(TokenTimes, "JWT nbf is %v in the future: the token is not valid yet", c.notBefore.Sub(now).Round(time.Second))
	}
	return nil
}

func validDigestClaim(s string) bool {
	if len(s) != 2+64 || s[:2] != "0x" {
		return false
	}
	for _, c := range []byte(s[2:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// newClaims are the claims of a token being made, in the order in which public clients write them.
type newClaims struct {
	noClaims
	Digest   string `json:"digest"`
	Issuer   string `json:"iss,omitempty"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
}

// noClaims implements jwt.Claims for types whose claims the library must not look at.
type noClaims struct{}

var errNoClaims = errors.New("claims are checked by this package")

func (noClaims) GetExpirationTime() (*jwt.NumericDate, error) { return nil, errNoClaims }
func (noClaims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, errNoClaims }
func (noClaims) GetNotBefore() (*jwt.NumericDate, error)      { return nil, errNoClaims }
func (noClaims) GetIssuer() (string, error)                   { return "", errNoClaims }
func (noClaims) GetSubject() (string, error)                  { return "", errNoClaims }
func (noClaims) GetAudience() (jwt.ClaimStrings, error)       { return nil, errNoClaims }
