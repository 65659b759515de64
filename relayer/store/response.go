package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// Outcome is what a response from the chain did.
type Outcome string

// The outcomes.
const (
	Stored    Outcome = "stored"    // and the request goes on
	Completes Outcome = "completes" // the request
	Late      Outcome = "late"      // the request was final already; nothing but a share was stored
	Early     Outcome = "early"     // no request has this reference id yet, so the event was kept
)

// Event is a log of the chain, for the case that it comes too early.
type Event struct {
	BlockHash Hash
	LogIndex  int64
	Data      []byte // whatever the caller wants to get back
}

// Share is a node's part of a user decryption.
type Share struct {
	Reference Hash
	Index     int64
	Share     string // hexadecimal digits, as is Signature
	Signature string
	ExtraData string
	TxHash    string
}

// lockReference keeps everything else about a reference id out until the transaction ends.
func (s *Store) lockReference(ctx context.Context, tx *sql.Tx, ref Hash) error {
	if !s.postgres() {
		return nil // the transaction has the write lock
	}
	sum := sha256.Sum256(ref[:])
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(binary.BigEndian.Uint64(sum[:8])))
	return err
}

// Receipt notes that an attempt of a request was mined and what the gateway contract calls the request, and moves it from tx_in_flight to
// receipt_received; moved tells whether it was still there. A request that is past that follows the chain to another attempt or reference id without
// a change of state; the shares that one in receipt_received got under another id go. It returns the events that came early for this id, oldest first: apply each, then [Store.DropEarly].
func (s *Store) Receipt(ctx context.Context, k Kind, id int64, hash Hash, at Block, ref Hash) (moved bool, early []EarlyEvent, err error) {
	err = s.inTx(ctx, "storing a receipt", func(ctx context.Context, tx *sql.Tx) error {
		if err := s.lockReference(ctx, tx, ref); err != nil {
			return err
		}
		if err := s.hold(ctx, tx, k, id); err != nil {
			return err
		}
		a, err := s.attemptByHash(ctx, tx, hash)
		if err != nil {
			return err
		}
		if a.Kind != k || a.JobID != id || a.Cancels {
			return fmt.Errorf("the transaction %x is not a request of %s %d: %w", hash, k, id, ErrNotFound)
		}
		if _, err := s.mined(ctx, tx, a, at, false); err != nil {
			return err
		}
		text := hexutil.Encode(hash[:])
		moved, err = s.move(ctx, tx, Owner{Kind: k, ID: id}, fhevm.StateTxInFlight, fhevm.StateReceiptReceived, "", set{"gw_req_tx_hash", text}, set{"gw_reference_id", ref[:]})
		if err != nil {
			return err
		}
		if !moved {
			_, err := tx.ExecContext(ctx, "UPDATE "+table(k)+" SET gw_req_tx_hash = $1, gw_reference_id = $2, updated_at = $3 "+
				"WHERE id = $4 AND req_status NOT IN ('queued', 'processing', 'tx_in_flight') AND (gw_req_tx_hash IS DISTINCT FROM $5 OR gw_reference_id IS DISTINCT FROM $6)",
				text, ref[:], s.now(), id, text, ref[:])
			if err != nil {
				return err
			}
			if k == fhevm.KindUserDecrypt {
				_, err := tx.ExecContext(ctx, "DELETE FROM user_decrypt_share WHERE req_id = $1 AND gw_reference_id <> $2 AND EXISTS "+
					"(SELECT 1 FROM user_decrypt_req WHERE id = $3 AND req_status = 'receipt_received')", id, ref[:], id)
				if err != nil {
					return err
				}
			}
		}
		early, err = s.earlyOf(ctx, tx, k, ref)
		return err
	})
	return moved && err == nil, early, err
}

// referred returns the request with this reference id, the one that waits for an answer or else the newest, and false where there is none.
func (s *Store) referred(ctx context.Context, tx *sql.Tx, k Kind, ref Hash) (id int64, state State, found bool, err error) {
	query := "SELECT id, req_status FROM " + table(k) + " WHERE gw_reference_id = $1 ORDER BY CASE WHEN req_status = 'receipt_received' THEN 0 ELSE 1 END, id DESC LIMIT 1"
	rows, err := storage.Collect(storage.Query(ctx, tx, func(rows *sql.Rows) (bool, error) { return true, rows.Scan(&id, &state) }, query, ref[:]))
	return id, state, len(rows) == 1, err
}

