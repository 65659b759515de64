package identitydb

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestIdentityNotifier(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		_, err := s.SubscribeConfigurations(ctx, nil)
		require.Error(t, err)
		events := make(chan ConfigurationEvent, 16)
		end, err := s.SubscribeConfigurations(ctx, func(e ConfigurationEvent) { events <- e })
		require.NoError(t, err)
		c := token.IdentityConfiguration{ID: "id", Type: "type", URL: "url"}
		_, err = s.AddConfiguration(ctx, c)
		require.NoError(t, err)
		require.Equal(t, ConfigurationEvent{storage.OpInsert, "id", "type", "url"}, <-events)
		exec(t, s.db.DB, "UPDATE "+prefix+"id_cfgs SET conf = $1", []byte("new"))
		require.Equal(t, ConfigurationEvent{storage.OpUpdate, "id", "type", "url"}, <-events)
		exec(t, s.db.DB, "DELETE FROM "+prefix+"id_cfgs")
		_, err = s.AddConfiguration(ctx, c)
		require.NoError(t, err)
		require.Equal(t, storage.OpInsert, (<-events).Op, "a removal is not told of")
		end()
		s.db.Notifier().Close()
		_, err = s.SubscribeConfigurations(ctx, func(ConfigurationEvent) {})
		require.ErrorIs(t, err, storage.ErrNotifierClosed)
	})
}

// start starts a subscriber that sends what it is handed to a channel, and returns what ends it.
func start(t *testing.T, s *Store, o SubscriberOptions) (<-chan token.IdentityConfiguration, func() error) {
	got := make(chan token.IdentityConfiguration, 64)
	handle := o.Handle
	o.Handle = func(ctx context.Context, c token.IdentityConfiguration) error {
		if handle != nil {
			if err := handle(ctx, c); err != nil {
				return err
			}
		}
		got <- c
		return nil
	}
	sub, err := NewSubscriber(s, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sub.Run(ctx) }()
	stop := func() error {
		cancel(errDone)
		err := <-ended
		ended <- err // harmless when repeated
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return got, stop
}

var errDone = errors.New("done")

func add(t *testing.T, s *Store, kind, id string) token.IdentityConfiguration {
	c := token.IdentityConfiguration{ID: id, Type: kind, URL: "u", Config: []byte("c"), Raw: []byte("r")}
	_, err := s.AddConfiguration(t.Context(), c)
	require.NoError(t, err)
	return c
}

// Configurations that another replica stores are taken in without a restart, each once; polling would take an hour.
func TestSubscriber(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		s := fresh(t, db)
		writer := s
		if db.Backend() == storage.Postgres {
			writer = fresh(t, open(t)) // another process
		}
		first := add(t, writer, "x509", "stored before")
		got, stop := start(t, s, SubscriberOptions{Types: []string{"x509", "idemix"}, Poll: time.Hour})
		require.Equal(t, first, <-got)
		add(t, writer, "other", "not asked for")
		for i, kind := range []string{"idemix", "x509", "idemix"} {
			want := add(t, writer, kind, string(rune('a'+i)))
			require.Equal(t, want, <-got)
		}
		exec(t, writer.db.DB, "UPDATE "+prefix+"id_cfgs SET conf = $1 WHERE id = 'a'", []byte("changed"))
		changed := <-got
		require.Equal(t, "changed", string(changed.Config), "again, since it changed")
		require.ErrorIs(t, stop(), errDone)
		require.ErrorIs(t, stop(), errDone)
		require.Empty(t, got, "each once")
	})
}

// What no event tells of is found all the same: another process's writes to an SQLite file.
func TestSubscriberPolls(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	s, other := fresh(t, storagetest.Open(t, config)), fresh(t, storagetest.Open(t, config))
	got, _ := start(t, s, SubscriberOptions{Poll: 5 * time.Millisecond})
	for _, id := range []string{"a", "b"} {
		require.Equal(t, add(t, other, "x509", id), <-got)
	}
}

// One that cannot be taken in is tried again and does not hold up others.
func TestSubscriberRetries(t *testing.T) {
	t.Parallel()
	s := fresh(t, storagetest.Open(t, storage.Config{Driver: storage.DriverMemory}))
	bad, good := add(t, s, "x509", "a"), add(t, s, "x509", "b")
	failures := 2
	got, _ := start(t, s, SubscriberOptions{Poll: 5 * time.Millisecond, Handle: func(_ context.Context, c token.IdentityConfiguration) error {
		if c.ID == "a" && failures > 0 {
			failures--
			return errors.New("not now")
		}
		return nil
	}})
	require.Equal(t, good, <-got)
	require.Equal(t, bad, <-got)
}

// A database that fails is asked again; one whose handle was closed ends it.
func TestSubscriberSurvivesFailures(t *testing.T) {
	t.Parallel()
	s := fresh(t, storagetest.Open(t, storage.Config{Driver: storage.DriverMemory}))
	exec(t, s.db.DB, "ALTER TABLE "+prefix+"id_cfgs RENAME TO gone")
	got, _ := start(t, s, SubscriberOptions{Poll: 5 * time.Millisecond})
	exec(t, s.db.DB, "ALTER TABLE gone RENAME TO "+prefix+"id_cfgs")
	require.Equal(t, add(t, s, "x509", "a"), <-got)

	closed := fresh(t, storagetest.Open(t, storage.Config{Driver: storage.DriverMemory}))
	closed.db.Notifier().Close()
	sub, err := NewSubscriber(closed, SubscriberOptions{Handle: func(context.Context, token.IdentityConfiguration) error { return nil }})
	require.NoError(t, err)
	require.ErrorIs(t, sub.Run(t.Context()), storage.ErrNotifierClosed)
	_, err = NewSubscriber(closed, SubscriberOptions{})
	require.Error(t, err)
}
