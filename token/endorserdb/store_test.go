package endorserdb_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/endorserdb"
)

const prefix = "n__c__s__"

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestMain(m *testing.M) {
	_ = flag.Lookup("rapid.checks").Value.Set("10") // each step is a transaction; the command line may say otherwise
	goleak.VerifyTestMain(m)
}

// store is a Store with its database and its clock.
type store struct {
	*endorserdb.Store
	db  *storage.DB
	now time.Time
}

func each(t *testing.T, test func(t *testing.T, s *store)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		s := &store{db: open(t), now: begin}
		require.NoError(t, s.db.Migrate(t.Context(), token.Tables(prefix)))
		s.Store = endorserdb.New(s.db, prefix, endorserdb.Options{Now: func() time.Time { return s.now }})
		t.Cleanup(func() {
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
		})
		test(t, s)
	})
}

func (s *store) add(t testing.TB, id, request, hash string, metadata map[string][]byte) error {
	return s.InTx(t.Context(), func(ctx context.Context, tx *endorserdb.Tx) error {
		return tx.AddValidationRecord(ctx, id, []byte(request), metadata, []byte(hash))
	})
}

func (s *store) list(t testing.TB, q token.ValidationsQuery) string {
	t.Helper()
	var got []string
	for r, err := range s.QueryValidations(t.Context(), q) {
		require.NoError(t, err)
		got = append(got, r.TxID)
	}
	return strings.Join(got, " ")
}

func TestValidationRecordQueries(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		at := func(n int) *time.Time { v := begin.Add(time.Duration(n) * time.Second); return &v }
		for i, id := range []string{"d", "c", "b", "a"} {
			s.now = *at(i / 2 * 2) // two of one moment
			require.NoError(t, s.add(t, id, "r"+id, "h"+id, map[string][]byte{"k": []byte(id)}))
		}
		require.NoError(t, s.SetStatus(ctx, "a", token.Confirmed, "good"))
		require.NoError(t, s.SetStatus(ctx, "b", token.Deleted, ""))
		for _, c := range []struct {
			q    token.ValidationsQuery
			want string
		}{
			{token.ValidationsQuery{}, "c d a b"},
			{token.ValidationsQuery{From: at(1)}, "a b"},
			{token.ValidationsQuery{From: at(2)}, "a b"},
			{token.ValidationsQuery{To: at(0)}, "c d"},
			{token.ValidationsQuery{From: at(0), To: at(2)}, "c d a b"},
			{token.ValidationsQuery{From: at(3)}, ""},
			{token.ValidationsQuery{Statuses: []token.TxStatus{token.Pending}}, "c d"},
			{token.ValidationsQuery{Statuses: []token.TxStatus{token.Deleted, token.Confirmed}, To: at(5)}, "a b"},
			{token.ValidationsQuery{Statuses: []token.TxStatus{token.Orphan}}, ""},
			{token.ValidationsQuery{Filter: func(r *token.ValidationRecord) bool { return string(r.Metadata["k"]) != "c" }}, "d a b"},
			{token.ValidationsQuery{Statuses: []token.TxStatus{token.Confirmed}, Filter: func(r *token.ValidationRecord) bool { return r.TxID == "b" }}, ""},
		} {
			require.Equal(t, c.want, s.list(t, c.q), "%+v", c.q)
		}
		all, err := storage.Collect(s.QueryValidations(ctx, token.ValidationsQuery{Statuses: []token.TxStatus{token.Confirmed}}))
		require.NoError(t, err)
		require.Equal(t, []token.ValidationRecord{{TxID: "a", Request: []byte("ra"), Metadata: map[string][]byte{"k": []byte("a")}, PPHash: []byte("ha"),
			Status: token.Confirmed, StatusMessage: "good", Timestamp: *at(2)}}, all)
		for range s.QueryValidations(ctx, token.ValidationsQuery{}) {
			break
		}
	})
}

