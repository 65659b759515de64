package fhevm

import (
	"encoding/hex"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
)

// The figures are the reference's (§6.1, §6.2); those of the token are the standard's.
func TestSelectors(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*Function{
		"d8998f45": FuncPublicDecryption, "f1b57adb": FuncUserDecryption, "9fad5a2f": FuncDelegated, "b4de2c37": FuncUnifiedDecryption,
		"a7004996": FuncVerifyProof, "4014c4cd": FuncPublicReady, "e22d1b26": FuncUserReady, "ac9650d8": FuncMulticall, "c0d02943": FuncAllowedForPublic,
		"82027b6d": FuncAllowed, "d09c0dee": FuncDelegatedFor, "281e8bfe": FuncThreshold, "65b394af": FuncCurrentContext, "c999a8b4": FuncContextAnchor,
		"d52f10eb": FuncActiveKey, "baff211e": FuncActiveCRS, "936608ae": FuncKeyMaterials, "c55b8724": FuncCRSMaterials, "1626ba7e": FuncValidSignature,
		"70a08231": FuncBalanceOf, "dd62ed3e": FuncAllowance,
	} {
		selector := f.Selector()
		require.Equal(t, want, hex.EncodeToString(selector[:]), f.Signature())
		require.Equal(t, f.Signature()+" "+want, f.String())
	}
}

// samples is one request per variant with different values everywhere.
func samples() (*InputProof, *PublicDecrypt, *UserDecrypt, *DelegatedUserDecrypt, *UnifiedUserDecrypt) {
	a, b, c := common.HexToAddress(addr1), common.HexToAddress(addr2), common.HexToAddress(addr3)
	h1, h2 := Handle{1, 29: 7}, Handle{2, 29: 8}
	pairs := []HandleContract{{h1, a}, {h2, b}}
	return &InputProof{11155111, a, b, []byte("cipher"), []byte{0}},
		&PublicDecrypt{[]Handle{h1, h2}, []byte{1, 2}},
		&UserDecrypt{pairs, 5, 6, 7, []common.Address{a, b}, c, []byte("sig"), []byte("key"), []byte("extra")},
		&DelegatedUserDecrypt{pairs, 5, 6, 7, []common.Address{a, b}, b, c, []byte("sig"), []byte("key"), []byte("extra")},
		&UnifiedUserDecrypt{[]HandleOwner{{h1, a, c}, {h2, b, a}}, c, nil, 5, 6, []byte("key"), nil, []byte("extra")}
}

// arguments takes a call apart again, with go-ethereum's decoder and the ABI in its JSON form.
func arguments(t *testing.T, fragment string, f *Function, call []byte, out any) {
	t.Helper()
	selector := f.Selector()
	require.Equal(t, selector[:], call[:4])
	contract, err := abi.JSON(strings.NewReader("[" + fragment + "]"))
	require.NoError(t, err)
	method, err := contract.MethodById(call)
	require.NoError(t, err, "the JSON form has the same selector")
	values, err := method.Inputs.Unpack(call[4:])
	require.NoError(t, err)
	require.NoError(t, method.Inputs.Copy(out, values))
}

const (
	pairsJSON  = `{"name":"pairs","type":"tuple[]","components":[{"name":"handle","type":"bytes32"},{"name":"account","type":"address"}]}`
	windowJSON = `{"name":"validity","type":"tuple","components":[{"name":"start","type":"uint256"},{"name":"duration","type":"uint256"}]}`
	infoJSON   = `{"name":"info","type":"tuple","components":[{"name":"chainId","type":"uint256"},{"name":"addresses","type":"address[]"}]}`
	tailJSON   = `{"name":"publicKey","type":"bytes"},{"name":"signature","type":"bytes"},{"name":"extraData","type":"bytes"}`
)

type (
	pairArg struct {
		Handle  [32]byte
		Account common.Address
	}
	windowArg struct{ Start, Duration *big.Int }
	infoArg   struct {
		ChainId   *big.Int
		Addresses []common.Address
	}
)

