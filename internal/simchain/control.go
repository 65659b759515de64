package simchain

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"

	"dongate/relayer/fhevm"
)

// callTimeout bounds one step of the simulation.
const callTimeout = 30 * time.Second

// Control steers a chain in this process or another. A knob is a transaction of the administrator: it makes blocks until it is
// mined, with whatever else is waiting, and a re-organisation that drops transactions takes it back too. All methods may be used
// from any goroutine; they return when the effect is there.
type Control struct {
	rpc    *rpc.Client
	eth    *ethclient.Client
	config Config
}

func newControl(client *rpc.Client, c Config) *Control {
	return &Control{client, ethclient.NewClient(client), c}
}

// Dial connects to the chain with the given HTTP or WebSocket URL.
func Dial(ctx context.Context, url string) (*Control, error) {
	client, err := rpc.DialContext(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("simchain: %w", err)
	}
	var c Config
	if err := client.CallContext(ctx, &c, devNamespace+"_config"); err != nil {
		client.Close()
		return nil, fmt.Errorf("simchain: ask for the configuration: %w", err)
	}
	return newControl(client, c), nil
}

// Config returns where the chain and its contracts are.
func (c *Control) Config() Config { return c.config }

// Eth returns go-ethereum's client of the chain, which lives as long as the Control.
func (c *Control) Eth() *ethclient.Client { return c.eth }

func (c *Control) call(ctx context.Context, result any, method string, args ...any) error {
	if err := c.rpc.CallContext(ctx, result, devNamespace+"_"+method, args...); err != nil {
		return fmt.Errorf("simchain: %s: %w", method, err)
	}
	return nil
}

// Commit makes a block of all waiting transactions and returns its number.
func (c *Control) Commit(ctx context.Context) (int64, error) { return c.CommitN(ctx, 1) }

// CommitN makes n blocks, at most 10 000, and returns the last one's number.
func (c *Control) CommitN(ctx context.Context, n int) (head int64, err error) {
	err = c.call(ctx, &head, "commit", n)
	return head, err
}

// SetMining stops or resumes the automatic blocks of a chain that makes them.
func (c *Control) SetMining(ctx context.Context, on bool) error {
	return c.call(ctx, nil, "mining", on)
}

// Drop forgets all transactions that are not mined, as a node that restarts does.
func (c *Control) Drop(ctx context.Context) error { return c.call(ctx, nil, "drop") }

// Reorg replaces the last depth blocks by depth + 1 new ones. The transactions of the old blocks are mined again in the new ones, or
// with drop forgotten, and so is every waiting one. Final blocks cannot be replaced: depth is lowered to what is possible, and
// replaced is what it was; 0 means that nothing happened. Every 32nd block is final at once.
func (c *Control) Reorg(ctx context.Context, depth int, drop bool) (replaced int, err error) {
	err = c.call(ctx, &replaced, "rewind", depth, drop, true)
	return replaced, err
}

// Rewind is Reorg without the new blocks: the chain ends depth blocks earlier until somebody commits, so that a test can put other
// transactions in first.
func (c *Control) Rewind(ctx context.Context, depth int, drop bool) (removed int, err error) {
	err = c.call(ctx, &removed, "rewind", depth, drop, false)
	return removed, err
}

// SendRequest puts a request into the pool from one of the chain's accounts, as another relayer would, with that account's next
// nonce. It is mined with the next block.
func (c *Control) SendRequest(ctx context.Context, from Account, r fhevm.Request) (*types.Transaction, error) {
	to := c.config.Decryption
	if r.Kind() == fhevm.KindInputProof {
		to = c.config.InputVerification
	}
	var raw hexutil.Bytes
	if err := c.call(ctx, &raw, "send", from, to, hexutil.Bytes(r.Calldata())); err != nil {
		return nil, err
	}
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(raw); err != nil {
		return nil, fmt.Errorf("simchain: send: %w", err)
	}
	return tx, nil
}

func (c *Control) do(ctx context.Context, to common.Address, value *big.Int, data []byte) error {
	return c.call(ctx, nil, "do", to, (*hexutil.Big)(value), hexutil.Bytes(data))
}

// Do calls a method of a test contract in the administrator's name, for what has no method here. contract is the name in the
// sources; names and argument types that do not fit panic.
func (c *Control) Do(ctx context.Context, at common.Address, contract, method string, args ...any) error {
	return c.do(ctx, at, new(big.Int), pack(contract, method, args...))
}

// Fund sends wei of the chain's own coin.
func (c *Control) Fund(ctx context.Context, to common.Address, wei *big.Int) error {
	return c.do(ctx, to, wei, nil)
}

// SetFee sets what a request costs, in the fee token's smallest unit.
func (c *Control) SetFee(ctx context.Context, fee *big.Int) error {
	return c.Do(ctx, c.config.FeeSpender, "Payment", "setFee", fee)
}

// SetBalance sets how many fee tokens an account has.
func (c *Control) SetBalance(ctx context.Context, owner common.Address, value *big.Int) error {
	return c.Do(ctx, c.config.FeeToken, "FeeToken", "setBalance", owner, value)
}

// SetAllowance sets how many of an account's fee tokens the payment contract may take.
func (c *Control) SetAllowance(ctx context.Context, owner common.Address, value *big.Int) error {
	return c.Do(ctx, c.config.FeeToken, "FeeToken", "setAllowance", owner, c.config.FeeSpender, value)
}

