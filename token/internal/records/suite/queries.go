package suite

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/records"
)

func transactionQueries(t *testing.T, s *Store) {
	ctx := t.Context()
	s.Add(t, "t1", "t2", "t3", "t4", "t5")
	at := func(seconds int) *time.Time {
		v := Begin.Add(time.Duration(seconds) * time.Second)
		return &v
	}
	for i, r := range []token.TransactionRecord{
		{TxID: "t1", ActionType: token.Issue, RecipientEID: "alice", TokenType: "USD", Amount: big.NewInt(10)},
		{TxID: "t2", ActionType: token.Transfer, SenderEID: "alice", RecipientEID: "bob", TokenType: "USD", Amount: big.NewInt(3)},
		{TxID: "t2", ActionType: token.Transfer, SenderEID: "alice", RecipientEID: "alice", TokenType: "USD", Amount: big.NewInt(7)},
		{TxID: "t3", ActionType: token.Transfer, SenderEID: "bob", RecipientEID: "carol", TokenType: "EUR", Amount: big.NewInt(1)},
		{TxID: "t4", ActionType: token.Redeem, SenderEID: "carol", TokenType: "EUR", Amount: big.NewInt(1)},
		{TxID: "t5", ActionType: token.Issue, RecipientEID: "dave", TokenType: "GBP", Amount: big.NewInt(1)},
	} {
		r.ID, r.Timestamp = fmt.Sprint(i), *at(i)
		require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(ctx, r) }))
	}
	for id, to := range map[string]token.TxStatus{"t1": token.Confirmed, "t3": token.Deleted, "t5": token.Orphan} {
		require.NoError(t, s.SetStatus(ctx, id, to, ""))
	}
	const up = token.FromBeginning
	for _, c := range []struct {
		q    token.TransactionsQuery
		want string
	}{
		{token.TransactionsQuery{}, "5 4 3 2 1 0"},
		{token.TransactionsQuery{SearchDirection: up}, "0 1 2 3 4 5"},
		{token.TransactionsQuery{SearchDirection: up, IDs: []string{"t2", "t4", "none"}}, "1 2 4"},
		{token.TransactionsQuery{SearchDirection: up, ExcludeToSelf: true}, "0 1 3 4 5"},
		{token.TransactionsQuery{SearchDirection: up, SenderWallet: "alice", RecipientWallet: "alice"}, "0 1 2"},
		{token.TransactionsQuery{SearchDirection: up, SenderWallet: "bob", RecipientWallet: "dave"}, "3 5"},
		{token.TransactionsQuery{SearchDirection: up, SenderWallet: "alice"}, "0 1 2 3 4 5"},
		{token.TransactionsQuery{SearchDirection: up, RecipientWallet: "alice"}, "0 1 2 3 4 5"},
		{token.TransactionsQuery{SearchDirection: up, From: at(2)}, "2 3 4 5"},
		{token.TransactionsQuery{SearchDirection: up, To: at(2)}, "0 1 2"},
		{token.TransactionsQuery{SearchDirection: up, From: at(2), To: at(3)}, "2 3"},
		{token.TransactionsQuery{SearchDirection: up, From: at(3), To: at(2)}, ""},
		{token.TransactionsQuery{SearchDirection: up, ActionTypes: []token.ActionType{token.Issue}}, "0 5"},
		{token.TransactionsQuery{SearchDirection: up, ActionTypes: []token.ActionType{token.Transfer, token.Redeem}}, "1 2 3 4"},
		{token.TransactionsQuery{SearchDirection: up, Statuses: []token.TxStatus{token.Pending}}, "1 2 4"},
		{token.TransactionsQuery{SearchDirection: up, Statuses: []token.TxStatus{token.Deleted, token.Orphan}}, "3 5"},
		{token.TransactionsQuery{SearchDirection: up, TokenTypes: []string{"EUR", "GBP"}}, "3 4 5"},
		{token.TransactionsQuery{ExcludeToSelf: true, SenderWallet: "alice", RecipientWallet: "alice", Statuses: []token.TxStatus{token.Pending}, ActionTypes: []token.ActionType{token.Transfer},
			TokenTypes: []string{"USD"}, From: at(0), To: at(5), IDs: []string{"t2"}}, "1"},
	} {
		var got []string
		for _, r := range s.list(t, c.q) {
			got = append(got, r.ID)
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%+v", c.q)
	}
}

