package relayer

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"

	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// rescue brings transactions to the chain that no worker of a row in flight looks after: those whose block a re-organisation took, and
// nonces that nothing stored has.
func (d *dispatcher) rescue(ctx context.Context) {
	gaps := gapFinder{}
	for {
		for after := int64(0); ; {
			adrift, err := d.o.Store.Adrift(ctx, after, 1000)
			if err != nil {
				d.complain(ctx, "transactions adrift cannot be read", err)
			}
			for _, a := range adrift {
				d.rescueOne(ctx, a)
				after = a.ID
			}
			if len(adrift) < 1000 {
				break
			}
		}
		d.closeGaps(ctx, &gaps)
		if !sleep(ctx, d.o.PollInterval) {
			return
		}
	}
}

// rescueOne looks for the receipt of a transaction that is adrift, and sends it again where nobody knows it.
func (d *dispatcher) rescueOne(ctx context.Context, a store.Attempt) {
	receipt, err := d.o.Read.Receipt(ctx, common.Hash(a.Hash))
	switch {
	case errors.Is(err, chain.ErrNotFound):
		if known, _, err := d.o.Read.Transaction(ctx, common.Hash(a.Hash)); err == nil && !known {
			d.push(ctx, a, false)
		}
		return
	case err != nil:
		d.complain(ctx, "a receipt cannot be asked for", err)
		return
	}
	at := store.Block{Number: receipt.BlockNumber.Int64(), Hash: store.Hash(receipt.BlockHash)}
	if !d.stands(ctx, at) {
		return
	}
	hash := store.Hash(a.Hash)
	if receipt.Status == types.ReceiptStatusSuccessful && !a.Cancels {
		if ref, ok := fhevm.RequestReference(a.Kind, d.o.contract(a.Kind), receipt.Logs); ok {
			_, early, err := d.o.Store.Receipt(ctx, a.Kind, a.JobID, hash, at, store.Hash(ref))
			if err != nil {
				d.complain(ctx, "a receipt cannot be stored", err)
				return
			}
			d.welcome(ctx, a.Kind, a.JobID, early)
			d.stillStands(ctx, hash, at)
			return
		}
	}
	if _, err := d.o.Store.Mined(ctx, hash, at, receipt.Status != types.ReceiptStatusSuccessful); err != nil {
		d.complain(ctx, "a mined transaction cannot be noted", err)
		return
	}
	if !d.stillStands(ctx, hash, at) {
		return
	}
	// On the chain as it is now the request was not made. A request that is final stays so.
	j, err := d.o.Store.JobByID(ctx, a.Kind, a.JobID)
	if err == nil && j.State == fhevm.StateReceiptReceived {
		revert, _ := d.whyReverted(ctx, a, at)
		d.fail(ctx, j, revert.Cause, revert.Reason)
	} else if err != nil {
		d.complain(ctx, "a request cannot be read", err)
	}
}

// gapFinder remembers a nonce that the chain waits for and nothing stored has.
type gapFinder struct {
	nonce uint64
	since time.Time
}

// Bounds of closing gaps.
const maxGap = 16

// closeGaps frees the nonces between the account's and the lowest that a pending transaction has, for the next requests; and if none comes, uses
// them up itself, since nothing behind them can be mined. A gap comes of a node that said too high a nonce at the start of a term.
func (d *dispatcher) closeGaps(ctx context.Context, g *gapFinder) {
	pending, err := d.o.Store.PendingNonces(ctx, d.o.Signer.Address(), 1)
	if err != nil || len(pending) == 0 {
		*g = gapFinder{}
		return
	}
	next, err := d.o.Read.NonceAt(ctx, d.o.Signer.Address(), false)
	lowest := uint64(pending[0])
	if err != nil || next >= lowest {
		*g = gapFinder{}
		return
	}
	if g.since.IsZero() || g.nonce != next {
		*g = gapFinder{next, time.Now()}
		return
	}
	age := time.Since(g.since)
	if age < 2*d.o.ResendAfter {
		return
	}
	for nonce := next; nonce < min(lowest, next+maxGap); nonce++ {
		stored, err := d.o.Store.NonceStored(ctx, d.o.Signer.Address(), int64(nonce))
		if err != nil || stored { // it was mined in a block that is gone, and will be adrift
			return
		}
		d.nonces.giveBack(nonce)
	}
	if age < d.o.BumpAfter {
		return
	}
	g.since = time.Now()
	fee, err := d.fee(ctx)
	if err != nil {
		d.complain(ctx, "the fee cannot be asked for", err)
		return
	}
	for range min(lowest-next, maxGap) {
		nonce, ok := d.nonces.takeFree(lowest)
		if !ok {
			return
		}
		a, err := d.cancel(nonce, fee)
		if err != nil {
			d.complain(ctx, "a nonce cannot be used up", err)
			return
		}
		d.log.Warn("a nonce that nothing has is used up by a transfer to ourselves", zap.Uint64("nonce", nonce))
		d.push(ctx, a, false)
	}
}
