package storage_test

import (
	"database/sql"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// values is a domain with one table of all column types.
func values() storage.Domain {
	return domain(1, "CREATE TABLE v (id INTEGER PRIMARY KEY, at {{.Time}}, amount {{.Amount}}, movement {{.Movement}});")
}

func TestTimes(t *testing.T) {
	t.Parallel()
	moments := []time.Time{ // in their order
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999e6, time.UTC),
		time.Unix(0, 0),
		time.Date(2026, 3, 29, 2, 30, 0, 123456789, time.FixedZone("east", 5*3600+1800)),
		time.Date(2026, 3, 28, 21, 0, 0, 124e6, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	}
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), values()))
		for i, at := range moments {
			execute(t, db, "INSERT INTO v (id, at) VALUES ($1, $2)", i, storage.NewTime(at))
			got := scan[storage.Time](t, db, "SELECT at FROM v WHERE id = $1", i)
			require.True(t, at.Truncate(time.Millisecond).Equal(got.Time), "%s %s", at, got)
			require.Equal(t, storage.NewTime(at), got)
			require.Equal(t, i+1, scan[int](t, db, "SELECT count(*) FROM v WHERE at <= $1", storage.NewTime(at)), "order")
		}
		if db.Backend() == storage.SQLite {
			require.Equal(t, "2026-03-28 21:00:00.123", scan[string](t, db, "SELECT at FROM v WHERE id = 3"))
		}
		require.Error(t, db.Read().QueryRow("SELECT at FROM v WHERE id = 0 UNION ALL SELECT NULL ORDER BY 1 DESC LIMIT 1 OFFSET "+
			map[storage.Backend]string{storage.SQLite: "1", storage.Postgres: "0"}[db.Backend()]).Scan(new(storage.Time)), "NULL")

		execute(t, db, "INSERT INTO v (id, at) VALUES (100, $1), (101, $2)", sql.Null[storage.Time]{}, sql.Null[storage.Time]{V: storage.NewTime(moments[2]), Valid: true})
		require.False(t, scan[sql.Null[storage.Time]](t, db, "SELECT at FROM v WHERE id = 100").Valid)
		require.Equal(t, storage.NewTime(moments[2]), scan[sql.Null[storage.Time]](t, db, "SELECT at FROM v WHERE id = 101").V)

		for _, year := range []int{-5, 0, 10000} {
			_, err := db.Write().ExecContext(t.Context(), "INSERT INTO v (id, at) VALUES (99, $1)", storage.NewTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)))
			require.ErrorContains(t, err, "not in the years")
		}
	})
}

func TestTimeScanRefuses(t *testing.T) {
	t.Parallel()
	for _, src := range []any{nil, 5, 1.5, "", "2026-01-02", "2026-01-02 03:04:05", "2026-01-02 03:04:05.1234", "2026-01-02T03:04:05.123",
		"2026-13-02 03:04:05.123", []byte("2026-01-02 03:04:05,123")} {
		at := storage.NewTime(time.Unix(7, 0))
		require.Error(t, at.Scan(src), src)
		require.Equal(t, storage.NewTime(time.Unix(7, 0)), at, "nothing is changed")
	}
}

// Text order is time order.
func TestTimeTextOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Custom(func(t *rapid.T) storage.Time {
			return storage.NewTime(time.UnixMilli(rapid.Int64Range(-62135596800000, 253402300799999).Draw(t, "ms")))
		})
		a, b := moment.Draw(t, "a"), moment.Draw(t, "b")
		texts := [2]string{}
		for i, m := range []storage.Time{a, b} {
			v, err := m.Value()
			require.NoError(t, err)
			texts[i] = v.(string)
			require.Len(t, texts[i], 23)
			var back storage.Time
			require.NoError(t, back.Scan(v))
			require.Equal(t, m, back)
		}
		require.Equal(t, a.Compare(b.Time), strings.Compare(texts[0], texts[1]))
	})
}

// edges are numbers in their order around every boundary.
func edges() []*big.Int {
	one := big.NewInt(1)
	all := []*big.Int{big.NewInt(0), one, big.NewInt(255), big.NewInt(256)}
	for _, bits := range []uint{53, 63, 64, 128, 255} {
		v := new(big.Int).Lsh(one, bits)
		all = append(all, new(big.Int).Sub(v, one), v, new(big.Int).Add(v, one))
	}
	return append(all, new(big.Int).Sub(new(big.Int).Lsh(one, 256), one))
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), values()))
		for i, v := range edges() {
			amount, err := storage.NewAmount(v)
			require.NoError(t, err)
			require.Equal(t, v.String(), amount.String())
			execute(t, db, "INSERT INTO v (id, amount) VALUES ($1, $2)", i, amount.Bind(db.Backend()))
			require.Equal(t, amount, scan[storage.Amount](t, db, "SELECT amount FROM v WHERE id = $1", i))
			require.Equal(t, i+1, scan[int](t, db, "SELECT count(*) FROM v WHERE amount <= $1", amount.Bind(db.Backend())), "order of %s", v)
			require.Equal(t, amount, scan[storage.Amount](t, db, "SELECT amount FROM v ORDER BY amount DESC LIMIT 1"))
		}
	})
	require.Equal(t, "18446744073709551615", storage.Uint64Amount(1<<64-1).String())
	require.Equal(t, storage.Amount{}, storage.Uint64Amount(0))
	for _, v := range []*big.Int{nil, big.NewInt(-1), new(big.Int).Lsh(big.NewInt(1), 256)} {
		_, err := storage.NewAmount(v)
		require.ErrorIs(t, err, storage.ErrAmountRange)
	}
	for _, src := range []any{nil, int64(5), 1.5, "", "1.0", "1e3", "NaN", "-1", "x", strings.Repeat("9", 78), strings.Repeat("0", 1e6), []byte("12"), make([]byte, 33)} {
		amount := storage.Uint64Amount(7)
		require.Error(t, amount.Scan(src), "%.20v", src)
		require.Equal(t, storage.Uint64Amount(7), amount, "nothing is changed")
	}
}

