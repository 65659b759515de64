package token

import (
	"fmt"
	"slices"
)

// TxStatus is how a transaction fares. The numbers are in the database and in its indexes.
type TxStatus int

// The statuses of a transaction.
const (
	Unknown   TxStatus = 0 // not stored; never in the database
	Pending   TxStatus = 1 // stored, and nothing known of how it ended
	Confirmed TxStatus = 2 // valid on the ledger
	Deleted   TxStatus = 3 // invalid on the ledger, or given up
	Orphan    TxStatus = 4 // never reached the ledger, as far as is known
)

var statusNames = map[TxStatus]string{Unknown: "Unknown", Pending: "Pending", Confirmed: "Confirmed", Deleted: "Deleted", Orphan: "Orphan"}

// String returns the status's name.
func (s TxStatus) String() string { return name(statusNames, s, "TxStatus") }

// Stored tells whether a transaction can have this status in the database: any of the five but Unknown.
func (s TxStatus) Stored() bool { return s >= Pending && s <= Orphan }

// Final tells whether the status ends a transaction for those that wait: any but Unknown and Pending. Of an orphan the ledger may yet say
// otherwise.
func (s TxStatus) Final() bool { return s == Confirmed || s == Deleted || s == Orphan }

// Predecessors returns the statuses from which a transaction can come to this one: Pending to the three others, Orphan to Confirmed and
// Deleted. The same status is not among them: setting it again succeeds and writes nothing.
func (s TxStatus) Predecessors() []TxStatus {
	switch s {
	case Confirmed, Deleted:
		return []TxStatus{Pending, Orphan}
	case Orphan:
		return []TxStatus{Pending}
	}
	return nil
}

// Change tells what becomes of a transaction of status from that is set to status to: whether there is something to write, or the error.
// It is ErrUnknownTransaction for one that is not stored, ErrAlreadyFinal for one that has ended otherwise, and ErrStatus for a status
// that cannot be set.
func Change(from, to TxStatus) (write bool, err error) {
	switch {
	case !to.Stored():
		return false, fmt.Errorf("%w: %s", ErrStatus, to)
	case from == Unknown:
		return false, ErrUnknownTransaction
	case from == to:
		return false, nil
	case slices.Contains(to.Predecessors(), from):
		return true, nil
	}
	return false, fmt.Errorf("%w: it is %s and cannot become %s", ErrAlreadyFinal, from, to)
}

// ActionType is what a transaction does with tokens. The numbers are in the database.
type ActionType int

// The actions.
const (
	Issue    ActionType = 0
	Transfer ActionType = 1
	Redeem   ActionType = 2
)

var actionNames = map[ActionType]string{Issue: "Issue", Transfer: "Transfer", Redeem: "Redeem"}

// String returns the action's name.
func (a ActionType) String() string { return name(actionNames, a, "ActionType") }

// SearchDirection is the order of a listing by time.
type SearchDirection int

// The directions.
const (
	FromLast      SearchDirection = 0 // newest first
	FromBeginning SearchDirection = 1
)

// MovementDirection restricts a listing of movements by their sign.
type MovementDirection int

// The directions.
const (
	Sent         MovementDirection = 0 // below zero
	Received     MovementDirection = 1 // above zero
	AllMovements MovementDirection = 2
)

// SpendableFilter restricts a listing of tokens by whether their format can be spent.
type SpendableFilter int

// The filters.
const (
	AnySpendable     SpendableFilter = 0
	SpendableOnly    SpendableFilter = 1
	NonSpendableOnly SpendableFilter = 2
)

// AmountOrder is the order of a listing of tokens by their amount. Any other value is Unordered.
type AmountOrder int

// The orders.
const (
	Unordered  AmountOrder = 0
	Ascending  AmountOrder = 1 // then by transaction and index
	Descending AmountOrder = 2
)

// Role is what an identity does in the network. The numbers are in the database.
type Role int

// The roles.
const (
	OwnerRole     Role = 0
	IssuerRole    Role = 1
	AuditorRole   Role = 2
	CertifierRole Role = 3
)

var roleNames = map[Role]string{OwnerRole: "Owner", IssuerRole: "Issuer", AuditorRole: "Auditor", CertifierRole: "Certifier"}

// String returns the role's name.
func (r Role) String() string { return name(roleNames, r, "Role") }

func name[T ~int](names map[T]string, v T, kind string) string {
	if n, ok := names[v]; ok {
		return n
	}
	return fmt.Sprintf("%s(%d)", kind, int(v))
}
