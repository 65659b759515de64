package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

// BlockRef names the state that a read is made in. The zero value is [Latest].
type BlockRef string

// The references that are no number.
const (
	Latest    BlockRef = "latest"
	Finalized BlockRef = "finalized"
)

// AtBlock refers to a block by its number, which is not negative.
func AtBlock(number int64) BlockRef { return BlockRef(hexutil.EncodeUint64(uint64(number))) }

func (b BlockRef) param() string {
	if b == "" {
		return string(Latest)
	}
	return string(b)
}

// Header is what the relayer needs of a block's header.
type Header struct {
	Number       int64
	Hash, Parent common.Hash
	Time         uint64   // Unix seconds, by the chain's clock
	BaseFee      *big.Int // wei per gas; nil on a chain that has none
}

// ChainID asks for the chain's id, which is the pool's own: other nodes are not used. It tells whether any node answers.
func (p *Pool) ChainID(ctx context.Context) (uint64, error) {
	var id uint64
	err := p.call(ctx, request{method: "eth_chainId", decode: decodeUint64(&id)})
	return id, err
}

// Head returns the newest block's header.
func (p *Pool) Head(ctx context.Context) (Header, error) { return p.HeaderByTag(ctx, string(Latest)) }

// HeaderByTag returns the header of the "latest", "safe", "finalized" or "earliest" block.
func (p *Pool) HeaderByTag(ctx context.Context, tag string) (Header, error) {
	return p.header(ctx, tag, -1)
}

// HeaderByNumber returns the header of the block with the number, or [ErrNotFound] where the node has not seen it.
func (p *Pool) HeaderByNumber(ctx context.Context, number int64) (Header, error) {
	if number < 0 {
		return Header{}, ErrNotFound
	}
	return p.header(ctx, string(AtBlock(number)), number)
}

