package query_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

var (
	entries = query.NewTable("entries")
	entryAt = query.NewColumn[int64](entries, "at")
	entryID = query.NewColumn[string](entries, "id")
	entryNo = query.NewColumn[[]byte](entries, "no")
	entryTo = query.NewColumn[stamp](entries, "upto")
)

// stamp is a time as a column holds it.
type stamp struct{ time.Time }

type entry struct {
	at int64
	id string
	no []byte
}

func createEntries(t *testing.T, db *storage.DB) {
	ddl := `CREATE TABLE entries (at BIGINT NOT NULL, id TEXT NOT NULL PRIMARY KEY, no BLOB NOT NULL, upto TEXT)`
	if db.Backend() == storage.Postgres {
		ddl = `CREATE TABLE entries (at BIGINT NOT NULL, id TEXT COLLATE "C" NOT NULL PRIMARY KEY, no BYTEA NOT NULL, upto TEXT)`
	}
	_, err := db.Write().ExecContext(t.Context(), ddl)
	require.NoError(t, err)
}

// page reads one page of entries as a store does.
func page[K, I any](t require.TestingT, db *storage.DB, by query.Sort[K, I], p query.Pagination, key func(entry) (K, I)) query.Page[entry] {
	text, args, err := query.Select(entryAt, entryID, entryNo).From(entries).Paginate(by, p).Format(query.For(db.Backend()))
	require.NoError(t, err)
	rows, err := db.Read().Query(text, args...)
	require.NoError(t, err, text)
	defer rows.Close()
	var items []entry
	for rows.Next() {
		var e entry
		require.NoError(t, rows.Scan(&e.at, &e.id, &e.no))
		items = append(items, e)
	}
	require.NoError(t, rows.Err())
	return query.NewPage(by, p, items, key)
}

// overTheWire sends a page out as JSON and takes it back.
func overTheWire(t require.TestingT, p query.Pagination) query.Pagination {
	data, err := json.Marshal(p)
	require.NoError(t, err)
	back, err := query.ParsePagination(data)
	require.NoError(t, err, string(data))
	again, err := json.Marshal(back)
	require.NoError(t, err)
	require.Equal(t, string(data), string(again))
	return back
}

func put(t require.TestingT, db *storage.DB, es []entry) {
	var rows [][]query.Assignment
	for _, e := range es {
		rows = append(rows, []query.Assignment{entryAt.Set(e.at), entryID.Set(e.id), entryNo.Set(e.no)})
	}
	if len(rows) == 0 {
		return
	}
	text, args, err := query.InsertInto(entries).Rows(rows...).Format(query.For(db.Backend()))
	require.NoError(t, err)
	_, err = db.Write().Exec(text, args...)
	require.NoError(t, err)
}

func clearEntries(t require.TestingT, db *storage.DB) {
	text, args, err := query.DeleteFrom(entries).Where(query.Everything()).Format(query.For(db.Backend()))
	require.NoError(t, err)
	_, err = db.Write().Exec(text, args...)
	require.NoError(t, err)
}

// drawEntries returns entries with many equal keys.
func drawEntries(t *rapid.T) []entry {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Zäß"\\' ]{0,4}`), 0, 25, rapid.ID[string]).Draw(t, "ids")
	var es []entry
	for i, id := range ids {
		es = append(es, entry{at: rapid.Int64Range(-2, 2).Draw(t, "at"), id: id, no: []byte{byte(i >> 4), byte(i)}})
	}
	return es
}

func walk[K, I any](t *rapid.T, db *storage.DB, by query.Sort[K, I], first query.Pagination, want []entry, key func(entry) (K, I)) {
	var got []entry
	pages := 0
	for p := first; p.Strategy() != query.Empty; {
		q := page(t, db, by, p, key)
		got = append(got, q.Items...)
		if p.Offset() == 0 {
			require.Equal(t, query.Empty, q.Prev.Strategy())
		} else {
			require.Equal(t, p.Offset()-p.Size(), q.Prev.Offset())
			before := page(t, db, by, overTheWire(t, q.Prev), key)
			require.Equal(t, want[q.Prev.Offset():p.Offset()], before.Items)
		}
		p = overTheWire(t, q.Next)
		pages++
		require.LessOrEqual(t, pages, len(want)+1)
	}
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
	require.Empty(t, page(t, db, by, query.EmptyPage(), key).Items)
}

