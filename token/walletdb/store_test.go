package walletdb

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/identitydb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// each runs a test on every backend, on an empty store, with the id of a configuration. Every binding is a second younger than the one before.
func each(t *testing.T, test func(t *testing.T, s *Store, conf string)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
		identities := identitydb.New(db, prefix)
		conf, err := identities.AddConfiguration(t.Context(), token.IdentityConfiguration{ID: "id", Type: "type", URL: "url"})
		require.NoError(t, err)
		require.NoError(t, identities.Close())
		var mu sync.Mutex
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := New(db, prefix, Options{Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Second)
			return now
		}})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		test(t, s, conf)
	})
}

func ident(name string) token.Identity { return token.Identity("identity " + name) }

// Storing a binding again succeeds and changes nothing, also when many do at once.
func TestDuplicate(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		ctx := t.Context()
		b := Binding{Identity: ident("a"), WalletID: "duck", Role: token.OwnerRole, EnrollmentID: "alice", Meta: []byte("meta"), ConfigID: conf}
		for _, again := range []Binding{b, b, {Identity: b.Identity, WalletID: b.WalletID, Role: b.Role, Meta: []byte("other"), ConfigID: conf}} {
			require.NoError(t, s.StoreIdentity(ctx, again))
			meta, err := s.LoadMeta(ctx, ident("a"), "duck", token.OwnerRole)
			require.NoError(t, err)
			require.Equal(t, "meta", string(meta))
		}
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if err := s.StoreIdentity(t.Context(), Binding{Identity: ident("b"), WalletID: "duck", ConfigID: conf}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n, err := s.IdentityCount(ctx, "duck", token.OwnerRole)
		require.NoError(t, err)
		require.Equal(t, 2, n)
	})
}

func TestWalletIdentities(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		ctx := t.Context()
		for _, b := range []Binding{
			{Identity: ident("a"), WalletID: "alice", Role: token.OwnerRole, EnrollmentID: "alice", Meta: []byte{0, 1}},
			{Identity: ident("b"), WalletID: "alice", Role: token.OwnerRole, EnrollmentID: "alice"},
			{Identity: ident("b"), WalletID: "alice", Role: token.IssuerRole, Meta: []byte{}},
			{Identity: ident("c"), WalletID: "zoe", Role: token.OwnerRole},
			{Identity: ident("c"), WalletID: "bob", Role: token.OwnerRole},
		} {
			b.ConfigID = conf
			require.NoError(t, s.StoreIdentity(ctx, b))
		}
		for role, want := range map[token.Role][]string{token.OwnerRole: {"alice", "bob", "zoe"}, token.IssuerRole: {"alice"}, token.AuditorRole: nil} {
			got, err := s.GetWalletIDs(ctx, role)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		for _, c := range []struct {
			identity string
			role     token.Role
			want     string
		}{
			{"a", token.OwnerRole, "alice"}, {"a", token.IssuerRole, ""}, {"b", token.IssuerRole, "alice"},
			{"c", token.OwnerRole, "zoe"}, // stored first
			{"x", token.OwnerRole, ""},
		} {
			got, err := s.GetWalletID(ctx, ident(c.identity), c.role)
			require.NoError(t, err)
			require.Equal(t, c.want, got, c)
		}
		for _, c := range []struct {
			identity, wallet string
			role             token.Role
			want             bool
			meta             []byte
		}{
			{"a", "alice", token.OwnerRole, true, []byte{0, 1}}, {"a", "alice", token.AuditorRole, false, nil}, {"a", "bob", token.OwnerRole, false, nil},
			{"b", "alice", token.OwnerRole, true, nil}, {"b", "alice", token.IssuerRole, true, nil}, {"x", "alice", token.OwnerRole, false, nil}, {"a", "", token.OwnerRole, false, nil},
		} {
			exists, err := s.IdentityExists(ctx, ident(c.identity), c.wallet, c.role)
			require.NoError(t, err)
			require.Equal(t, c.want, exists, c)
			meta, err := s.LoadMeta(ctx, ident(c.identity), c.wallet, c.role)
			require.NoError(t, err)
			require.Equal(t, string(c.meta), string(meta))
		}
		for wallet, want := range map[string]int{"alice": 2, "bob": 1, "none": 0} {
			n, err := s.IdentityCount(ctx, wallet, token.OwnerRole)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
	})
}

