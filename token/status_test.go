package token

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

func TestChange(t *testing.T) {
	t.Parallel()
	allowed := map[TxStatus][]TxStatus{Pending: {Pending, Confirmed, Deleted, Orphan}, Confirmed: {Confirmed}, Deleted: {Deleted}, Orphan: {Orphan, Confirmed, Deleted}}
	for from := Unknown; from <= Orphan; from++ {
		for to := Unknown; to <= Orphan+1; to++ {
			write, err := Change(from, to)
			switch {
			case to == Unknown || to > Orphan:
				require.ErrorIs(t, err, ErrStatus)
			case from == Unknown:
				require.ErrorIs(t, err, ErrUnknownTransaction)
			default:
				ok := false
				for _, s := range allowed[from] {
					ok = ok || s == to
				}
				if ok {
					require.NoError(t, err, "%s %s", from, to)
				} else {
					require.ErrorIs(t, err, ErrAlreadyFinal, "%s %s", from, to)
				}
				require.Equal(t, ok && from != to, write)
			}
		}
	}
}

// The database holds the same line against whoever does not ask Change.
func TestStatusGuardsInTheDatabase(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), Tables("")))
		exec := func(text string, args ...any) error {
			_, err := db.Write().ExecContext(t.Context(), text, args...)
			return err
		}
		columns := map[string]string{"requests": "application_metadata, public_metadata, ", "aud_requests": "application_metadata, public_metadata, ", "req_vals": "metadata, "}
		values := map[string]string{"requests": "'{}', '{}', ", "aud_requests": "'{}', '{}', ", "req_vals": "$2, "}
		for table, more := range columns {
			for from := Pending; from <= Orphan; from++ {
				for to := Pending; to <= Orphan; to++ {
					id := from.String() + to.String()
					require.NoError(t, exec("INSERT INTO "+table+" (tx_id, request, pp_hash, status, "+more+"stored_at) VALUES ($1, $2, $2, $3, "+values[table]+"'2026-01-01 00:00:00.000')", id, []byte("r"), int(from)), table)
					_, want := Change(from, to)
					err := exec("UPDATE "+table+" SET status = $1 WHERE tx_id = $2", int(to), id)
					require.Equal(t, want == nil, err == nil, "%s: %s to %s: %v", table, from, to, err)
					if want != nil {
						require.ErrorContains(t, err, "no such change")
					}
				}
			}
			require.ErrorContains(t, exec("UPDATE "+table+" SET request = $1", []byte("other")), "may not be overwritten")
			require.NoError(t, exec("UPDATE "+table+" SET request = $1", []byte("r")))
			require.ErrorContains(t, exec("DELETE FROM "+table+" WHERE status = 1"), "may not be removed")
			require.NoError(t, exec("DELETE FROM "+table+" WHERE status <> 1"))
			require.Error(t, exec("UPDATE "+table+" SET status = 0"), table)
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Orphan", Orphan.String())
	require.Equal(t, "TxStatus(9)", TxStatus(9).String())
	require.Equal(t, "Redeem", Redeem.String())
	require.Equal(t, "Auditor", AuditorRole.String())
	require.Equal(t, "[tx:3]", ID{"tx", 3}.String())
	require.False(t, Pending.Final())
	require.True(t, Orphan.Final())
}
