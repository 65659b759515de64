// Package selector picks tokens of a wallet for a payment and locks them, so that no two payments get the same token, on however many
// machines they are made.
//
// It takes the smallest tokens first and locks each batch as it goes; the lock decides, whatever the list said. It behaves as the
// sherdlock selector does, with three differences. It reads the wallet in windows in the order of an index and keeps no snapshot. After a
// lost race it looks again, at more tokens, since fresh candidates cost less than what stale ones cost in conflicts. And it locks nothing
// more of a wallet that cannot pay.
//
// That a wallet cannot pay is true as long as what a transaction spends and what it makes are written together, see [token.Tx]: else there
// is a moment at which the wallet has neither.
package selector

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"dongate/token"
)

// Errors of a selection, for errors.Is.
var (
	// ErrInsufficientFunds: what the wallet can spend, now or once it is not locked any more, is not worth the target.
	ErrInsufficientFunds = errors.New("selector: insufficient funds")
	// ErrSufficientButLockedFunds: the wallet could pay, but other transactions hold its tokens. Try again later.
	ErrSufficientButLockedFunds = errors.New("selector: sufficient funds, but they are locked")
	// ErrTarget: the target is not above zero.
	ErrTarget = errors.New("selector: the target is not above zero")
)

// Defaults of [Options].
const (
	DefaultRetries          = 3
	DefaultRetryInterval    = 5 * time.Second
	DefaultImmediateRetries = 5
	DefaultReleaseTimeout   = 10 * time.Second
)

// The first window has tokens for most payments; those that follow have more, up to the largest.
const (
	firstWindow = 64
	maxWindow   = 512
)

// Tokens is what a selector reads; tokendb.Store has it.
type Tokens interface {
	QuerySpendableTokens(ctx context.Context, q token.SpendableQuery) iter.Seq2[token.Spendable, error]
	HasEnoughSpendableTokens(ctx context.Context, wallet, tokenType string, target *big.Int) (bool, error)
}

// Locks is who decides whose a token is; tokenlock.Store has it.
type Locks interface {
	LockBatch(ctx context.Context, consumerTxID, wallet string, ids ...token.ID) ([]token.ID, error)
	Unlock(ctx context.Context, consumerTxID string, ids ...token.ID) error
	UnlockByTxID(ctx context.Context, consumerTxID string) (int64, error)
}

// Options are what a Selector may be told; the zero value will do.
type Options struct {
	Retries          int           // after a pause; 0: DefaultRetries, below: none
	RetryInterval    time.Duration // the pause is a random part of it; 0: DefaultRetryInterval
	ImmediateRetries int           // without a pause, after a lost race; 0: DefaultImmediateRetries, below: none
	ReleaseTimeout   time.Duration // to give back locks after an error or the context's end; 0: DefaultReleaseTimeout
	// Int64N returns a random number from 0 to below n, for any goroutine; nil: that of math/rand/v2.
	Int64N func(n int64) int64
}

// Selector picks tokens. It is safe for concurrent use, but a transaction must not have two selections at a time.
type Selector struct {
	tokens Tokens
	locks  Locks
	o      Options
	stats  struct{ selections, attempts, conflicts, pauses atomic.Uint64 }
}

// New returns a Selector of these tokens and locks.
func New(tokens Tokens, locks Locks, o Options) *Selector {
	o.Retries = orDefault(o.Retries, DefaultRetries)
	o.ImmediateRetries = orDefault(o.ImmediateRetries, DefaultImmediateRetries)
	if o.RetryInterval <= 0 {
		o.RetryInterval = DefaultRetryInterval
	}
	if o.ReleaseTimeout <= 0 {
		o.ReleaseTimeout = DefaultReleaseTimeout
	}
	if o.Int64N == nil {
		o.Int64N = rand.Int64N
	}
	return &Selector{tokens: tokens, locks: locks, o: o}
}

func orDefault(v, standard int) int {
	switch {
	case v == 0:
		return standard
	case v < 0:
		return 0
	}
	return v
}

// Stats counts what a Selector did since it was made.
type Stats struct {
	Selections uint64 // begun
	Attempts   uint64 // tokens tried to lock
	Conflicts  uint64 // of those, tokens that somebody else had
	Pauses     uint64
}

// Stats returns the counts.
func (s *Selector) Stats() Stats {
	return Stats{s.stats.selections.Load(), s.stats.attempts.Load(), s.stats.conflicts.Load(), s.stats.pauses.Load()}
}

