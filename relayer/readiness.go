package relayer

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// room holds the rows that wait to be asked for, by the time of their next turn.
type room struct {
	due chan turn // to whoever asks for them

	mu   sync.Mutex
	rows turns
	wake chan struct{} // one token: the first may have changed
}

type turn struct {
	at      time.Time
	id      int64
	allowed bool // by the host chains: only the gateway chain is still to be asked
}

func newRoom() *room { return &room{due: make(chan turn), wake: make(chan struct{}, 1)} }

// enter has a row looked at when it is time.
func (m *room) enter(t turn) {
	m.mu.Lock()
	heap.Push(&m.rows, t)
	m.mu.Unlock()
	poke(m.wake)
}

// serve hands out rows whose turn it is until ctx ends.
func (m *room) serve(ctx context.Context) {
	for {
		m.mu.Lock()
		wait := time.Hour
		if len(m.rows) > 0 {
			wait = time.Until(m.rows[0].at)
		}
		if wait <= 0 {
			t := heap.Pop(&m.rows).(turn)
			m.mu.Unlock()
			select {
			case m.due <- t:
			case <-ctx.Done():
				return
			}
			continue
		}
		m.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-m.wake:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// turns is a heap, the earliest first, and of equals the oldest.
type turns []turn

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return t[i].at.Before(t[j].at) || t[i].at.Equal(t[j].at) && t[i].id < t[j].id
}
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(x any)   { *t = append(*t, x.(turn)) }
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// attend asks for queued rows of a kind, one after the other.
func (d *dispatcher) attend(ctx context.Context, k fhevm.Kind) {
	for {
		select {
		case t := <-d.rooms[k].due:
			if j, ok := d.job(ctx, row{k, t.id}, fhevm.StateQueued); ok {
				d.askReady(ctx, j, t.allowed)
			}
		case <-ctx.Done():
			return
		}
	}
}

// askReady asks once whether a queued row may be sent, and moves it or has it come again.
func (d *dispatcher) askReady(ctx context.Context, j store.Job, allowed bool) {
	r := row{j.Kind, j.ID}
	req, err := fhevm.DecodeStored(j.Kind, j.ReqType, j.Request)
	if err != nil {
		d.complain(ctx, "a stored request cannot be read", err)
		d.fail(ctx, j, fhevm.CauseInternal, "The stored request cannot be read")
		return
	}
	if !allowed {
		denied, err := d.o.Readiness.ACL(ctx, req.ACLChecks())
		switch {
		case ctx.Err() != nil:
			d.release(r)
			return
		case err != nil:
			d.complain(ctx, "a host chain does not say whether a decryption is allowed", err, zap.String("job", j.ExtJobID))
			said := "the host chain did not answer"
			if errors.Is(err, chain.ErrUnsupportedChain) {
				said = "the host chain is not supported"
			}
			d.fail(ctx, j, fhevm.CauseHostACLFailed, fhevm.ReasonACLFailed(said)) // a node's words may hold its key
			return
		case len(denied) > 0:
			d.fail(ctx, j, fhevm.CauseNotAllowedOnHostACL, fhevm.ReasonDenied(denied))
			return
		}
	}
	ready, err := d.o.Readiness.Ready(ctx, req.ReadinessCalldata())
	var revert *chain.RevertError
	switch {
	case ctx.Err() != nil:
		d.release(r)
	case err == nil && ready:
		moved, err := d.o.Store.Ready(ctx, d.owner(r))
		d.o.pass(pointReady)
		d.moved(ctx, j, fhevm.StateProcessing, moved, err)
	case errors.As(err, &revert) && !revert.Retry:
		cause := revert.Cause
		if cause == fhevm.CauseReverted {
			cause = fhevm.CauseReadinessFailed
		}
		d.fail(ctx, j, cause, revert.Reason)
	case d.o.Now().Sub(j.StateSince) >= d.o.ReadinessTimeout:
		moved, err := d.o.Store.NotReady(ctx, d.owner(r), store.Cause{Code: string(fhevm.CauseReadinessTimedOut), Reason: fhevm.ReasonNotReady})
		d.moved(ctx, j, fhevm.StateTimedOut, moved, err)
	default:
		if err != nil { // what does not answer now may answer later; only time ends the waiting
			d.complain(ctx, "readiness cannot be asked for", err)
		}
		d.rooms[j.Kind].enter(turn{time.Now().Add(d.o.ReadinessPoll), j.ID, true})
	}
}
