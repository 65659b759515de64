package ttxdb_test

import (
	"bytes"
	"context"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/internal/records/suite"
	"dongate/token/ttxdb"
)

// anchor reads requests like "tx1:anything".
func anchor(request []byte) (string, error) {
	id, _, ok := bytes.Cut(request, []byte(":"))
	if !ok {
		return "", errors.New("not a request")
	}
	return string(id), nil
}

// service opens a service of its own on the database, which only learns by notices.
func service(t testing.TB, db *storage.DB, o ttxdb.ServiceOptions) *ttxdb.StoreService {
	t.Helper()
	require.NoError(t, db.Migrate(t.Context(), token.Tables(suite.Prefix)))
	o.Anchor = anchor
	if o.Poll == 0 {
		o.Poll = time.Hour
	}
	s, err := ttxdb.NewStoreService(ttxdb.New(db, suite.Prefix, ttxdb.Options{}), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func each(t *testing.T, test func(t *testing.T, open func(t *testing.T) *storage.DB)) {
	t.Helper()
	t.Parallel()
	storagetest.Each(t, test)
}

func payment(txID string) ttxdb.Request {
	return ttxdb.Request{TxID: txID, Raw: []byte(txID + ":raw"), Actions: []ttxdb.Action{{
		Inputs:  []ttxdb.Input{{EnrollmentID: "alice", TokenType: "USD", Amount: big.NewInt(5)}},
		Outputs: []ttxdb.Output{{EnrollmentID: "bob", TokenType: "USD", Amount: big.NewInt(5)}}}}}
}

// A waiter on another replica learns of an end without polling (weakness 13), whoever wrote the status and however.
func TestWaiterLearnsByNotice(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		waits := service(t, db, ttxdb.ServiceOptions{})
		writes := waits
		if db.Backend() == storage.Postgres {
			writes = service(t, open(t), ttxdb.ServiceOptions{})
		}
		require.NoError(t, writes.AppendTransactionRecord(t.Context(), payment("tx1")))
		require.NoError(t, writes.AppendTransactionRecord(t.Context(), payment("tx2")))
		ended := make(chan ttxdb.Event, 1)
		waits.AddStatusListener("tx1", ended)
		require.NoError(t, writes.Store.SetStatus(t.Context(), "tx1", token.Confirmed, "by the store alone"))
		require.Equal(t, ttxdb.Event{TxID: "tx1", Status: token.Confirmed, Message: "by the store alone"}, <-ended)
		waits.DeleteStatusListener("tx1", ended)

		waits.AddStatusListener("tx2", ended)
		require.NoError(t, writes.InTx(t.Context(), func(ctx context.Context, tx *ttxdb.Tx) error {
			return tx.SetStatus(ctx, "tx2", token.Deleted, "in a transaction")
		}))
		require.Equal(t, token.Deleted, (<-ended).Status)

		e, err := waits.Wait(t.Context(), "tx1")
		require.NoError(t, err)
		require.Equal(t, token.Confirmed, e.Status, "what ended before is told too")
	})
}

// Another process on the same SQLite file is found by polling.
func TestWaiterLearnsByPolling(t *testing.T) {
	t.Parallel()
	c := storagetest.Config(t, storage.DriverSQLite)
	waits := service(t, storagetest.Open(t, c), ttxdb.ServiceOptions{Poll: time.Millisecond})
	writes := service(t, storagetest.Open(t, c), ttxdb.ServiceOptions{})
	require.NoError(t, writes.AppendTransactionRecord(t.Context(), payment("tx1")))
	ended := make(chan ttxdb.Event, 1)
	waits.AddStatusListener("tx1", ended)
	require.NoError(t, writes.SetStatus(t.Context(), "tx1", token.Confirmed, ""))
	require.Equal(t, token.Confirmed, (<-ended).Status)
}

func TestAppendTransactionRecord(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx := t.Context()
		s := service(t, open(t), ttxdb.ServiceOptions{})
		for range 2 { // the time of the second differs
			require.NoError(t, s.AppendTransactionRecord(ctx, payment("tx1")))
		}
		page, err := s.QueryTransactions(ctx, token.TransactionsQuery{}, query.KeysetPage(0, 10))
		require.NoError(t, err)
		require.Len(t, page.Items, 1)
		moves, err := s.QueryMovements(ctx, token.MovementsQuery{MovementDirection: token.AllMovements})
		require.NoError(t, err)
		require.Len(t, moves, 2)
		require.Equal(t, page.Items[0].Timestamp, moves[0].Timestamp)

		wrong := payment("tx2")
		wrong.Raw = []byte("tx3:raw")
		require.ErrorIs(t, s.AppendTransactionRecord(ctx, wrong), token.ErrIntegrity)
		wrong.Raw = []byte("x")
		require.ErrorIs(t, s.AppendTransactionRecord(ctx, wrong), token.ErrIntegrity)
		wrong.Raw, wrong.Actions[0].Outputs[0].Amount = []byte("tx2:raw"), new(big.Int).Lsh(big.NewInt(1), 256)
		require.ErrorIs(t, s.AppendTransactionRecord(ctx, wrong), token.ErrAmountOutOfRange)
		is, _, err := s.GetStatus(ctx, "tx2")
		require.NoError(t, err)
		require.Equal(t, token.Unknown, is, "nothing of it is stored")
	})
}

