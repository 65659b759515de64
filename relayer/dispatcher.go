package relayer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// dispatcher is one term: it owns the rows of its epoch.
type dispatcher struct {
	*Relayer
	log    *zap.Logger
	term   int64 // its epoch
	nonces *nonces
	flight *semaphore.Weighted // transactions being sent or waited for
	rooms  map[fhevm.Kind]*room
	lines  map[fhevm.Kind]*line
	heads  *broadcast    // told when the chain's head has moved
	hint   chan struct{} // one token: the chain may have moved

	counter   *counter
	cursor    chan struct{} // closed when there is a cursor: an answer before it would not be read
	hasCursor sync.Once
	caughtUp  atomic.Int64 // when everything on the chain was last known to be read, in ns since 1970; 0: not yet

	estimates *semaphore.Weighted

	paused atomic.Bool
	wg     sync.WaitGroup // of workers of single rows

	mu   sync.Mutex
	held map[row]struct{} // rows that a worker, a room or a line has
}

// row names a request.
type row struct {
	kind fhevm.Kind
	id   int64
}

func (d *dispatcher) owner(r row) store.Owner {
	return store.Owner{Kind: r.kind, ID: r.id, Epoch: d.term}
}

func (r *Relayer) newDispatcher(ctx context.Context, epoch int64) (*dispatcher, error) {
	d := &dispatcher{
		Relayer: r, log: r.o.Log.With(zap.Int64("epoch", epoch)), term: epoch, flight: semaphore.NewWeighted(int64(r.o.MaxInFlight)),
		rooms: map[fhevm.Kind]*room{}, lines: map[fhevm.Kind]*line{}, heads: newBroadcast(), held: map[row]struct{}{},
		hint: make(chan struct{}, 1), counter: newCounter(), cursor: make(chan struct{}), estimates: semaphore.NewWeighted(int64(r.o.MaxInFlight)),
	}
	next, err := r.o.Store.NextNonce(ctx, r.o.Signer.Address())
	if err != nil {
		return nil, err
	}
	d.nonces = &nonces{next: uint64(next)}
	for _, k := range fhevm.Kinds {
		d.rooms[k], d.lines[k] = newRoom(), newLine()
	}
	return d, nil
}

// run works until ctx ends and every worker has stopped.
func (d *dispatcher) run(ctx context.Context) {
	d.wg.Go(func() { d.follow(ctx) })
	for _, url := range d.o.Subscriptions {
		d.wg.Go(func() {
			err := d.o.Read.Subscribe(ctx, url, d.addresses(), fhevm.ResponseTopics(), func() { poke(d.hint) })
			if ctx.Err() == nil {
				d.log.Error("a subscription cannot be made: blocks are polled", zap.Error(err))
			}
		})
	}
	for range counters {
		d.wg.Go(func() { d.count(ctx) })
	}
	d.wg.Go(func() { d.rescue(ctx) })
	d.wg.Go(func() { d.housekeeping(ctx) })
	d.wg.Go(func() {
		// Nothing is sent before the account's nonce is known, and where events are read from; what was signed before is looked for at once.
		if !d.firstNonce(ctx) {
			return
		}
		select {
		case <-d.cursor:
		case <-ctx.Done():
			return
		}
		for _, k := range fhevm.Kinds {
			d.wg.Go(func() { d.sendAll(ctx, k) })
		}
	})
	for _, k := range fhevm.Kinds {
		d.wg.Go(func() { d.sweep(ctx, k) })
		if fhevm.FirstState(k) == fhevm.StateQueued {
			d.wg.Go(func() { d.rooms[k].serve(ctx) })
			for range d.o.ReadinessConcurrency {
				d.wg.Go(func() { d.attend(ctx, k) })
			}
		}
	}
	d.wg.Wait()
}

// begun says that there is a cursor.
func (d *dispatcher) begun() { d.hasCursor.Do(func() { close(d.cursor) }) }

// batch is how many rows one statement claims.
const batch = 100

// orphans is how often rows of the own epoch are looked for that no worker has.
const orphans = 10 * time.Second

// sweep claims rows of a kind and hands them to those who work on their state.
func (d *dispatcher) sweep(ctx context.Context, k fhevm.Kind) {
	lastOrphans := time.Now()
	for {
		if paused, err := d.o.Store.Paused(ctx); err == nil && d.paused.Swap(paused) != paused {
			d.log.Info("the operator's pause changed", zap.Bool("paused", paused))
		}
		for {
			jobs, err := d.o.Store.Claim(ctx, k, d.term, batch)
			if err != nil {
				d.complain(ctx, "rows cannot be claimed", err)
				break
			}
			if len(jobs) > 0 {
				d.o.pass(pointClaimed)
			}
			for _, j := range jobs {
				d.take(ctx, row{k, j.ID}, j.State)
			}
			if len(jobs) < batch {
				break
			}
		}
		if time.Since(lastOrphans) >= orphans {
			d.takeOrphans(ctx, k)
			lastOrphans = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-d.look[k]:
		case <-time.After(d.o.SweepInterval):
		}
	}
}

