// Package auditdb keeps the transactions of a token network's node as its auditor sees them: the same as package ttxdb, in tables of its
// own, and what enrolment ids paid and hold.
//
// An auditor who looks at a transaction locks the enrolment ids in it, so that nobody judges by holdings that another transaction is about
// to change; a [Locker] does that, for one process or for several.
package auditdb

import (
	"context"
	"math/big"

	"dongate/storage"
	"dongate/token"
	"dongate/token/internal/records"
	"dongate/token/internal/status"
)

// What the owner's and the auditor's transactions have in common.
type (
	// Options are what a Store may be told; the zero value will do.
	Options = records.Options
	// Tx writes in a transaction.
	Tx = records.Tx
	// Claims says which pending transactions to claim.
	Claims = records.Claims
	// Status is how a transaction fares, with what was said about it.
	Status = status.Status
	// Event tells that a transaction ended.
	Event = status.Event
	// Request is a transaction to be stored, of Actions from Inputs to Outputs.
	Request = records.Request
	// Action is a part of a request.
	Action = records.Action
	// Input is a token that an action spends.
	Input = records.Input
	// Output is a token that an action makes.
	Output = records.Output
	// Anchor returns which transaction a raw request was made for.
	Anchor = records.Anchor
)

// Store is the transactions that the auditor of one TMS saw; see [records.Store] for what it does besides filters. It is safe for
// concurrent use.
type Store struct {
	*records.Store
	prefix string
}

// New returns the transactions in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) *Store {
	return &Store{records.New(db, prefix, "aud_", o), prefix}
}

// Filter chooses movements of transactions that are pending or confirmed. It is a value: each method returns another.
type Filter struct {
	s        *records.Store
	q        token.MovementsQuery
	payments bool
}

// NewPaymentsFilter chooses what was sent.
func (s *Store) NewPaymentsFilter() Filter { return newFilter(s.Store, token.Sent) }

// NewHoldingsFilter chooses what was sent and received.
func (s *Store) NewHoldingsFilter() Filter { return newFilter(s.Store, token.AllMovements) }

func newFilter(s *records.Store, d token.MovementDirection) Filter {
	return Filter{s, token.MovementsQuery{MovementDirection: d, Statuses: []token.TxStatus{token.Pending, token.Confirmed}}, d == token.Sent}
}

// ByEnrollmentID leaves only movements of these enrolment ids; without any it restricts nothing.
func (f Filter) ByEnrollmentID(ids ...string) Filter {
	f.q.EnrollmentIDs = ids
	return f
}

// ByType leaves only movements of tokens of these types; without any it restricts nothing.
func (f Filter) ByType(types ...string) Filter {
	f.q.TokenTypes = types
	return f
}

// Last leaves only the newest n; 0 or below: all.
func (f Filter) Last(n int) Filter {
	f.q.NumRecords = n
	return f
}

// Execute returns the movements, the newest first.
func (f Filter) Execute(ctx context.Context) ([]token.MovementRecord, error) {
	return f.s.QueryMovements(ctx, f.q)
}

// Sum adds up the movements: holdings, or, above zero, what was paid. It does not bring them into memory.
func (f Filter) Sum(ctx context.Context) (*big.Int, error) {
	sum, err := f.s.SumMovements(ctx, f.q)
	if err == nil && f.payments {
		sum.Neg(sum)
	}
	return sum, err
}
