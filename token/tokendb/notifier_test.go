package tokendb

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/token"
)

// listen returns the events of the store's tokens.
func listen(t *testing.T, s *Store, ops ...storage.Op) <-chan Event {
	t.Helper()
	events := make(chan Event, 100)
	stop, err := s.Subscribe(t.Context(), ops, func(e Event) { events <- e })
	require.NoError(t, err)
	t.Cleanup(stop)
	return events
}

func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-t.Context().Done():
		require.Fail(t, "the test ended")
		return Event{}
	}
}

func TestTokenNotifier(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		events := listen(t, s)
		store(t, s, tok("tx", 7, "alice", "USD", 1))
		require.Equal(t, Event{storage.OpInsert, id("tx", 7)}, next(t, events))
		require.NoError(t, s.DeleteTokens(t.Context(), "x", id("tx", 7)))
		require.Equal(t, Event{storage.OpUpdate, id("tx", 7)}, next(t, events))
		_, err := s.Subscribe(t.Context(), nil, nil)
		require.ErrorIs(t, err, token.ErrEmptyArgument)
	})
}

func TestSubscribeStore(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		events := listen(t, s, storage.OpInsert)
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *Tx) error {
			return errors.Join(tx.StoreToken(ctx, tok("a", 0, "alice", "USD", 1)), tx.StoreToken(ctx, tok("b", 1, "alice", "USD", 1)))
		}))
		require.Equal(t, Event{storage.OpInsert, id("a", 0)}, next(t, events))
		require.Equal(t, Event{storage.OpInsert, id("b", 1)}, next(t, events))
	})
}

func TestSubscribeStoreDelete(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		store(t, s, tok("a", 0, "alice", "USD", 1))
		events := listen(t, s, storage.OpUpdate, storage.OpDelete)
		require.NoError(t, s.DeleteTokens(t.Context(), "x", id("a", 0)))
		require.NoError(t, s.DeleteTokens(t.Context(), "x", id("a", 0)), "writes nothing, tells nothing")
		n, err := s.PruneSpent(t.Context(), 0, 1, false)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Equal(t, Event{storage.OpUpdate, id("a", 0)}, next(t, events))
		require.Equal(t, Event{storage.OpDelete, id("a", 0)}, next(t, events))
	})
}

// What was rolled back is not told of: the next event is that of the next commit.
func TestSubscribeStoreNoCommit(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		events := listen(t, s, storage.OpInsert)
		tx, err := s.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, tx.StoreToken(t.Context(), tok("never", 0, "alice", "USD", 1)))
		tx.Rollback()
		store(t, s, tok("after", 0, "alice", "USD", 1))
		for e := next(t, events); e.ID != id("after", 0); e = next(t, events) {
			// On SQLite a hint may be of a change that was taken back.
			require.Equal(t, storage.SQLite, s.db.Backend())
		}
	})
}

// Whoever is told of a token finds it.
func TestSubscribeRead(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		found := make(chan error, 10)
		stop, err := s.Subscribe(t.Context(), []storage.Op{storage.OpInsert}, func(e Event) {
			got, _, err := s.GetToken(t.Context(), e.ID, false)
			if err == nil && got == nil {
				err = errors.New("not there")
			}
			found <- err
		})
		require.NoError(t, err)
		defer stop()
		store(t, s, tok("a", 0, "alice", "USD", 1))
		require.NoError(t, <-found)
	})
}
