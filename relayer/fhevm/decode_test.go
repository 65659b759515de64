package fhevm

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
)

const (
	hex32  = "000102030405060708090a0b0c0d0e0f1011121314150000000000aa36a70100"
	addr1  = "0x1111111111111111111111111111111111111111"
	addr2  = "0x2222222222222222222222222222222222222222"
	addr3  = "0x3333333333333333333333333333333333333333"
	nowSec = 1_800_000_000
)

var (
	sig65   = strings.Repeat("ab", 65)
	options = Options{Now: time.Unix(nowSec, 0)}

	// bodies holds one valid body per endpoint.
	bodies = map[Endpoint]string{
		EndpointInputProof: `{"contractChainId":"11155111","contractAddress":"` + addr1 + `","userAddress":"` + addr2 + `",
			"ciphertextWithInputVerification":"0001ff","extraData":"0x00"}`,
		EndpointPublicDecrypt: `{"ciphertextHandles":["0x` + hex32 + `"],"extraData":"0x00"}`,
		EndpointUserDecrypt: `{"handleContractPairs":[{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}],
			"requestValidity":{"startTimestamp":"1700000000","durationDays":"10"},"contractsChainId":"11155111",
			"contractAddresses":["` + addr1 + `","` + addr3 + `"],"userAddress":"` + addr2 + `","signature":"` + sig65 + `","publicKey":"0707","extraData":"0x00"}`,
		EndpointDelegatedUserDecrypt: `{"handleContractPairs":[{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}],
			"contractsChainId":"11155111","contractAddresses":["` + addr1 + `"],"delegatorAddress":"` + addr2 + `","delegateAddress":"` + addr3 + `",
			"startTimestamp":"1700000000","durationDays":"10","signature":"` + sig65 + `","publicKey":"0707","extraData":"0x00"}`,
		EndpointUserDecryptV3: `{"attestationType":"eip712-unified-user-decrypt-v1","signature":"0x` + sig65 + `","attestedPayload":{"version":"2.0","type":"user_decryption",
			"handles":[{"ctHandle":"0x` + hex32 + `","contractAddress":"` + addr1 + `","ownerAddress":"` + addr2 + `"}],"userAddress":"` + addr2 + `","allowedContracts":["` + addr1 + `"],
			"requestValidity":{"startTimestamp":"1700000000","durationSeconds":"200000000"},"publicKey":"0x0707","extraData":"0x00"}}`,
	}
)

// edited replaces the one occurrence of old in the endpoint's valid body.
func edited(tb testing.TB, e Endpoint, old, new string) []byte {
	tb.Helper()
	require.Equal(tb, 1, strings.Count(bodies[e], old), "%q in the body of %s", old, e)
	return []byte(strings.Replace(bodies[e], old, new, 1))
}

func refusal(tb testing.TB, e Endpoint, body []byte, o Options) *Error {
	tb.Helper()
	r, err := Decode(e, body, o)
	require.Nil(tb, r)
	var answer *Error
	require.ErrorAs(tb, err, &answer)
	return answer
}

func TestDecodeValid(t *testing.T) {
	t.Parallel()
	handle := Handle(common.FromHex(hex32))
	a1, a2, a3 := common.HexToAddress(addr1), common.HexToAddress(addr2), common.HexToAddress(addr3)
	sig, key, extra := common.FromHex(sig65), []byte{7, 7}, []byte{0}
	for e, want := range map[Endpoint]Request{
		EndpointInputProof:    &InputProof{11155111, a1, a2, []byte{0, 1, 255}, extra},
		EndpointPublicDecrypt: &PublicDecrypt{[]Handle{handle}, extra},
		EndpointUserDecrypt: &UserDecrypt{[]HandleContract{{handle, a1}}, 1700000000, 10, 11155111,
			[]common.Address{a1, a3}, a2, sig, key, extra},
		EndpointDelegatedUserDecrypt: &DelegatedUserDecrypt{[]HandleContract{{handle, a1}}, 1700000000, 10, 11155111,
			[]common.Address{a1}, a2, a3, sig, key, extra},
		EndpointUserDecryptV3: &UnifiedUserDecrypt{[]HandleOwner{{handle, a1, a2}}, a2, []common.Address{a1}, 1700000000, 200000000, key, sig, extra},
	} {
		got, err := Decode(e, []byte(bodies[e]), options)
		require.NoError(t, err, e)
		require.Equal(t, want, got)
		require.Equal(t, e.Kind(), got.Kind())
	}
	require.Len(t, Endpoints, len(bodies))
	require.Empty(t, Endpoint("/v2/other").Kind())
	require.Equal(t, ErrPathNotFound(), refusal(t, "/v2/other", []byte("{}"), options))
}

