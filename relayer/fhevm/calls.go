package fhevm

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Function is one function of a contract. Overloads differ in their signature and so in their selector.
type Function struct {
	signature string
	selector  [4]byte
	args      abi.Arguments
}

// Signature returns the function's name and argument types, as they are hashed.
func (f *Function) Signature() string { return f.signature }

// Selector returns the first four bytes of a call.
func (f *Function) Selector() [4]byte { return f.selector }

// newFunction parses a signature that is written in this package.
func newFunction(signature string) *Function {
	parsed, err := abi.ParseSelector(signature)
	if err != nil {
		panic(fmt.Sprintf("fhevm: signature %s: %v", signature, err)) // a fault in this file; every test finds it
	}
	f := &Function{signature: signature, selector: [4]byte(crypto.Keccak256([]byte(signature)))}
	for _, in := range parsed.Inputs {
		typ, err := abi.NewType(in.Type, "", in.Components)
		if err != nil {
			panic(fmt.Sprintf("fhevm: signature %s: %v", signature, err))
		}
		f.args = append(f.args, abi.Argument{Name: in.Name, Type: typ})
	}
	return f
}

// calldata encodes a call. The values' Go types are fixed at each call in this package, and an encoder fails on types alone.
func (f *Function) calldata(values ...any) []byte {
	packed, err := f.args.Pack(values...)
	if err != nil {
		panic(fmt.Sprintf("fhevm: call of %s: %v", f.signature, err))
	}
	return slices.Concat(f.selector[:], packed)
}

// The functions of the contracts (relayer reference §6.1, §6.2) and of the fee token.
var (
	FuncPublicDecryption  = newFunction("publicDecryptionRequest(bytes32[],bytes)")
	FuncUserDecryption    = newFunction("userDecryptionRequest((bytes32,address)[],(uint256,uint256),(uint256,address[]),address,bytes,bytes,bytes)")
	FuncDelegated         = newFunction("delegatedUserDecryptionRequest((bytes32,address)[],(uint256,uint256),(address,address),(uint256,address[]),bytes,bytes,bytes)")
	FuncUnifiedDecryption = newFunction("userDecryptionRequest((bytes32,address,address)[],address,bytes,address[],(uint256,uint256),bytes,bytes)")
	FuncVerifyProof       = newFunction("verifyProofRequest(uint256,address,address,bytes,bytes)")

	FuncPublicReady      = newFunction("isPublicDecryptionReady(bytes32[],bytes)")
	FuncUserReady        = newFunction("isUserDecryptionReady((bytes32,address)[],bytes)")
	FuncMulticall        = newFunction("multicall(bytes[])")
	FuncAllowedForPublic = newFunction("isAllowedForDecryption(bytes32)")
	FuncAllowed          = newFunction("isAllowed(bytes32,address)")
	FuncDelegatedFor     = newFunction("isHandleDelegatedForUserDecryption(address,address,address,bytes32)")
	FuncThreshold        = newFunction("getUserDecryptionThresholdForContext(uint256)")
	FuncCurrentContext   = newFunction("getCurrentKmsContextAndEpoch()")
	FuncContextAnchor    = newFunction("getKmsContextAnchor(uint256)")
	FuncActiveKey        = newFunction("getActiveKeyId()")
	FuncActiveCRS        = newFunction("getActiveCrsId()")
	FuncKeyMaterials     = newFunction("getKeyMaterials(uint256)")
	FuncCRSMaterials     = newFunction("getCrsMaterials(uint256)")
	FuncValidSignature   = newFunction("isValidSignature(bytes32,bytes)")

	FuncBalanceOf = newFunction("balanceOf(address)")
	FuncAllowance = newFunction("allowance(address,address)")
)

// Tuples of the calls.
type (
	validity struct {
		Start    *big.Int `abi:"name0"`
		Duration *big.Int `abi:"name1"`
	}
	contracts struct {
		ChainID   *big.Int         `abi:"name0"`
		Addresses []common.Address `abi:"name1"`
	}
	delegation struct {
		Delegator common.Address `abi:"name0"`
		Delegate  common.Address `abi:"name1"`
	}
)

