package query

import "strconv"

// Member is a SELECT that can be part of a union: one without order, limit and lock.
type Member interface {
	Query
	member() *selection
}

// UnionAll is the rows of all members, equal ones included. The members must have equally many fields; the first one's columns name the
// result's.
func UnionAll(members ...Member) Union { return newUnion(" UNION ALL ", members) }

// UnionDistinct is the rows of all members, each once: a limit on it counts distinct rows.
func UnionDistinct(members ...Member) Union { return newUnion(" UNION ", members) }

func newUnion(word string, members []Member) Union {
	return Union{UnionOrder{UnionEnd{word: word, members: members}}}
}

// Union is a union before its order.
type Union struct{ UnionOrder }

// OrderBy sorts the union by columns of the result: only their names count, not their tables.
func (u Union) OrderBy(by ...Order) UnionOrder {
	u.order = by
	return u.UnionOrder
}

// UnionOrder is a union with its order.
type UnionOrder struct{ UnionEnd }

// Limit bounds the number of rows of the whole union, see [SelectOrder.Limit].
func (u UnionOrder) Limit(n int) UnionEnd {
	u.limit = n
	return u.UnionEnd
}

// UnionEnd is a complete union.
type UnionEnd struct {
	word    string
	members []Member
	order   []Order
	limit   int
}

// Format implements [Statement].
func (u UnionEnd) Format(in Interpreter) (string, []any, error) {
	r := newRenderer(in)
	u.query(r)
	return r.done()
}

func (u UnionEnd) query(r *renderer) {
	if len(u.members) == 0 {
		r.fail(ErrIncomplete, "a union without members")
		return
	}
	for i, m := range u.members {
		if m == nil {
			r.fail(ErrIncomplete, "a member of a union is nil")
			return
		}
		if m.width() != u.width() {
			r.fail(ErrIncomplete, "members of a union have "+strconv.Itoa(u.width())+" and "+strconv.Itoa(m.width())+" fields")
			return
		}
		if i > 0 {
			r.text(u.word)
		}
		m.member().render(r)
	}
	orderBy(r, u.order, (*column).bare)
	limit(r, u.limit, 0)
}

func (u UnionEnd) width() int {
	if len(u.members) == 0 || u.members[0] == nil {
		return 0
	}
	return u.members[0].width()
}
