package ttxdb

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
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

type findings struct {
	db                                         *storage.DB
	table                                      query.Table
	key, checker, code, txID, tokenID, message query.Column[string]
	severity, occurrences                      query.Column[int64]
	firstSeen, lastSeen                        query.Column[storage.Time]
	resolvedAt                                 query.Column[storage.Time]
}

func newFindings(db *storage.DB, prefix string) findings {
	t := query.NewTable(prefix + "findings")
	text := func(name string) query.Column[string] { return query.NewColumn[string](t, name) }
	number := func(name string) query.Column[int64] { return query.NewColumn[int64](t, name) }
	at := func(name string) query.Column[storage.Time] { return query.NewColumn[storage.Time](t, name) }
	return findings{db: db, table: t, key: text("finding_key"), checker: text("checker"), code: text("code"), txID: text("tx_id"),
		tokenID: text("token_id"), message: text("message"), severity: number("severity"), occurrences: number("occurrences"),
		firstSeen: at("first_seen"), lastSeen: at("last_seen"), resolvedAt: at("resolved_at")}
}