// takeOrphans takes up rows of this epoch that nobody works on: their worker gave up on an error.
func (d *dispatcher) takeOrphans(ctx context.Context, k fhevm.Kind) {
	for after := int64(0); ; {
		jobs, err := d.o.Store.Owned(ctx, k, d.term, after, 1000)
		if err != nil {
			d.complain(ctx, "the dispatcher's own rows cannot be read", err)
			return
		}
		for _, j := range jobs {
			d.take(ctx, row{k, j.ID}, j.State)
			after = j.ID
		}
		if len(jobs) < 1000 {
			return
		}
	}
}

// take hands a row to who works on its state, unless somebody has it.
func (d *dispatcher) take(ctx context.Context, r row, s fhevm.State) {
	d.mu.Lock()
	_, have := d.held[r]
	d.held[r] = struct{}{}
	d.mu.Unlock()
	if !have {
		d.hand(ctx, r, s)
	}
}

// hand gives a row that is held to who works on its state.
func (d *dispatcher) hand(ctx context.Context, r row, s fhevm.State) {
	switch s {
	case fhevm.StateQueued:
		d.rooms[r.kind].enter(turn{at: time.Now(), id: r.id})
	case fhevm.StateProcessing:
		d.lines[r.kind].enter(r.id)
	case fhevm.StateTxInFlight:
		d.wg.Go(func() { d.inFlight(ctx, r) })
	default:
		d.release(r)
	}
}

func (d *dispatcher) release(r row) {
	d.mu.Lock()
	delete(d.held, r)
	d.mu.Unlock()
}

// complain logs an error that is not the end of ctx.
func (d *dispatcher) complain(ctx context.Context, what string, err error, fields ...zap.Field) {
	if ctx.Err() == nil {
		d.log.Warn(what, append(fields, zap.Error(err))...)
	}
}

// job reads a row, as often as it takes. It returns false when ctx ends, or when the row is not in the state, or not the dispatcher's: then it has been handed on.
func (d *dispatcher) job(ctx context.Context, r row, s fhevm.State) (store.Job, bool) {
	for wait := newBackoff(); ; {
		j, err := d.o.Store.JobByID(ctx, r.kind, r.id)
		switch {
		case err == nil && (j.OwnerEpoch != d.term || j.State.Final()):
			d.release(r)
			return j, false
		case err == nil && j.State != s:
			d.hand(ctx, r, j.State)
			return j, false
		case err == nil:
			return j, true
		}
		d.complain(ctx, "a request cannot be read", err, zap.String("kind", string(r.kind)), zap.Int64("id", r.id))
		if !wait.sleep(ctx) {
			return j, false
		}
	}
}

// moved does what follows a move of a row, from the state with which the job was read: it is counted and handed on, or released where it has been somebody else's.
func (d *dispatcher) moved(ctx context.Context, j store.Job, to fhevm.State, moved bool, err error) {
	r := row{j.Kind, j.ID}
	switch {
	case err != nil: // unknown: the row tells later
		d.complain(ctx, "a request cannot be moved", err, zap.String("kind", string(j.Kind)), zap.String("job", j.ExtJobID), zap.String("to", string(to)))
		d.release(r)
	case !moved:
		d.metrics.claimLost.Inc()
		d.release(r)
	default:
		d.metrics.moved(d.o.Now(), j, to)
		d.hand(ctx, r, to)
	}
}

// fail moves a row to failure from the state it was read in.
func (d *dispatcher) fail(ctx context.Context, j store.Job, cause fhevm.Cause, reason string) {
	d.log.Info("a request failed", zap.String("kind", string(j.Kind)), zap.String("job", j.ExtJobID), zap.String("cause", string(cause)), zap.String("reason", reason))
	d.metrics.failures.WithLabelValues(string(j.Kind), string(cause)).Inc()
	moved, err := d.o.Store.Fail(ctx, d.owner(row{j.Kind, j.ID}), j.State, store.Cause{Code: string(cause), Reason: reason})
	d.moved(ctx, j, fhevm.StateFailure, moved, err)
}

// limiter is a kind's rate of first transactions.
func (d *dispatcher) limiter(k fhevm.Kind) *rate.Limiter {
	tps := d.o.Queues[k].TPS
	if tps <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(tps), max(1, int(tps)))
}

// backoff are waits that grow from a tenth of a second to five.
type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{100 * time.Millisecond} }

func (b *backoff) sleep(ctx context.Context) bool {
	d := b.next
	b.next = min(2*b.next, 5*time.Second)
	return sleep(ctx, d)
}

// broadcast wakes everyone who waits for it.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{c: make(chan struct{})} }

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}

// next is closed when tell is called after this.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}
