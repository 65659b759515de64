// Package rescan rebuilds from the ledger what a token network's node lost: it reads the ledger's transactions in their order and writes
// what each is to this node, with the functions that wrote it the first time. What is there already stays.
//
// It brings back tokens and who owns them, certifications and public parameters that are on the ledger, requests with their status,
// transactions, movements, endorsements and validations. It cannot bring back what is on no ledger: keys, identities and wallets, which
// must be there before since they decide what is ours (see package backup); application metadata; transactions that are pending or
// orphans; locks. What retention removed comes back too.
package rescan

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"dongate/storage"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/endorserdb"
	"dongate/token/tokendb"
	"dongate/token/tokens"
	"dongate/token/ttxdb"
)

// Bounds of what is written in one database transaction.
const (
	DefaultBatch = 100     // transactions; SQLite's other writers wait meanwhile
	maxBatchSize = 8 << 20 // bytes of raw requests; one that is larger is a batch of its own
)

var (
	// ErrConflict: the database has of transactions something else than the ledger: another request, or another end. What the ledger says
	// of tokens was written, what the database says of those transactions stays.
	ErrConflict = errors.New("rescan: the database has of some transactions something else than the ledger")
	// ErrLedger: the ledger broke its contract.
	ErrLedger = errors.New("rescan: the ledger gave what it must not")
)

// Ledger is the ledger's past.
type Ledger interface {
	// Transactions yields the transactions that ended, those of the block from first, block after block, up to the last one. Each is yielded
	// once: if a transaction's id appears again, invalid for that reason, it is left out. What was confirmed and cannot be decoded
	// is an error, which is the last thing yielded.
	Transactions(ctx context.Context, from uint64) iter.Seq2[tokens.Transaction, error]
}

// Owns returns the wallets that own what an identity owns, see tokens.Ours.
type Owns = func(ctx context.Context, owner token.Identity) (walletIDs []string, err error)

// Stores are what is written to. Those that are in one database, by the same handle, are written in one transaction.
type Stores struct {
	Tokens       *tokendb.Store    // must be given
	Transactions *ttxdb.Store      // nil: this node owns and issues nothing
	Audit        *auditdb.Store    // nil: it does not audit
	Validations  *endorserdb.Store // nil: it does not endorse
}

// Options are what a Rescanner is told.
type Options struct {
	Anchor ttxdb.Anchor // which transaction a request was made for; must be given
	Ours   tokens.Ours  // Owns is that of Rescan
	Batch  int          // transactions in one database transaction; 0: DefaultBatch
}

// Progress is how far a rescan is.
type Progress struct {
	Next         uint64 // a rescan from here does the rest
	Transactions int    // read
	Ours         int    // of those, the ones that belong in this node's records
	Conflicts    int    // see ErrConflict
	LeftOut      int    // public parameters older than those that were stored before, which cannot be put behind them
}

// Rescanner rescans. It is safe for concurrent use; two rescans at a time do no harm.
type Rescanner struct {
	s Stores
	o Options
}

// New returns a Rescanner.
func New(s Stores, o Options) (*Rescanner, error) {
	if s.Tokens == nil || o.Anchor == nil {
		return nil, fmt.Errorf("rescan: the store of tokens and the anchor must be given: %w", token.ErrEmptyArgument)
	}
	if o.Batch <= 0 {
		o.Batch = DefaultBatch
	}
	return &Rescanner{s, o}, nil
}

// Rescan reads the ledger from a block to its end and writes what belongs to this node. It may be repeated, also over blocks that were
// written already, and interrupted at any point: what was written is right as far as it goes, and a rescan from Progress.Next, or from
// any block before, does the rest. Tokens made before the block from must be stored for what spends them to be known as ours.
// progress, which may be nil, is called after every batch.
//
// Nothing else need stop meanwhile. A node that writes what the ledger confirms from block n on needs a rescan that ends at n or later.
//
// ErrConflict comes at the end, after everything else was done.
func (r *Rescanner) Rescan(ctx context.Context, ledger Ledger, from uint64, owns Owns, progress func(Progress)) (Progress, error) {
	now := Progress{Next: from}
	if err := r.rescan(ctx, ledger, from, owns, progress, &now); err != nil {
		return now, fmt.Errorf("rescanning from block %d: %w", from, err)
	}
	return now, nil
}

func (r *Rescanner) rescan(ctx context.Context, ledger Ledger, from uint64, owns Owns, progress func(Progress), now *Progress) error {
	ours := r.o.Ours
	ours.Owns = owns
	current, err := r.s.Tokens.PublicParams(ctx)
	if err != nil {
		return err
	}
	w := &writer{Stores: r.s, tokens: tokens.New(r.s.Tokens, ours), params: newParams(current)}
	var batch []*tokens.Transaction
	size, block := 0, from
	flush := func(next uint64) error {
		ours, err := w.write(ctx, batch)
		if err != nil {
			return err
		}
		now.Next, now.Transactions, now.Ours = next, now.Transactions+len(batch), now.Ours+ours
		now.Conflicts, now.LeftOut = w.conflicts, w.params.leftOut
		if len(w.params.waiting) > 0 {
			now.Next = min(next, w.params.since)
		}
		batch, size = nil, 0
		if progress != nil {
			progress(*now)
		}
		return nil
	}
	for tx, err := range ledger.Transactions(ctx, from) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = r.check(&tx, block)
		}
		if err != nil {
			return err
		}
		if len(batch) == r.o.Batch || size > 0 && size+len(tx.Raw) > maxBatchSize {
			if err := flush(block); err != nil {
				return err
			}
		}
		block, size = tx.Block, size+len(tx.Raw)
		batch = append(batch, &tx)
	}
	if len(batch) > 0 {
		if err := flush(block); err != nil {
			return err
		}
		if err := w.end(ctx); err != nil {
			return err
		}
		if now.Next = block + 1; progress != nil {
			progress(*now)
		}
	}
	if w.conflicts > 0 {
		return fmt.Errorf("%w: %d, of which the first is %w", ErrConflict, w.conflicts, w.first)
	}
	return nil
}

// check returns what is wrong with what the ledger yielded.
func (r *Rescanner) check(tx *tokens.Transaction, block uint64) error {
	switch {
	case tx.TxID == "":
		return fmt.Errorf("%w: a transaction without an id in block %d", ErrLedger, tx.Block)
	case tx.Block < block:
		return fmt.Errorf("%w: transaction %.200q of block %d after block %d", ErrLedger, tx.TxID, tx.Block, block)
	case tx.Status != token.Confirmed && tx.Status != token.Deleted:
		return fmt.Errorf("%w: transaction %.200q is %s", ErrLedger, tx.TxID, tx.Status)
	}
	return errors.Join(r.o.Anchor.Check(tx.TxID, tx.Raw), storage.CheckPayload("public parameters", tx.PublicParams))
}
