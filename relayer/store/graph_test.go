package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

var update = flag.Bool("update", false, "write the table of the state graph")

const graphDoc = "../../docs/relayer-states.md"

// specEdges are the edges as the specification words them: from, then its targets.
const specEdges = `
insert → queued
queued → processing | timed_out | failure
processing → tx_in_flight | failure
tx_in_flight → receipt_received | failure
receipt_received → completed | timed_out | failure`

func TestGraphIsTheSpecifications(t *testing.T) {
	t.Parallel()
	for _, k := range fhevm.Kinds {
		want := []string{}
		for line := range strings.Lines(strings.TrimSpace(specEdges)) {
			from, targets, _ := strings.Cut(strings.TrimSpace(line), " → ")
			if k == fhevm.KindInputProof {
				switch from {
				case "insert":
					targets = "processing"
				case "queued":
					continue
				}
			}
			for to := range strings.SplitSeq(targets, " | ") {
				want = append(want, from+" → "+to)
			}
		}
		got := []string{}
		for _, e := range Edges {
			if slices.Contains(e.Kinds, k) {
				from := string(e.From)
				if from == "" {
					from = "insert"
					require.Equal(t, fhevm.FirstState(k), e.To)
				}
				got = append(got, from+" → "+string(e.To))
			}
		}
		require.ElementsMatch(t, want, got, k)
	}
	for _, s := range fhevm.States {
		leaves := slices.ContainsFunc(Edges, func(e Edge) bool { return e.From == s })
		require.Equal(t, s.Final(), !leaves, s)
	}
	require.Panics(t, func() { findEdge(fhevm.KindInputProof, fhevm.StateQueued, fhevm.StateProcessing) })
}

func TestGraphTable(t *testing.T) {
	t.Parallel()
	text := "# The states of a relayer request\n\nGenerated from `relayer/store`; `go test ./relayer/store -run TestGraphTable -update` writes it. " +
		"A trigger in the database refuses every other edge.\n\n" + GraphTable()
	if *update {
		require.NoError(t, os.WriteFile(graphDoc, []byte(text), 0o644))
	}
	have, err := os.ReadFile(graphDoc)
	require.NoError(t, err)
	require.Equal(t, text, string(have), "run the test with -update")
}

// fresh returns a store over an empty database.
func fresh(t testing.TB, db *storage.DB, o Options) *Store {
	t.Helper()
	require.NoError(t, db.Migrate(context.Background(), Domain))
	return New(db, o)
}

// rawInsert inserts a row by hand.
func rawInsert(tx *sql.Tx, k Kind, s State, job int) (id int64, err error) {
	column, value := "", ""
	if k == fhevm.KindUserDecrypt {
		column, value = ", req_type", ", 'unified'"
	}
	hash, now := sha256.Sum256(fmt.Appendf(nil, "%d", job)), "2030-01-02 03:04:05.678"
	err = tx.QueryRow("INSERT INTO "+table(k)+" (ext_job_id, int_job_id, req, req_status, state_since, created_at, updated_at"+column+
		") VALUES ($1, $2, '{}', $3, $4, $5, $6"+value+") RETURNING id", uuid.NewString(), hash[:], string(s), now, now, now).Scan(&id)
	return id, err
}

// path is how a kind gets to a state.
func path(k Kind, to State) []State {
	reach := map[State][]State{fhevm.FirstState(k): {}}
	for range fhevm.States {
		for _, e := range Edges {
			if p, ok := reach[e.From]; ok && e.From != "" && HasEdge(k, e.From, e.To) && reach[e.To] == nil {
				reach[e.To] = append(slices.Clone(p), e.To)
			}
		}
	}
	if p, ok := reach[to]; ok {
		return p
	}
	return nil
}

func setState(tx *sql.Tx, k Kind, id int64, s State) error {
	_, err := tx.Exec("UPDATE "+table(k)+" SET req_status = $1 WHERE id = $2", string(s), id)
	return err
}

// Every pair of states, the insert and the delete, with the database alone to judge.
func TestDatabaseRefusesEveryOtherEdge(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		fresh(t, db, Options{})
		try := func(k Kind, from State, change func(tx *sql.Tx, id int64) error) error {
			tx, err := db.Write().Begin()
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
			id, err := rawInsert(tx, k, fhevm.FirstState(k), 1)
			require.NoError(t, err)
			for _, s := range path(k, from) {
				require.NoError(t, setState(tx, k, id, s))
			}
			return change(tx, id)
		}
		edges := 0
		for _, k := range fhevm.Kinds {
			for _, from := range fhevm.States {
				err := try(k, fhevm.FirstState(k), func(tx *sql.Tx, _ int64) error {
					_, err := rawInsert(tx, k, from, 2)
					return err
				})
				if HasEdge(k, "", from) {
					require.NoError(t, err, "%s begins in %s", k, from)
				} else {
					require.Error(t, err, "%s begins in %s", k, from)
				}
				if k == fhevm.KindInputProof && from == fhevm.StateQueued {
					continue // no input proof gets there: see above
				}
				for _, to := range fhevm.States {
					err := try(k, from, func(tx *sql.Tx, id int64) error { return setState(tx, k, id, to) })
					if from == to || HasEdge(k, from, to) {
						require.NoError(t, err, "%s: %s to %s", k, from, to)
						edges++
					} else {
						require.Error(t, err, "%s: %s to %s", k, from, to)
					}
				}
				err = try(k, from, func(tx *sql.Tx, id int64) error {
					_, err := tx.Exec("DELETE FROM "+table(k)+" WHERE id = $1", id)
					return err
				})
				require.Equal(t, from.Final(), err == nil, "%s: deleted in %s: %v", k, from, err)
			}
		}
		require.Equal(t, 2*(10+7)+7+6, edges)
	})
}

