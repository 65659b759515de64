// Package suite is the behaviour that stores of transactions share, as tests.
package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/internal/records"
)

// Prefix is that of the tables in tests: a forgotten one fails.
const Prefix = "n__c__s__"

// New makes the store under test.
type New func(db *storage.DB, prefix string, o records.Options) *records.Store

// FewerChecks makes property tests short, unless the command line says otherwise: each step is a transaction. For TestMain.
func FewerChecks() {
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set("8")
	}
}

// Store is a store with its database and a clock that a test sets.
type Store struct {
	*records.Store
	DB    *storage.DB
	Table string // what the names of its tables begin with

	mu  sync.Mutex
	now time.Time
}

// Begin is when the clock of a Store starts.
var Begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Set sets the clock.
func (s *Store) Set(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

func (s *Store) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Open returns a store on a migrated database.
func Open(t testing.TB, db *storage.DB, side string, create New) *Store {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(Prefix)))
	s := &Store{DB: db, Table: Prefix + side, now: Begin}
	s.Store = create(db, Prefix, records.Options{Now: s.clock})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Run runs all cases on every backend.
func Run(t *testing.T, side string, create New) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *Store){
		"FailsIfRequestDoesNotExist": failsIfRequestDoesNotExist, "Status": statusCase, "StoresTimestamp": storesTimestamp, "Movements": movements,
		"Transaction": transaction, "TokenRequest": tokenRequest, "AllowsSameTxID": allowsSameTxID, "Rollback": rollback,
		"TransactionQueries": transactionQueries, "EndorserAcks": endorserAcks,
		"Pages": pages, "PagesAreBounded": pagesAreBounded, "Replay": replay, "Amounts": amounts, "Payloads": payloads, "Metadata": metadata,
		"Sharing": sharing, "StatusGuard": statusGuard, "StatusRace": statusRace, "StatusModel": statusModel, "Statuses": statuses,
		"Claims": claims, "ClaimsExpire": claimsExpire, "ClaimsGoOn": claimsGoOn, "ClaimRaces": claimRaces, "ClaimEndsWithStatus": claimEndsWithStatus, "ClaimArguments": claimArguments,
		"Leadership": leadership, "DeleteFinished": deleteFinished, "NotifierTellsOfStatus": notifier, "ReadErrors": readErrors, "Append": appendCase,
		"CloseTwice": closeTwice, "RestartWithStalePending": restart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) { test(t, Open(t, open(t), side, create)) })
		})
	}
}

// Add stores requests.
func (s *Store) Add(t testing.TB, ids ...string) {
	t.Helper()
	require.NoError(t, s.InTx(t.Context(), func(ctx context.Context, tx *records.Tx) error {
		for _, id := range ids {
			if err := tx.AddTokenRequest(ctx, id, []byte("request of "+id), nil, nil, []byte("hash")); err != nil {
				return err
			}
		}
		return nil
	}))
}

// In runs fn in a transaction and returns its error.
func (s *Store) In(t testing.TB, fn func(tx *records.Tx) error) error {
	return s.InTx(t.Context(), func(_ context.Context, tx *records.Tx) error { return fn(tx) })
}

func record(txID string, amount int64) token.TransactionRecord {
	return token.TransactionRecord{TxID: txID, ActionType: token.Transfer, SenderEID: "alice", RecipientEID: "bob", TokenType: "USD", Amount: big.NewInt(amount)}
}

func movement(txID, eid, tokenType string, amount int64) token.MovementRecord {
	return token.MovementRecord{TxID: txID, EnrollmentID: eid, TokenType: tokenType, Amount: big.NewInt(amount)}
}

func (s *Store) list(t testing.TB, q token.TransactionsQuery) []token.TransactionRecord {
	t.Helper()
	page, err := s.QueryTransactions(t.Context(), q, query.OffsetPage(0, storage.MaxPage))
	require.NoError(t, err)
	return page.Items
}

func (s *Store) status(t testing.TB, id string) token.TxStatus {
	t.Helper()
	is, _, err := s.GetStatus(t.Context(), id)
	require.NoError(t, err)
	return is
}

func (s *Store) exec(t testing.TB, text string, args ...any) {
	t.Helper()
	_, err := s.DB.Write().ExecContext(t.Context(), text, args...)
	require.NoError(t, err)
}

