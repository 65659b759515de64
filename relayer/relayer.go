package relayer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"dongate/relayer/fhevm"
)

// Relayer is the dispatcher of a store, whenever its lock is held. Its methods are safe for concurrent use.
type Relayer struct {
	o       Options
	metrics *metrics
	look    map[fhevm.Kind]chan struct{} // one token each: rows may have been inserted
	holds   atomic.Bool                  // it dispatches
	epoch   atomic.Int64                 // of its last term
}

// New returns a relayer that does nothing until it is run. It fails if the options are incomplete.
func New(o Options) (*Relayer, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	r := &Relayer{o: o, metrics: newMetrics(o.Metrics), look: map[fhevm.Kind]chan struct{}{}}
	for _, k := range fhevm.Kinds {
		r.look[k] = make(chan struct{}, 1)
	}
	return r, nil
}

// Notify says that a request of a kind was inserted through this process: if it is the dispatcher it looks at once. It never blocks.
func (r *Relayer) Notify(k fhevm.Kind) {
	r.metrics.requests.WithLabelValues(string(k), string(fhevm.FirstState(k))).Inc()
	poke(r.look[k])
}

// Dispatches tells whether this process is the dispatcher, and the epoch of its newest term.
func (r *Relayer) Dispatches() (holds bool, epoch int64) { return r.holds.Load(), r.epoch.Load() }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run stands for election and dispatches whenever it is elected, until ctx ends: then its workers stop and it returns nil. It fails with
// [ErrLocked] or [ErrStuck].
func (r *Relayer) Run(ctx context.Context) error {
	if err := r.metrics.seed(ctx, r.o.Store); err != nil && ctx.Err() == nil {
		r.o.Log.Warn("requests could not be counted", zap.Error(err))
	}
	for ctx.Err() == nil {
		held, err := r.o.Lock.Acquire(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		err = r.term(ctx, held)
		if errors.Is(err, ErrStuck) {
			return err // with the lock: the process must end
		}
		held.Release()
		if err != nil && ctx.Err() == nil {
			r.o.Log.Warn("the relayer stopped dispatching and stands for election again", zap.Error(err))
			sleep(ctx, time.Second)
		}
	}
	return nil
}

var errLockLost = errors.New("the lock was lost")

// term is the time from an election until the lock is lost or ctx ends.
func (r *Relayer) term(ctx context.Context, held Held) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-held.Lost():
			cancel(errLockLost)
		case <-ctx.Done():
		}
	}()
	if !sleep(ctx, r.o.Lock.Handover()) {
		return context.Cause(ctx)
	}
	epoch, err := r.o.Store.NextEpoch(ctx)
	if err != nil {
		return err
	}
	d, err := r.newDispatcher(ctx, epoch)
	if err != nil {
		return fmt.Errorf("beginning a term: %w", err)
	}
	r.o.Log.Info("the relayer dispatches", zap.Int64("epoch", epoch), zap.Stringer("signer", r.o.Signer.Address()))
	r.epoch.Store(epoch)
	r.holds.Store(true)
	r.metrics.lockHeld.Set(1)
	defer func() {
		r.holds.Store(false)
		r.metrics.lockHeld.Set(0)
	}()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.run(ctx)
	}()
	<-ctx.Done()
	late := time.NewTimer(r.o.StopWithin)
	defer late.Stop()
	select {
	case <-stopped:
		return context.Cause(ctx)
	case <-late.C:
		return ErrStuck
	}
}