// Requests are checked on the way out, by whatever operation (contract 6).
func TestNoReadBypassesTheCheck(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx := t.Context()
		s := service(t, open(t), ttxdb.ServiceOptions{})
		require.NoError(t, s.AppendTransactionRecord(ctx, payment("good")))
		require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx *ttxdb.Tx) error {
			return tx.AddTokenRequest(ctx, "bad", []byte("good:raw"), nil, nil, nil)
		}))
		raw, err := s.GetTokenRequest(ctx, "good")
		require.NoError(t, err)
		require.Equal(t, "good:raw", string(raw))
		raw, err = s.GetTokenRequest(ctx, "none")
		require.NoError(t, err)
		require.Nil(t, raw)
		_, err = s.GetTokenRequest(ctx, "bad")
		require.ErrorIs(t, err, token.ErrIntegrity)
		all, err := s.GetTokenRequests(ctx, "good", "none")
		require.NoError(t, err)
		require.Len(t, all, 1)
		_, err = s.GetTokenRequests(ctx, "good", "bad")
		require.ErrorIs(t, err, token.ErrIntegrity, "one fails them all")
		_, err = storage.Collect(s.QueryTokenRequests(ctx))
		require.ErrorIs(t, err, token.ErrIntegrity)
	})
	// Whatever of the Store returns a request is replaced.
	service := reflect.TypeFor[*records.Service]()
	for i := range reflect.TypeFor[*records.Store]().NumMethod() {
		m := reflect.TypeFor[*records.Store]().Method(i)
		if !strings.Contains(m.Name, "TokenRequest") {
			continue
		}
		mine, ok := service.MethodByName(m.Name)
		require.True(t, ok)
		require.Contains(t, []string{"GetTokenRequest", "GetTokenRequests", "QueryTokenRequests"}, mine.Name, "a new operation: does it check?")
	}
}

func TestAnchorIsRequired(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	_, err := ttxdb.NewStoreService(ttxdb.New(db, suite.Prefix, ttxdb.Options{}), ttxdb.ServiceOptions{})
	require.ErrorIs(t, err, token.ErrEmptyArgument)
}

func TestEmptyEndorsementsAreDroppedAndLogged(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		core, logs := observer.New(zap.ErrorLevel)
		db := open(t)
		s := service(t, db, ttxdb.ServiceOptions{Log: zap.New(core)})
		require.NoError(t, s.AddTransactionEndorsementAck(t.Context(), "tx1", token.Identity("e"), []byte("s")))
		_, err := db.Write().ExecContext(t.Context(), "INSERT INTO "+suite.Prefix+"tx_ends (id, tx_id, endorser, sigma, stored_at) VALUES ('x', 'tx1', $1, $2, '2026-01-01 00:00:00.000')", []byte("f"), []byte{})
		require.NoError(t, err)
		acks, err := s.GetTransactionEndorsementAcks(t.Context(), "tx1")
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"e": []byte("s")}, acks)
		require.Equal(t, 1, logs.Len())
	})
}

// consumers is where locks are in another database.
type consumers struct {
	rows map[string]token.TxStatus
	fail error
}

func (c *consumers) SetConsumerStatus(_ context.Context, txID string, to token.TxStatus) error {
	if c.fail != nil {
		return c.fail
	}
	if _, err := token.Change(c.rows[txID], to); err != nil && !errors.Is(err, token.ErrUnknownTransaction) {
		return err
	}
	c.rows[txID] = to
	return nil
}

