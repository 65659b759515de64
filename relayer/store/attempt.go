package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// Result is what became of an attempt.
type Result string

// The results. A nonce is mined by one attempt at most; the others with it are then lost, as are all when a transaction that is not of
// this request was mined with it.
const (
	Pending  Result = "pending"
	Mined    Result = "mined"
	Reverted Result = "reverted"
	Lost     Result = "lost"
)

// Attempt is a signed transaction of a request.
type Attempt struct {
	Signer  common.Address
	Nonce   int64
	Cancels bool // frees the nonce with a transfer to ourselves
	FeeCap  storage.Amount
	TipCap  storage.Amount // both in wei per gas
	Hash    Hash
	Raw     []byte // as it is sent

	// What follows is set by the store.
	ID      int64
	Kind    Kind
	JobID   int64
	Result  Result
	Block   Block // where it was mined
	Created time.Time
}

// Block names a block.
type Block struct {
	Number int64
	Hash   Hash
}

// BeginSend stores the first attempt of a claimed row and moves it from processing to tx_in_flight, both or neither. Only when it has returned
// true may the transaction be sent. ErrNonce: another request holds the nonce; nothing was changed.
func (s *Store) BeginSend(ctx context.Context, o Owner, a Attempt) (moved bool, err error) {
	err = s.inTx(ctx, "beginning to send", func(ctx context.Context, tx *sql.Tx) (err error) {
		moved, err = s.move(ctx, tx, o, fhevm.StateProcessing, fhevm.StateTxInFlight, "")
		if err != nil || !moved {
			return err
		}
		return s.insertAttempt(ctx, tx, o, a, nil)
	})
	return moved && err == nil, err
}

// AddAttempt stores a further attempt of a claimed row in tx_in_flight: one that replaces those with the same nonce while they are
// pending, or the first with a new nonce once all before it are lost. Else it is ErrNonce. It returns false, having changed nothing, when the
// row is no longer the caller's or no longer in flight. Only when it has returned true may the transaction be sent.
func (s *Store) AddAttempt(ctx context.Context, o Owner, a Attempt) (added bool, err error) {
	err = s.inTx(ctx, "adding an attempt", func(ctx context.Context, tx *sql.Tx) (err error) {
		added, err = s.holdInFlight(ctx, tx, o)
		if err != nil || !added {
			return err
		}
		earlier, err := s.attempts(ctx, tx, "req_kind = $1 AND req_id = $2 ORDER BY id", string(o.Kind), o.ID)
		if err != nil {
			return err
		}
		var replaces *int64
		for _, e := range earlier {
			if e.Signer == a.Signer && e.Nonce == a.Nonce {
				if e.Result != Pending {
					return ErrNonce // it has been used
				}
				if replaces == nil {
					replaces = &e.ID
				}
			} else if e.Result != Lost {
				return ErrNonce
			}
		}
		return s.insertAttempt(ctx, tx, o, a, replaces)
	})
	return added && err == nil, err
}

// holdInFlight keeps a claimed row in flight as it is until the transaction ends, and returns false if it is not that.
func (s *Store) holdInFlight(ctx context.Context, tx *sql.Tx, o Owner) (bool, error) {
	n, err := exec(ctx, tx, "UPDATE "+table(o.Kind)+" SET updated_at = $1 WHERE id = $2 AND req_status = 'tx_in_flight' AND owner_epoch = $3 AND $4 = "+newestEpoch,
		s.now(), o.ID, o.Epoch, o.Epoch)
	return n == 1, err
}

// hold keeps a row as it is until the transaction ends.
func (s *Store) hold(ctx context.Context, tx *sql.Tx, k Kind, id int64) error {
	if !s.postgres() {
		return nil // the transaction has the write lock
	}
	_, err := tx.ExecContext(ctx, "SELECT 1 FROM "+table(k)+" WHERE id = $1 FOR UPDATE", id)
	return err
}

func (s *Store) insertAttempt(ctx context.Context, tx *sql.Tx, o Owner, a Attempt, replaces *int64) error {
	b := s.db.Backend()
	cancels := any(a.Cancels)
	if !s.postgres() {
		cancels = map[bool]int{true: 1}[a.Cancels]
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO tx_attempt (req_kind, req_id, signer, nonce, replaces, cancels, fee_cap, tip_cap, tx_hash, raw_tx, "+
		"owner_epoch, outcome, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', $12)",
		string(o.Kind), o.ID, a.Signer[:], a.Nonce, replaces, cancels, a.FeeCap.Bind(b), a.TipCap.Bind(b), a.Hash[:], a.Raw, o.Epoch, s.now())
	if errors.Is(storage.Classify(err), storage.ErrUnique) {
		return fmt.Errorf("%w: %w", ErrNonce, err)
	}
	return err
}

const attemptColumns = "id, req_kind, req_id, signer, nonce, cancels, fee_cap, tip_cap, tx_hash, raw_tx, outcome, block_number, block_hash, created_at"

func scanAttempt(rows *sql.Rows) (a Attempt, err error) {
	var (
		signer, hash, block []byte
		number              sql.Null[int64]
		created             storage.Time
	)
	err = rows.Scan(&a.ID, &a.Kind, &a.JobID, &signer, &a.Nonce, &a.Cancels, &a.FeeCap, &a.TipCap, &hash, &a.Raw, &a.Result, &number, &block, &created)
	if err != nil {
		return a, err
	}
	a.Signer, a.Hash, a.Created, a.Block.Number = common.Address(signer), Hash(hash), created.Time, number.V
	if block != nil {
		a.Block.Hash = Hash(block)
	}
	return a, nil
}

func (s *Store) attempts(ctx context.Context, q storage.Querier, where string, args ...any) ([]Attempt, error) {
	return storage.Collect(storage.Query(ctx, q, scanAttempt, "SELECT "+attemptColumns+" FROM tx_attempt WHERE "+where, args...))
}

// Attempts returns every attempt of a request, oldest first.
func (s *Store) Attempts(ctx context.Context, k Kind, id int64) ([]Attempt, error) {
	return s.attempts(ctx, s.db.Read(), "req_kind = $1 AND req_id = $2 ORDER BY id", string(k), id)
}

// AttemptByHash returns the attempt with this transaction hash, or ErrNotFound.
func (s *Store) AttemptByHash(ctx context.Context, hash Hash) (Attempt, error) {
	return s.attemptByHash(ctx, s.db.Read(), hash)
}

func (s *Store) attemptByHash(ctx context.Context, q storage.Querier, hash Hash) (Attempt, error) {
	all, err := s.attempts(ctx, q, "tx_hash = $1", hash[:])
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Attempt{}, err
	}
	return all[0], nil
}

