package records

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// AddTokenRequest stores the raw request of a transaction, as pending, with metadata whose names are valid UTF-8 without a zero byte, and
// the hash of the public parameters it was made under. The same request again changes nothing, whatever became of the transaction since;
// another request of the transaction, or other parameters, are token.ErrRequestMismatch.
func (x *Tx) AddTokenRequest(ctx context.Context, txID string, request []byte, application, public map[string][]byte, ppHash []byte) error {
	if err := x.addTokenRequest(ctx, txID, request, application, public, ppHash); err != nil {
		return fmt.Errorf("storing the request of transaction %.200q: %w", txID, err)
	}
	return nil
}

func (x *Tx) addTokenRequest(ctx context.Context, txID string, request []byte, application, public map[string][]byte, ppHash []byte) error {
	t := &x.s.t
	if txID == "" {
		return fmt.Errorf("transaction: %w", token.ErrEmptyArgument)
	}
	appMeta, err := Metadata(application)
	if err != nil {
		return fmt.Errorf("application metadata: %w", err)
	}
	pubMeta, err := Metadata(public)
	if err != nil {
		return fmt.Errorf("public metadata: %w", err)
	}
	if err := errors.Join(storage.CheckPayload("request", request), storage.CheckPayload("hash of the public parameters", ppHash)); err != nil {
		return err
	}
	n, err := x.s.db.Exec(ctx, x.tx, query.InsertInto(t.requests.Table).Row(
		t.requests.TxID.Set(txID), t.request.Set(full(request)), t.requests.Status.Set(token.Pending), t.requests.Message.Set(""),
		t.appMeta.Set(appMeta), t.pubMeta.Set(pubMeta), t.ppHash.Set(full(ppHash)), t.storedAt.Set(storage.NewTime(x.s.clock())),
	).OnConflict(t.requests.TxID).DoNothing())
	if err != nil || n > 0 {
		return err
	}
	type stored struct{ request, ppHash []byte }
	old, _, err := run.One(ctx, x.s.db, x.tx, query.Select(t.request, t.ppHash).From(t.requests.Table).Where(t.requests.TxID.Eq(txID)), func(rows *sql.Rows) (s stored, err error) {
		return s, rows.Scan(&s.request, &s.ppHash)
	})
	switch {
	case err != nil:
		return err
	case !bytes.Equal(old.request, request):
		return token.ErrRequestMismatch
	case !bytes.Equal(old.ppHash, ppHash):
		return fmt.Errorf("%w: it was made under other public parameters", token.ErrRequestMismatch)
	}
	return nil
}

// Metadata returns metadata as it is stored: a JSON object of base64 texts.
func Metadata(m map[string][]byte) (string, error) {
	for name := range m {
		if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return "", fmt.Errorf("the name %.100q is not text", name)
		}
	}
	if m == nil {
		m = map[string][]byte{}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	return string(text), storage.CheckPayload("metadata", text)
}

// ParseMetadata is the inverse of Metadata; without entries it is nil.
func ParseMetadata(text []byte) (m map[string][]byte, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("metadata: %w: %w", token.ErrIntegrity, err)
	}
	if len(m) == 0 {
		return nil, nil
	}
	return m, nil
}

