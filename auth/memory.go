package auth

import (
	"bytes"
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// Bounds of MemoryClaims where its options name none. A token is held for at most ten minutes and an id for the request's time and ten
// minutes more, so these are enough for the default global rate of 1000 requests per second. A token
// and an id together take about 450 bytes, apart from the answer.
const (
	DefaultMaxClaims      = 1 << 20
	DefaultMaxIDs         = 1 << 20
	DefaultMaxAnswerBytes = 64 << 20
)

// MemoryOptions are the bounds of MemoryClaims; 0 or less means the default.
type MemoryOptions struct {
	Now            func() time.Time // nil: time.Now
	MaxClaims      int              // tokens held at once
	MaxIDs         int              // request ids held at once
	MaxAnswerBytes int64            // bytes of stored answers; past it the oldest are dropped, and their ids keep their state
}

// MemoryClaims is a [Claims] in this process's memory: it forgets everything when the process ends, and no other gateway sees it.
// Everything expires on its own as other calls come in, without a goroutine, in constant amortised time. It is safe for concurrent
// use.
//
// Time never runs backwards in it: were the clock set back after a token's claim was forgotten, the token could be used again, so a
// claim that would have been too late by the latest clock seen is refused.
type MemoryClaims struct {
	now            func() time.Time
	maxClaims      int
	maxIDs         int
	maxAnswerBytes int64

	mu          sync.Mutex // guards everything below
	latest      time.Time  // the latest clock seen
	tokens      map[Key]time.Time
	ids         map[Key]*heldID
	tokenWheel  wheel
	idWheel     wheel
	answers     list.List // of *heldID with a stored answer, oldest first
	answerBytes int64
}

// heldID is a request id that is taken.
type heldID struct {
	signer common.Address
	state  State
	until  time.Time
	slot   int64 // the wheel's slot that may remove it; a mention in any other is stale
	answer []byte
	stored *list.Element // in answers, nil without an answer
}

var _ Claims = (*MemoryClaims)(nil)

// NewMemoryClaims returns an empty MemoryClaims.
func NewMemoryClaims(o MemoryOptions) *MemoryClaims {
	m := &MemoryClaims{
		now: o.Now, maxClaims: o.MaxClaims, maxIDs: o.MaxIDs, maxAnswerBytes: o.MaxAnswerBytes,
		tokens: make(map[Key]time.Time), ids: make(map[Key]*heldID),
		tokenWheel: newWheel(), idWheel: newWheel(),
	}
	if m.now == nil {
		m.now = time.Now
	}
	if m.maxClaims <= 0 {
		m.maxClaims = DefaultMaxClaims
	}
	if m.maxIDs <= 0 {
		m.maxIDs = DefaultMaxIDs
	}
	if m.maxAnswerBytes <= 0 {
		m.maxAnswerBytes = DefaultMaxAnswerBytes
	}
	return m
}

// Used implements [Claims].
func (m *MemoryClaims) Used(ctx context.Context, signer common.Address, tokenID string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens[TokenKey(signer, tokenID)].After(m.tick()), nil
}

// Claim implements [Claims].
func (m *MemoryClaims) Claim(ctx context.Context, c Claim) (Outcome, *Previous, error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	token, id := TokenKey(c.Signer, c.TokenID), RequestKey(c.WorkflowID, c.RequestID)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.tick()
	if m.tokens[token].After(now) {
		return Replayed, nil, nil
	}
	if held := m.ids[id]; held != nil && held.until.After(now) {
		return Conflict, &Previous{Signer: held.signer, State: held.state, Answer: held.answer}, nil
	}
	switch {
	case !c.TokenUntil.After(now) || !c.RequestUntil.After(now):
		return 0, nil, ErrClaimExpired
	case len(m.tokens) >= m.maxClaims:
		return 0, nil, fmt.Errorf("%w: %d tokens are held", ErrClaimsFull, len(m.tokens))
	case len(m.ids) >= m.maxIDs:
		return 0, nil, fmt.Errorf("%w: %d request ids are held", ErrClaimsFull, len(m.ids))
	}
	m.tokens[token] = c.TokenUntil
	m.tokenWheel.add(token, c.TokenUntil)
	m.removeID(id) // one that expired within this second
	m.ids[id] = &heldID{signer: c.Signer, state: StateOpen, until: c.RequestUntil, slot: m.idWheel.add(id, c.RequestUntil)}
	return Claimed, nil, nil
}

// End implements [Claims]; done is called before it returns. The answer is copied; one over MaxAnswerBytes is not stored at all.
func (m *MemoryClaims) End(workflowID, requestID string, s State, answer []byte, until time.Time, done func(error)) {
	err := m.end(workflowID, requestID, s, answer, until)
	if done != nil {
		done(err)
	}
}

func (m *MemoryClaims) end(workflowID, requestID string, s State, answer []byte, until time.Time) error {
	if s != StateAnswered && s != StateFailed {
		return fmt.Errorf("a request cannot end in the state %q", s)
	}
	id := RequestKey(workflowID, requestID)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.tick()
	held := m.ids[id]
	if held == nil || held.state != StateOpen || !held.until.After(now) {
		return ErrNotOpen
	}
	if !until.After(now) {
		m.removeID(id)
		return nil
	}
	held.state, held.until = s, until
	held.slot = m.idWheel.add(id, until)
	if s == StateAnswered && len(answer) > 0 && int64(len(answer)) <= m.maxAnswerBytes {
		held.answer = bytes.Clone(answer)
		held.stored = m.answers.PushBack(held)
		m.answerBytes += int64(len(answer))
		for m.answerBytes > m.maxAnswerBytes {
			m.dropAnswer(m.answers.Front().Value.(*heldID))
		}
	}
	return nil
}

// Stats implements [Claims].
func (m *MemoryClaims) Stats(context.Context) (claims, ids int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick()
	return len(m.tokens), len(m.ids), nil
}

// AnswerBytes returns how many bytes of answers are stored.
func (m *MemoryClaims) AnswerBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick()
	return m.answerBytes
}