// header asks for a block; want is its number, or -1 for any.
func (p *Pool) header(ctx context.Context, block string, want int64) (h Header, err error) {
	found := false
	err = p.call(ctx, request{method: "eth_getBlockByNumber", params: []any{block, false}, decode: func(result []byte) error {
		if found = !isNull(result); !found {
			return nil
		}
		h, err = decodeHeader(result)
		if err == nil && want >= 0 && h.Number != want {
			return errors.New("another block than asked for")
		}
		return err
	}})
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

func decodeHeader(result []byte) (Header, error) {
	var h struct {
		Number    *hexutil.Uint64 `json:"number"`
		Hash      *common.Hash    `json:"hash"`
		Parent    *common.Hash    `json:"parentHash"`
		Timestamp *hexutil.Uint64 `json:"timestamp"`
		BaseFee   *hexutil.Big    `json:"baseFeePerGas"`
	}
	if err := json.Unmarshal(result, &h); err != nil {
		return Header{}, err
	}
	if h.Number == nil || h.Hash == nil || h.Parent == nil || h.Timestamp == nil || *h.Number > math.MaxInt64 {
		return Header{}, errors.New("a block's header is not whole")
	}
	return Header{int64(*h.Number), *h.Hash, *h.Parent, uint64(*h.Timestamp), (*big.Int)(h.BaseFee)}, nil
}

// Call makes an eth_call in the state of a block and returns what the contract returned, which is empty where there is no contract. gas caps
// what it may use; 0 leaves that to the node. A zero sender is left out. Where the contract refuses, the error is an [*RPCError] that
// [Revert] reads.
func (p *Pool) Call(ctx context.Context, from, to common.Address, data []byte, at BlockRef, gas uint64) ([]byte, error) {
	var out []byte
	args := callArgs(from, to, data)
	if gas > 0 {
		args["gas"] = hexutil.Uint64(gas)
	}
	err := p.call(ctx, request{method: "eth_call", params: []any{args, at.param()}, decode: decodeBytes(&out)})
	return out, err
}

// EstimateGas returns how much gas the call would use now. Where the contract refuses, [Revert] reads the error.
func (p *Pool) EstimateGas(ctx context.Context, from, to common.Address, data []byte) (uint64, error) {
	var gas uint64
	err := p.call(ctx, request{method: "eth_estimateGas", params: []any{callArgs(from, to, data)}, decode: decodeUint64(&gas)})
	return gas, err
}

// callArgs are a call's fields. "data" is the name that every node knows.
func callArgs(from, to common.Address, data []byte) map[string]any {
	args := map[string]any{"to": to, "data": hexutil.Bytes(data)}
	if from != (common.Address{}) {
		args["from"] = from
	}
	return args
}

// CodeAt returns the code of an account in the newest state; empty where it is no contract.
func (p *Pool) CodeAt(ctx context.Context, a common.Address) ([]byte, error) {
	var code []byte
	err := p.call(ctx, request{method: "eth_getCode", params: []any{a, Latest}, decode: decodeBytes(&code)})
	return code, err
}

// Balance returns an account's native balance in wei, in the newest state.
func (p *Pool) Balance(ctx context.Context, a common.Address) (*big.Int, error) {
	return p.number(ctx, "eth_getBalance", a, Latest)
}

// NonceAt returns the nonce of the account's next transaction: after the mined ones, or with pending also after those the node knows to wait.
func (p *Pool) NonceAt(ctx context.Context, a common.Address, pending bool) (uint64, error) {
	at := "latest"
	if pending {
		at = "pending"
	}
	var nonce uint64
	err := p.call(ctx, request{method: "eth_getTransactionCount", params: []any{a, at}, decode: decodeUint64(&nonce)})
	return nonce, err
}

// SuggestTip returns what the node thinks a transaction should pay the block's maker, in wei per gas.
func (p *Pool) SuggestTip(ctx context.Context) (*big.Int, error) {
	return p.number(ctx, "eth_maxPriorityFeePerGas")
}

func (p *Pool) number(ctx context.Context, method string, params ...any) (*big.Int, error) {
	var n *hexutil.Big
	err := p.call(ctx, request{method: method, params: params, decode: func(result []byte) error {
		if err := json.Unmarshal(result, &n); err != nil || n == nil {
			return errors.Join(err, errors.New("no number"))
		}
		return nil
	}})
	return (*big.Int)(n), err
}

// Receipt returns the receipt of a mined transaction, or [ErrNotFound] where the node knows none. It always has a block and a status.
func (p *Pool) Receipt(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	var out *types.Receipt
	err := p.call(ctx, receiptRequest(hash, &out))
	if err == nil && out == nil {
		err = ErrNotFound
	}
	return out, err
}

// receiptRequest leaves out nil where the node knows no receipt.
func receiptRequest(hash common.Hash, out **types.Receipt) request {
	return request{method: "eth_getTransactionReceipt", params: []any{hash}, decode: func(result []byte) (err error) {
		if *out = nil; isNull(result) {
			return nil
		}
		*out, err = decodeReceipt(result, hash)
		return err
	}}
}

// decodeReceipt refuses a receipt that does not say what came of the transaction: it would be taken for a refusal.
func decodeReceipt(result []byte, want common.Hash) (*types.Receipt, error) {
	var status struct {
		Status *hexutil.Uint64 `json:"status"`
	}
	var r types.Receipt
	if err := json.Unmarshal(result, &status); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, err
	}
	switch {
	case r.TxHash != want:
		return nil, errors.New("a receipt of another transaction")
	case status.Status == nil || *status.Status > 1:
		return nil, errors.New("a receipt without status")
	case r.BlockNumber == nil || !r.BlockNumber.IsInt64() || r.BlockNumber.Sign() < 0 || r.BlockHash == (common.Hash{}):
		return nil, errors.New("a receipt without block")
	}
	for _, l := range r.Logs {
		if l == nil {
			return nil, errors.New("a receipt with an empty log")
		}
	}
	return &r, nil
}

// Transaction reports whether the node knows the transaction, and whether it still waits to be mined.
func (p *Pool) Transaction(ctx context.Context, hash common.Hash) (known, pending bool, err error) {
	err = p.call(ctx, request{method: "eth_getTransactionByHash", params: []any{hash}, decode: func(result []byte) error {
		known, pending = false, false
		if isNull(result) {
			return nil
		}
		var tx struct {
			Hash  common.Hash  `json:"hash"`
			Block *common.Hash `json:"blockHash"`
		}
		if err := json.Unmarshal(result, &tx); err != nil {
			return err
		}
		if tx.Hash != hash {
			return errors.New("another transaction than asked for")
		}
		known, pending = true, tx.Block == nil || *tx.Block == common.Hash{}
		return nil
	}})
	return known && err == nil, pending && err == nil, err
}

func decodeBytes(out *[]byte) func([]byte) error {
	return func(result []byte) error {
		var b hexutil.Bytes
		if isNull(result) {
			return errors.New("null is no byte string")
		}
		if err := json.Unmarshal(result, &b); err != nil {
			return fmt.Errorf("no byte string: %w", err)
		}
		*out = b
		return nil
	}
}
