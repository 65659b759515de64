package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"dongate/relayer/fhevm"
	"dongate/storage"
)

// Hash is 32 bytes: a content hash, a block's or transaction's hash, or a reference id as the gateway contract counts it (big-endian).
type Hash = [32]byte

// Job is a request as it is stored. What is not known yet is zero.
type Job struct {
	ID           int64 // orders requests of a kind by age
	Kind         Kind
	ExtJobID     string // a UUID, what clients call it
	IntJobID     Hash   // of its content
	Request      []byte // JSON with the members it was inserted with; PostgreSQL does not keep their order
	ReqType      string // user_decrypt only: user_decrypt, delegated_user_decrypt or unified
	State        State
	StateSince   time.Time // when it entered the state
	Created      time.Time
	OwnerEpoch   int64 // 0: never claimed
	Reference    *Hash // nil before the receipt
	TxHash       string
	ResponseHash string // hash of the transaction with the response; user_decrypt: of the consensus
	Result       []byte // JSON; nil for user_decrypt, whose result is its shares
	Accepted     *bool  // input_proof only
	Threshold    int64  // user_decrypt only, once completed
	ErrCode      string
	ErrReason    string
}

// columns are what scanJob reads.
func columns(k Kind) string {
	const common = "id, ext_job_id, int_job_id, req, req_status, state_since, created_at, owner_epoch, gw_reference_id, gw_req_tx_hash, err_code, err_reason, "
	switch k {
	case fhevm.KindInputProof:
		return common + "NULL, gw_response_tx_hash, res, accepted, NULL"
	case fhevm.KindPublicDecrypt:
		return common + "NULL, gw_response_tx_hash, res, NULL, NULL"
	default:
		return common + "req_type, gw_consensus_tx_hash, NULL, NULL, resolved_threshold"
	}
}

func scanJob(k Kind) func(*sql.Rows) (Job, error) {
	return func(rows *sql.Rows) (Job, error) {
		j := Job{Kind: k}
		var (
			since, created                             storage.Time
			hash, reference                            []byte
			request                                    string
			txHash, code, reason, reqType, response, r sql.Null[string]
			accepted                                   sql.Null[bool]
			threshold                                  sql.Null[int64]
		)
		err := rows.Scan(&j.ID, &j.ExtJobID, &hash, &request, &j.State, &since, &created, &j.OwnerEpoch, &reference, &txHash, &code, &reason,
			&reqType, &response, &r, &accepted, &threshold)
		if err != nil {
			return j, err
		}
		j.IntJobID, j.Request = Hash(hash), []byte(request)
		j.StateSince, j.Created = since.Time, created.Time
		if reference != nil {
			ref := Hash(reference)
			j.Reference = &ref
		}
		j.TxHash, j.ErrCode, j.ErrReason, j.ReqType, j.ResponseHash = txHash.V, code.V, reason.V, reqType.V, response.V
		if r.Valid {
			j.Result = []byte(r.V)
		}
		if accepted.Valid {
			j.Accepted = &accepted.V
		}
		j.Threshold = threshold.V
		return j, nil
	}
}

func (s *Store) jobs(ctx context.Context, q storage.Querier, k Kind, where string, args ...any) ([]Job, error) {
	jobs, err := storage.Collect(storage.Query(ctx, q, scanJob(k), "SELECT "+columns(k)+" FROM "+table(k)+" WHERE "+where, args...))
	if err != nil {
		return nil, fmt.Errorf("reading requests of %s: %w", k, err)
	}
	return jobs, nil
}

func (s *Store) job(ctx context.Context, q storage.Querier, k Kind, where string, args ...any) (Job, error) {
	jobs, err := s.jobs(ctx, q, k, where, args...)
	if err != nil {
		return Job{}, err
	}
	if len(jobs) == 0 {
		return Job{}, ErrNotFound
	}
	return jobs[0], nil
}

// Job returns a request by what its client calls it, or ErrNotFound. The id must be a UUID in lower case.
func (s *Store) Job(ctx context.Context, k Kind, extJobID string) (Job, error) {
	return s.job(ctx, s.db.Read(), k, "ext_job_id = $1", extJobID)
}

// JobByID returns a request by its row, or ErrNotFound.
func (s *Store) JobByID(ctx context.Context, k Kind, id int64) (Job, error) {
	return s.job(ctx, s.db.Read(), k, "id = $1", id)
}

// JobByReference returns the request that the gateway contract knows by this id, the one that waits for an answer or else the newest, or ErrNotFound.
func (s *Store) JobByReference(ctx context.Context, k Kind, ref Hash) (Job, error) {
	return s.job(ctx, s.db.Read(), k, "gw_reference_id = $1 ORDER BY CASE WHEN req_status = 'receipt_received' THEN 0 ELSE 1 END, id DESC LIMIT 1", ref[:])
}

