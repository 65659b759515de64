package identitydb

import (
	"context"
	"database/sql"
	"fmt"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/identity"
	"dongate/token/internal/run"
)

// Data is what is known of an identity.
type Data struct {
	AuditInfo              []byte // what an auditor needs to know whose it is; may be empty
	TokenMetadata          []byte // nil: none
	TokenMetadataAuditInfo []byte // nil: none
}

// Signer is an identity that we can sign for.
type Signer struct {
	Hash     string // its place in the listing
	Identity token.Identity
	Info     []byte // what is needed to sign; nil: nothing is stored
}

// Descriptor is what a new identity comes with.
type Descriptor struct {
	Identity   token.Identity
	AuditInfo  []byte // nil: nothing is known
	SignerInfo []byte // nil: we do not sign for it
	// Ephemeral is not to be stored, see [StoreService.RegisterIdentityDescriptor].
	Ephemeral bool
}

// StoreIdentityData stores what is known of an identity. If something is stored of it, that stays.
func (s *Store) StoreIdentityData(ctx context.Context, id token.Identity, d Data) error {
	return s.insert(ctx, s.db.Write(), "storing the data of an identity", id, &d, nil, false)
}

// StoreSignerInfo stores that we can sign for an identity, and how. If it is stored already, that stays.
func (s *Store) StoreSignerInfo(ctx context.Context, id token.Identity, info []byte) error {
	return s.insert(ctx, s.db.Write(), "storing the signer of an identity", id, nil, info, true)
}

