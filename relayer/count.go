package relayer

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// counters is how many user decryptions are counted at a time whose threshold has to be asked for.
const counters = 4

// counter holds the user decryptions whose shares may be enough: they were stored while their threshold was not known.
type counter struct {
	mu   sync.Mutex
	ids  map[int64]struct{}
	wake chan struct{} // one token: there is one
}

func newCounter() *counter { return &counter{ids: map[int64]struct{}{}, wake: make(chan struct{}, 1)} }

func (c *counter) add(id int64) {
	c.mu.Lock()
	c.ids[id] = struct{}{}
	c.mu.Unlock()
	poke(c.wake)
}

// take returns one of them.
func (c *counter) take() (id int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id = range c.ids {
		delete(c.ids, id)
		if len(c.ids) > 0 {
			poke(c.wake)
		}
		return id, true
	}
	return 0, false
}

// count counts one user decryption after the other until ctx ends.
func (d *dispatcher) count(ctx context.Context) {
	for {
		id, ok := d.counter.take()
		if !ok {
			select {
			case <-d.counter.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if err := d.recount(ctx, id); err != nil {
			d.complain(ctx, "shares cannot be counted", err, zap.Int64("id", id))
			if !sleep(ctx, time.Second) {
				return
			}
			d.counter.add(id)
		}
	}
}

// recount completes a user decryption whose stored shares are enough.
func (d *dispatcher) recount(ctx context.Context, id int64) error {
	shares, err := d.o.Store.Shares(ctx, id)
	if err != nil {
		return err
	}
	for _, sh := range shares {
		decoded, err := fhevm.DecodeShare(sh.Share, sh.Signature, sh.ExtraData)
		if err != nil {
			continue
		}
		threshold, err := d.o.Thresholds.Resolve(ctx, decoded.ExtraData)
		if errors.Is(err, fhevm.ErrABI) {
			continue
		}
		if err != nil {
			return err
		}
		switch out, err := d.o.Store.Recount(ctx, id, threshold); {
		case errors.Is(err, store.ErrNotFound), out == store.Late:
			return nil
		case err != nil:
			return err
		case out == store.Completes:
			d.metrics.completed(fhevm.KindUserDecrypt)
			return nil
		}
	}
	return nil
}

// gather finds the user decryptions that have shares and wait.
func (d *dispatcher) gather(ctx context.Context) error {
	for after := int64(0); ; {
		ids, err := d.o.Store.Gathering(ctx, after, 1000)
		if err != nil {
			return err
		}
		for _, id := range ids {
			d.counter.add(id)
			after = id
		}
		if len(ids) < 1000 {
			return nil
		}
	}
}
