package auditdb

import (
	"context"
	"fmt"
	"sync"
)

// MemoryLocker locks enrolment ids among the transactions of this process.
type MemoryLocker struct {
	o LockerOptions

	mu   sync.Mutex // guards what follows
	eids map[string]*turn
	held map[string]map[string]bool // by transaction
}

// turn is whose turn an enrolment id is: who can put something into it.
type turn struct {
	taken chan struct{} // holds one
	users int           // who hold or wait for it; without any it is forgotten
}

// NewMemoryLocker returns a locker that holds nothing.
func NewMemoryLocker(o LockerOptions) *MemoryLocker {
	return &MemoryLocker{o: o.filled(), eids: map[string]*turn{}, held: map[string]map[string]bool{}}
}

// AcquireLocks implements [Locker].
func (l *MemoryLocker) AcquireLocks(ctx context.Context, anchor string, eids ...string) error {
	eids, err := sorted(anchor, eids)
	if err != nil {
		return err
	}
	ctx, cancel := waiting(ctx, l.o.Wait)
	defer cancel()
	var won []string
	for _, eid := range eids {
		t := l.join(anchor, eid)
		if t == nil {
			continue
		}
		select {
		case t.taken <- struct{}{}:
			won = append(won, eid)
			continue
		default:
		}
		select {
		case t.taken <- struct{}{}:
			won = append(won, eid)
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			l.leave(eid)
			for _, eid := range won {
				<-l.eids[eid].taken
				l.leave(eid)
			}
			return fmt.Errorf("locking the enrolment id %.200q: %w", eid, context.Cause(ctx))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[anchor] == nil {
		l.held[anchor] = map[string]bool{}
	}
	for _, eid := range won {
		l.held[anchor][eid] = true
	}
	return nil
}

// join returns the enrolment id's turn to wait for, nil if the transaction has it.
func (l *MemoryLocker) join(anchor, eid string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[anchor][eid] {
		return nil
	}
	t := l.eids[eid]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		l.eids[eid] = t
	}
	t.users++
	return t
}

// leave is what who joined does in the end; the mutex is held.
func (l *MemoryLocker) leave(eid string) {
	if l.eids[eid].users--; l.eids[eid].users == 0 {
		delete(l.eids, eid)
	}
}

// ReleaseLocks implements [Locker].
func (l *MemoryLocker) ReleaseLocks(_ context.Context, anchor string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(anchor)
	return nil
}

func (l *MemoryLocker) release(anchor string) {
	for eid := range l.held[anchor] {
		<-l.eids[eid].taken
		l.leave(eid)
	}
	delete(l.held, anchor)
}

// AssertLocksHeld implements [Locker].
func (l *MemoryLocker) AssertLocksHeld(_ context.Context, _ *Tx, anchor string, eids ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, eid := range eids {
		if !l.held[anchor][eid] {
			return fmt.Errorf("the enrolment id %.200q of transaction %.200q: %w", eid, anchor, ErrLockNotHeld)
		}
	}
	return nil
}

// Close implements [Locker].
func (l *MemoryLocker) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for anchor := range l.held {
		l.release(anchor)
	}
	return nil
}
