package fhevm

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/crypto"
)

// ContractError is an error that the contracts revert with.
type ContractError struct {
	Signature string
	Selector  [4]byte
	Cause     Cause
	// Retry says that the same call may pass later: the ciphertexts are on their way.
	Retry bool
}

// ContractErrors lists the errors that have a meaning to the relayer (relayer reference §6.5, §6.6).
var ContractErrors = []ContractError{
	newContractError("EnforcedPause()", CauseProtocolPaused, false),
	newContractError("ERC20InsufficientBalance(address,uint256,uint256)", CauseInsufficientBalance, false),
	newContractError("ERC20InsufficientAllowance(address,uint256,uint256)", CauseInsufficientAllowance, false),
	newContractError("InvalidUserSignature(bytes)", CauseInvalidSignature, false),
	newContractError("ECDSAInvalidSignature()", CauseInvalidSignature, false),
	newContractError("ECDSAInvalidSignatureLength(uint256)", CauseInvalidSignature, false),
	newContractError("ECDSAInvalidSignatureS(bytes32)", CauseInvalidSignature, false),
	newContractError("CiphertextMaterialNotFound(bytes32)", CauseReverted, true),
}

func newContractError(signature string, c Cause, retry bool) ContractError {
	return ContractError{signature, [4]byte(crypto.Keccak256([]byte(signature))), c, retry}
}

// Revert is why a call or transaction reverted.
type Revert struct {
	Cause  Cause
	Retry  bool
	Reason string // for people: printable, at most a few hundred bytes
}

// maxRevertText bounds, in bytes, what is kept of a contract's own text.
const maxRevertText = 256

// DecodeRevert reads the data that a call reverted with, as the node gives it: nothing, a known error of the contracts, a text, a
// panic, or an error that only its selector is known of. The contract's data alone decides, never a node's message.
func DecodeRevert(data []byte) Revert {
	if len(data) < 4 {
		return Revert{CauseReverted, false, "execution reverted without a reason"}
	}
	for _, e := range ContractErrors {
		if e.Selector == [4]byte(data) {
			name, _, _ := strings.Cut(e.Signature, "(")
			return Revert{e.Cause, e.Retry, "execution reverted: " + name}
		}
	}
	if text, err := abi.UnpackRevert(data); err == nil {
		return Revert{CauseReverted, false, "execution reverted: " + printable(text, maxRevertText)}
	}
	return Revert{CauseReverted, false, fmt.Sprintf("execution reverted with error 0x%s", hex.EncodeToString(data[:4]))}
}

// printable returns at most n bytes of s with everything that is not a printable character replaced by "?".
func printable(s string, n int) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, bounded(s, n))
}
