package auth

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

const (
	tolerance  = 5 * time.Minute
	goodHeader = `{"alg":"ETH","typ":"JWT"}`
)

var (
	issued     = time.Unix(1_780_000_000, 0)
	testDigest = [32]byte{0xab, 31: 0xcd}
)

// payload returns a good payload with some members replaced: a value is JSON, "" leaves the member out.
func payload(changes ...string) string {
	names := []string{"digest", "iat", "exp", "jti"}
	values := map[string]string{"digest": `"` + digestClaim(testDigest) + `"`, "iat": "1780000000", "exp": "1780000300", "jti": `"j"`}
	for i := 0; i < len(changes); i += 2 {
		if _, ok := values[changes[i]]; !ok {
			names = append(names, changes[i])
		}
		values[changes[i]] = changes[i+1]
	}
	var members []string
	for _, name := range names {
		if values[name] != "" {
			members = append(members, fmt.Sprintf("%q:%s", name, values[name]))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// makeToken signs any header and payload.
func makeToken(tb testing.TB, header, payload string) string {
	tb.Helper()
	enc := base64.RawURLEncoding.EncodeToString
	signed := enc([]byte(header)) + "." + enc([]byte(payload))
	sig, err := NewKeySigner(testKey(tb, 1)).SignPersonal([]byte(signed))
	require.NoError(tb, err)
	return signed + "." + enc(sig)
}

// tokenCase is a token and what must become of it.
type tokenCase struct {
	name, token string
	reason      TokenReason // "" is accepted
	says        string
}

func runTokenCases(t *testing.T, now time.Time, cases []tokenCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			token, err := ParseToken(c.token, now, tolerance)
			if c.reason == "" {
				require.NoError(t, err)
				_, err = token.Signer()
				require.NoError(t, err)
				return
			}
			checkTokenError(t, err, c)
			require.Nil(t, token)
		})
	}
}

func checkTokenError(t *testing.T, err error, c tokenCase) {
	t.Helper()
	var refused *TokenError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, ErrToken)
	require.Equal(t, c.reason, refused.Reason, refused.Msg)
	require.Contains(t, refused.Msg, c.says)
	require.Less(t, len(refused.Msg), 300)
	for _, part := range strings.Split(c.token, ".") {
		require.False(t, len(part) > 8 && strings.Contains(refused.Msg, part), "the text holds a piece of the token")
	}
}

// conformance: 3.signature.form
func TestParseTokenShape(t *testing.T) {
	t.Parallel()
	good := makeToken(t, goodHeader, payload())
	parts := strings.Split(good, ".")
	join := func(p ...string) string { return strings.Join(p, ".") }
	enc := base64.RawURLEncoding.EncodeToString
	padded := makeToken(t, goodHeader, payload("x", `"`+strings.Repeat("y", 2000)+`"`))
	runTokenCases(t, issued.Add(time.Second), []tokenCase{
		{"good", good, "", ""},
		{"long but allowed", padded, "", ""},
		{"empty", "", TokenMalformed, "header"},
		{"one part", "abc", TokenMalformed, "header"},
		{"two parts", join(parts[0], parts[1]), TokenMalformed, "malformed"},
		{"four parts", good + ".", TokenMalformed, "malformed"},
		{"dots", "..", TokenMalformed, "header"},
		{"empty header", join("", parts[1], parts[2]), TokenMalformed, "header"},
		{"empty payload", join(parts[0], "", parts[2]), TokenMalformed, "malformed"},
		{"empty signature", join(parts[0], parts[1], ""), TokenMalformed, "signature has 0 bytes"},
		{"too long", strings.Repeat("a", MaxTokenBytes+1), TokenMalformed, "4097 bytes, at most 4096"},
		{"longest", strings.Repeat("a", MaxTokenBytes), TokenMalformed, "header"},
		{"with a scheme", "Bearer " + good, TokenMalformed, "malformed"},
		{"space at the end", good + " ", TokenMalformed, "malformed"},
		{"line break inside", good[:10] + "\n" + good[10:], TokenMalformed, "malformed"},
		{"carriage return in the signature", good[:len(good)-4] + "\r" + good[len(good)-4:], TokenMalformed, "malformed"},
		{"padding", good + "=", TokenMalformed, "malformed"},
		{"standard alphabet", join(parts[0], parts[1], "+/"+parts[2][2:]), TokenMalformed, "malformed"},
		{"zero byte", good + "\x00", TokenMalformed, "malformed"},
		{"stray bits in the signature", strayBits(good), TokenMalformed, "malformed"},
		{"stray bits in the header", join(enc([]byte(`{"alg":"ETH"} `))[:19]+"B", parts[1], parts[2]), TokenMalformed, "header"},
		{"signature of 64 bytes", join(parts[0], parts[1], enc(make([]byte, 64))), TokenMalformed, "64 bytes, want 65"},
		{"signature of 66 bytes", join(parts[0], parts[1], enc(make([]byte, 66))), TokenMalformed, "66 bytes, want 65"},
		{"payload not base64", join(parts[0], "a", parts[2]), TokenMalformed, "malformed"},
	})
}

