package sqlclaims

import (
	"context"
	"database/sql"
	"time"

	"go.uber.org/zap"

	"dongate/auth"
	"dongate/storage"
)

// pace is the least time from one transaction to the next while several claims come at once. A flush of the disk can be so fast that each
// would carry one or two claims, and its price in CPU would be paid for each; a claim that comes alone does not wait.
const pace = time.Millisecond

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
		if len(b.marks)+len(b.claims) > 0 {
			start := time.Now()
			c.commit(b)
			if len(b.claims) > 1 {
				time.Sleep(pace - time.Since(start))
			}
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

// take takes the oldest marks, and claims of which no two want the same thing: what becomes of the second depends on the first, so it goes
// into a later batch. c.mu is held.
func (c *Claims) take() batch {
	var b batch
	marks, claims := maxBatchMarks, maxBatch
	if c.options.oneByOne {
		marks, claims = 1, 1
	}
	n := min(len(c.marks), marks)
	b.marks, c.marks = c.marks[:n:n], c.marks[n:]
	for _, m := range b.marks {
		c.markBytes -= len(m.answer)
	}
	if len(c.marks) > 0 || n > 0 && c.options.oneByOne {
		// All marks come before the claims that were made after them.
		c.due = true
		return b
	}
	c.marks, c.due = nil, false

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
		case token || request || len(b.claims) == claims:
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

// commit writes a batch and tells everyone what became of it.
func (c *Claims) commit(b batch) {
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
		c.failed(b, err, committing)
		return
	}
	var releases []mark
	for i, p := range b.claims {
		switch r := found.claims[i]; {
		case r.outcome == auth.Conflict:
			p.tell(r)
		case p.tell(r):
			c.seen.add(p.token, p.TokenUntil, now)
		case r.outcome == auth.Claimed:
			releases = append(releases, p.release())
		}
	}
	c.release(releases)
	for i, m := range b.marks {
		if m.holder == 0 {
			m.done(found.marks[i])
		}
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

// failed tells the claims of a batch that was not written, and keeps its marks for the next one.
func (c *Claims) failed(b batch, err error, committing bool) {
	c.options.Log.Warn("claims not written", zap.Int("claims", len(b.claims)), zap.Int("ends", len(b.marks)), zap.Error(err))
	var releases []mark
	for _, p := range b.claims {
		p.tell(result{err: err})
		if committing {
			releases = append(releases, p.release())
		}
	}
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
	c.timer.Reset(retryMarks)
	c.mu.Unlock()
	if closed { // no other batch may follow, and nobody should wait for one
		for _, m := range marks {
			if m.holder == 0 {
				m.done(err)
			}
		}
		return
	}
	c.release(releases)
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
