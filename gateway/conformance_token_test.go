package gateway

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/workflow"
)

const goodHeader = `{"alg":"ETH","typ":"JWT"}`

// craft signs any header and payload as a token.
func craft(s auth.Signer, header, payload string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sig, err := s.SignPersonal([]byte(text))
	if err != nil {
		panic(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// digestOf is the digest claim of a request.
func digestOf(t *testing.T, s signed) string {
	t.Helper()
	token, err := auth.ParseToken(s.token, time.Now(), time.Minute)
	require.NoError(t, err)
	return token.Digest
}

// conformance: 3.claims.digest
// conformance: 3.claims.jti
// conformance: 3.claims.required
// conformance: 3.claims.lifetime
// conformance: 3.claims.iat
// conformance: 3.claims.exp
// conformance: 3.claims.iss
// conformance: 3.alg
// conformance: 3.signature.form
func TestTokenRulesEndToEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, handler: unlimited()})
		w := theWorkflow()
		r.connectAll(nil, w)
		self, other := clientSigner.Address().Hex(), auth.NewKeySigner(key(77)).Address().Hex()
		type change struct{ member, value string } // "": the member is left out
		n := 0
		// token makes a good one for s but for the changes; times are relative to now.
		token := func(s signed, header string, changes ...change) string {
			n++
			now := time.Now().Unix()
			members := []change{{"digest", `"` + digestOf(t, s) + `"`}, {"jti", fmt.Sprintf(`"jti-%d"`, n)}, {"iat", "+0"}, {"exp", "+60"}}
			for _, c := range changes {
				found := false
				for i := range members {
					if members[i].member == c.member {
						members[i].value, found = c.value, true
					}
				}
				if !found {
					members = append(members, c)
				}
			}
			var parts []string
			for _, m := range members {
				var seconds int64
				if k, _ := fmt.Sscanf(m.value, "%d", &seconds); k == 1 && (m.value[0] == '+' || m.value[0] == '-') {
					m.value = fmt.Sprint(now + seconds)
				}
				if m.value != "" {
					parts = append(parts, `"`+m.member+`":`+m.value)
				}
			}
			return craft(clientSigner, header, "{"+strings.Join(parts, ",")+"}")
		}
		quote := func(s string) string { return `"` + s + `"` }
		for _, tt := range []struct {
			name    string
			ok      bool
			header  string
			changes []change
		}{
			{"good", true, "", nil},
			{"jti of 128 bytes", true, "", []change{{"jti", quote(strings.Repeat("j", 128))}}},
			{"jti of 129 bytes", false, "", []change{{"jti", quote(strings.Repeat("j", 129))}}},
			{"jti empty", false, "", []change{{"jti", `""`}}},
			{"jti missing", false, "", []change{{"jti", ""}}},
			{"jti a number", false, "", []change{{"jti", "7"}}},
			{"exp missing", false, "", []change{{"exp", ""}}},
			{"iat missing", false, "", []change{{"iat", ""}}},
			{"lives 5 minutes", true, "", []change{{"exp", "+300"}}},
			{"lives a second more", false, "", []change{{"exp", "+301"}}},
			{"lives no time", false, "", []change{{"iat", "+60"}}},
			{"ends before it begins", false, "", []change{{"iat", "+61"}}},
			{"iat at the tolerance", true, "", []change{{"iat", "+300"}, {"exp", "+301"}}},
			{"iat past the tolerance", false, "", []change{{"iat", "+301"}, {"exp", "+302"}}},
			{"exp in a second", true, "", []change{{"iat", "-10"}, {"exp", "+1"}}},
			{"exp now", false, "", []change{{"iat", "-10"}, {"exp", "+0"}}},
			{"iss empty", true, "", []change{{"iss", `""`}}},
			{"iss checksummed", true, "", []change{{"iss", quote(self)}}},
			{"iss lower", true, "", []change{{"iss", quote(strings.ToLower(self))}}},
			{"iss upper", true, "", []change{{"iss", quote("0x" + strings.ToUpper(self[2:]))}}},
			{"iss another", false, "", []change{{"iss", quote(other)}}},
			{"digest missing", false, "", []change{{"digest", ""}}},
			{"digest of another", false, "", []change{{"digest", quote("0x" + strings.Repeat("0", 64))}}},
			{"alg none", false, `{"alg":"none","typ":"JWT"}`, nil},
			{"alg in another case", false, `{"alg":"eth","typ":"JWT"}`, nil},
			{"alg ES256K", false, `{"alg":"ES256K","typ":"JWT"}`, nil},
			{"alg missing", false, `{"typ":"JWT"}`, nil},
			{"crit", false, `{"alg":"ETH","typ":"JWT","crit":["exp"]}`, nil},
			{"crit empty", false, `{"alg":"ETH","typ":"JWT","crit":[]}`, nil},
		} {
			header := tt.header
			if header == "" {
				header = goodHeader
			}
			for _, inBody := range []bool{false, true} {
				s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
				if s.token = token(s, header, tt.changes...); strings.HasPrefix(tt.name, "jti of 128") && inBody {
					continue // the same jti again
				}
				a := new(clientAnswer)
				if inBody {
					a = r.postBody(s.inBody())
				} else {
					a = r.send(s)
				}
				if tt.ok {
					require.Equal(t, 200, a.status, "%s: %s", tt.name, a.raw)
					continue
				}
				require.Equal(t, 401, a.status, "%s, in body %v: %s", tt.name, inBody, a.raw)
				require.Equal(t, "unauthorized", a.reason())
				require.Regexp(t, "^Auth failure: ", a.body.Error.Message)
			}
		}
	})
}

