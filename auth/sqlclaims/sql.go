package sqlclaims

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"dongate/auth"
	"dongate/storage"
)

//go:embed migrations
var migrations embed.FS

// Domain is the tables of the claims.
var Domain = storage.Domain{Name: "claims", FS: migrations, Dir: "migrations"}

// key is the start of an [auth.Key]. Making two tokens of one's own meet takes 2^64 hashes and harms nobody else; meeting another's takes 2^128.
type key [16]byte

func tokenKey(signer common.Address, tokenID string) key {
	k := auth.TokenKey(signer, tokenID)
	return key(k[:16])
}

func requestKey(workflowID, requestID string) key {
	k := auth.RequestKey(workflowID, requestID)
	return key(k[:16])
}

// floor and ceil are a time in milliseconds since 1970. What expires is rounded up and the clock down, so that nothing is forgotten early.
func floor(t time.Time) int64 { return t.UnixMilli() }

func ceil(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// The statements. Numbered parameters mean the same on both backends.
const (
	countSQL = `SELECT (SELECT COUNT(*) FROM claimed_tokens WHERE expires_at > $1), (SELECT COUNT(*) FROM request_ids WHERE expires_at > $1)`

	pingSQL = `SELECT 1 FROM claimed_tokens, request_ids WHERE 1 = 0`

	endSQL = `UPDATE request_ids SET state = $2, answer = $3, expires_at = $4 WHERE request_key = $1 AND state = 'open' AND expires_at > $5`

	freeTokenSQL   = `DELETE FROM claimed_tokens WHERE token_key = $1 AND holder = $2`
	freeRequestSQL = `DELETE FROM request_ids WHERE request_key = $1 AND holder = $2 AND state = 'open'`

	findTokenSQL   = `SELECT holder FROM claimed_tokens WHERE token_key = $1`
	findRequestSQL = `SELECT holder, signer, state, answer FROM request_ids WHERE request_key = $1`
)

// A statement inserts up to exactRows rows, or a power of two up to maxRows: a few statements for any number of rows.
const (
	exactRows = 16
	maxRows   = 64
)

// pieceOf returns how many of n rows the next statement inserts.
func pieceOf(n int) int {
	if n <= exactRows {
		return n
	}
	piece := maxRows
	for piece > n {
		piece /= 2
	}
	return piece
}

// perSize are the texts of a statement by the number of its rows.
type perSize map[int]string

func newPerSize(text func(n int) string) perSize {
	t := perSize{}
	for n := 1; n <= maxRows; n++ {
		if pieceOf(n) == n {
			t[n] = text(n)
		}
	}
	return t
}

var (
	insertTokens   = newPerSize(insertTokensSQL)
	insertRequests = newPerSize(insertRequestsSQL)
	endRequests    = newPerSize(endsSQL)
)

var numbers = regexp.MustCompile(`\$\d+`)

// insertSQL inserts n rows, over those that have expired and no others: first the rows, each with its parameters, then the clock.
func insertSQL(table, keyColumn string, columns []string, set string, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s (%s) VALUES ", table, strings.Join(columns, ", "))
	parameter := 0
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		for j := range columns {
			parameter++
			fmt.Fprintf(&b, "%s$%d", [2]string{"(", ", "}[min(j, 1)], parameter)
		}
		b.WriteByte(')')
	}
	fmt.Fprintf(&b, " ON CONFLICT (%s) DO UPDATE SET %s WHERE %s.expires_at <= $%d", keyColumn, set, table, parameter+1)
	return b.String()
}

func insertTokensSQL(n int) string {
	return insertSQL("claimed_tokens", "token_key", []string{"token_key", "holder", "expires_at"},
		"holder = excluded.holder, expires_at = excluded.expires_at", n)
}

func insertRequestsSQL(n int) string {
	return insertSQL("request_ids", "request_key", []string{"request_key", "holder", "signer", "state", "expires_at"},
		"holder = excluded.holder, signer = excluded.signer, state = excluded.state, answer = NULL, expires_at = excluded.expires_at", n)
}

