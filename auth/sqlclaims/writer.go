package sqlclaims

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"dongate/auth"
	"dongate/storage"
)

// pace is the least time from one transaction to the next while many claims come at once, unless maxRows wait: a flush of the disk can be so
// fast that each would carry few, and its price in CPU would be paid more often. Fewer than pacedClaims do not wait.
const (
	pace        = 2 * time.Millisecond
	pacedClaims = 8
)

// afterFailure is how long the writer waits before it tries again, however many claims come: a database that fails costs little.
const afterFailure = 50 * time.Millisecond

// retryMarks is how long marks wait that could not be written, unless claims come first.
const retryMarks = time.Second

// batch is what goes into one transaction.
type batch struct {
	marks  []mark
	claims []*pending
}

// write is the one goroutine that changes the database, a batch at a time.
func (c *Claims) write() {
	defer close(c.stopped)
	for {
		b, ok := c.next()
		if !ok {
			return
		}
		start := time.Now()
		switch ok := c.commit(b); {
		case !ok:
			time.Sleep(afterFailure)
		case len(b.claims) >= pacedClaims:
			c.gather(start.Add(pace))
		}
	}
}

// gather returns when maxRows claims wait, or at a time.
func (c *Claims) gather(until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for late := false; ; {
		c.mu.Lock()
		c.enough = maxRows
		done := late || len(c.waiting) >= maxRows || c.closed
		if done {
			c.enough = 0
		}
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.wake:
		case <-timer.C:
			late = true
		}
	}
}

// next waits for something to write. False: the claims are closed and all is written.
func (c *Claims) next() (batch, bool) {
	for {
		c.mu.Lock()
		switch {
		case len(c.waiting) > 0 || len(c.marks) > 0 && (c.due || c.closed):
			b := c.take()
			c.writing = len(b.claims)
			c.mu.Unlock()
			return b, true
		case c.closed:
			c.mu.Unlock()
			return batch{}, false
		}
		c.due = false
		c.mu.Unlock()
		<-c.wake
	}
}

// take takes all marks, and claims of which no two want the same thing: what becomes of the second depends on the first, so it goes into a
// later batch. c.mu is held.
func (c *Claims) take() batch {
	var b batch
	b.marks, c.marks, c.markBytes, c.due = c.marks, nil, 0, false
	most := maxBatch
	if c.options.oneByOne {
		if most = 1; len(b.marks) > 0 {
			b.marks, c.marks, c.due, most = b.marks[:1:1], b.marks[1:], true, 0
		}
	}
	now := c.options.Now()
	taken := make(map[key]struct{}, 2*len(c.waiting))
	later := c.waiting[:0]
	for _, p := range c.waiting {
		_, token := taken[p.token]
		_, request := taken[p.request]
		switch {
		case p.fate.Load() == fateGone || p.ctx.Err() != nil:
			p.tell(result{err: p.ctx.Err()})
		case !p.TokenUntil.After(now) || !p.RequestUntil.After(now):
			p.tell(result{err: auth.ErrClaimExpired})
		case token || request || len(b.claims) == most:
			later = append(later, p)
		default:
			taken[p.token], taken[p.request] = struct{}{}, struct{}{}
			b.claims = append(b.claims, p)
		}
	}
	clear(c.waiting[len(later):])
	c.waiting = later
	return b
}