func TestMovements(t *testing.T) {
	t.Parallel()
	var all []*big.Int
	for _, v := range edges() {
		all = append(all, v)
		if v.Sign() > 0 {
			all = append([]*big.Int{new(big.Int).Neg(v)}, all...)
		}
	}
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), values()))
		for i, v := range all {
			movement, err := storage.NewMovement(v)
			require.NoError(t, err)
			require.Equal(t, v.String(), movement.String())
			execute(t, db, "INSERT INTO v (id, movement) VALUES ($1, $2)", i, movement.Bind(db.Backend()))
			require.Equal(t, movement, scan[storage.Movement](t, db, "SELECT movement FROM v WHERE id = $1", i))
			require.Equal(t, i+1, scan[int](t, db, "SELECT count(*) FROM v WHERE movement <= $1", movement.Bind(db.Backend())), "order of %s", v)
		}
	})
	limit := new(big.Int).Lsh(big.NewInt(1), 256)
	for _, v := range []*big.Int{nil, limit, new(big.Int).Neg(limit)} {
		_, err := storage.NewMovement(v)
		require.ErrorIs(t, err, storage.ErrAmountRange)
	}
	for _, src := range []any{nil, int64(5), 1.5, "1.5", strings.Repeat("9", 78), []byte{1}, make([]byte, 32), append([]byte{2}, make([]byte, 32)...)} {
		require.Error(t, new(storage.Movement).Scan(src), "%.20v", src)
	}
}

func TestGuards(t *testing.T) {
	t.Parallel()
	for rows, ok := range map[int]bool{-1: false, 0: false, 1: true, 1000: true, 1001: false} {
		require.Equal(t, ok, storage.CheckPage(rows) == nil, rows)
	}
	require.ErrorIs(t, storage.CheckPage(0), storage.ErrPageSize)
	require.NoError(t, storage.CheckPayload("request", make([]byte, 4<<20)))
	err := storage.CheckPayload("request", make([]byte, 4<<20+1))
	require.ErrorIs(t, err, storage.ErrPayloadSize)
	require.ErrorContains(t, err, "request has 4194305 bytes, at most 4194304")
}

// Each chunk is a statement that both backends take, with other parameters beside it.
func TestChunks(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		for _, params := range []int{0, 1, 2, 400, 600} {
			values := make([]int, 1003)
			sizes := map[int]int{0: 500, 1: 500, 2: 250, 400: 1, 600: 1}
			if params >= 400 {
				values = values[:3]
			}
			for i := range values {
				values[i] = i
			}
			var got []int
			for chunk := range storage.Chunks(values, params) {
				require.LessOrEqual(t, len(chunk), sizes[params])
				got = append(got, chunk...)
				var list strings.Builder
				var args []any
				for range len(chunk)*params + 100 {
					args = append(args, 1)
					fmt.Fprintf(&list, ", $%d", len(args))
				}
				require.Equal(t, 1, scan[int](t, db, "SELECT CASE WHEN 1 IN ("+list.String()[2:]+") THEN 1 ELSE 0 END", args...))
			}
			require.Equal(t, values, got)
		}
		for range storage.Chunks([]int(nil), 1) {
			t.Fatal("no values, no part")
		}
	})
}

func TestQuery(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
		for i := range 5 {
			execute(t, db, "INSERT INTO t (id) VALUES ($1)", i)
		}
		query := func(sql string, args ...any) ([]int, error) {
			return storage.Collect(storage.Query(t.Context(), db.Read(), storage.Column[int], sql, args...))
		}
		all, err := query("SELECT id FROM t ORDER BY id")
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 2, 3, 4}, all)
		none, err := query("SELECT id FROM t WHERE id > $1", 100)
		require.NoError(t, err)
		require.Empty(t, none)

		_, err = query("SELECT nonsense")
		require.ErrorContains(t, err, "nonsense")
		some, err := query("SELECT CASE id WHEN 3 THEN 'three' ELSE cast(id AS TEXT) END AS v FROM t ORDER BY id")
		require.ErrorContains(t, err, "three")
		require.Equal(t, []int{0, 1, 2}, some)

		// A failure between two rows: the driver's, which ends the rows early.
		divide := "SELECT 6 / (3 - id) FROM t ORDER BY id"
		if db.Backend() == storage.SQLite {
			divide = "SELECT CASE id WHEN 3 THEN json('{') ELSE id END FROM t ORDER BY id"
		}
		some, err = query(divide)
		require.Error(t, err)
		require.Len(t, some, 3)

		for v, err := range storage.Query(t.Context(), db.Read(), storage.Column[int], "SELECT id FROM t ORDER BY id") {
			require.NoError(t, err)
			if v == 1 {
				break
			}
		}
		require.Panics(t, func() {
			for range storage.Query(t.Context(), db.Read(), storage.Column[int], "SELECT id FROM t") {
				panic("oops")
			}
		})
		require.Zero(t, db.Read().Stats().InUse, "no loop keeps its connection")
	})
}
