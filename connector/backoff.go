package connector

import (
	"context"
	"time"
)

// backoff is where a series of failed attempts stands. The zero step means that none has failed yet.
type backoff struct {
	Backoff
	step time.Duration
}

// next moves on by one failed attempt and returns the wait before the next: uniform between half the step and the step,
// as random in [0, 1) says. Without the jitter all nodes of a DON would come back in the same instant, and without the
// lower half one of them would come back at once, again and again.
func (b *backoff) next(random float64) time.Duration {
	if b.step == 0 {
		b.step = b.Initial
	} else {
		b.step = time.Duration(min(float64(b.step)*b.Multiplier, float64(b.Max)))
	}
	half := b.step / 2
	return half + time.Duration(random*float64(b.step-half))
}

// reset starts a new series.
func (b *backoff) reset() { b.step = 0 }

// sleep waits for d, or returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
