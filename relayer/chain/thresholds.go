package chain

import (
	"context"
	"fmt"
	"sync"
	"time"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
)

// What is kept of thresholds. A context's threshold may change, so that it is asked for again after a while.
const (
	maxThresholds    = 10_000
	thresholdsExpire = 10 * time.Minute
)

// ThresholdOptions say who knows the thresholds.
type ThresholdOptions struct {
	Pool           *Pool          // the chain of ProtocolConfig; nil: Static always
	ProtocolConfig common.Address // zero: Static always
	Static         int64          // for shares that name no context; above 0
	Retry          Retry          // zero: 3 tries, 200 ms apart
}

// Thresholds tells how many shares complete a user decryption (relayer reference §6.8). What it learns is kept for 10 minutes, 10 000 contexts
// at most; questions for one context at the same time are one call.
type Thresholds struct {
	o ThresholdOptions

	mu    sync.Mutex // guards all below
	known map[[32]byte]threshold
	order [][32]byte // of known, oldest first; each once
	open  map[[32]byte]*lookup
}

type threshold struct {
	shares int64
	until  time.Time
}

// lookup is a call under way. shares and err are set before done is closed.
type lookup struct {
	done   chan struct{}
	shares int64
	err    error
}

// NewThresholds does no I/O. The error says what is wrong with the options.
func NewThresholds(o ThresholdOptions) (*Thresholds, error) {
	if o.Static <= 0 {
		return nil, fmt.Errorf("a threshold of %d shares is not above 0", o.Static)
	}
	if o.Retry == (Retry{}) {
		o.Retry = Retry{Tries: 3, Pause: 200 * time.Millisecond}
	}
	return &Thresholds{o: o, known: make(map[[32]byte]threshold), open: make(map[[32]byte]*lookup)}, nil
}

// Resolve returns the threshold for a share with this extra data, always above 0. The error wraps [fhevm.ErrABI] where the extra data or the
// contract's answer is malformed; a threshold of 0 is. A failure is not kept.
func (t *Thresholds) Resolve(ctx context.Context, extraData []byte) (int64, error) {
	id, named, err := fhevm.ContextID(extraData)
	if err != nil {
		return 0, fmt.Errorf("resolving a threshold: %w", err)
	}
	if !named || t.o.Pool == nil || t.o.ProtocolConfig == (common.Address{}) {
		return t.o.Static, nil
	}
	t.mu.Lock()
	if shares, ok := t.kept(id); ok {
		t.mu.Unlock()
		return shares, nil
	}
	l, underWay := t.open[id]
	if !underWay {
		l = &lookup{done: make(chan struct{})}
		t.open[id] = l
		// Not under the first caller's context: the others wait for it too. The pool's timeouts and the tries bound it.
		go t.look(context.WithoutCancel(ctx), id, l)
	}
	t.mu.Unlock()
	select {
	case <-l.done:
		return l.shares, l.err
	case <-ctx.Done():
		return 0, fmt.Errorf("resolving a threshold: %w", ctx.Err())
	}
}

func (t *Thresholds) look(ctx context.Context, id [32]byte, l *lookup) {
	err := t.o.Retry.do(ctx, func(ctx context.Context) error {
		returned, err := t.o.Pool.Call(ctx, common.Address{}, t.o.ProtocolConfig, fhevm.CallThreshold(id), Latest, 0)
		if err == nil {
			l.shares, err = fhevm.DecodeThreshold(returned)
		}
		return err
	}, func(err error) bool { _, refused := Revert(err); return refused })
	if revert, refused := Revert(err); refused {
		err = &RevertError{revert}
	}
	if err != nil {
		l.shares, l.err = 0, fmt.Errorf("resolving the threshold of context %x: %w", id, err)
	}
	t.mu.Lock()
	delete(t.open, id)
	if err == nil {
		t.keep(id, l.shares)
	}
	t.mu.Unlock()
	close(l.done)
}

// Known returns what [Thresholds.Resolve] would, where that needs nobody else: the static threshold where the extra data names no context or no
// contract is configured, else what was learned within the last 10 minutes. ok is false for anything else, malformed extra data included. It
// does no I/O and waits for no call under way.
func (t *Thresholds) Known(extraData []byte) (threshold int64, ok bool) {
	id, named, err := fhevm.ContextID(extraData)
	switch {
	case err != nil:
		return 0, false
	case !named, t.o.Pool == nil, t.o.ProtocolConfig == common.Address{}:
		return t.o.Static, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept(id)
}

// kept returns what is known of a context and has not expired.
func (t *Thresholds) kept(id [32]byte) (shares int64, ok bool) {
	k, ok := t.known[id]
	if !ok || !time.Now().Before(k.until) {
		return 0, false
	}
	return k.shares, true
}

// keep notes a threshold; the oldest one makes room. Since all are kept equally long, the oldest is the first to expire: one that was asked for
// again goes with those before it.
func (t *Thresholds) keep(id [32]byte, shares int64) {
	now := time.Now()
	for len(t.order) > 0 && (len(t.order) >= maxThresholds || !now.Before(t.known[t.order[0]].until)) {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
	t.known[id] = threshold{shares, now.Add(thresholdsExpire)}
	t.order = append(t.order, id)
}
