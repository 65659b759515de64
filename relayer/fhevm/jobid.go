package fhevm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/ethereum/go-ethereum/common"
)

// JobID is a request's content hash (int_job_id): requests with equal ids are one job. Signature and validity are outside
// it, the order of lists is inside (relayer reference §2.2).
type JobID [sha256.Size]byte

// String returns 64 lower-case hex digits.
func (id JobID) String() string { return hex.EncodeToString(id[:]) }

// content writes the layout of relayer reference §2.2: each value after its label, nothing between them. The layout has no
// lengths, and must not get any: ids are compared with those that the network's own relayer stored.
type content struct{ h hash.Hash }

func newContent() content { return content{sha256.New()} }

func (c content) label(s string) content        { c.h.Write([]byte(s)); return c }
func (c content) bytes(b []byte) content        { c.h.Write(b); return c }
func (c content) number(n uint64) content       { c.h.Write(binary.BigEndian.AppendUint64(nil, n)); return c }
func (c content) sum() (id JobID)               { c.h.Sum(id[:0]); return id }
func (c content) addr(a common.Address) content { return c.bytes(a[:]) }

func (c content) addresses(list []common.Address) content {
	for _, a := range list {
		c.addr(a)
	}
	return c
}

func (c content) pairs(list []HandleContract) content {
	for _, p := range list {
		c.bytes(p.Handle[:]).addr(p.Contract)
	}
	return c
}

// JobID hashes chain, contract, user, ciphertext and extra data.
func (r *InputProof) JobID() JobID {
	return newContent().
		label("contract_chain_id:").number(r.ContractChainID).
		label("contract_address:").addr(r.ContractAddress).
		label("user_address:").addr(r.UserAddress).
		label("ciphertext_with_zk_proof:").bytes(r.Ciphertext).
		label("extra_data:").bytes(r.ExtraData).sum()
}

// JobID hashes handles and extra data.
func (r *PublicDecrypt) JobID() JobID {
	c := newContent().label("ct_handles:")
	for _, h := range r.CiphertextHandles {
		c.bytes(h[:])
	}
	return c.label("extra_data:").bytes(r.ExtraData).sum()
}

// JobID hashes everything but signature and validity.
func (r *UserDecrypt) JobID() JobID {
	return legacyContent(r.ContractAddresses, r.ContractsChainID, r.Pairs, r.ExtraData, r.PublicKey).
		label("user_address:").addr(r.UserAddress).sum()
}

// JobID hashes everything but signature and validity.
func (r *DelegatedUserDecrypt) JobID() JobID {
	return legacyContent(r.ContractAddresses, r.ContractsChainID, r.Pairs, r.ExtraData, r.PublicKey).
		label("delegator_address:").addr(r.DelegatorAddress).
		label("delegate_address:").addr(r.DelegateAddress).sum()
}

// legacyContent is what both older forms of a user decryption begin with.
func legacyContent(contracts []common.Address, chainID uint64, pairs []HandleContract, extraData, publicKey []byte) content {
	return newContent().
		label("contract_addresses:").addresses(contracts).
		label("contracts_chain_id:").number(chainID).
		label("ct_handle_contract_pairs:").pairs(pairs).
		label("extra_data:").bytes(extraData).
		label("public_key:").bytes(publicKey)
}

// JobID hashes everything but signature and validity.
func (r *UnifiedUserDecrypt) JobID() JobID {
	c := newContent().label("variant:eip712_unified_v1:").
		label("allowed_contracts:").addresses(r.AllowedContracts).
		label("handles:")
	for _, e := range r.Entries {
		c.bytes(e.Handle[:]).addr(e.Contract).addr(e.Owner)
	}
	return c.label("extra_data:").bytes(r.ExtraData).
		label("public_key:").bytes(r.PublicKey).
		label("user_address:").addr(r.UserAddress).sum()
}