// commit writes a batch and tells everyone what became of it. False: it failed.
func (c *Claims) commit(b batch) bool {
	if c.db.Backend() == storage.Postgres && len(b.marks) > 0 && len(b.claims) > 0 {
		// In one transaction, two gateways that each end what the other claims would wait for one another.
		if !c.commit(batch{marks: b.marks}) {
			c.refuse(b.claims, errMarksFailed)
			return false
		}
		b.marks = nil
	}
	if len(b.marks)+len(b.claims) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Timeout)
	defer cancel()
	now, start := c.options.Now(), time.Now()
	var found outcomes
	committing := false // the transaction may have taken effect
	err := storage.RunInTx(ctx, c.db.Write(), func(ctx context.Context, tx *sql.Tx) (err error) {
		committing = false
		found, err = c.sql.run(ctx, tx, b, floor(now))
		committing = err == nil
		return err
	})
	c.note(len(b.claims), time.Since(start), err)
	if err != nil {
		c.failed(b, err, committing && !rolledBack(err))
		return false
	}
	var releases []mark
	for i, p := range b.claims {
		r := found.claims[i]
		if r.outcome != auth.Conflict { // before the caller is told, who may ask at once
			c.seen.add(p.token, p.TokenUntil, now)
		}
		if !p.tell(r) && r.outcome == auth.Claimed {
			c.seen.remove(p.token)
			releases = append(releases, p.release())
		}
	}
	c.release(releases)
	for i, m := range b.marks {
		if m.holder == 0 {
			m.done(found.marks[i])
		}
	}
	return true
}

// rolledBack reports whether err, of a commit, says that the transaction took no effect.
func rolledBack(err error) bool {
	var server interface{ SQLState() string }
	if errors.As(err, &server) { // unless the server or the connection went away in the middle of it
		return !strings.HasPrefix(server.SQLState(), "57") && !strings.HasPrefix(server.SQLState(), "08")
	}
	err = storage.Classify(err)
	return errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrReadOnly) || errors.Is(err, storage.ErrBusy)
}

var errMarksFailed = errors.New("earlier changes cannot be written")

// refuse tells claims that they were not tried.
func (c *Claims) refuse(claims []*pending, err error) {
	for _, p := range claims {
		p.tell(result{err: err})
	}
}

// note counts a transaction.
func (c *Claims) note(claims int, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err != nil
	c.activity.Time += took
	if err != nil {
		c.activity.Failed++
		return
	}
	c.activity.Transactions++
	c.activity.Claims += uint64(claims)
}

// failed tells the claims of a batch that was not written, and those that wait for the next one, so that nobody waits for the failure of
// several; it keeps the marks. unknown: the claims may have been written.
func (c *Claims) failed(b batch, err error, unknown bool) {
	c.options.Log.Warn("claims not written", zap.Int("claims", len(b.claims)), zap.Int("ends", len(b.marks)), zap.Error(err))
	c.mu.Lock()
	marks := append(b.marks, c.marks...)
	c.marks, c.due, c.markBytes = marks, false, 0
	for _, m := range marks {
		c.markBytes += len(m.answer)
	}
	closed := c.closed
	if closed {
		c.marks = nil
	}
	waiting := c.waiting // taken before anyone is told: a claim made after that is tried
	c.waiting = nil
	c.timer.Reset(retryMarks)
	c.mu.Unlock()
	c.refuse(b.claims, err)
	c.refuse(waiting, err)
	if closed { // no other batch may follow, and nobody should wait for one
		for _, m := range marks {
			if m.holder == 0 {
				m.done(err)
			}
		}
		return
	}
	if unknown {
		releases := make([]mark, len(b.claims))
		for i, p := range b.claims {
			releases[i] = p.release()
		}
		c.release(releases)
	}
}

// release queues the release of claims; what does not fit stays claimed.
func (c *Claims) release(marks []mark) {
	if len(marks) == 0 {
		return
	}
	if err := c.add(marks...); err != nil {
		c.options.Log.Warn("claims not taken back: their requests were not dispatched, and need new tokens", zap.Int("claims", len(marks)), zap.Error(err))
	}
}

// kept is how long the token of a claim is remembered.
func (p *pending) kept() time.Time {
	if p.KeepUntil.After(p.TokenUntil) {
		return p.KeepUntil
	}
	return p.TokenUntil
}

func (p *pending) release() mark { return mark{request: p.request, token: p.token, holder: p.holder} }
