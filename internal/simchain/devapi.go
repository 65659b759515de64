package simchain

import (
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// devNamespace is the JSON-RPC namespace of what only a simulation can do.
const devNamespace = "sim"

// maxBlocks bounds how many blocks one call makes or replaces.
const maxBlocks = 10_000

// devAPI is the namespace's methods, called by [Control] in this process and in others.
type devAPI struct{ d *dev }

// Config returns the chain's configuration.
func (a *devAPI) Config() Config { return a.d.config }

// Commit makes n blocks and returns the head's number.
func (a *devAPI) Commit(n int) (int64, error) {
	if n < 1 || n > maxBlocks {
		return 0, errors.New("blocks out of range")
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	for range n {
		if _, err := a.d.commit(); err != nil {
			return 0, err
		}
	}
	return a.d.backend.head().Number.Int64(), nil
}

// Mining says whether blocks are made automatically.
func (a *devAPI) Mining(on bool) {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	a.d.paused = !on
}

// Drop forgets all waiting transactions.
func (a *devAPI) Drop() error {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	return a.d.backend.rewind(a.d.backend.head().Number.Uint64(), true)
}

// Rewind takes back at most depth blocks, and with replace makes that many and one more.
func (a *devAPI) Rewind(depth int, drop, replace bool) (int, error) {
	if depth < 0 || depth > maxBlocks {
		return 0, errors.New("depth out of range")
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	head := a.d.backend.head().Number.Uint64()
	// Final blocks stay, and so do those of the deployment.
	depth = min(depth, int(head-max(a.d.backend.final(), uint64(a.d.config.StartBlock-1))))
	if depth == 0 {
		return 0, nil
	}
	if err := a.d.backend.rewind(head-uint64(depth), drop); err != nil {
		return 0, err
	}
	if replace {
		for range depth + 1 {
			if _, err := a.d.commit(); err != nil {
				return 0, err
			}
		}
	}
	return depth, nil
}

// Do sends a transaction of the administrator and returns once it is mined.
func (a *devAPI) Do(ctx context.Context, to common.Address, value *hexutil.Big, data hexutil.Bytes) error {
	return a.d.do(ctx, to, (*big.Int)(value), data)
}

// Send puts a transaction of an account into the pool and returns its bytes.
func (a *devAPI) Send(ctx context.Context, from Account, to common.Address, data hexutil.Bytes) (hexutil.Bytes, error) {
	if key, err := from.private(); err != nil || from.Address != addressOf(key) {
		return nil, errors.New("not an account")
	}
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	tx, err := a.d.send(ctx, from, to, new(big.Int), data)
	if err != nil {
		return nil, err
	}
	return tx.MarshalBinary()
}

// SetKMS changes how requests are answered from now on; null: not at all.
func (a *devAPI) SetKMS(o *KMSOptions) error { return a.d.kms.set(o) }

// Answer lets the KMS do what is due now and returns how many transactions it sent.
func (a *devAPI) Answer(ctx context.Context) (int, error) { return a.d.kms.step(ctx) }
