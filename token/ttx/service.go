// Package ttx takes a transaction of a token network's node from its request to its end.
//
//	select   the selector locks the tokens to spend: a lease, since there is no request yet
//	Append   the request is stored as pending, which makes the locks last, all in one database transaction; if a lease ended before,
//	         nothing is stored: somebody else may have the token
//	…        the request is endorsed and goes to the ledger
//	Finish   Confirmed: what it made is stored, what it spent is spent, its locks are gone
//	         Deleted, Orphan: its locks are gone, and what it was to spend can be spent by others
//
// A process may die at any point of this. Before Append the leases end by themselves, see package selector; after it the transaction stays
// pending until package recovery, for which [Service.Finish] is the Finality, finds out how it ended.
//
// All of this is one database transaction each where transactions, tokens and locks share a database. Where they do not, the order of the
// writes is such that whatever is repeated or swept up later comes to the same.
package ttx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dongate/token"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
	"dongate/token/tokens"
	"dongate/token/ttxdb"
)

// ErrLocksLost: the transaction does not hold the locks of all tokens of ours that it spends, be it that they were never taken or that their
// leases ended. It is not stored; select again, under another transaction id.
var ErrLocksLost = errors.New("ttx: the transaction does not hold the tokens that it spends")

// Stores are what a Service combines.
type Stores struct {
	// Transactions needs Consumers, see ttxdb.ServiceOptions, exactly where it is not in the database of the tokens.
	Transactions *ttxdb.StoreService
	Tokens       *tokendb.Store
	Locks        *tokenlock.Store
}

// Service is the transactions of one TMS as their owner sees them. It is safe for concurrent use.
type Service struct {
	s      Stores
	tokens *tokens.Service
	decode tokens.Decode
}

// New returns a Service. It closes nothing of what it is given.
func New(s Stores, t *tokens.Service, decode tokens.Decode) *Service { return &Service{s, t, decode} }

// Append stores a transaction as pending, with its records, and with metadata of the application's that are on no ledger. Those of its
// inputs that our wallets own must be unspent, else token.ErrTokenSpent, and locked by it, else ErrLocksLost. The same again changes
// nothing, whatever became of the transaction since.
//
// Locks are counted: a transaction that holds tokens it does not spend may miss others unnoticed. Give those back before.
func (s *Service) Append(ctx context.Context, tx *tokens.Transaction, application map[string][]byte) error {
	if err := s.append(ctx, tx, application); err != nil {
		return fmt.Errorf("appending transaction %.200q: %w", tx.TxID, err)
	}
	return nil
}

func (s *Service) append(ctx context.Context, tx *tokens.Transaction, application map[string][]byte) error {
	e, err := s.tokens.Effect(ctx, tx)
	if err != nil {
		return err
	}
	e.Request.ApplicationMetadata = application
	switch is, _, err := s.s.Transactions.GetStatus(ctx, tx.TxID); {
	case err != nil:
		return err
	case is != token.Unknown: // a replay; the locks may be gone already
		return s.s.Transactions.AppendTransactionRecord(ctx, e.Request)
	}
	if len(e.Spends) > 0 {
		_, spent, err := s.s.Tokens.WhoDeletedTokens(ctx, e.Spends...)
		if err != nil {
			return err
		}
		if i := slices.Index(spent, true); i >= 0 {
			return fmt.Errorf("%w: %s", token.ErrTokenSpent, e.Spends[i])
		}
	}
	err = s.s.Transactions.Append(ctx, e.Request, func(ctx context.Context, x *ttxdb.Tx) error {
		return s.hold(ctx, x, e)
	})
	if errors.Is(err, ErrLocksLost) {
		// Where the status was copied, nothing else would ever free what the transaction holds.
		err = errors.Join(err, s.s.Transactions.SyncConsumer(ctx, tx.TxID))
	}
	return err
}

// hold makes the locks of what the transaction spends last, or fails.
func (s *Service) hold(ctx context.Context, x *ttxdb.Tx, e *tokens.Effect) error {
	txID := e.Request.TxID
	var held int64
	locks, err := s.s.Locks.Continue(x.Shared())
	switch {
	case err == nil:
		held, err = locks.Renew(ctx, txID)
	case errors.Is(err, token.ErrOtherDatabase): // the consumer counts as pending there already, so what it holds now it keeps
		held, err = s.s.Locks.Renew(ctx, txID)
	}
	if err != nil {
		return err
	}
	if held < int64(len(e.Spends)) {
		return fmt.Errorf("%w: it spends %d and holds %d", ErrLocksLost, len(e.Spends), held)
	}
	return nil
}

// Finish gives a transaction its status, with what is to be said about it, and writes what follows: see the package. It is a
// recovery.Finality. To finish again with the same status succeeds; one that ended otherwise is token.ErrAlreadyFinal, one that is not stored
// token.ErrUnknownTransaction, and then nothing is written.
func (s *Service) Finish(ctx context.Context, txID string, status token.TxStatus, message string) error {
	return s.tokens.Finish(ctx, s.s.Transactions, s.decode, txID, status, message, func(ctx context.Context, tx token.Tx) error {
		if status == token.Pending {
			return nil
		}
		locks, err := s.s.Locks.Continue(tx)
		if err == nil {
			_, err = locks.UnlockByTxID(ctx, txID)
		}
		return err
	})
}

// SyncConsumers brings the statuses of transactions to where the locks are, for processes that died in between: of those that hold locks
// olderThan, by the database's clock, and count as pending there. A transaction that was never stored becomes an orphan there, so olderThan
// must be longer than an Append takes. It returns how many it looked at. Where transactions and tokens share a database it does nothing.
func (s *Service) SyncConsumers(ctx context.Context, olderThan time.Duration) (int, error) {
	seen := map[string]bool{}
	for l, err := range s.s.Locks.ListLocks(ctx) {
		if err != nil {
			return 0, err
		}
		if l.Age >= olderThan && l.Status == token.Pending {
			seen[l.ConsumerTxID] = true
		}
	}
	for txID := range seen {
		if err := s.s.Transactions.SyncConsumer(ctx, txID); err != nil {
			return len(seen), err
		}
	}
	return len(seen), nil
}
