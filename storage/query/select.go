package query

import "strconv"

// Query is a SELECT at any stage from FROM on, or a union: what can be a sub-select.
type Query interface {
	Statement
	query(r *renderer)
	width() int // number of fields
}

// selection is a SELECT under construction. The stages copy it, so that none changes another.
type selection struct {
	distinct bool
	lock     bool
	fields   []Expr
	from     Table
	joins    []join
	where    Cond
	order    []Order
	limit    int
	offset   int
	page     *paging
}

type join struct {
	kind  string
	table Table
	on    Cond
}

// Order is a column with its direction. NULLs come first on SQLite and last on PostgreSQL when ascending: sort by columns without them.
type Order struct {
	c    *column
	desc bool
}

// Asc sorts by c, least first.
func (c Column[T]) Asc() Order { return Order{c.c, false} }

// Desc sorts by c, greatest first.
func (c Column[T]) Desc() Order { return Order{c.c, true} }

// Select begins a SELECT of these fields.
func Select(fields ...Expr) SelectFields { return SelectFields{selection{fields: fields}} }

// SelectDistinct begins a SELECT DISTINCT of these fields.
func SelectDistinct(fields ...Expr) SelectFields {
	return SelectFields{selection{fields: fields, distinct: true}}
}

// SelectFields is a SELECT with its fields; the table follows.
type SelectFields struct{ s selection }

// From names the table.
func (s SelectFields) From(t Table) SelectFrom {
	s.s.from = t
	return SelectFrom{SelectWhere{SelectOrder{SelectEnd(s)}}}
}

// SelectFrom is a SELECT with its table; joins, the condition and all that [SelectWhere] offers may follow.
type SelectFrom struct{ SelectWhere }

// LeftJoin keeps rows without a match in t.
func (s SelectFrom) LeftJoin(t Table, on Cond) SelectFrom { return s.join(" LEFT JOIN ", t, on) }

// InnerJoin keeps matching rows only.
func (s SelectFrom) InnerJoin(t Table, on Cond) SelectFrom { return s.join(" JOIN ", t, on) }

// RightJoin keeps rows of t without a match.
func (s SelectFrom) RightJoin(t Table, on Cond) SelectFrom { return s.join(" RIGHT JOIN ", t, on) }

// FullJoin keeps rows of both sides without a match.
func (s SelectFrom) FullJoin(t Table, on Cond) SelectFrom { return s.join(" FULL JOIN ", t, on) }

// CrossJoin makes every pair of rows; it has no condition on either backend.
func (s SelectFrom) CrossJoin(t Table) SelectFrom { return s.join(" CROSS JOIN ", t, Cond{}) }

func (s SelectFrom) join(kind string, t Table, on Cond) SelectFrom {
	n := len(s.s.joins)
	s.s.joins = append(s.s.joins[:n:n], join{kind, t, on}) // never into the array of another stage
	return s
}

// Where restricts the rows; an absent condition does not.
func (s SelectFrom) Where(c Cond) SelectWhere {
	s.s.where = c
	return s.SelectWhere
}

// SelectWhere is a SELECT before its order. It can be part of a union.
type SelectWhere struct{ SelectOrder }

// OrderBy sorts the rows, by the first column first.
func (s SelectWhere) OrderBy(by ...Order) SelectOrder {
	s.s.order = by
	return s.SelectOrder
}

// Paginate reads one page of the rows in the order of the listing. A page that is unbounded, the zero Pagination among them, or larger
// than [MaxPageSize] makes Format fail with [ErrPage].
func (s SelectWhere) Paginate(by Ordering, p Pagination) SelectEnd {
	s.s.page = &paging{by: by, page: p}
	return s.SelectEnd
}

// PaginateUnbounded is Paginate that takes an unbounded page too, for callers within the program that read to the end.
func (s SelectWhere) PaginateUnbounded(by Ordering, p Pagination) SelectEnd {
	s.s.page = &paging{by: by, page: p, unbounded: true}
	return s.SelectEnd
}

