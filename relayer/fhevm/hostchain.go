package fhevm

import (
	"fmt"
	"net/http"
)

// CheckHostChains refuses a decryption whose handles belong to a host chain that is not served (host_chain_id_not_supported;
// the SDK is told which handle), and a unified user decryption whose handles belong to several: its signature is for one.
// The error is nil or an *[Error]. An input proof passes: its chain is the contract's to judge.
func CheckHostChains(r Request, supported func(chainID uint64) bool) error {
	handles := r.Handles()
	for i, h := range handles {
		if id := h.ChainID(); !supported(id) {
			return &Error{
				Status: http.StatusBadRequest, Label: LabelHostChainNotSupported, sdkField: handleField(r.Variant(), i),
				Message: fmt.Sprintf("Host chain ID %d is not supported by this relayer", id),
			}
		}
	}
	if r.Variant() != VariantUnified {
		return nil
	}
	for i, h := range handles {
		if h.ChainID() != handles[0].ChainID() {
			return errValidation(Detail{handleField(r.Variant(), i), issueOneHostChain})
		}
	}
	return nil
}

// handleField names the i-th handle as the client wrote it.
func handleField(v Variant, i int) string {
	switch v {
	case VariantPublicDecrypt:
		return index("ciphertextHandles", i)
	case VariantUnified:
		return index("attestedPayload.handles", i) + ".ctHandle"
	default:
		return index("handleContractPairs", i) + ".handle"
	}
}
