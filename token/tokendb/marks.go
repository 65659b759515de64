package tokendb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/token"
	"dongate/token/internal/run"
	"dongate/token/lease"
)

// StoreCertifications stores what a certifier said of tokens. What is said of a token already stays. All tokens must be stored, else
// token.ErrTokenDoesNotExist and nothing is written.
func (s *Store) StoreCertifications(ctx context.Context, certifications map[token.ID][]byte) error {
	t := &s.t
	var rows [][]query.Assignment
	now := storage.NewTime(s.clock())
	ids := make([]token.ID, 0, len(certifications))
	for id := range certifications {
		ids = append(ids, id)
	}
	// Everybody in the same order, so that no two wait for each other.
	slices.SortFunc(ids, func(a, b token.ID) int {
		if c := strings.Compare(a.TxID, b.TxID); c != 0 || a.Index == b.Index {
			return c
		}
		if a.Index < b.Index {
			return -1
		}
		return 1
	})
	for _, id := range ids {
		idx, err := key(id)
		if err == nil {
			err = storage.CheckPayload("certification", certifications[id])
		}
		if err == nil && len(certifications[id]) == 0 {
			err = token.ErrEmptyArgument
		}
		if err != nil {
			return fmt.Errorf("storing the certification of token %s: %w", id, err)
		}
		rows = append(rows, []query.Assignment{t.crtTxID.Set(id.TxID), t.crtIdx.Set(idx), t.crt.Set(certifications[id]), t.crtStored.Set(now)})
	}
	err := s.InTx(ctx, func(ctx context.Context, tx *Tx) error {
		for part := range storage.Chunks(rows, 4) {
			if _, err := s.db.Exec(ctx, tx.tx, query.InsertInto(t.crts).Rows(part...).OnConflict(t.crtTxID, t.crtIdx).DoNothing()); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(missing(err), "storing certifications")
}

// missing says what a foreign key that points nowhere means here.
func missing(err error) error {
	if errors.Is(storage.Classify(err), storage.ErrForeignKey) {
		return fmt.Errorf("%w: %w", token.ErrTokenDoesNotExist, err)
	}
	return err
}

// ExistsCertification tells whether a certification of the token is stored.
func (s *Store) ExistsCertification(ctx context.Context, id token.ID) (bool, error) {
	t := &s.t
	idx, err := key(id)
	if err != nil {
		return false, err
	}
	_, found, err := run.One(ctx, s.db, s.db.Prepared(), query.Select(query.Literal(1)).From(t.crts).Where(query.And(t.crtTxID.Eq(id.TxID), t.crtIdx.Eq(idx))), storage.Column[int])
	return found, wrap(err, "looking for the certification of token %s", id)
}

// GetCertifications returns the tokens' certifications in the order asked for; ErrMissing if one is not there.
func (s *Store) GetCertifications(ctx context.Context, ids ...token.ID) ([][]byte, error) {
	t := &s.t
	keys, err := pairs(ids)
	if err != nil {
		return nil, err
	}
	found := make(map[token.ID][]byte, len(ids))
	for part := range storage.Chunks(keys, 2) {
		statement := query.Select(t.crtTxID, t.crtIdx, t.crt).From(t.crts).Where(query.InPairs(t.crtTxID, t.crtIdx, part...))
		for c, err := range list(ctx, s, "reading certifications", s.db.Read(), statement, func(rows *sql.Rows) (c token.Certification, err error) {
			err = rows.Scan(&c.TxID, &c.Index, &c.Certification)
			return c, err
		}) {
			if err != nil {
				return nil, err
			}
			found[c.ID] = c.Certification
		}
	}
	out := make([][]byte, len(ids))
	for i, id := range ids {
		if out[i] = found[id]; len(out[i]) == 0 {
			return nil, fmt.Errorf("reading certifications: token %s: %w", id, ErrMissing)
		}
	}
	return out, nil
}

// GetDeletedTokensPendingSKICleanup returns tokens of our wallets that were spent at least olderThan ago, by the database's clock, and
// whose keys nobody has removed yet: at most limit, those spent first first. A limit of zero returns none; one above storage.MaxPage is refused.
func (s *Store) GetDeletedTokensPendingSKICleanup(ctx context.Context, olderThan time.Duration, limit int) ([]token.Details, error) {
	t := &s.t
	if limit <= 0 {
		return nil, nil
	}
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	cleaned := query.Exists(query.Select(query.Literal(1)).From(t.cleanups).Where(query.And(t.cleanTxID.EqColumn(t.txID), t.cleanIdx.EqColumn(t.idx))))
	statement := query.Select(t.txID, t.idx, t.ownerWallet, t.ownerIdentity, t.ownerType, t.tokenType, t.amount, t.ledgerType, t.canSpend, t.isDeleted, t.spentBy, t.spentAt, t.storedAt).
		From(t.tokens).Where(query.And(query.IsTrue(t.isDeleted), query.IsTrue(t.owner), query.OlderThan(t.spentAt, olderThan), query.Not(cleaned))).
		OrderBy(t.spentAt.Asc(), t.txID.Asc(), t.idx.Asc()).Limit(limit)
	return storage.Collect(list(ctx, s, "listing spent tokens whose keys are there", s.db.Prepared(), statement, scanDetails))
}

// MarkTokenCleaned says that the keys of the token were removed. It may be said more than once; the first stays. A token that is not
// stored is token.ErrTokenDoesNotExist.
func (s *Store) MarkTokenCleaned(ctx context.Context, id token.ID, by string) error {
	t := &s.t
	idx, err := key(id)
	if err == nil {
		_, err = s.db.Exec(ctx, s.db.Write(), query.InsertInto(t.cleanups).Row(t.cleanTxID.Set(id.TxID), t.cleanIdx.Set(idx), t.cleanedAt.SetNow(0), t.cleanedBy.Set(by)).
			OnConflict(t.cleanTxID, t.cleanIdx).DoNothing())
	}
	return wrap(missing(err), "marking token %s as cleaned", id)
}

// AcquireCleanupLeadership takes the lead of the removal of spent tokens' keys for ttl; nil: somebody else has it.
func (s *Store) AcquireCleanupLeadership(ctx context.Context, ttl time.Duration) (*lease.Lease, error) {
	return lease.Acquire(ctx, s.db.DB, s.prefix, "tkn_ski_cleanups", ttl)
}

// PruneSpent removes tokens that were spent at least olderThan ago, by the database's clock, with all that belongs to them: at most limit,
// which is up to storage.MaxPage. It returns how many it removed. Tokens that we issued or audit stay, and with keepUncleaned those of our
// wallets whose keys nobody has removed yet. What is removed must not be replayed: it would be unspent again.
func (s *Store) PruneSpent(ctx context.Context, olderThan time.Duration, limit int, keepUncleaned bool) (int64, error) {
	t := &s.t
	if err := storage.CheckPage(limit); err != nil {
		return 0, err
	}
	kept := query.Cond{}
	if keepUncleaned {
		kept = query.Or(query.Not(query.IsTrue(t.owner)), query.Exists(query.Select(query.Literal(1)).From(t.cleanups).
			Where(query.And(t.cleanTxID.EqColumn(t.txID), t.cleanIdx.EqColumn(t.idx)))))
	}
	old := query.Select(t.txID, t.idx).From(t.tokens).Where(query.And(query.IsTrue(t.isDeleted), query.Not(query.IsTrue(t.issuer)), query.Not(query.IsTrue(t.auditor)),
		query.OlderThan(t.spentAt, olderThan), kept)).OrderBy(t.spentAt.Asc(), t.txID.Asc(), t.idx.Asc()).Limit(limit)
	n, err := s.db.Exec(ctx, s.db.Write(), query.DeleteFrom(t.tokens).Where(query.InSelect(old, t.txID, t.idx)))
	return n, wrap(err, "removing spent tokens")
}

// Event tells that a token was stored, changed (mostly: spent) or removed by a transaction that has been committed. It is a hint to look
// again and not a log; of storage.OpChanged the token is not known, and all may have changed.
type Event struct {
	Op storage.Op
	token.ID
}

// Subscribe has callback called for every event, or for those of the operations given, until the function returned is called. See
// [storage.Notifier.Subscribe].
func (s *Store) Subscribe(ctx context.Context, ops []storage.Op, callback func(Event)) (func(), error) {
	if callback == nil {
		return nil, fmt.Errorf("subscribing to tokens: no callback: %w", token.ErrEmptyArgument)
	}
	return s.db.Notifier().Subscribe(ctx, s.t.tokens.Name(), []string{"tx_id", "idx"}, ops, func(e storage.Event) {
		out := Event{Op: e.Op}
		if len(e.Key) == 2 {
			out.TxID = e.Key[0]
			if _, err := fmt.Sscan(e.Key[1], &out.Index); err != nil {
				out = Event{Op: storage.OpChanged}
			}
		}
		callback(out)
	})
}
