package api

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

const (
	// queueAge is how long a look at the waiting jobs is used, so that what a caller waits for does not depend on how many there are.
	queueAge = time.Second
	// queueDue is when who has been answered takes the next look, so that nobody waits for one as long as some calls come in the rest of the time.
	queueDue = queueAge * 3 / 4
	// queueTimeout bounds a look.
	queueTimeout = 5 * time.Second
)

// queue knows which jobs of a kind wait.
type queue struct {
	kind        fhevm.Kind
	limit       Queue
	concurrency int
	store       *store.Store

	looking chan struct{} // holds an entry while somebody looks
	last    atomic.Pointer[waiting]
}

func newQueue(k fhevm.Kind, o *Options) *queue {
	return &queue{kind: k, limit: o.Limits[k], concurrency: o.ReadinessConcurrency, store: o.Store, looking: make(chan struct{}, 1)}
}

// waiting is the jobs that waited at one time, and how many were inserted here since.
type waiting struct {
	store.Queue
	at       time.Time
	inserted atomic.Int64
}

func (w *waiting) age(now time.Time) time.Duration {
	if age := now.Sub(w.at); age >= 0 {
		return age
	}
	return queueAge // the clock was set back
}

// waiting returns a look at the jobs that is at most [queueAge] old or, while another caller takes the next, the one before. Where due is true, the
// caller should call renew once it has answered: then the next does not have to wait for a look.
func (q *queue) waiting(ctx context.Context, now time.Time) (w *waiting, due bool, err error) {
	w = q.last.Load()
	switch {
	case w == nil:
		select {
		case q.looking <- struct{}{}:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	case w.age(now) < queueAge:
		return w, w.age(now) >= queueDue, nil
	default:
		select {
		case q.looking <- struct{}{}:
		default:
			return w, false, nil
		}
	}
	defer func() { <-q.looking }()
	if w := q.last.Load(); w != nil && w.age(now) < queueAge {
		return w, false, nil
	}
	w, err = q.look(ctx, now)
	return w, false, err
}

// renew looks anew unless that has just been done or somebody is at it.
func (q *queue) renew(ctx context.Context, now time.Time) {
	select {
	case q.looking <- struct{}{}:
	default:
		return
	}
	defer func() { <-q.looking }()
	if q.last.Load().age(now) >= queueDue {
		_, _ = q.look(ctx, now) // who needs it and has no better one is told
	}
}

// look is called by who has the place in looking.
func (q *queue) look(ctx context.Context, now time.Time) (*waiting, error) {
	// Not the caller's context: others use the answer, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queueTimeout)
	defer cancel()
	jobs, err := q.store.Queue(ctx, q.kind)
	if err != nil {
		return nil, err
	}
	w := &waiting{Queue: jobs, at: now}
	q.last.Store(w)
	return w, nil
}

// added counts a job that was just inserted.
func (w *waiting) added() { w.inserted.Add(1) }

// now returns how many jobs wait for readiness and for their transaction.
func (w *waiting) now(k fhevm.Kind) (queued, processing int64) {
	queued, processing = int64(len(w.Queued)), int64(len(w.Processing))
	if fhevm.FirstState(k) == fhevm.StateQueued {
		return queued + w.inserted.Load(), processing
	}
	return queued, processing + w.inserted.Load()
}

// before returns how many jobs of a waiting job's state are older: those of the look, and of what came since those that are there now.
func (q *queue) before(ctx context.Context, w *waiting, j store.Job) (int64, error) {
	ids, waits := w.In(j.State)
	if !waits {
		return 0, nil
	}
	position, _ := slices.BinarySearch(ids, j.ID)
	if position < len(ids) || position == store.MaxCount {
		return int64(position), nil
	}
	last := int64(0)
	if position > 0 {
		last = ids[position-1]
	}
	newer, err := q.store.Between(ctx, j.Kind, j.State, last, j.ID, store.MaxCount-position)
	if err != nil {
		return 0, fmt.Errorf("counting what is before a job: %w", err)
	}
	return int64(position + newer), nil
}

// full reports whether a new job is refused.
func (q *queue) full(w *waiting) bool {
	queued, processing := w.now(q.kind)
	return queued+processing >= int64(q.limit.Capacity-q.limit.Margin)
}

// load is what stands before a job behind so many others.
func (q *queue) load(queued, processing int64) fhevm.Load {
	return fhevm.Load{TxQueue: processing, TPS: q.limit.TPS, ReadinessQueue: queued, Concurrency: int64(q.concurrency)}
}
