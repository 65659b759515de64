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

// voyage is what one worker remembers of a row in flight; the rest is in the database.
type voyage struct {
	pushed   map[int64]time.Time // when an attempt was last sent, by its id
	refusals int                 // for no reason that is known
	replaced time.Time           // when the last replacement was made
	asked    time.Time           // when it was last looked for who has the nonce
	searched int64               // up to this block the transaction that has the nonce was not found
	used     int                 // times in a row that the nonce was used on the final chain, and no receipt found
	everyone time.Time           // when every node was last asked for receipts
	reasons  int                 // attempts to learn why a transaction reverted
}

// inFlight stays with a row in tx_in_flight until it is mined or no longer the dispatcher's.
func (d *dispatcher) inFlight(ctx context.Context, r row) {
	v := &voyage{pushed: map[int64]time.Time{}}
	for {
		next := d.heads.next()
		j, ok := d.job(ctx, r, fhevm.StateTxInFlight)
		if !ok {
			return
		}
		attempts, err := d.o.Store.Attempts(ctx, r.kind, r.id)
		if err != nil {
			d.complain(ctx, "a request's transactions cannot be read", err)
		} else if d.advance(ctx, j, attempts, v) {
			return
		}
		select {
		case <-next:
		case <-time.After(min(d.o.PollInterval, d.o.ResendAfter)):
		case <-ctx.Done():
			d.release(r)
			return
		}
	}
}

// advance looks once what became of a row's transactions and does what is next. True: the row has been handed on.
func (d *dispatcher) advance(ctx context.Context, j store.Job, attempts []store.Attempt, v *voyage) bool {
	for i := range attempts {
		a := attempts[len(attempts)-1-i]
		ask := d.o.Read.Receipt
		if d.o.Now().Sub(a.Created) > 5*d.o.ResendAfter && time.Since(v.everyone) > d.o.ResendAfter {
			ask = d.o.Read.ReceiptFromAny // the node in use may be one that does not keep them
			if i == len(attempts)-1 {
				v.everyone = time.Now()
			}
		}
		receipt, err := ask(ctx, common.Hash(a.Hash))
		switch {
		case err == nil:
			return d.land(ctx, j, a, receipt, v)
		case !errors.Is(err, chain.ErrNotFound):
			d.complain(ctx, "a receipt cannot be asked for", err)
			return false
		}
	}
	lost, current := true, store.Attempt{}
	for _, a := range attempts {
		switch a.Result {
		case store.Pending:
			lost, current = false, a
		case store.Mined, store.Reverted: // the node does not know the receipt any more; if its block is gone the follower says so
			return false
		}
	}
	switch {
	case len(attempts) == 0: // it would take hands in the database
		d.complain(ctx, "a request in flight has no transaction", errors.New("tx_attempt has no row"), zap.String("job", j.ExtJobID))
		return false
	case lost && attempts[len(attempts)-1].Cancels: // another took the nonce that was to be freed
		d.fail(ctx, j, fhevm.CauseTransactionFailed, reasonRefused)
		return true
	case lost:
		d.renew(ctx, j, attempts[len(attempts)-1])
		return false
	}
	return d.carry(ctx, j, attempts, current, v)
}

const reasonRefused = "The gateway chain refused the transaction"