// The vectors' requests, completed by what the hash leaves out, through the decoder.
func TestDecodeVectors(t *testing.T) {
	t.Parallel()
	for _, v := range loadJobVectors(t) {
		inner := strings.TrimSuffix(strings.TrimSpace(string(v.Request)), "}")
		var e Endpoint
		var body string
		switch v.Kind {
		case VariantInputProof:
			e, body = EndpointInputProof, inner+"}"
		case VariantPublicDecrypt:
			e, body = EndpointPublicDecrypt, inner+"}"
		case VariantLegacyDirect:
			e, body = EndpointUserDecrypt, inner+`,"requestValidity":{"startTimestamp":"1","durationDays":"1"},"signature":"`+sig65+`"}`
		case VariantLegacyDelegated:
			e, body = EndpointDelegatedUserDecrypt, inner+`,"startTimestamp":"1","durationDays":"1","signature":"`+sig65+`"}`
		case VariantUnified:
			e, body = EndpointUserDecryptV3, `{"attestationType":"eip712-unified-user-decrypt-v1","signature":"","attestedPayload":`+inner+
				`,"version":"2.0","type":"user_decryption","requestValidity":{"startTimestamp":"1","durationSeconds":"18446744073709551615"}}}`
		}
		r, err := Decode(e, []byte(body), options)
		require.NoError(t, err, v.Kind)
		require.Equal(t, v.JobID, r.JobID().String(), v.Kind)
	}
}

// accepts lists edits that leave a body valid.
func TestDecodeAccepts(t *testing.T) {
	t.Parallel()
	v1 := "0x0107" + strings.Repeat("00", 31)
	v2 := "0x0207" + strings.Repeat("00", 31) + "08" + strings.Repeat("ff", 31)
	for _, c := range []struct {
		e        Endpoint
		old, new string
	}{
		{EndpointInputProof, `"11155111"`, `11155111`},
		{EndpointInputProof, `"11155111"`, `"0xAa36a7"`},
		{EndpointInputProof, `"11155111"`, `18446744073709551615`},
		{EndpointInputProof, `{"contract`, `{"later":{"a":[null,{}]},"contract`},
		{EndpointInputProof, `0001ff`, `0001FF`},
		{EndpointInputProof, addr1, `0x` + strings.Repeat("aB", 20)},
		{EndpointInputProof, `"extraData":"0x00"`, `"extraD\u0061ta":"\u0030x00"`},
		{EndpointPublicDecrypt, `"0x00"`, `"` + v1 + `"`},
		{EndpointPublicDecrypt, `"0x00"`, `"` + v2 + `"`},
		{EndpointUserDecrypt, `"1700000000"`, `"0x10"`},
		{EndpointUserDecrypt, `"1700000000"`, fmt.Sprintf(`"%d"`, nowSec)},
		{EndpointUserDecrypt, `"1700000000"`, `"` + strings.Repeat("0", 200) + `1"`},
		{EndpointUserDecrypt, `"durationDays":"10"`, `"durationDays":"4294967295","x":0`},
		{EndpointUserDecrypt, `"11155111"`, `11155111`},
		{EndpointDelegatedUserDecrypt, `"10"`, `"0"`},
		{EndpointUserDecryptV3, `["` + addr1 + `"]`, `[]`},
		{EndpointUserDecryptV3, `"0x` + sig65 + `"`, `""`},
		{EndpointUserDecryptV3, `"0x` + sig65 + `"`, `"0x"`},
		{EndpointUserDecryptV3, `"ctHandle"`, `"more":1,"ctHandle"`},
		{EndpointUserDecryptV3, `"startTimestamp"`, `"more":1,"startTimestamp"`},
		{EndpointUserDecryptV3, `"200000000"`, `"18446744073709551615"`},
		{EndpointUserDecryptV3, `"200000000"`, fmt.Sprintf(`"%d"`, nowSec-1700000000+1)},
	} {
		_, err := Decode(c.e, edited(t, c.e, c.old, c.new), options)
		require.NoError(t, err, "%s: %s → %s", c.e, c.old, c.new)
	}
}

