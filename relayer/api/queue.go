package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// depthAge is how long a count of the waiting jobs is used, so that what a caller waits for does not depend on how many there are.
const depthAge = time.Second

// queue knows how many jobs of a kind wait.
type queue struct {
	kind        fhevm.Kind
	limit       Queue
	concurrency int
	store       *store.Store

	refresh sync.Mutex // held while counting
	counted atomic.Pointer[depth]
}

// depth is a count, and the jobs inserted here since.
type depth struct {
	at                 time.Time
	queued, processing int64
	inserted           atomic.Int64
}

// waiting returns the count, made at most [depthAge] ago unless another caller is just making it anew.
func (q *queue) waiting(ctx context.Context, now time.Time) (*depth, error) {
	fresh := func(d *depth) bool { age := now.Sub(d.at); return age >= 0 && age < depthAge }
	if d := q.counted.Load(); d == nil {
		q.refresh.Lock()
	} else if fresh(d) || !q.refresh.TryLock() {
		return d, nil
	}
	defer q.refresh.Unlock()
	if d := q.counted.Load(); d != nil && fresh(d) {
		return d, nil
	}
	next := &depth{at: now}
	for state, n := range map[fhevm.State]*int64{fhevm.StateQueued: &next.queued, fhevm.StateProcessing: &next.processing} {
		count, err := q.store.Depth(ctx, q.kind, state)
		if err != nil {
			return nil, fmt.Errorf("counting the jobs of %s: %w", q.kind, err)
		}
		*n = int64(count)
	}
	q.counted.Store(next)
	return next, nil
}

// added counts a job that was just inserted.
func (d *depth) added() { d.inserted.Add(1) }

// now returns how many jobs wait for readiness and for their transaction.
func (d *depth) now(k fhevm.Kind) (queued, processing int64) {
	queued, processing = d.queued, d.processing
	if fhevm.FirstState(k) == fhevm.StateQueued {
		return queued + d.inserted.Load(), processing
	}
	return queued, processing + d.inserted.Load()
}

// full reports whether a new job is refused.
func (q *queue) full(d *depth) bool {
	queued, processing := d.now(q.kind)
	return queued+processing >= int64(q.limit.Capacity-q.limit.Margin)
}

// load is what stands before a job behind so many others.
func (q *queue) load(queued, processing int64) fhevm.Load {
	return fhevm.Load{TxQueue: processing, TPS: q.limit.TPS, ReadinessQueue: queued, Concurrency: int64(q.concurrency)}
}
