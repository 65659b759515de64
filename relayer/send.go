package relayer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"

	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
)

// Bounds of trying (relayer reference §6.5).
const (
	estimateTries = 100
	estimatePause = 500 * time.Millisecond
	refusedTries  = 20 // that a node may refuse a stored transaction without a known reason before it is cancelled
)

// firstNonce asks for the account's nonce, until it is told the same twice or ctx ends: one that is too high would leave a gap that holds everything up.
func (d *dispatcher) firstNonce(ctx context.Context) bool {
	last := uint64(math.MaxUint64)
	for wait := newBackoff(); ; {
		n, err := d.o.Read.NonceAt(ctx, d.o.Signer.Address(), false)
		switch {
		case err == nil && n == last:
			d.nonces.atLeast(n)
			return true
		case err == nil:
			last = n
			continue
		}
		d.complain(ctx, "the account's nonce cannot be asked for", err)
		if !wait.sleep(ctx) {
			return false
		}
	}
}

// sendAll sends the processing rows of a kind, oldest first and no faster than allowed.
func (d *dispatcher) sendAll(ctx context.Context, k fhevm.Kind) {
	limit := d.limiter(k)
	if !d.contractThere(ctx, d.o.contract(k)) {
		return
	}
	for {
		id, ok := d.lines[k].next(ctx)
		if !ok {
			return
		}
		if !d.goOn(ctx) || limit.Wait(ctx) != nil || d.estimates.Acquire(ctx, 1) != nil {
			return
		}
		d.wg.Go(func() { d.prepare(ctx, row{k, id}, &trial{wait: newBackoff()}) })
	}
}

// contractThere waits until there is code at a contract's address: elsewhere every transaction would succeed, cost its fee, and do nothing.
func (d *dispatcher) contractThere(ctx context.Context, a common.Address) bool {
	for wait := newBackoff(); ; {
		code, err := d.o.Read.CodeAt(ctx, a)
		switch {
		case err == nil && len(code) > 0:
			return true
		case err == nil:
			d.log.Error("there is no contract at the address that requests are to be sent to: nothing is sent", zap.Stringer("address", a))
		default:
			d.complain(ctx, "a contract's code cannot be asked for", err)
		}
		if !wait.sleep(ctx) {
			return false
		}
	}
}

// goOn waits while the operator has stopped the sending; false: ctx has ended.
func (d *dispatcher) goOn(ctx context.Context) bool {
	for d.paused.Load() {
		if !sleep(ctx, d.o.SweepInterval) {
			return false
		}
	}
	return ctx.Err() == nil
}

// call is what a transaction does.
type call struct {
	to   common.Address
	data []byte
	gas  uint64
}

// trial is what was tried of a processing row.
type trial struct {
	wait     *backoff
	refusals int
}

// maxTxBytes is the largest transaction that nodes take.
const maxTxBytes = 128 << 10

// prepare finds out what gas a processing row needs and sends it. A place among d.estimates is held; it is given back before any waiting for the row's own
// sake, so that one that cannot be estimated holds up nobody.
func (d *dispatcher) prepare(ctx context.Context, r row, t *trial) {
	for {
		j, c, again, ok := d.prepareOnce(ctx, r, t)
		if ok {
			err := d.flight.Acquire(ctx, 1)
			d.estimates.Release(1)
			if err != nil {
				d.release(r)
				return
			}
			defer d.flight.Release(1)
			if d.goOn(ctx) {
				d.send(ctx, j, c)
			} else {
				d.release(r)
			}
			return
		}
		d.estimates.Release(1)
		if !again {
			return
		}
		if !t.wait.sleep(ctx) || d.estimates.Acquire(ctx, 1) != nil {
			d.release(r)
			return
		}
	}
}

