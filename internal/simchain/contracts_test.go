package simchain_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/testdata/contracts"
)

// The committed contracts have the functions, events and errors that the relayer knows.
func TestABI(t *testing.T) {
	t.Parallel()
	for name, functions := range map[string][]*fhevm.Function{
		"Decryption":        {fhevm.FuncPublicDecryption, fhevm.FuncUserDecryption, fhevm.FuncDelegated, fhevm.FuncUnifiedDecryption, fhevm.FuncPublicReady, fhevm.FuncUserReady},
		"InputVerification": {fhevm.FuncVerifyProof},
		"ACL":               {fhevm.FuncMulticall, fhevm.FuncAllowedForPublic, fhevm.FuncAllowed, fhevm.FuncDelegatedFor},
		"ProtocolConfig":    {fhevm.FuncThreshold, fhevm.FuncCurrentContext, fhevm.FuncContextAnchor},
		"KMSGeneration":     {fhevm.FuncActiveKey, fhevm.FuncActiveCRS, fhevm.FuncKeyMaterials, fhevm.FuncCRSMaterials},
		"Wallet1271":        {fhevm.FuncValidSignature},
		"FeeToken":          {fhevm.FuncBalanceOf, fhevm.FuncAllowance},
	} {
		for _, f := range functions {
			selector := f.Selector()
			method, err := simchain.ContractOf(name).ABI.MethodById(selector[:])
			require.NoError(t, err, f.String())
			require.Equal(t, f.Signature(), method.Sig)
		}
	}
	for _, e := range fhevm.EventTypes {
		found := slices.ContainsFunc([]string{"Decryption", "InputVerification", "ProtocolConfig"}, func(name string) bool {
			event, err := simchain.ContractOf(name).ABI.EventByID(e.Topic)
			return err == nil && event.Sig == e.Signature
		})
		require.True(t, found, e.Signature)
	}
	for _, e := range fhevm.ContractErrors {
		found := slices.ContainsFunc([]string{"Decryption", "FeeToken"}, func(name string) bool {
			known, err := simchain.ContractOf(name).ABI.ErrorByID(e.Selector)
			return err == nil && known.Sig == e.Signature
		})
		require.True(t, found, e.Signature)
	}
	require.Panics(t, func() { simchain.ContractOf("Nothing") })
}

// What is committed was compiled from what is committed.
func TestCompiled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "testdata", "contracts")
	files, err := filepath.Glob(filepath.Join(dir, "*.sol"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	files = append(files, filepath.Join(dir, "compile.mjs"), filepath.Join(dir, "package.json"))
	slices.Sort(files)
	hash := sha256.New()
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		hash.Write(slices.Concat([]byte(filepath.Base(f)), []byte{0}, text, []byte{0}))
	}
	var compiled struct{ Sources string }
	require.NoError(t, json.Unmarshal(contracts.JSON, &compiled))
	require.Equal(t, hex.EncodeToString(hash.Sum(nil)), compiled.Sources, "run make contracts")
}

// call asks a contract and returns its answer or what it reverts with.
func call(t *testing.T, c *simchain.Chain, to common.Address, data []byte) ([]byte, []byte) {
	t.Helper()
	out, err := c.Eth().CallContract(t.Context(), ethereum.CallMsg{From: c.Config().Accounts[0].Address, To: &to, Data: data, Gas: 5_000_000}, nil)
	if err == nil {
		return out, nil
	}
	var reverted rpc.DataError
	require.True(t, errors.As(err, &reverted), "%v", err)
	text, _ := reverted.ErrorData().(string)
	return nil, common.FromHex(text)
}

func request(t *testing.T, c *simchain.Chain, r fhevm.Request) (cause fhevm.Cause, retry bool, reason string) {
	t.Helper()
	_, reverted := call(t, c, target(c.Config(), r), r.Calldata())
	if reverted == nil {
		return fhevm.CauseNone, false, ""
	}
	d := fhevm.DecodeRevert(reverted)
	return d.Cause, d.Retry, hexutil.Encode(reverted[:min(4, len(reverted))])
}