// RegisterIdentityDescriptor stores the descriptor's audit info and signer info under its identity and, unless that is empty, under the
// alias, all or nothing. What is stored of one of them already stays, and what is missing is added. An ephemeral descriptor is refused: see
// [StoreService.RegisterIdentityDescriptor].
func (s *Store) RegisterIdentityDescriptor(ctx context.Context, d *Descriptor, alias token.Identity) error {
	const doing = "registering an identity"
	if err := d.check(alias); err != nil {
		return wrap(err, doing)
	}
	if d.Ephemeral {
		return fmt.Errorf("%s: an ephemeral identity is not stored", doing)
	}
	names := []token.Identity{d.Identity}
	if len(alias) > 0 {
		names = append(names, alias)
	}
	return token.InTx(ctx, s.db.DB, func(ctx context.Context, tx token.Tx) error {
		for _, name := range names {
			var data *Data
			if d.AuditInfo != nil {
				data = &Data{AuditInfo: d.AuditInfo}
			}
			if err := s.insert(ctx, tx, doing, name, data, d.SignerInfo, d.SignerInfo != nil); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *Descriptor) check(alias token.Identity) error {
	if d == nil {
		return fmt.Errorf("no descriptor: %w", token.ErrEmptyArgument)
	}
	if _, err := identity.Hash(d.Identity); err != nil {
		return err
	}
	return payloads(payload{"alias", alias}, payload{"audit info", d.AuditInfo}, payload{"signer info", d.SignerInfo})
}

// insert stores the data, unless nil, and the signer of an identity.
func (s *Store) insert(ctx context.Context, x run.Execer, doing string, id token.Identity, d *Data, signer []byte, signs bool) error {
	t := &s.t
	hash, err := identity.Hash(id)
	if err != nil {
		return wrap(err, doing)
	}
	if d != nil {
		if err := payloads(payload{"audit info", d.AuditInfo}, payload{"token metadata", d.TokenMetadata}, payload{"token metadata audit info", d.TokenMetadataAuditInfo}); err != nil {
			return wrap(err, doing)
		}
		audit := d.AuditInfo
		if audit == nil {
			audit = []byte{}
		}
		if _, err := s.db.Exec(ctx, x, query.InsertInto(t.info).Row(t.infoHash.Set(hash), t.infoIdentity.Set(id), t.audit.Set(audit),
			bytesOrNull(t.tokenData, d.TokenMetadata), bytesOrNull(t.tokenAudit, d.TokenMetadataAuditInfo)).OnConflict(t.infoHash).DoNothing()); err != nil {
			return wrap(err, doing)
		}
	}
	if !signs {
		return nil
	}
	if err := payloads(payload{"signer info", signer}); err != nil {
		return wrap(err, doing)
	}
	_, err = s.db.Exec(ctx, x, query.InsertInto(t.signers).Row(t.signerHash.Set(hash), t.signerIdentity.Set(id), bytesOrNull(t.signer, signer)).OnConflict(t.signerHash).DoNothing())
	return wrap(err, doing)
}

// GetIdentityData returns all that is known of an identity; nil where nothing is stored.
func (s *Store) GetIdentityData(ctx context.Context, id token.Identity) (*Data, error) {
	const doing = "reading the data of an identity"
	t := &s.t
	hash, err := identity.Hash(id)
	if err != nil {
		return nil, wrap(err, doing)
	}
	type row struct {
		identity token.Identity
		Data
	}
	r, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(t.infoIdentity, t.audit, t.tokenData, t.tokenAudit).From(t.info).Where(t.infoHash.Eq(hash)),
		func(rows *sql.Rows) (r row, err error) {
			var audit, data, dataAudit nullable
			err = rows.Scan(&r.identity, &audit, &data, &dataAudit)
			r.Data = Data{audit.v, data.v, dataAudit.v}
			return r, err
		})
	if err != nil || !found {
		return nil, wrap(err, doing)
	}
	if err := check(hash, r.identity); err != nil {
		return nil, wrap(err, doing)
	}
	return &r.Data, nil
}

// GetAuditInfo returns the audit info of an identity; nil where nothing is stored of it.
func (s *Store) GetAuditInfo(ctx context.Context, id token.Identity) ([]byte, error) {
	d, err := s.GetIdentityData(ctx, id)
	if err != nil || d == nil {
		return nil, err
	}
	return d.AuditInfo, nil
}

// GetTokenInfo returns the token metadata of an identity and their audit info; nil where nothing is stored.
func (s *Store) GetTokenInfo(ctx context.Context, id token.Identity) (metadata, auditInfo []byte, err error) {
	d, err := s.GetIdentityData(ctx, id)
	if err != nil || d == nil {
		return nil, nil, err
	}
	return d.TokenMetadata, d.TokenMetadataAuditInfo, nil
}

// GetSignerInfo returns what is needed to sign for an identity; nil where nothing is stored. Whether we can sign for it at all tells
// SignerInfoExists.
func (s *Store) GetSignerInfo(ctx context.Context, id token.Identity) ([]byte, error) {
	const doing = "reading the signer of an identity"
	hash, err := identity.Hash(id)
	if err != nil {
		return nil, wrap(err, doing)
	}
	r, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(s.t.signerHash, s.t.signerIdentity, s.t.signer).From(s.t.signers).Where(s.t.signerHash.Eq(hash)), scanSigner)
	if err == nil && found {
		err = check(hash, r.Identity)
	}
	if err != nil || !found {
		return nil, wrap(err, doing)
	}
	return r.Info, nil
}

func scanSigner(rows *sql.Rows) (v Signer, err error) {
	var info nullable
	err = rows.Scan(&v.Hash, &v.Identity, &info)
	v.Info = info.v
	return v, err
}

// SignerInfoExists tells whether we can sign for an identity.
func (s *Store) SignerInfoExists(ctx context.Context, id token.Identity) (bool, error) {
	if _, err := identity.Hash(id); err != nil {
		return false, wrap(err, "looking for the signer of an identity")
	}
	found, err := s.GetExistingSignerInfo(ctx, id)
	return len(found) == 1, err
}

// GetExistingSignerInfo returns those of the identities that we can sign for, each once, in the order given. There may be any number. An
// empty one is not among them.
func (s *Store) GetExistingSignerInfo(ctx context.Context, ids ...token.Identity) ([]token.Identity, error) {
	const doing = "looking for signers of identities"
	t := &s.t
	asked, exists := map[string]token.Identity{}, map[string]bool{}
	var hashes []string // in the order given
	for _, id := range ids {
		hash, err := identity.Hash(id)
		if err != nil {
			continue // never stored
		}
		if asked[hash] == nil {
			asked[hash] = id
			hashes = append(hashes, hash)
		}
	}
	for part := range storage.Chunks(hashes, 1) {
		for v, err := range run.Query(ctx, s.db, s.db.Read(), query.Select(t.signerHash, t.signerIdentity).From(t.signers).Where(t.signerHash.In(part...)),
			func(rows *sql.Rows) (v Signer, err error) {
				err = rows.Scan(&v.Hash, &v.Identity)
				return v, err
			}) {
			if err == nil {
				err = check(v.Hash, v.Identity)
			}
			if err != nil {
				return nil, wrap(err, doing)
			}
			exists[v.Hash] = true
		}
	}
	var found []token.Identity
	for _, hash := range hashes {
		if exists[hash] {
			found = append(found, asked[hash])
		}
	}
	return found, nil
}

// IterateSigners returns a page of the identities that we can sign for, by their hash. A page with fewer than its size is the last.
func (s *Store) IterateSigners(ctx context.Context, p query.Pagination) (query.Page[Signer], error) {
	const doing = "listing signers"
	t := &s.t
	order := query.SortByID(t.signerHash)
	all, err := storage.Collect(run.Query(ctx, s.db, s.db.Read(), query.Select(t.signerHash, t.signerIdentity, t.signer).From(t.signers).Paginate(order, p), scanSigner))
	if err != nil {
		return query.Page[Signer]{}, wrap(err, doing)
	}
	for _, v := range all {
		if err := check(v.Hash, v.Identity); err != nil {
			return query.Page[Signer]{}, wrap(err, doing)
		}
	}
	return query.NewPage(order, p, all, func(v Signer) (string, string) { return v.Hash, v.Hash }), nil
}
