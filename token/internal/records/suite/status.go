package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/internal/status"
)

// statusGuard: what has ended stays so (weakness 2).
func statusGuard(t *testing.T, s *Store) {
	ctx := t.Context()
	require.ErrorIs(t, s.SetStatus(ctx, "none", token.Confirmed, ""), token.ErrUnknownTransaction)
	require.ErrorIs(t, s.SetStatus(ctx, "none", token.Pending, ""), token.ErrUnknownTransaction)
	for from := token.Pending; from <= token.Orphan; from++ {
		for to := token.Unknown; to <= token.Orphan+1; to++ {
			id := from.String() + to.String()
			s.Add(t, id)
			require.NoError(t, s.SetStatus(ctx, id, from, "first"))
			write, want := token.Change(from, to)
			err := s.SetStatus(ctx, id, to, "second")
			inTx := s.In(t, func(tx *records.Tx) error { return tx.SetStatus(ctx, id, to, "second") })
			is, message, readErr := s.GetStatus(ctx, id)
			require.NoError(t, readErr)
			for _, class := range []error{token.ErrStatus, token.ErrAlreadyFinal} {
				require.Equal(t, errors.Is(want, class), errors.Is(err, class), "%s to %s: %v", from, to, err)
				require.Equal(t, errors.Is(want, class), errors.Is(inTx, class), "%s to %s: %v", from, to, inTx)
			}
			if want != nil {
				require.Equal(t, from, is)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, inTx)
			require.Equal(t, to, is)
			require.Equal(t, map[bool]string{true: "second", false: map[bool]string{true: "first", false: ""}[from != token.Pending]}[write], message, "%s to %s", from, to)
		}
	}
}

// statusRace: of many who end a transaction in two ways, one way wins, and all know which.
func statusRace(t *testing.T, s *Store) {
	s.Add(t, "tx1")
	var won [5]atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			to := []token.TxStatus{token.Confirmed, token.Deleted}[i%2]
			switch err := s.SetStatus(t.Context(), "tx1", to, fmt.Sprint(i)); {
			case err == nil:
				won[to].Add(1)
			case !errors.Is(err, token.ErrAlreadyFinal):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	is := s.status(t, "tx1")
	require.True(t, is.Final())
	require.EqualValues(t, 4, won[is].Load())
	require.EqualValues(t, 4, won[token.Confirmed].Load()+won[token.Deleted].Load())
}

func statuses(t *testing.T, s *Store) {
	ctx := t.Context()
	got, err := s.GetStatuses(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]status.Status{}, got)
	s.Add(t, "tx1", "tx2")
	require.NoError(t, s.SetStatus(ctx, "tx2", token.Deleted, "no"))
	ids := []string{"tx1", "tx2"}
	for i := range 1200 { // in several statements
		ids = append(ids, fmt.Sprint("none", i))
	}
	got, err = s.GetStatuses(ctx, ids...)
	require.NoError(t, err)
	require.Equal(t, map[string]status.Status{"tx1": {Status: token.Pending}, "tx2": {Status: token.Deleted, Message: "no"}}, got)
}

// statusModel compares random histories of transactions with a model of them.
func statusModel(t *testing.T, s *Store) {
	type tx struct {
		is    token.TxStatus
		bytes string
		claim string
		tries int
	}
	var run int
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		run++
		model := map[string]*tx{}
		name := rapid.Custom(func(rt *rapid.T) string {
			return fmt.Sprintf("r%d-%s", run, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "tx"))
		})
		claimed := func(owner string) {
			got, err := s.ClaimPendingTransactions(ctx, records.Claims{Owner: owner, Lease: time.Hour, Limit: storage.MaxPage})
			require.NoError(rt, err)
			want := map[string]int{}
			for id, m := range model {
				if m.is == token.Pending && (m.claim == "" || m.claim == owner) {
					m.claim, m.tries = owner, m.tries+1
					want[id] = m.tries
				}
			}
			have := map[string]int{}
			for _, p := range got {
				have[p.TxID] = p.Attempts
			}
			require.Equal(rt, want, have)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				id, bytes := name.Draw(rt, "id"), rapid.SampledFrom([]string{"r", "r", "other"}).Draw(rt, "bytes")
				err := s.InTx(ctx, func(ctx context.Context, tx *records.Tx) error {
					return tx.AddTokenRequest(ctx, id, []byte(bytes), nil, nil, nil)
				})
				switch m := model[id]; {
				case m == nil:
					require.NoError(rt, err)
					model[id] = &tx{is: token.Pending, bytes: bytes}
				case m.bytes == bytes:
					require.NoError(rt, err)
				default:
					require.ErrorIs(rt, err, token.ErrRequestMismatch)
				}
			},
			"set": func(rt *rapid.T) {
				id, to := name.Draw(rt, "id"), token.TxStatus(rapid.IntRange(0, 5).Draw(rt, "to"))
				m := model[id]
				from := token.Unknown
				if m != nil {
					from = m.is
				}
				write, want := token.Change(from, to)
				err := s.SetStatus(ctx, id, to, "")
				for _, class := range []error{token.ErrStatus, token.ErrAlreadyFinal, token.ErrUnknownTransaction} {
					require.Equal(rt, errors.Is(want, class), errors.Is(err, class), "%v", err)
				}
				if want == nil {
					require.NoError(rt, err)
				}
				if write {
					m.is, m.claim = to, ""
				}
			},
			"rolled back": func(rt *rapid.T) {
				id := name.Draw(rt, "id")
				failure := errors.New("no")
				require.ErrorIs(rt, s.InTx(ctx, func(ctx context.Context, tx *records.Tx) error {
					_ = tx.AddTokenRequest(ctx, id, []byte("r"), nil, nil, nil)
					_ = tx.SetStatus(ctx, id, token.Deleted, "")
					return failure
				}), failure)
			},
			"claim": func(rt *rapid.T) { claimed(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "owner")) },
			"release": func(rt *rapid.T) {
				id, owner := name.Draw(rt, "id"), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "owner")
				require.NoError(rt, s.ReleaseRecoveryClaim(ctx, id, owner, ""))
				if m := model[id]; m != nil && m.claim == owner {
					m.claim = ""
				}
			},
			"": func(rt *rapid.T) {
				for id, m := range model {
					is, _, err := s.GetStatus(ctx, id)
					require.NoError(rt, err)
					require.Equal(rt, m.is, is)
				}
			},
		})
		// The next history begins without pending ones.
		for id, m := range model {
			if m.is == token.Pending {
				require.NoError(rt, s.SetStatus(ctx, id, token.Deleted, ""))
			}
		}
	})
}
