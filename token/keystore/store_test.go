package keystore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// sealings are the forms that every case of the suite runs with.
func sealings(t testing.TB) map[string]*Sealing {
	return map[string]*Sealing{"plain": Plain(), "encrypted": withKeys(t, newKey(t))}
}

func newKey(t testing.TB) string {
	key, err := NewKey()
	require.NoError(t, err)
	return key
}

func withKeys(t testing.TB, keys ...string) *Sealing {
	text := "# keys\n\n"
	for _, k := range keys {
		text += k + "\n"
	}
	s, err := LoadSealing(SealingOptions{Env: "KEYS", LookupEnv: func(string) (string, bool) { return text, true }})
	require.NoError(t, err)
	return s
}

func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
		for name, sealing := range sealings(t) {
			t.Run(name, func(t *testing.T) {
				_, err := db.Write().ExecContext(t.Context(), "DELETE FROM "+prefix+"key_store")
				require.NoError(t, err)
				test(t, with(t, db, sealing))
			})
		}
	})
}

func with(t testing.TB, db *storage.DB, sealing *Sealing) *Store {
	s, err := New(db, prefix, Options{Sealing: sealing})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// stored returns what is in the database.
func stored(t testing.TB, s *Store, id string) (val []byte) {
	require.NoError(t, s.db.Read().QueryRowContext(t.Context(), "SELECT val FROM "+prefix+"key_store WHERE key = $1", id).Scan(&val))
	return val
}

func overwrite(t testing.TB, s *Store, id string, val []byte) {
	_, err := s.db.Write().ExecContext(t.Context(), "UPDATE "+prefix+"key_store SET val = $1 WHERE key = $2", val, id)
	require.NoError(t, err)
}

func TestAddGet(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		require.NoError(t, s.Put(ctx, "a1", []byte(`{"kty":"EC"}`)))
		require.NoError(t, s.Put(ctx, "a2", []byte{0, 1, 2, 255}))
		value, err := s.Get(ctx, "a1")
		require.NoError(t, err)
		require.Equal(t, []byte(`{"kty":"EC"}`), value)
		value, err = s.Get(ctx, "a2")
		require.NoError(t, err)
		require.Equal(t, []byte{0, 1, 2, 255}, value)

		value, err = s.Get(ctx, "a3")
		require.ErrorIs(t, err, ErrNotFound, "a missing key is an error")
		require.Nil(t, value)

		ids, err := storage.Collect(s.IDs(ctx))
		require.NoError(t, err)
		require.Equal(t, []string{"a1", "a2"}, ids)
		require.Equal(t, s.sealing.Encrypted(), !bytes.Contains(stored(t, s, "a1"), []byte("kty")))
	})
}

// Neither the first value nor the error of the rejected one is lost: Put never overwrites (reference §10.1, 14).
func TestPutConflict(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		require.NoError(t, s.Put(ctx, "k", []byte("first")))
		before := stored(t, s, "k")
		require.NoError(t, s.Put(ctx, "k", []byte("first")), "the same again")
		for _, other := range []string{"second", "firs", "first\x00"} {
			require.ErrorIs(t, s.Put(ctx, "k", []byte(other)), ErrConflict)
		}
		require.Equal(t, before, stored(t, s, "k"), "unchanged after the rejected writes, and not encrypted again by the equal one")
		value, err := s.Get(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, []byte("first"), value)
	})
}

func TestEmptyRefused(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		require.ErrorIs(t, s.Put(t.Context(), "", []byte("v")), token.ErrEmptyArgument)
		require.ErrorIs(t, s.Put(t.Context(), "k", nil), token.ErrEmptyArgument)
		require.ErrorIs(t, s.Put(t.Context(), "k", []byte{}), token.ErrEmptyArgument)
		require.ErrorIs(t, s.Put(t.Context(), "k", make([]byte, storage.MaxPayload+1)), storage.ErrPayloadSize)
		_, err := s.Get(t.Context(), "k")
		require.ErrorIs(t, err, ErrNotFound)
	})
}

func TestDeleteIsIdempotent(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		require.NoError(t, s.Put(ctx, "k", []byte("v")))
		require.NoError(t, s.Put(ctx, "l", []byte("w")))
		require.NoError(t, s.Delete(ctx, "k"))
		require.NoError(t, s.Delete(ctx, "k"))
		require.NoError(t, s.Delete(ctx, ""))
		_, err := s.Get(ctx, "k")
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, s.Put(ctx, "k", []byte("another")), "what was deleted is free")
		_, err = s.Get(ctx, "l")
		require.NoError(t, err)
	})
}

// The database decides between writers: one value wins, and who wrote another learns it.
func TestPutRace(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				err := s.Put(t.Context(), "k", []byte{byte(i % 4)})
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 4, won.Load(), "all that wrote the same")
	})
}