// prepareOnce estimates a row once. Where it is not ok the row has been handed on, or it is to be tried again.
func (d *dispatcher) prepareOnce(ctx context.Context, r row, t *trial) (j store.Job, c call, again, ok bool) {
	if j, ok = d.job(ctx, r, fhevm.StateProcessing); !ok {
		return j, c, false, false
	}
	req, err := fhevm.DecodeStored(j.Kind, j.ReqType, j.Request)
	if err != nil {
		d.complain(ctx, "a stored request cannot be read", err)
		d.fail(ctx, j, fhevm.CauseInternal, "The stored request cannot be read")
		return j, c, false, false
	}
	c = call{to: d.o.contract(j.Kind), data: req.Calldata()}
	if len(c.data) > maxTxBytes-envelopeBytes {
		d.fail(ctx, j, fhevm.CauseTransactionFailed, fmt.Sprintf("The request is too large for the gateway chain: its call has %d bytes, and %d are possible", len(c.data), maxTxBytes-envelopeBytes))
		return j, c, false, false
	}
	again, ok = d.estimate(ctx, j, &c, t)
	return j, c, again, ok
}

// envelopeBytes is more than a transaction has besides its call.
const envelopeBytes = 512

// send signs a processing row's transaction, stores it and then sends it, and stays until it is mined.
func (d *dispatcher) send(ctx context.Context, j store.Job, c call) {
	r := row{j.Kind, j.ID}
	for wait := newBackoff(); ; {
		fee, err := d.fee(ctx)
		if err == nil {
			nonce := d.nonces.take()
			var a store.Attempt
			if a, err = d.sign(c, nonce, fee); err == nil {
				d.o.pass(pointSigned)
				var moved bool
				moved, err = d.o.Store.BeginSend(ctx, d.owner(r), a)
				d.o.pass(pointStored)
				switch {
				case err == nil && moved:
					d.metrics.moved(d.o.Now(), j, fhevm.StateTxInFlight)
					d.inFlight(ctx, r)
					return
				case errors.Is(err, store.ErrNonce): // it is another's: the next one
					d.metrics.nonceOccupied.Inc()
				case err == nil:
					d.nonces.giveBack(nonce)
					d.metrics.claimLost.Inc()
					d.release(r)
					return
				default: // stored or not: the row tells
					d.complain(ctx, "a transaction cannot be stored", err)
					if _, still := d.job(ctx, r, fhevm.StateProcessing); !still {
						return
					}
					d.nonces.giveBack(nonce) // should it have been stored after all, the database refuses it to others
				}
			}
		}
		if err != nil && !errors.Is(err, store.ErrNonce) {
			d.complain(ctx, "a transaction cannot be made", err)
		}
		if !wait.sleep(ctx) {
			d.release(r)
			return
		}
	}
}

// estimate asks once what gas a call needs, and what stands against it. Where it is not ok the row has been moved, or it is to be asked again.
func (d *dispatcher) estimate(ctx context.Context, j store.Job, c *call, t *trial) (again, ok bool) {
	gas, err := d.o.Read.EstimateGas(ctx, d.o.Signer.Address(), c.to, c.data)
	if err == nil {
		c.gas = gas + gas/5
		return false, true
	}
	var answer *chain.RPCError
	revert, reverted := chain.Revert(err)
	switch {
	case ctx.Err() != nil:
		d.release(row{j.Kind, j.ID})
		return false, false
	case reverted && revert.Retry:
		t.wait.next = estimatePause
		if t.refusals++; t.refusals < estimateTries {
			return true, false
		}
		d.fail(ctx, j, revert.Cause, revert.Reason)
		return false, false
	case reverted:
		d.fail(ctx, j, revert.Cause, revert.Reason)
		return false, false
	case errors.As(err, &answer) && strings.Contains(answer.Message, "gas required exceeds"): // more than a block has: it will not be less
		d.fail(ctx, j, fhevm.CauseTransactionFailed, "The request needs more gas than the gateway chain allows: ask for fewer handles")
		return false, false
	case errors.As(err, &answer) && (!chain.Busy(err) || d.o.Now().Sub(j.StateSince) > d.o.ReadinessTimeout): // a busy node is given time
		if t.refusals++; t.refusals >= refusedTries {
			cause := fhevm.CauseTransactionFailed
			if chain.SendError(err) == chain.InsufficientFunds {
				cause = fhevm.CauseInsufficientBalance
			}
			d.fail(ctx, j, cause, "The gateway chain refused to estimate the transaction")
			return false, false
		}
	}
	d.complain(ctx, "gas cannot be estimated", err)
	return true, false
}