// Each rule of relayer reference §1.4, with the issue it gives and the order of prefix, length, alphabet, value.
func TestDecodeRules(t *testing.T) {
	t.Parallel()
	const (
		p, pub, u, d, v3 = EndpointInputProof, EndpointPublicDecrypt, EndpointUserDecrypt, EndpointDelegatedUserDecrypt, EndpointUserDecryptV3
		extraText        = issueExtraData
	)
	zeros := strings.Repeat("00", 31)
	for _, c := range []struct {
		e            Endpoint
		old, new     string
		field, issue string
	}{
		{p, `"11155111"`, `""`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `"0x"`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `"0x+1"`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `"+1"`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `"aa36a7"`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `"18446744073709551616"`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `18446744073709551616`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `1.5`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `-1`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, `"11155111"`, `1e3`, "contractChainId", "Must be decimal number or 0x hex string"},
		{p, addr1, `1111`, "contractAddress", "Must start with 0x"},
		{p, addr1, ``, "contractAddress", "Must start with 0x"},
		{p, addr1, `0xzz`, "contractAddress", "Must be 42 characters long"},
		{p, addr1, addr1 + `1`, "contractAddress", "Must be 42 characters long"},
		{p, addr1, `0x` + strings.Repeat("g", 40), "contractAddress", "Contains invalid hex characters"},
		{p, addr1, `0x` + strings.Repeat("é", 20), "contractAddress", "Contains invalid hex characters"},
		{p, addr2, `0X` + addr2[2:], "userAddress", "Must start with 0x"},
		{p, `0001ff`, `0x01`, "ciphertextWithInputVerification", "Must not start with 0x"},
		{p, `0001ff`, ``, "ciphertextWithInputVerification", "Must not be empty"},
		{p, `0001ff`, `001`, "ciphertextWithInputVerification", "Invalid hex string"},
		{p, `0001ff`, `0g`, "ciphertextWithInputVerification", "Invalid hex string"},
		{p, `"0x00"`, `"0x"`, "extraData", "Must be 0x00"},
		{p, `"0x00"`, `"0x0107` + zeros + `"`, "extraData", "Must be 0x00"},

		{pub, `["0x` + hex32 + `"]`, `[]`, "ciphertextHandles", "Must not be empty"},
		{pub, `0x` + hex32, hex32, "ciphertextHandles[0]", "Must start with 0x"},
		{pub, `0x` + hex32, `0x` + hex32[2:], "ciphertextHandles[0]", "Must be 64 characters long"},
		{pub, `0x` + hex32, `0x` + hex32 + "00", "ciphertextHandles[0]", "Must be 64 characters long"},
		{pub, `0x` + hex32, `0x` + hex32[1:] + "g", "ciphertextHandles[0]", "Invalid hex string"},
		{pub, `"0x00"`, `""`, "extraData", extraText},
		{pub, `"0x00"`, `"00"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0000"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0106` + zeros + `"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0107` + zeros + `00"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0107` + zeros[2:] + `0g"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0207` + zeros + `"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0207` + zeros + "07" + zeros + `"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0206` + zeros + "08" + zeros + `"`, "extraData", extraText},
		{pub, `"0x00"`, `"0x0307` + zeros + `"`, "extraData", extraText},

		{u, `0x` + hex32, hex32, "handleContractPairs[0].handle", "Must start with 0x"},
		{u, `0x` + hex32, "0x" + hex32[1:], "handleContractPairs[0].handle", "Must be 64 characters long"},
		{u, `"contractAddress":"` + addr1, `"contractAddress":"` + addr1[:41], "handleContractPairs[0].contractAddress", "Must be 42 characters long"},
		{u, `[{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}]`, `[]`, "handleContractPairs", "Must not be empty"},
		{u, `["` + addr1 + `","` + addr3 + `"]`, `[]`, "contractAddresses", "Must not be empty"},
		{u, addr3, addr3[2:], "contractAddresses[1]", "Must start with 0x"},
		{u, `"1700000000"`, `""`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"-1"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"0x"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"12ab"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"1_000"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"0x1` + strings.Repeat("0", 64) + `"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"` + strings.Repeat("9", 78) + `"`, "requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{u, `"1700000000"`, `"` + strings.Repeat("9", 77) + `"`, "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, `"0x` + strings.Repeat("f", 64) + `"`, "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, `"18446744073709551616"`, "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, `"18446744073709551617"`, "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"1700000000"`, fmt.Sprintf(`"%d"`, nowSec+1), "requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{u, `"durationDays":"10"`, `"durationDays":"4294967296"`, "requestValidity.durationDays", "Value must be a valid u32 number"},
		{u, `"durationDays":"10"`, `"durationDays":"0x10"`, "requestValidity.durationDays", "Value must be a valid u32 number"},
		{u, `"durationDays":"10"`, `"durationDays":"+1"`, "requestValidity.durationDays", "Value must be a valid u32 number"},
		{u, `"durationDays":"10"`, `"durationDays":""`, "requestValidity.durationDays", "Value must be a valid u32 number"},
		{u, `"11155111"`, `"x"`, "contractsChainId", "Must be decimal number or 0x hex string"},
		{u, `"userAddress":"` + addr2, `"userAddress":"`, "userAddress", "Must start with 0x"},
		{u, sig65, "0x" + sig65[2:], "signature", "Must not start with 0x"},
		{u, sig65, sig65 + "00", "signature", "Must be 130 characters long"},
		{u, sig65, "", "signature", "Must be 130 characters long"},
		{u, sig65, sig65[1:] + "x", "signature", "Invalid hex string"},
		{u, `"0707"`, `""`, "publicKey", "Must not be empty"},
		{u, `"0707"`, `"0"`, "publicKey", "Invalid hex string"},
		{u, `"0707"`, `"0x07"`, "publicKey", "Must not start with 0x"},
		{u, `"0x00"`, `"0x01"`, "extraData", extraText},

		{d, `0x` + hex32, hex32, "handleContractPairs[0].handle", "Must start with 0x"},
		{d, `["` + addr1 + `"]`, `["0x"]`, "contractAddresses[0]", "Must be 42 characters long"},
		{d, addr2, "x", "delegatorAddress", "Must start with 0x"},
		{d, addr3, "x", "delegateAddress", "Must start with 0x"},
		{d, `"1700000000"`, `"18446744073709551616"`, "startTimestamp", "Timestamp must not be in the future"},
		{d, `"10"`, `"ten"`, "durationDays", "Value must be a valid u32 number"},
		{d, `"11155111"`, `"-1"`, "contractsChainId", "Must be decimal number or 0x hex string"},
		{d, sig65, sig65[2:], "signature", "Must be 130 characters long"},
		{d, `"0707"`, `"070"`, "publicKey", "Invalid hex string"},
		{d, `"0x00"`, `"0x"`, "extraData", extraText},

		{v3, attestationUnified, `solana`, "attestationType", "Unsupported attestationType; expected one of: [eip712-unified-user-decrypt-v1]"},
		{v3, `"2.0"`, `"1.0"`, "attestedPayload.version", `Unsupported version; expected "2.0"`},
		{v3, `"user_decryption"`, `""`, "attestedPayload.type", `Unsupported payload type; expected "user_decryption"`},
		{v3, `"0x` + sig65 + `"`, `"` + sig65 + `"`, "signature", "Must start with 0x"},
		{v3, `"0x` + sig65 + `"`, `"0x1"`, "signature", "Invalid hex string"},
		{v3, `[{"ctHandle":"0x` + hex32 + `","contractAddress":"` + addr1 + `","ownerAddress":"` + addr2 + `"}]`, `[]`, "attestedPayload.handles", "Must not be empty"},
		{v3, `0x` + hex32, hex32, "attestedPayload.handles[0].ctHandle", "Must start with 0x"},
		{v3, `"contractAddress":"` + addr1, `"contractAddress":"0x`, "attestedPayload.handles[0].contractAddress", "Must be 42 characters long"},
		{v3, `"ownerAddress":"` + addr2, `"ownerAddress":"0x`, "attestedPayload.handles[0].ownerAddress", "Must be 42 characters long"},
		{v3, `"userAddress":"` + addr2, `"userAddress":"0x` + strings.Repeat("-", 40), "attestedPayload.userAddress", "Contains invalid hex characters"},
		{v3, `["` + addr1 + `"]`, `[""]`, "attestedPayload.allowedContracts[0]", "Must start with 0x"},
		{v3, `"0x0707"`, `"0707"`, "attestedPayload.publicKey", "Must start with 0x"},
		{v3, `"0x0707"`, `"0x"`, "attestedPayload.publicKey", "Must not be empty"},
		{v3, `"0x0707"`, `"0x070"`, "attestedPayload.publicKey", "Invalid hex string"},
		{v3, `"0x00"`, `"0x02"`, "attestedPayload.extraData", extraText},
		{v3, `"1700000000"`, `"0x10"`, "attestedPayload.requestValidity.startTimestamp", "Value must be a valid u64 number"},
		{v3, `"1700000000"`, `"x"`, "attestedPayload.requestValidity.startTimestamp", "Value must be a valid U256 number"},
		{v3, `"1700000000"`, `"18446744073709551616"`, "attestedPayload.requestValidity.startTimestamp", "Timestamp must not be in the future"},
		{v3, `"200000000"`, `"18446744073709551616"`, "attestedPayload.requestValidity.durationSeconds", "Value must be a valid u64 number"},
		{v3, `"200000000"`, `"0x1"`, "attestedPayload.requestValidity.durationSeconds", "Value must be a valid u64 number"},
		{v3, `"200000000"`, `"0"`, "attestedPayload.requestValidity", "requestValidity window has already expired"},
		{v3, `"200000000"`, fmt.Sprintf(`"%d"`, nowSec-1700000000), "attestedPayload.requestValidity", "requestValidity window has already expired"},
	} {
		got := refusal(t, c.e, edited(t, c.e, c.old, c.new), options)
		require.Equal(t, &Error{
			Status: http.StatusBadRequest, Label: LabelValidationFailed, Message: "Validation failed for 1 field in the request: " + c.field,
			Details: []Detail{{c.field, c.issue}},
		}, got, "%s: %s → %s", c.e, c.old, c.new)
	}
}

// The table says which issue each wrong JSON type gives.
func TestDecodeTypes(t *testing.T) {
	t.Parallel()
	malformed := &Error{Status: 400, Label: LabelMalformedJSON, Message: "Invalid JSON format"}
	wrong := func(issue string) *Error {
		return &Error{Status: 400, Label: LabelValidationFailed, Message: "Validation failed for 1 field in the request: request", Details: []Detail{{"request", issue}}}
	}
	unknown := func(field string) *Error {
		return &Error{Status: 400, Label: LabelValidationFailed, Message: "Validation failed for 1 field in the request: " + field, Details: []Detail{{field, "Unknown field"}}}
	}
	const p, pub, u, v3 = EndpointInputProof, EndpointPublicDecrypt, EndpointUserDecrypt, EndpointUserDecryptV3
	for _, c := range []struct {
		e        Endpoint
		old, new string
		want     *Error
	}{
		{p, `"11155111"`, `null`, malformed},
		{p, `"11155111"`, `true`, malformed},
		{p, `"11155111"`, `{}`, malformed},
		{u, `"11155111"`, `[1]`, malformed},
		{p, `"11155111"`, `01`, malformed},
		{p, `"11155111"`, `"1`, malformed},
		{p, `"11155111"`, "\"\xff\"", malformed},
		{p, `"11155111"`, `"\ud800"`, malformed},
		{p, `"contractAddress"`, `"userAddress":"","contractAddress"`, malformed},
		{p, `{"contract`, `{"later":{"a":1,"a":2},"contract`, malformed},
		{p, `"0x00"}`, `"0x00"}{}`, malformed},
		{p, `"0x00"}`, `"0x00"`, malformed},
		{p, `"0001ff"`, `1`, wrong("Value must be a string")},
		{p, `"0001ff"`, `null`, wrong("Value must be a string")},
		{u, `"1700000000"`, `1700000000`, wrong("Value must be a string")},
		{u, `"durationDays":"10"`, `"durationDays":10`, wrong("Value must be a string")},
		{pub, `["0x` + hex32 + `"]`, `"0x` + hex32 + `"`, wrong("Invalid data type")},
		{pub, `["0x` + hex32 + `"]`, `null`, wrong("Invalid data type")},
		{pub, `"0x` + hex32 + `"`, `[]`, wrong("Value must be a string")},
		{u, `{"startTimestamp":"1700000000","durationDays":"10"}`, `[]`, wrong("Invalid data type")},
		{u, `{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}`, `1`, wrong("Invalid data type")},
		{v3, `{"attestationType"`, `{"x":1,"attestationType"`, unknown("x")},
		{v3, `{"version"`, `{"Version":"2.0","version"`, unknown("attestedPayload.Version")},
		{v3, `{"attestationType"`, `{"` + strings.Repeat("é", 500) + `":1,"attestationType"`, unknown(strings.Repeat("é", 32) + "…")},
		{v3, `{"attestationType"`, `{"x":1,"signature":2,"attestationType"`, malformed}, // signature is there twice
		// What is wrong with types comes before what is missing and before every rule.
		{v3, `"signature":"0x` + sig65 + `",`, `"x":"",`, unknown("x")},
		{p, `"` + addr1 + `"`, `"","extraData2":0,"userAddress3":[]`, &Error{Status: 400, Label: LabelValidationFailed, Message: "Validation failed for 1 field in the request: contractAddress", Details: []Detail{{"contractAddress", "Must start with 0x"}}}},
	} {
		require.Equal(t, c.want, refusal(t, c.e, edited(t, c.e, c.old, c.new), options), "%s: %s → %s", c.e, c.old, c.new)
	}
	for _, e := range Endpoints {
		for body, want := range map[string]*Error{
			"": malformed, " ": malformed, "{": malformed, "nul": malformed, "{}{}": malformed, `{"a"}`: malformed, "\xef\xbb\xbf{}": malformed,
			strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19): malformed,
			"null":                              wrong("Invalid data type"),
			"[]":                                wrong("Invalid data type"),
			`"x"`:                               wrong("Invalid data type"),
			"1":                                 wrong("Invalid data type"),
			strings.Repeat(" ", MaxBodyBytes+1): {Status: 413, Label: LabelRequestError, Message: "Request body is larger than 1048576 bytes"},
		} {
			require.Equal(t, want, refusal(t, e, []byte(body), options), "%s: %.40q", e, body)
		}
	}
	padded := bodies[pub] + strings.Repeat(" ", MaxBodyBytes-len(bodies[pub]))
	_, err := Decode(pub, []byte(padded), options)
	require.NoError(t, err, "a body of exactly the limit")
}