// strayBits sets a bit of the last character that belongs to no byte: another spelling of the same signature.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last+1])
}

// conformance: 3.alg
func TestParseTokenHeader(t *testing.T) {
	t.Parallel()
	token := func(header string) string { return makeToken(t, header, payload()) }
	runTokenCases(t, issued.Add(time.Second), []tokenCase{
		{"other order and members", token(`{"typ":"JWT","kid":"1","alg":"ETH"}`), "", ""},
		{"no typ", token(`{"alg":"ETH"}`), "", ""},
		{"typ in lower case", token(`{"alg":"ETH","typ":"jwt"}`), "", ""},
		{"none", token(`{"alg":"none","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"NONE", token(`{"alg":"NONE","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"HS256", token(`{"alg":"HS256","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"ES256K", token(`{"alg":"ES256K","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"eth", token(`{"alg":"eth","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"empty alg", token(`{"alg":"","typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"no alg", token(`{"typ":"JWT"}`), TokenAlgorithm, "alg must be ETH"},
		{"alg null", token(`{"alg":null}`), TokenAlgorithm, "alg must be ETH"},
		{"Alg", token(`{"Alg":"ETH"}`), TokenAlgorithm, "alg must be ETH"},
		{"alg a number", token(`{"alg":1}`), TokenMalformed, "header"},
		{"alg a list", token(`{"alg":["ETH"]}`), TokenMalformed, "header"},
		{"two algs", token(`{"alg":"ETH","alg":"ETH"}`), TokenMalformed, "header"},
		{"none and ETH", token(`{"alg":"none","alg":"ETH"}`), TokenMalformed, "header"},
		{"crit", token(`{"alg":"ETH","crit":["exp"]}`), TokenAlgorithm, "crit"},
		{"crit empty", token(`{"alg":"ETH","crit":[]}`), TokenAlgorithm, "crit"},
		{"crit null", token(`{"alg":"ETH","crit":null}`), TokenAlgorithm, "crit"},
		{"other typ", token(`{"alg":"ETH","typ":"JWE"}`), TokenMalformed, "typ"},
		{"null", token(`null`), TokenAlgorithm, "alg"},
		{"array", token(`[]`), TokenMalformed, "header"},
		{"not JSON", token(`{`), TokenMalformed, "header"},
		{"trailing data", token(goodHeader + "{}"), TokenMalformed, "header"},
		{"not UTF-8", token("{\"alg\":\"ETH\",\"x\":\"\xff\"}"), TokenMalformed, "header"},
	})
}

// conformance: 3.claims.jti
// conformance: 3.claims.required
// conformance: 3.claims.lifetime
// conformance: 3.claims.digest
func TestParseTokenClaims(t *testing.T) {
	t.Parallel()
	token := func(changes ...string) string { return makeToken(t, goodHeader, payload(changes...)) }
	raw := func(p string) string { return makeToken(t, goodHeader, p) }
	text := func(n int) string { return `"` + strings.Repeat("é", n/2) + `"` }
	runTokenCases(t, issued.Add(time.Second), []tokenCase{
		{"unknown, aud and sub are ignored", token("aud", `["x"]`, "sub", "1", "more", "{}"), "", ""},
		{"fractional times", token("iat", "1780000000.25", "exp", "1780000300.25"), "", ""},
		{"times with exponents", token("iat", "1.78e9", "exp", "1780000300.0"), "", ""},
		{"longest jti", token("jti", text(128)), "", ""},
		{"shortest life", token("iat", "1780000001.5", "exp", "1780000001.500001"), "", ""},
		{"iss null", token("iss", "null"), "", ""},
		{"iss empty", token("iss", `""`), "", ""},
		{"no digest", token("digest", ""), TokenClaims, "digest"},
		{"digest without 0x", token("digest", `"`+hex.EncodeToString(testDigest[:])+`"`), TokenClaims, "digest"},
		{"digest in upper case", token("digest", `"0x`+strings.Repeat("AB", 32)+`"`), TokenClaims, "digest"},
		{"digest short", token("digest", `"0xab"`), TokenClaims, "digest"},
		{"digest long", token("digest", `"`+digestClaim(testDigest)+`00"`), TokenClaims, "digest"},
		{"digest not hex", token("digest", `"0x`+strings.Repeat("zz", 32)+`"`), TokenClaims, "digest"},
		{"digest a number", token("digest", "1"), TokenMalformed, "payload"},
		{"no jti", token("jti", ""), TokenClaims, "jti has 0 bytes, want 1 to 128"},
		{"jti empty", token("jti", `""`), TokenClaims, "jti has 0 bytes"},
		{"jti null", token("jti", "null"), TokenClaims, "jti has 0 bytes"},
		{"jti long", token("jti", text(130)), TokenClaims, "jti has 130 bytes"},
		{"jti a number", token("jti", "7"), TokenMalformed, "payload"},
		{"JTI", token("jti", "", "JTI", `"j"`), TokenClaims, "jti"},
		{"iss a number", token("iss", "7"), TokenMalformed, "payload"},
		{"no iat", token("iat", ""), TokenTimes, "iat is missing"},
		{"no exp", token("exp", ""), TokenTimes, "exp is missing"},
		{"EXP", token("exp", "", "EXP", "1780000300"), TokenTimes, "exp is missing"},
		{"iat null", token("iat", "null"), TokenTimes, "iat is not a number"},
		{"exp a string", token("exp", `"1780000300"`), TokenTimes, "exp is not a number"},
		{"exp negative", token("exp", "-1"), TokenTimes, "exp is not a number of seconds"},
		{"exp huge", token("exp", "1e300"), TokenTimes, "exp is not a number of seconds"},
		{"exp beyond doubles", token("exp", "1e400"), TokenTimes, "exp is not a number of seconds"},
		{"iat in milliseconds", token("iat", "1780000000000", "exp", "1780000300000"), TokenTimes, "iat is not a number of seconds"},
		{"nbf a string", token("nbf", `"x"`), TokenTimes, "nbf is not a number"},
		{"exp is iat", token("exp", "1780000000"), TokenTimes, "exp is not after iat"},
		{"exp before iat", token("exp", "1779999999"), TokenTimes, "exp is not after iat"},
		{"a second too long", token("exp", "1780000301"), TokenTimes, "lives 5m1s"},
		{"a microsecond too long", token("exp", "1780000300.000001"), TokenTimes, "lives 5m0.000001s"},
		{"two exps", raw(`{"exp":1780000300,` + payload()[1:]), TokenMalformed, "payload"},
		{"two jtis", raw(`{"jti":"k",` + payload()[1:]), TokenMalformed, "payload"},
		{"two of an unknown name", raw(`{"x":1,"x":1,` + payload()[1:]), TokenMalformed, "payload"},
		{"null", raw(`null`), TokenClaims, "digest is missing"},
		{"array", raw(`[]`), TokenMalformed, "payload"},
		{"string", raw(`"x"`), TokenMalformed, "payload"},
		{"not JSON", raw(`{"x"`), TokenMalformed, "malformed"},
		{"trailing data", raw(payload() + "1"), TokenMalformed, "malformed"},
		{"lone surrogate", token("x", `"\ud800"`), TokenMalformed, "payload"},
		{"not UTF-8", token("x", "\"\xff\""), TokenMalformed, "payload"},
	})
}

// conformance: 3.claims.exp
// conformance: 3.claims.iat
func TestParseTokenTimes(t *testing.T) {
	t.Parallel()
	token := makeToken(t, goodHeader, payload())
	late := makeToken(t, goodHeader, payload("nbf", "1780000100"))
	for _, c := range []struct {
		name, token string
		now         time.Time
		says        string
	}{
		{"at iat", token, issued, ""},
		{"just before exp", token, issued.Add(5*time.Minute - time.Microsecond), ""},
		{"at exp", token, issued.Add(5 * time.Minute), "expired since 0s"},
		{"after exp", token, issued.Add(6 * time.Minute), "expired since 1m0s: sign a new one"},
		{"ages after exp", token, issued.AddDate(30, 0, 0), "expired"},
		{"iat 5 min ahead", token, issued.Add(-tolerance), ""},
		{"iat more than 5 min ahead", token, issued.Add(-tolerance - time.Second), "iat is 5m1s in the future"},
		{"ages before iat", token, time.Unix(0, 0), "iat is"},
		{"nbf not yet but tolerated", late, issued.Add(time.Second), ""},
		{"nbf too far ahead", late, issued.Add(100*time.Second - tolerance - time.Second), "nbf is"},
	} {
		got, err := ParseToken(c.token, c.now, tolerance)
		if c.says == "" {
			require.NoError(t, err, c.name)
			require.Equal(t, issued.Unix(), got.IssuedAt.Unix())
			require.Equal(t, issued.Add(5*time.Minute).Unix(), got.Expires.Unix())
			continue
		}
		checkTokenError(t, err, tokenCase{token: c.token, reason: TokenTimes, says: c.says})
	}
	_, err := ParseToken(token, issued.Add(-time.Second), 0)
	require.Error(t, err, "no tolerance")
}

// conformance: 3.claims.digest
func TestCheckDigest(t *testing.T) {
	t.Parallel()
	raw := makeToken(t, goodHeader, payload())
	token, err := ParseToken(raw, issued, tolerance)
	require.NoError(t, err)
	require.NoError(t, token.CheckDigest(testDigest))
	checkTokenError(t, token.CheckDigest([32]byte{}), tokenCase{token: raw, reason: TokenDigest, says: digestClaim([32]byte{})})
}

// conformance: 3.signer.recovered
// conformance: 3.claims.iss
func TestTokenSigner(t *testing.T) {
	t.Parallel()
	signer := NewKeySigner(testKey(t, 1)).Address()
	for _, iss := range []string{"", signer.Hex(), strings.ToLower(signer.Hex()), "0X" + strings.ToUpper(signer.Hex()[2:])} {
		token, err := ParseToken(makeToken(t, goodHeader, payload("iss", fmt.Sprintf("%q", iss))), issued, tolerance)
		require.NoError(t, err)
		got, err := token.Signer()
		require.NoError(t, err, iss)
		require.Equal(t, signer, got)
	}
	for _, iss := range []string{"x", signer.Hex()[2:], signer.Hex() + "0", common.Address{}.Hex(), " "} {
		raw := makeToken(t, goodHeader, payload("iss", fmt.Sprintf("%q", iss)))
		token, err := ParseToken(raw, issued, tolerance)
		require.NoError(t, err)
		_, err = token.Signer()
		checkTokenError(t, err, tokenCase{token: raw, reason: TokenIssuer, says: "iss is not"})
	}
	good := makeToken(t, goodHeader, payload())
	forged := good[:strings.LastIndexByte(good, '.')+1] + base64.RawURLEncoding.EncodeToString(make([]byte, SignatureBytes))
	token, err := ParseToken(forged, issued, tolerance)
	require.NoError(t, err)
	_, err = token.Signer()
	checkTokenError(t, err, tokenCase{token: forged, reason: TokenSignature, says: "JWT signature is invalid: no key has made it"})
}

func TestNewToken(t *testing.T) {
	t.Parallel()
	s := NewKeySigner(testKey(t, 3))
	parse := func(o TokenOptions) *Token {
		raw, err := NewToken(s, testDigest, o)
		require.NoError(t, err)
		token, err := ParseToken(raw, issued, tolerance)
		require.NoError(t, err)
		signer, err := token.Signer()
		require.NoError(t, err)
		require.Equal(t, s.Address(), signer)
		require.NoError(t, token.CheckDigest(testDigest))
		return token
	}
	token := parse(TokenOptions{Now: issued.Add(999 * time.Millisecond)})
	require.Equal(t, issued.Unix(), token.IssuedAt.Unix())
	require.Equal(t, 5*time.Minute, token.Expires.Sub(token.IssuedAt))
	require.Empty(t, token.Issuer)
	require.Len(t, token.ID, 36)
	require.NotEqual(t, token.ID, parse(TokenOptions{Now: issued}).ID)

	token = parse(TokenOptions{Now: issued, TTL: 90 * time.Second, ID: strings.Repeat("j", 128), Issuer: true})
	require.Equal(t, 90*time.Second, token.Expires.Sub(token.IssuedAt))
	require.Equal(t, strings.Repeat("j", 128), token.ID)
	require.Equal(t, s.Address().Hex(), token.Issuer)

	for name, o := range map[string]TokenOptions{
		"longest life": {TTL: MaxTokenTTL + 1}, "negative life": {TTL: -time.Second}, "part of a second": {TTL: time.Millisecond}, "jti": {ID: strings.Repeat("j", 129)},
		"randomness": {Random: strings.NewReader("short")},
	} {
		_, err := NewToken(s, testDigest, o)
		require.Error(t, err, name)
	}
	raw, err := NewToken(s, testDigest, TokenOptions{})
	require.NoError(t, err)
	_, err = ParseToken(raw, time.Now(), 0)
	require.NoError(t, err, "the zero options are for now")
}

// The signing method also serves the JWT library's own verification, with its own key types.
func TestMethodETH(t *testing.T) {
	t.Parallel()
	s := NewKeySigner(testKey(t, 1))
	m := jwt.GetSigningMethod(Algorithm)
	require.Equal(t, Algorithm, m.Alg())
	sig, err := m.Sign("x", s)
	require.NoError(t, err)
	require.NoError(t, m.Verify("x", sig, s.Address()))
	require.ErrorIs(t, m.Verify("y", sig, s.Address()), jwt.ErrSignatureInvalid)
	require.ErrorIs(t, m.Verify("x", sig[:64], s.Address()), jwt.ErrSignatureInvalid)
	require.ErrorIs(t, m.Verify("x", sig, "key"), jwt.ErrInvalidKeyType)
	_, err = m.Sign("x", "key")
	require.ErrorIs(t, err, jwt.ErrInvalidKeyType)
}

func FuzzParseToken(f *testing.F) {
	for _, v := range loadVectors[tokenVector](f, "request_jwt.json") {
		f.Add(v.Token, v.IAT+1)
	}
	f.Add(makeToken(f, goodHeader, payload("iat", "1.78e9", "nbf", "1")), issued.Unix())
	f.Add("e30.e30.", int64(0))
	f.Add("..", int64(-1))
	f.Fuzz(func(t *testing.T, raw string, unix int64) {
		now := time.Unix(unix%1e10, 0)
		token, err := ParseToken(raw, now, tolerance)
		if err != nil {
			require.ErrorIs(t, err, ErrToken)
			require.Less(t, len(err.Error()), 400)
			return
		}
		require.LessOrEqual(t, len(raw), MaxTokenBytes)
		require.NotEmpty(t, token.ID)
		require.LessOrEqual(t, len(token.ID), MaxTokenIDBytes)
		require.True(t, token.Expires.After(now))
		require.True(t, token.Expires.After(token.IssuedAt))
		require.LessOrEqual(t, token.Expires.Sub(token.IssuedAt), MaxTokenTTL)
		require.False(t, token.IssuedAt.After(now.Add(tolerance)))
		// One token has one spelling.
		parts := strings.Split(raw, ".")
		require.Len(t, parts, 3)
		for _, part := range parts {
			b, err := base64.RawURLEncoding.Strict().DecodeString(part)
			require.NoError(t, err)
			require.Equal(t, part, base64.RawURLEncoding.EncodeToString(b))
		}
		if _, err := token.Signer(); err != nil {
			require.ErrorIs(t, err, ErrToken)
		}
	})
}

func BenchmarkParseToken(b *testing.B) {
	raw := makeToken(b, goodHeader, payload())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseToken(raw, issued, tolerance); err != nil {
			b.Fatal(err)
		}
	}
}