// A failure is never taken for a missing key, nor for a success.
func TestErrorIsNotAbsent(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Get(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrNotFound)
		require.ErrorIs(t, s.Put(ctx, "k", []byte("v")), context.Canceled)
		require.ErrorIs(t, s.Delete(ctx, "k"), context.Canceled)
		_, err = storage.Collect(s.IDs(ctx))
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Whatever happens to a stored value, it is not handed out as a key, and storing the key again does not pass over it.
func TestDamagedValues(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		if !s.sealing.Encrypted() {
			t.Skip("only what is encrypted can be told from what was changed")
		}
		ctx := t.Context()
		require.NoError(t, s.Put(ctx, "k", []byte("value")))
		require.NoError(t, s.Put(ctx, "other", []byte("value")))
		good, other := stored(t, s, "k"), stored(t, s, "other")
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 1
			_, err := s.sealing.Open("k", bad)
			require.Error(t, err, "byte %d", i)
		}
		for n := range good {
			_, err := s.sealing.Open("k", good[:n])
			require.Error(t, err, "%d bytes", n)
		}
		for _, c := range []struct {
			val  []byte
			want error
		}{
			{other, token.ErrIntegrity},
			{nil, token.ErrIntegrity},
			{[]byte("nonsense"), token.ErrIntegrity},
			{append([]byte{formPlain}, "value"...), ErrForm},
			{good[:len(good)-1], ErrSealed},
		} {
			if c.val == nil {
				c.val = []byte{}
			}
			overwrite(t, s, "k", c.val)
			_, err := s.Get(ctx, "k")
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, s.Put(ctx, "k", []byte("value")), c.want)
		}
	})
}

func TestReseal(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		require.NoError(t, db.Migrate(ctx, token.Tables(prefix)))
		plain := with(t, db, Plain())
		const n = resealPage + 3
		for i := range n {
			require.NoError(t, plain.Put(ctx, fmt.Sprint("k", i), []byte(fmt.Sprint("v", i))))
		}
		all := func(s *Store) {
			for i := range n {
				value, err := s.Get(ctx, fmt.Sprint("k", i))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint("v", i), string(value))
			}
		}
		first, second := newKey(t), newKey(t)
		encrypted := with(t, db, withKeys(t, first))
		_, err := encrypted.Reseal(ctx, nil)
		require.ErrorIs(t, err, ErrForm, "plain values are taken only when that is said")
		all(plain)
		for range 2 { // repeated
			count, err := encrypted.Reseal(ctx, Plain())
			require.NoError(t, err)
			require.Equal(t, n, count)
			all(encrypted)
		}
		_, err = plain.Get(ctx, "k0")
		require.ErrorIs(t, err, ErrForm)

		changed := with(t, db, withKeys(t, second, first))
		all(changed)
		_, err = changed.Reseal(ctx, nil)
		require.NoError(t, err)
		all(with(t, db, withKeys(t, second)))
		_, err = encrypted.Get(ctx, "k0")
		require.ErrorIs(t, err, ErrSealed)

		_, err = plain.Reseal(ctx, withKeys(t, second))
		require.NoError(t, err)
		all(plain)
	})
}

func TestLoadSealing(t *testing.T) {
	t.Parallel()
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	env := map[string]string{"KEY": newKey(t), "EMPTY": "", "BAD": "AGE-SECRET-KEY-1SECRET"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for _, o := range []SealingOptions{{Env: "KEY"}, {File: file("good", newKey(t)+"\n", 0o600)}, {File: file("hybrid", "# for later\n"+hybrid.String(), 0o400)}} {
		o.LookupEnv = lookup
		s, err := LoadSealing(o)
		require.NoError(t, err)
		sealed, err := s.Seal("k", []byte("v"))
		require.NoError(t, err)
		value, err := s.Open("k", sealed)
		require.NoError(t, err)
		require.Equal(t, []byte("v"), value)
	}
	for _, c := range []struct {
		o    SealingOptions
		text string
	}{
		{SealingOptions{}, "one of the two"},
		{SealingOptions{Env: "KEY", File: "x"}, "one of the two"},
		{SealingOptions{Env: "NONE"}, "NONE is not set"},
		{SealingOptions{Env: "EMPTY"}, "EMPTY is not set"},
		{SealingOptions{Env: "BAD"}, "age-keygen"},
		{SealingOptions{File: filepath.Join(dir, "none")}, "no such file"},
		{SealingOptions{File: file("open", newKey(t), 0o644)}, "chmod 600"},
		{SealingOptions{File: file("empty", "# nothing\n", 0o600)}, "age-keygen"},
		{SealingOptions{File: file("long", string(make([]byte, maxKeyFile+1)), 0o600)}, "more than"},
	} {
		c.o.LookupEnv = lookup
		_, err := LoadSealing(c.o)
		require.ErrorContains(t, err, c.text)
		require.NotContains(t, err.Error(), "SECRET-KEY")
	}
	_, err = New(nil, prefix, Options{})
	require.ErrorContains(t, err, "plain")
}

func TestSealingPrintsNothing(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	s := withKeys(t, key)
	text, err := json.Marshal(map[string]any{"a": s, "b": *s})
	require.NoError(t, err)
	for _, out := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %x %s", s, s, s, *s), string(text)} {
		require.Contains(t, out, "encrypted")
		require.NotContains(t, out, "AGE-")
		require.Less(t, len(out), 60)
	}
	require.Equal(t, "plain", Plain().String())
}
