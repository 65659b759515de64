// Package walletdb keeps which wallet an identity belongs to, in which role. None of it can be rebuilt from the ledger.
//
// A binding that is stored stays: storing it again, be it with other data, succeeds and changes nothing. It lives on the database of
// package identitydb, since every binding refers to the configuration of the identity that it comes from.
package walletdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/identity"
	"dongate/token/internal/run"
)

// ErrConfigurationDoesNotExist: the configuration that a binding refers to is not stored.
var ErrConfigurationDoesNotExist = errors.New("walletdb: the identity configuration does not exist")

// Options are what a Store may be told; the zero value will do.
type Options struct {
	Now func() time.Time // when bindings were stored; nil: time.Now
}

// Store is the wallets of one TMS. It is safe for concurrent use.
type Store struct {
	db                                 *run.DB
	clock                              func() time.Time
	table                              query.Table
	hash, wallet, enrollment, configID query.Column[string]
	role                               query.Column[token.Role]
	meta                               query.Column[[]byte]
	created                            query.Column[storage.Time]
}

// New returns the wallets in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := query.NewTable(prefix + "wallets")
	return &Store{
		db: run.New(db), clock: o.Now, table: t, hash: query.NewColumn[string](t, "identity_hash"), wallet: query.NewColumn[string](t, "wallet_id"),
		enrollment: query.NewColumn[string](t, "enrollment_id"), configID: query.NewColumn[string](t, "conf_id"), role: query.NewColumn[token.Role](t, "role_id"),
		meta: query.NewColumn[[]byte](t, "meta"), created: query.NewColumn[storage.Time](t, "created_at"),
	}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

// Binding is an identity of a wallet.
type Binding struct {
	Identity     token.Identity
	WalletID     string // not empty
	Role         token.Role
	EnrollmentID string // may be empty
	Meta         []byte // the application's; nil: none
	ConfigID     string // of the identity's configuration, see package identitydb
}

// StoreIdentity stores a binding. If the identity is bound to that wallet in that role, that binding stays. A configuration that is not
// stored is ErrConfigurationDoesNotExist.
func (s *Store) StoreIdentity(ctx context.Context, b Binding) error {
	doing := fmt.Sprintf("storing an identity of the wallet %.100q", b.WalletID)
	hash, err := identity.Hash(b.Identity)
	if err == nil && b.WalletID == "" {
		err = fmt.Errorf("no wallet: %w", token.ErrEmptyArgument)
	}
	if err == nil {
		err = storage.CheckPayload("wallet metadata", b.Meta)
	}
	if err != nil {
		return wrap(err, doing)
	}
	meta := s.meta.SetNull()
	if b.Meta != nil {
		meta = s.meta.Set(b.Meta)
	}
	_, err = s.db.Exec(ctx, s.db.Write(), query.InsertInto(s.table).Row(s.hash.Set(hash), s.wallet.Set(b.WalletID), s.role.Set(b.Role), meta,
		s.enrollment.Set(b.EnrollmentID), s.created.Set(storage.NewTime(s.clock())), s.configID.Set(b.ConfigID)).OnConflict(s.hash, s.wallet, s.role).DoNothing())
	if errors.Is(err, storage.ErrForeignKey) {
		err = fmt.Errorf("%w: %w", ErrConfigurationDoesNotExist, err)
	}
	return wrap(err, doing)
}

// GetWalletID returns the wallet that the identity belongs to in that role; "" where it belongs to none. Of several it is the one that was stored first.
func (s *Store) GetWalletID(ctx context.Context, id token.Identity, role token.Role) (string, error) {
	return s.first(ctx, "looking for the wallet of an identity", id, s.wallet, s.role.Eq(role))
}

// GetConfID returns the id of the configuration that the identity comes from, whatever its role; "" where it belongs to no wallet.
func (s *Store) GetConfID(ctx context.Context, id token.Identity) (string, error) {
	return s.first(ctx, "looking for the configuration of an identity", id, s.configID, query.Cond{})
}

// first returns a column of the identity's first binding.
func (s *Store) first(ctx context.Context, doing string, id token.Identity, c query.Column[string], where query.Cond) (string, error) {
	hash, err := identity.Hash(id)
	if err != nil {
		return "", wrap(err, doing)
	}
	v, _, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(c).From(s.table).Where(query.And(s.hash.Eq(hash), where)).
		OrderBy(s.created.Asc(), s.wallet.Asc(), s.role.Asc()).Limit(1), storage.Column[string])
	return v, wrap(err, doing)
}

// GetWalletIDs returns the wallets that have an identity in that role, each once, in their order as bytes.
func (s *Store) GetWalletIDs(ctx context.Context, role token.Role) ([]string, error) {
	all, err := storage.Collect(run.Query(ctx, s.db, s.db.Prepared(), query.SelectDistinct(s.wallet).From(s.table).Where(s.role.Eq(role)).OrderBy(s.wallet.Asc()), storage.Column[string]))
	return all, wrap(err, "listing wallets")
}

// IdentityExists tells whether the identity belongs to the wallet in that role.
func (s *Store) IdentityExists(ctx context.Context, id token.Identity, walletID string, role token.Role) (bool, error) {
	_, found, err := s.binding(ctx, "looking for an identity of a wallet", id, walletID, role)
	return found, err
}

// LoadMeta returns what was stored with the binding for the application; nil where there is nothing, or no binding.
func (s *Store) LoadMeta(ctx context.Context, id token.Identity, walletID string, role token.Role) ([]byte, error) {
	meta, _, err := s.binding(ctx, "reading the metadata of a wallet", id, walletID, role)
	return meta, err
}

func (s *Store) binding(ctx context.Context, doing string, id token.Identity, walletID string, role token.Role) (meta []byte, found bool, err error) {
	hash, err := identity.Hash(id)
	if err != nil {
		return nil, false, wrap(err, doing)
	}
	v, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(s.meta).From(s.table).
		Where(query.And(s.hash.Eq(hash), s.wallet.Eq(walletID), s.role.Eq(role))), storage.Column[sql.Null[[]byte]])
	return v.V, found, wrap(err, doing)
}

// IdentityCount returns how many identities belong to the wallet in that role.
func (s *Store) IdentityCount(ctx context.Context, walletID string, role token.Role) (int, error) {
	n, _, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(query.Count()).From(s.table).Where(query.And(s.wallet.Eq(walletID), s.role.Eq(role))), storage.Column[int])
	return n, wrap(err, "counting the identities of a wallet")
}

func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