// fee is what the market asks for now.
func (d *dispatcher) fee(ctx context.Context) (chain.Fee, error) {
	head, err := d.o.Read.Head(ctx)
	if err != nil {
		return chain.Fee{}, err
	}
	tip, err := d.o.Read.SuggestTip(ctx)
	if err != nil {
		return chain.Fee{}, err
	}
	return d.o.Fees.At(head.BaseFee, tip)
}

// sign makes the transaction that is to be stored.
func (d *dispatcher) sign(c call, nonce uint64, fee chain.Fee) (store.Attempt, error) {
	raw, hash, err := d.o.Signer.Sign(&types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(d.o.ChainID), Nonce: nonce, GasTipCap: fee.Tip, GasFeeCap: fee.Cap, Gas: c.gas, To: &c.to, Data: c.data,
	})
	if err != nil {
		return store.Attempt{}, err
	}
	tip, err := storage.NewAmount(fee.Tip)
	if err != nil {
		return store.Attempt{}, err
	}
	cap, err := storage.NewAmount(fee.Cap)
	if err != nil {
		return store.Attempt{}, err
	}
	return store.Attempt{Signer: d.o.Signer.Address(), Nonce: int64(nonce), FeeCap: cap, TipCap: tip, Hash: store.Hash(hash), Raw: raw}, nil
}

// cancelGas is what a transfer to ourselves needs.
const cancelGas = 21_000

// again makes a transaction that does the same as a stored one.
func (d *dispatcher) again(of store.Attempt, nonce uint64, fee chain.Fee) (store.Attempt, error) {
	var tx types.Transaction
	if err := tx.UnmarshalBinary(of.Raw); err != nil {
		return store.Attempt{}, err
	}
	a, err := d.sign(call{to: *tx.To(), data: tx.Data(), gas: tx.Gas()}, nonce, fee)
	a.Cancels = of.Cancels
	return a, err
}

// cancel makes a transaction that only uses a nonce up.
func (d *dispatcher) cancel(nonce uint64, fee chain.Fee) (store.Attempt, error) {
	a, err := d.sign(call{to: d.o.Signer.Address(), gas: cancelGas}, nonce, fee)
	a.Cancels = true
	return a, err
}

// feeOf is what a stored transaction pays.
func feeOf(a store.Attempt) chain.Fee { return chain.Fee{Cap: a.FeeCap.Big(), Tip: a.TipCap.Big()} }

// push hands the bytes of a stored transaction to the chain, and returns the receipt where the node gave one.
func (d *dispatcher) push(ctx context.Context, a store.Attempt, wait bool) (*types.Receipt, chain.SendClass) {
	var receipt *types.Receipt
	err := chain.ErrNoSync
	if wait {
		receipt, err = d.o.Send.SendRawSync(ctx, a.Raw)
	}
	if errors.Is(err, chain.ErrNoSync) {
		err = d.o.Send.SendRaw(ctx, a.Raw)
	}
	d.o.pass(pointSent)
	class := chain.SendError(err)
	if errors.Is(err, chain.ErrSyncTimeout) {
		class = chain.Known
	}
	d.metrics.sends.WithLabelValues(string(class)).Inc()
	if err != nil && class != chain.Known && ctx.Err() == nil {
		d.log.Info("a transaction was not taken", zap.String("class", string(class)), zap.String("tx", common.Hash(a.Hash).Hex()), zap.String("said", strings.TrimSpace(err.Error())))
	}
	return receipt, class
}
