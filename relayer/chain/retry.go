package chain

import (
	"context"
	"time"
)

// Retry is how often a question is asked before its failure counts. The zero value is the one for host chains (relayer reference §6.4).
type Retry struct {
	Tries int           // in all; 0: 3
	Pause time.Duration // between two; 0: 1 s
}

// do asks until ask returns nil, final says that asking again is useless, the tries are used up or ctx ends. The error is the last one.
func (r Retry) do(ctx context.Context, ask func(context.Context) error, final func(error) bool) error {
	if r.Tries <= 0 {
		r.Tries = 3
	}
	if r.Pause <= 0 {
		r.Pause = time.Second
	}
	for try := 1; ; try++ {
		err := ask(ctx)
		if err == nil || ctx.Err() != nil || try >= r.Tries || final(err) {
			return err
		}
		if !sleep(ctx, r.Pause) {
			return err
		}
	}
}

// sleep waits for d, or returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