// carry sees to it that the newest pending transaction of a row gets to the chain.
func (d *dispatcher) carry(ctx context.Context, j store.Job, attempts []store.Attempt, current store.Attempt, v *voyage) bool {
	now := time.Now()
	last := v.pushed[current.ID]
	waiting := false // a node has it, or one with its nonce
	if !last.IsZero() {
		for _, a := range attempts {
			known, _, err := d.o.Read.Transaction(ctx, common.Hash(a.Hash))
			if err != nil {
				d.complain(ctx, "a transaction cannot be asked for", err)
				return false
			}
			waiting = waiting || known && a.Result == store.Pending
		}
	}
	class := chain.Known
	if !waiting && now.Sub(last) >= d.o.ResendAfter {
		v.pushed[current.ID] = now
		var receipt *types.Receipt
		if receipt, class = d.push(ctx, current, last.IsZero()); receipt != nil {
			return d.land(ctx, j, current, receipt, v)
		}
	}
	old := d.o.Now().Sub(current.Created) >= d.o.BumpAfter
	switch {
	case class == chain.Other || class == chain.Reverted:
		if v.refusals++; v.refusals >= refusedTries && !current.Cancels {
			d.replace(ctx, j, current, v, d.cancel)
		}
	case class == chain.Underpriced, old:
		if now.Sub(v.replaced) < d.o.BumpAfter && !(class == chain.Underpriced && now.Sub(v.replaced) >= 2*d.o.ResendAfter) {
			return false
		}
		d.overtake(ctx, j, current, v)
	case class == chain.NonceTooLow:
		d.overtake(ctx, j, current, v)
	}
	return false
}

// overtake replaces a pending transaction by one that pays more, if its nonce is the next to be mined; or finds out who took its nonce.
func (d *dispatcher) overtake(ctx context.Context, j store.Job, current store.Attempt, v *voyage) {
	next, err := d.o.Read.NonceAt(ctx, current.Signer, false)
	if err != nil {
		d.complain(ctx, "the account's nonce cannot be asked for", err)
		return
	}
	switch {
	case next > uint64(current.Nonce):
		if time.Since(v.asked) < 2*d.o.ResendAfter {
			return
		}
		v.asked = time.Now()
		if d.nonceLost(ctx, current, v) {
			held, err := d.o.Store.NonceLost(ctx, d.owner(row{j.Kind, j.ID}), current.Signer, current.Nonce)
			if err != nil {
				d.complain(ctx, "a lost nonce cannot be noted", err)
			} else if held {
				d.log.Warn("a transaction that is none of ours was mined with our nonce: is the key used elsewhere?", zap.Int64("nonce", current.Nonce))
				d.metrics.nonceOccupied.Inc()
				d.nonces.atLeast(next) // else each of the next requests would find its nonce used
			}
		}
	case next == uint64(current.Nonce):
		make := func(nonce uint64, fee chain.Fee) (store.Attempt, error) { return d.again(current, nonce, fee) }
		d.replace(ctx, j, current, v, make)
	}
}

// replace stores and sends a transaction with the nonce of a pending one and a higher fee.
func (d *dispatcher) replace(ctx context.Context, j store.Job, current store.Attempt, v *voyage, make func(nonce uint64, fee chain.Fee) (store.Attempt, error)) {
	market, err := d.fee(ctx)
	if err != nil && !errors.Is(err, chain.ErrFeeCeiling) {
		d.complain(ctx, "the fee cannot be asked for", err)
		return
	}
	v.replaced = time.Now()
	fee, err := d.o.Fees.Bump(feeOf(current), market)
	if err != nil {
		d.complain(ctx, "a transaction waits and may not pay more", err, zap.Int64("nonce", current.Nonce))
		return
	}
	a, err := make(uint64(current.Nonce), fee)
	if err == nil {
		var added bool
		if added, err = d.o.Store.AddAttempt(ctx, d.owner(row{j.Kind, j.ID}), a); added {
			d.metrics.replacements.Inc()
		}
	}
	if err != nil && !errors.Is(err, store.ErrNonce) {
		d.complain(ctx, "a transaction cannot be replaced", err)
	}
}

// renew gives a row whose transactions are all lost a new one with a new nonce.
func (d *dispatcher) renew(ctx context.Context, j store.Job, last store.Attempt) {
	fee, err := d.fee(ctx)
	if err != nil {
		d.complain(ctx, "the fee cannot be asked for", err)
		return
	}
	nonce := d.nonces.take()
	a, err := d.again(last, nonce, fee)
	if err == nil {
		var added bool
		if added, err = d.o.Store.AddAttempt(ctx, d.owner(row{j.Kind, j.ID}), a); err == nil && !added {
			d.nonces.giveBack(nonce)
		}
	}
	if err != nil {
		d.complain(ctx, "a transaction cannot be stored", err) // its nonce may be: the next one
	}
}

