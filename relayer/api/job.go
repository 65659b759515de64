package api

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// job tells what became of a job. Every id of the kind is found, whichever of the kind's paths it was made on.
func (h *Handler) job(c *call, k fhevm.Kind) answer {
	id, err := uuid.Parse(c.jobID)
	if err != nil || len(c.jobID) != len(id.String()) { // uuid.Parse takes other forms, too
		return c.fail(fhevm.ErrJobIDMalformed(), 0)
	}
	j, err := h.o.Store.Job(c.Context(), k, id.String())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.fail(fhevm.ErrJobNotFound(), 0)
	case err != nil:
		return h.databaseFailed(c, err)
	}
	switch j.State {
	case fhevm.StateCompleted:
		return h.completed(c, j)
	case fhevm.StateTimedOut, fhevm.StateFailure:
		told := told(j)
		return answer{Reply: fhevm.JobFailed(c.id, told, c.sdk), label: fhevm.OutcomeOf(told.State, told.Cause, c.sdk).Label}
	}
	return h.pending(c, j)
}

func (h *Handler) databaseFailed(c *call, err error) answer {
	return h.internal(c, fhevm.ErrDatabase().Message, err)
}

func told(j store.Job) fhevm.Job {
	return fhevm.Job{ID: j.ExtJobID, State: j.State, UpdatedAt: j.StateSince, Cause: fhevm.Cause(j.ErrCode), Reason: j.ErrReason}
}

// pending answers 202 with what stands before the job.
func (h *Handler) pending(c *call, j store.Job) answer {
	out, load := told(j), fhevm.Load{}
	if j.State != fhevm.StateReceiptReceived { // there nothing stands before it
		q := h.queues[j.Kind]
		waiting, err := h.waiting(c, q)
		if err != nil {
			return h.databaseFailed(c, err)
		}
		if out.QueuePosition, err = q.before(c.Context(), waiting, j); err != nil {
			return h.databaseFailed(c, err)
		}
		_, out.TxQueueSize = waiting.now(j.Kind)
		load = q.load(out.QueuePosition, out.TxQueueSize)
		if j.State == fhevm.StateProcessing {
			out.TxQueueSize = max(out.TxQueueSize, out.QueuePosition+1) // it may have come since the look
			load = q.load(0, out.QueuePosition)
		}
	}
	return answer{Reply: fhevm.Pending(c.id, out, h.o.RetryAfter.Seconds(j.Kind, j.State, h.o.Now().Sub(j.StateSince), load))}
}

// completed answers 200 with the result, or for some seconds 202 while further shares of a user decryption may come.
func (h *Handler) completed(c *call, j store.Job) answer {
	if j.Kind != fhevm.KindUserDecrypt {
		result, err := fhevm.DecodeResult(j.Kind, j.Accepted != nil && *j.Accepted, j.Result)
		if err != nil {
			return h.internal(c, "", err)
		}
		return answer{Reply: fhevm.Succeeded(c.id, result)}
	}
	stored, err := h.o.Store.Shares(c.Context(), j.ID)
	if err != nil {
		return h.databaseFailed(c, err)
	}
	threshold := j.Threshold
	if threshold <= 0 {
		threshold = h.o.Threshold
	}
	n := int64(len(stored))
	ready, wait := fhevm.SharesReady(n, threshold, h.o.AdditionalShares, h.o.Now().Sub(j.StateSince), h.o.AdditionalSharesTimeout)
	switch {
	case !ready:
		return answer{Reply: fhevm.Pending(c.id, told(j), h.o.RetryAfter.Remaining(wait))}
	case n < threshold: // a re-organisation took some away
		return h.internal(c, "", fmt.Errorf("a completed job has %d shares of %d", n, threshold))
	}
	result := make(fhevm.UserResult, n)
	for i, s := range stored {
		if result[i], err = fhevm.DecodeShare(s.Share, s.Signature, s.ExtraData); err != nil {
			return h.internal(c, "", err)
		}
	}
	h.metrics.spare.WithLabelValues(j.ReqType).Observe(float64(n - threshold))
	return answer{Reply: fhevm.Succeeded(c.id, result)}
}
