package query_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

// A listing by time, whose rows were written partly by Go's clock and partly by the database's, is walked to its end without a row twice
// or never: what a program reads back of either is exactly what is stored.
func TestPagesByTime(t *testing.T) {
	t.Parallel()
	at := query.NewColumn[storage.Time](tokens, "stored_at")
	by := query.SortBy(at, txID)
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		create(t, db)
		now := time.Now()
		row := func(id string, when query.Assignment) {
			run(t, db, query.InsertInto(tokens).Row(txID.Set(id), idx.Set(0), amount.Set(1), when))
		}
		want := map[string]bool{}
		for i := range 8 {
			for _, id := range []string{"a", "b"} { // equal times
				id = fmt.Sprint(id, i)
				row(id, at.Set(storage.NewTime(now.Add(time.Duration(i)*1234567*time.Nanosecond))))
				row("db"+id, at.SetNow(time.Duration(i)*1234567*time.Nanosecond))
				want[id], want["db"+id] = true, true
			}
		}
		type item struct {
			at storage.Time
			id string
		}
		for _, order := range []query.Sort[storage.Time, string]{by, by.Desc()} {
			seen := map[string]bool{}
			var last *item
			for p := query.KeysetPage(0, 3); p.Strategy() != query.Empty; {
				text, args, err := query.Select(at, txID).From(tokens).Paginate(order, overTheWire(t, p)).Format(query.For(db.Backend()))
				require.NoError(t, err)
				rows, err := db.Read().QueryContext(t.Context(), text, args...)
				require.NoError(t, err)
				var items []item
				for rows.Next() {
					var i item
					require.NoError(t, rows.Scan(&i.at, &i.id))
					require.False(t, seen[i.id], "%s twice", i.id)
					seen[i.id] = true
					items = append(items, i)
				}
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
				for i := range items {
					if last != nil && order == by {
						require.False(t, items[i].at.Before(last.at.Time))
					}
					last = &items[i]
				}
				p = query.NewPage(order, p, items, func(i item) (storage.Time, string) { return i.at, i.id }).Next
			}
			require.Equal(t, want, seen)
		}

		// A bound time meets the database's own.
		later := storage.NewTime(now.Add(time.Hour))
		require.Len(t, read[string](t, db, query.Select(txID).From(tokens).Where(at.Between(nil, &later))), len(want))
		require.Empty(t, read[string](t, db, query.Select(txID).From(tokens).Where(at.Between(&later, nil))))
	})
}
