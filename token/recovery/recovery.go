// Package recovery finds out how transactions ended that stayed pending, because the process that waited for them died or was not told.
//
// One process at a time looks: the leader, by a lease. It claims the oldest pending transactions, asks the ledger about each, and hands
// those that ended to whoever writes tokens and sets statuses. One that the ledger does not know becomes an orphan after a time of grace.
// Nothing depends on there being one leader: claims are atomic, and statuses only ever change as they may.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/lease"
)

// ErrNotFound: the ledger does not know the transaction. A [Ledger] returns it, wrapped or not; no text is looked at.
var ErrNotFound = errors.New("recovery: the ledger does not know the transaction")

// ErrStopped is the cause of the contexts that end with Stop.
var ErrStopped = errors.New("recovery: stopped")

// Claims says which pending transactions to claim.
type Claims = records.Claims

// Store has the pending transactions: that of package ttxdb or auditdb.
type Store interface {
	AcquireRecoveryLeadership(ctx context.Context, ttl time.Duration) (*lease.Lease, error)
	ClaimPendingTransactions(ctx context.Context, c Claims) ([]token.PendingTransaction, error)
	ReleaseRecoveryClaim(ctx context.Context, txID, owner, message string) error
}

// Ledger knows how transactions ended.
type Ledger interface {
	// TransactionStatus returns Confirmed or Deleted of a transaction that ended, with what is to be said about it; Pending of one that
	// may yet end; ErrNotFound of one it does not know. Any other error means that it could not tell.
	TransactionStatus(ctx context.Context, txID string) (status token.TxStatus, message string, err error)
}

// Finality writes what follows from a transaction's end, Confirmed, Deleted or Orphan: its tokens and its status. It may be called again
// for the same transaction. token.ErrAlreadyFinal, wrapped or not, means that somebody else did it.
type Finality func(ctx context.Context, txID string, status token.TxStatus, message string) error

// minTimeout is the least that one transaction may be given: less would fail where the ledger is merely slow.
const minTimeout = 10 * time.Second

// Options are what a Service may be told; the zero value will do.
type Options struct {
	OlderThan  time.Duration // how long a transaction must have been pending; 0: 30 s
	Scan       time.Duration // how often to look; 0: 5 s
	Leadership time.Duration // how long the lease of a leader lasts who does not renew it; 0: 30 s
	Batch      int           // how many to claim at once; 0: 16
	Workers    int           // how many to ask about at once; 0: 8
	Lease      time.Duration // how long a claim lasts; 0: 5 min
	Timeout    time.Duration // for one transaction; 0: 60 s, below 0: none, else at least 10 s
	Grace      time.Duration // after which one that the ledger does not know is an orphan; 0: 30 min
	StuckAfter int           // attempts after which one that does not end is reported; 0: 5

	// OnStuck is called for a transaction that stays pending after StuckAfter attempts, twice as many, four times, and so on; nil: it is
	// logged only.
	OnStuck func(token.PendingTransaction)
	Log     *zap.Logger // nil: none
}