func TestDecodeMissing(t *testing.T) {
	t.Parallel()
	missing := func(message string, fields ...string) *Error {
		e := &Error{Status: 400, Label: LabelMissingFields, Message: message}
		for _, f := range fields {
			e.Details = append(e.Details, Detail{f, "Required but missing"})
		}
		return e
	}
	for _, c := range []struct {
		e    Endpoint
		body string
		want *Error
	}{
		{EndpointInputProof, `{}`, missing("Missing 5 required fields in the request: contractChainId, contractAddress, userAddress, ciphertextWithInputVerification, extraData",
			"contractChainId", "contractAddress", "userAddress", "ciphertextWithInputVerification", "extraData")},
		{EndpointPublicDecrypt, `{"ciphertextHandles":[]}`, missing("Missing 1 required field in the request: extraData", "extraData")},
		{EndpointPublicDecrypt, `{"extraData":""}`, missing("Missing 1 required field in the request: ciphertextHandles", "ciphertextHandles")},
		{EndpointUserDecrypt, `{"requestValidity":{},"handleContractPairs":[{},{"handle":""}],"signature":"","publicKey":"","extraData":"","contractsChainId":1,"contractAddresses":[]}`,
			missing("Missing 6 required fields in the request: handleContractPairs[0].handle, handleContractPairs[0].contractAddress, handleContractPairs[1].contractAddress, requestValidity.startTimestamp, requestValidity.durationDays, userAddress",
				"handleContractPairs[0].handle", "handleContractPairs[0].contractAddress", "handleContractPairs[1].contractAddress", "requestValidity.startTimestamp", "requestValidity.durationDays", "userAddress")},
		{EndpointUserDecrypt, `{}`, missing("Missing 8 required fields in the request: handleContractPairs, requestValidity, contractsChainId, contractAddresses, userAddress, signature, publicKey, extraData",
			"handleContractPairs", "requestValidity", "contractsChainId", "contractAddresses", "userAddress", "signature", "publicKey", "extraData")},
		{EndpointDelegatedUserDecrypt, `{}`, missing("Missing 10 required fields in the request: handleContractPairs, contractsChainId, contractAddresses, delegatorAddress, delegateAddress, startTimestamp, durationDays, signature, publicKey, extraData",
			"handleContractPairs", "contractsChainId", "contractAddresses", "delegatorAddress", "delegateAddress", "startTimestamp", "durationDays", "signature", "publicKey", "extraData")},
		{EndpointUserDecryptV3, `{}`, missing("Missing 3 required fields in the request: attestationType, signature, attestedPayload", "attestationType", "signature", "attestedPayload")},
		{EndpointUserDecryptV3, `{"attestedPayload":{"handles":[{"ctHandle":"","contractAddress":""}],"requestValidity":{"startTimestamp":""}},"attestationType":"","signature":""}`,
			missing("Missing 8 required fields in the request: attestedPayload.version, attestedPayload.type, attestedPayload.handles[0].ownerAddress, attestedPayload.userAddress, attestedPayload.allowedContracts, attestedPayload.requestValidity.durationSeconds, attestedPayload.publicKey, attestedPayload.extraData",
				"attestedPayload.version", "attestedPayload.type", "attestedPayload.handles[0].ownerAddress", "attestedPayload.userAddress", "attestedPayload.allowedContracts", "attestedPayload.requestValidity.durationSeconds", "attestedPayload.publicKey", "attestedPayload.extraData")},
	} {
		require.Equal(t, c.want, refusal(t, c.e, []byte(c.body), options), c.body)
	}
}

