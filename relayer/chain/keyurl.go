package chain

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
)

// DefaultKeyURLPoll is how often the location of key material is asked for.
const DefaultKeyURLPoll = 12 * time.Second

// maxMaterialURL bounds, in bytes, a location that is handed out.
const maxMaterialURL = 2048

// KeyURLOptions say who knows where key material lies.
type KeyURLOptions struct {
	// Static is handed out as it is; nil: the contracts are asked.
	Static *KeyMaterials

	Pool           *Pool // the chain of both contracts
	KMSGeneration  common.Address
	ProtocolConfig common.Address
	Poll           time.Duration // 0: DefaultKeyURLPoll
	Log            *zap.Logger   // nil: none
}

// KeyMaterials are the public key and the common reference string (of 2048 bits) that clients encrypt with.
type KeyMaterials struct{ Key, CRS fhevm.KeyMaterial }

// KeyURL tells where clients fetch key material (relayer reference §1.9).
type KeyURL struct {
	o KeyURLOptions

	mu      sync.Mutex // guards both below
	current KeyMaterials
	known   bool

	last activeKeys // Run's own
}

// activeKeys are what decides where the material lies.
type activeKeys struct{ key, crs, context, epoch [32]byte }

// NewKeyURL does no I/O. Without Static, nothing is known until Run has read the contracts.
func NewKeyURL(o KeyURLOptions) *KeyURL {
	if o.Poll <= 0 {
		o.Poll = DefaultKeyURLPoll
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	k := &KeyURL{o: o}
	if o.Static != nil {
		k.current, k.known = *o.Static, true
	}
	return k
}

// Current returns what was read last; ok is false until something was. The lists of URLs are shared: they are never changed.
func (k *KeyURL) Current() (key, crs fhevm.KeyMaterial, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.Key, k.current.CRS, k.known
}

// Run reads the contracts, at once and then at every poll, until ctx ends. While they cannot be read, the last reading stays. It is run once.
func (k *KeyURL) Run(ctx context.Context) {
	if k.o.Static != nil {
		<-ctx.Done()
		return
	}
	for failing := false; ctx.Err() == nil; sleep(ctx, k.o.Poll) {
		err := k.poll(ctx)
		switch {
		case err != nil && !failing && ctx.Err() == nil:
			k.o.Log.Warn("the location of key material cannot be read; trying on", zap.Error(err))
		case err == nil && failing:
			k.o.Log.Info("the location of key material can be read again")
		}
		failing = err != nil
	}
}

// poll reads what is active, all in the state of one final block, and where it lies if that is news.
func (k *KeyURL) poll(ctx context.Context) error {
	final, err := k.o.Pool.HeaderByTag(ctx, string(Finalized))
	if err != nil {
		return fmt.Errorf("the final block: %w", err)
	}
	at := AtBlock(final.Number)
	var active activeKeys
	if active.key, err = k.id(ctx, k.o.KMSGeneration, fhevm.CallActiveKey(), at); err != nil {
		return fmt.Errorf("the active key: %w", err)
	}
	if active.crs, err = k.id(ctx, k.o.KMSGeneration, fhevm.CallActiveCRS(), at); err != nil {
		return fmt.Errorf("the active CRS: %w", err)
	}
	returned, err := k.call(ctx, k.o.ProtocolConfig, fhevm.CallCurrentContext(), at)
	if err == nil {
		active.context, active.epoch, err = fhevm.DecodePair(returned)
	}
	if err != nil {
		return fmt.Errorf("the current KMS context: %w", err)
	}
	if active == k.last {
		return nil
	}
	found, err := k.locate(ctx, active, at)
	if err != nil {
		return err
	}
	k.last = active
	k.mu.Lock()
	k.current, k.known = found, true
	k.mu.Unlock()
	k.o.Log.Info("key material", zap.Strings("publicKey", found.Key.URLs), zap.Strings("crs", found.CRS.URLs))
	return nil
}

// locate finds out where active material lies: the context's announcement says where its first node stores it.
func (k *KeyURL) locate(ctx context.Context, active activeKeys, at BlockRef) (KeyMaterials, error) {
	// What these return does not matter: they refuse material that does not exist.
	if _, err := k.call(ctx, k.o.KMSGeneration, fhevm.CallKeyMaterials(active.key), at); err != nil {
		return KeyMaterials{}, fmt.Errorf("the key's material: %w", err)
	}
	if _, err := k.call(ctx, k.o.KMSGeneration, fhevm.CallCRSMaterials(active.crs), at); err != nil {
		return KeyMaterials{}, fmt.Errorf("the CRS's material: %w", err)
	}
	returned, err := k.call(ctx, k.o.ProtocolConfig, fhevm.CallContextAnchor(active.context), at)
	if err != nil {
		return KeyMaterials{}, fmt.Errorf("the context's anchor: %w", err)
	}
	block, _, err := fhevm.DecodeContextAnchor(returned)
	if err != nil {
		return KeyMaterials{}, fmt.Errorf("the context's anchor: %w", err)
	}
	logs, err := k.o.Pool.Logs(ctx, int64(block), int64(block), []common.Address{k.o.ProtocolConfig}, []common.Hash{fhevm.EventNewKMSContext.Topic})
	if err != nil {
		return KeyMaterials{}, fmt.Errorf("the context's announcement: %w", err)
	}
	for _, l := range logs {
		if len(l.Topics) < 2 || l.Topics[1] != common.Hash(active.context) {
			continue
		}
		event, err := fhevm.DecodeEvent(l.Topics, l.Data)
		if err != nil {
			return KeyMaterials{}, fmt.Errorf("the context's announcement: %w", err)
		}
		if announced, ok := event.(fhevm.NewKMSContext); ok {
			return materials(active, announced)
		}
	}
	return KeyMaterials{}, fmt.Errorf("the context's announcement is not in block %d", block)
}

func materials(active activeKeys, c fhevm.NewKMSContext) (KeyMaterials, error) {
	var out KeyMaterials
	for _, m := range []struct {
		to   *fhevm.KeyMaterial
		kind fhevm.MaterialKind
		id   [32]byte
	}{{&out.Key, fhevm.MaterialPublicKey, active.key}, {&out.CRS, fhevm.MaterialCRS, active.crs}} {
		at := fhevm.MaterialURL(c.StorageURL, c.StoragePrefix, m.kind, m.id)
		u, err := url.Parse(at)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || len(at) > maxMaterialURL {
			return KeyMaterials{}, errors.New("the context's announcement: its first node's storage is no http or https URL")
		}
		*m.to = fhevm.KeyMaterial{ID: m.id, URLs: []string{at}}
	}
	return out, nil
}

// call is one view; nothing returned means that there is no contract.
func (k *KeyURL) call(ctx context.Context, to common.Address, data []byte, at BlockRef) ([]byte, error) {
	returned, err := k.o.Pool.Call(ctx, common.Address{}, to, data, at, 0)
	if revert, refused := Revert(err); refused {
		return nil, &RevertError{revert}
	}
	if err == nil && len(returned) == 0 {
		return nil, fmt.Errorf("there is no contract at %s", to)
	}
	return returned, err
}

func (k *KeyURL) id(ctx context.Context, to common.Address, data []byte, at BlockRef) (id [32]byte, err error) {
	returned, err := k.call(ctx, to, data, at)
	if err != nil {
		return id, err
	}
	n, err := fhevm.DecodeUint256(returned)
	if err != nil {
		return id, err
	}
	return [32]byte(common.BigToHash(n)), nil
}
