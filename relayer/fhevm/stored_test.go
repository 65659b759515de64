package fhevm

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Generators of every kind of request.
var (
	genHandle  = rapid.Custom(func(t *rapid.T) (h Handle) { copy(h[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "h")); return h })
	genAddress = rapid.Custom(func(t *rapid.T) (a common.Address) {
		copy(a[:], rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "a"))
		return a
	})
	genBytes = rapid.SliceOf(rapid.Byte())
	genSome  = rapid.SliceOfN(rapid.Byte(), 1, 80)
	genPairs = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) HandleContract {
		return HandleContract{genHandle.Draw(t, "h"), genAddress.Draw(t, "a")}
	}), 1, 5)
	genContract = rapid.SliceOfN(genAddress, 1, 4)
	genRequest  = rapid.Custom(func(t *rapid.T) Request {
		number, days := rapid.Uint64().Draw(t, "number"), rapid.Uint32().Draw(t, "days")
		start, extra, some := rapid.Uint64().Draw(t, "start"), genBytes.Draw(t, "extra"), genSome.Draw(t, "some")
		sig, a, b := genBytes.Draw(t, "signature"), genAddress.Draw(t, "a"), genAddress.Draw(t, "b")
		switch rapid.IntRange(0, 4).Draw(t, "variant") {
		case 0:
			return &InputProof{number, a, b, some, extra}
		case 1:
			return &PublicDecrypt{rapid.SliceOfN(genHandle, 1, 5).Draw(t, "handles"), extra}
		case 2:
			return &UserDecrypt{genPairs.Draw(t, "pairs"), start, days, number, genContract.Draw(t, "contracts"), a, sig, some, extra}
		case 3:
			return &DelegatedUserDecrypt{genPairs.Draw(t, "pairs"), start, days, number, genContract.Draw(t, "contracts"), a, b, sig, some, extra}
		}
		entry := rapid.Custom(func(t *rapid.T) HandleOwner {
			return HandleOwner{genHandle.Draw(t, "h"), genAddress.Draw(t, "c"), genAddress.Draw(t, "o")}
		})
		return &UnifiedUserDecrypt{rapid.SliceOfN(entry, 1, 5).Draw(t, "entries"), a, rapid.SliceOf(genAddress).Draw(t, "allowed"), start, number, some, sig, extra}
	})
)

// asJSONB rewrites a document as a jsonb column gives it back: members by length and name, a space after each colon and comma.
func asJSONB(tb require.TestingT, data []byte) []byte {
	switch data = bytes.TrimSpace(data); data[0] {
	case '{':
		var members map[string]jsontext.Value
		require.NoError(tb, json.Unmarshal(data, &members))
		var out []string
		for _, name := range slices.SortedFunc(maps.Keys(members), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) {
			out = append(out, `"`+name+`": `+string(asJSONB(tb, members[name])))
		}
		return []byte("{" + strings.Join(out, ", ") + "}")
	case '[':
		var entries []jsontext.Value
		require.NoError(tb, json.Unmarshal(data, &entries))
		out := make([][]byte, len(entries))
		for i, e := range entries {
			out[i] = asJSONB(tb, e)
		}
		return slices.Concat([]byte("["), bytes.Join(out, []byte(", ")), []byte("]"))
	}
	return data
}

func TestStoredRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := genRequest.Draw(t, "request")
		data, err := EncodeStored(r)
		require.NoError(t, err)
		for _, stored := range [][]byte{data, asJSONB(t, data)} {
			got, err := DecodeStored(r.Kind(), r.Variant().ReqType(), stored)
			require.NoError(t, err, "%s", stored)
			require.Equal(t, r, got)
			require.Equal(t, r.Calldata(), got.Calldata())
			require.Equal(t, r.JobID(), got.JobID())
		}
	})
}

