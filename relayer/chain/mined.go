package chain

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// MinedTx is a transaction in a block.
type MinedTx struct {
	Hash  common.Hash
	From  common.Address
	Nonce uint64
}

// TransactionsIn returns the transactions of the block with the number, or [ErrNotFound] where the node has not seen it.
func (p *Pool) TransactionsIn(ctx context.Context, number int64) ([]MinedTx, error) {
	if number < 0 {
		return nil, ErrNotFound
	}
	var out []MinedTx
	found := false
	err := p.call(ctx, request{method: "eth_getBlockByNumber", params: []any{AtBlock(number), true}, limit: maxLogsReply, decode: func(result []byte) error {
		if found = !isNull(result); !found {
			return nil
		}
		var block struct {
			Number       *hexutil.Uint64 `json:"number"`
			Transactions []struct {
				Hash  *common.Hash    `json:"hash"`
				From  *common.Address `json:"from"`
				Nonce *hexutil.Uint64 `json:"nonce"`
			} `json:"transactions"`
		}
		if err := json.Unmarshal(result, &block); err != nil {
			return err
		}
		if block.Number == nil || uint64(*block.Number) != uint64(number) {
			return errors.New("another block than asked for")
		}
		out = make([]MinedTx, len(block.Transactions))
		for i, t := range block.Transactions {
			if t.Hash == nil || t.From == nil || t.Nonce == nil {
				return errors.New("a transaction lacks hash, sender or nonce")
			}
			out[i] = MinedTx{*t.Hash, *t.From, uint64(*t.Nonce)}
		}
		return nil
	}})
	if err == nil && !found {
		err = ErrNotFound
	}
	return out, err
}

// NonceAtBlock is NonceAt in the state after the block with the number. Nodes keep such states for a while only.
func (p *Pool) NonceAtBlock(ctx context.Context, a common.Address, number int64) (uint64, error) {
	var n uint64
	err := p.call(ctx, request{method: "eth_getTransactionCount", params: []any{a, AtBlock(number)}, decode: decodeUint64(&n)})
	return n, err
}