// conformance: 3.claims.iat
func TestEachServiceHasItsTolerance(t *testing.T) {
	t.Parallel()
	service := func(name, don string, tolerance int) map[string]any {
		return map[string]any{"serviceName": name, "dons": []string{don}, "handlers": []any{map[string]any{
			"name": "http-capabilities", "config": map[string]any{"jwtIssuedAtToleranceMs": tolerance}}}}
	}
	r := newRig(t, rigSpec{dons: []donSpec{{"don", 1, []int{4}}, {"other", 1, []int{4}}},
		top: map[string]any{"services": []any{service("workflows", "don", 60_000), service("lenient", "other", 300_000)}}})
	w := theWorkflow()
	for i := range 4 {
		r.connect("don", i, []workflow.Metadata{w}, nil)
	}
	r.awaitWorkflow(w.Selector.WorkflowID)
	for ahead, status := range map[time.Duration]int{50 * time.Second: 200, 90 * time.Second: 401} {
		for _, inBody := range []bool{false, true} {
			s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{Now: time.Now().Add(ahead)})
			a := new(clientAnswer)
			if inBody {
				a = r.postBody(s.inBody())
			} else {
				a = r.send(s)
			}
			require.Equal(t, status, a.status, "%v ahead, in body %v: %s", ahead, inBody, a.raw)
		}
	}
}

// twins are the spellings of a token's signature: both forms of s, and v with and
// without 27.
func twins(t *testing.T, token string) []string {
	t.Helper()
	cut := strings.LastIndexByte(token, '.')
	sig, err := base64.RawURLEncoding.DecodeString(token[cut+1:])
	require.NoError(t, err)
	var out []string
	for _, other := range []bool{false, true} {
		for _, offset := range []byte{0, 27} {
			twin := append([]byte(nil), sig...)
			if other {
				s := new(big.Int).SetBytes(sig[32:64])
				s.Sub(crypto.S256().Params().N, s).FillBytes(twin[32:64])
				twin[64] ^= 1
			}
			twin[64] += offset
			out = append(out, token[:cut+1]+base64.RawURLEncoding.EncodeToString(twin))
		}
	}
	return out
}

