package chain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// ReceiptFromAny is [Pool.Receipt] for a caller who suspects the node it prefers: the nodes are asked in turn until one knows the receipt. The
// error is [ErrNotFound] where none of those that answer does, and wraps [ErrUnavailable] where none answers; an answer that is an error counts as
// none. A node that did not answer lately is passed over where another has, so that it costs its time-out only once in a while. Which node is
// preferred stays as it is: see [Pool.Demote].
func (p *Pool) ReceiptFromAny(ctx context.Context, hash common.Hash) (*types.Receipt, error) {
	var last error
	unknown := false
	for _, n := range p.order() {
		if unknown && p.resting(n) {
			continue
		}
		var out *types.Receipt
		r := receiptRequest(hash, &out)
		err := p.try(ctx, n, r)
		var answer *RPCError
		switch {
		case err == nil && out != nil:
			return out, nil
		case err == nil:
			unknown = true
			continue
		case ctx.Err() != nil:
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				p.failed(n, r.method, err)
			}
			return nil, fmt.Errorf("%s: %s: %w", p.name, r.method, ctx.Err())
		case errors.As(err, &answer):
			if answer.busy() {
				p.pass(n, r.method, err)
			}
		default:
			p.failed(n, r.method, err)
		}
		last = err
	}
	if unknown {
		return nil, ErrNotFound
	}
	return nil, fmt.Errorf("%s: %w: %s", p.name, ErrUnavailable, brief(last))
}

// Demote lets the preferred node come last for a while, as after a failure, for a caller who sees what no single answer shows: that it is stuck,
// such as at an old block. Demoted again and again it comes last for longer, up to a minute. Without another node it changes nothing.
func (p *Pool) Demote() {
	p.mu.Lock()
	stuck := p.preferred
	p.mu.Unlock()
	if len(p.nodes) == 1 {
		return
	}
	p.pass(stuck, "", errStuck)
	next := p.order()
	if next[0] == stuck { // the others failed just as lately
		next = next[1:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.preferred == stuck {
		p.preferred = next[0]
	}
}

// resting tells that the node did not answer lately.
func (p *Pool) resting(n *node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !n.verified && n.until.After(time.Now())
}
