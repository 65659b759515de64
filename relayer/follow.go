package relayer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"

	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// keepBlocks is how far back blocks are remembered for re-organisations.
const keepBlocks = 4096

// addresses are the contracts whose events are read.
func (d *dispatcher) addresses() []common.Address {
	return []common.Address{d.o.Decryption, d.o.InputVerification}
}

// follow reads the chain's events behind the cursor until ctx ends.
func (d *dispatcher) follow(ctx context.Context) {
	f := &follower{dispatcher: d, span: d.o.MaxBlocksPerQuery, unresolved: map[store.Hash]struct{}{}}
	for {
		err := errors.Join(d.applyWaiting(ctx), f.gather(ctx))
		if err == nil {
			break
		}
		d.complain(ctx, "what an earlier dispatcher left cannot be taken up", err)
		if !sleep(ctx, time.Second) {
			return
		}
	}
	for {
		next := d.heads.next()
		moved, err := f.step(ctx)
		switch {
		case err != nil:
			d.complain(ctx, "the chain's events cannot be read", err)
		case moved:
			d.heads.tell()
			continue
		}
		select {
		case <-next:
		case <-time.After(d.o.PollInterval):
		case <-ctx.Done():
			return
		}
	}
}

// follower is the one goroutine that moves the cursor.
type follower struct {
	*dispatcher
	span       int64                   // most blocks in one question
	unresolved map[store.Hash]struct{} // user decryptions whose threshold could not be asked for
	resolved   time.Time               // when they were last tried
}

// step reads and stores the next blocks, and reports whether there were any.
func (f *follower) step(ctx context.Context) (moved bool, err error) {
	f.resolve(ctx)
	head, err := f.o.Read.Head(ctx)
	if err != nil {
		return false, err
	}
	f.metrics.head.Set(float64(head.Number))
	cursor, err := f.o.Store.Cursor(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return f.start(ctx, head)
	}
	if err != nil {
		return false, err
	}
	f.metrics.cursor.Set(float64(cursor.Number))
	to := min(head.Number-f.o.Confirmations, cursor.Number+f.span)
	if to <= cursor.Number {
		gone, err := f.gone(ctx, cursor)
		if err != nil || !gone {
			return false, err
		}
		return true, f.rewind(ctx, cursor)
	}
	last := head
	if to != head.Number {
		if last, err = f.o.Read.HeaderByNumber(ctx, to); err != nil {
			return false, err
		}
	}
	logs, err := f.o.Read.Logs(ctx, cursor.Number+1, to, f.addresses(), fhevm.ResponseTopics())
	if err != nil {
		// Whether it was too much to answer, or to answer in time: less may do.
		f.span = max(1, (to-cursor.Number)/2)
		if errors.Is(err, chain.ErrTooMany) && to > cursor.Number+1 {
			return true, nil
		}
		return false, err
	}
	// What was read is of one chain if both ends are still on it.
	again, err := f.o.Read.HeaderByNumber(ctx, to)
	if err != nil {
		return false, err
	}
	gone, err := f.gone(ctx, cursor)
	if err != nil {
		return false, err
	}
	switch {
	case gone:
		return true, f.rewind(ctx, cursor)
	case again.Hash != last.Hash:
		return true, nil
	}
	end := store.Block{Number: to, Hash: store.Hash(last.Hash)}
	blocks := []store.Block{end}
	for _, l := range logs {
		if b := (store.Block{Number: int64(l.BlockNumber), Hash: store.Hash(l.BlockHash)}); b != blocks[len(blocks)-1] {
			blocks = append(blocks, b)
		}
	}
	if err := f.o.Store.RememberBlocks(ctx, blocks); err != nil {
		return false, err
	}
	if err := f.compare(ctx, cursor.Number+1, to); err != nil {
		return false, err
	}
	for _, l := range logs {
		if err := f.apply(ctx, l, f.unresolved); err != nil {
			return false, fmt.Errorf("the event %d of the block %d: %w", l.Index, l.BlockNumber, err)
		}
	}
	moved, err = f.o.Store.MoveCursor(ctx, f.term, cursor, end)
	if err != nil {
		return false, err
	}
	if !moved {
		return false, errors.New("the cursor is another dispatcher's")
	}
	f.o.pass(pointCursor)
	f.metrics.cursor.Set(float64(to))
	f.span = min(f.o.MaxBlocksPerQuery, 2*f.span)
	return true, f.o.Store.ForgetBlocks(ctx, to-keepBlocks)
}