// Every field that breaks a rule has one detail, in the order of the table and not of the body.
func TestDecodeSeveralDetails(t *testing.T) {
	t.Parallel()
	got := refusal(t, EndpointUserDecrypt, []byte(`{"extraData":"","publicKey":"0x","signature":"","userAddress":"1","contractAddresses":["0x","`+addr1+`",""],
		"contractsChainId":"","requestValidity":{"durationDays":"","startTimestamp":""},"handleContractPairs":[{"contractAddress":"","handle":"0x"}]}`), options)
	require.Equal(t, &Error{
		Status: 400, Label: LabelValidationFailed,
		Message: "Validation failed for 11 fields in the request: handleContractPairs[0].handle, handleContractPairs[0].contractAddress, requestValidity.startTimestamp, requestValidity.durationDays, contractsChainId, contractAddresses[0], contractAddresses[2], userAddress, signature, publicKey, extraData",
		Details: []Detail{
			{"handleContractPairs[0].handle", issueLength64}, {"handleContractPairs[0].contractAddress", issuePrefix},
			{"requestValidity.startTimestamp", issueU256}, {"requestValidity.durationDays", issueU32}, {"contractsChainId", issueChainID},
			{"contractAddresses[0]", issueLength42}, {"contractAddresses[2]", issuePrefix}, {"userAddress", issuePrefix},
			{"signature", issueLength130}, {"publicKey", issueNoPrefix}, {"extraData", issueExtraData},
		},
	}, got)
	require.Contains(t, got.Error(), "validation_failed: Validation failed for 11 fields")
	require.Contains(t, got.Error(), "; publicKey: Must not start with 0x")
}

