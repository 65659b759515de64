package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// Outcome is what became of an attempt to claim.
type Outcome int

// The outcomes of Claims.Claim.
const (
	Claimed  Outcome = iota // both keys are taken, by this call alone
	Replayed                // the token was used before; nothing was taken
	Conflict                // the request id is in use or was lately; nothing was taken
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Claimed:
		return "claimed"
	case Replayed:
		return "replayed"
	case Conflict:
		return "conflict"
	default:
		return "unknown"
	}
}

// State is where the request behind a request id stands.
type State string

// The states of a request id. It is open from its claim and ends in one of the others.
const (
	StateOpen     State = "open"     // dispatched and not yet answered
	StateAnswered State = "answered" // a result or an agreed error was sent
	StateFailed   State = "failed"   // ended in any other way, the client's going away included
)

// Claim is what a dispatch takes for itself: the token, so that it is never used again, and the request id (protocol §3, §5).
type Claim struct {
	Signer       common.Address // recovered from the token
	TokenID      string         // jti; unique per signer
	TokenUntil   time.Time      // the token stays taken until then: not before its exp
	KeepUntil    time.Time      // what outlives this process remembers the token until then, if that is later
	WorkflowID   string         // normal form
	RequestID    string         // unique per workflow
	RequestUntil time.Time      // an open id whose gateway dies ends by itself then
}

// Previous is the request that holds an id which a claim conflicted with.
type Previous struct {
	Signer common.Address
	State  State
	Answer []byte // the whole response as sent, with StateAnswered; nil when it is no longer stored. Must not be changed
}

// Errors of Claims.
var (
	// ErrClaimsFull: as many claims are held as may be. Nothing was taken; the client may try again later.
	ErrClaimsFull = errors.New("no room for another claim")
	// ErrClaimExpired: TokenUntil or RequestUntil is not in the future. A token that ran out between its check and its claim is
	// refused here, since nothing would remember its use. One that is taken too may be reported as such instead.
	ErrClaimExpired = errors.New("the claim has expired before it was made")
	// ErrNotOpen: there is no open request under this id to end.
	ErrNotOpen = errors.New("the request id is not open")
)

// Claims remembers which tokens and request ids are taken. Implementations are safe for concurrent use, by every gateway that shares
// them; they fail with an error of their own when they cannot store, and then nothing is taken.
type Claims interface {
	// Used reports whether the signer's token is known to be claimed, without claiming it. It is cheap; where others share the store,
	// it may not know what they claimed: Claim decides.
	Used(ctx context.Context, signer common.Address, tokenID string) (bool, error)
	// Claim takes the token, by (Signer, TokenID), and the request id, by (WorkflowID, RequestID): both or neither. Of any number
	// of concurrent calls with one key, one is Claimed. A used token is reported before a used id. Previous is set with
	// Conflict alone.
	Claim(ctx context.Context, c Claim) (Outcome, *Previous, error)
	// End moves an open request id to StateAnswered, with the response that was sent, or StateFailed. The id stays taken until the
	// given time, after which it may be claimed anew. Only the first End counts. A Claim made through this value after End
	// returned finds the id ended; what outlives the process may be written later, which End does not wait for. done, unless nil, is
	// called once with what became of it: nil, ErrNotOpen, or an error of the store, before End returns or on another goroutine.
	// answer must not change before done was called.
	End(workflowID, requestID string, s State, answer []byte, until time.Time, done func(error))
	// Stats returns how many tokens and how many request ids are taken, within a second of expiry. A large store may answer with figures
	// that are some seconds old.
	Stats(ctx context.Context) (claims, ids int, err error)
}

// StoredClaims are claims that are kept in a database, which may be slow or not there.
type StoredClaims interface {
	Claims
	// Ping returns nil if a claim could be stored now. It may store one to find out.
	Ping(ctx context.Context) error
	// Activity tells what was done so far.
	Activity() Activity
}

// Activity is what StoredClaims have done since they were opened.
type Activity struct {
	Transactions uint64        // that were committed
	Failed       uint64        // transactions that were not
	Claims       uint64        // tried in those that were committed
	Time         time.Duration // spent in transactions of both kinds
	Waiting      int           // claims and ends that wait at the moment
}

// Key stands for a pair of texts of any length that outsiders chose.
type Key [sha256.Size]byte

// TokenKey is the key of a token: the SHA-256 of its signer and jti.
func TokenKey(signer common.Address, tokenID string) Key { return pairKey(signer[:], tokenID) }

// RequestKey is the key of a request id: the SHA-256 of the workflow and the id, none of which can be moved into the other.
func RequestKey(workflowID, requestID string) Key { return pairKey([]byte(workflowID), requestID) }

// pairKey hashes two texts so that no other pair has the same key: the first is preceded by its length.
func pairKey(a []byte, b string) Key {
	buf := make([]byte, 0, 512)
	buf = binary.BigEndian.AppendUint64(buf, uint64(len(a)))
	return sha256.Sum256(append(append(buf, a...), b...))
}