// Each rule of the gateway contracts, through the relayer's own calls and reverts.
func TestRules(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1, Fee: 10})
	ctx, now := t.Context(), time.Now()
	cause := func(r fhevm.Request) fhevm.Cause {
		cause, _, _ := request(t, c, r)
		return cause
	}
	reverts := func(name string, r fhevm.Request) {
		t.Helper()
		_, _, selector := request(t, c, r)
		e, err := simchain.ContractOf("Decryption").ABI.ErrorByID([4]byte(common.FromHex(selector)))
		require.NoError(t, err, selector)
		require.Equal(t, name, e.Name)
	}
	user := func() *fhevm.UserDecrypt {
		return c.Config().NewRequest(fhevm.EndpointUserDecrypt, 1, now).Decoded.(*fhevm.UserDecrypt)
	}
	unified := func() *fhevm.UnifiedUserDecrypt {
		return c.Config().NewRequest(fhevm.EndpointUserDecryptV3, 1, now).Decoded.(*fhevm.UnifiedUserDecrypt)
	}
	require.Equal(t, fhevm.CauseNone, cause(user()))

	r := user()
	r.Signature[3] ^= 1
	require.Equal(t, fhevm.CauseInvalidSignature, cause(r))
	u := unified()
	u.ExtraData = []byte{0}
	require.Equal(t, fhevm.CauseInvalidSignature, cause(u))
	u = unified()
	u.Signature = u.Signature[:64]
	reverts("ECDSAInvalidSignatureLength", u)

	r = user()
	r.DurationDays = 366
	reverts("MaxDurationDaysExceeded", r)
	r = user()
	r.DurationDays = 0
	reverts("InvalidNullDuration", r)
	r = user()
	r.StartTimestamp = uint64(now.Add(time.Hour).Unix())
	reverts("StartTimestampInFuture", r)
	r = user()
	r.StartTimestamp -= 31 * 86400
	reverts("UserDecryptionRequestExpired", r)
	r = user()
	r.ContractAddresses = make([]common.Address, 11)
	reverts("ContractAddressesMaxLengthExceeded", r)
	r = user()
	r.ContractAddresses = nil
	reverts("EmptyContractAddresses", r)
	r = user()
	r.ContractAddresses = append(r.ContractAddresses, r.UserAddress)
	reverts("UserAddressInContractAddresses", r)
	r = user()
	r.Pairs[0].Contract = r.UserAddress
	reverts("ContractNotInContractAddresses", r)
	r = user()
	r.Pairs[0].Handle[29] ^= 1
	reverts("DifferentChainIds", r)
	reverts("EmptyCtHandles", &fhevm.PublicDecrypt{ExtraData: []byte{0}})
	many := &fhevm.PublicDecrypt{ExtraData: []byte{0}}
	for n := range uint64(33) {
		many.CiphertextHandles = append(many.CiphertextHandles, simchain.Handle(n))
	}
	reverts("MaxDecryptionRequestBitSizeExceeded", many)
	strange := &fhevm.PublicDecrypt{CiphertextHandles: []fhevm.Handle{simchain.Handle(1)}}
	strange.CiphertextHandles[0][30] = 9
	reverts("UnsupportedFHEType", strange)

	proof := c.Config().NewRequest(fhevm.EndpointInputProof, 1, now).Decoded.(*fhevm.InputProof)
	require.Equal(t, fhevm.CauseNone, cause(proof))
	proof.ContractChainID++
	require.Equal(t, fhevm.CauseReverted, cause(proof))

	account := c.Config().Accounts[0].Address
	require.NoError(t, c.SetAllowance(ctx, account, big.NewInt(9)))
	require.Equal(t, fhevm.CauseInsufficientAllowance, cause(user()))
	require.NoError(t, c.SetAllowance(ctx, account, big.NewInt(100)))
	require.NoError(t, c.SetBalance(ctx, account, big.NewInt(9)))
	require.Equal(t, fhevm.CauseInsufficientBalance, cause(user()))
	require.NoError(t, c.SetFee(ctx, big.NewInt(9)))
	require.Equal(t, fhevm.CauseNone, cause(user()))

	require.NoError(t, c.Pause(ctx, true))
	require.Equal(t, fhevm.CauseProtocolPaused, cause(user()))
	require.Equal(t, fhevm.CauseProtocolPaused, cause(c.Config().NewRequest(fhevm.EndpointInputProof, 1, now).Decoded))
	require.NoError(t, c.Pause(ctx, false))
	require.Equal(t, fhevm.CauseNone, cause(user()))
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1, Closed: true})
	ctx := t.Context()
	r := c.Config().NewRequest(fhevm.EndpointUserDecryptV3, 1, time.Now()).Decoded.(*fhevm.UnifiedUserDecrypt)
	ready := func() bool {
		out, _ := call(t, c, c.Config().Decryption, r.ReadinessCalldata())
		ok, err := fhevm.DecodeBool(out)
		require.NoError(t, err)
		return ok
	}
	allowed := func() bool {
		checks := r.ACLChecks()
		out, _ := call(t, c, c.Config().ACL, fhevm.CallMulticall([][]byte{checks[0].Calldata, checks[0].Calldata}))
		results, err := fhevm.DecodeMulticall(out, 2)
		require.NoError(t, err)
		ok, err := fhevm.DecodeBool(results[1])
		require.NoError(t, err)
		return ok
	}
	require.False(t, ready())
	require.False(t, allowed())
	cause, retry, _ := request(t, c, r)
	require.Equal(t, fhevm.CauseReverted, cause)
	require.True(t, retry, "the ciphertext is not there yet")

	require.NoError(t, c.SetReady(ctx, true, r.Entries[0].Handle))
	require.NoError(t, c.SetAllowed(ctx, r.Entries[0].Handle, r.UserAddress, true))
	require.True(t, ready())
	require.True(t, allowed())
	cause, _, _ = request(t, c, r)
	require.Equal(t, fhevm.CauseNone, cause)

	require.NoError(t, c.SetReadinessFails(ctx, true))
	_, reverted := call(t, c, c.Config().Decryption, r.ReadinessCalldata())
	require.NotEmpty(t, reverted)
	require.NoError(t, c.SetACLFails(ctx, true))
	_, reverted = call(t, c, c.Config().ACL, fhevm.CallMulticall([][]byte{r.ACLChecks()[0].Calldata}))
	require.NotEmpty(t, reverted)
	require.NoError(t, c.SetACLFails(ctx, false))

	public := c.Config().NewRequest(fhevm.EndpointPublicDecrypt, 2, time.Now()).Decoded
	delegated := c.Config().NewRequest(fhevm.EndpointDelegatedUserDecrypt, 3, time.Now()).Decoded.(*fhevm.DelegatedUserDecrypt)
	pair := delegated.Pairs[0]
	for _, want := range []bool{false, true, false} {
		if want {
			require.NoError(t, c.SetAllowedForDecryption(ctx, true, public.Handles()[0]))
			require.NoError(t, c.SetDelegated(ctx, delegated.DelegatorAddress, delegated.DelegateAddress, pair.Contract, pair.Handle, true))
		}
		for _, q := range []fhevm.Request{public, delegated} {
			out, _ := call(t, c, c.Config().ACL, q.ACLChecks()[0].Calldata)
			ok, err := fhevm.DecodeBool(out)
			require.NoError(t, err)
			require.Equal(t, want, ok)
		}
		require.NoError(t, c.SetAllowedForDecryption(ctx, false, public.Handles()[0]))
		require.NoError(t, c.SetDelegated(ctx, delegated.DelegatorAddress, delegated.DelegateAddress, pair.Contract, pair.Handle, false))
	}
	require.NoError(t, c.SetEverythingAllowed(ctx, true))
	require.NoError(t, c.SetReadinessFails(ctx, false))
	require.NoError(t, c.SetEveryHandleReady(ctx, true))
	other := c.Config().NewRequest(fhevm.EndpointUserDecrypt, 4, time.Now()).Decoded
	out, _ := call(t, c, c.Config().ACL, other.ACLChecks()[0].Calldata)
	ok, err := fhevm.DecodeBool(out)
	require.NoError(t, err)
	require.True(t, ok)
	cause, _, _ = request(t, c, other)
	require.Equal(t, fhevm.CauseNone, cause)
}

