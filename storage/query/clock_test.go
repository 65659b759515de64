package query_test

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

var (
	clocks   = query.NewTable("clocks")
	clockK   = query.NewColumn[int](clocks, "k")
	clockNow = query.NewColumn[string](clocks, "now")
	clockAt  = query.NewColumn[string](clocks, "at")
)

func createClocks(t *testing.T, db *storage.DB) {
	ddl := `CREATE TABLE clocks (k INTEGER PRIMARY KEY, now TEXT, at TEXT)`
	if db.Backend() == storage.Postgres {
		ddl = `CREATE TABLE clocks (k INTEGER PRIMARY KEY, now TIMESTAMPTZ, at TIMESTAMPTZ)`
	}
	_, err := db.Write().ExecContext(t.Context(), ddl)
	require.NoError(t, err)
}

var fixedWidth = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$`)

// parseTime reads a time as the backend returns it in a string.
func parseTime(t require.TestingT, b storage.Backend, text string) time.Time {
	layout := time.RFC3339Nano
	if b == storage.SQLite {
		require.Regexp(t, fixedWidth, text)
		layout = "2006-01-02 15:04:05.000"
	}
	at, err := time.Parse(layout, text)
	require.NoError(t, err)
	require.Zero(t, at.Nanosecond()%1e6, "whole milliseconds: %s", text)
	return at
}

// An offset moves the database's clock by itself, to the millisecond, as far as a Duration reaches, and always in the one form whose text
// order is time order.
func TestOffsetsMoveTheDatabasesClock(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		createClocks(t, db)
		in := query.For(db.Backend())
		var rows int
		check := func(t require.TestingT, d time.Duration) {
			rows++
			text, args, err := query.InsertInto(clocks).Row(clockK.Set(rows), clockNow.SetNow(0), clockAt.SetNow(d)).Format(in)
			require.NoError(t, err)
			_, err = db.Write().Exec(text, args...)
			require.NoError(t, err)
			text, args, err = query.Select(clockNow, clockAt).From(clocks).Where(clockK.Eq(rows)).Format(in)
			require.NoError(t, err)
			var now, at string
			require.NoError(t, db.Read().QueryRow(text, args...).Scan(&now, &at))
			before, after := parseTime(t, db.Backend(), now), parseTime(t, db.Backend(), at)
			require.InDelta(t, float64(d)/1e6, float64(after.UnixMilli()-before.UnixMilli()), 1, "%s: %s, %s", d, now, at)
		}
		began := time.Now()
		for _, d := range []time.Duration{0, 1, -1, time.Microsecond, time.Millisecond, -time.Millisecond, 999999999, time.Second, 90 * time.Minute, -36 * time.Hour, math.MaxInt64, math.MinInt64} {
			check(t, d)
		}
		rapid.Check(t, func(t *rapid.T) {
			check(t, time.Duration(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-5e9, 5e9)).Draw(t, "offset")))
		})
		now := read[string](t, db, query.Select(clockNow).From(clocks).Where(clockK.Eq(1)))
		require.WithinDuration(t, began, parseTime(t, db.Backend(), now[0]), time.Minute)

		// The order of the column is the order of the offsets, for which text order has to be time order on SQLite.
		_, err := db.Write().ExecContext(t.Context(), "DELETE FROM clocks")
		require.NoError(t, err)
		var values [][]query.Assignment
		var want []int
		for k := range 200 {
			values = append(values, []query.Assignment{clockK.Set(k), clockAt.SetNow(time.Duration(k*k)*33*time.Millisecond - 100*time.Second)})
			want = append(want, k)
		}
		run(t, db, query.InsertInto(clocks).Rows(values...))
		require.Equal(t, want, read[int](t, db, query.Select(clockK).From(clocks).OrderBy(clockAt.Asc(), clockK.Asc())))
	})
}

// Each time is on one side of a moment, and on the right one.
func TestConditionsOnTimes(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		createClocks(t, db)
		var values [][]query.Assignment
		for k, d := range []time.Duration{-time.Hour, -10 * time.Minute, 10 * time.Minute, time.Hour} {
			values = append(values, []query.Assignment{clockK.Set(k), clockAt.SetNow(d)})
		}
		run(t, db, query.InsertInto(clocks).Rows(append(values, []query.Assignment{clockK.Set(4), clockAt.SetNull()})...))
		for name, c := range map[string]struct {
			cond, other query.Cond
			want, rest  []int
		}{
			"now":         {query.InPast(clockAt), query.InFuture(clockAt), []int{0, 1}, []int{2, 3}},
			"half an ago": {query.OlderThan(clockAt, 30*time.Minute), query.NewerThan(clockAt, 30*time.Minute), []int{0}, []int{1, 2, 3}},
			"half an on":  {query.BeforeNext(clockAt, 30*time.Minute), query.AfterNext(clockAt, 30*time.Minute), []int{0, 1, 2}, []int{3}},
			"far ago":     {query.OlderThan(clockAt, math.MaxInt64), query.NewerThan(clockAt, math.MaxInt64), nil, []int{0, 1, 2, 3}},
		} {
			require.Equal(t, c.want, read[int](t, db, query.Select(clockK).From(clocks).Where(c.cond).OrderBy(clockK.Asc())), name)
			require.Equal(t, c.rest, read[int](t, db, query.Select(clockK).From(clocks).Where(c.other).OrderBy(clockK.Asc())), name)
			require.Equal(t, c.rest, read[int](t, db, query.Select(clockK).From(clocks).Where(query.Not(c.cond)).OrderBy(clockK.Asc())), name)
		}
	})
}