// Pause makes both gateway contracts refuse requests with EnforcedPause, or take them again.
func (c *Control) Pause(ctx context.Context, on bool) error {
	if err := c.Do(ctx, c.config.Decryption, "Decryption", "setPaused", on); err != nil {
		return err
	}
	return c.Do(ctx, c.config.InputVerification, "InputVerification", "setPaused", on)
}

// SetReady says whether the ciphertexts of the given handles are on the gateway chain.
func (c *Control) SetReady(ctx context.Context, ready bool, handles ...[32]byte) error {
	return c.Do(ctx, c.config.Decryption, "Decryption", "setReady", handles, ready)
}

// SetEveryHandleReady says whether handles are ready for which SetReady was not called.
func (c *Control) SetEveryHandleReady(ctx context.Context, on bool) error {
	return c.Do(ctx, c.config.Decryption, "Decryption", "setEveryHandleReady", on)
}

// SetReadinessFails makes the readiness views revert.
func (c *Control) SetReadinessFails(ctx context.Context, on bool) error {
	return c.Do(ctx, c.config.Decryption, "Decryption", "setViewsFail", on)
}

// SetAllowed says whether an account, user or contract, may decrypt a handle.
func (c *Control) SetAllowed(ctx context.Context, handle [32]byte, account common.Address, on bool) error {
	return c.Do(ctx, c.config.ACL, "ACL", "setAllowed", handle, account, on)
}

// SetAllowedForDecryption says whether everybody may decrypt the handles.
func (c *Control) SetAllowedForDecryption(ctx context.Context, on bool, handles ...[32]byte) error {
	return c.Do(ctx, c.config.ACL, "ACL", "setAllowedForDecryption", handles, on)
}

// SetDelegated says whether the delegate may decrypt the delegator's handle of the contract.
func (c *Control) SetDelegated(ctx context.Context, delegator, delegate, contract common.Address, handle [32]byte, on bool) error {
	return c.Do(ctx, c.config.ACL, "ACL", "setDelegated", delegator, delegate, contract, handle, on)
}

// SetEverythingAllowed says what the ACL answers where none of the above was said.
func (c *Control) SetEverythingAllowed(ctx context.Context, on bool) error {
	return c.Do(ctx, c.config.ACL, "ACL", "setEverythingAllowed", on)
}

// SetACLFails makes the ACL's views revert.
func (c *Control) SetACLFails(ctx context.Context, on bool) error {
	return c.Do(ctx, c.config.ACL, "ACL", "setViewsFail", on)
}

// SetThreshold sets the threshold of the KMS context that is in force at the start, and after how many shares the contract says that
// it is reached. 0 is possible, for who must refuse it.
func (c *Control) SetThreshold(ctx context.Context, n int64) error {
	if err := c.Do(ctx, c.config.ProtocolConfig, "ProtocolConfig", "setUserThreshold", c.config.Context.Big(), big.NewInt(n)); err != nil {
		return err
	}
	return c.Do(ctx, c.config.Decryption, "Decryption", "setThreshold", big.NewInt(n))
}

// NewContext begins a new KMS context whose first node stores keys under url and prefix.
func (c *Control) NewContext(ctx context.Context, url, prefix string, threshold int64) error {
	return c.Do(ctx, c.config.ProtocolConfig, "ProtocolConfig", "newContext", []string{url}, []string{prefix}, big.NewInt(threshold))
}

// SetKeys changes the active key and common reference string.
func (c *Control) SetKeys(ctx context.Context, key, crs [32]byte) error {
	return c.Do(ctx, c.config.KMSGeneration, "KMSGeneration", "setActive", new(big.Int).SetBytes(key[:]), new(big.Int).SetBytes(crs[:]))
}

// WalletMode is how the chain's ERC-1271 user answers.
type WalletMode uint8

// The modes.
const (
	WalletNormal  WalletMode = iota // accepts its owner's signatures and approved hashes
	WalletReverts                   // reverts
	WalletBurns                     // burns all gas
	WalletOther                     // returns something else
	WalletNothing                   // returns no data
	walletModes                     // number of the above
)

// SetWallet changes how the ERC-1271 user answers.
func (c *Control) SetWallet(ctx context.Context, m WalletMode) error {
	if m >= walletModes {
		return fmt.Errorf("simchain: wallet mode %d", m)
	}
	return c.Do(ctx, c.config.Wallet, "Wallet1271", "setMode", uint8(m))
}

// ApproveHash makes the ERC-1271 user accept an empty signature for hash.
func (c *Control) ApproveHash(ctx context.Context, hash common.Hash) error {
	return c.Do(ctx, c.config.Wallet, "Wallet1271", "approveHash", hash)
}

// SetKMS changes how requests are answered from now on; nil: not at all.
func (c *Control) SetKMS(ctx context.Context, o *KMSOptions) error {
	return c.call(ctx, nil, "setKMS", o)
}

// Answer lets the KMS send the answers that are due now and returns how many transactions that were; they are mined with the next
// block. A chain with automatic blocks does it after each of them by itself.
func (c *Control) Answer(ctx context.Context) (sent int, err error) {
	err = c.call(ctx, &sent, "answer")
	return sent, err
}
