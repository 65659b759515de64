package identitydb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
)

// What another writer stored first is what every process reads, whatever this one tried to store and remembered.
func TestCacheCannotLie(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		ours, theirs := NewStoreService(fresh(t, db)), NewStoreService(fresh(t, db))
		require.NoError(t, theirs.StoreIdentityData(ctx, ident("a"), Data{AuditInfo: []byte("theirs")}))
		require.NoError(t, ours.StoreIdentityData(ctx, ident("a"), Data{AuditInfo: []byte("ours")}))
		for range 2 {
			audit, err := ours.GetAuditInfo(ctx, ident("a"))
			require.NoError(t, err)
			require.Equal(t, "theirs", string(audit))
			audit[0] = 'x' // the caller's own
		}
		// What was missing is looked for again.
		exists, err := ours.SignerInfoExists(ctx, ident("a"))
		require.NoError(t, err)
		require.False(t, exists)
		audit, err := ours.GetAuditInfo(ctx, ident("b"))
		require.NoError(t, err)
		require.Nil(t, audit)
		require.NoError(t, theirs.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("a"), SignerInfo: []byte("s")}, nil))
		require.NoError(t, theirs.StoreIdentityData(ctx, ident("b"), Data{AuditInfo: []byte("b")}))
		exists, err = ours.SignerInfoExists(ctx, ident("a"))
		require.NoError(t, err)
		require.True(t, exists)
		audit, err = ours.GetAuditInfo(ctx, ident("b"))
		require.NoError(t, err)
		require.Equal(t, "b", string(audit))
	})
}

// What was read is not read again; what is large is not kept.
func TestCached(t *testing.T) {
	t.Parallel()
	db, ctx := storagetest.Open(t, storage.Config{Driver: storage.DriverMemory}), t.Context()
	s := NewStoreService(fresh(t, db))
	require.NoError(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("small"), AuditInfo: []byte("a"), SignerInfo: []byte("s")}, nil))
	require.NoError(t, s.StoreIdentityData(ctx, ident("large"), Data{AuditInfo: make([]byte, maxCached+1)}))
	for _, name := range []string{"small", "large"} {
		_, err := s.GetAuditInfo(ctx, ident(name))
		require.NoError(t, err)
	}
	_, err := s.SignerInfoExists(ctx, ident("small"))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	audit, err := s.GetAuditInfo(ctx, ident("small"))
	require.NoError(t, err)
	require.Equal(t, "a", string(audit))
	exists, err := s.SignerInfoExists(ctx, ident("small"))
	require.NoError(t, err)
	require.True(t, exists)
	_, err = s.GetAuditInfo(ctx, ident("large"))
	require.Error(t, err)
}

func TestEphemeral(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx := t.Context()
		s := NewStoreService(fresh(t, open(t)))
		d := &Descriptor{Identity: ident("a"), AuditInfo: []byte("audit"), SignerInfo: []byte("signer"), Ephemeral: true}
		require.Error(t, s.Store.RegisterIdentityDescriptor(ctx, d, nil), "a Store cannot")
		require.ErrorIs(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{Ephemeral: true}, nil), token.ErrEmptyIdentity)
		require.NoError(t, s.RegisterIdentityDescriptor(ctx, d, ident("alias")))
		require.NoError(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("c"), Ephemeral: true}, nil), "of which nothing is known")
		for _, id := range []token.Identity{ident("a"), ident("alias")} {
			audit, err := s.GetAuditInfo(ctx, id)
			require.NoError(t, err)
			require.Equal(t, d.AuditInfo, audit)
			info, err := s.GetSignerInfo(ctx, id)
			require.NoError(t, err)
			require.Equal(t, d.SignerInfo, info)
			exists, err := s.SignerInfoExists(ctx, id)
			require.NoError(t, err)
			require.True(t, exists)
			data, err := s.Store.GetIdentityData(ctx, id)
			require.NoError(t, err)
			require.Nil(t, data, "nothing is stored")
		}
		exists, err := s.SignerInfoExists(ctx, ident("c"))
		require.NoError(t, err)
		require.False(t, exists)
		audit, err := s.GetAuditInfo(ctx, ident("c"))
		require.NoError(t, err)
		require.Nil(t, audit)

		// Stored after all: what is stored counts.
		require.NoError(t, s.StoreIdentityData(ctx, ident("a"), Data{AuditInfo: []byte("stored")}))
		audit, err = s.GetAuditInfo(ctx, ident("a"))
		require.NoError(t, err)
		require.Equal(t, "stored", string(audit))
	})
}

func TestEphemeralsAreBounded(t *testing.T) {
	t.Parallel()
	s := NewStoreService(fresh(t, storagetest.Open(t, storage.Config{Driver: storage.DriverMemory})))
	for i := range cached + 10 {
		require.NoError(t, s.RegisterIdentityDescriptor(t.Context(), &Descriptor{Identity: ident(fmt.Sprint(i)), SignerInfo: []byte{1}, Ephemeral: true}, nil))
	}
	require.Equal(t, cached, s.ephemeral.Len())
	exists, err := s.SignerInfoExists(t.Context(), ident("0"))
	require.NoError(t, err)
	require.False(t, exists)
}
