package identitydb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// identities is what Store and StoreService have in common: the suite runs on both.
type identities interface {
	StoreIdentityData(context.Context, token.Identity, Data) error
	StoreSignerInfo(context.Context, token.Identity, []byte) error
	RegisterIdentityDescriptor(context.Context, *Descriptor, token.Identity) error
	GetIdentityData(context.Context, token.Identity) (*Data, error)
	GetAuditInfo(context.Context, token.Identity) ([]byte, error)
	GetTokenInfo(context.Context, token.Identity) ([]byte, []byte, error)
	GetSignerInfo(context.Context, token.Identity) ([]byte, error)
	SignerInfoExists(context.Context, token.Identity) (bool, error)
	GetExistingSignerInfo(context.Context, ...token.Identity) ([]token.Identity, error)
}

// each runs a test on every backend, on an empty store.
func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) { test(t, fresh(t, open(t))) })
}

// both runs a test on every backend, on a Store and on a StoreService, each empty.
func both(t *testing.T, test func(t *testing.T, s identities, db *storage.DB)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		s := fresh(t, open(t))
		for name, v := range map[string]identities{"store": s, "service": NewStoreService(s)} {
			t.Run(name, func(t *testing.T) {
				for _, table := range []string{"id_info", "id_signers", "id_cfgs"} {
					exec(t, s.db.DB, "DELETE FROM "+prefix+table)
				}
				test(t, v, s.db.DB)
			})
		}
	})
}

func fresh(t testing.TB, db *storage.DB) *Store {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	s := New(db, prefix)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func exec(t testing.TB, db *storage.DB, statement string, args ...any) {
	t.Helper()
	_, err := db.Write().ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

func ident(name string) token.Identity { return token.Identity("identity " + name) }

func TestIdentityInfo(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx := t.Context()
		for i, d := range []Data{
			{AuditInfo: []byte("audit"), TokenMetadata: []byte("metadata"), TokenMetadataAuditInfo: []byte("audit of the metadata")},
			{AuditInfo: []byte{0}, TokenMetadata: []byte{}},
			{AuditInfo: []byte{}},
		} {
			id := ident(fmt.Sprint(i))
			audit, err := s.GetAuditInfo(ctx, id)
			require.NoError(t, err)
			require.Nil(t, audit, "missing")
			metadata, metadataAudit, err := s.GetTokenInfo(ctx, id)
			require.NoError(t, err)
			require.Nil(t, metadata)
			require.Nil(t, metadataAudit)

			require.NoError(t, s.StoreIdentityData(ctx, id, d))
			for range 2 { // the second is remembered
				got, err := s.GetIdentityData(ctx, id)
				require.NoError(t, err)
				require.Equal(t, &d, got)
				audit, err = s.GetAuditInfo(ctx, id)
				require.NoError(t, err)
				require.Equal(t, d.AuditInfo, audit)
				metadata, metadataAudit, err = s.GetTokenInfo(ctx, id)
				require.NoError(t, err)
				require.Equal(t, d.TokenMetadata, metadata)
				require.Equal(t, d.TokenMetadataAuditInfo, metadataAudit)
			}
			require.NoError(t, s.StoreIdentityData(ctx, id, Data{AuditInfo: []byte("another")}), "a replay succeeds")
			audit, err = s.GetAuditInfo(ctx, id)
			require.NoError(t, err)
			require.Equal(t, d.AuditInfo, audit, "and changes nothing")
		}
		require.NoError(t, s.StoreIdentityData(ctx, ident("nil"), Data{}))
		got, err := s.GetIdentityData(ctx, ident("nil"))
		require.NoError(t, err)
		require.NotNil(t, got, "stored, if nothing is known")
	})
}