// tick reads the clock, removes what has expired and returns the time. m.mu is held.
func (m *MemoryClaims) tick() time.Time {
	if now := m.now(); now.After(m.latest) {
		m.latest = now
	}
	m.tokenWheel.expire(m.latest, func(k Key, _ int64) {
		// A token's time never changes, so its one mention is right, unless it expired and was claimed anew since.
		if !m.tokens[k].After(m.latest) {
			delete(m.tokens, k)
		}
	})
	m.idWheel.expire(m.latest, func(k Key, slot int64) {
		if held := m.ids[k]; held != nil && held.slot == slot {
			m.removeID(k)
		}
	})
	return m.latest
}

func (m *MemoryClaims) removeID(k Key) {
	if held := m.ids[k]; held != nil {
		m.dropAnswer(held)
		delete(m.ids, k)
	}
}

func (m *MemoryClaims) dropAnswer(held *heldID) {
	if held.stored == nil {
		return
	}
	m.answers.Remove(held.stored)
	m.answerBytes -= int64(len(held.answer))
	held.answer, held.stored = nil, nil
}

// wheel remembers which keys expire in which second, so that expiry looks at each key once.
type wheel struct {
	slots map[int64][]Key // by the second, rounded up, in which they have expired
	swept int64           // every slot up to this one has been emptied
}

func newWheel() wheel { return wheel{slots: make(map[int64][]Key)} }

// add notes that k expires at t and returns the slot.
func (w *wheel) add(k Key, t time.Time) int64 {
	slot := t.Unix() + 1
	w.slots[slot] = append(w.slots[slot], k)
	return slot
}

// expire empties the slots that are over at now, calling remove with each key in them.
func (w *wheel) expire(now time.Time, remove func(k Key, slot int64)) {
	second := now.Unix()
	if second <= w.swept {
		return
	}
	empty := func(slot int64) {
		for _, k := range w.slots[slot] {
			remove(k, slot)
		}
		delete(w.slots, slot)
	}
	if steps := second - w.swept; steps < 0 || steps > int64(len(w.slots)) {
		for slot := range w.slots { // after a pause, fewer slots are left than seconds have gone
			if slot <= second {
				empty(slot)
			}
		}
	} else {
		for slot := w.swept + 1; slot <= second; slot++ {
			empty(slot)
		}
	}
	w.swept = second
}