func (o Options) filled() (Options, error) {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&o.OlderThan, 30*time.Second)
	or(&o.Scan, 5*time.Second)
	or(&o.Leadership, 30*time.Second)
	or(&o.Lease, 5*time.Minute)
	or(&o.Timeout, time.Minute)
	or(&o.Grace, 30*time.Minute)
	if o.Batch == 0 {
		o.Batch = 16
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.StuckAfter == 0 {
		o.StuckAfter = 5
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	switch {
	case o.OlderThan < 0 || o.Scan < 0 || o.Leadership < 0 || o.Lease < 0 || o.Grace < 0 || o.Workers < 0 || o.StuckAfter < 0:
		return o, errors.New("recovery: only the timeout can be negative")
	case o.Timeout > 0 && o.Timeout < minTimeout:
		return o, fmt.Errorf("recovery: a timeout of %s is below %s", o.Timeout, minTimeout)
	case o.Timeout > 0 && o.Lease < o.Timeout*time.Duration((o.Batch+o.Workers-1)/o.Workers):
		return o, fmt.Errorf("recovery: a lease of %s can run out before %d transactions are looked at by %d workers in %s each", o.Lease, o.Batch, o.Workers, o.Timeout)
	}
	if err := storage.CheckPage(o.Batch); err != nil {
		return o, fmt.Errorf("recovery: batch: %w", err)
	}
	return o, nil
}

// Round is what became of the transactions of one batch.
type Round struct {
	Claimed   int
	Confirmed int
	Deleted   int
	Orphaned  int
	Pending   int // stay so: not ended, not known and in grace, or already ended by somebody else
	Failed    int // could not be asked about or written
}

// settled: something ended, so that there may be more to do at once.
func (r Round) settled() bool { return r.Confirmed+r.Deleted+r.Orphaned > 0 }

// Service looks for pending transactions in the background. It is safe for concurrent use.
type Service struct {
	store    Store
	ledger   Ledger
	finality Finality
	o        Options
	owner    string // of this service's claims

	mu     sync.Mutex // guards what follows
	cancel context.CancelCauseFunc
	done   chan struct{}

	round sync.Mutex                // held during a batch; guards after
	after *token.PendingTransaction // where the next batch begins; nil: at the oldest
}

// New returns a service that does nothing before Start.
func New(store Store, ledger Ledger, finality Finality, o Options) (*Service, error) {
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	return &Service{store: store, ledger: ledger, finality: finality, o: o, owner: uuid.NewString()}, nil
}

// Start begins to look, until Stop or the end of the context. It does nothing if it was called before.
func (s *Service) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		return
	}
	ctx, s.cancel = context.WithCancelCause(ctx)
	s.done = make(chan struct{})
	go s.run(ctx, s.done)
}

// Stop ends the looking and returns when what was claimed is released. It may be called more than once, and before Start.
func (s *Service) Stop() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if done == nil {
		return
	}
	cancel(ErrStopped)
	<-done
}

// run looks, as long as it leads.
func (s *Service) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	var led *lease.Lease
	defer func() {
		if led != nil {
			s.atEnd(ctx, "the leadership could not be given back", led.Release)
		}
	}()
	for ctx.Err() == nil {
		var leads bool
		led, leads = s.lead(ctx, led)
		if leads && s.scan(ctx, led) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.o.Scan):
		}
	}
}

// lead takes or keeps the leadership, and tells whether this service has it for sure. The lease is nil if another's is running.
func (s *Service) lead(ctx context.Context, led *lease.Lease) (*lease.Lease, bool) {
	var err error
	if led != nil {
		var ok bool
		if ok, err = led.Renew(ctx); ok || err != nil {
			s.unsure(ctx, err)
			return led, ok
		}
		s.o.Log.Info("no longer leads the recovery of pending transactions")
	}
	led, err = s.store.AcquireRecoveryLeadership(ctx, s.o.Leadership)
	s.unsure(ctx, err)
	return led, led != nil && err == nil
}

// unsure logs an error of the leadership.
func (s *Service) unsure(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("it is not known who leads the recovery of pending transactions", zap.Error(err))
	}
}

// scan works through a batch while it keeps the leadership. It tells whether there may be more to do at once.
func (s *Service) scan(ctx context.Context, led *lease.Lease) (again bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := s.Recover(ctx)
		if err != nil && ctx.Err() == nil {
			s.o.Log.Warn("pending transactions could not be claimed", zap.Error(err))
		}
		again = err == nil && r.settled()
	}()
	tick := time.NewTicker(max(s.o.Leadership/3, 1))
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return again
		case <-tick.C:
			_, err := led.Renew(ctx)
			s.unsure(ctx, err)
		}
	}
}