func TestCalldata(t *testing.T) {
	t.Parallel()
	proof, public, user, delegated, unified := samples()
	a, b, c := common.HexToAddress(addr1), common.HexToAddress(addr2), common.HexToAddress(addr3)
	pairs := []pairArg{{[32]byte{1, 29: 7}, a}, {[32]byte{2, 29: 8}, b}}
	window, info := windowArg{big.NewInt(5), big.NewInt(6)}, infoArg{big.NewInt(7), []common.Address{a, b}}

	var p struct {
		ChainId        *big.Int
		Contract, User common.Address
		Proof, Extra   []byte
	}
	arguments(t, `{"type":"function","name":"verifyProofRequest","inputs":[{"name":"chainId","type":"uint256"},{"name":"contract","type":"address"},{"name":"user","type":"address"},{"name":"proof","type":"bytes"},{"name":"extra","type":"bytes"}]}`,
		FuncVerifyProof, proof.Calldata(), &p)
	require.Equal(t, "11155111", p.ChainId.String())
	require.Equal(t, []any{a, b, []byte("cipher"), []byte{0}}, []any{p.Contract, p.User, p.Proof, p.Extra})

	var d struct {
		Handles [][32]byte
		Extra   []byte
	}
	arguments(t, `{"type":"function","name":"publicDecryptionRequest","inputs":[{"name":"handles","type":"bytes32[]"},{"name":"extra","type":"bytes"}]}`, FuncPublicDecryption, public.Calldata(), &d)
	require.Equal(t, [][32]byte{{1, 29: 7}, {2, 29: 8}}, d.Handles)
	require.Equal(t, []byte{1, 2}, d.Extra)

	var u struct {
		Pairs                           []pairArg
		Validity                        windowArg
		Info                            infoArg
		User                            common.Address
		PublicKey, Signature, ExtraData []byte
	}
	arguments(t, `{"type":"function","name":"userDecryptionRequest","inputs":[`+pairsJSON+`,`+windowJSON+`,`+infoJSON+`,{"name":"user","type":"address"},`+tailJSON+`]}`, FuncUserDecryption, user.Calldata(), &u)
	require.Equal(t, []any{pairs, window, info, c, []byte("key"), []byte("sig"), []byte("extra")}, []any{u.Pairs, u.Validity, u.Info, u.User, u.PublicKey, u.Signature, u.ExtraData})

	var g struct {
		Pairs                           []pairArg
		Validity                        windowArg
		Delegation                      struct{ Delegator, Delegate common.Address }
		Info                            infoArg
		PublicKey, Signature, ExtraData []byte
	}
	arguments(t, `{"type":"function","name":"delegatedUserDecryptionRequest","inputs":[`+pairsJSON+`,`+windowJSON+`,{"name":"delegation","type":"tuple","components":[{"name":"delegator","type":"address"},{"name":"delegate","type":"address"}]},`+infoJSON+`,`+tailJSON+`]}`,
		FuncDelegated, delegated.Calldata(), &g)
	require.Equal(t, []any{pairs, window, b, c, info, []byte("key"), []byte("sig"), []byte("extra")}, []any{g.Pairs, g.Validity, g.Delegation.Delegator, g.Delegation.Delegate, g.Info, g.PublicKey, g.Signature, g.ExtraData})

	var v struct {
		Handles []struct {
			Handle        [32]byte
			Target, Owner common.Address
		}
		User                 common.Address
		PublicKey            []byte
		Allowed              []common.Address
		Validity             windowArg
		Signature, ExtraData []byte
	}
	arguments(t, `{"type":"function","name":"userDecryptionRequest","inputs":[{"name":"handles","type":"tuple[]","components":[{"name":"handle","type":"bytes32"},{"name":"target","type":"address"},{"name":"owner","type":"address"}]},{"name":"user","type":"address"},{"name":"publicKey","type":"bytes"},{"name":"allowed","type":"address[]"},`+windowJSON+`,{"name":"signature","type":"bytes"},{"name":"extraData","type":"bytes"}]}`,
		FuncUnifiedDecryption, unified.Calldata(), &v)
	require.Len(t, v.Handles, 2)
	require.Equal(t, []any{[32]byte{1, 29: 7}, a, c}, []any{v.Handles[0].Handle, v.Handles[0].Target, v.Handles[0].Owner})
	require.Equal(t, []any{c, []byte("key"), []common.Address{}, window, []byte{}, []byte("extra")}, []any{v.User, v.PublicKey, v.Allowed, v.Validity, v.Signature, v.ExtraData})
}

// unpack takes a call apart by the function's own types.
func unpack(t *testing.T, f *Function, call []byte) []any {
	t.Helper()
	selector := f.Selector()
	require.Equal(t, selector[:], call[:4])
	values, err := f.args.Unpack(call[4:])
	require.NoError(t, err)
	return values
}

