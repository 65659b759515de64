package ttxdb

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
)

// Finding is something that a sweep over the records found wrong. While it is seen again and again, it stays one.
type Finding struct {
	Key      string // what is wrong with what; unique
	Checker  string // who found it
	Code     string
	Severity int // higher is worse
	TxID     string
	TokenID  string
	Message  string

	// These are kept by the Store.
	FirstSeen   time.Time
	LastSeen    time.Time
	Occurrences int64
	ResolvedAt  time.Time // zero while it is open
}

// FindingsQuery restricts a listing of findings; what is empty restricts nothing.
type FindingsQuery struct {
	Checkers    []string
	TxIDs       []string
	MinSeverity int
	Resolved    bool // resolved ones too
	Limit       int  // at most; 0 or below: no limit
}

// Findings is what sweeps found. It is safe for concurrent use.
type Findings struct {
	db                                         *run.DB
	clock                                      func() time.Time
	table                                      query.Table
	key, checker, code, txID, tokenID, message query.Column[string]
	severity                                   query.Column[int]
	occurrences                                query.Column[int64]
	firstSeen, lastSeen, resolvedAt            query.Column[storage.Time]
}

func newFindings(db *storage.DB, prefix string, clock func() time.Time) *Findings {
	if clock == nil {
		clock = time.Now
	}
	t := query.NewTable(prefix + "findings")
	text := func(name string) query.Column[string] { return query.NewColumn[string](t, name) }
	at := func(name string) query.Column[storage.Time] { return query.NewColumn[storage.Time](t, name) }
	return &Findings{db: run.New(db), clock: clock, table: t, key: text("finding_key"), checker: text("checker"), code: text("code"), txID: text("tx_id"),
		tokenID: text("token_id"), message: text("message"), severity: query.NewColumn[int](t, "severity"), occurrences: query.NewColumn[int64](t, "occurrences"),
		firstSeen: at("first_seen"), lastSeen: at("last_seen"), resolvedAt: at("resolved_at")}
}

// UpsertFindings stores findings, all or none. One whose key is stored was seen once more: it is open again, and says what it says now.
func (f *Findings) UpsertFindings(ctx context.Context, all ...Finding) error {
	now := storage.NewTime(f.clock())
	times, last := map[string]int64{}, map[string]Finding{}
	var keys []string // each once: one statement cannot change a row twice
	for _, v := range all {
		if v.Key == "" || v.Checker == "" {
			return fmt.Errorf("storing a finding without a key or a checker: %w", token.ErrEmptyArgument)
		}
		if times[v.Key] == 0 {
			keys = append(keys, v.Key)
		}
		times[v.Key]++
		last[v.Key] = v
	}
	slices.Sort(keys) // so that no two wait for each other
	err := token.InTx(ctx, f.db.DB, func(ctx context.Context, tx token.Tx) error {
		for part := range storage.Chunks(keys, 10) {
			rows := make([][]query.Assignment, len(part))
			for i, key := range part {
				v := last[key]
				rows[i] = []query.Assignment{f.key.Set(key), f.checker.Set(v.Checker), f.code.Set(v.Code), f.severity.Set(v.Severity), f.txID.Set(v.TxID),
					f.tokenID.Set(v.TokenID), f.message.Set(v.Message), f.firstSeen.Set(now), f.lastSeen.Set(now), f.occurrences.Set(times[key])}
			}
			if _, err := f.db.Exec(ctx, tx, query.InsertInto(f.table).Rows(rows...).OnConflict(f.key).DoUpdate(f.checker.Overwrite(), f.code.Overwrite(),
				f.severity.Overwrite(), f.txID.Overwrite(), f.tokenID.Overwrite(), f.message.Overwrite(), f.lastSeen.Overwrite(),
				f.occurrences.IncrementByNew(), f.resolvedAt.SetNull())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing findings: %w", err)
	}
	return nil
}

// ResolveFindingsNotSeenSince closes the open findings of a checker that it did not see again since then, and returns how many. A sweep
// calls it at its end with the time of its begin.
func (f *Findings) ResolveFindingsNotSeenSince(ctx context.Context, checker string, since time.Time) (int64, error) {
	n, err := f.db.Exec(ctx, f.db.Write(), query.Update(f.table).Set(f.resolvedAt.Set(storage.NewTime(f.clock()))).
		Where(query.And(f.checker.Eq(checker), f.resolvedAt.IsNull(), f.lastSeen.Lt(storage.NewTime(since)))))
	if err != nil {
		return 0, fmt.Errorf("resolving findings: %w", err)
	}
	return n, nil
}

// QueryFindings returns findings, the worst first, then those seen last.
func (f *Findings) QueryFindings(ctx context.Context, q FindingsQuery) iter.Seq2[Finding, error] {
	statement := query.Select(f.key, f.checker, f.code, f.severity, f.txID, f.tokenID, f.message, f.firstSeen, f.lastSeen, f.occurrences, f.resolvedAt).
		From(f.table).Where(f.matching(q)).OrderBy(f.severity.Desc(), f.lastSeen.Desc(), f.key.Asc()).Limit(max(q.Limit, 0))
	return func(yield func(Finding, error) bool) {
		for v, err := range run.Query(ctx, f.db, f.db.Read(), statement, scanFinding) {
			if err != nil {
				err = fmt.Errorf("listing findings: %w", err)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

func (f *Findings) matching(q FindingsQuery) query.Cond {
	var severity, open query.Cond
	if q.MinSeverity != 0 {
		severity = f.severity.Ge(q.MinSeverity)
	}
	if !q.Resolved {
		open = f.resolvedAt.IsNull()
	}
	return query.And(f.checker.In(q.Checkers...), f.txID.In(q.TxIDs...), severity, open)
}

func scanFinding(rows *sql.Rows) (v Finding, err error) {
	var first, last storage.Time
	var resolved sql.Null[storage.Time]
	err = rows.Scan(&v.Key, &v.Checker, &v.Code, &v.Severity, &v.TxID, &v.TokenID, &v.Message, &first, &last, &v.Occurrences, &resolved)
	v.FirstSeen, v.LastSeen, v.ResolvedAt = first.Time, last.Time, resolved.V.Time
	return v, err
}

// CountOpenFindings returns how many findings of the checkers, or of any, are open.
func (f *Findings) CountOpenFindings(ctx context.Context, checkers ...string) (int64, error) {
	n, _, err := run.One(ctx, f.db, f.db.Read(), query.Select(query.Count()).From(f.table).
		Where(f.matching(FindingsQuery{Checkers: checkers})), storage.Column[int64])
	if err != nil {
		return 0, fmt.Errorf("counting findings: %w", err)
	}
	return n, nil
}