// conformance: 3.signature.high-s
// conformance: 3.replay.once
func TestTwinOfAUsedTokenIsAReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{handler: unlimited()})
	w := theWorkflow()
	r.connectAll(nil, w)
	for i := range 4 {
		s := sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
		all := twins(t, s.token)
		require.Len(t, map[string]bool{all[0]: true, all[1]: true, all[2]: true, all[3]: true}, 4)
		require.Equal(t, 200, r.send(signed{s.body, all[i]}).status, "every spelling is accepted")
		for _, twin := range all {
			a := r.send(signed{s.body, twin})
			require.Equal(t, "token_replayed", a.reason(), "%s", a.raw)
		}
	}
}

// conformance: 3.authorised
func TestOnlyTheWorkflowsKeysAreAuthorised(t *testing.T) {
	t.Parallel()
	a, b, c := auth.NewKeySigner(key(71)), auth.NewKeySigner(key(72)), auth.NewKeySigner(key(73))
	w1, w2 := testWorkflow(1, "one", "v1", a, b), testWorkflow(2, "two", "v1", b)
	w2.AuthorizedKeys[0].PublicKey = "0x" + strings.ToUpper(w2.AuthorizedKeys[0].PublicKey[2:]) // a node's spelling
	r := newRig(t, rigSpec{})
	r.connectAll(nil, w1, w2)
	for _, tt := range []struct {
		w      workflow.Metadata
		s      auth.Signer
		status int
	}{
		{w1, a, 200}, {w1, b, 200}, {w1, c, 401}, {w1, clientSigner, 401}, {w2, a, 401}, {w2, b, 200}, {w2, c, 401},
	} {
		got := r.send(sign("", paramsFor(tt.w, []int{1}), tt.s, auth.TokenOptions{Issuer: true}))
		require.Equal(t, tt.status, got.status, "%s", got.raw)
		if tt.status == 401 {
			require.Equal(t, "unauthorized", got.reason())
			require.Equal(t, "Bearer", got.header.Get("WWW-Authenticate"))
		}
	}
}

// conformance: 3.replay.shared
func TestClaimsBelongToTheStore(t *testing.T) {
	t.Parallel()
	store := auth.NewMemoryClaims(auth.MemoryOptions{})
	w := theWorkflow()
	open := func() *rig {
		r := newRig(t, rigSpec{options: Options{Claims: store}})
		r.connectAll(nil, w)
		return r
	}
	first, second := open(), open()
	s := sign("id", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{})
	require.Equal(t, 200, first.send(s).status)
	require.Equal(t, "token_replayed", second.send(s).reason(), "another gateway on the same store")
	again := second.send(sign("id", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{}))
	require.Equal(t, "conflict", again.reason())
	require.Equal(t, "answered", again.body.Error.Data.State)
	require.NoError(t, first.srv.Shutdown(t.Context()))
	require.Equal(t, "token_replayed", open().send(s).reason(), "a gateway that was started later")
}

// conformance: 3.replay.memory
func TestFullMemoryOfClaimsForgetsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, rigSpec{bubble: true, options: Options{Claims: auth.NewMemoryClaims(auth.MemoryOptions{MaxClaims: 2})}})
		w := theWorkflow()
		r.connectAll(nil, w)
		ask := func(ttl time.Duration) signed {
			return sign("", paramsFor(w, []int{1}), clientSigner, auth.TokenOptions{TTL: ttl})
		}
		first, second, third := ask(time.Minute), ask(2*time.Minute), ask(2*time.Minute)
		require.Equal(t, 200, r.send(first).status)
		require.Equal(t, 200, r.send(second).status)
		a := r.send(third)
		require.Equal(t, 503, a.status)
		require.Equal(t, "unavailable", a.reason())
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Equal(t, "token_replayed", r.send(first).reason())
		require.Equal(t, "token_replayed", r.send(second).reason())
		time.Sleep(61 * time.Second) // the first token is void by now
		require.Equal(t, 200, r.send(third).status)
		require.Equal(t, "unauthorized", r.send(first).reason())
		require.Equal(t, "token_replayed", r.send(second).reason())
		tokens, _, err := r.srv.claims.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, tokens)
	})
}
