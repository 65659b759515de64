package chain

import (
	"context"
	"errors"
	"fmt"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
)

// ErrUnsupportedChain: a handle belongs to a host chain that is not configured.
var ErrUnsupportedChain = errors.New("the host chain is not supported")

// RevertError is the refusal of a contract.
type RevertError struct{ fhevm.Revert }

// Error returns the reason.
func (e *RevertError) Error() string { return e.Reason }

// Host is one host chain.
type Host struct {
	Pool *Pool
	ACL  common.Address // the access control contract
}

// Readiness asks whether a decryption may be sent: first the host chains whether it is allowed, then the gateway chain whether the ciphertexts
// are there (relayer reference §6.4).
type Readiness struct {
	Hosts      map[uint64]Host // by chain id
	Gateway    *Pool
	Decryption common.Address // on the gateway chain
	Retry      Retry          // for host chains
}

// ACL puts the checks to the host chains, all of a chain in one call, and returns those that are answered with false, in their order. An
// error means that a chain did not say, after several tries; its text is fit for [fhevm.ReasonACLFailed]. It wraps [ErrUnsupportedChain] where
// asking again is useless.
func (r *Readiness) ACL(ctx context.Context, checks []fhevm.ACLCheck) (denied []fhevm.ACLCheck, err error) {
	byChain := make(map[uint64][]int)
	var chains []uint64 // in the order of the checks
	for i, c := range checks {
		if _, ok := r.Hosts[c.ChainID]; !ok {
			return nil, fmt.Errorf("%w: %d", ErrUnsupportedChain, c.ChainID)
		}
		if byChain[c.ChainID] == nil {
			chains = append(chains, c.ChainID)
		}
		byChain[c.ChainID] = append(byChain[c.ChainID], i)
	}
	allowed := make([]bool, len(checks))
	for _, id := range chains {
		if err := r.ask(ctx, id, checks, byChain[id], allowed); err != nil {
			return nil, err
		}
	}
	for i, c := range checks {
		if !allowed[i] {
			denied = append(denied, c)
		}
	}
	return denied, nil
}

// ask puts the checks with the given indices to one chain and notes which are allowed.
func (r *Readiness) ask(ctx context.Context, id uint64, checks []fhevm.ACLCheck, indices []int, allowed []bool) error {
	host := r.Hosts[id]
	calls := make([][]byte, len(indices))
	for i, n := range indices {
		calls[i] = checks[n].Calldata
	}
	data := fhevm.CallMulticall(calls)
	err := r.Retry.do(ctx, func(ctx context.Context) error {
		returned, err := host.Pool.Call(ctx, common.Address{}, host.ACL, data, Latest, 0)
		if err != nil {
			return err
		}
		results, err := fhevm.DecodeMulticall(returned, len(calls))
		for i := 0; i < len(results) && err == nil; i++ {
			allowed[indices[i]], err = fhevm.DecodeBool(results[i])
		}
		if err != nil {
			return fmt.Errorf("%s: access control: %w", host.Pool.Name(), err)
		}
		return nil
	}, never)
	if revert, ok := Revert(err); ok {
		return fmt.Errorf("%s: access control: %w", host.Pool.Name(), &RevertError{revert})
	}
	return err
}

func never(error) bool { return false }

// Ready asks the gateway chain once whether the ciphertexts are there. calldata is the request's ReadinessCalldata; a request without one is
// always ready. The error is a [*RevertError] where the view refuses; whether that may pass, its Retry says.
func (r *Readiness) Ready(ctx context.Context, calldata []byte) (bool, error) {
	if len(calldata) == 0 {
		return true, nil
	}
	returned, err := r.Gateway.Call(ctx, common.Address{}, r.Decryption, calldata, Latest, 0)
	if revert, ok := Revert(err); ok {
		return false, &RevertError{revert}
	}
	if err != nil {
		return false, fmt.Errorf("asking for readiness: %w", err)
	}
	ready, err := fhevm.DecodeBool(returned)
	if err != nil {
		return false, fmt.Errorf("asking for readiness: %w", err)
	}
	return ready, nil
}