func TestGetConfID(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		ctx := t.Context()
		require.NoError(t, s.StoreIdentity(ctx, Binding{Identity: ident("a"), WalletID: "w", Role: token.AuditorRole, ConfigID: conf}))
		got, err := s.GetConfID(ctx, ident("a"))
		require.NoError(t, err)
		require.Equal(t, conf, got)
		got, err = s.GetConfID(ctx, ident("b"))
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// A reference that points nowhere has its own error, by the driver's code (reference §10.1, 17).
func TestConfigurationMustExist(t *testing.T) {
	each(t, func(t *testing.T, s *Store, _ string) {
		for _, conf := range []string{"", "none"} {
			err := s.StoreIdentity(t.Context(), Binding{Identity: ident("a"), WalletID: "w", ConfigID: conf})
			require.ErrorIs(t, err, ErrConfigurationDoesNotExist)
			require.ErrorIs(t, err, storage.ErrForeignKey)
		}
		exists, err := s.IdentityExists(t.Context(), ident("a"), "w", token.OwnerRole)
		require.NoError(t, err)
		require.False(t, exists)
	})
}

func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		ctx := t.Context()
		require.ErrorIs(t, s.StoreIdentity(ctx, Binding{WalletID: "w", ConfigID: conf}), token.ErrEmptyIdentity)
		require.ErrorIs(t, s.StoreIdentity(ctx, Binding{Identity: ident("a"), ConfigID: conf}), token.ErrEmptyArgument, "it would be found as no wallet")
		require.ErrorIs(t, s.StoreIdentity(ctx, Binding{Identity: ident("a"), WalletID: "w", ConfigID: conf, Meta: make([]byte, storage.MaxPayload+1)}), storage.ErrPayloadSize)
		_, err := s.GetWalletID(ctx, nil, token.OwnerRole)
		require.ErrorIs(t, err, token.ErrEmptyIdentity)
		_, err = s.GetConfID(ctx, token.Identity{})
		require.ErrorIs(t, err, token.ErrEmptyIdentity)
		_, err = s.IdentityExists(ctx, nil, "w", token.OwnerRole)
		require.ErrorIs(t, err, token.ErrEmptyIdentity)
		_, err = s.LoadMeta(ctx, nil, "w", token.OwnerRole)
		require.ErrorIs(t, err, token.ErrEmptyIdentity)
	})
}

// A failure is never taken for "no binding".
func TestErrorIsNotAbsent(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		require.NoError(t, s.StoreIdentity(t.Context(), Binding{Identity: ident("a"), WalletID: "w", ConfigID: conf}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, errWallet := s.GetWalletID(ctx, ident("a"), token.OwnerRole)
		_, errWallets := s.GetWalletIDs(ctx, token.OwnerRole)
		_, errExists := s.IdentityExists(ctx, ident("a"), "w", token.OwnerRole)
		_, errMeta := s.LoadMeta(ctx, ident("a"), "w", token.OwnerRole)
		_, errCount := s.IdentityCount(ctx, "w", token.OwnerRole)
		_, errConf := s.GetConfID(ctx, ident("a"))
		for _, err := range []error{errWallet, errWallets, errExists, errMeta, errCount, errConf, s.StoreIdentity(ctx, Binding{Identity: ident("b"), WalletID: "w", ConfigID: conf})} {
			require.ErrorIs(t, err, context.Canceled)
		}
	})
}

// Look-ups read an index and not the table.
func TestPlans(t *testing.T) {
	each(t, func(t *testing.T, s *Store, conf string) {
		ctx := t.Context()
		values := make([]string, 0, 2000)
		for i := range cap(values) {
			values = append(values, fmt.Sprintf("('%064x', 'w%d', %d, '', '2026-01-01 00:00:00.000', '%s')", i, i%500, i%4, conf))
		}
		for _, statement := range []string{"INSERT INTO " + prefix + "wallets (identity_hash, wallet_id, role_id, enrollment_id, created_at, conf_id) VALUES " + strings.Join(values, ","), "ANALYZE"} {
			_, err := s.db.Write().ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		for _, where := range []string{"identity_hash = 'x' AND role_id = 1", "identity_hash = 'x'", "wallet_id = 'w1' AND role_id = 1", "identity_hash = 'x' AND wallet_id = 'w1' AND role_id = 1"} {
			explain, columns := "EXPLAIN ", []any{new(string)}
			if s.db.Backend() == storage.SQLite {
				explain, columns = "EXPLAIN QUERY PLAN ", []any{new(int), new(int), new(int), new(string)}
			}
			rows, err := s.db.Read().QueryContext(ctx, explain+"SELECT wallet_id FROM "+prefix+"wallets WHERE "+where)
			require.NoError(t, err)
			var plan string
			for rows.Next() {
				require.NoError(t, rows.Scan(columns...))
				plan += *columns[len(columns)-1].(*string) + "\n"
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
			require.NotRegexp(t, `(?i)seq scan|^SCAN`, plan)
		}
	})
}
