package fhevm

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/ethereum/go-ethereum/common"
)

// Kind is one of the three kinds of job; each has its own table, queue and time limit (relayer reference §0).
type Kind string

// The kinds of job.
const (
	KindInputProof    Kind = "input_proof"
	KindPublicDecrypt Kind = "public_decrypt"
	KindUserDecrypt   Kind = "user_decrypt"
)

// Kinds lists every kind.
var Kinds = []Kind{KindInputProof, KindPublicDecrypt, KindUserDecrypt}

// Variant tells the forms of one kind apart; its text is the `kind` tag of a stored user decryption (relayer reference
// §2.3). Input proofs and public decryptions have one form each.
type Variant string

// The variants.
const (
	VariantInputProof      Variant = "input_proof"
	VariantPublicDecrypt   Variant = "public_decrypt"
	VariantLegacyDirect    Variant = "legacy_direct"
	VariantLegacyDelegated Variant = "legacy_delegated"
	VariantUnified         Variant = "eip712_unified_v1"
)

// Handle names a ciphertext. Bytes 22 to 29 are the id of its host chain, big-endian (relayer reference §1.6).
type Handle [32]byte

// ChainID returns the id of the handle's host chain. Any value is possible.
func (h Handle) ChainID() uint64 { return binary.BigEndian.Uint64(h[22:30]) }

// String returns "0x" and 64 lower-case hex digits.
func (h Handle) String() string { return "0x" + hex.EncodeToString(h[:]) }

// HandleContract is a handle and the contract it is decrypted for. Its member order is the contract's.
type HandleContract struct {
	Handle   Handle         `abi:"name0"`
	Contract common.Address `abi:"name1"`
}

// HandleOwner is an entry of a unified user decryption: a handle, its contract and the account that may decrypt it.
type HandleOwner struct {
	Handle   Handle         `abi:"name0"`
	Contract common.Address `abi:"name1"`
	Owner    common.Address `abi:"name2"`
}

// Request is one decoded and valid request: [*InputProof], [*PublicDecrypt], [*UserDecrypt], [*DelegatedUserDecrypt] or
// [*UnifiedUserDecrypt]. A request is not changed after it was decoded.
type Request interface {
	// Kind returns the kind of job the request asks for.
	Kind() Kind
	// Variant returns the request's form.
	Variant() Variant
	// JobID returns the request's content hash (int_job_id).
	JobID() JobID
	// Handles returns the ciphertexts to decrypt, in the request's order; none for an input proof. Each call returns a new slice.
	Handles() []Handle
	// Calldata returns the call that sends the request to the gateway chain: selector and arguments.
	Calldata() []byte
	// ACLChecks returns the questions to the host chains' ACL contracts that must all be answered with true; none for an input proof.
	ACLChecks() []ACLCheck
	// ReadinessCalldata returns the gateway view that says whether the ciphertexts are there; nil for an input proof.
	ReadinessCalldata() []byte
}

// InputProof asks for the verification of encrypted input (POST /v2/input-proof).
type InputProof struct {
	ContractChainID uint64
	ContractAddress common.Address
	UserAddress     common.Address
	Ciphertext      []byte // ciphertext with its zero-knowledge proof, never empty
	ExtraData       []byte
}

// PublicDecrypt asks for values that everybody may see (POST /v2/public-decrypt).
type PublicDecrypt struct {
	CiphertextHandles []Handle // never empty
	ExtraData         []byte
}

// UserDecrypt asks for values re-encrypted for a user, in the older form (POST /v2/user-decrypt).
type UserDecrypt struct {
	Pairs             []HandleContract // never empty
	StartTimestamp    uint64           // Unix seconds
	DurationDays      uint32
	ContractsChainID  uint64
	ContractAddresses []common.Address // never empty
	UserAddress       common.Address
	Signature         []byte // 65 bytes
	PublicKey         []byte // never empty
	ExtraData         []byte
}

// DelegatedUserDecrypt is [UserDecrypt] by a delegate (POST /v2/delegated-user-decrypt).
type DelegatedUserDecrypt struct {
	Pairs             []HandleContract // never empty
	StartTimestamp    uint64           // Unix seconds
	DurationDays      uint32
	ContractsChainID  uint64
	ContractAddresses []common.Address // never empty
	DelegatorAddress  common.Address
	DelegateAddress   common.Address
	Signature         []byte // 65 bytes
	PublicKey         []byte // never empty
	ExtraData         []byte
}

// UnifiedUserDecrypt asks for values re-encrypted for a user who signed EIP-712 data (POST /v3/user-decrypt).
type UnifiedUserDecrypt struct {
	Entries          []HandleOwner // never empty
	UserAddress      common.Address
	AllowedContracts []common.Address // empty: any contract
	StartTimestamp   uint64           // Unix seconds
	DurationSeconds  uint64
	PublicKey        []byte // never empty
	Signature        []byte // empty: the user is a contract that approved the hash before (ERC-1271)
	ExtraData        []byte
}

// Kind is [KindInputProof].
func (*InputProof) Kind() Kind { return KindInputProof }

// Kind is [KindPublicDecrypt].
func (*PublicDecrypt) Kind() Kind { return KindPublicDecrypt }

// Kind is [KindUserDecrypt].
func (*UserDecrypt) Kind() Kind { return KindUserDecrypt }

// Kind is [KindUserDecrypt].
func (*DelegatedUserDecrypt) Kind() Kind { return KindUserDecrypt }

// Kind is [KindUserDecrypt].
func (*UnifiedUserDecrypt) Kind() Kind { return KindUserDecrypt }

// Variant is [VariantInputProof].
func (*InputProof) Variant() Variant { return VariantInputProof }

// Variant is [VariantPublicDecrypt].
func (*PublicDecrypt) Variant() Variant { return VariantPublicDecrypt }

// Variant is [VariantLegacyDirect].
func (*UserDecrypt) Variant() Variant { return VariantLegacyDirect }

// Variant is [VariantLegacyDelegated].
func (*DelegatedUserDecrypt) Variant() Variant { return VariantLegacyDelegated }

// Variant is [VariantUnified].
func (*UnifiedUserDecrypt) Variant() Variant { return VariantUnified }

// Handles returns nil: an input proof decrypts nothing.
func (*InputProof) Handles() []Handle { return nil }

// Handles returns a copy of the handles.
func (r *PublicDecrypt) Handles() []Handle { return append([]Handle(nil), r.CiphertextHandles...) }

// Handles returns the handles of the pairs.
func (r *UserDecrypt) Handles() []Handle { return pairHandles(r.Pairs) }

// Handles returns the handles of the pairs.
func (r *DelegatedUserDecrypt) Handles() []Handle { return pairHandles(r.Pairs) }

// Handles returns the handles of the entries.
func (r *UnifiedUserDecrypt) Handles() []Handle {
	out := make([]Handle, len(r.Entries))
	for i, e := range r.Entries {
		out[i] = e.Handle
	}
	return out
}

func pairHandles(pairs []HandleContract) []Handle {
	out := make([]Handle, len(pairs))
	for i, p := range pairs {
		out[i] = p.Handle
	}
	return out
}