// respond runs what a response does to its request, or keeps the event where there is none.
func (s *Store) respond(ctx context.Context, doing string, k Kind, ref Hash, e Event, apply func(ctx context.Context, tx *sql.Tx, id int64, state State) (Outcome, error)) (out Outcome, err error) {
	var dropped int64
	err = s.inTx(ctx, doing, func(ctx context.Context, tx *sql.Tx) error {
		dropped = 0
		if err := s.lockReference(ctx, tx, ref); err != nil {
			return err
		}
		id, state, found, err := s.referred(ctx, tx, k, ref)
		if err != nil {
			return err
		}
		if !found {
			out = Early
			dropped, err = s.keepEarly(ctx, tx, k, ref, e)
			return err
		}
		out, err = apply(ctx, tx, id, state)
		return err
	})
	if err == nil {
		s.dropped.Add(uint64(dropped))
	}
	return out, err
}

// AddShare stores a share and, when there are then as many as the threshold, completes the request in the same transaction. A share that is there
// already counts once; one that comes again from another block takes its place, unless the request is final: what that has stays, and only shares
// under the same reference id are added.
func (s *Store) AddShare(ctx context.Context, sh Share, e Event, threshold int64) (Outcome, error) {
	if threshold <= 0 {
		return "", ErrThreshold
	}
	return s.respond(ctx, "storing a share", fhevm.KindUserDecrypt, sh.Reference, e, func(ctx context.Context, tx *sql.Tx, id int64, state State) (Outcome, error) {
		conflict := "DO UPDATE SET gw_reference_id = excluded.gw_reference_id, tx_hash = excluded.tx_hash, share = excluded.share, kms_signature = excluded.kms_signature, " +
			"extra_data = excluded.extra_data, block_hash = excluded.block_hash, updated_at = excluded.updated_at WHERE user_decrypt_share.block_hash <> excluded.block_hash"
		if state.Final() {
			var others bool
			err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM user_decrypt_share WHERE req_id = $1 AND gw_reference_id <> $2)", id, sh.Reference[:]).Scan(&others)
			if err != nil || others {
				return Late, err
			}
			conflict = "DO NOTHING"
		}
		now := s.now()
		_, err := tx.ExecContext(ctx, "INSERT INTO user_decrypt_share (req_id, gw_reference_id, tx_hash, share_index, share, kms_signature, extra_data, block_hash, created_at, updated_at) "+
			"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (req_id, share_index) "+conflict,
			id, sh.Reference[:], sh.TxHash, sh.Index, sh.Share, sh.Signature, sh.ExtraData, e.BlockHash[:], now, now)
		if err != nil {
			return "", err
		}
		return s.completeIfEnough(ctx, tx, id, state, threshold)
	})
}

// Recount completes a user decryption if it has as many shares as the threshold. It is for shares that were stored while the threshold was not known.
func (s *Store) Recount(ctx context.Context, id int64, threshold int64) (out Outcome, err error) {
	if threshold <= 0 {
		return "", ErrThreshold
	}
	err = s.inTx(ctx, "counting shares", func(ctx context.Context, tx *sql.Tx) error {
		if err := s.hold(ctx, tx, fhevm.KindUserDecrypt, id); err != nil {
			return err
		}
		j, err := s.job(ctx, tx, fhevm.KindUserDecrypt, "id = $1", id)
		if err != nil {
			return err
		}
		out, err = s.completeIfEnough(ctx, tx, id, j.State, threshold)
		return err
	})
	return out, err
}