// What was posted is stored in the reference's shapes (§2.3).
func TestStoredShapes(t *testing.T) {
	t.Parallel()
	sig := `"0x` + sig65 + `"`
	for e, want := range map[Endpoint]string{
		EndpointInputProof: `{"contract_chain_id":11155111,"contract_address":"` + addr1 + `","user_address":"` + addr2 + `",` +
			`"ciphetext_with_zk_proof":"0x0001ff","extra_data":"0x00"}`,
		EndpointPublicDecrypt: `{"ct_handles":["0x` + hex32 + `"],"extra_data":"0x00"}`,
		EndpointUserDecrypt: `{"kind":"legacy_direct","ct_handle_contract_pairs":[{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}],` +
			`"request_validity":{"startTimestamp":"0x6553f100","durationDays":"0xa"},"contracts_chain_id":11155111,"contract_addresses":["` + addr1 + `","` + addr3 + `"],` +
			`"user_address":"` + addr2 + `","signature":` + sig + `,"public_key":"0x0707","extra_data":"0x00"}`,
		EndpointDelegatedUserDecrypt: `{"kind":"legacy_delegated","ct_handle_contract_pairs":[{"handle":"0x` + hex32 + `","contractAddress":"` + addr1 + `"}],` +
			`"request_validity":{"startTimestamp":"0x6553f100","durationDays":"0xa"},"contracts_chain_id":11155111,"contract_addresses":["` + addr1 + `"],` +
			`"delegator_address":"` + addr2 + `","delegate_address":"` + addr3 + `","signature":` + sig + `,"public_key":"0x0707","extra_data":"0x00"}`,
		EndpointUserDecryptV3: `{"kind":"eip712_unified_v1","handles":[{"ctHandle":"0x` + hex32 + `","contractAddress":"` + addr1 + `","ownerAddress":"` + addr2 + `"}],` +
			`"request_validity":{"startTimestamp":"0x6553f100","durationSeconds":"0xbebc200"},"allowed_contracts":["` + addr1 + `"],"user_address":"` + addr2 + `",` +
			`"signature":` + sig + `,"public_key":"0x0707","extra_data":"0x00"}`,
	} {
		r, err := Decode(e, []byte(bodies[e]), options)
		require.NoError(t, err)
		data, err := EncodeStored(r)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
		got, err := DecodeStored(e.Kind(), r.Variant().ReqType(), data)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	untagged := strings.Replace(`{"kind":"legacy_direct","ct_handle_contract_pairs":[{"handle":"0x`+hex32+`","contractAddress":"`+addr1+`"}],
		"request_validity":{"startTimestamp":"0x1","durationDays":"0x1"},"contracts_chain_id":1,"contract_addresses":["`+addr1+`"],
		"user_address":"`+addr2+`","signature":"0x","public_key":"0x07","extra_data":"0x"}`, `"kind":"legacy_direct",`, "", 1)
	got, err := DecodeStored(KindUserDecrypt, "user_decrypt", []byte(untagged))
	require.NoError(t, err)
	require.Equal(t, VariantLegacyDirect, got.Variant())
}

func TestStoredRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k       Kind
		reqType string
		data    string
	}{
		{KindInputProof, "", ``},
		{KindInputProof, "", `{}`},
		{KindInputProof, "", `null`},
		{KindInputProof, "", `{"ciphetext_with_zk_proof":"00"}`},
		{KindPublicDecrypt, "", `{}`},
		{KindPublicDecrypt, "", `{"ct_handles":["0x00"],"extra_data":"0x00"}`},
		{KindUserDecrypt, "unified", `{}`},
		{KindUserDecrypt, "", `{"kind":"input_proof","public_key":"0x00"}`},
		{KindUserDecrypt, "unified", `{"kind":"legacy_direct","public_key":"0x00"}`},
		{KindUserDecrypt, "unified", `{"kind":"eip712_unified_v1","public_key":"0x00"}`},
		{KindUserDecrypt, "user_decrypt", `{"kind":"legacy_direct","public_key":"0x00"}`},
		{KindUserDecrypt, "delegated_user_decrypt", `{"kind":"legacy_delegated","public_key":"0x00","ct_handle_contract_pairs":[{}],"contract_addresses":["` + addr1 + `"],"request_validity":{"durationDays":"0x1"}}`},
		{KindUserDecrypt, "user_decrypt", `{"kind":"legacy_direct","user_address":"` + addr1 + `","public_key":"0x00","ct_handle_contract_pairs":[{}],"contract_addresses":["` + addr1 + `"],"request_validity":{"durationDays":"0x100000000"}}`},
		{"other", "", `{}`},
	} {
		_, err := DecodeStored(c.k, c.reqType, []byte(c.data))
		require.ErrorIs(t, err, ErrStored, "%s %s", c.k, c.data)
	}
	_, err := EncodeStored(nil)
	require.Error(t, err)
}

func TestStoredResults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOf(genBytes)
		var handles [][32]byte
		for _, h := range rapid.SliceOf(genHandle).Draw(t, "handles") {
			handles = append(handles, h)
		}
		ref := Reference(genHandle.Draw(t, "reference"))
		for k, r := range map[Kind]Result{
			KindInputProof:    ProofResult{true, append([][32]byte{}, handles...), list.Draw(t, "signatures")},
			KindPublicDecrypt: PublicResult{genBytes.Draw(t, "value"), list.Draw(t, "signatures"), genBytes.Draw(t, "extra")},
		} {
			data, err := EncodeResult(r, ref)
			require.NoError(t, err)
			for _, stored := range [][]byte{data, asJSONB(t, data)} {
				got, err := DecodeResult(k, k == KindInputProof, stored)
				require.NoError(t, err)
				require.Equal(t, r, got)
			}
		}
		s := Share{genBytes.Draw(t, "payload"), genBytes.Draw(t, "signature"), genBytes.Draw(t, "extra")}
		got, err := DecodeShare(EncodeShare(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	})

	data, err := EncodeResult(ProofResult{}, Reference{})
	require.NoError(t, err)
	require.Nil(t, data, "a proof that was rejected has no result")
	got, err := DecodeResult(KindInputProof, false, nil)
	require.NoError(t, err)
	require.Equal(t, ProofResult{}, got)

	data, err = EncodeResult(ProofResult{true, [][32]byte{{31: 1}}, [][]byte{{2}}}, Reference{})
	require.NoError(t, err)
	require.Equal(t, `{"handles":["0x`+strings.Repeat("00", 31)+`01"],"signatures":["0x02"]}`, string(data))
	data, err = EncodeResult(PublicResult{[]byte{1}, [][]byte{{2}}, []byte{0}}, Reference{0: 2})
	require.NoError(t, err)
	require.Equal(t, `{"gateway_request_id":"0x02`+strings.Repeat("00", 31)+`","decrypted_value":"0x01","signatures":["0x02"],"extra_data":"0x00"}`, string(data))

	_, err = EncodeResult(UserResult{}, Reference{})
	require.Error(t, err)
	for _, k := range Kinds {
		_, err = DecodeResult(k, true, []byte(`{"signatures":[1]}`))
		require.ErrorIs(t, err, ErrStored)
	}
	for _, bad := range [][3]string{{"0x00", "", ""}, {"0", "", ""}, {"", "zz", ""}, {"", "", "0x0"}} {
		_, err = DecodeShare(bad[0], bad[1], bad[2])
		require.ErrorIs(t, err, ErrStored)
	}
}
