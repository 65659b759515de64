package relayer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// housekeeping times out requests the chain does not answer and deletes what is kept no longer.
func (d *dispatcher) housekeeping(ctx context.Context) {
	var expired time.Time
	for {
		if err := d.metrics.seed(ctx, d.o.Store); err != nil {
			d.complain(ctx, "requests cannot be counted", err)
		}
		for _, k := range fhevm.Kinds {
			d.timeOut(ctx, k)
		}
		if d.o.ExpiryInterval > 0 && time.Since(expired) >= d.o.ExpiryInterval {
			for _, k := range fhevm.Kinds {
				if keep := d.o.Expiry[k]; keep > 0 {
					d.deleteOld(ctx, string(k), func() (int, error) { return d.o.Store.Expire(ctx, k, d.o.Now().Add(-keep), batch) })
				}
			}
			expired = time.Now()
		}
		longest := time.Duration(0)
		for _, k := range fhevm.Kinds {
			longest = max(longest, d.o.timeout(k))
		}
		d.deleteOld(ctx, "early events", func() (int, error) {
			n, err := d.o.Store.ExpireEarly(ctx, d.o.Now().Add(-longest), batch)
			return int(n), err
		})
		d.metrics.earlyDropped.Set(float64(d.o.Store.EarlyDropped()))
		if !sleep(ctx, d.o.TimeoutSweep) {
			return
		}
	}
}

// timeOut ends the requests of a kind that had no answer when their time was over, as far as the chain has been read: what it said in time counts,
// however late it is read.
func (d *dispatcher) timeOut(ctx context.Context, k fhevm.Kind) {
	read := d.caughtUp.Load()
	if read == 0 {
		return
	}
	before := time.Unix(0, min(read, d.o.Now().UnixNano())).Add(-d.o.timeout(k))
	for ctx.Err() == nil {
		jobs, err := d.o.Store.TimeOut(ctx, k, before, batch, store.Cause{Code: string(fhevm.CauseResponseTimedOut), Reason: fhevm.ReasonNoResponse})
		if err != nil {
			d.complain(ctx, "requests cannot be timed out", err, zap.String("kind", string(k)))
			return
		}
		for _, j := range jobs {
			d.metrics.counted(k, fhevm.StateReceiptReceived, fhevm.StateTimedOut)
			d.log.Info("the chain did not answer a request in time", zap.String("kind", string(k)), zap.String("job", j.ExtJobID))
		}
		if len(jobs) < batch {
			return
		}
	}
}

// deleteOld deletes batch after batch.
func (d *dispatcher) deleteOld(ctx context.Context, what string, remove func() (int, error)) {
	for ctx.Err() == nil {
		n, err := remove()
		if err != nil {
			d.complain(ctx, "what is kept no longer cannot be deleted", err, zap.String("what", what))
			return
		}
		if n < batch {
			return
		}
	}
}
