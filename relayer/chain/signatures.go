package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
)

// DefaultERC1271Gas caps what a wallet may use to judge a signature.
const DefaultERC1271Gas = 250_000

// maxWalletCalls bounds how many wallets are asked at the same time: who they are and how slow they answer is the clients' choice.
const maxWalletCalls = 64

// Signatures judges the signatures of unified user decryptions (relayer reference §6.9).
type Signatures struct {
	Hosts      map[uint64]Host // by chain id
	Decryption common.Address  // on the gateway chain; part of what is signed
	Gas        uint64          // cap for a wallet's judgement; 0: DefaultERC1271Gas
	Retry      Retry
	// Observe is told of every check: "accepted", "rejected" or "host_call_failed". nil: nobody is told.
	Observe func(outcome string)

	once  sync.Once
	slots chan struct{}
}

// Check returns nil where the user signed the request, or where the user is a contract on the handles' host chain that accepts the signature.
// The error wraps [fhevm.ErrSignature] where the signature does not hold; any other means that the host chain did not say, or that ctx ended.
func (s *Signatures) Check(ctx context.Context, r *fhevm.UnifiedUserDecrypt) error {
	err := s.check(ctx, r)
	if s.Observe != nil {
		s.Observe(signatureOutcome(err))
	}
	return err
}

// Signed reports whether the user's own key signed the request. It asks nobody: false says only that [Signatures.Check] has to ask the user's
// wallet. The observer is told of a true one as accepted, so that a request is counted once whichever of the two decides.
func (s *Signatures) Signed(r *fhevm.UnifiedUserDecrypt) bool {
	if !r.SignedByUser(r.SigningHash(s.Decryption)) {
		return false
	}
	if s.Observe != nil {
		s.Observe(signatureOutcome(nil))
	}
	return true
}

func (s *Signatures) check(ctx context.Context, r *fhevm.UnifiedUserDecrypt) error {
	hash := r.SigningHash(s.Decryption)
	if r.SignedByUser(hash) {
		return nil
	}
	handles := r.Handles()
	if len(handles) == 0 {
		return fmt.Errorf("%w: no handle names a host chain", fhevm.ErrSignature)
	}
	host, ok := s.Hosts[handles[0].ChainID()]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnsupportedChain, handles[0].ChainID())
	}
	data, gas := fhevm.CallValidSignature(hash, r.Signature), s.Gas
	if gas == 0 {
		gas = DefaultERC1271Gas
	}
	if callGas(data) > gas {
		return fmt.Errorf("%w: it is too long for a wallet to read", fhevm.ErrSignature)
	}
	s.once.Do(func() { s.slots = make(chan struct{}, maxWalletCalls) })
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return fmt.Errorf("waiting to ask the user's wallet: %w", ctx.Err())
	}
	var returned []byte
	err := s.Retry.do(ctx, func(ctx context.Context) (err error) {
		returned, err = host.Pool.Call(ctx, common.Address{}, r.UserAddress, data, Latest, gas)
		return err
	}, func(err error) bool { _, refused := Revert(err); return refused })
	switch revert, refused := Revert(err); {
	case refused:
		return fmt.Errorf("%w: the wallet answers: %s", fhevm.ErrSignature, revert.Reason)
	case err != nil:
		return fmt.Errorf("asking the user's wallet: %w", err)
	case len(returned) == 0:
		return fmt.Errorf("%w: it is not the user's, and the user is no contract", fhevm.ErrSignature)
	case !fhevm.AcceptsSignature(returned):
		return fmt.Errorf("%w: the wallet does not accept it", fhevm.ErrSignature)
	}
	return nil
}

// callGas returns what a call's data costs at the least before any contract runs: no chain asks for less. A request can carry a signature
// that costs more than the cap; such a call would fail on the node, time and again.
func callGas(data []byte) uint64 {
	const base, zero, nonZero = 21_000, 4, 16
	gas := uint64(base)
	for _, b := range data {
		if b == 0 {
			gas += zero
		} else {
			gas += nonZero
		}
	}
	return gas
}

func signatureOutcome(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, fhevm.ErrSignature):
		return "rejected"
	default:
		return "host_call_failed"
	}
}