func failsIfRequestDoesNotExist(t *testing.T, s *Store) {
	ctx := t.Context()
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(ctx, record("none", 1)) }), token.ErrTokenRequestDoesNotExist)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddMovement(ctx, movement("none", "alice", "USD", 1)) }), token.ErrTokenRequestDoesNotExist)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(ctx, record("", 1)) }), token.ErrEmptyArgument)
	require.Empty(t, s.list(t, token.TransactionsQuery{}))
}

func statusCase(t *testing.T, s *Store) {
	ctx := t.Context()
	is, message, err := s.GetStatus(ctx, "tx1")
	require.NoError(t, err, "a transaction that is not stored is no error")
	require.Equal(t, token.Unknown, is)
	require.Empty(t, message)

	s.Add(t, "tx1")
	require.NoError(t, s.In(t, func(tx *records.Tx) error {
		return errors.Join(tx.AddTransaction(ctx, record("tx1", 1)), tx.AddMovement(ctx, movement("tx1", "alice", "USD", 1)))
	}))
	require.Equal(t, token.Pending, s.status(t, "tx1"))
	require.NoError(t, s.SetStatus(ctx, "tx1", token.Orphan, "never seen"))
	require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, ""))
	is, message, err = s.GetStatus(ctx, "tx1")
	require.NoError(t, err)
	require.Equal(t, token.Confirmed, is)
	require.Equal(t, "never seen", message, "an empty message leaves the old one")
	r := s.list(t, token.TransactionsQuery{})[0]
	require.Equal(t, token.Confirmed, r.Status)
	require.Equal(t, "never seen", r.StatusMessage)
	m, err := s.QueryMovements(ctx, token.MovementsQuery{MovementDirection: token.AllMovements})
	require.NoError(t, err)
	require.Equal(t, token.Confirmed, m[0].Status)
}

func storesTimestamp(t *testing.T, s *Store) {
	at := time.Date(2020, 5, 6, 7, 8, 9, 123456789, time.FixedZone("x", 3600))
	s.Add(t, "tx1")
	with, without := record("tx1", 1), record("tx1", 2)
	with.Timestamp = at
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(t.Context(), with, without) }))
	got := s.list(t, token.TransactionsQuery{SearchDirection: token.FromBeginning})
	require.Equal(t, at.UTC().Truncate(time.Millisecond), got[0].Timestamp)
	require.Equal(t, Begin, got[1].Timestamp, "without a time it is of now")
	all, err := storage.Collect(s.QueryTokenRequests(t.Context()))
	require.NoError(t, err)
	require.Equal(t, []token.TokenRequestRecord{{TxID: "tx1", Request: []byte("request of tx1"), Status: token.Pending, StoredAt: Begin}}, all)
}

func movements(t *testing.T, s *Store) {
	ctx := t.Context()
	s.Add(t, "tx0", "tx1", "tx2", "tx3")
	for i, m := range []token.MovementRecord{
		movement("tx0", "alice", "USD", 10), movement("tx1", "alice", "USD", -3), movement("tx1", "bob", "USD", 3), movement("tx2", "alice", "EUR", 7), movement("tx3", "alice", "USD", -1),
	} {
		m.ID, m.Timestamp = fmt.Sprint("m", i), Begin.Add(time.Duration(i)*time.Second)
		require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddMovement(ctx, m) }))
	}
	require.NoError(t, s.SetStatus(ctx, "tx3", token.Deleted, ""))
	require.NoError(t, s.SetStatus(ctx, "tx2", token.Confirmed, ""))
	for _, c := range []struct {
		q    token.MovementsQuery
		want string
	}{
		{token.MovementsQuery{MovementDirection: token.AllMovements}, "7 3 -3 10"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, SearchDirection: token.FromBeginning}, "10 -3 3 7"},
		{token.MovementsQuery{}, "-3"},
		{token.MovementsQuery{MovementDirection: token.Received}, "7 3 10"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, NumRecords: 2}, "7 3"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, NumRecords: -1}, "7 3 -3 10"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, EnrollmentIDs: []string{"alice"}, TokenTypes: []string{"USD"}}, "-3 10"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, EnrollmentIDs: []string{"bob", "carol"}}, "3"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, TokenTypes: []string{"EUR", "GBP"}}, "7"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, Statuses: []token.TxStatus{token.Deleted}}, "-1"},
		{token.MovementsQuery{MovementDirection: token.AllMovements, Statuses: []token.TxStatus{token.Confirmed, token.Deleted}}, "-1 7"},
		{token.MovementsQuery{EnrollmentIDs: []string{"nobody"}}, ""},
	} {
		all, err := s.QueryMovements(ctx, c.q)
		require.NoError(t, err)
		got, sum := []string{}, new(big.Int)
		for _, m := range all {
			got = append(got, m.Amount.String())
			sum.Add(sum, m.Amount)
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%+v", c.q)
		added, err := s.SumMovements(ctx, c.q)
		require.NoError(t, err)
		require.Equal(t, sum.String(), added.String(), "%+v", c.q)
	}
}

