package simchain

import (
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Content returns what the contracts know a request by, from the call that sends it: a hash of everything but signature and
// validity, so that it is equal for two requests exactly where their content hashes (int_job_id) are.
func Content(calldata []byte) (common.Hash, error) {
	if len(calldata) < 4 {
		return common.Hash{}, fmt.Errorf("simchain: a call of %d bytes", len(calldata))
	}
	for _, name := range []string{"Decryption", "InputVerification"} {
		contract := ContractOf(name).ABI
		method, err := contract.MethodById(calldata)
		if err != nil {
			continue
		}
		values, err := method.Inputs.Unpack(calldata[4:])
		if err != nil {
			return common.Hash{}, fmt.Errorf("simchain: call of %s: %w", method.Sig, err)
		}
		bytes4, err := abi.NewType("bytes4", "", nil)
		if err != nil {
			return common.Hash{}, fmt.Errorf("simchain: %w", err)
		}
		args, kept := abi.Arguments{{Type: bytes4}}, []any{[4]byte(calldata)}
		for i, in := range method.Inputs {
			if in.Name != "signature" && in.Name != "validity" {
				args, kept = append(args, in), append(kept, values[i])
			}
		}
		packed, err := args.Pack(kept...)
		if err != nil {
			return common.Hash{}, fmt.Errorf("simchain: content of %s: %w", method.Sig, err)
		}
		return crypto.Keccak256Hash(slices.Clone(packed)), nil
	}
	return common.Hash{}, fmt.Errorf("simchain: no method with selector %x", calldata[:4])
}
