package auth

import (
	"crypto/ecdsa"
	"errors"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// SignatureBytes is the length of a signature r‖s‖v (protocol §3, §4).
const SignatureBytes = 65

// vOffset is where v lies in a signature.
const vOffset = SignatureBytes - 1

// ErrSignature is wrapped by every error of RecoverPersonal.
var ErrSignature = errors.New("invalid signature")

// Signer signs EIP-191 personal messages. Implementations must be safe for concurrent use.
type Signer interface {
	// Address is the address that RecoverPersonal finds in this signer's signatures.
	Address() common.Address
	// SignPersonal signs the EIP-191 personal message of msg and returns 65 bytes r‖s‖v, v being 0 or 1.
	SignPersonal(msg []byte) ([]byte, error)
}

// NewKeySigner returns a [Signer] for a private key on secp256k1, held in memory.
func NewKeySigner(key *ecdsa.PrivateKey) Signer {
	return &keySigner{key: key, address: crypto.PubkeyToAddress(key.PublicKey)}
}

type keySigner struct {
	key     *ecdsa.PrivateKey
	address common.Address
}

func (s *keySigner) Address() common.Address { return s.address }

func (s *keySigner) SignPersonal(msg []byte) ([]byte, error) {
	return crypto.Sign(personalHash(msg), s.key)
}

// personalHash is the hash that EIP-191 signs for a personal message: the prefix keeps the signature from being one of a
// transaction.
func personalHash(msg []byte) []byte {
	prefix := append(make([]byte, 0, 48), "\x19Ethereum Signed Message:\n"...)
	return crypto.Keccak256(strconv.AppendInt(prefix, int64(len(msg)), 10), msg)
}

// RecoverPersonal returns the address whose key signed the EIP-191 personal message of msg. sig is 65 bytes r‖s‖v, v 0, 1,
// 27 or 28; both forms of s are accepted (protocol §3). The error wraps [ErrSignature]. It does not change sig. It costs 40 µs with
// cgo and 145 µs without, so check everything cheaper first.
func RecoverPersonal(msg, sig []byte) (common.Address, error) {
	var normal [SignatureBytes]byte
	if len(sig) != SignatureBytes {
		return common.Address{}, signatureError("it has " + strconv.Itoa(len(sig)) + " bytes, want 65")
	}
	copy(normal[:], sig)
	switch normal[vOffset] {
	case 0, 1:
	case 27, 28:
		normal[vOffset] -= 27
	default:
		return common.Address{}, signatureError("v is " + strconv.Itoa(int(sig[vOffset])) + ", want 0, 1, 27 or 28")
	}
	public, err := crypto.SigToPub(personalHash(msg), normal[:])
	if err != nil {
		return common.Address{}, signatureError("no key has made it")
	}
	return crypto.PubkeyToAddress(*public), nil
}

// signatureError is an error that wraps ErrSignature and reads "invalid signature: why".
type signatureError string

func (e signatureError) Error() string { return ErrSignature.Error() + ": " + string(e) }
func (e signatureError) Unwrap() error { return ErrSignature }