func TestStatus(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		is, message, err := s.GetStatus(ctx, "none")
		require.NoError(t, err)
		require.Equal(t, token.Unknown, is)
		require.Empty(t, message)
		require.ErrorIs(t, s.SetStatus(ctx, "none", token.Confirmed, ""), token.ErrUnknownTransaction)
		require.NoError(t, s.add(t, "tx1", "r", "h", nil))
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *endorserdb.Tx) error {
			return tx.SetStatus(ctx, "tx1", token.Orphan, "lost")
		}))
		require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, ""))
		require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, "again"))
		require.ErrorIs(t, s.SetStatus(ctx, "tx1", token.Deleted, ""), token.ErrAlreadyFinal)
		all, err := s.GetStatuses(ctx, "tx1", "none")
		require.NoError(t, err)
		require.Equal(t, map[string]endorserdb.Status{"tx1": {Status: token.Confirmed, Message: "lost"}}, all)

		canceled, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = s.GetStatus(canceled, "tx1")
		require.ErrorIs(t, err, context.Canceled, "an error is never \"unknown\"")
		_, err = storage.Collect(s.QueryValidations(canceled, token.ValidationsQuery{}))
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		require.NoError(t, s.add(t, "tx1", "r", "h", nil))
		require.NoError(t, s.add(t, "tx1", "r", "h", map[string][]byte{"a": nil}))
		require.ErrorIs(t, s.add(t, "tx1", "other", "h", nil), token.ErrRequestMismatch)
		require.ErrorIs(t, s.add(t, "tx1", "r", "other", nil), token.ErrRequestMismatch)
		require.NoError(t, s.SetStatus(t.Context(), "tx1", token.Deleted, ""))
		require.NoError(t, s.add(t, "tx1", "r", "h", nil))
		require.NoError(t, s.add(t, "empty", "", "", nil))
		require.NoError(t, s.add(t, "empty", "", "", nil))
		require.Equal(t, "tx1", s.list(t, token.ValidationsQuery{Statuses: []token.TxStatus{token.Deleted}}))
		require.ErrorIs(t, s.add(t, "", "r", "h", nil), token.ErrEmptyArgument)
		require.ErrorIs(t, s.add(t, "big", strings.Repeat("r", storage.MaxPayload+1), "h", nil), storage.ErrPayloadSize)
		require.ErrorIs(t, s.add(t, "big", "", "h", map[string][]byte{"m": make([]byte, storage.MaxPayload)}), storage.ErrPayloadSize)
	})
}

func TestRollbackAndSharing(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.AddValidationRecord(ctx, "tx1", nil, nil, nil))
		tx.Rollback()
		require.Empty(t, s.list(t, token.ValidationsQuery{}))
		shared, err := token.Begin(ctx, s.db)
		require.NoError(t, err)
		tx, err = s.Continue(shared)
		require.NoError(t, err)
		require.NoError(t, tx.AddValidationRecord(ctx, "tx1", nil, nil, nil))
		require.Equal(t, shared, tx.Shared())
		require.NoError(t, tx.Commit())
		tx.Rollback()
		require.Equal(t, "tx1", s.list(t, token.ValidationsQuery{}))
		_, err = s.Continue(token.Tx{})
		require.ErrorIs(t, err, token.ErrOtherDatabase)
	})
}

// Of many who end a transaction in two ways, one way wins.
func TestStatusRace(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		require.NoError(t, s.add(t, "tx1", "r", "h", nil))
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = s.SetStatus(t.Context(), "tx1", []token.TxStatus{token.Confirmed, token.Deleted}[i%2], "")
			})
		}
		wg.Wait()
		is, _, err := s.GetStatus(t.Context(), "tx1")
		require.NoError(t, err)
		for i, err := range errs {
			if is == []token.TxStatus{token.Confirmed, token.Deleted}[i%2] {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, token.ErrAlreadyFinal)
			}
		}
	})
}