// start sets the cursor of a database that has none.
func (f *follower) start(ctx context.Context, head chain.Header) (bool, error) {
	at := head
	if f.o.StartBlock > 0 {
		var err error
		if at, err = f.o.Read.HeaderByNumber(ctx, f.o.StartBlock-1); err != nil {
			return false, fmt.Errorf("the block before the first: %w", err)
		}
	}
	return f.o.Store.StartCursor(ctx, f.term, store.Block{Number: at.Number, Hash: store.Hash(at.Hash)})
}

// gone tells whether another block is in the place of this one. A chain that is not there yet has not lost it.
func (f *follower) gone(ctx context.Context, b store.Block) (bool, error) {
	h, err := f.o.Read.HeaderByNumber(ctx, b.Number)
	if err != nil {
		if errors.Is(err, chain.ErrNotFound) {
			return f.shrunk(ctx, b)
		}
		return false, err
	}
	return store.Hash(h.Hash) != b.Hash, nil
}

// shrunk tells of a block that the node does not have whether the chain has become shorter, which a re-organisation does for a moment: then the newest
// remembered block below the head is another's. A node that is only behind has all of those.
func (f *follower) shrunk(ctx context.Context, b store.Block) (bool, error) {
	head, err := f.o.Read.Head(ctx)
	if err != nil {
		return false, err
	}
	if head.Number >= b.Number {
		return false, chain.ErrNotFound // it has come meanwhile
	}
	known, err := f.o.Store.RememberedBlocks(ctx, head.Number, 1)
	if err != nil {
		return false, err
	}
	if len(known) == 1 {
		h, err := f.o.Read.HeaderByNumber(ctx, known[0].Number)
		if err != nil {
			return false, err
		}
		if store.Hash(h.Hash) != known[0].Hash {
			return true, nil
		}
	}
	return false, errors.New("the node is behind what was read already")
}

// rewind takes back the blocks that are no longer on the chain, and sets the cursor before them.
func (f *follower) rewind(ctx context.Context, cursor store.Block) error {
	f.metrics.reorgs.Inc()
	var drop []store.Block
	from := cursor.Number
	for to := cursor.Number; ; {
		known, err := f.o.Store.RememberedBlocks(ctx, to, 100)
		if err != nil {
			return err
		}
		for _, b := range known {
			h, err := f.o.Read.HeaderByNumber(ctx, b.Number)
			if err != nil && !errors.Is(err, chain.ErrNotFound) {
				return err
			}
			if err == nil && store.Hash(h.Hash) == b.Hash {
				return f.takeBack(ctx, cursor, b, drop)
			}
			drop, from, to = append(drop, b), b.Number, b.Number-1
		}
		if len(known) < 100 {
			break
		}
	}
	h, err := f.o.Read.HeaderByNumber(ctx, max(0, from-1))
	if err != nil {
		return err
	}
	f.log.Warn("a re-organisation goes back further than is remembered", zap.Int64("block", from))
	return f.takeBack(ctx, cursor, store.Block{Number: h.Number, Hash: store.Hash(h.Hash)}, drop)
}

func (f *follower) takeBack(ctx context.Context, cursor, to store.Block, drop []store.Block) error {
	f.log.Info("the chain was re-organised", zap.Int64("from", to.Number), zap.Int64("to", cursor.Number))
	// The cursor first: whoever dies in between reads the blocks again, and finds those to drop by their numbers.
	if moved, err := f.o.Store.MoveCursor(ctx, f.term, cursor, to); err != nil || !moved {
		return errors.Join(err, errIf(!moved && err == nil, "the cursor is another dispatcher's"))
	}
	for _, b := range drop {
		if err := f.o.Store.DropBlock(ctx, b.Hash); err != nil {
			return err
		}
	}
	return nil
}

func errIf(is bool, text string) error {
	if is {
		return errors.New(text)
	}
	return nil
}