// Long lists of rubbish get a short answer.
func TestDecodeBounds(t *testing.T) {
	t.Parallel()
	many := func(entry string) []byte {
		n := (MaxBodyBytes - 100) / (len(entry) + 1)
		return []byte(`{"ciphertextHandles":[` + strings.Repeat(entry+",", n-1) + entry + `],"extraData":"0x00"}`)
	}
	got := refusal(t, EndpointPublicDecrypt, many(`""`), options)
	require.Len(t, got.Details, maxDetails)
	require.Equal(t, Detail{"ciphertextHandles", "Must not have more than 32768 entries"}, got.Details[0])
	require.Less(t, len(got.Message), 4000)

	body := strings.ReplaceAll(string(many(`{}`)), "ciphertextHandles", "handleContractPairs")
	got = refusal(t, EndpointUserDecrypt, []byte(body), options)
	require.Equal(t, LabelMissingFields, got.Label)
	require.Len(t, got.Details, maxDetails)

	full := many(`"0x` + hex32 + `"`)
	r, err := Decode(EndpointPublicDecrypt, full, options)
	require.NoError(t, err, "a body full of valid handles is below the bound")
	require.Less(t, len(r.Handles()), maxEntries)

	limited := options
	limited.MaxHandles, limited.MaxContracts = 1, 1
	require.Equal(t, []Detail{{"ciphertextHandles", "Must not have more than 1 entries"}}, refusal(t, EndpointPublicDecrypt, full, limited).Details)
	require.Equal(t, []Detail{{"contractAddresses", "Must not have more than 1 entries"}}, refusal(t, EndpointUserDecrypt, []byte(bodies[EndpointUserDecrypt]), limited).Details)
	_, err = Decode(EndpointUserDecryptV3, []byte(bodies[EndpointUserDecryptV3]), limited)
	require.NoError(t, err)
}