func number(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

// Calldata is the call of verifyProofRequest on InputVerification.
func (r *InputProof) Calldata() []byte {
	return FuncVerifyProof.calldata(number(r.ContractChainID), r.ContractAddress, r.UserAddress, r.Ciphertext, r.ExtraData)
}

// Calldata is the call of publicDecryptionRequest on Decryption.
func (r *PublicDecrypt) Calldata() []byte {
	return FuncPublicDecryption.calldata(r.CiphertextHandles, r.ExtraData)
}

// Calldata is the call of the older userDecryptionRequest on Decryption.
func (r *UserDecrypt) Calldata() []byte {
	return FuncUserDecryption.calldata(r.Pairs, validity{number(r.StartTimestamp), number(uint64(r.DurationDays))},
		contracts{number(r.ContractsChainID), r.ContractAddresses}, r.UserAddress, r.PublicKey, r.Signature, r.ExtraData)
}

// Calldata is the call of delegatedUserDecryptionRequest on Decryption.
func (r *DelegatedUserDecrypt) Calldata() []byte {
	return FuncDelegated.calldata(r.Pairs, validity{number(r.StartTimestamp), number(uint64(r.DurationDays))},
		delegation{r.DelegatorAddress, r.DelegateAddress}, contracts{number(r.ContractsChainID), r.ContractAddresses}, r.PublicKey, r.Signature, r.ExtraData)
}

// Calldata is the call of the unified userDecryptionRequest on Decryption.
func (r *UnifiedUserDecrypt) Calldata() []byte {
	return FuncUnifiedDecryption.calldata(r.Entries, r.UserAddress, r.PublicKey, r.AllowedContracts,
		validity{number(r.StartTimestamp), number(r.DurationSeconds)}, r.Signature, r.ExtraData)
}

// ReadinessCalldata is nil: input proofs wait for nothing.
func (*InputProof) ReadinessCalldata() []byte { return nil }

// ReadinessCalldata is the call of isPublicDecryptionReady on Decryption.
func (r *PublicDecrypt) ReadinessCalldata() []byte {
	return FuncPublicReady.calldata(r.CiphertextHandles, r.ExtraData)
}

// ReadinessCalldata is the call of isUserDecryptionReady on Decryption.
func (r *UserDecrypt) ReadinessCalldata() []byte { return FuncUserReady.calldata(r.Pairs, r.ExtraData) }

// ReadinessCalldata is the call of isUserDecryptionReady on Decryption.
func (r *DelegatedUserDecrypt) ReadinessCalldata() []byte {
	return FuncUserReady.calldata(r.Pairs, r.ExtraData)
}

// ReadinessCalldata is the call of isUserDecryptionReady on Decryption, with the entries' contracts.
func (r *UnifiedUserDecrypt) ReadinessCalldata() []byte {
	pairs := make([]HandleContract, len(r.Entries))
	for i, e := range r.Entries {
		pairs[i] = HandleContract{e.Handle, e.Contract}
	}
	return FuncUserReady.calldata(pairs, r.ExtraData)
}

// CallMulticall encodes multicall of the given calls.
func CallMulticall(calls [][]byte) []byte { return FuncMulticall.calldata(calls) }

// CallThreshold encodes getUserDecryptionThresholdForContext.
func CallThreshold(contextID [32]byte) []byte { return FuncThreshold.calldata(word(contextID)) }

// CallCurrentContext encodes getCurrentKmsContextAndEpoch.
func CallCurrentContext() []byte { return FuncCurrentContext.calldata() }

// CallContextAnchor encodes getKmsContextAnchor.
func CallContextAnchor(contextID [32]byte) []byte { return FuncContextAnchor.calldata(word(contextID)) }

// CallActiveKey encodes getActiveKeyId.
func CallActiveKey() []byte { return FuncActiveKey.calldata() }

// CallActiveCRS encodes getActiveCrsId.
func CallActiveCRS() []byte { return FuncActiveCRS.calldata() }

// CallKeyMaterials encodes getKeyMaterials.
func CallKeyMaterials(id [32]byte) []byte { return FuncKeyMaterials.calldata(word(id)) }

// CallCRSMaterials encodes getCrsMaterials.
func CallCRSMaterials(id [32]byte) []byte { return FuncCRSMaterials.calldata(word(id)) }

// CallValidSignature encodes isValidSignature of ERC-1271.
func CallValidSignature(hash common.Hash, signature []byte) []byte {
	return FuncValidSignature.calldata([32]byte(hash), signature)
}

// CallBalanceOf encodes balanceOf of the fee token.
func CallBalanceOf(owner common.Address) []byte { return FuncBalanceOf.calldata(owner) }

// CallAllowance encodes allowance of the fee token.
func CallAllowance(owner, spender common.Address) []byte {
	return FuncAllowance.calldata(owner, spender)
}

func word(w [32]byte) *big.Int { return new(big.Int).SetBytes(w[:]) }

// String returns signature and selector.
func (f *Function) String() string {
	return f.signature + " " + hex.EncodeToString(f.selector[:])
}