// List returns up to limit requests in a state, oldest first, of those with an id above after.
func (s *Store) List(ctx context.Context, k Kind, state State, after int64, limit int) ([]Job, error) {
	if err := storage.CheckPage(limit); err != nil {
		return nil, err
	}
	return s.jobs(ctx, s.db.Read(), k, isState(state, "$1")+" AND id > $2 ORDER BY id LIMIT $3", string(state), after, limit)
}

const live = "req_status NOT IN ('failure', 'timed_out')"

// Find returns the job id of the live or completed request with this content, or ErrNotFound. [Store.Insert] finds it too, so this is for those who
// would not insert one, because the queue is full.
func (s *Store) Find(ctx context.Context, k Kind, intJobID Hash) (extJobID string, err error) {
	err = s.db.Read().QueryRowContext(ctx, "SELECT ext_job_id FROM "+table(k)+" WHERE int_job_id = $1 AND "+live, intJobID[:]).Scan(&extJobID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", ErrNotFound
	case err != nil:
		return "", fmt.Errorf("looking for a request of %s: %w", k, err)
	}
	return extJobID, nil
}

// NewJob is a request to be inserted.
type NewJob struct {
	Kind     Kind
	ExtJobID string // a UUID in lower case
	IntJobID Hash
	Request  []byte // JSON, at most storage.MaxPayload bytes
	ReqType  string // user_decrypt only
}

// insertAttempts is how often Insert looks again when the row that refused it was gone a moment later.
const insertAttempts = 8

// Insert stores a request, unclaimed and in the first state of its kind, and returns its job id and true. Where a live or completed one has the
// same content it returns that one's job id and false. It has been stored durably when Insert returns.
func (s *Store) Insert(ctx context.Context, j NewJob) (extJobID string, inserted bool, err error) {
	if err := storage.CheckPayload("the request", j.Request); err != nil {
		return "", false, err
	}
	now := s.now()
	columns, values := "ext_job_id, int_job_id, req, req_status, state_since, created_at, updated_at", "$1, $2, $3, '"+string(fhevm.FirstState(j.Kind))+"', $4, $5, $6"
	args := []any{j.ExtJobID, j.IntJobID[:], string(j.Request), now, now, now}
	if j.Kind == fhevm.KindUserDecrypt {
		columns, values, args = columns+", req_type", values+", $7", append(args, j.ReqType)
	}
	query := "INSERT INTO " + table(j.Kind) + " (" + columns + ") VALUES (" + values + ") ON CONFLICT (int_job_id) WHERE " + live + " DO NOTHING"
	for range insertAttempts {
		n, err := s.insert(ctx, j.Kind, query, args...)
		if err != nil {
			return "", false, fmt.Errorf("inserting a request of %s: %w", j.Kind, err)
		}
		if n == 1 {
			return j.ExtJobID, true, nil
		}
		existing, err := s.Find(ctx, j.Kind, j.IntJobID)
		if err == nil || !errors.Is(err, ErrNotFound) { // else it has just failed, so that there is room for another
			return existing, false, err
		}
	}
	return "", false, fmt.Errorf("inserting a request of %s: others with its content come and go", j.Kind)
}

// insert runs the statement that inserts requests of a kind and returns how many rows it inserted. SQLite would translate its text every time, which
// takes as long as the rest before the disk is waited for; the PostgreSQL driver remembers statements by itself.
func (s *Store) insert(ctx context.Context, k Kind, query string, args ...any) (n int64, err error) {
	if s.postgres() {
		return exec(ctx, s.db.Write(), query, args...)
	}
	prepared, err := s.prepared(ctx, k, query)
	if err != nil {
		return 0, err
	}
	err = storage.RunInTx(ctx, s.db.Write(), func(ctx context.Context, tx *sql.Tx) error {
		r, err := tx.StmtContext(ctx, prepared).ExecContext(ctx, args...)
		if err == nil {
			n, err = r.RowsAffected()
		}
		return err
	})
	return n, err
}

// prepared returns the statement that inserts requests of a kind, which goes with the database.
func (s *Store) prepared(ctx context.Context, k Kind, query string) (*sql.Stmt, error) {
	if known, ok := s.inserts.Load(k); ok {
		return known.(*sql.Stmt), nil
	}
	mine, err := s.db.Write().PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if theirs, loaded := s.inserts.LoadOrStore(k, mine); loaded {
		return theirs.(*sql.Stmt), mine.Close()
	}
	return mine, nil
}