// What a row says once is not said differently later.
func TestDatabaseKeepsRows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		set     string
		final   bool // also refused only where the row is final
		refused bool
		kinds   []Kind
	}{
		{set: "int_job_id = gw_reference_id", refused: true, kinds: fhevm.Kinds},
		{set: `req = '{"other":1}'`, refused: true, kinds: fhevm.Kinds},
		{set: "ext_job_id = 'ffffffff-ffff-4fff-8fff-ffffffffffff'", refused: true, kinds: fhevm.Kinds},
		{set: "created_at = '2031-01-01 00:00:00.000'", refused: true, kinds: fhevm.Kinds},
		{set: "state_since = '2031-01-01 00:00:00.000'", refused: true, kinds: fhevm.Kinds},
		{set: "state_since = '2031-01-01 00:00:00.000', req_status = 'failure'", kinds: fhevm.Kinds},
		{set: "owner_epoch = 4", refused: true, kinds: fhevm.Kinds},
		{set: "owner_epoch = 6", kinds: fhevm.Kinds},
		{set: "req_type = 'user_decrypt'", refused: true, kinds: []Kind{fhevm.KindUserDecrypt}},
		{set: "owner_epoch = 6", final: true, refused: true, kinds: fhevm.Kinds},
		{set: "gw_reference_id = NULL", final: true, kinds: fhevm.Kinds},
		{set: "gw_req_tx_hash = 'x'", final: true, kinds: fhevm.Kinds},
		{set: "err_code = 'x'", final: true, refused: true, kinds: fhevm.Kinds},
		{set: "err_reason = 'x'", final: true, refused: true, kinds: fhevm.Kinds},
		{set: "res = '{}'", final: true, refused: true, kinds: []Kind{fhevm.KindInputProof, fhevm.KindPublicDecrypt}},
		{set: "accepted = (1 = 1)", final: true, refused: true, kinds: []Kind{fhevm.KindInputProof}},
		{set: "resolved_threshold = 3", final: true, refused: true, kinds: []Kind{fhevm.KindUserDecrypt}},
		{set: "gw_consensus_tx_hash = 'x'", final: true, kinds: []Kind{fhevm.KindUserDecrypt}},
	}
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		fresh(t, db, Options{})
		for _, test := range tests {
			for _, k := range test.kinds {
				tx, err := db.Write().Begin()
				require.NoError(t, err)
				id, err := rawInsert(tx, k, fhevm.FirstState(k), 1)
				require.NoError(t, err)
				ref := [32]byte{1}
				_, err = tx.Exec("UPDATE "+table(k)+" SET owner_epoch = 5, gw_reference_id = $1 WHERE id = $2", ref[:], id)
				require.NoError(t, err)
				if test.final {
					require.NoError(t, setState(tx, k, id, fhevm.StateFailure))
				}
				_, err = tx.Exec("UPDATE "+table(k)+" SET "+test.set+" WHERE id = $1", id)
				require.Equal(t, test.refused, err != nil, "%s %s: %v", k, test.set, err)
				require.NoError(t, tx.Rollback())
			}
		}
		// The consensus hash is written once.
		tx, err := db.Write().Begin()
		require.NoError(t, err)
		id, err := rawInsert(tx, fhevm.KindUserDecrypt, fhevm.StateQueued, 1)
		require.NoError(t, err)
		_, err = tx.Exec("UPDATE user_decrypt_req SET gw_consensus_tx_hash = 'x' WHERE id = $1", id)
		require.NoError(t, err)
		_, err = tx.Exec("UPDATE user_decrypt_req SET gw_consensus_tx_hash = 'y' WHERE id = $1", id)
		require.Error(t, err)
		require.NoError(t, tx.Rollback())
	})
}

func TestEpochs(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		s := fresh(t, db, Options{})
		if !strings.HasSuffix(t.Name(), storage.DriverMemory) {
			db = open(t)
		}
		again := New(db, Options{})
		for want := int64(1); want < 7; want += 2 {
			e, err := s.NextEpoch(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, e)
			e, err = again.NextEpoch(t.Context())
			require.NoError(t, err)
			require.Equal(t, want+1, e)
		}
	})
}
