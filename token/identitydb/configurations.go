package identitydb

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// ErrConfigurationConflict: a configuration of this id, type and URL is stored with another content, or under another id, and stays.
var ErrConfigurationConflict = errors.New("identitydb: another configuration is stored under this id, type and URL")

// AddConfiguration stores a configuration and returns its id among configurations, to which wallets refer. The same again succeeds and
// returns the id that is stored; one with another content is ErrConfigurationConflict.
func (s *Store) AddConfiguration(ctx context.Context, c token.IdentityConfiguration) (confID string, err error) {
	return s.add(ctx, c, "")
}

// ImportConfiguration is AddConfiguration of one that already has an id, which comes from another database. One that is stored under
// another id is ErrConfigurationConflict, and an id that another configuration has is storage.ErrUnique.
func (s *Store) ImportConfiguration(ctx context.Context, c token.IdentityConfiguration, confID string) error {
	if confID == "" {
		return fmt.Errorf("importing an identity configuration without an id: %w", token.ErrEmptyArgument)
	}
	_, err := s.add(ctx, c, confID)
	return err
}

func (s *Store) add(ctx context.Context, c token.IdentityConfiguration, confID string) (string, error) {
	doing := fmt.Sprintf("storing the configuration of the identity %.100q", c.ID)
	if err := payloads(payload{"configuration", c.Config}, payload{"raw configuration", c.Raw}, payload{"name", []byte(c.ID + c.Type + c.URL)}); err != nil {
		return "", wrap(err, doing)
	}
	t, wanted := &s.t, confID
	if confID == "" {
		confID = configurationID(c)
	}
	n, err := s.db.Exec(ctx, s.db.Write(), query.InsertInto(t.configs).Row(t.id.Set(c.ID), t.kind.Set(c.Type), t.url.Set(c.URL),
		bytesOrNull(t.conf, c.Config), bytesOrNull(t.raw, c.Raw), t.confID.Set(confID)).OnConflict(t.id, t.kind, t.url).DoNothing())
	if err != nil || n > 0 {
		return confID, wrap(err, doing)
	}
	old, found, err := s.configuration(ctx, c.ID, c.Type, c.URL)
	switch {
	case err != nil:
		return "", wrap(err, doing)
	case !found || !bytes.Equal(old.Config, c.Config) || !bytes.Equal(old.Raw, c.Raw) || wanted != "" && wanted != old.confID:
		return "", wrap(ErrConfigurationConflict, doing)
	}
	return old.confID, nil
}

// configurationID is the id of a new configuration: nothing but its key is in it, and no two keys have the same.
func configurationID(c token.IdentityConfiguration) string {
	h := sha256.New()
	for _, part := range []string{c.ID, c.Type, c.URL} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

type storedConfiguration struct {
	token.IdentityConfiguration
	confID string
}

func (s *Store) configuration(ctx context.Context, id, kind, url string) (storedConfiguration, bool, error) {
	t := &s.t
	return run.One(ctx, s.db, s.db.Prepared(), s.selectConfigurations(query.And(t.id.Eq(id), t.kind.Eq(kind), t.url.Eq(url))), scanConfiguration)
}

func (s *Store) selectConfigurations(where query.Cond) query.Statement {
	t := &s.t
	return query.Select(t.id, t.kind, t.url, t.conf, t.raw, t.confID).From(t.configs).Where(where).OrderBy(t.id.Asc(), t.kind.Asc(), t.url.Asc())
}

func scanConfiguration(rows *sql.Rows) (c storedConfiguration, err error) {
	var conf, raw nullable
	err = rows.Scan(&c.ID, &c.Type, &c.URL, &conf, &raw, &c.confID)
	c.Config, c.Raw = conf.v, raw.v
	return c, err
}

// GetConfiguration returns the configuration; nil where it is not stored.
func (s *Store) GetConfiguration(ctx context.Context, id, kind, url string) (*token.IdentityConfiguration, error) {
	c, found, err := s.configuration(ctx, id, kind, url)
	if err != nil || !found {
		return nil, wrap(err, "reading an identity configuration")
	}
	return &c.IdentityConfiguration, nil
}

// GetConfigurationID returns the stored id of the configuration; "" where it is not stored.
func (s *Store) GetConfigurationID(ctx context.Context, id, kind, url string) (string, error) {
	c, _, err := s.configuration(ctx, id, kind, url)
	return c.confID, wrap(err, "reading the id of an identity configuration")
}

// ConfigurationExists tells whether the configuration is stored.
func (s *Store) ConfigurationExists(ctx context.Context, id, kind, url string) (bool, error) {
	_, found, err := s.configuration(ctx, id, kind, url)
	return found, wrap(err, "looking for an identity configuration")
}

// ConfigurationsByID returns the configurations of an id, whatever their type and URL, in their order.
func (s *Store) ConfigurationsByID(ctx context.Context, id string) ([]token.IdentityConfiguration, error) {
	return storage.Collect(s.list(ctx, s.t.id.Eq(id)))
}

// Configurations yields the configurations of a type or, with "", all, by id, type and URL.
func (s *Store) Configurations(ctx context.Context, kind string) iter.Seq2[token.IdentityConfiguration, error] {
	where := query.Cond{}
	if kind != "" {
		where = s.t.kind.Eq(kind)
	}
	return s.list(ctx, where)
}

func (s *Store) list(ctx context.Context, where query.Cond) iter.Seq2[token.IdentityConfiguration, error] {
	return func(yield func(token.IdentityConfiguration, error) bool) {
		for c, err := range run.Query(ctx, s.db, s.db.Prepared(), s.selectConfigurations(where), scanConfiguration) {
			if !yield(c.IdentityConfiguration, wrap(err, "listing identity configurations")) {
				return
			}
		}
	}
}

// ConfigurationEvent says that a configuration was stored or changed. With storage.OpChanged any may have been, and the rest is empty.
type ConfigurationEvent struct {
	Op            storage.Op
	ID, Type, URL string
}

// SubscribeConfigurations has callback called after configurations were inserted or updated, see [storage.Notifier]: a hint to read them
// again. The function returned ends it. [Subscriber] is easier to use.
func (s *Store) SubscribeConfigurations(ctx context.Context, callback func(ConfigurationEvent)) (func(), error) {
	if callback == nil {
		return nil, errors.New("subscribing to identity configurations: a callback is needed")
	}
	end, err := s.db.Notifier().Subscribe(ctx, s.prefix+"id_cfgs", []string{"id", "type", "url"}, []storage.Op{storage.OpInsert, storage.OpUpdate}, func(e storage.Event) {
		event := ConfigurationEvent{Op: e.Op}
		if len(e.Key) == 3 {
			event.ID, event.Type, event.URL = e.Key[0], e.Key[1], e.Key[2]
		}
		callback(event)
	})
	return end, wrap(err, "subscribing to identity configurations")
}