// Walking forward page by page, with every cursor going out and coming back, gives what sorting in Go gives, ties included; so does every
// page before the one just read.
func TestPagesTogetherAreTheListing(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		createEntries(t, db)
		rapid.Check(t, func(t *rapid.T) {
			clearEntries(t, db)
			es := drawEntries(t)
			put(t, db, es)
			backwards := rapid.Bool().Draw(t, "backwards")
			size := rapid.IntRange(1, 6).Draw(t, "size")
			start := query.KeysetPage
			if rapid.Bool().Draw(t, "by offset") {
				start = query.OffsetPage
			}
			order := func(compare func(a, b entry) int) []entry {
				sorted := slices.Clone(es)
				slices.SortFunc(sorted, compare)
				if backwards {
					slices.Reverse(sorted)
				}
				return sorted
			}
			byAt, byID, byNo := query.SortBy(entryAt, entryID), query.SortByID(entryID), query.SortBy(entryAt, entryNo)
			if backwards {
				byAt, byID, byNo = byAt.Desc(), byID.Desc(), byNo.Desc()
			}
			walk(t, db, byAt, start(0, size), order(func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }),
				func(e entry) (int64, string) { return e.at, e.id })
			walk(t, db, byID, start(0, size), order(func(a, b entry) int { return cmp.Compare(a.id, b.id) }),
				func(e entry) (string, string) { return e.id, e.id })
			walk(t, db, byNo, start(0, size), order(func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), slices.Compare(a.no, b.no)) }),
				func(e entry) (int64, []byte) { return e.at, e.no })
		})
	})
}

// Rows that come and go before the place reached neither repeat nor hide others; counting rows would do both.
func TestKeysetPagesStandStillWhileRowsComeAndGo(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		createEntries(t, db)
		var es []entry
		for i := range 12 {
			es = append(es, entry{at: int64(i / 4), id: string(rune('b' + i)), no: []byte{byte(i)}})
		}
		put(t, db, es)
		by, key := query.SortBy(entryAt, entryID), func(e entry) (int64, string) { return e.at, e.id }
		var seen []string
		p := query.KeysetPage(0, 5)
		for n := 0; p.Strategy() != query.Empty; n++ {
			q := page(t, db, by, p, key)
			for _, e := range q.Items {
				seen = append(seen, e.id)
			}
			p = q.Next
			if n == 0 {
				put(t, db, []entry{{at: 0, id: "a", no: []byte("x")}, {at: -1, id: "z", no: []byte("y")}})
				run(t, db, query.DeleteFrom(entries).Where(entryID.In("b", "c", "d", "f")))
			}
		}
		require.Equal(t, "b c d e f g h i j k l m", strings.Join(seen, " "))
	})
}

func TestPagesOfTheStrategies(t *testing.T) {
	t.Parallel()
	require.Equal(t, query.Unbounded, query.Pagination{}.Strategy())
	for _, p := range []query.Pagination{{}, query.EmptyPage()} {
		require.Equal(t, query.EmptyPage(), p.Next())
		require.Equal(t, query.EmptyPage(), p.Prev())
		require.Equal(t, query.EmptyPage(), p.At(0))
	}
	for _, p := range []query.Pagination{query.OffsetPage(5, 10), query.KeysetPage(5, 10)} {
		require.EqualValues(t, 15, p.Next().Offset())
		require.EqualValues(t, 10, p.Next().Size())
		require.Equal(t, query.EmptyPage(), p.Prev(), "before the first page")
		require.EqualValues(t, 5, p.Next().Prev().Offset())
		require.EqualValues(t, 100, p.At(100).Offset())
		require.Equal(t, p.Strategy(), p.At(100).Strategy())
		require.Equal(t, query.EmptyPage(), p.At(-1))
		require.Equal(t, query.EmptyPage(), p.At(1<<53))
		require.Equal(t, query.EmptyPage(), p.At(1<<53-1).Next(), "past the greatest offset")
		require.NoError(t, p.Check())
	}
	require.ErrorIs(t, query.Pagination{}.Check(), query.ErrPage)
	require.NoError(t, query.EmptyPage().Check())
	require.Equal(t, "unknown", query.Strategy(9).String())
}

