// Package identitydb keeps identities: where they come from (configurations), what is known of each, and which of them we can sign for.
// None of it can be rebuilt from the ledger.
//
// What is stored stays: storing an identity again, be it with other data, succeeds and changes nothing, so that everything may be
// replayed. Reads compare the identity that is stored with the one asked for. [Store] is the SQL, [StoreService] adds caches
// and identities that are not stored, [Subscriber] picks up new configurations while the process runs.
package identitydb

import (
	"database/sql"
	"fmt"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/identity"
	"dongate/token/internal/run"
)

// Store is the identities of one TMS. It is safe for concurrent use.
type Store struct {
	db     *run.DB
	prefix string
	t      tables
}

// New returns the identities in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string) *Store {
	return &Store{run.New(db), prefix, newTables(prefix)}
}

// Close gives back what the Store itself holds; the database stays open. It may be called more than once.
func (s *Store) Close() error { return s.db.Close() }

type tables struct {
	configs                query.Table
	id, kind, url, confID  query.Column[string]
	conf, raw              query.Column[[]byte]
	info                   query.Table
	infoHash               query.Column[string]
	infoIdentity, audit    query.Column[[]byte]
	tokenData, tokenAudit  query.Column[[]byte]
	signers                query.Table
	signerHash             query.Column[string]
	signerIdentity, signer query.Column[[]byte]
}

func newTables(prefix string) tables {
	configs, info, signers := query.NewTable(prefix+"id_cfgs"), query.NewTable(prefix+"id_info"), query.NewTable(prefix+"id_signers")
	return tables{
		configs: configs, id: query.NewColumn[string](configs, "id"), kind: query.NewColumn[string](configs, "type"),
		url: query.NewColumn[string](configs, "url"), confID: query.NewColumn[string](configs, "conf_id"),
		conf: query.NewColumn[[]byte](configs, "conf"), raw: query.NewColumn[[]byte](configs, "raw"),

		info: info, infoHash: query.NewColumn[string](info, "identity_hash"), infoIdentity: query.NewColumn[[]byte](info, "identity"),
		audit: query.NewColumn[[]byte](info, "identity_audit_info"), tokenData: query.NewColumn[[]byte](info, "token_metadata"),
		tokenAudit: query.NewColumn[[]byte](info, "token_metadata_audit_info"),

		signers: signers, signerHash: query.NewColumn[string](signers, "identity_hash"),
		signerIdentity: query.NewColumn[[]byte](signers, "identity"), signer: query.NewColumn[[]byte](signers, "info"),
	}
}

func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// check returns an error of the class token.ErrIntegrity unless the stored identity is that of its key.
func check(hash string, stored token.Identity) error {
	got, err := identity.Hash(stored)
	if err != nil || got != hash {
		return fmt.Errorf("the identity under %s is another one: %w", hash, token.ErrIntegrity)
	}
	return nil
}

// payloads checks values, given with their names in turn.
func payloads(values ...payload) error {
	for _, v := range values {
		if err := storage.CheckPayload(v.name, v.value); err != nil {
			return err
		}
	}
	return nil
}

type payload struct {
	name  string
	value []byte
}

// bytesOrNull keeps nil and empty apart on both backends.
func bytesOrNull(c query.Column[[]byte], v []byte) query.Assignment {
	if v == nil {
		return c.SetNull()
	}
	return c.Set(v)
}

// nullable scans bytes: nil for NULL, and for nothing else.
type nullable struct{ v []byte }

// Scan implements sql.Scanner.
func (n *nullable) Scan(src any) error {
	var v sql.Null[[]byte]
	if err := v.Scan(src); err != nil {
		return err
	}
	if n.v = v.V; v.Valid && v.V == nil {
		n.v = []byte{}
	}
	return nil
}
