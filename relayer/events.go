package relayer

import (
	"context"
	"errors"
	"math"

	"github.com/ethereum/go-ethereum/core/types"
	"go.uber.org/zap"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// apply stores what one event says. It may be done again with the same result. unresolved gets the user decryptions whose threshold cannot be asked
// for now; nil: such a share is an error. Other errors are the database's.
func (d *dispatcher) apply(ctx context.Context, l types.Log, unresolved map[store.Hash]struct{}) error {
	event, err := fhevm.DecodeEvent(l.Topics, l.Data)
	if err != nil {
		d.complain(ctx, "an event of the contracts cannot be read and is left out", err, zap.Stringer("tx", l.TxHash), zap.Uint("index", l.Index))
		d.metrics.malformed.Inc()
		return nil
	}
	data, err := l.MarshalJSON()
	if err != nil {
		return err
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
		threshold, failed := d.o.Thresholds.Resolve(ctx, event.Share.ExtraData)
		switch {
		case errors.Is(failed, fhevm.ErrABI):
			d.complain(ctx, "a share names no threshold that can be read and is left out", failed, zap.String("tx", tx))
			d.metrics.malformed.Inc()
			return nil
		case failed != nil && unresolved == nil:
			return failed
		case failed != nil: // the share is kept, and completes nothing yet
			threshold = math.MaxInt64
			unresolved[ref] = struct{}{}
		}
		share, signature, extra := fhevm.EncodeShare(event.Share)
		sh := store.Share{Reference: ref, Index: int64(event.Index), Share: share, Signature: signature, ExtraData: extra, TxHash: tx}
		out, err = d.addShare(ctx, sh, e, threshold)
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

func (d *dispatcher) addShare(ctx context.Context, sh store.Share, e store.Event, threshold int64) (store.Outcome, error) {
	out, err := d.o.Store.AddShare(ctx, sh, e, threshold)
	if out == store.Completes {
		d.metrics.completed(fhevm.KindUserDecrypt)
	}
	return out, err
}