// compare finds what hangs on blocks from a number on that are not on the chain: transactions are then pending again and their requests without a number,
// and what blocks up to another number brought goes. It comes before the events are stored, so that no answer meets a request by a number that it
// had on a chain that is gone.
func (f *follower) compare(ctx context.Context, from, to int64) error {
	hashes := map[int64]store.Hash{}
	stands := func(b store.Block) (bool, error) {
		if _, known := hashes[b.Number]; !known {
			h, err := f.o.Read.HeaderByNumber(ctx, b.Number)
			if err != nil && !errors.Is(err, chain.ErrNotFound) { // a block that the node does not have is no proof that the transaction is mined
				return false, err
			}
			hashes[b.Number] = store.Hash(h.Hash)
		}
		return hashes[b.Number] == b.Hash, nil
	}
	for after := int64(0); ; {
		attempts, err := f.o.Store.MinedSince(ctx, from, after, 1000)
		if err != nil {
			return err
		}
		for _, a := range attempts {
			after = a.ID
			if ok, err := stands(a.Block); err != nil {
				return err
			} else if !ok {
				if err := f.o.Store.Unmined(ctx, a.Hash); err != nil {
					return err
				}
				f.log.Info("a transaction's block is gone", zap.String("tx", common.Hash(a.Hash).Hex()))
			}
		}
		if len(attempts) < 1000 {
			break
		}
	}
	known, err := f.o.Store.RememberedBlocks(ctx, to, int(min(to-from+100, 1000))) // with those of chains that are gone, of one number
	if err != nil {
		return err
	}
	for _, b := range known {
		if b.Number < from {
			break
		}
		if ok, err := stands(b); err != nil {
			return err
		} else if !ok {
			if err := f.o.Store.DropBlock(ctx, b.Hash); err != nil {
				return err
			}
		}
	}
	return nil
}

// resolve tries again to learn the thresholds of user decryptions that wait for nothing else.
func (f *follower) resolve(ctx context.Context) {
	if len(f.unresolved) == 0 || time.Since(f.resolved) < 5*time.Second {
		return
	}
	f.resolved = time.Now()
	for ref := range f.unresolved {
		if err := f.recount(ctx, ref); err != nil {
			f.complain(ctx, "shares cannot be counted", err)
			return // the chain still does not answer, or the database
		}
		delete(f.unresolved, ref)
	}
}

// recount completes a user decryption whose stored shares are enough.
func (d *dispatcher) recount(ctx context.Context, ref store.Hash) error {
	shares, err := d.o.Store.Shares(ctx, ref)
	if err != nil {
		return err
	}
	for _, sh := range shares {
		decoded, err := fhevm.DecodeShare(sh.Share, sh.Signature, sh.ExtraData)
		if err != nil {
			continue
		}
		threshold, err := d.o.Thresholds.Resolve(ctx, decoded.ExtraData)
		if errors.Is(err, fhevm.ErrABI) {
			continue
		}
		if err != nil {
			return err
		}
		switch out, err := d.o.Store.Recount(ctx, ref, threshold); {
		case errors.Is(err, store.ErrNotFound): // its request has another number by now
			return nil
		case err != nil:
			return err
		case out == store.Completes:
			d.metrics.completed(fhevm.KindUserDecrypt)
			return nil
		}
	}
	return nil
}

// gather finds the user decryptions whose shares may be enough, but were stored before their threshold was known.
func (f *follower) gather(ctx context.Context) error {
	for after := int64(0); ; {
		refs, last, err := f.o.Store.Gathering(ctx, after, 1000)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			f.unresolved[ref] = struct{}{}
		}
		if len(refs) < 1000 {
			return nil
		}
		after = last
	}
}

// applyEarly applies events that waited for their request.
func (d *dispatcher) applyEarly(ctx context.Context, early []store.EarlyEvent) {
	for _, e := range early {
		if err := d.applyStored(ctx, e); err != nil {
			d.complain(ctx, "an early event cannot be applied", err)
			return // found again at the start of a term
		}
	}
}

func (d *dispatcher) applyStored(ctx context.Context, e store.EarlyEvent) error {
	var l types.Log
	if err := l.UnmarshalJSON(e.Data); err != nil {
		d.complain(ctx, "a stored event cannot be read", err)
	} else if err := d.apply(ctx, l, nil); err != nil {
		return err
	}
	return d.o.Store.DropEarly(ctx, e.ID)
}

// applyWaiting applies what a process that died between a receipt and its events left behind.
func (d *dispatcher) applyWaiting(ctx context.Context) error {
	for _, k := range fhevm.Kinds {
		for {
			early, err := d.o.Store.EarlyMatched(ctx, k, 1000)
			if err != nil {
				return err
			}
			for _, e := range early {
				if err := d.applyStored(ctx, e); err != nil {
					return err
				}
			}
			if len(early) < 1000 {
				break
			}
		}
	}
	return nil
}