// land stores what a mined transaction of a row in flight says. True: the row has been handed on.
func (d *dispatcher) land(ctx context.Context, j store.Job, a store.Attempt, receipt *types.Receipt, v *voyage) bool {
	at := store.Block{Number: receipt.BlockNumber.Int64(), Hash: store.Hash(receipt.BlockHash)}
	if !d.stands(ctx, at) {
		return false
	}
	d.o.pass(pointMined)
	hash := store.Hash(a.Hash)
	if receipt.Status == types.ReceiptStatusSuccessful && !a.Cancels {
		if ref, ok := fhevm.RequestReference(j.Kind, d.o.contract(j.Kind), receipt.Logs); ok {
			return d.received(ctx, j, hash, at, store.Hash(ref))
		}
	}
	cause, reason := fhevm.CauseTransactionFailed, reasonRefused
	switch {
	case a.Cancels:
	case receipt.Status == types.ReceiptStatusSuccessful:
		reason = "The gateway chain took the transaction but made no request of it"
	default:
		revert, known := d.whyReverted(ctx, a, at)
		if v.reasons++; !known && v.reasons < 5 {
			return false
		}
		cause, reason = revert.Cause, revert.Reason
	}
	if _, err := d.o.Store.Mined(ctx, hash, at, receipt.Status != types.ReceiptStatusSuccessful); err != nil {
		d.complain(ctx, "a mined transaction cannot be noted", err)
		return false
	}
	if !d.stillStands(ctx, hash, at) {
		return false
	}
	d.o.pass(pointFailed)
	d.fail(ctx, j, cause, reason)
	return true
}

// received stores a receipt with a request in it, and applies the events that came before.
func (d *dispatcher) received(ctx context.Context, j store.Job, hash store.Hash, at store.Block, ref store.Hash) bool {
	moved, early, err := d.o.Store.Receipt(ctx, j.Kind, j.ID, hash, at, ref)
	d.o.pass(pointReceived)
	if err != nil {
		d.complain(ctx, "a receipt cannot be stored", err)
		return false
	}
	if moved {
		d.metrics.moved(d.o.Now(), j, fhevm.StateReceiptReceived)
	}
	d.welcome(ctx, j.Kind, j.ID, early)
	d.stillStands(ctx, hash, at) // if not it is adrift, and rescued
	d.release(row{j.Kind, j.ID})
	return true
}

// welcome applies the events that came for a reference id before its request had it.
func (d *dispatcher) welcome(ctx context.Context, k fhevm.Kind, id int64, early []store.EarlyEvent) {
	d.applyEarly(ctx, early)
	if k == fhevm.KindUserDecrypt {
		d.counter.add(id)
	}
}

// stands tells whether a block is on the chain, with as many blocks above it as are asked for.
func (d *dispatcher) stands(ctx context.Context, at store.Block) bool {
	if d.o.Confirmations > 0 {
		head, err := d.o.Read.Head(ctx)
		if err != nil || head.Number-at.Number < d.o.Confirmations {
			return false
		}
	}
	h, err := d.o.Read.HeaderByNumber(ctx, at.Number)
	return err == nil && store.Hash(h.Hash) == at.Hash
}

// stillStands looks again after something was stored that hangs on a block: who reads the chain may have passed the block before, and would not notice
// that another took its place in between.
func (d *dispatcher) stillStands(ctx context.Context, hash store.Hash, at store.Block) bool {
	h, err := d.o.Read.HeaderByNumber(ctx, at.Number)
	if err != nil && !errors.Is(err, chain.ErrNotFound) || err == nil && store.Hash(h.Hash) == at.Hash {
		return true
	}
	if err := d.o.Store.Unmined(ctx, hash); err != nil {
		d.complain(ctx, "a transaction whose block is gone cannot be noted", err)
	}
	return false
}

