package fhevm

import (
	"encoding/binary"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// What the user of a unified decryption signs (relayer reference §6.9).
const (
	domainName    = "Decryption"
	domainVersion = "1"
	domainFields  = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
	requestFields = "UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,uint256 startTimestamp,uint256 durationSeconds,bytes extraData)"
)

// ErrSignature is wrapped by the error of a check that finds a user's signature not to hold; the answer is [ErrInvalidSignature].
var ErrSignature = errors.New("the user's signature does not hold")

// Type hashes of the EIP-712 data.
var (
	DomainTypeHash  = crypto.Keccak256Hash([]byte(domainFields))
	RequestTypeHash = crypto.Keccak256Hash([]byte(requestFields))
)

// SigningHash returns the hash the user signed for the host chain of the handles, which [CheckHostChains] found to be one, and the
// Decryption contract of the gateway chain.
func (r *UnifiedUserDecrypt) SigningHash(decryption common.Address) common.Hash {
	var chainID uint64
	if len(r.Entries) > 0 {
		chainID = r.Entries[0].Handle.ChainID()
	}
	domain := crypto.Keccak256(DomainTypeHash[:], crypto.Keccak256([]byte(domainName)), crypto.Keccak256([]byte(domainVersion)),
		uintWord(chainID), addressWord(decryption))
	var allowed []byte
	for _, a := range r.AllowedContracts {
		allowed = append(allowed, addressWord(a)...)
	}
	message := crypto.Keccak256(RequestTypeHash[:], addressWord(r.UserAddress), crypto.Keccak256(r.PublicKey), crypto.Keccak256(allowed),
		uintWord(r.StartTimestamp), uintWord(r.DurationSeconds), crypto.Keccak256(r.ExtraData))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, message)
}

// SignedByUser reports whether the request's signature is the user's own over hash: 65 bytes, v of 0, 1, 27 or 28. Where it is not,
// the user may still be a contract that accepts it (ERC-1271).
func (r *UnifiedUserDecrypt) SignedByUser(hash common.Hash) bool {
	if len(r.Signature) != crypto.SignatureLength {
		return false
	}
	sig := append([]byte(nil), r.Signature...)
	if sig[64] >= 27 {
		sig[64] -= 27
	}
	key, err := crypto.SigToPub(hash[:], sig)
	return err == nil && crypto.PubkeyToAddress(*key) == r.UserAddress
}

func addressWord(a common.Address) []byte { return common.LeftPadBytes(a[:], 32) }

func uintWord(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }
