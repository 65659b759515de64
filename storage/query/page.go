package query

import "strconv"

// MaxPageSize is the most rows a page may have.
const MaxPageSize = 1000

// maxOffset bounds offsets: the largest integer that JSON carries everywhere.
const maxOffset = 1<<53 - 1

// Strategy is how a page is found.
type Strategy uint8

// The strategies.
const (
	// Unbounded reads everything.
	Unbounded Strategy = iota
	// Empty reads nothing: what comes after the last page and before the first.
	Empty
	// ByOffset counts rows from the beginning. Any page can be asked for, deep ones cost their depth, and rows shift between pages when
	// others come or go before them.
	ByOffset
	// ByKeyset continues after the last row of the page before, where that is known, and counts rows otherwise. Continuing costs the page
	// alone, and no row is missed or seen twice whatever comes and goes.
	ByKeyset
)

var strategyNames = [...]string{"none", "empty", "offset", "keyset"}

// String is the strategy's name in JSON.
func (s Strategy) String() string {
	if int(s) < len(strategyNames) {
		return strategyNames[s]
	}
	return "unknown"
}

// Pagination says which page of a listing to read. The zero Pagination is unbounded. Its JSON form is a cursor that may be handed out and
// taken back, see [ParsePagination].
type Pagination struct {
	strategy Strategy
	offset   int64
	size     int64
	after    *position // where the page before ended; ByKeyset only

	last  *position // where this page ended, once read
	ended bool      // this page was read and was not full
}

// position is a row's place in a listing.
type position struct {
	sort    string // the listing's label
	key, id string // as text, see keyText
}

// EmptyPage is a page without rows.
func EmptyPage() Pagination { return Pagination{strategy: Empty} }

// OffsetPage is the page of size rows that skips offset rows. Numbers out of range are refused by Format, see [Pagination.Check].
func OffsetPage(offset, size int) Pagination {
	return Pagination{strategy: ByOffset, offset: int64(offset), size: int64(size)}
}

// KeysetPage is the same as OffsetPage for a listing that is read on from page to page: see [Sort.Read].
func KeysetPage(offset, size int) Pagination {
	return Pagination{strategy: ByKeyset, offset: int64(offset), size: int64(size)}
}

// Strategy is how the page is found.
func (p Pagination) Strategy() Strategy { return p.strategy }

// Offset is how many rows come before the page, as counted when the first page was read.
func (p Pagination) Offset() int64 { return p.offset }

// Size is the most rows the page can have; 0 if it is empty or unbounded.
func (p Pagination) Size() int64 { return p.size }

// Check returns [ErrPage] for a page that [SelectWhere.Paginate] refuses.
func (p Pagination) Check() error { return p.check(false) }

func (p Pagination) check(unbounded bool) error {
	switch p.strategy {
	case Unbounded:
		if !unbounded {
			return refused("it has no bound; at most " + strconv.Itoa(MaxPageSize) + " rows are read at once")
		}
	case ByOffset, ByKeyset:
		if p.size < 1 || p.size > MaxPageSize {
			return refused("its size is " + strconv.FormatInt(p.size, 10) + ", not 1 to " + strconv.Itoa(MaxPageSize))
		}
		if p.offset < 0 || p.offset > maxOffset {
			return refused("its offset is " + strconv.FormatInt(p.offset, 10) + ", not 0 to " + strconv.Itoa(maxOffset))
		}
	}
	return nil
}

// Next is the page after p: empty if p is, is unbounded, or was read and had room for more rows.
func (p Pagination) Next() Pagination {
	if p.ended {
		return EmptyPage()
	}
	next := p.At(p.offset + p.size)
	if next.strategy == ByKeyset {
		next.after = p.last
	}
	return next
}

// Prev is the page before p: empty if fewer rows than a page come before p.
func (p Pagination) Prev() Pagination { return p.At(p.offset - p.size) }

// At is the page of p's size after offset rows; empty if there is no such page.
func (p Pagination) At(offset int64) Pagination {
	if p.strategy != ByOffset && p.strategy != ByKeyset || offset < 0 || offset > maxOffset {
		return EmptyPage()
	}
	return Pagination{strategy: p.strategy, offset: offset, size: p.size}
}

// paging is a page of a SELECT.
type paging struct {
	by        Ordering
	page      Pagination
	unbounded bool
}

// render renders the WHERE clause and all that follows.
func (g *paging) render(r *renderer, where Cond) {
	if err := g.page.check(g.unbounded); err != nil {
		r.failWith(err)
		return
	}
	if g.by == nil {
		r.fail(ErrIncomplete, "a page without an ordering")
		return
	}
	offset := g.page.offset
	if g.page.after != nil {
		past, err := g.by.past(g.page.after)
		if err != nil {
			r.failWith(err)
			return
		}
		where, offset = And(where, past), 0
	}
	where.where(r)
	by, err := g.by.orders()
	if err != nil {
		r.failWith(err)
		return
	}
	orderBy(r, by, (*column).qualified)
	switch g.page.strategy {
	case Empty:
		r.text(" LIMIT 0")
	case ByOffset, ByKeyset:
		limit(r, g.page.size, offset)
	}
}

// Page is one page of rows and the way to its neighbours.
type Page[R any] struct {
	Items []R
	Next  Pagination // empty: no more rows
	Prev  Pagination // empty: the first page
}

// NewPage is the page of these items, which were read with p in the order s; key returns an item's place in it.
func NewPage[R, K, I any](s Sort[K, I], p Pagination, items []R, key func(R) (K, I)) Page[R] {
	var k K
	var i I
	if len(items) > 0 {
		k, i = key(items[len(items)-1])
	}
	return Page[R]{Items: items, Next: s.Read(p, len(items), k, i).Next(), Prev: p.Prev()}
}