func TestCheckHostChains(t *testing.T) {
	t.Parallel()
	served := func(id uint64) bool { return id == 1 || id == 2 }
	handle := func(id byte) Handle { return Handle{29: id} }
	on := func(v Variant, ids ...byte) Request {
		var pairs []HandleContract
		var owned []HandleOwner
		var handles []Handle
		for _, id := range ids {
			handles, pairs, owned = append(handles, handle(id)), append(pairs, HandleContract{Handle: handle(id)}), append(owned, HandleOwner{Handle: handle(id)})
		}
		switch v {
		case VariantPublicDecrypt:
			return &PublicDecrypt{CiphertextHandles: handles}
		case VariantLegacyDirect:
			return &UserDecrypt{Pairs: pairs}
		case VariantLegacyDelegated:
			return &DelegatedUserDecrypt{Pairs: pairs}
		}
		return &UnifiedUserDecrypt{Entries: owned}
	}
	require.NoError(t, CheckHostChains(&InputProof{ContractChainID: 99}, served))
	for v, field := range map[Variant]string{
		VariantPublicDecrypt:   "ciphertextHandles[1]",
		VariantLegacyDirect:    "handleContractPairs[1].handle",
		VariantLegacyDelegated: "handleContractPairs[1].handle",
		VariantUnified:         "attestedPayload.handles[1].ctHandle",
	} {
		require.NoError(t, CheckHostChains(on(v, 1, 1), served))
		var answer *Error
		require.ErrorAs(t, CheckHostChains(on(v, 1, 9, 1), served), &answer)
		const message = "Host chain ID 9 is not supported by this relayer"
		require.Equal(t, []any{400, LabelHostChainNotSupported, message}, []any{answer.Status, answer.Label, answer.Message})
		require.Empty(t, answer.Details)
		sdk := answer.ForSDK()
		require.Equal(t, []any{400, LabelValidationFailed, message}, []any{sdk.Status, sdk.Label, sdk.Message})
		require.Equal(t, []Detail{{field, message}}, sdk.Details)
		require.Equal(t, LabelHostChainNotSupported, answer.Label, "the error itself stays")

		err := CheckHostChains(on(v, 1, 2), served)
		if v != VariantUnified {
			require.NoError(t, err, "handles of several chains")
			continue
		}
		require.ErrorAs(t, err, &answer)
		require.Equal(t, []Detail{{field, issueOneHostChain}}, answer.Details)
	}
}