// The key material, the context and the threshold, as a relayer reads them.
func TestProtocol(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1, Threshold: 5})
	ctx := t.Context()
	out, _ := call(t, c, c.Config().ProtocolConfig, fhevm.CallCurrentContext())
	context, epoch, err := fhevm.DecodePair(out)
	require.NoError(t, err)
	require.Equal(t, c.Config().Context, common.Hash(context))
	require.Equal(t, c.Config().Epoch, common.Hash(epoch))
	threshold := func() (int64, error) {
		out, reverted := call(t, c, c.Config().ProtocolConfig, fhevm.CallThreshold(context))
		require.Empty(t, reverted)
		return fhevm.DecodeThreshold(out)
	}
	n, err := threshold()
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	require.NoError(t, c.SetThreshold(ctx, 0))
	_, err = threshold()
	require.Error(t, err)
	_, reverted := call(t, c, c.Config().ProtocolConfig, fhevm.CallThreshold([32]byte{7}))
	require.NotEmpty(t, reverted)

	require.NoError(t, c.NewContext(ctx, "http://127.0.0.1:9/other", "p", 3))
	out, _ = call(t, c, c.Config().ProtocolConfig, fhevm.CallCurrentContext())
	second, _, err := fhevm.DecodePair(out)
	require.NoError(t, err)
	for id, url := range map[[32]byte]string{context: "http://127.0.0.1:9/kms-1", second: "http://127.0.0.1:9/other"} {
		out, _ = call(t, c, c.Config().ProtocolConfig, fhevm.CallContextAnchor(id))
		block, _, err := fhevm.DecodeContextAnchor(out)
		require.NoError(t, err)
		at := new(big.Int).SetUint64(block)
		logs, err := c.Eth().FilterLogs(ctx, ethereum.FilterQuery{FromBlock: at, ToBlock: at, Addresses: []common.Address{c.Config().ProtocolConfig},
			Topics: [][]common.Hash{{fhevm.EventNewKMSContext.Topic}, {id}}})
		require.NoError(t, err)
		require.Len(t, logs, 1)
		e, err := fhevm.DecodeEvent(logs[0].Topics, logs[0].Data)
		require.NoError(t, err)
		require.Equal(t, url, e.(fhevm.NewKMSContext).StorageURL)
	}

	require.NoError(t, c.SetKeys(ctx, [32]byte{4, 31: 9}, [32]byte{5, 31: 9}))
	for _, get := range []struct {
		id        []byte
		materials func([32]byte) []byte
	}{{fhevm.CallActiveKey(), fhevm.CallKeyMaterials}, {fhevm.CallActiveCRS(), fhevm.CallCRSMaterials}} {
		out, _ := call(t, c, c.Config().KMSGeneration, get.id)
		require.EqualValues(t, 9, out[31])
		_, reverted := call(t, c, c.Config().KMSGeneration, get.materials([32]byte(out)))
		require.Empty(t, reverted)
		_, reverted = call(t, c, c.Config().KMSGeneration, get.materials([32]byte{1}))
		require.NotEmpty(t, reverted)
	}
}

