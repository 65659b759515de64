package auditdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// LeaseLocker locks enrolment ids among the transactions of every process on the database, by leases: rows that others leave alone until
// they expire by the database's clock. A goroutine renews them as long as any are held, so a lease outlives its process by its TTL only.
type LeaseLocker struct {
	o     LockerOptions
	db    *run.DB
	owner string // this locker
	t     leases

	mu     sync.Mutex          // guards what follows
	held   map[string]*holding // by transaction
	beats  bool                // the goroutine runs
	end    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// holding is what a transaction locked since it last held nothing.
type holding struct {
	there map[string]bool // by enrolment id: false if the lease ran out
}

type leases struct {
	query.Table
	eid, anchor, owner query.Column[string]
	expires            query.Column[storage.Time]
}

// NewLeaseLocker returns a locker on the store's database that holds nothing. Close it before the database.
func NewLeaseLocker(s *Store, o LockerOptions) *LeaseLocker {
	t := query.NewTable(s.prefix + "eid_leases")
	text := func(name string) query.Column[string] { return query.NewColumn[string](t, name) }
	end, cancel := context.WithCancel(context.Background())
	return &LeaseLocker{o: o.filled(), db: run.New(s.DB()), owner: uuid.NewString(), held: map[string]*holding{}, end: end, cancel: cancel,
		t: leases{t, text("eid"), text("anchor"), text("owner"), query.NewColumn[storage.Time](t, "expires_at")}}
}

// AcquireLocks implements [Locker].
func (l *LeaseLocker) AcquireLocks(ctx context.Context, anchor string, eids ...string) error {
	eids, err := sorted(anchor, eids)
	if err != nil {
		return err
	}
	ctx, cancel := waiting(ctx, l.o.Wait)
	defer cancel()
	for {
		err := l.try(ctx, anchor, eids)
		if err == nil {
			return l.keep(anchor, eids)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if errors.Is(err, ErrLockContention) {
			select {
			case <-time.After(l.o.Backoff/2 + rand.N(l.o.Backoff)):
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return fmt.Errorf("locking the enrolment ids of transaction %.200q: %w", anchor, err)
	}
}

// try takes all the locks, or returns ErrLockContention and takes none.
func (l *LeaseLocker) try(ctx context.Context, anchor string, eids []string) error {
	t := &l.t
	return token.InTx(ctx, l.db.DB, func(ctx context.Context, tx token.Tx) error {
		for part := range storage.Chunks(eids, 4) {
			rows := make([][]query.Assignment, len(part))
			for i, eid := range part {
				rows[i] = []query.Assignment{t.eid.Set(eid), t.anchor.Set(anchor), t.owner.Set(l.owner), t.expires.SetNow(l.o.TTL)}
			}
			won, err := storage.Collect(run.Query(ctx, l.db, tx, query.InsertInto(t.Table).Rows(rows...).OnConflict(t.eid).
				DoUpdate(t.anchor.Overwrite(), t.owner.Overwrite(), t.expires.Overwrite()).Where(query.Or(query.InPast(t.expires), l.ours(anchor))).
				Returning(t.eid), storage.Column[string]))
			if err != nil {
				return err
			}
			if len(won) < len(part) {
				return ErrLockContention
			}
		}
		return nil
	})
}

func (l *LeaseLocker) ours(anchor string) query.Cond {
	return query.And(l.t.anchor.Eq(anchor), l.t.owner.Eq(l.owner))
}

// keep has the locks renewed from now on.
func (l *LeaseLocker) keep(anchor string, eids []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end.Err() != nil {
		return fmt.Errorf("locking the enrolment ids of transaction %.200q: the locker is closed: %w", anchor, ErrLockLost)
	}
	if l.held[anchor] == nil {
		l.held[anchor] = &holding{map[string]bool{}}
	}
	for _, eid := range eids {
		l.held[anchor].there[eid] = true
	}
	if !l.beats {
		l.beats = true
		l.wg.Add(1)
		go l.beat()
	}
	return nil
}

// beat renews what is held until nothing is.
func (l *LeaseLocker) beat() {
	defer l.wg.Done()
	tick := time.NewTicker(l.o.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-l.end.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		if len(l.held) == 0 {
			l.beats = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if err := l.renew(l.end); err != nil && l.end.Err() == nil {
			l.o.Log.Warn("the locks of enrolment ids could not be renewed", zap.Error(err))
		}
	}
}

// renew renews the leases of what is held, even expired ones: as long as the row is ours, nobody had it since.
func (l *LeaseLocker) renew(ctx context.Context) error {
	t := &l.t
	type lock struct{ anchor, eid string }
	l.mu.Lock()
	before := map[*holding][]lock{} // what is taken meanwhile is not missed
	anchors := slices.Sorted(maps.Keys(l.held))
	for anchor, h := range l.held {
		for eid := range h.there {
			before[h] = append(before[h], lock{anchor, eid})
		}
	}
	l.mu.Unlock()
	renewed := map[lock]bool{}
	scan := func(rows *sql.Rows) (k lock, err error) { return k, rows.Scan(&k.anchor, &k.eid) }
	for part := range storage.Chunks(anchors, 1) {
		statement := query.Update(t.Table).Set(t.expires.SetNow(l.o.TTL)).Where(query.And(t.anchor.In(part...), t.owner.Eq(l.owner))).Returning(t.anchor, t.eid)
		err := token.InTx(ctx, l.db.DB, func(ctx context.Context, tx token.Tx) error {
			some, err := storage.Collect(run.Query(ctx, l.db, tx, statement, scan))
			for _, k := range some {
				renewed[k] = true
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, locks := range before {
		for _, k := range locks {
			if l.held[k.anchor] == h && h.there[k.eid] && !renewed[k] {
				h.there[k.eid] = false
				l.o.Log.Warn("the lock of an enrolment id ran out", zap.String("tx", k.anchor), zap.String("eid", k.eid))
			}
		}
	}
	return nil
}

// ReleaseLocks implements [Locker].
func (l *LeaseLocker) ReleaseLocks(ctx context.Context, anchor string) error {
	l.mu.Lock()
	delete(l.held, anchor)
	l.mu.Unlock()
	if err := l.remove(ctx, l.ours(anchor)); err != nil {
		return fmt.Errorf("releasing the locks of transaction %.200q: %w", anchor, err)
	}
	return nil
}

func (l *LeaseLocker) remove(ctx context.Context, which query.Cond) error {
	return token.InTx(ctx, l.db.DB, func(ctx context.Context, tx token.Tx) error {
		_, err := l.db.Exec(ctx, tx, query.DeleteFrom(l.t.Table).Where(which))
		return err
	})
}

// AssertLocksHeld implements [Locker]. The database transaction renews the leases, and so keeps them from everybody until it ends.
func (l *LeaseLocker) AssertLocksHeld(ctx context.Context, tx *Tx, anchor string, eids ...string) error {
	eids, err := sorted(anchor, eids)
	if err != nil {
		return err
	}
	if err := tx.Shared().On(l.db.DB); err != nil {
		return err
	}
	t := &l.t
	var there []string
	for part := range storage.Chunks(eids, 1) {
		some, err := storage.Collect(run.Query(ctx, l.db, tx.Shared(), query.Update(t.Table).Set(t.expires.SetNow(l.o.TTL)).
			Where(query.And(t.eid.In(part...), l.ours(anchor), query.InFuture(t.expires))).Returning(t.eid), storage.Column[string]))
		if err != nil {
			return fmt.Errorf("looking at the locks of transaction %.200q: %w", anchor, err)
		}
		there = append(there, some...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[anchor]
	for _, eid := range eids {
		is, taken := false, false
		if h != nil {
			is, taken = h.there[eid]
		}
		switch {
		case !taken:
			return fmt.Errorf("the enrolment id %.200q of transaction %.200q: %w", eid, anchor, ErrLockNotHeld)
		case !is || !slices.Contains(there, eid):
			return fmt.Errorf("the enrolment id %.200q of transaction %.200q: %w", eid, anchor, ErrLockLost)
		}
	}
	return nil
}

// releaseTime bounds how long Close tries to free what is held; the rest expires.
const releaseTime = 5 * time.Second

// Close implements [Locker].
func (l *LeaseLocker) Close() error {
	l.mu.Lock()
	closed := l.end.Err() != nil
	l.cancel()
	holds := len(l.held) > 0
	clear(l.held)
	l.mu.Unlock()
	l.wg.Wait()
	if closed || !holds {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := l.remove(ctx, l.t.owner.Eq(l.owner)); err != nil {
		return fmt.Errorf("releasing the locks of enrolment ids: %w", err)
	}
	return nil
}
