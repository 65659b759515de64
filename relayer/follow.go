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
	f := &follower{dispatcher: d, span: min(16, d.o.MaxBlocksPerQuery)} // it doubles: a term may be short, and a node slow
	for {
		err := errors.Join(d.applyWaiting(ctx), d.gather(ctx))
		if err == nil {
			break
		}
		d.complain(ctx, "what an earlier dispatcher left cannot be taken up", err)
		if !sleep(ctx, time.Second) {
			return
		}
	}
	for {
		moved, err := f.step(ctx)
		if err != nil {
			d.complain(ctx, "the chain's events cannot be read", err)
		} else if moved {
			continue
		}
		select {
		case <-d.hint:
		case <-time.After(d.o.PollInterval):
		case <-ctx.Done():
			return
		}
	}
}

// follower is the one goroutine that moves the cursor.
type follower struct {
	*dispatcher
	span int64     // most blocks in one question
	head int64     // that was seen last
	seen time.Time // when it was seen first
}

// stuck is how long a chain's head may stay the same before another node is asked.
const stuck = time.Minute

// look notes the chain's head and tells those who wait for it to move.
func (f *follower) look(head chain.Header) {
	f.metrics.head.Set(float64(head.Number))
	f.metrics.headTime.Set(float64(head.Time))
	switch {
	case head.Number != f.head:
		f.head, f.seen = head.Number, time.Now()
		f.heads.tell()
	case time.Since(f.seen) > stuck:
		f.seen = time.Now()
		f.o.Read.Demote()
	}
}

// step reads and stores the next blocks, and reports whether there were any.
func (f *follower) step(ctx context.Context) (moved bool, err error) {
	asked := f.o.Now()
	head, err := f.o.Read.Head(ctx)
	if err != nil {
		return false, err
	}
	f.look(head)
	cursor, err := f.o.Store.Cursor(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return f.start(ctx, head)
	}
	if err != nil {
		return false, err
	}
	f.metrics.cursor.Set(float64(cursor.Number))
	f.begun()
	to := min(head.Number-f.o.Confirmations, cursor.Number+f.span)
	if to <= cursor.Number {
		gone, err := f.gone(ctx, cursor)
		if err != nil {
			return false, err
		}
		if gone {
			return true, f.rewind(ctx, cursor)
		}
		f.caughtUp.Store(asked.UnixNano())
		return false, nil
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
		if err := f.apply(ctx, l); err != nil {
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
	} else if err := d.apply(ctx, l); err != nil {
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
