// Package ttxdb keeps the transactions of a token network's node as their owner sees them: raw requests and how they fare, records of what
// they did, movements of holdings, signatures of endorsers, and what sweeps over all this found.
//
// A transaction is pending until it is confirmed, deleted or an orphan; an orphan may yet be confirmed or deleted. Nothing else can become
// of it, whoever writes. Everything that may be replayed is idempotent.
//
// A [Store] has the SQL; a [StoreService] checks what comes out of it and tells those who wait of the ends of transactions, also of those
// that another process brought about.
package ttxdb

import (
	"context"

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
	// Consumers is where statuses are copied to when the locks of tokens are in another database.
	Consumers = records.Consumers
	// ServiceOptions are what a StoreService is told.
	ServiceOptions = records.ServiceOptions
)

// ErrTwoSenders: the inputs of an action belong to more than one.
var ErrTwoSenders = records.ErrTwoSenders

// RecordID returns an id for the n-th record of a transaction, for records that may be replayed.
func RecordID(txID string, n int) string { return records.RecordID(txID, n) }

// Store is the transactions of one TMS; see [records.Store] for what it does besides findings. It is safe for concurrent use.
type Store struct {
	*records.Store
	*Findings
}

// New returns the transactions in a database that has been migrated, see [token.Tables].
func New(db *storage.DB, prefix string, o Options) *Store {
	return &Store{records.New(db, prefix, "", o), newFindings(db, prefix, o.Now)}
}

// StoreService is a Store with checks and listeners; see [records.Service]. It is safe for concurrent use.
type StoreService struct {
	*records.Service
	*Findings
}

// NewStoreService returns a service above a store. Its Close closes the store too.
func NewStoreService(s *Store, o ServiceOptions) (*StoreService, error) {
	service, err := records.NewService(s.Store, o)
	if err != nil {
		return nil, err
	}
	return &StoreService{service, s.Findings}, nil
}

// AppendTransactionRecord stores a request as pending, with a record for each action, recipient and token type, and with the net movements.
// The same request again changes nothing.
func (s *StoreService) AppendTransactionRecord(ctx context.Context, r Request) error {
	return s.Append(ctx, r, nil)
}

// TransactionRecords returns the records that AppendTransactionRecord stores.
func TransactionRecords(r Request) ([]token.TransactionRecord, error) {
	return records.TransactionRecords(r)
}

// Movements returns the movements that AppendTransactionRecord stores.
func Movements(r Request) ([]token.MovementRecord, error) { return records.Movements(r) }