// What cannot be carried in a cursor is not: the page is then found by counting.
func TestAPageThatEndsAtAnOddValueIsFollowedByCounting(t *testing.T) {
	t.Parallel()
	by := query.SortByID(entryID)
	for _, id := range []string{strings.Repeat("x", 1025), "\xff", "a\x00"} {
		next := by.Read(query.KeysetPage(0, 1), 1, id, id).Next()
		text, args, err := query.Select(entryID).From(entries).Paginate(by, overTheWire(t, next)).Format(query.SQLite)
		require.NoError(t, err)
		require.Equal(t, `SELECT "entries"."id" FROM "entries" ORDER BY "entries"."id" LIMIT $1 OFFSET $2`, text)
		require.Equal(t, []any{int64(1), int64(1)}, args)
	}
	next := query.SortByID(entryTo).Read(query.KeysetPage(0, 1), 1, stamp{time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)}, stamp{}).Next()
	require.NotContains(t, string(must(json.Marshal(next))), "after", "a year that has no text")
}

func TestValuesOfEachTypeComeBackFromACursor(t *testing.T) {
	t.Parallel()
	at := stamp{time.Date(2026, 3, 4, 5, 6, 7, 891e6, time.UTC)}
	same(t, "täxt \"<>&\u2028", "")
	same(t, 1<<62, -1<<62)
	same(t, int64(-1<<63), 1<<63-1)
	same(t, int32(-1<<31), 1<<31-1)
	same(t, []byte{0, 255, 62}, []byte{})
	same(t, at, stamp{})
	same(t, time.Duration(0), time.Second)
}

// same sends two values out in a cursor and requires them back as values of the statement.
func same[T any](t *testing.T, key, id T) {
	t.Helper()
	by := query.SortBy(query.NewColumn[T](entries, "k"), query.NewColumn[T](entries, "i"))
	next := overTheWire(t, by.Read(query.KeysetPage(0, 1), 1, key, id).Next())
	_, args, err := query.Select(entryID).From(entries).Paginate(by, next).Format(query.Postgres)
	if _, known := any(key).(time.Duration); known {
		require.ErrorIs(t, err, query.ErrIncomplete, "a type without a text")
		return
	}
	require.NoError(t, err)
	require.Equal(t, []any{key, id, int64(1)}, args)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCursorsOfStrangersAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	for _, data := range []string{
		``, `null`, `7`, `"offset"`, `[]`, `{}`, `{"strategy":"offset"`, `{"strategy":"offset","offset":0,"size":5}x`,
		`{"strategy":"seek"}`, `{"strategy":null}`, `{"Strategy":"empty"}`, `{"strategy":"empty","strategy":"none"}`, `{"strategy":"empty","more":1}`,
		`{"strategy":"empty","size":1}`, `{"strategy":"none","offset":1}`, `{"strategy":"none","sort":"a","after":["a","b"]}`,
		`{"strategy":"offset","offset":1.5,"size":5}`, `{"strategy":"offset","offset":"1","size":5}`, `{"strategy":"offset","offset":1e99,"size":5}`,
		`{"strategy":"offset","size":5,"sort":"a"}`, `{"strategy":"offset","size":5,"sort":"a","after":["a","b"]}`,
		`{"strategy":"keyset","size":5,"after":["a","b"]}`, `{"strategy":"keyset","size":5,"sort":"a"}`, `{"strategy":"keyset","size":5,"sort":"a","after":["a"]}`,
		`{"strategy":"keyset","size":5,"sort":"a","after":["a","b","c"]}`, `{"strategy":"keyset","size":5,"sort":"a","after":["a",1]}`,
		`{"strategy":"keyset","size":5,"sort":"a","after":["a","\u0000"]}`, `{"strategy":"keyset","size":5,"sort":"a","after":["\ud800","b"]}`,
		`{"strategy":"keyset","size":5,"sort":"a","after":["` + long + `","b"]}`, `{"strategy":"keyset","size":5,"sort":"` + long + `","after":["a","b"]}`,
		"{\"strategy\":\"keyset\",\"size\":5,\"sort\":\"a\",\"after\":[\"\xff\",\"b\"]}",
		`{"strategy":"empty"` + strings.Repeat(" ", query.MaxCursor) + `}`, strings.Repeat("[", query.MaxCursor),
	} {
		_, err := query.ParsePagination([]byte(data))
		require.ErrorIs(t, err, query.ErrCursor, "%.80s", data)
		require.Less(t, len(err.Error()), 4096)
		p := query.OffsetPage(1, 2)
		require.Error(t, json.Unmarshal([]byte(data), &p), "%.80s", data)
		require.Equal(t, query.OffsetPage(1, 2), p)
	}
	for _, data := range []string{
		`{"strategy":"offset","size":0}`, `{"strategy":"offset","size":1001}`, `{"strategy":"keyset","size":-1}`, `{"strategy":"offset","offset":-1,"size":5}`,
		`{"strategy":"offset","offset":9007199254740992,"size":5}`,
	} {
		_, err := query.ParsePagination([]byte(data))
		require.ErrorIs(t, err, query.ErrPage, data)
	}
	_, err := json.Marshal(query.OffsetPage(0, 1001))
	require.ErrorIs(t, err, query.ErrPage)
}