// completeIfEnough completes a user decryption that has enough shares.
func (s *Store) completeIfEnough(ctx context.Context, tx *sql.Tx, id int64, state State, threshold int64) (Outcome, error) {
	if state.Final() {
		return Late, nil
	}
	var count int64
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM user_decrypt_share WHERE req_id = $1", id).Scan(&count); err != nil {
		return "", err
	}
	if count < threshold {
		return Stored, nil
	}
	return s.complete(ctx, tx, fhevm.KindUserDecrypt, id, set{"resolved_threshold", threshold})
}

// Gathering returns up to limit user decryptions in receipt_received that have a share, oldest first, of those with an id above after.
func (s *Store) Gathering(ctx context.Context, after int64, limit int) (ids []int64, err error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (id int64, err error) {
		err = rows.Scan(&id)
		return id, err
	}, "SELECT r.id FROM user_decrypt_req r WHERE r.req_status = 'receipt_received' AND r.id > $1 AND EXISTS "+
		"(SELECT 1 FROM user_decrypt_share s WHERE s.req_id = r.id) ORDER BY r.id LIMIT $2", after, limit))
}

// complete moves from receipt_received to completed. What has a reference id is past tx_in_flight, so that else it is final.
func (s *Store) complete(ctx context.Context, tx *sql.Tx, k Kind, id int64, sets ...set) (Outcome, error) {
	moved, err := s.move(ctx, tx, Owner{Kind: k, ID: id}, fhevm.StateReceiptReceived, fhevm.StateCompleted, "", sets...)
	if err != nil {
		return "", err
	}
	if !moved {
		return Late, nil
	}
	return Completes, nil
}

// Response is the answer to a public decryption or an input proof.
type Response struct {
	Result   []byte // JSON; nil for a proof that was rejected
	Accepted bool   // input_proof only
	Reason   string // why a proof was rejected
	TxHash   string
}

// Complete completes a public decryption or an input proof.
func (s *Store) Complete(ctx context.Context, k Kind, ref Hash, r Response, e Event) (Outcome, error) {
	return s.respond(ctx, "completing a request", k, ref, e, func(ctx context.Context, tx *sql.Tx, id int64, _ State) (Outcome, error) {
		sets := []set{{"gw_response_tx_hash", r.TxHash}}
		if r.Result != nil {
			sets = append(sets, set{"res", string(r.Result)})
		}
		if k == fhevm.KindInputProof {
			accepted := any(r.Accepted)
			if !s.postgres() {
				accepted = map[bool]int{true: 1}[r.Accepted]
			}
			sets = append(sets, set{"accepted", accepted})
			if !r.Accepted {
				sets = append(sets, set{"err_reason", r.Reason})
			}
		}
		return s.complete(ctx, tx, k, id, sets...)
	})
}

// Consensus notes the transaction with which the nodes agreed on a user decryption, once; it never changes the state.
func (s *Store) Consensus(ctx context.Context, ref Hash, txHash string, e Event) (Outcome, error) {
	return s.respond(ctx, "storing a consensus", fhevm.KindUserDecrypt, ref, e, func(ctx context.Context, tx *sql.Tx, id int64, _ State) (Outcome, error) {
		n, err := exec(ctx, tx, "UPDATE user_decrypt_req SET gw_consensus_tx_hash = $1, updated_at = $2 WHERE id = $3 "+
			"AND gw_consensus_tx_hash IS NULL AND req_status IN ('receipt_received', 'completed')", txHash, s.now(), id)
		if err != nil || n == 1 {
			return Stored, err
		}
		return Late, nil
	})
}

// Shares returns all shares of a user decryption in the order in which they came.
func (s *Store) Shares(ctx context.Context, id int64) ([]Share, error) {
	return storage.Collect(storage.Query(ctx, s.db.Read(), func(rows *sql.Rows) (sh Share, err error) {
		var ref []byte
		var tx sql.Null[string]
		if err = rows.Scan(&ref, &sh.Index, &sh.Share, &sh.Signature, &sh.ExtraData, &tx); err == nil {
			sh.Reference, sh.TxHash = Hash(ref), tx.V
		}
		return sh, err
	}, "SELECT gw_reference_id, share_index, share, kms_signature, extra_data, tx_hash FROM user_decrypt_share WHERE req_id = $1 ORDER BY created_at, share_index", id))
}