func transaction(t *testing.T, s *Store) {
	ctx := t.Context()
	meta := map[string][]byte{"k": {0, 1}, "": nil}
	require.NoError(t, s.In(t, func(tx *records.Tx) error {
		return errors.Join(tx.AddTokenRequest(ctx, "tx1", []byte("r"), meta, map[string][]byte{"p": []byte("v")}, nil),
			tx.AddTransaction(ctx, token.TransactionRecord{ID: "id", TxID: "tx1", ActionType: token.Redeem, SenderEID: "alice", TokenType: "USD", Amount: big.NewInt(5)}))
	}))
	require.Equal(t, []token.TransactionRecord{{ID: "id", TxID: "tx1", ActionType: token.Redeem, SenderEID: "alice", TokenType: "USD", Amount: big.NewInt(5), Timestamp: Begin,
		Status: token.Pending, ApplicationMetadata: meta, PublicMetadata: map[string][]byte{"p": []byte("v")}}}, s.list(t, token.TransactionsQuery{}))
	require.Error(t, s.In(t, func(tx *records.Tx) error {
		r := record("tx1", 1)
		r.ActionType = 3
		return tx.AddTransaction(ctx, r)
	}))
}

func tokenRequest(t *testing.T, s *Store) {
	ctx := t.Context()
	raw, err := s.GetTokenRequest(ctx, "tx1")
	require.NoError(t, err)
	require.Nil(t, raw, "a request that is not stored is no error")
	s.Add(t, "tx1", "tx2", "tx3")
	require.NoError(t, s.SetStatus(ctx, "tx2", token.Confirmed, ""))
	require.NoError(t, s.SetStatus(ctx, "tx3", token.Deleted, ""))
	raw, err = s.GetTokenRequest(ctx, "tx2")
	require.NoError(t, err)
	require.Equal(t, "request of tx2", string(raw))
	for _, c := range []struct {
		statuses []token.TxStatus
		want     string
	}{
		{nil, "tx1 tx2 tx3"}, {[]token.TxStatus{token.Pending}, "tx1"}, {[]token.TxStatus{token.Confirmed, token.Deleted}, "tx2 tx3"}, {[]token.TxStatus{token.Orphan}, ""},
	} {
		var got []string
		for r, err := range s.QueryTokenRequests(ctx, c.statuses...) {
			require.NoError(t, err)
			got = append(got, r.TxID)
		}
		require.Equal(t, c.want, strings.Join(got, " "))
	}
	many, err := s.GetTokenRequests(ctx, "tx1", "none", "tx1")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"tx1": []byte("request of tx1")}, many)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTokenRequest(ctx, "", nil, nil, nil, nil) }), token.ErrEmptyArgument)
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTokenRequest(ctx, "empty", nil, nil, nil, nil) }))
	raw, err = s.GetTokenRequest(ctx, "empty")
	require.NoError(t, err)
	require.NotNil(t, raw, "an empty request is stored")
}

func allowsSameTxID(t *testing.T, s *Store) {
	s.Add(t, "tx1")
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(t.Context(), record("tx1", 1)) }))
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(t.Context(), record("tx1", 2), record("tx1", 3)) }))
	all := s.list(t, token.TransactionsQuery{SearchDirection: token.FromBeginning})
	require.Len(t, all, 3)
	for i, r := range all {
		require.EqualValues(t, i+1, r.Amount.Int64(), "records of one moment are in the order in which they came")
	}
}