// A cursor of the right form whose values are not the column's.
func TestCursorsOfOtherValuesAreRefused(t *testing.T) {
	t.Parallel()
	cursor := func(sort, key, id string) string {
		return `{"strategy":"keyset","offset":5,"size":5,"sort":"` + sort + `","after":["` + key + `","` + id + `"]}`
	}
	format := func(by query.Ordering, data string) error {
		p, err := query.ParsePagination([]byte(data))
		require.NoError(t, err)
		_, _, err = query.Select(entryID).From(entries).Paginate(by, p).Format(query.SQLite)
		return err
	}
	byAt, byNo, byTo := query.SortBy(entryAt, entryID), query.SortBy(entryID, entryNo), query.SortByID(entryTo)
	require.NoError(t, format(byAt, cursor("at,id", "7", "x")))
	for _, n := range []string{"", "x", "1.0", "+1", "01", " 1", "-0", "1_0", "9223372036854775808"} {
		require.ErrorIs(t, format(byAt, cursor("at,id", n, "x")), query.ErrCursor, n)
	}
	require.ErrorIs(t, format(byAt, cursor("at,id desc", "7", "x")), query.ErrCursor)
	require.ErrorIs(t, format(byAt, cursor("at", "7", "x")), query.ErrCursor)
	require.NoError(t, format(byNo, cursor("id,no", "x", "AQ")))
	for _, n := range []string{"AQ=", "AR", "!", "A"} {
		require.ErrorIs(t, format(byNo, cursor("id,no", "x", n)), query.ErrCursor, n)
	}
	require.NoError(t, format(byTo, cursor("upto", "2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z")))
	require.ErrorIs(t, format(byTo, cursor("upto", "yesterday", "x")), query.ErrCursor)
}

func FuzzParsePagination(f *testing.F) {
	for _, p := range []query.Pagination{{}, query.EmptyPage(), query.OffsetPage(3, 4), query.KeysetPage(0, 1000),
		query.SortBy(entryAt, entryID).Read(query.KeysetPage(0, 1), 1, -5, "ü").Next()} {
		f.Add(must(json.Marshal(p)))
	}
	f.Add([]byte(`{"strategy":"keyset","size":5,"sort":"at,id","after":["` + strconv.Itoa(1<<40) + `","\u2028"]}`))
	by := query.SortBy(entryAt, entryID)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := query.ParsePagination(data)
		if err != nil {
			return
		}
		require.LessOrEqual(t, p.Size(), int64(query.MaxPageSize))
		require.GreaterOrEqual(t, p.Offset(), int64(0))
		out, err := json.Marshal(p)
		require.NoError(t, err)
		again, err := query.ParsePagination(out)
		require.NoError(t, err)
		require.Equal(t, p, again)
		for _, q := range []query.Pagination{p, p.Next(), p.Prev(), p.Next().Next()} {
			_, _, err = query.Select(entryID).From(entries).PaginateUnbounded(by, q).Format(query.SQLite)
			if err != nil {
				require.ErrorIs(t, err, query.ErrCursor)
			}
		}
	})
}