// endsSQL closes n open requests and returns the keys of those that were open, on PostgreSQL: first the rows, then the clock. The keys are there
// twice because the server would otherwise read the whole table to join it with the rows.
func endsSQL(n int) string {
	rows, keys := "($1::bytea, $2::text, $3::bytea, $4::bigint)", "$1" // without a type, parameters would be text
	for i := 1; i < n; i++ {
		rows += fmt.Sprintf(", ($%d, $%d, $%d, $%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
		keys += fmt.Sprintf(", $%d", 4*i+1)
	}
	return fmt.Sprintf("UPDATE request_ids SET state = ended.column2, answer = ended.column3, expires_at = ended.column4 FROM (VALUES %s) AS ended "+
		"WHERE request_key = ended.column1 AND request_key IN (%s) AND state = 'open' AND expires_at > $%d RETURNING request_key", rows, keys, 4*n+1)
}

// After every purgeEvery claims the writer looks at the next purgeRows rows of each table and deletes those that have expired. It goes round
// the whole table in a fraction of the time that a claim is kept, whatever the rate of claims.
const (
	purgeEvery = 64
	purgeRows  = 128
)

// sweep goes through a table in the order of a column.
type sweep struct {
	find, remove, removeRest string
	start, after             any // below every value, and the last one looked at
}

func newSweep(table, column string, start any) sweep {
	remove := fmt.Sprintf("DELETE FROM %s WHERE expires_at <= $1 AND %s > $2", table, column)
	return sweep{
		find:       fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s > $1 ORDER BY %[1]s LIMIT 1 OFFSET %[3]d", column, table, purgeRows-1),
		remove:     remove + fmt.Sprintf(" AND %s <= $3", column),
		removeRest: remove,
		start:      start, after: start,
	}
}

// statements runs the statements of one database.
type statements struct {
	db       *storage.DB
	prepared map[string]*sql.Stmt

	// The writer's alone.
	sweeps     [2]sweep
	sincePurge int // claims
}

// prepare prepares every statement on SQLite, where that saves half of a statement's time. PostgreSQL's driver remembers them itself.
func prepare(ctx context.Context, db *storage.DB) (*statements, error) {
	s := &statements{db: db, sincePurge: purgeEvery, prepared: map[string]*sql.Stmt{}}
	s.sweeps = [2]sweep{newSweep("claimed_tokens", "token_key", []byte{}), newSweep("request_ids", "request_key", []byte{})}
	if db.Backend() == storage.SQLite { // whose rows of request ids are together in the order in which they came, and not in that of their keys
		s.sweeps[1] = newSweep("request_ids", "rowid", int64(0))
	} else {
		return s, s.ping(ctx) // the tables are there
	}
	all := []string{endSQL, freeTokenSQL, freeRequestSQL, findTokenSQL, findRequestSQL}
	for _, w := range s.sweeps {
		all = append(all, w.find, w.remove, w.removeRest)
	}
	inserts := slices.AppendSeq(slices.Collect(maps.Values(insertTokens)), maps.Values(insertRequests))
	for _, text := range append(all, inserts...) {
		short := text
		if slices.Contains(inserts, text) { // whose parameters are in order: SQLite's driver searches for each one that has a name
			short = numbers.ReplaceAllString(text, "?")
		}
		statement, err := db.Write().PrepareContext(ctx, short)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.prepared[text] = statement
	}
	return s, nil
}

func (s *statements) close() error {
	var errs []error
	for _, statement := range s.prepared {
		errs = append(errs, statement.Close())
	}
	return errors.Join(errs...)
}

func (s *statements) exec(ctx context.Context, tx *sql.Tx, text string, args ...any) (affected int64, err error) {
	var r sql.Result
	if p := s.prepared[text]; p != nil {
		r, err = tx.StmtContext(ctx, p).ExecContext(ctx, args...)
	} else {
		r, err = tx.ExecContext(ctx, text, args...)
	}
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (s *statements) row(ctx context.Context, tx *sql.Tx, text string, args ...any) *sql.Row {
	if p := s.prepared[text]; p != nil {
		return tx.StmtContext(ctx, p).QueryRowContext(ctx, args...)
	}
	return tx.QueryRowContext(ctx, text, args...)
}

// ping fails if the tables cannot be read.
func (s *statements) ping(ctx context.Context) error {
	_, err := s.db.Read().ExecContext(ctx, pingSQL)
	return err
}

func (s *statements) count(ctx context.Context, now int64) (tokens, ids int, err error) {
	err = s.db.Read().QueryRowContext(ctx, countSQL, now).Scan(&tokens, &ids)
	return tokens, ids, err
}

// outcomes is what became of a batch, in its order.
type outcomes struct {
	marks  []error
	claims []result
}

// run writes a batch in a transaction.
func (s *statements) run(ctx context.Context, tx *sql.Tx, b batch, now int64) (outcomes, error) {
	if s.db.Backend() == storage.SQLite {
		// The driver would start a goroutine per statement to watch the context, and a statement on a file ends by itself.
		ctx = context.WithoutCancel(ctx)
	}
	out := outcomes{marks: make([]error, len(b.marks)), claims: make([]result, len(b.claims))}
	if err := s.mark(ctx, tx, b.marks, now, out.marks); err != nil {
		return out, err
	}
	if len(b.claims) == 0 {
		return out, nil
	}
	// One order for all gateways, so that two of them do not wait for each other's rows.
	order := make([]int, len(b.claims))
	for i := range order {
		order[i] = i
	}
	claims := b.claims
	slices.SortFunc(order, func(x, y int) int { return compareKeys(claims[x].request, claims[y].request) })
	ids, err := s.insert(ctx, tx, insertRequests, order, now, func(args []any, i int) []any {
		p := claims[i]
		return append(args, p.request[:], p.holder, p.Signer[:], string(auth.StateOpen), ceil(p.RequestUntil))
	})
	if err != nil {
		return out, err
	}
	slices.SortFunc(order, func(x, y int) int { return compareKeys(claims[x].token, claims[y].token) })
	tokens, err := s.insert(ctx, tx, insertTokens, order, now, func(args []any, i int) []any {
		p := claims[i]
		return append(args, p.token[:], p.holder, ceil(p.kept()))
	})
	if err != nil {
		return out, err
	}
	if n := int64(len(claims)); tokens != n || ids != n {
		for i, p := range claims {
			if out.claims[i], err = s.settle(ctx, tx, p); err != nil {
				return out, err
			}
		}
	}
	return out, s.purgeExpired(ctx, tx, len(claims), now)
}

func compareKeys(a, b key) int { return cmp.Compare(string(a[:]), string(b[:])) }

// mark writes marks; what became of ends goes to outcomes.
func (s *statements) mark(ctx context.Context, tx *sql.Tx, marks []mark, now int64, outcomes []error) error {
	var order []int
	for i, m := range marks {
		if m.holder == 0 {
			order = append(order, i)
			outcomes[i] = auth.ErrNotOpen
			continue
		}
		_, err := s.exec(ctx, tx, freeTokenSQL, m.token[:], m.holder)
		if err == nil {
			_, err = s.exec(ctx, tx, freeRequestSQL, m.request[:], m.holder)
		}
		if err != nil {
			return err
		}
	}
	if s.db.Backend() == storage.Postgres { // one round trip for many
		slices.SortStableFunc(order, func(x, y int) int { return compareKeys(marks[x].request, marks[y].request) })
		return inPieces(order, func(part []int) error { return s.endMany(ctx, tx, marks, part, now, outcomes) })
	}
	for _, i := range order {
		n, err := s.exec(ctx, tx, endSQL, append(marks[i].row(nil), now)...)
		if err != nil {
			return err
		}
		if n > 0 {
			outcomes[i] = nil
		}
	}
	return nil
}

// row appends the parameters of an end.
func (m *mark) row(args []any) []any {
	var answer any // nil: NULL
	if m.answer != nil {
		answer = m.answer
	}
	return append(args, m.request[:], string(m.state), answer, ceil(m.until))
}

// endMany ends the requests of some marks with a statement of endsSQL.
func (s *statements) endMany(ctx context.Context, tx *sql.Tx, marks []mark, part []int, now int64, outcomes []error) error {
	args, at := make([]any, 0, 4*len(part)+1), make(map[key]int, len(part))
	for _, i := range part {
		args = marks[i].row(args)
		if _, twice := at[marks[i].request]; !twice {
			at[marks[i].request] = i
		}
	}
	rows, err := tx.QueryContext(ctx, endRequests[len(part)], append(args, now)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var request sql.RawBytes
		if err := rows.Scan(&request); err != nil {
			return err
		}
		outcomes[at[key(request)]] = nil
	}
	return rows.Err()
}

// inPieces calls use with pieces of order for which there are statements.
func inPieces(order []int, use func(part []int) error) error {
	for len(order) > 0 {
		n := pieceOf(len(order))
		if err := use(order[:n]); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}

// insert inserts a row for each index and returns how many rows are theirs.
func (s *statements) insert(ctx context.Context, tx *sql.Tx, texts perSize, order []int, now int64, row func(args []any, i int) []any) (affected int64, err error) {
	var args []any
	err = inPieces(order, func(part []int) error {
		args = args[:0]
		for _, i := range part {
			args = row(args, i)
		}
		n, err := s.exec(ctx, tx, texts[len(part)], append(args, now)...)
		affected += n
		return err
	})
	return affected, err
}

// settle finds out which of its rows a claim got, and gives back the one if it did not get both.
func (s *statements) settle(ctx context.Context, tx *sql.Tx, p *pending) (result, error) {
	var token, request int64
	var previous auth.Previous
	var signer []byte
	err := s.row(ctx, tx, findTokenSQL, p.token[:]).Scan(&token)
	if err == nil {
		err = s.row(ctx, tx, findRequestSQL, p.request[:]).Scan(&request, &signer, &previous.State, &previous.Answer)
	}
	switch {
	case err != nil: // not sql.ErrNoRows: the insert that was in vain locked the row
		return result{}, err
	case token == p.holder && request == p.holder:
		return result{outcome: auth.Claimed}, nil
	case token == p.holder:
		previous.Signer = common.BytesToAddress(signer)
		_, err := s.exec(ctx, tx, freeTokenSQL, p.token[:], p.holder)
		return result{outcome: auth.Conflict, previous: &previous}, err
	case request == p.holder:
		_, err := s.exec(ctx, tx, freeRequestSQL, p.request[:], p.holder)
		return result{outcome: auth.Replayed}, err
	default:
		return result{outcome: auth.Replayed}, nil
	}
}

// purgeExpired deletes some rows that have expired, if it is time.
func (s *statements) purgeExpired(ctx context.Context, tx *sql.Tx, claims int, now int64) error {
	if s.sincePurge += claims; s.sincePurge < purgeEvery {
		return nil
	}
	s.sincePurge = 0
	for i := range s.sweeps {
		if err := s.step(ctx, tx, &s.sweeps[i], now); err != nil {
			return err
		}
	}
	return nil
}

// step looks at the next rows of a table, and begins again after the last ones.
func (s *statements) step(ctx context.Context, tx *sql.Tx, w *sweep, now int64) error {
	var last any
	err := s.row(ctx, tx, w.find, w.after).Scan(&last)
	switch {
	case errors.Is(err, sql.ErrNoRows): // these are the last
		_, err = s.exec(ctx, tx, w.removeRest, now, w.after)
		w.after = w.start
		return err
	case err != nil:
		return err
	}
	_, err = s.exec(ctx, tx, w.remove, now, w.after, last)
	w.after = last
	return err
}
