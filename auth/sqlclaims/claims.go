package sqlclaims

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"dongate/auth"
	"dongate/storage"
)

// Bounds. What is beyond them is refused or left out, never waited for.
const (
	maxWaiting   = 4096     // claims that wait for the next transaction; more get auth.ErrClaimsFull
	maxMarks     = 8192     // ends and releases that wait to be written; more are dropped with an error
	maxMarkBytes = 32 << 20 // bytes of their answers; an end past it is written without its answer
	maxBatch     = 256      // claims in one transaction
	enoughMarks  = 512      // ends and releases that do not wait for claims any longer
)

// FlushInterval is how long the end of a request waits for claims to share a transaction with.
const FlushInterval = 10 * time.Millisecond

// Defaults of Options.
const (
	DefaultTimeout        = 5 * time.Second
	DefaultMaxAnswerBytes = 256 << 20
	DefaultAnswerPeriod   = 10 * time.Minute
)

// Options are what Claims may use; the zero value means the defaults.
type Options struct {
	Now func() time.Time // nil: time.Now. It should not be far from that of other gateways on the database
	Log *zap.Logger      // nil: none
	// Timeout bounds one transaction, and so how long a claim can wait for a database that does not answer. 0: DefaultTimeout.
	Timeout time.Duration
	// MaxAnswerBytes bounds the answers that this gateway stores within AnswerPeriod, which should be the time that a closed request id
	// is kept; at most twice as many are held. Past it, ids are closed without their answers. 0: DefaultMaxAnswerBytes, DefaultAnswerPeriod.
	MaxAnswerBytes int
	AnswerPeriod   time.Duration

	alwaysCount bool // Stats never answers from memory: for tests on machines where everything is slow
	oneByOne    bool // each claim and each end in a transaction of its own: what benchmarks compare with
}

// Claims is an [auth.Claims] in a database whose schema is that of [Domain]. It is safe for concurrent use; of any number of them on one
// database, in one process or several, each token is claimed once.
type Claims struct {
	db      *storage.DB
	options Options
	sql     *statements
	answers *rate.Limiter // bytes
	seen    seen

	mu        sync.Mutex // guards what follows
	waiting   []*pending
	enough    int // claims that the writer waits for
	marks     []mark
	markBytes int
	due       bool // marks are to be written even if there are no claims
	closed    bool
	activity  auth.Activity // but for Waiting
	broken    bool          // the last transaction failed, or there was none
	writing   int           // claims in the batch that was taken last

	wake    chan struct{} // one token: there is something to look at
	stopped chan struct{} // closed when the writer has ended
	timer   *time.Timer   // makes marks due

	counts counts
}

var _ auth.StoredClaims = (*Claims)(nil)

// Open returns the claims in db, which stays the caller's to close, after Close. It fails if the schema is not there.
func Open(ctx context.Context, db *storage.DB, o Options) (*Claims, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxAnswerBytes <= 0 {
		o.MaxAnswerBytes = DefaultMaxAnswerBytes
	}
	if o.AnswerPeriod <= 0 {
		o.AnswerPeriod = DefaultAnswerPeriod
	}
	s, err := prepare(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("opening the claims: %w", err)
	}
	c := &Claims{
		db: db, options: o, sql: s,
		answers: rate.NewLimiter(rate.Limit(float64(o.MaxAnswerBytes)/o.AnswerPeriod.Seconds()), o.MaxAnswerBytes),
		wake:    make(chan struct{}, 1), stopped: make(chan struct{}),
		broken: true, // until a transaction shows that claims can be written
	}
	c.timer = time.AfterFunc(time.Hour, c.flush)
	c.timer.Stop()
	go c.write()
	return c, nil
}

// Close writes what waits to be written and returns when that is done or has failed. Calls after it fail with [ErrClosed].
func (c *Claims) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
	<-c.stopped
	c.timer.Stop()
	return c.sql.close()
}

// ErrClosed: the claims were closed; nothing was taken.
var ErrClosed = errors.New("the claims are closed")

// pending is a claim that waits for its outcome.
type pending struct {
	auth.Claim
	token, request key
	holder         int64 // random: tells this claim's rows from another's

	ctx    context.Context
	fate   atomic.Uint32 // fateOpen until the writer or the caller decides
	result chan result   // one, if the writer decided
}

const (
	fateOpen uint32 = iota
	fateTold        // the writer sends the outcome
	fateGone        // the caller left without it
)

type result struct {
	outcome  auth.Outcome
	previous *auth.Previous
	err      error
}

// Claim implements [auth.Claims].
func (c *Claims) Claim(ctx context.Context, claim auth.Claim) (auth.Outcome, *auth.Previous, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	p := &pending{
		Claim: claim, token: tokenKey(claim.Signer, claim.TokenID), request: requestKey(claim.WorkflowID, claim.RequestID),
		holder: int64(rand.Uint64()), ctx: ctx, result: make(chan result, 1),
	}
	if err := c.submit(p); err != nil {
		return 0, nil, err
	}
	select {
	case r := <-p.result:
		return r.outcome, r.previous, r.err
	case <-ctx.Done():
		if p.fate.CompareAndSwap(fateOpen, fateGone) {
			return 0, nil, ctx.Err()
		}
		r := <-p.result
		return r.outcome, r.previous, r.err
	}
}