// whyReverted asks why a transaction reverted, in the state of its block and then of the one before.
func (d *dispatcher) whyReverted(ctx context.Context, a store.Attempt, at store.Block) (revert fhevm.Revert, known bool) {
	revert = fhevm.Revert{Cause: fhevm.CauseReverted, Reason: "The gateway chain reverted the transaction"}
	var tx types.Transaction
	if err := tx.UnmarshalBinary(a.Raw); err != nil {
		return revert, true
	}
	for _, number := range []int64{at.Number, at.Number - 1} {
		_, err := d.o.Read.Call(ctx, a.Signer, *tx.To(), tx.Data(), chain.AtBlock(number), tx.Gas())
		if r, reverted := chain.Revert(err); reverted {
			return r, true
		}
		if err != nil {
			d.complain(ctx, "the reason of a revert cannot be asked for", err)
			return revert, false
		}
	}
	return revert, true
}

// sure is how often a nonce has to be found used, with no receipt on any node, where the transaction that has it cannot be found.
const sure = 10

// nonceLost reports whether a pending transaction's nonce has been used for good by one that is none of ours. A node that only says so proves nothing:
// the transaction is looked for. Where it is too far back to be found, the final chain has to have the nonce and no node a receipt of ours,
// again and again.
func (d *dispatcher) nonceLost(ctx context.Context, a store.Attempt, v *voyage) bool {
	head, err := d.o.Read.Head(ctx)
	if err != nil {
		d.complain(ctx, "the chain's head cannot be asked for", err)
		return false
	}
	final := d.final(ctx, head)
	hash, at, err := d.minedWith(ctx, a.Signer, uint64(a.Nonce), max(0, head.Number-d.o.blocksBack, v.searched-finalDepth), head.Number)
	if errors.Is(err, chain.ErrNotFound) {
		v.searched = head.Number
	}
	switch {
	case err == nil:
		v.used = 0
		_, err := d.o.Store.AttemptByHash(ctx, hash)
		return errors.Is(err, store.ErrNotFound) && at <= final // had it gone with its block, ours could still be mined beside its successor
	case !errors.Is(err, chain.ErrNotFound):
		d.complain(ctx, "it cannot be found out who has a nonce", err)
		return false
	}
	if n, err := d.o.Read.NonceAtBlock(ctx, a.Signer, max(0, final)); err != nil || n <= uint64(a.Nonce) {
		v.used = 0
		return false
	}
	attempts, err := d.o.Store.Attempts(ctx, a.Kind, a.JobID)
	if err != nil {
		return false
	}
	for _, other := range attempts {
		if _, err := d.o.Read.ReceiptFromAny(ctx, common.Hash(other.Hash)); !errors.Is(err, chain.ErrNotFound) {
			v.used = 0
			return false
		}
	}
	v.used++
	return v.used >= sure
}

// finalDepth is how many blocks above one make it final on a chain that does not say.
const finalDepth = 64

// final returns the number of the newest block that stays.
func (d *dispatcher) final(ctx context.Context, head chain.Header) int64 {
	if h, err := d.o.Read.HeaderByTag(ctx, string(chain.Finalized)); err == nil {
		return h.Number
	}
	return head.Number - finalDepth
}

// minedWith finds the transaction that was mined with a nonce of an account, and its block, among the blocks low and high and all between; else it is
// chain.ErrNotFound.
func (d *dispatcher) minedWith(ctx context.Context, account common.Address, nonce uint64, low, high int64) (hash store.Hash, at int64, err error) {
	// The block with it is the first after which the account's nonce is above it. States of old blocks may be gone: then block by block.
	for low < high {
		mid := low + (high-low)/2
		n, err := d.o.Read.NonceAtBlock(ctx, account, mid)
		if err != nil {
			break
		}
		if n > nonce {
			high = mid
		} else {
			low = mid + 1
		}
	}
	for number := high; number >= low; number-- {
		txs, err := d.o.Read.TransactionsIn(ctx, number)
		if err != nil {
			return hash, 0, err
		}
		for _, tx := range txs {
			if tx.From == account && tx.Nonce == nonce {
				return store.Hash(tx.Hash), number, nil
			}
		}
	}
	return hash, 0, chain.ErrNotFound
}