func TestReadinessCalldata(t *testing.T) {
	t.Parallel()
	proof, public, user, delegated, unified := samples()
	require.Nil(t, proof.ReadinessCalldata())
	require.Equal(t, []any{[][32]byte{{1, 29: 7}, {2, 29: 8}}, []byte{1, 2}}, unpack(t, FuncPublicReady, public.ReadinessCalldata()))
	want := user.ReadinessCalldata()
	require.Equal(t, want, delegated.ReadinessCalldata())
	require.Equal(t, want, unified.ReadinessCalldata(), "the view of the unified form takes handles and contracts, not owners")
	require.Equal(t, []byte("extra"), unpack(t, FuncUserReady, want)[1])
}

func TestACLChecks(t *testing.T) {
	t.Parallel()
	proof, public, user, delegated, unified := samples()
	a, b, c := common.HexToAddress(addr1), common.HexToAddress(addr2), common.HexToAddress(addr3)
	h1, h2 := [32]byte{1, 29: 7}, [32]byte{2, 29: 8}
	require.Empty(t, proof.ACLChecks())
	type asked struct {
		chain uint64
		f     *Function
		args  []any
	}
	for _, test := range []struct {
		r    Request
		want []asked
	}{
		{public, []asked{{7, FuncAllowedForPublic, []any{h1}}, {8, FuncAllowedForPublic, []any{h2}}}},
		{user, []asked{{7, FuncAllowed, []any{h1, c}}, {7, FuncAllowed, []any{h1, a}}, {8, FuncAllowed, []any{h2, c}}, {8, FuncAllowed, []any{h2, b}}}},
		{delegated, []asked{{7, FuncDelegatedFor, []any{b, c, a, h1}}, {8, FuncDelegatedFor, []any{b, c, b, h2}}}},
		{unified, []asked{{7, FuncAllowed, []any{h1, c}}, {8, FuncDelegatedFor, []any{a, c, b, h2}}}},
	} {
		checks := test.r.ACLChecks()
		require.Len(t, checks, len(test.want), test.r.Variant())
		for i, w := range test.want {
			require.Equal(t, w.chain, checks[i].ChainID)
			require.Equal(t, w.args, unpack(t, w.f, checks[i].Calldata))
			require.True(t, strings.HasPrefix(w.f.Signature(), strings.TrimSuffix(strings.TrimSuffix(checks[i].Name, "(user)"), "(contract)")+"("), checks[i].Name)
		}
	}

	checks := user.ACLChecks()
	require.Equal(t, "Not allowed on host ACL: ACL check failed for 1 handle(s): handle="+Handle(h1).String()+" check=isAllowed(user), handle="+Handle(h1).String()+" check=isAllowed(contract)", ReasonDenied(checks[:2]))
	long := ReasonDenied(make([]ACLCheck, 10_000))
	require.Contains(t, long, "for 1 handle(s)")
	require.Less(t, len(long), 600)
	require.Equal(t, "Host ACL check failed: timed out", ReasonACLFailed("timed out"))
	require.Less(t, len(ReasonACLFailed(strings.Repeat("x", 1<<20))), 2*maxReason)
}

func TestViewCalls(t *testing.T) {
	t.Parallel()
	id, n := [32]byte{7, 31: 9}, new(big.Int).SetBytes(append([]byte{7}, append(make([]byte, 30), 9)...))
	a, b := common.HexToAddress(addr1), common.HexToAddress(addr2)
	for _, c := range []struct {
		f    *Function
		call []byte
		args []any
	}{
		{FuncMulticall, CallMulticall([][]byte{{1}, {}, {2, 3}}), []any{[][]byte{{1}, {}, {2, 3}}}},
		{FuncMulticall, CallMulticall(nil), []any{[][]byte{}}},
		{FuncThreshold, CallThreshold(id), []any{n}},
		{FuncCurrentContext, CallCurrentContext(), []any{}},
		{FuncContextAnchor, CallContextAnchor(id), []any{n}},
		{FuncActiveKey, CallActiveKey(), []any{}},
		{FuncActiveCRS, CallActiveCRS(), []any{}},
		{FuncKeyMaterials, CallKeyMaterials(id), []any{n}},
		{FuncCRSMaterials, CallCRSMaterials(id), []any{n}},
		{FuncValidSignature, CallValidSignature(id, []byte{5}), []any{id, []byte{5}}},
		{FuncBalanceOf, CallBalanceOf(a), []any{a}},
		{FuncAllowance, CallAllowance(a, b), []any{a, b}},
	} {
		require.Equal(t, c.args, unpack(t, c.f, c.call), c.f.Signature())
	}
	selector := FuncActiveKey.Selector()
	first := CallActiveKey()
	first[0]++
	require.Equal(t, selector[:], CallActiveKey(), "a caller's change does not reach the selector")
}