func TestSignerInfo(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx := t.Context()
		exists, err := s.SignerInfoExists(ctx, ident("a"))
		require.NoError(t, err)
		require.False(t, exists)
		info, err := s.GetSignerInfo(ctx, ident("a"))
		require.NoError(t, err)
		require.Nil(t, info)
		for name, info := range map[string][]byte{"a": []byte("info of a"), "nil": nil} {
			for _, again := range [][]byte{info, info, []byte("other")} {
				require.NoError(t, s.StoreSignerInfo(ctx, ident(name), again))
				got, err := s.GetSignerInfo(ctx, ident(name))
				require.NoError(t, err)
				require.Equal(t, info, got)
				exists, err := s.SignerInfoExists(ctx, ident(name))
				require.NoError(t, err)
				require.True(t, exists)
			}
		}
		exists, err = s.SignerInfoExists(ctx, ident("b"))
		require.NoError(t, err)
		require.False(t, exists)
	})
}

func TestConfigurations(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		a := token.IdentityConfiguration{ID: "pineapple", Type: "core", URL: "look here", Config: []byte("config"), Raw: []byte("raw")}
		b := token.IdentityConfiguration{ID: "pineapple", Type: "core", URL: "look there", Config: []byte("config"), Raw: []byte{}}
		c := token.IdentityConfiguration{ID: "apple", Type: "idemix"}
		ids := map[string]bool{}
		for _, v := range []token.IdentityConfiguration{a, b, c} {
			exists, err := s.ConfigurationExists(ctx, v.ID, v.Type, v.URL)
			require.NoError(t, err)
			require.False(t, exists)
			confID, err := s.AddConfiguration(ctx, v)
			require.NoError(t, err)
			ids[confID] = true
			exists, err = s.ConfigurationExists(ctx, v.ID, v.Type, v.URL)
			require.NoError(t, err)
			require.True(t, exists)
		}
		require.Len(t, ids, 3)
		for kind, want := range map[string][]token.IdentityConfiguration{"core": {a, b}, "idemix": {c}, "none": nil, "": {c, a, b}} {
			got, err := storage.Collect(s.Configurations(ctx, kind))
			require.NoError(t, err)
			require.Equal(t, want, got, kind)
		}
		got, err := s.ConfigurationsByID(ctx, "pineapple")
		require.NoError(t, err)
		require.Equal(t, []token.IdentityConfiguration{a, b}, got)
		got, err = s.ConfigurationsByID(ctx, "none")
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

func TestConfigurationReplayed(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		c := token.IdentityConfiguration{ID: "id", Type: "type", URL: "url", Config: []byte("config")}
		first, err := s.AddConfiguration(ctx, c)
		require.NoError(t, err)
		again, err := s.AddConfiguration(ctx, c)
		require.NoError(t, err)
		require.Equal(t, first, again)
		for _, change := range []func(*token.IdentityConfiguration){
			func(c *token.IdentityConfiguration) { c.Config = []byte("other") },
			func(c *token.IdentityConfiguration) { c.Raw = []byte("other") },
		} {
			other := c
			change(&other)
			_, err = s.AddConfiguration(ctx, other)
			require.ErrorIs(t, err, ErrConfigurationConflict)
		}
		got, err := s.GetConfiguration(ctx, c.ID, c.Type, c.URL)
		require.NoError(t, err)
		require.Equal(t, &c, got, "the first stays")
	})
}

func TestGetConfiguration(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		got, err := s.GetConfiguration(ctx, "id", "type", "url")
		require.NoError(t, err)
		require.Nil(t, got)
		c := token.IdentityConfiguration{ID: "id", Type: "type", URL: "url", Config: []byte{}, Raw: []byte("raw")}
		_, err = s.AddConfiguration(ctx, c)
		require.NoError(t, err)
		got, err = s.GetConfiguration(ctx, "id", "type", "url")
		require.NoError(t, err)
		require.Equal(t, &c, got)
		for _, other := range [][3]string{{"id", "type", ""}, {"id", "", "url"}, {"", "type", "url"}, {"type", "id", "url"}} {
			got, err = s.GetConfiguration(ctx, other[0], other[1], other[2])
			require.NoError(t, err)
			require.Nil(t, got)
		}
	})
}