func pages(t *testing.T, s *Store) {
	ctx := t.Context()
	var want []string
	require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *records.Tx) error {
		want = nil
		for i := range 23 {
			r := record(fmt.Sprintf("t%02d", i), int64(i))
			if i%2 == 0 {
				r.TxID = "t00"
			}
			r.ID = records.RecordID(r.TxID, i)
			r.Timestamp = Begin.Add(time.Duration(i/5) * time.Millisecond) // several of one moment
			if err := errors.Join(tx.AddTokenRequest(ctx, r.TxID, nil, nil, nil, nil), tx.AddTransaction(ctx, r)); err != nil {
				return err
			}
			want = append(want, fmt.Sprint(i/5, r.ID))
		}
		return nil
	}))
	slices.Sort(want) // by time, then by id
	for i, w := range want {
		want[i] = w[1:]
	}
	for _, direction := range []token.SearchDirection{token.FromLast, token.FromBeginning} {
		if direction == token.FromBeginning {
			slices.Reverse(want)
		}
		slices.Reverse(want)
		for name, first := range map[string]query.Pagination{"offset": query.OffsetPage(0, 4), "keyset": query.KeysetPage(0, 4)} {
			var got []string
			for p := first; p.Strategy() != query.Empty; {
				page, err := s.QueryTransactions(ctx, token.TransactionsQuery{SearchDirection: direction}, p)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Items), 4)
				for _, r := range page.Items {
					got = append(got, r.ID)
				}
				cursor, err := page.Next.MarshalJSON()
				require.NoError(t, err)
				p, err = query.ParsePagination(cursor)
				require.NoError(t, err)
			}
			require.Equal(t, want, got, name)
		}
		if direction == token.FromLast {
			slices.Reverse(want)
		}
	}
	// What is stored meanwhile, before the place where a page by keyset goes on, moves nothing.
	page, err := s.QueryTransactions(ctx, token.TransactionsQuery{}, query.KeysetPage(0, 4))
	require.NoError(t, err)
	later := record("t00", 1)
	later.Timestamp = Begin.Add(time.Hour)
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(ctx, later) }))
	next, err := s.QueryTransactions(ctx, token.TransactionsQuery{}, page.Next)
	require.NoError(t, err)
	require.Equal(t, want[len(want)-5], next.Items[0].ID)
}

func pagesAreBounded(t *testing.T, s *Store) {
	for _, p := range []query.Pagination{{}, query.OffsetPage(0, storage.MaxPage+1), query.KeysetPage(0, 0), query.OffsetPage(-1, 10)} {
		_, err := s.QueryTransactions(t.Context(), token.TransactionsQuery{}, p)
		require.ErrorIs(t, err, query.ErrPage)
	}
	many := make([]string, 3000) // in one list
	for i := range many {
		many[i] = fmt.Sprint("none", i)
	}
	page, err := s.QueryTransactions(t.Context(), token.TransactionsQuery{IDs: many}, query.OffsetPage(0, 10))
	require.NoError(t, err)
	require.Empty(t, page.Items)
	page, err = s.QueryTransactions(t.Context(), token.TransactionsQuery{}, query.EmptyPage())
	require.NoError(t, err)
	require.Empty(t, page.Items)
}