func (s SelectWhere) member() *selection { return &s.s }

// SelectOrder is a SELECT with its order.
type SelectOrder struct{ SelectEnd }

// Limit bounds the number of rows: to n if positive, not at all if zero, to none if negative.
func (s SelectOrder) Limit(n int) SelectLimit {
	s.s.limit = n
	return SelectLimit(s)
}

// SelectLimit is a SELECT with its limit.
type SelectLimit struct{ SelectEnd }

// Offset skips the first n rows. Without a limit above zero it fails with [ErrIncomplete], as does a negative one.
func (s SelectLimit) Offset(n int) SelectEnd {
	s.s.offset = n
	if n < 0 || s.s.limit <= 0 {
		s.s.offset = -1
	}
	return s.SelectEnd
}

// SelectEnd is a complete SELECT.
type SelectEnd struct{ s selection }

// ForUpdateSkipLocked locks the rows and passes over those that others have locked. It renders nothing on SQLite, where a writing
// transaction is alone. As a sub-select PostgreSQL may run it more than once, and so change more rows than its limit says: what
// RETURNING returns is what was changed.
func (s SelectEnd) ForUpdateSkipLocked() SelectEnd {
	s.s.lock = true
	return s
}

// Format implements [Statement].
func (s SelectEnd) Format(in Interpreter) (string, []any, error) {
	r := newRenderer(in)
	s.s.render(r)
	return r.done()
}

func (s SelectEnd) query(r *renderer) { s.s.render(r) }
func (s SelectEnd) width() int        { return len(s.s.fields) }

func (s *selection) render(r *renderer) {
	s.renderBody(r)
	if s.page != nil {
		s.page.render(r, s.where)
	} else {
		s.where.where(r)
		orderBy(r, s.order, (*column).qualified)
		limit(r, s.limit, s.offset)
	}
	if s.lock {
		r.in.skipLocked(r)
	}
}

// renderBody renders everything before WHERE.
func (s *selection) renderBody(r *renderer) {
	if len(s.fields) == 0 {
		r.fail(ErrIncomplete, "a SELECT without fields")
		return
	}
	r.text("SELECT ")
	if s.distinct {
		r.text("DISTINCT ")
	}
	r.exprs(s.fields)
	r.text(" FROM ")
	s.from.from(r)
	for i := range s.joins {
		j := &s.joins[i]
		r.text(j.kind)
		j.table.from(r)
		if j.kind != " CROSS JOIN " {
			r.text(" ON ")
			j.on.render(r)
		}
	}
}

func orderBy(r *renderer, by []Order, name func(*column, *renderer)) {
	for i, o := range by {
		if i == 0 {
			r.text(" ORDER BY ")
		}
		r.comma(i)
		name(o.c, r)
		if o.desc {
			r.text(" DESC")
		}
	}
}

func limit[N int | int64](r *renderer, n, offset N) {
	switch {
	case n < 0:
		r.text(" LIMIT 0")
	case n > 0:
		r.text(" LIMIT ")
		r.bind(n)
	}
	switch {
	case offset < 0:
		r.fail(ErrIncomplete, "an offset needs a limit above zero and must not be negative")
	case offset > 0:
		r.text(" OFFSET ")
		r.bind(offset)
	}
}

// sub renders a sub-select in parentheses; fields is how many it must have, 0 for any number.
func (r *renderer) sub(q Query, fields int) {
	switch {
	case q == nil:
		r.fail(ErrIncomplete, "a sub-select is missing")
	case fields > 0 && q.width() != fields:
		r.fail(ErrIncomplete, "a sub-select has "+strconv.Itoa(q.width())+" fields, not "+strconv.Itoa(fields))
	default:
		r.text("(")
		q.query(r)
		r.text(")")
	}
}