// The id that is stored counts, whatever the id of a new one would be.
func TestGetConfigurationID(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		got, err := s.GetConfigurationID(ctx, "id", "type", "url")
		require.NoError(t, err)
		require.Empty(t, got)
		old := token.IdentityConfiguration{ID: "id", Type: "type", URL: "url"}
		require.NoError(t, s.ImportConfiguration(ctx, old, "made by another program"))
		require.NoError(t, s.ImportConfiguration(ctx, old, "made by another program"))
		got, err = s.GetConfigurationID(ctx, "id", "type", "url")
		require.NoError(t, err)
		require.Equal(t, "made by another program", got)
		got, err = s.AddConfiguration(ctx, old)
		require.NoError(t, err)
		require.Equal(t, "made by another program", got)

		require.ErrorIs(t, s.ImportConfiguration(ctx, old, "another"), ErrConfigurationConflict)
		require.ErrorIs(t, s.ImportConfiguration(ctx, token.IdentityConfiguration{ID: "other"}, "made by another program"), storage.ErrUnique)
		require.ErrorIs(t, s.ImportConfiguration(ctx, old, ""), token.ErrEmptyArgument)
	})
}

// No two keys have the same id, however the text is cut.
func TestConfigurationIDs(t *testing.T) {
	t.Parallel()
	part := rapid.StringMatching(`[a/:\\]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a := token.IdentityConfiguration{ID: part.Draw(t, "id"), Type: part.Draw(t, "type"), URL: part.Draw(t, "url")}
		b := token.IdentityConfiguration{ID: part.Draw(t, "id"), Type: part.Draw(t, "type"), URL: part.Draw(t, "url")}
		same := a.ID == b.ID && a.Type == b.Type && a.URL == b.URL
		require.Equal(t, same, configurationID(a) == configurationID(b))
	})
}

func TestSignerInfoConcurrent(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		var wg sync.WaitGroup
		for i := range 100 {
			id := ident(fmt.Sprint(i % 10))
			wg.Go(func() {
				if err := s.StoreSignerInfo(t.Context(), id, []byte(id)); err != nil {
					t.Error(err)
				}
				if exists, err := s.SignerInfoExists(t.Context(), id); err != nil || !exists {
					t.Error(exists, err)
				}
				if info, err := s.GetSignerInfo(t.Context(), id); err != nil || string(info) != string(id) {
					t.Error(info, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestGetExistingSignerInfo(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx := t.Context()
		for _, name := range []string{"a", "b", "c"} {
			require.NoError(t, s.StoreSignerInfo(ctx, ident(name), []byte(name)))
		}
		for range 2 { // the second is remembered in part
			found, err := s.GetExistingSignerInfo(ctx, ident("c"), nil, ident("x"), ident("a"), token.Identity{}, ident("c"), ident("x"))
			require.NoError(t, err)
			require.Equal(t, []token.Identity{ident("c"), ident("a")}, found, "in the order given, each once, the empty one is not there")
		}
		for _, none := range [][]token.Identity{nil, {nil}, {ident("x")}} {
			found, err := s.GetExistingSignerInfo(ctx, none...)
			require.NoError(t, err)
			require.Empty(t, found)
		}
	})
}

// Any number may be asked for, repeated ones too, without an error or a panic (reference §10.1, 5 and 7).
func TestManySignersAtOnce(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		require.NoError(t, s.StoreSignerInfo(t.Context(), ident("4000"), nil))
		var ids []token.Identity
		for i := range 10_000 {
			ids = append(ids, ident(fmt.Sprint(i%5000)))
		}
		found, err := s.GetExistingSignerInfo(t.Context(), ids...)
		require.NoError(t, err)
		require.Equal(t, []token.Identity{ident("4000")}, found)
	})
}

func TestRegisterIdentityDescriptor(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx := t.Context()
		d := &Descriptor{Identity: ident("a"), AuditInfo: []byte("audit"), SignerInfo: []byte("signer")}
		for range 2 { // replayed
			require.NoError(t, s.RegisterIdentityDescriptor(ctx, d, ident("alias")))
			for _, id := range []token.Identity{ident("a"), ident("alias")} {
				audit, err := s.GetAuditInfo(ctx, id)
				require.NoError(t, err)
				require.Equal(t, d.AuditInfo, audit)
				info, err := s.GetSignerInfo(ctx, id)
				require.NoError(t, err)
				require.Equal(t, d.SignerInfo, info)
			}
		}
		require.NoError(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("verifier"), AuditInfo: []byte("audit")}, nil))
		exists, err := s.SignerInfoExists(ctx, ident("verifier"))
		require.NoError(t, err)
		require.False(t, exists)

		require.ErrorIs(t, s.RegisterIdentityDescriptor(ctx, nil, nil), token.ErrEmptyArgument)
		require.ErrorIs(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{AuditInfo: []byte("a")}, ident("alias")), token.ErrEmptyIdentity)
	})
}

// What an earlier attempt stored stays, and what it did not is added.
func TestRegisterPartialConflict(t *testing.T) {
	both(t, func(t *testing.T, s identities, db *storage.DB) {
		ctx := t.Context()
		require.NoError(t, s.StoreSignerInfo(ctx, ident("a"), []byte("first")))
		require.NoError(t, s.StoreIdentityData(ctx, ident("alias"), Data{AuditInfo: []byte("first")}))
		d := &Descriptor{Identity: ident("a"), AuditInfo: []byte("second"), SignerInfo: []byte("second")}
		require.NoError(t, s.RegisterIdentityDescriptor(ctx, d, ident("alias")))
		for _, c := range []struct {
			name, audit, signer string
		}{{"a", "second", "first"}, {"alias", "first", "second"}} {
			audit, err := s.GetAuditInfo(ctx, ident(c.name))
			require.NoError(t, err)
			require.Equal(t, c.audit, string(audit))
			signer, err := s.GetSignerInfo(ctx, ident(c.name))
			require.NoError(t, err)
			require.Equal(t, c.signer, string(signer))
		}
		// One that fails leaves nothing, wherever it fails.
		err := s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("b"), AuditInfo: []byte("b"), SignerInfo: []byte("b")}, make([]byte, storage.MaxPayload+1))
		require.ErrorIs(t, err, storage.ErrPayloadSize)
		exec(t, db, "ALTER TABLE "+prefix+"id_signers RENAME TO gone")
		require.Error(t, s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("b"), AuditInfo: []byte("b"), SignerInfo: []byte("b")}, nil))
		exec(t, db, "ALTER TABLE gone RENAME TO "+prefix+"id_signers")
		data, err := s.GetIdentityData(ctx, ident("b"))
		require.NoError(t, err)
		require.Nil(t, data)
	})
}

func TestIterateSigners(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		const n = 7
		for i := range n {
			require.NoError(t, s.StoreSignerInfo(ctx, ident(fmt.Sprint(i)), []byte{byte(i)}))
		}
		for _, start := range []query.Pagination{query.OffsetPage(0, 3), query.KeysetPage(0, 3)} {
			var hashes []string
			seen := map[string]bool{}
			for p := start; ; {
				page, err := s.IterateSigners(ctx, p)
				require.NoError(t, err)
				for _, v := range page.Items {
					hashes = append(hashes, v.Hash)
					seen[string(v.Identity)] = true
				}
				if len(page.Items) < 3 {
					break
				}
				p = page.Next
			}
			require.IsIncreasing(t, hashes)
			require.Len(t, hashes, n)
			require.Len(t, seen, n)
		}
		for _, p := range []query.Pagination{{}, query.OffsetPage(0, 1001), query.OffsetPage(-1, 10)} {
			_, err := s.IterateSigners(ctx, p)
			require.ErrorIs(t, err, query.ErrPage)
		}
	})
}

// A row that was put under another identity's key is never handed out as that identity's, nor remembered.
func TestIntegrity(t *testing.T) {
	both(t, func(t *testing.T, s identities, db *storage.DB) {
		ctx := t.Context()
		d := &Descriptor{Identity: ident("a"), AuditInfo: []byte("audit"), SignerInfo: []byte("signer")}
		require.NoError(t, s.RegisterIdentityDescriptor(ctx, d, nil))
		for _, table := range []string{"id_info", "id_signers"} {
			exec(t, db, "UPDATE "+prefix+table+" SET identity = $1", []byte("somebody else"))
		}
		fails := func(want error) {
			t.Helper()
			_, errAudit := s.GetAuditInfo(ctx, ident("a"))
			_, _, errToken := s.GetTokenInfo(ctx, ident("a"))
			_, errSigner := s.GetSignerInfo(ctx, ident("a"))
			exists, errExists := s.SignerInfoExists(ctx, ident("a"))
			_, errBatch := s.GetExistingSignerInfo(ctx, ident("b"), ident("a"))
			for _, err := range []error{errAudit, errToken, errSigner, errExists, errBatch} {
				require.ErrorIs(t, err, want)
			}
			require.Equal(t, want == nil, exists)
		}
		fails(token.ErrIntegrity)
		fails(token.ErrIntegrity)
		if page, ok := s.(interface {
			IterateSigners(context.Context, query.Pagination) (query.Page[Signer], error)
		}); ok {
			_, err := page.IterateSigners(ctx, query.OffsetPage(0, 10))
			require.ErrorIs(t, err, token.ErrIntegrity)
		}
		for _, table := range []string{"id_info", "id_signers"} {
			exec(t, db, "UPDATE "+prefix+table+" SET identity = $1", []byte(ident("a")))
		}
		fails(nil)
	})
}

func TestEmptyIdentityRefused(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx := t.Context()
		for _, empty := range []token.Identity{nil, {}} {
			_, errAudit := s.GetAuditInfo(ctx, empty)
			_, _, errToken := s.GetTokenInfo(ctx, empty)
			_, errSigner := s.GetSignerInfo(ctx, empty)
			_, errExists := s.SignerInfoExists(ctx, empty)
			for _, err := range []error{s.StoreIdentityData(ctx, empty, Data{}), s.StoreSignerInfo(ctx, empty, nil), errAudit, errToken, errSigner, errExists} {
				require.ErrorIs(t, err, token.ErrEmptyIdentity)
			}
		}
	})
}

// A failure is never taken for something that is missing.
func TestErrorIsNotAbsent(t *testing.T) {
	both(t, func(t *testing.T, s identities, _ *storage.DB) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no more"))
		_, errAudit := s.GetAuditInfo(ctx, ident("a"))
		_, _, errToken := s.GetTokenInfo(ctx, ident("a"))
		_, errSigner := s.GetSignerInfo(ctx, ident("a"))
		_, errExists := s.SignerInfoExists(ctx, ident("a"))
		_, errBatch := s.GetExistingSignerInfo(ctx, ident("a"))
		for _, err := range []error{s.StoreIdentityData(ctx, ident("a"), Data{}), s.StoreSignerInfo(ctx, ident("a"), nil),
			s.RegisterIdentityDescriptor(ctx, &Descriptor{Identity: ident("a")}, nil), errAudit, errToken, errSigner, errExists, errBatch} {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// A listing that is cut short says so (reference §10.1, 4).
func TestListingsSurfaceErrors(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for i := range 20 {
			_, err := s.AddConfiguration(t.Context(), token.IdentityConfiguration{ID: fmt.Sprintf("%02d", i), Config: make([]byte, 64<<10)})
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var n int
		var last error
		for _, err := range s.Configurations(ctx, "") {
			if last = err; err == nil {
				n++
			}
			cancel()
		}
		require.True(t, n == 20 && last == nil || errors.Is(last, context.Canceled), "%d rows, then %v", n, last)
		_, err := s.GetConfiguration(ctx, "00", "", "")
		require.ErrorIs(t, err, context.Canceled)
		exists, err := s.ConfigurationExists(ctx, "00", "", "")
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, exists)
		_, err = s.ConfigurationsByID(ctx, "00")
		require.ErrorIs(t, err, context.Canceled)
	})
}
