package chain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// Logs returns the logs of the blocks from and to and all between, of any of the contracts and with any of the first topics; an empty list means
// all. They come in the chain's order, each once, whatever the node does. [ErrTooMany] asks for a smaller range.
func (p *Pool) Logs(ctx context.Context, from, to int64, addrs []common.Address, topics []common.Hash) ([]types.Log, error) {
	if from < 0 || to < from {
		return nil, fmt.Errorf("%s: no blocks from %d to %d", p.name, from, to)
	}
	filter := map[string]any{"fromBlock": AtBlock(from), "toBlock": AtBlock(to)}
	if len(addrs) > 0 {
		filter["address"] = addrs
	}
	if len(topics) > 0 {
		filter["topics"] = []any{topics}
	}
	var out []types.Log
	err := p.call(ctx, request{
		method: "eth_getLogs", params: []any{filter}, limit: maxLogsReply, tooLarge: ErrTooMany,
		moveOn: func(e *RPCError) bool { return !e.tooMany() && e.busy() },
		decode: func(result []byte) (err error) { out, err = decodeLogs(result, from, to, addrs, topics); return err },
	})
	var answer *RPCError
	if errors.Is(err, ErrTooMany) || (errors.As(err, &answer) && answer.tooMany()) {
		return nil, fmt.Errorf("%s: blocks %d to %d: %w", p.name, from, to, ErrTooMany)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// tooMany guesses whether a node refuses a range for its size. Nodes have no code in common; a wrong guess costs smaller ranges.
func (e *RPCError) tooMany() bool {
	text := strings.ToLower(e.Message)
	if e.Code == codeTooMany || e.saysLimited() {
		return false
	}
	return e.Code == codeLimitExceeded || containsAny(text, "too many", "more than", "block range", "range too", "range is too", "range limit", "exceed",
		"response size", "too large", "too wide", "too big", "query timeout", "query returned", "maximum")
}

// decodeLogs checks that the logs are those asked for, and sorts out those that are none or come twice.
func decodeLogs(result []byte, from, to int64, addrs []common.Address, topics []common.Hash) ([]types.Log, error) {
	var all []types.Log
	if isNull(result) {
		return nil, errors.New("null is no list of logs")
	}
	if err := json.Unmarshal(result, &all); err != nil {
		return nil, err
	}
	out := all[:0]
	for _, l := range all {
		switch {
		case l.Removed:
			continue
		case l.BlockNumber > math.MaxInt64 || int64(l.BlockNumber) < from || int64(l.BlockNumber) > to:
			return nil, errors.New("a log outside the range")
		case l.BlockHash == (common.Hash{}):
			return nil, errors.New("a log without block")
		case len(addrs) > 0 && !slices.Contains(addrs, l.Address), len(topics) > 0 && (len(l.Topics) == 0 || !slices.Contains(topics, l.Topics[0])):
			return nil, errors.New("a log that was not asked for")
		}
		out = append(out, l)
	}
	slices.SortStableFunc(out, func(a, b types.Log) int {
		return cmp.Or(cmp.Compare(a.BlockNumber, b.BlockNumber), bytes.Compare(a.BlockHash[:], b.BlockHash[:]), cmp.Compare(a.Index, b.Index))
	})
	return slices.CompactFunc(out, func(a, b types.Log) bool { return a.BlockHash == b.BlockHash && a.Index == b.Index }), nil
}