// full returns what a column that is never NULL holds.
func full(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// RecordID returns an id for the n-th record of a transaction. It begins with the transaction, so that records of the same moment are
// listed by transaction, in their order.
func RecordID(txID string, n int) string { return fmt.Sprintf("%s/%08d", txID, n) }

// newID returns an id for a record of a transaction that came without one.
func newID(txID string) (string, error) {
	id, err := uuid.NewV7() // in the order in which they are made
	return txID + "/" + id.String(), err
}

// AddTransaction stores records of transactions; those without a time are of now. Each needs its request, else
// token.ErrTokenRequestDoesNotExist. A record that has an ID may come again; another one under the same ID is token.ErrRequestMismatch.
func (x *Tx) AddTransaction(ctx context.Context, records ...token.TransactionRecord) error {
	t := &x.s.t
	ids, rows := make([]string, len(records)), make([][]query.Assignment, len(records))
	for i, r := range records {
		id, at, err := x.key(r.ID, r.TxID, r.Timestamp)
		if err != nil {
			return err
		}
		amount, err := token.Amount(r.Amount)
		if err != nil {
			return fmt.Errorf("storing a record of transaction %.200q: %w", r.TxID, err)
		}
		ids[i], rows[i] = id, []query.Assignment{t.txID.Set(id), t.txTxID.Set(r.TxID), t.txAction.Set(r.ActionType), t.txSender.Set(r.SenderEID),
			t.txRecipient.Set(r.RecipientEID), t.txType.Set(r.TokenType), t.txAmount.Set(amount.Bind(x.s.db.Backend())), t.txStoredAt.Set(at)}
	}
	type content struct {
		txID, sender, recipient, tokenType, amount string
		action                                     token.ActionType
	}
	err := insert(ctx, x, t.txs, t.txID, ids, rows,
		func(i int) content {
			r := records[i]
			return content{r.TxID, r.SenderEID, r.RecipientEID, r.TokenType, r.Amount.String(), r.ActionType}
		},
		[]query.Expr{t.txID, t.txTxID, t.txSender, t.txRecipient, t.txType, t.txAmount, t.txAction},
		func(rows *sql.Rows, id *string) (c content, err error) {
			var amount storage.Amount
			err = rows.Scan(id, &c.txID, &c.sender, &c.recipient, &c.tokenType, &amount, &c.action)
			c.amount = amount.String()
			return c, err
		})
	if err != nil {
		return fmt.Errorf("storing records of transactions: %w", err)
	}
	return nil
}

// AddMovement is AddTransaction for movements.
func (x *Tx) AddMovement(ctx context.Context, records ...token.MovementRecord) error {
	t := &x.s.t
	ids, rows := make([]string, len(records)), make([][]query.Assignment, len(records))
	for i, r := range records {
		id, at, err := x.key(r.ID, r.TxID, r.Timestamp)
		if err != nil {
			return err
		}
		amount, err := token.Movement(r.Amount)
		if err != nil {
			return fmt.Errorf("storing a movement of transaction %.200q: %w", r.TxID, err)
		}
		ids[i], rows[i] = id, []query.Assignment{t.moveID.Set(id), t.moveTxID.Set(r.TxID), t.moveEID.Set(r.EnrollmentID), t.moveType.Set(r.TokenType),
			t.moveAmount.Set(amount.Bind(x.s.db.Backend())), t.moveStoredAt.Set(at)}
	}
	type content struct{ txID, eid, tokenType, amount string }
	err := insert(ctx, x, t.moves, t.moveID, ids, rows,
		func(i int) content {
			r := records[i]
			return content{r.TxID, r.EnrollmentID, r.TokenType, r.Amount.String()}
		},
		[]query.Expr{t.moveID, t.moveTxID, t.moveEID, t.moveType, t.moveAmount},
		func(rows *sql.Rows, id *string) (c content, err error) {
			var amount storage.Movement
			err = rows.Scan(id, &c.txID, &c.eid, &c.tokenType, &amount)
			c.amount = amount.String()
			return c, err
		})
	if err != nil {
		return fmt.Errorf("storing movements: %w", err)
	}
	return nil
}

// key returns the key and the time of a record.
func (x *Tx) key(id, txID string, at time.Time) (string, storage.Time, error) {
	if txID == "" {
		return "", storage.Time{}, fmt.Errorf("storing a record without a transaction: %w", token.ErrEmptyArgument)
	}
	if at.IsZero() {
		at = x.s.clock()
	}
	var err error
	if id == "" {
		id, err = newID(txID)
	}
	return id, storage.NewTime(at), err
}

// insert stores rows whose key is id. One that is there already must be the same.
func insert[C comparable](ctx context.Context, x *Tx, table query.Table, id query.Column[string], ids []string, rows [][]query.Assignment,
	want func(i int) C, fields []query.Expr, scan func(rows *sql.Rows, id *string) (C, error)) error {
	if len(rows) == 0 {
		return nil
	}
	var inserted int64
	for part := range storage.Chunks(rows, len(rows[0])) {
		n, err := x.s.db.Exec(ctx, x.tx, query.InsertInto(table).Rows(part...).OnConflict(id).DoNothing())
		if errors.Is(err, storage.ErrForeignKey) {
			return token.ErrTokenRequestDoesNotExist
		}
		if err != nil {
			return err
		}
		inserted += n
	}
	if inserted == int64(len(rows)) {
		return nil
	}
	type row struct {
		id string
		c  C
	}
	there := make(map[string]C, len(ids))
	for part := range storage.Chunks(ids, 1) {
		for r, err := range run.Query(ctx, x.s.db, x.tx, query.Select(fields...).From(table).Where(id.In(part...)), func(rows *sql.Rows) (r row, err error) {
			r.c, err = scan(rows, &r.id)
			return r, err
		}) {
			if err != nil {
				return err
			}
			there[r.id] = r.c
		}
	}
	for i, id := range ids {
		if there[id] != want(i) {
			return fmt.Errorf("record %.200q: %w", id, token.ErrRequestMismatch)
		}
	}
	return nil
}

// SetStatus gives a transaction a status, with what is to be said about it; an empty message leaves the one that is there. Pending can
// become any other, an orphan confirmed or deleted; the status it has succeeds and writes nothing. All else is token.ErrAlreadyFinal, a
// transaction that is not stored token.ErrUnknownTransaction. A recovery's claim ends.
func (x *Tx) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	return x.s.t.requests.Set(ctx, x.s.db, x.tx, x.tx, txID, to, message)
}

