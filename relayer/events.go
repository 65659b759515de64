package relayer

import (
	"context"
	"errors"
	"math"

	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
	"dongate/storage"
)

// apply stores what one event says. It may be done again with the same result. The error is the database's.
func (d *dispatcher) apply(ctx context.Context, l types.Log) error {
	event, err := fhevm.DecodeEvent(l.Topics, l.Data)
	if err != nil {
		d.leaveOut(ctx, l, err)
		return nil
	}
	data, err := l.MarshalJSON()
	if err != nil {
		return err
	}
	if err := storage.CheckPayload("the event", data); err != nil {
		d.leaveOut(ctx, l, err)
		return nil
	}
	e := store.Event{BlockHash: store.Hash(l.BlockHash), LogIndex: int64(l.Index), Data: data}
	ref, tx := store.Hash(event.Ref()), l.TxHash.Hex()
	var out store.Outcome
	kind := fhevm.KindUserDecrypt
	switch event := event.(type) {
	case fhevm.PublicResponse:
		kind = fhevm.KindPublicDecrypt
		out, err = d.complete(ctx, kind, event.Ref(), event.Result, store.Response{TxHash: tx}, e)
	case fhevm.ProofResponse:
		kind = fhevm.KindInputProof
		out, err = d.complete(ctx, kind, event.Ref(), event.Result, store.Response{Accepted: true, TxHash: tx}, e)
	case fhevm.ProofRejected:
		kind = fhevm.KindInputProof
		out, err = d.o.Store.Complete(ctx, kind, ref, store.Response{Reason: fhevm.ReasonRejected, TxHash: tx}, e)
	case fhevm.UserThresholdReached:
		out, err = d.o.Store.Consensus(ctx, ref, tx, e)
	case fhevm.UserResponse:
		if _, _, err := fhevm.ContextID(event.Share.ExtraData); err != nil {
			d.leaveOut(ctx, l, err)
			return nil
		}
		// Nobody is asked for the threshold here: a chain that does not answer would hold up the events of all others.
		threshold, known := d.o.Thresholds.Known(event.Share.ExtraData)
		if !known {
			threshold = math.MaxInt64
		}
		share, signature, extra := fhevm.EncodeShare(event.Share)
		sh := store.Share{Reference: ref, Index: int64(event.Index), Share: share, Signature: signature, ExtraData: extra, TxHash: tx}
		if out, err = d.o.Store.AddShare(ctx, sh, e, threshold); out == store.Completes {
			d.metrics.completed(kind)
		}
		if !known && out == store.Stored {
			if j, err := d.o.Store.JobByReference(ctx, kind, ref); err == nil {
				d.counter.add(j.ID)
			} else if !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
	default:
		return nil // a request's own event
	}
	if err != nil {
		return err
	}
	d.o.pass(pointApplied)
	d.metrics.events.WithLabelValues(string(kind), string(out)).Inc()
	return nil
}

func (d *dispatcher) complete(ctx context.Context, k fhevm.Kind, ref fhevm.Reference, result fhevm.Result, r store.Response, e store.Event) (store.Outcome, error) {
	var err error
	if r.Result, err = fhevm.EncodeResult(result, ref); err != nil {
		return "", err
	}
	out, err := d.o.Store.Complete(ctx, k, store.Hash(ref), r, e)
	if out == store.Completes {
		d.metrics.completed(k)
	}
	return out, err
}

// leaveOut counts an event that cannot be stored.
func (d *dispatcher) leaveOut(ctx context.Context, l types.Log, err error) {
	d.complain(ctx, "an event of the contracts cannot be read and is left out", err, zap.Stringer("tx", l.TxHash), zap.Uint("index", l.Index))
	d.metrics.malformed.Inc()
}