func (c *Claims) submit(p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case len(c.waiting) >= maxWaiting:
		return fmt.Errorf("%w: %d wait to be written", auth.ErrClaimsFull, len(c.waiting))
	}
	c.waiting = append(c.waiting, p)
	if len(c.waiting) >= c.enough {
		c.signal()
	}
	return nil
}

// tell gives the caller its outcome; false: it has left.
func (p *pending) tell(r result) bool {
	if !p.fate.CompareAndSwap(fateOpen, fateTold) {
		return false
	}
	p.result <- r
	return true
}

// mark is a change to rows that exist, which claims made after it must find done.
type mark struct {
	request key
	// The end of a request.
	state  auth.State
	answer []byte
	until  time.Time
	done   func(error)
	// The release of a claim that nobody learnt of; holder is then not 0.
	token  key
	holder int64
}

// End implements [auth.Claims].
func (c *Claims) End(workflowID, requestID string, s auth.State, answer []byte, until time.Time, done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	if s != auth.StateAnswered && s != auth.StateFailed {
		done(fmt.Errorf("a request cannot end in the state %q", s))
		return
	}
	if s == auth.StateFailed || !c.mayStore(len(answer)) {
		answer = nil
	}
	if err := c.add(mark{request: requestKey(workflowID, requestID), state: s, answer: answer, until: until, done: done}); err != nil {
		done(err)
	}
}

// mayStore reports whether an answer of n bytes is to be stored, and counts it.
func (c *Claims) mayStore(n int) bool {
	return n > 0 && n <= (4<<20) && c.answers.AllowN(c.options.Now(), n)
}

// add queues marks for the writer, behind those that are there.
func (c *Claims) add(marks ...mark) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if len(c.marks)+len(marks) > maxMarks {
		return fmt.Errorf("%w: %d changes wait to be written", auth.ErrClaimsFull, len(c.marks))
	}
	for _, m := range marks {
		if c.markBytes+len(m.answer) > maxMarkBytes {
			m.answer = nil
		}
		c.markBytes += len(m.answer)
		c.marks = append(c.marks, m)
	}
	switch {
	case len(c.marks) >= enoughMarks && !c.broken:
		c.due = true
		c.signal()
	case len(c.marks) == len(marks): // the first that wait
		c.timer.Reset(FlushInterval)
	}
	return nil
}

// flush makes the marks due.
func (c *Claims) flush() {
	c.mu.Lock()
	c.due = true
	c.mu.Unlock()
	c.signal()
}

func (c *Claims) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Used implements [auth.Claims]: it knows of the tokens that were claimed, or found to be, through this value.
func (c *Claims) Used(ctx context.Context, signer common.Address, tokenID string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return c.seen.has(tokenKey(signer, tokenID), c.options.Now()), nil
}

// Activity implements [auth.StoredClaims].
func (c *Claims) Activity() auth.Activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.activity
	a.Waiting = len(c.waiting) + len(c.marks)
	return a
}

// Ping implements [auth.StoredClaims]: it reads; at first, and after a transaction that failed, it makes a claim of its own, which
// expires within the timeout of a transaction.
func (c *Claims) Ping(ctx context.Context) error {
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if !broken {
		if err := c.db.SameFile(); err != nil {
			return err
		}
		return c.sql.ping(ctx)
	}
	soon := c.options.Now().Add(c.options.Timeout)
	name := fmt.Sprintf("ping %x", rand.Uint64())
	_, _, err := c.Claim(ctx, auth.Claim{TokenID: name, TokenUntil: soon, RequestID: name, RequestUntil: soon})
	return err
}

// Stats implements [auth.Claims]: exact, or as old as a hundred times what counting takes if that is more than an instant; that holds for a
// count that fails too.
func (c *Claims) Stats(ctx context.Context) (claims, ids int, err error) {
	return c.counts.get(ctx, c.sql, c.options)
}

// counts remembers a count that took long, and one that failed.
type counts struct {
	mu         sync.Mutex // held while counting, so that scrapes do not count side by side
	goodUntil  time.Time  // by the wall clock
	tokens     int
	requestIDs int
	err        error
}

// cheap is what a count may take to be made anew every time.
const cheap = 20 * time.Millisecond

func (n *counts) get(ctx context.Context, s *statements, o Options) (int, int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	start := time.Now()
	if start.Before(n.goodUntil) && !o.alwaysCount {
		return n.tokens, n.requestIDs, n.err
	}
	n.tokens, n.requestIDs, n.err = s.count(ctx, floor(o.Now()))
	if n.err != nil {
		n.tokens, n.requestIDs, n.err = 0, 0, fmt.Errorf("counting claims: %w", n.err)
	}
	if took := time.Since(start); took > cheap {
		n.goodUntil = time.Now().Add(100 * took)
	}
	return n.tokens, n.requestIDs, n.err
}