// SetStatus is [Tx.SetStatus] by itself.
func (s *Store) SetStatus(ctx context.Context, txID string, to token.TxStatus, message string) error {
	return s.t.requests.Set(ctx, s.db, s.db.Write(), s.db.Read(), txID, to, message)
}

// AddTransactionEndorsementAck stores that an endorser signed a transaction, which need not be stored. Nothing may be empty. The first
// signature of an endorser is kept.
func (x *Tx) AddTransactionEndorsementAck(ctx context.Context, txID string, endorser token.Identity, sigma []byte) error {
	return x.s.addAck(ctx, x.tx, txID, endorser, sigma)
}

// AddTransactionEndorsementAck is [Tx.AddTransactionEndorsementAck] by itself.
func (s *Store) AddTransactionEndorsementAck(ctx context.Context, txID string, endorser token.Identity, sigma []byte) error {
	return s.addAck(ctx, s.db.Write(), txID, endorser, sigma)
}

func (s *Store) addAck(ctx context.Context, x run.Execer, txID string, endorser token.Identity, sigma []byte) error {
	t := &s.t
	var err error
	if txID == "" || len(endorser) == 0 || len(sigma) == 0 {
		err = token.ErrEmptyArgument
	}
	err = errors.Join(err, storage.CheckPayload("endorser", endorser), storage.CheckPayload("signature", sigma))
	if err == nil {
		_, err = s.db.Exec(ctx, x, query.InsertInto(t.ends).Row(t.endID.Set(ackID(txID, endorser)), t.endTxID.Set(txID),
			t.endEndorser.Set(endorser), t.endSigma.Set(sigma), t.endsStoredAt.Set(storage.NewTime(s.clock()))).OnConflict(t.endID).DoNothing())
	}
	if err != nil {
		return fmt.Errorf("storing the endorsement of transaction %.200q: %w", txID, err)
	}
	return nil
}

// ackID names an endorser's acknowledgement of a transaction.
func ackID(txID string, endorser []byte) string {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, uint64(len(txID)))
	h.Write([]byte(txID))
	h.Write(endorser)
	return hex.EncodeToString(h.Sum(nil))
}