func TestStatusModel(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			ctx := t.Context()
			model := map[string]token.TxStatus{}
			rt.Repeat(map[string]func(*rapid.T){
				"add": func(rt *rapid.T) {
					id := fmt.Sprint(round, rapid.IntRange(0, 2).Draw(rt, "id"))
					require.NoError(rt, s.add(t, id, "r", "h", nil))
					if model[id] == token.Unknown {
						model[id] = token.Pending
					}
				},
				"set": func(rt *rapid.T) {
					id, to := fmt.Sprint(round, rapid.IntRange(0, 2).Draw(rt, "id")), token.TxStatus(rapid.IntRange(0, 5).Draw(rt, "to"))
					write, want := token.Change(model[id], to)
					err := s.SetStatus(ctx, id, to, "")
					for _, class := range []error{token.ErrStatus, token.ErrAlreadyFinal, token.ErrUnknownTransaction} {
						require.Equal(rt, errors.Is(want, class), errors.Is(err, class), "%v", err)
					}
					require.Equal(rt, want == nil, err == nil)
					if write {
						model[id] = to
					}
				},
				"": func(rt *rapid.T) {
					for id, want := range model {
						is, _, err := s.GetStatus(ctx, id)
						require.NoError(rt, err)
						require.Equal(rt, want, is)
					}
				},
			})
		})
	})
}

func TestDeleteFinished(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		for i, to := range []token.TxStatus{token.Pending, token.Confirmed, token.Deleted, token.Orphan} {
			require.NoError(t, s.add(t, fmt.Sprint("t", i), "r", "h", nil))
			require.NoError(t, s.SetStatus(ctx, fmt.Sprint("t", i), to, ""))
		}
		s.now = time.Now()
		require.NoError(t, s.add(t, "young", "r", "h", nil))
		require.NoError(t, s.SetStatus(ctx, "young", token.Confirmed, ""))
		for _, want := range []int{2, 1, 0} {
			n, err := s.DeleteFinished(ctx, time.Hour, 2)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		require.Equal(t, "t0 young", s.list(t, token.ValidationsQuery{}))
		_, err := s.DeleteFinished(ctx, time.Hour, 0)
		require.ErrorIs(t, err, storage.ErrPageSize)
	})
}

func anchor(request []byte) (string, error) {
	id, _, ok := bytes.Cut(request, []byte(":"))
	if !ok {
		return "", errors.New("not a request")
	}
	return string(id), nil
}

// Whoever waits learns of an end by the notice, and of requests only those that fit their key.
func TestService(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		ctx := t.Context()
		_, err := endorserdb.NewStoreService(s.Store, endorserdb.ServiceOptions{})
		require.ErrorIs(t, err, token.ErrEmptyArgument)
		service, err := endorserdb.NewStoreService(s.Store, endorserdb.ServiceOptions{Anchor: anchor, Poll: time.Hour})
		require.NoError(t, err)
		require.NoError(t, service.AppendValidationRecord(ctx, "tx1", []byte("tx1:r"), nil, nil))
		require.ErrorIs(t, service.AppendValidationRecord(ctx, "tx2", []byte("tx1:r"), nil, nil), token.ErrIntegrity)
		require.ErrorIs(t, service.AppendValidationRecord(ctx, "tx2", []byte("r"), nil, nil), token.ErrIntegrity)
		ended := make(chan endorserdb.Event, 1)
		service.AddStatusListener("tx1", ended)
		require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, "seen"))
		require.Equal(t, endorserdb.Event{TxID: "tx1", Status: token.Confirmed, Message: "seen"}, <-ended)
		require.NoError(t, service.SetStatus(ctx, "tx1", token.Confirmed, ""))
		require.ErrorIs(t, service.SetStatus(ctx, "tx1", token.Deleted, ""), token.ErrAlreadyFinal)

		all, err := storage.Collect(service.QueryValidations(ctx, token.ValidationsQuery{}))
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, s.add(t, "bad", "tx1:r", "", nil))
		_, err = storage.Collect(service.QueryValidations(ctx, token.ValidationsQuery{}))
		require.ErrorIs(t, err, token.ErrIntegrity)
		require.NoError(t, service.Close())
		require.NoError(t, service.Close())
	})
}