// The user that is a contract: its owner's signature, an approved hash, and every way of not answering.
func TestWallet(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1})
	ctx := t.Context()
	signed, hash := c.Config().NewWalletRequest(1, time.Now(), true)
	approved, hash2 := c.Config().NewWalletRequest(2, time.Now(), false)
	require.NotEqual(t, hash, hash2)
	cause, _, _ := request(t, c, signed.Decoded)
	require.Equal(t, fhevm.CauseNone, cause)
	cause, _, _ = request(t, c, approved.Decoded)
	require.Equal(t, fhevm.CauseInvalidSignature, cause)
	require.NoError(t, c.ApproveHash(ctx, hash2))
	cause, _, _ = request(t, c, approved.Decoded)
	require.Equal(t, fhevm.CauseNone, cause)
	for _, m := range []simchain.WalletMode{simchain.WalletReverts, simchain.WalletBurns, simchain.WalletOther, simchain.WalletNothing} {
		require.NoError(t, c.SetWallet(ctx, m))
		cause, _, _ = request(t, c, signed.Decoded)
		require.Equal(t, fhevm.CauseInvalidSignature, cause)
		out, _ := call(t, c, c.Config().Wallet, fhevm.CallValidSignature(hash, signed.Decoded.(*fhevm.UnifiedUserDecrypt).Signature))
		require.False(t, fhevm.AcceptsSignature(out))
	}
	require.Error(t, c.SetWallet(ctx, 5))
}