// One fuzz target per decoder: no body makes it panic, a refusal is a complete answer, and what was accepted holds what the
// rules promise.

func FuzzDecodeInputProof(f *testing.F)    { fuzzEndpoint(f, EndpointInputProof) }
func FuzzDecodePublicDecrypt(f *testing.F) { fuzzEndpoint(f, EndpointPublicDecrypt) }
func FuzzDecodeUserDecrypt(f *testing.F)   { fuzzEndpoint(f, EndpointUserDecrypt) }
func FuzzDecodeDelegated(f *testing.F)     { fuzzEndpoint(f, EndpointDelegatedUserDecrypt) }
func FuzzDecodeUnified(f *testing.F)       { fuzzEndpoint(f, EndpointUserDecryptV3) }

func fuzzEndpoint(f *testing.F, e Endpoint) {
	f.Add([]byte(bodies[e]))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, body []byte) { checkDecoded(t, e, body) })
}

func checkDecoded(t *testing.T, e Endpoint, body []byte) {
	r, err := Decode(e, body, options)
	if err == nil {
		require.Equal(t, e.Kind(), r.Kind())
		require.NotEqual(t, JobID{}, r.JobID())
		require.Equal(t, r.Kind() == KindInputProof, len(r.Handles()) == 0)
		_ = CheckHostChains(r, func(uint64) bool { return true })
		return
	}
	require.Nil(t, r)
	var answer *Error
	require.ErrorAs(t, err, &answer)
	require.GreaterOrEqual(t, answer.Status, 400)
	require.NotEmpty(t, answer.Message)
	withDetails := answer.Label == LabelMissingFields || answer.Label == LabelValidationFailed
	require.Equal(t, withDetails, len(answer.Details) > 0)
	seen := make([]string, 0, len(answer.Details))
	for _, d := range answer.Details {
		require.NotContains(t, seen, d.Field, "one detail per field")
		require.NotEmpty(t, d.Issue)
		seen = append(seen, d.Field)
	}
}