func TestStatusIsCopiedToWhereTheLocksAre(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx := t.Context()
		c := &consumers{rows: map[string]token.TxStatus{}, fail: errors.New("down")}
		s := service(t, open(t), ttxdb.ServiceOptions{Consumers: c})
		require.ErrorIs(t, s.AppendTransactionRecord(ctx, payment("tx1")), c.fail)
		is, _, err := s.GetStatus(ctx, "tx1")
		require.NoError(t, err)
		require.Equal(t, token.Unknown, is, "the copy comes first: no lock is taken for old")
		c.fail = nil
		require.NoError(t, s.AppendTransactionRecord(ctx, payment("tx1")))
		require.Equal(t, token.Pending, c.rows["tx1"])

		c.fail = errors.New("down")
		require.ErrorIs(t, s.SetStatus(ctx, "tx1", token.Confirmed, ""), c.fail)
		require.Equal(t, token.Pending, c.rows["tx1"])
		c.fail = nil
		require.NoError(t, s.SetStatus(ctx, "tx1", token.Confirmed, ""), "again")
		require.Equal(t, token.Confirmed, c.rows["tx1"])
		require.NoError(t, s.AppendTransactionRecord(ctx, payment("tx1")), "a replay after the end")
		require.ErrorIs(t, s.SetStatus(ctx, "tx1", token.Deleted, ""), token.ErrAlreadyFinal)
		require.Equal(t, token.Confirmed, c.rows["tx1"])

		c.rows["tx1"], c.rows["never"] = token.Pending, token.Pending // who would have copied died
		require.NoError(t, s.SyncConsumer(ctx, "tx1"))
		require.NoError(t, s.SyncConsumer(ctx, "never"))
		require.Equal(t, map[string]token.TxStatus{"tx1": token.Confirmed, "never": token.Orphan}, c.rows)
	})
}

func TestFindings(t *testing.T) {
	each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		ctx := t.Context()
		db := open(t)
		require.NoError(t, db.Migrate(ctx, token.Tables(suite.Prefix)))
		now := suite.Begin
		s := ttxdb.New(db, suite.Prefix, ttxdb.Options{Now: func() time.Time { return now }})
		list := func(q ttxdb.FindingsQuery) []ttxdb.Finding {
			t.Helper()
			all, err := storage.Collect(s.QueryFindings(ctx, q))
			require.NoError(t, err)
			return all
		}
		count := func(checkers ...string) int64 {
			t.Helper()
			n, err := s.CountOpenFindings(ctx, checkers...)
			require.NoError(t, err)
			return n
		}
		a := ttxdb.Finding{Key: "a", Checker: "c1", Code: "drift", Severity: 1, TxID: "tx1", TokenID: "[tx1:0]", Message: "m"}
		b := ttxdb.Finding{Key: "b", Checker: "c1", Severity: 3}
		c := ttxdb.Finding{Key: "c", Checker: "c2", Severity: 2}
		require.NoError(t, s.UpsertFindings(ctx))
		require.NoError(t, s.UpsertFindings(ctx, a, b, c, b))
		a.FirstSeen, a.LastSeen, a.Occurrences = now, now, 1
		require.Equal(t, []ttxdb.Finding{a}, list(ttxdb.FindingsQuery{TxIDs: []string{"tx1"}}))
		all := list(ttxdb.FindingsQuery{})
		require.Equal(t, "b", all[0].Key, "the worst first")
		require.EqualValues(t, 2, all[0].Occurrences, "seen twice in one sweep")
		require.Equal(t, "c", list(ttxdb.FindingsQuery{MinSeverity: 2, Checkers: []string{"c2"}})[0].Key)
		require.Len(t, list(ttxdb.FindingsQuery{Limit: 2}), 2)
		require.EqualValues(t, 3, count())
		require.EqualValues(t, 2, count("c1"))

		now = now.Add(time.Hour)
		a.Message = "another"
		require.NoError(t, s.UpsertFindings(ctx, a))
		n, err := s.ResolveFindingsNotSeenSince(ctx, "c1", now)
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "b, and nothing of another checker")
		a.LastSeen, a.Occurrences = now, 2
		require.Equal(t, []ttxdb.Finding{a}, list(ttxdb.FindingsQuery{Checkers: []string{"c1"}}))
		require.Equal(t, now, list(ttxdb.FindingsQuery{Resolved: true})[0].ResolvedAt)
		require.NoError(t, s.UpsertFindings(ctx, b))
		require.EqualValues(t, 3, count(), "it is open again")

		var many []ttxdb.Finding
		for i := range 250 {
			many = append(many, ttxdb.Finding{Key: strings.Repeat("k", i+1), Checker: "c3"})
		}
		require.NoError(t, s.UpsertFindings(ctx, many...))
		require.EqualValues(t, 250, count("c3"))
		require.ErrorIs(t, s.UpsertFindings(ctx, ttxdb.Finding{Key: "x", Checker: "c4"}, ttxdb.Finding{Checker: "c4"}), token.ErrEmptyArgument)
		require.Zero(t, count("c4"), "all or none")
	})
}