// replay: everything can be written again (contract 1).
func replay(t *testing.T, s *Store) {
	ctx := t.Context()
	r, m := record("tx1", 1), movement("tx1", "alice", "USD", -1)
	r.ID, m.ID = "r1", "m1"
	write := func(request, hash string) error {
		return s.In(t, func(tx *records.Tx) error {
			return errors.Join(tx.AddTokenRequest(ctx, "tx1", []byte(request), nil, nil, []byte(hash)), tx.AddTransaction(ctx, r), tx.AddMovement(ctx, m))
		})
	}
	require.NoError(t, write("r", "h"))
	s.Set(Begin.Add(time.Hour))
	require.NoError(t, write("r", "h"))
	require.ErrorIs(t, write("other", "h"), token.ErrRequestMismatch)
	require.ErrorIs(t, write("r", "other"), token.ErrRequestMismatch)
	require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, "done"))
	require.NoError(t, write("r", "h"), "after the end too")
	all := s.list(t, token.TransactionsQuery{})
	require.Len(t, all, 1)
	require.Equal(t, Begin, all[0].Timestamp)
	require.Equal(t, token.Confirmed, all[0].Status)
	moves, err := s.QueryMovements(ctx, token.MovementsQuery{})
	require.NoError(t, err)
	require.Len(t, moves, 1)

	for _, change := range []func(*token.TransactionRecord){
		func(r *token.TransactionRecord) { r.Amount = big.NewInt(2) }, func(r *token.TransactionRecord) { r.RecipientEID = "x" }, func(r *token.TransactionRecord) { r.SenderEID = "x" },
		func(r *token.TransactionRecord) { r.TokenType = "x" }, func(r *token.TransactionRecord) { r.ActionType = token.Redeem },
	} {
		other := r
		change(&other)
		require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(ctx, other) }), token.ErrRequestMismatch)
	}
	other := m
	other.Amount = big.NewInt(-2)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddMovement(ctx, other) }), token.ErrRequestMismatch)
}

func appendCase(t *testing.T, s *Store) {
	ctx := t.Context()
	r := records.Request{TxID: "tx1", Raw: []byte("raw"), PPHash: []byte("h"), ApplicationMetadata: map[string][]byte{"a": []byte("b")}, Timestamp: Begin, Actions: []records.Action{
		{Outputs: []records.Output{{EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(10)}, {EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(5)}}},
		{Inputs: []records.Input{{EnrollmentID: "bob", TokenType: "USD", Amount: big.NewInt(7)}}, Outputs: []records.Output{
			{EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(4)}, {EnrollmentID: "bob", TokenType: "USD", Amount: big.NewInt(1)}, {TokenType: "USD", Amount: big.NewInt(2)}}},
		{Inputs: []records.Input{{EnrollmentID: "carol", TokenType: "EUR", Amount: big.NewInt(3)}}, Outputs: []records.Output{{EnrollmentID: "carol", TokenType: "EUR", Amount: big.NewInt(3)}}},
	}}
	for range 2 {
		require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.Append(ctx, r) }))
	}
	var got []string
	for _, v := range s.list(t, token.TransactionsQuery{SearchDirection: token.FromBeginning}) {
		got = append(got, fmt.Sprintf("%s %s>%s %s %s", v.ActionType, v.SenderEID, v.RecipientEID, v.Amount, v.TokenType))
	}
	require.Equal(t, []string{"Issue >alice 15 USD", "Transfer bob>alice 4 USD", "Transfer bob>bob 1 USD", "Redeem bob> 2 USD", "Transfer carol>carol 3 EUR"}, got)
	moves, err := s.QueryMovements(ctx, token.MovementsQuery{MovementDirection: token.AllMovements, SearchDirection: token.FromBeginning})
	require.NoError(t, err)
	got = nil
	for _, v := range moves {
		got = append(got, fmt.Sprint(v.EnrollmentID, " ", v.Amount, " ", v.TokenType))
	}
	require.Equal(t, []string{"alice 19 USD", "bob -6 USD"}, got, "zero is left out")
	require.Equal(t, []string{"alice", "bob", "carol"}, r.EnrollmentIDs())

	two := r
	two.TxID, two.Actions = "tx2", []records.Action{{Inputs: []records.Input{{EnrollmentID: "a", Amount: big.NewInt(1)}, {EnrollmentID: "b", Amount: big.NewInt(1)}}}}
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.Append(ctx, two) }), records.ErrTwoSenders)
	two.Actions = []records.Action{{Outputs: []records.Output{{EnrollmentID: "a"}}}}
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.Append(ctx, two) }), token.ErrAmountMissing)
	require.Equal(t, token.Unknown, s.status(t, "tx2"))
}
