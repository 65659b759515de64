package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// SendRaw hands a signed transaction to a node. [SendError] classifies the error; the same bytes may be sent any number of times.
func (p *Pool) SendRaw(ctx context.Context, raw []byte) error {
	want := crypto.Keccak256Hash(raw)
	return p.call(ctx, request{method: "eth_sendRawTransaction", params: []any{hexutil.Bytes(raw)}, moveOn: sendElsewhere, decode: func(result []byte) error {
		var hash common.Hash
		if err := json.Unmarshal(result, &hash); err != nil {
			return err
		}
		if hash != want {
			return errors.New("the hash of another transaction")
		}
		return nil
	}})
}

// SendRawSync hands a signed transaction to a node and waits, half of the pool's call timeout at most, until it is mined. It returns
// [ErrNoSync], without having sent anything, where the node has no such call, which is remembered until that node fails; and [ErrSyncTimeout]
// where the transaction was taken but not mined. For other errors see [Pool.SendRaw].
func (p *Pool) SendRawSync(ctx context.Context, raw []byte) (*types.Receipt, error) {
	want := crypto.Keccak256Hash(raw)
	wait := p.timeout / 2
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	var out *types.Receipt
	err := p.call(ctx, request{
		method: "eth_sendRawTransactionSync", sync: true, moveOn: sendElsewhere,
		params: []any{hexutil.Bytes(raw), max(wait.Milliseconds(), 1)},
		decode: func(result []byte) (err error) { out, err = decodeReceipt(result, want); return err },
	})
	var answer *RPCError
	if errors.As(err, &answer) && answer.Code == codeSyncTimeout {
		return nil, fmt.Errorf("%s: %w", p.name, ErrSyncTimeout)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// sendElsewhere: a node's word on a transaction is not put to another one; only a node that does not take calls at all is passed over. Whatever
// it did with the bytes, the next one may have them too.
func sendElsewhere(e *RPCError) bool { return e.limited() && SendError(e) == Unavailable }