// Select locks tokens of the wallet and type for the transaction that are worth the target or more together, the smallest first, and returns
// them with what they are worth. Where it fails it has given back what it locked, save after a failure of the database, and leaves alone what the
// transaction held before. ErrInsufficientFunds comes without a pause; ErrSufficientButLockedFunds after the last.
func (s *Selector) Select(ctx context.Context, consumerTxID, wallet, tokenType string, target *big.Int) ([]token.ID, *big.Int, error) {
	s.stats.selections.Add(1)
	if target == nil || target.Sign() <= 0 {
		return nil, nil, fmt.Errorf("%w: %s", ErrTarget, target)
	}
	if consumerTxID == "" || wallet == "" || tokenType == "" {
		return nil, nil, fmt.Errorf("selecting tokens without a transaction, a wallet or a type: %w", token.ErrEmptyArgument)
	}
	for attempt := 0; ; attempt++ {
		try := &selection{s: s, consumer: consumerTxID, wallet: wallet, tokenType: tokenType, target: target, sum: new(big.Int), passed: map[token.ID]bool{}}
		err := try.run(ctx)
		if err == nil && try.reached() {
			return try.held, try.sum, nil
		}
		if freed := s.release(ctx, consumerTxID, append(try.held, try.unsure...)); freed != nil {
			err = errors.Join(err, freed)
		}
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("selecting tokens for transaction %s: %w", consumerTxID, err)
		case attempt >= s.o.Retries:
			return nil, nil, fmt.Errorf("selecting %s of wallet %s: %w", tokenType, wallet, ErrSufficientButLockedFunds)
		}
		s.stats.pauses.Add(1)
		if err := pause(ctx, time.Duration(s.o.Int64N(int64(s.o.RetryInterval)))); err != nil {
			return nil, nil, fmt.Errorf("selecting tokens for transaction %s: %w", consumerTxID, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release gives back locks, also when the context has ended.
func (s *Selector) release(ctx context.Context, consumerTxID string, ids []token.ID) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.ReleaseTimeout)
	defer cancel()
	return s.locks.Unlock(ctx, consumerTxID, ids...)
}

// Unselect gives back everything that the transaction holds: it has ended, or will not be.
func (s *Selector) Unselect(ctx context.Context, consumerTxID string) error {
	_, err := s.locks.UnlockByTxID(ctx, consumerTxID)
	return err
}

// selection is one way through the wallet.
type selection struct {
	s                           *Selector
	consumer, wallet, tokenType string
	target                      *big.Int

	sum    *big.Int
	held   []token.ID
	unsure []token.ID        // a batch of which it is not known whether it is held
	passed map[token.ID]bool // held, or somebody else's
}

func (t *selection) reached() bool { return t.sum.Cmp(t.target) >= 0 }

// run locks tokens until the target is reached or the wallet has no more. After a lost race it looks again at once, for a while: what else it
// has read may be lost as well.
func (t *selection) run(ctx context.Context) error {
	checked := false
	looks := t.s.o.ImmediateRetries
	q := token.SpendableQuery{WalletID: t.wallet, Type: t.tokenType, Order: token.Ascending, Limit: firstWindow}
	for {
		window, err := t.window(ctx, q)
		if err != nil {
			return err
		}
		full := len(window) == q.Limit
		var last token.Spendable
		if full {
			last = window[len(window)-1]
		}
		lost, err := t.lock(ctx, window, looks > 0)
		if err != nil || t.reached() {
			return err
		}
		if lost && looks > 0 {
			looks--
			q.Limit = min(4*q.Limit, maxWindow) // there is more to choose from among equal ones
			continue
		}
		// The first window did not do. Before more of the wallet is locked, and before anybody waits: can it pay at all?
		if !checked {
			if err := t.affordable(ctx); err != nil {
				return err
			}
			checked = true
		}
		if !full {
			return nil
		}
		q.After, q.Limit = &last, min(2*q.Limit, maxWindow)
	}
}

// affordable returns ErrInsufficientFunds unless the wallet could pay if nothing were locked.
func (t *selection) affordable(ctx context.Context) error {
	enough, err := t.s.tokens.HasEnoughSpendableTokens(ctx, t.wallet, t.tokenType, t.target)
	if err == nil && !enough {
		err = fmt.Errorf("%s of wallet %s: %w", t.tokenType, t.wallet, ErrInsufficientFunds)
	}
	return err
}

// window reads candidates.
func (t *selection) window(ctx context.Context, q token.SpendableQuery) ([]token.Spendable, error) {
	all := make([]token.Spendable, 0, q.Limit)
	for v, err := range t.s.tokens.QuerySpendableTokens(ctx, q) {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// lock locks candidates in their order, as many at a time as are needed, until the target is reached or, if told so, somebody else had one.
func (t *selection) lock(ctx context.Context, window []token.Spendable, stop bool) (lost bool, err error) {
	t.shuffle(window)
	for len(window) > 0 && !t.reached() && !(lost && stop) {
		var batch []token.ID
		worth := map[token.ID]*big.Int{}
		expected := new(big.Int).Set(t.sum)
		for len(window) > 0 && expected.Cmp(t.target) < 0 {
			if v := window[0]; !t.passed[v.ID] {
				batch = append(batch, v.ID)
				worth[v.ID] = v.Amount
				expected.Add(expected, v.Amount)
				t.passed[v.ID] = true
			}
			window = window[1:]
		}
		if len(batch) == 0 {
			break
		}
		t.s.stats.attempts.Add(uint64(len(batch)))
		won, err := t.s.locks.LockBatch(ctx, t.consumer, t.wallet, batch...)
		if err != nil { // it may have been committed all the same
			t.unsure = batch
			return lost, err
		}
		for _, id := range won {
			t.sum.Add(t.sum, worth[id])
		}
		t.held = append(t.held, won...)
		lost = lost || len(won) < len(batch)
		t.s.stats.conflicts.Add(uint64(len(batch) - len(won)))
	}
	return lost, nil
}

// shuffle changes the order of tokens of equal amount, so that not everybody wants the same ones first.
func (t *selection) shuffle(window []token.Spendable) {
	for begin := 0; begin < len(window); {
		end := begin + 1
		for end < len(window) && window[end].Amount.Cmp(window[begin].Amount) == 0 {
			end++
		}
		for i := end - 1; i > begin; i-- {
			j := begin + int(t.s.o.Int64N(int64(i-begin+1)))
			window[i], window[j] = window[j], window[i]
		}
		begin = end
	}
}