// NextNonce returns the nonce after the highest that any attempt of this signer has, and 0 where there is none.
func (s *Store) NextNonce(ctx context.Context, signer common.Address) (nonce int64, err error) {
	err = s.db.Read().QueryRowContext(ctx, "SELECT COALESCE(MAX(nonce) + 1, 0) FROM tx_attempt WHERE signer = $1 AND replaces IS NULL", signer[:]).Scan(&nonce)
	return nonce, err
}

// Mined notes that the chain has mined an attempt, successfully or reverted; the others with its nonce are lost. It may be said again, also
// of another block or another attempt after a re-organisation. It returns ErrNotFound if the transaction is not ours.
func (s *Store) Mined(ctx context.Context, hash Hash, at Block, reverted bool) (a Attempt, err error) {
	err = s.inTx(ctx, "noting a mined attempt", func(ctx context.Context, tx *sql.Tx) (err error) {
		if a, err = s.attemptByHash(ctx, tx, hash); err != nil {
			return err
		}
		if err := s.hold(ctx, tx, a.Kind, a.JobID); err != nil {
			return err
		}
		a, err = s.mined(ctx, tx, a, at, reverted)
		return err
	})
	return a, err
}

func (s *Store) mined(ctx context.Context, tx *sql.Tx, a Attempt, at Block, reverted bool) (Attempt, error) {
	a.Result, a.Block = Mined, at
	if reverted {
		a.Result = Reverted
	}
	if err := s.settle(ctx, tx, a, Lost); err != nil {
		return a, err
	}
	_, err := tx.ExecContext(ctx, "UPDATE tx_attempt SET outcome = $1, block_number = $2, block_hash = $3 WHERE id = $4",
		string(a.Result), at.Number, at.Hash[:], a.ID)
	return a, err
}

// settle gives all attempts with the nonce of this one the same result.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, a Attempt, r Result) error {
	_, err := tx.ExecContext(ctx, "UPDATE tx_attempt SET outcome = $1, block_number = NULL, block_hash = NULL "+
		"WHERE req_kind = $2 AND req_id = $3 AND signer = $4 AND nonce = $5", string(r), string(a.Kind), a.JobID, a.Signer[:], a.Nonce)
	return err
}

// Unmined notes that a re-organisation took away the block of an attempt: whatever has its nonce is pending again, and the request, also a final
// one, no longer has its reference id, which may be another request's on the chain as it is now, until [Store.Receipt] says the new one.
func (s *Store) Unmined(ctx context.Context, hash Hash) error {
	return s.inTx(ctx, "noting a dropped attempt", func(ctx context.Context, tx *sql.Tx) error {
		a, err := s.attemptByHash(ctx, tx, hash)
		if err != nil {
			return err
		}
		if err := s.hold(ctx, tx, a.Kind, a.JobID); err != nil {
			return err
		}
		if _, err := exec(ctx, tx, "UPDATE "+table(a.Kind)+" SET gw_reference_id = NULL, gw_req_tx_hash = NULL, updated_at = $1 "+
			"WHERE id = $2 AND gw_reference_id IS NOT NULL", s.now(), a.JobID); err != nil {
			return err
		}
		return s.settle(ctx, tx, a, Pending)
	})
}

// NonceLost notes that a transaction which is not of this claimed row, in tx_in_flight, was mined with its nonce: its attempts with that nonce are
// lost, and it may take a new one. It returns false when the row is no longer the caller's.
func (s *Store) NonceLost(ctx context.Context, o Owner, signer common.Address, nonce int64) (held bool, err error) {
	err = s.inTx(ctx, "noting a lost nonce", func(ctx context.Context, tx *sql.Tx) (err error) {
		if held, err = s.holdInFlight(ctx, tx, o); err != nil || !held {
			return err
		}
		return s.settle(ctx, tx, Attempt{Kind: o.Kind, JobID: o.ID, Signer: signer, Nonce: nonce}, Lost)
	})
	return held && err == nil, err
}