func rollback(t *testing.T, s *Store) {
	ctx := t.Context()
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.AddTokenRequest(ctx, "tx1", []byte("r"), nil, nil, nil))
	require.NoError(t, tx.AddTransaction(ctx, record("tx1", 1)))
	require.NoError(t, tx.AddMovement(ctx, movement("tx1", "alice", "USD", 1)))
	require.NoError(t, tx.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e"), []byte("s")))
	require.Error(t, tx.AddTransaction(ctx, record("none", 1)))
	tx.Rollback()
	tx.Rollback()
	require.Equal(t, token.Unknown, s.status(t, "tx1"))
	require.Empty(t, s.list(t, token.TransactionsQuery{}))
	acks, err := s.GetTransactionEndorsementAcks(ctx, "tx1")
	require.NoError(t, err)
	require.Empty(t, acks)

	tx, err = s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.AddTokenRequest(ctx, "tx1", []byte("r"), nil, nil, nil))
	require.NoError(t, tx.SetStatus(ctx, "tx1", token.Confirmed, ""))
	require.NoError(t, tx.Commit())
	tx.Rollback()
	require.Equal(t, token.Confirmed, s.status(t, "tx1"))
}

func endorserAcks(t *testing.T, s *Store) {
	ctx := t.Context()
	require.ErrorIs(t, s.AddTransactionEndorsementAck(ctx, "", token.Identity("e"), []byte("s")), token.ErrEmptyArgument)
	require.ErrorIs(t, s.AddTransactionEndorsementAck(ctx, "tx1", nil, []byte("s")), token.ErrEmptyArgument)
	require.ErrorIs(t, s.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e"), nil), token.ErrEmptyArgument)
	for range 2 { // again
		require.NoError(t, s.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e1"), []byte("s1")))
	}
	require.NoError(t, s.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e2"), []byte("s2")))
	require.NoError(t, s.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e2"), []byte("another")))
	require.NoError(t, s.AddTransactionEndorsementAck(ctx, "tx1e", token.Identity("1"), []byte("s3")))
	acks, err := s.GetTransactionEndorsementAcks(ctx, "tx1")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"e1": []byte("s1"), "e2": []byte("s2")}, acks)
	acks, err = s.GetTransactionEndorsementAcks(ctx, "none")
	require.NoError(t, err)
	require.Empty(t, acks)
}

func amounts(t *testing.T, s *Store) {
	ctx := t.Context()
	s.Add(t, "tx1")
	add := func(v *big.Int) error {
		return s.In(t, func(tx *records.Tx) error {
			r := record("tx1", 0)
			r.Amount = v
			return tx.AddTransaction(ctx, r)
		})
	}
	move := func(v *big.Int) error {
		return s.In(t, func(tx *records.Tx) error {
			return tx.AddMovement(ctx, token.MovementRecord{TxID: "tx1", EnrollmentID: "alice", TokenType: "USD", Amount: v})
		})
	}
	max := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))
	over := new(big.Int).Lsh(big.NewInt(1), 256)
	require.ErrorIs(t, add(nil), token.ErrAmountMissing)
	require.ErrorIs(t, add(big.NewInt(-1)), token.ErrAmountNegative)
	require.ErrorIs(t, add(over), token.ErrAmountOutOfRange)
	require.ErrorIs(t, move(nil), token.ErrAmountMissing)
	require.ErrorIs(t, move(over), token.ErrAmountOutOfRange)
	require.ErrorIs(t, move(new(big.Int).Neg(over)), token.ErrAmountOutOfRange)
	require.NoError(t, add(max))
	require.Equal(t, max.String(), s.list(t, token.TransactionsQuery{})[0].Amount.String())
	for range 3 {
		require.NoError(t, move(max))
	}
	require.NoError(t, move(new(big.Int).Neg(max)))
	sum, err := s.SumMovements(ctx, token.MovementsQuery{MovementDirection: token.AllMovements})
	require.NoError(t, err)
	require.Equal(t, new(big.Int).Mul(max, big.NewInt(2)).String(), sum.String(), "sums are exact beyond 256 bits")
	sum, err = s.SumMovements(ctx, token.MovementsQuery{EnrollmentIDs: []string{"nobody"}})
	require.NoError(t, err)
	require.Zero(t, sum.Sign())
}

