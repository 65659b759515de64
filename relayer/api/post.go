package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

const (
	// maxSignatureChecks bounds the checks at a time that ask a host chain.
	maxSignatureChecks = 64
	// signatureTimeout bounds one check, waiting for a place included.
	signatureTimeout = 30 * time.Second
	// overloadedWait and blockedWait are when to try again while the queue is full or nothing can be sent.
	overloadedWait = 4 * time.Second
	blockedWait    = 30 * time.Second
)

// post takes a request (relayer reference §1.6).
func (h *Handler) post(c *call, e fhevm.Endpoint) answer {
	body, failed := readBody(c)
	if failed != nil {
		return c.fail(failed, 0)
	}
	r, err := fhevm.Decode(e, body, fhevm.Options{Now: h.o.Now(), MaxHandles: h.o.MaxHandles, MaxContracts: h.o.MaxContracts})
	if err == nil {
		err = fhevm.CheckHostChains(r, h.o.HostChains)
	}
	if err != nil {
		return h.refuse(c, err)
	}
	if unified, ok := r.(*fhevm.UnifiedUserDecrypt); ok {
		if failed := h.checkSignature(c, unified); failed != nil {
			return *failed
		}
	}
	return h.accept(c, r)
}

// readBody reads at most [fhevm.MaxBodyBytes].
func readBody(c *call) ([]byte, *fhevm.Error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, fhevm.MaxBodyBytes))
	if err == nil {
		return body, nil
	}
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, fhevm.ErrBodyTooLarge()
	}
	return nil, fhevm.ErrBodyUnreadable()
}

// refuse answers with the error where it is one for the caller.
func (h *Handler) refuse(c *call, err error) answer {
	if told := new(fhevm.Error); errors.As(err, &told) {
		return c.fail(told, 0)
	}
	return h.internal(c, "", err)
}

// internal answers 500 and logs why. message is what the caller is told; "" for the usual text.
func (h *Handler) internal(c *call, message string, err error) answer {
	if c.Context().Err() == nil { // else nobody is there to be told, and it is no fault of ours
		h.o.Log.Error("a request failed", zap.String("requestId", c.id), zap.String("path", c.URL.Path), zap.Error(err))
	}
	return c.fail(fhevm.ErrInternal(message), 0)
}

func (h *Handler) checkSignature(c *call, r *fhevm.UnifiedUserDecrypt) *answer {
	if h.o.Signatures.Signed(r) { // needs no place: those who wait for a host chain must not hold up who does not
		h.metrics.prechecks.WithLabelValues("accepted").Inc()
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), signatureTimeout)
	defer cancel()
	select {
	case h.checks <- struct{}{}:
		defer func() { <-h.checks }()
	case <-ctx.Done():
		a := c.fail(fhevm.ErrOverloaded(), h.o.RetryAfter.Remaining(overloadedWait))
		return &a
	}
	err := h.o.Signatures.Check(ctx, r)
	switch {
	case err == nil:
		h.metrics.prechecks.WithLabelValues("accepted").Inc()
		return nil
	case errors.Is(err, fhevm.ErrSignature):
		h.metrics.prechecks.WithLabelValues("rejected").Inc()
		a := c.fail(fhevm.ErrInvalidSignature(), 0)
		return &a
	default:
		h.metrics.prechecks.WithLabelValues("host_call_failed").Inc()
		a := h.internal(c, "", err)
		return &a
	}
}

// accept stores the request unless its job is there already.
func (h *Handler) accept(c *call, r fhevm.Request) answer {
	ctx, k := c.Context(), r.Kind()
	q := h.queues[k]
	waiting, err := h.waiting(c, q)
	if err != nil {
		return h.internal(c, "", err)
	}
	queued, processing := waiting.now(k)
	load := q.load(queued, processing)
	label, blocked := h.o.Blocked()
	if blocked || q.full(waiting) {
		// A repeated request costs nothing and is answered all the same.
		switch id, err := h.o.Store.Find(ctx, k, store.Hash(r.JobID())); {
		case err == nil:
			return h.accepted(c, k, id, false, load)
		case !errors.Is(err, store.ErrNotFound):
			return h.internal(c, "", err)
		case blocked && h.o.Draining():
			return c.fail(fhevm.ErrOperator(label), h.o.RetryAfter.Remaining(time.Second)) // another process takes it, or this one when it is back
		case blocked:
			return c.fail(fhevm.ErrOperator(label), h.o.RetryAfter.Remaining(blockedWait))
		}
		return c.fail(fhevm.ErrOverloaded(), h.o.RetryAfter.Remaining(overloadedWait))
	}
	stored, err := fhevm.EncodeStored(r)
	if err != nil {
		return h.internal(c, "", err)
	}
	id, inserted, err := h.o.Store.Insert(ctx, store.NewJob{
		Kind: k, ExtJobID: uuid.NewString(), IntJobID: store.Hash(r.JobID()), Request: stored, ReqType: r.Variant().ReqType(),
	})
	if err != nil {
		return h.internal(c, "", err)
	}
	if inserted {
		waiting.added()
		h.o.Notify(k)
	}
	return h.accepted(c, k, id, inserted, load)
}

// waiting returns a look at the queue, and has it looked at anew after the answer where that is due.
func (h *Handler) waiting(c *call, q *queue) (*waiting, error) {
	w, due, err := q.waiting(c.Context(), h.o.Now())
	if due {
		c.due = q
	}
	return w, err
}

// accepted answers 202 with the job's id. load is what stands before it.
func (h *Handler) accepted(c *call, k fhevm.Kind, id string, inserted bool, load fhevm.Load) answer {
	state, age := fhevm.FirstState(k), time.Duration(0)
	result := "new"
	if !inserted {
		result = "repeated"
		// When to look at an older job is up to where it stands. Where that cannot be read the estimate for a new one serves.
		if j, err := h.o.Store.Job(c.Context(), k, id); err == nil {
			state, age = j.State, h.o.Now().Sub(j.StateSince)
		}
	}
	h.metrics.posts.WithLabelValues(string(k), result).Inc()
	h.metrics.eta.WithLabelValues(string(k)).Observe(h.o.RetryAfter.ETA(k, state, load).Seconds())
	return answer{Reply: fhevm.Accepted(c.id, id, h.o.RetryAfter.Seconds(k, state, age, load))}
}
