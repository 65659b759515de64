package identitydb

import (
	"bytes"
	"context"

	"github.com/ethereum/go-ethereum/common/lru"

	"dongate/token"
	"dongate/token/internal/identity"
)

const (
	// cached is how many identities each cache of a StoreService remembers.
	cached = 5000
	// maxCached bounds, in bytes, what is remembered of one: a cache holds 80 MiB at most.
	maxCached = 16 << 10
)

// StoreService is a Store that remembers what it read, and identities that are not to be stored. Rows of the store never change and are
// never removed, so what was read stays true; that something is missing is not remembered, nor is what was written before it has been
// read back, since what is stored may be older. It is safe for concurrent use.
type StoreService struct {
	*Store
	data      *lru.Cache[string, Data]     // by hash
	signers   *lru.Cache[string, struct{}] // likewise
	ephemeral *lru.Cache[string, Descriptor]
}

// NewStoreService returns a StoreService over a Store, which the caller closes.
func NewStoreService(s *Store) *StoreService {
	return &StoreService{s, lru.NewCache[string, Data](cached), lru.NewCache[string, struct{}](cached), lru.NewCache[string, Descriptor](cached)}
}

// RegisterIdentityDescriptor is [Store.RegisterIdentityDescriptor]. An ephemeral descriptor is not stored but remembered until the process
// ends, 5000 later ones were registered, or the identity is stored after all; of one that is stored already, what is stored counts.
func (s *StoreService) RegisterIdentityDescriptor(ctx context.Context, d *Descriptor, alias token.Identity) error {
	if d == nil || !d.Ephemeral {
		err := s.Store.RegisterIdentityDescriptor(ctx, d, alias)
		if err == nil {
			s.forget(d.Identity, alias)
		}
		return err
	}
	if err := d.check(alias); err != nil {
		return wrap(err, "registering an identity")
	}
	for _, id := range []token.Identity{d.Identity, alias} {
		if hash, err := identity.Hash(id); err == nil {
			s.ephemeral.Add(hash, Descriptor{Identity: bytes.Clone(id), AuditInfo: bytes.Clone(d.AuditInfo), SignerInfo: bytes.Clone(d.SignerInfo), Ephemeral: true})
		}
	}
	return nil
}

// forget forgets identities that are stored now.
func (s *StoreService) forget(ids ...token.Identity) {
	for _, id := range ids {
		if hash, err := identity.Hash(id); err == nil {
			s.ephemeral.Remove(hash)
		}
	}
}

// StoreIdentityData is [Store.StoreIdentityData].
func (s *StoreService) StoreIdentityData(ctx context.Context, id token.Identity, d Data) error {
	err := s.Store.StoreIdentityData(ctx, id, d)
	if err == nil {
		s.forget(id)
	}
	return err
}

// StoreSignerInfo is [Store.StoreSignerInfo].
func (s *StoreService) StoreSignerInfo(ctx context.Context, id token.Identity, info []byte) error {
	err := s.Store.StoreSignerInfo(ctx, id, info)
	if err == nil {
		s.forget(id)
	}
	return err
}

// GetIdentityData is [Store.GetIdentityData]; the data belongs to the caller.
func (s *StoreService) GetIdentityData(ctx context.Context, id token.Identity) (*Data, error) {
	hash, err := identity.Hash(id)
	if err != nil {
		return nil, wrap(err, "reading the data of an identity")
	}
	if d, ok := s.data.Get(hash); ok {
		return d.clone(), nil
	}
	if d, ok := s.ephemeral.Get(hash); ok && d.AuditInfo != nil {
		return (&Data{AuditInfo: d.AuditInfo}).clone(), nil
	}
	d, err := s.Store.GetIdentityData(ctx, id)
	if err == nil && d != nil && len(d.AuditInfo)+len(d.TokenMetadata)+len(d.TokenMetadataAuditInfo) <= maxCached {
		s.data.Add(hash, *d.clone())
	}
	return d, err
}

func (d *Data) clone() *Data {
	return &Data{bytes.Clone(d.AuditInfo), bytes.Clone(d.TokenMetadata), bytes.Clone(d.TokenMetadataAuditInfo)}
}

// GetAuditInfo is [Store.GetAuditInfo]; the bytes belong to the caller.
func (s *StoreService) GetAuditInfo(ctx context.Context, id token.Identity) ([]byte, error) {
	d, err := s.GetIdentityData(ctx, id)
	if err != nil || d == nil {
		return nil, err
	}
	return d.AuditInfo, nil
}

// GetTokenInfo is [Store.GetTokenInfo]; the bytes belong to the caller.
func (s *StoreService) GetTokenInfo(ctx context.Context, id token.Identity) (metadata, auditInfo []byte, err error) {
	d, err := s.GetIdentityData(ctx, id)
	if err != nil || d == nil {
		return nil, nil, err
	}
	return d.TokenMetadata, d.TokenMetadataAuditInfo, nil
}

// GetSignerInfo is [Store.GetSignerInfo]. What is stored is read every time: it is not to stay in memory for longer than it is needed.
func (s *StoreService) GetSignerInfo(ctx context.Context, id token.Identity) ([]byte, error) {
	hash, err := identity.Hash(id)
	if err == nil {
		if d, ok := s.ephemeral.Get(hash); ok && d.SignerInfo != nil {
			return bytes.Clone(d.SignerInfo), nil
		}
	}
	return s.Store.GetSignerInfo(ctx, id)
}

// SignerInfoExists is [Store.SignerInfoExists].
func (s *StoreService) SignerInfoExists(ctx context.Context, id token.Identity) (bool, error) {
	if _, err := identity.Hash(id); err != nil {
		return false, wrap(err, "looking for the signer of an identity")
	}
	found, err := s.GetExistingSignerInfo(ctx, id)
	return len(found) == 1, err
}

// GetExistingSignerInfo is [Store.GetExistingSignerInfo].
func (s *StoreService) GetExistingSignerInfo(ctx context.Context, ids ...token.Identity) ([]token.Identity, error) {
	exists, listed := map[string]bool{}, map[string]bool{}
	var unknown []token.Identity
	for _, id := range ids {
		hash, err := identity.Hash(id)
		if err != nil {
			continue
		}
		d, ok := s.ephemeral.Get(hash)
		if s.signers.Contains(hash) || ok && d.SignerInfo != nil {
			exists[hash] = true
		} else {
			unknown = append(unknown, id)
		}
	}
	stored, err := s.Store.GetExistingSignerInfo(ctx, unknown...)
	if err != nil {
		return nil, err
	}
	for _, id := range stored {
		hash, _ := identity.Hash(id) // has one: it was stored under it
		exists[hash] = true
		s.signers.Add(hash, struct{}{})
	}
	var found []token.Identity
	for _, id := range ids {
		if hash, err := identity.Hash(id); err == nil && exists[hash] && !listed[hash] {
			listed[hash] = true
			found = append(found, id)
		}
	}
	return found, nil
}