func payloads(t *testing.T, s *Store) {
	ctx := t.Context()
	large := make([]byte, storage.MaxPayload+1)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTokenRequest(ctx, "tx1", large, nil, nil, nil) }), storage.ErrPayloadSize)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error { return tx.AddTokenRequest(ctx, "tx1", nil, nil, nil, large) }), storage.ErrPayloadSize)
	require.ErrorIs(t, s.In(t, func(tx *records.Tx) error {
		return tx.AddTokenRequest(ctx, "tx1", nil, map[string][]byte{"a": large}, nil, nil)
	}), storage.ErrPayloadSize)
	require.ErrorIs(t, s.AddTransactionEndorsementAck(ctx, "tx1", token.Identity("e"), large), storage.ErrPayloadSize)
	require.Equal(t, token.Unknown, s.status(t, "tx1"))
}

func metadata(t *testing.T, s *Store) {
	ctx := t.Context()
	for _, name := range []string{"\xff", "a\x00b"} {
		require.Error(t, s.In(t, func(tx *records.Tx) error {
			return tx.AddTokenRequest(ctx, "tx1", nil, nil, map[string][]byte{name: nil}, nil)
		}))
	}
	names := map[string][]byte{"<&\"\u2028>": []byte("x"), "日本": {0xff}}
	require.NoError(t, s.In(t, func(tx *records.Tx) error {
		return errors.Join(tx.AddTokenRequest(ctx, "tx1", nil, names, nil, nil), tx.AddTransaction(ctx, record("tx1", 1)))
	}))
	require.Equal(t, names, s.list(t, token.TransactionsQuery{})[0].ApplicationMetadata)
	require.Nil(t, s.list(t, token.TransactionsQuery{})[0].PublicMetadata)
}

func sharing(t *testing.T, s *Store) {
	other := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	tx, err := token.Begin(t.Context(), other)
	require.NoError(t, err)
	_, err = s.Continue(tx)
	require.ErrorIs(t, err, token.ErrOtherDatabase)
	require.NoError(t, tx.Rollback())

	tx, err = token.Begin(t.Context(), s.DB)
	require.NoError(t, err)
	joined, err := s.Continue(tx)
	require.NoError(t, err)
	require.NoError(t, joined.AddTokenRequest(t.Context(), "tx1", nil, nil, nil, nil))
	require.NoError(t, joined.Shared().Commit())
	require.Equal(t, token.Pending, s.status(t, "tx1"))
}

func notifier(t *testing.T, s *Store) {
	told := make(chan string, 16)
	stop, err := s.Subscribe(t.Context(), func(id string) { told <- id })
	require.NoError(t, err)
	defer stop()
	s.Add(t, "tx1")
	require.NoError(t, s.SetStatus(t.Context(), "tx1", token.Confirmed, ""))
	select {
	case id := <-told:
		require.Equal(t, "tx1", id)
	case <-t.Context().Done():
	}
}

// readErrors: errors between rows are errors (weakness 4), and what is stored wrongly is no panic.
func readErrors(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	s.Add(t, "tx1", "tx2")
	cancel()
	_, err := storage.Collect(s.QueryTokenRequests(ctx))
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = s.GetStatus(ctx, "tx1")
	require.ErrorIs(t, err, context.Canceled, "an error is never \"unknown\"")
	_, err = s.GetStatuses(ctx, "tx1")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.SetStatus(ctx, "tx1", token.Confirmed, ""), context.Canceled)
	require.NoError(t, s.In(t, func(tx *records.Tx) error { return tx.AddTransaction(t.Context(), record("tx2", 1)) }))
	s.exec(t, "UPDATE "+s.Table+"requests SET public_metadata = $1", `["x"]`)
	_, err = s.QueryTransactions(t.Context(), token.TransactionsQuery{}, query.OffsetPage(0, 10))
	require.ErrorIs(t, err, token.ErrIntegrity)
}

func closeTwice(t *testing.T, s *Store) {
	s.status(t, "tx1")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

// restart: what a process left pending is there for the next one.
func restart(t *testing.T, s *Store) {
	s.Add(t, "tx1")
	again := records.New(s.DB, Prefix, strings.TrimPrefix(s.Table, Prefix), records.Options{})
	got, err := again.ClaimPendingTransactions(t.Context(), records.Claims{Owner: "next", OlderThan: time.Minute, Lease: time.Minute, Limit: 10})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "tx1", got[0].TxID)
	require.Equal(t, Begin, got[0].StoredAt)
	require.Greater(t, got[0].Age, time.Minute)
	require.NoError(t, again.Close())
}