// Recover works through one batch, leader or not: it claims pending transactions that are old enough, beginning after those of the last
// batch and starting over after the youngest, and deals with each. Batches of one Service follow one another.
func (s *Service) Recover(ctx context.Context) (Round, error) {
	s.round.Lock()
	defer s.round.Unlock()
	pending, err := s.store.ClaimPendingTransactions(ctx, Claims{Owner: s.owner, OlderThan: s.o.OlderThan, Lease: s.o.Lease, Limit: s.o.Batch, After: s.after})
	if err != nil {
		return Round{}, err
	}
	s.after = nil
	if len(pending) == s.o.Batch {
		s.after = &pending[len(pending)-1]
	}
	r := Round{Claimed: len(pending)}
	var mu sync.Mutex // guards r
	var wg sync.WaitGroup
	work := make(chan token.PendingTransaction, len(pending))
	for _, p := range pending {
		work <- p
	}
	close(work)
	for range min(s.o.Workers, len(pending)) {
		wg.Go(func() {
			for p := range work {
				count := s.settle(ctx, p)
				mu.Lock()
				*count(&r)++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return r, nil
}

// settle deals with one transaction and returns as what it counts.
func (s *Service) settle(ctx context.Context, p token.PendingTransaction) func(*Round) *int {
	if ctx.Err() != nil { // stopping: what was not begun is released
		s.release(ctx, p, "")
		return func(r *Round) *int { return &r.Pending }
	}
	work, cancel := ctx, context.CancelFunc(func() {})
	if s.o.Timeout > 0 {
		work, cancel = context.WithTimeout(ctx, s.o.Timeout)
	}
	defer cancel()
	log := s.o.Log.With(zap.String("tx", p.TxID), zap.Int("attempts", p.Attempts), zap.Duration("age", p.Age))
	status, message, err := s.ledger.TransactionStatus(work, p.TxID)
	if errors.Is(err, ErrNotFound) {
		status, message, err = token.Pending, "the ledger does not know the transaction", nil
		if p.Age >= s.o.Grace {
			status = token.Orphan
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		s.release(ctx, p, "")
		return func(r *Round) *int { return &r.Failed }
	case err != nil:
		// What the error says may hold the address of a node, with a key in it: it is not for the database.
		log.Warn("the ledger could not tell how a transaction ended", zap.Error(err))
		s.release(ctx, p, "the ledger could not tell how the transaction ended")
		s.stuck(log, p)
		return func(r *Round) *int { return &r.Failed }
	case !status.Final():
		s.release(ctx, p, message)
		s.stuck(log, p)
		return func(r *Round) *int { return &r.Pending }
	}
	err = s.finality(work, p.TxID, status, message)
	s.release(ctx, p, "") // does nothing where the status was set
	switch {
	case errors.Is(err, token.ErrAlreadyFinal):
		return func(r *Round) *int { return &r.Pending }
	case err != nil:
		log.Warn("what follows from a transaction's end could not be written", zap.Stringer("status", status), zap.Error(err))
		s.stuck(log, p)
		return func(r *Round) *int { return &r.Failed }
	}
	log.Info("found out how a transaction ended", zap.Stringer("status", status))
	return map[token.TxStatus]func(*Round) *int{
		token.Confirmed: func(r *Round) *int { return &r.Confirmed },
		token.Deleted:   func(r *Round) *int { return &r.Deleted },
		token.Orphan:    func(r *Round) *int { return &r.Orphaned },
	}[status]
}

// stuck reports a transaction after StuckAfter attempts, twice as many, four times, and so on.
func (s *Service) stuck(log *zap.Logger, p token.PendingTransaction) {
	if p.Attempts%s.o.StuckAfter != 0 || bits.OnesCount(uint(p.Attempts/s.o.StuckAfter)) != 1 {
		return
	}
	log.Error("a transaction stays pending")
	if s.o.OnStuck != nil {
		s.o.OnStuck(p)
	}
}

func (s *Service) release(ctx context.Context, p token.PendingTransaction, message string) {
	s.atEnd(ctx, "a claim could not be released", func(ctx context.Context) error {
		return s.store.ReleaseRecoveryClaim(ctx, p.TxID, s.owner, message)
	})
}

// endTime bounds what is still done after the context has ended; claims and leases that are left expire.
const endTime = 5 * time.Second

// atEnd does what has to be done even when the context has ended.
func (s *Service) atEnd(ctx context.Context, failure string, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := do(ctx); err != nil {
		s.o.Log.Warn(failure, zap.Error(err))
	}
}
