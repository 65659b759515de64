package query

// In is true where c is one of vs. Without values the condition is absent: an empty list restricts nothing. A list longer than some
// hundreds is better cut into pieces, see [Interpreter.MaxParameters].
func (c Column[T]) In(vs ...T) Cond {
	switch len(vs) {
	case 0:
		return Cond{}
	case 1:
		return c.Eq(vs[0])
	default:
		return Cond{kind: custom, right: &valueList[T]{c.c, vs}}
	}
}

type valueList[T any] struct {
	c  *column
	vs []T
}

func (l *valueList[T]) cond(r *renderer) {
	l.c.qualified(r)
	r.text(" IN (")
	for i := range l.vs {
		r.comma(i)
		r.bind(l.vs[i])
	}
	r.text(")")
}

// InLiteral is In with the values in the text, for the predicate of a partial index, see [Literal].
func InLiteral[T LiteralType](c Column[T], vs ...T) Cond {
	switch len(vs) {
	case 0:
		return Cond{}
	case 1:
		return EqLiteral(c, vs[0])
	default:
		return Cond{kind: custom, right: &literalList[T]{c.c, vs}}
	}
}

type literalList[T LiteralType] struct {
	c  *column
	vs []T
}

func (l *literalList[T]) cond(r *renderer) {
	l.c.qualified(r)
	r.text(" IN (")
	for i := range l.vs {
		r.comma(i)
		Literal(l.vs[i]).expr(r)
	}
	r.text(")")
}

// Pair is a row of two values.
type Pair[A, B any] struct {
	First  A
	Second B
}

// Triple is a row of three values.
type Triple[A, B, C any] struct {
	First  A
	Second B
	Third  C
}

// InPairs is true where (a, b) is one of rows. Without rows the condition is absent.
func InPairs[A, B any](a Column[A], b Column[B], rows ...Pair[A, B]) Cond {
	switch len(rows) {
	case 0:
		return Cond{}
	case 1:
		return And(a.Eq(rows[0].First), b.Eq(rows[0].Second))
	default:
		return Cond{kind: custom, right: &pairList[A, B]{a.c, b.c, rows}}
	}
}

type pairList[A, B any] struct {
	a, b *column
	rows []Pair[A, B]
}

func (l *pairList[A, B]) cond(r *renderer) {
	r.columns(l.a, l.b)
	r.in.tuples(r, len(l.rows), func(i int) {
		r.bind(l.rows[i].First)
		r.comma(1)
		r.bind(l.rows[i].Second)
	})
}

// InTriples is true where (a, b, c) is one of rows. Without rows the condition is absent.
func InTriples[A, B, C any](a Column[A], b Column[B], c Column[C], rows ...Triple[A, B, C]) Cond {
	switch len(rows) {
	case 0:
		return Cond{}
	case 1:
		return And(a.Eq(rows[0].First), b.Eq(rows[0].Second), c.Eq(rows[0].Third))
	default:
		return Cond{kind: custom, right: &tripleList[A, B, C]{a.c, b.c, c.c, rows}}
	}
}

type tripleList[A, B, C any] struct {
	a, b, c *column
	rows    []Triple[A, B, C]
}

func (l *tripleList[A, B, C]) cond(r *renderer) {
	r.columns(l.a, l.b, l.c)
	r.in.tuples(r, len(l.rows), func(i int) {
		r.bind(l.rows[i].First)
		r.comma(1)
		r.bind(l.rows[i].Second)
		r.comma(1)
		r.bind(l.rows[i].Third)
	})
}

// InSelect is true where the columns' values are a row of q, which must have as many fields as there are columns.
func InSelect(q Query, columns ...AnyColumn) Cond {
	return Cond{kind: custom, right: &selectList{q, columns}}
}

type selectList struct {
	q       Query
	columns []AnyColumn
}

func (l *selectList) cond(r *renderer) {
	switch len(l.columns) {
	case 0:
		r.fail(ErrIncomplete, "no column to be in a sub-select")
		return
	case 1:
		r.one(l.columns[0])
	default:
		r.text("(")
		for i, c := range l.columns {
			r.comma(i)
			r.one(c)
		}
		r.text(")")
	}
	r.text(" IN ")
	r.sub(l.q, len(l.columns))
}

// past is true of the rows that come after a position, in the order of the columns: (a, b) > ($1, $2). Both backends serve it from an index
// over the columns, which they do not for a OR of comparisons.
type past struct {
	a, b   *column
	va, vb any
	op     Op
}

func (p *past) cond(r *renderer) {
	r.columns(p.a, p.b)
	r.text(opText[p.op])
	r.text("(")
	r.bind(p.va)
	r.comma(1)
	r.bind(p.vb)
	r.text(")")
}

func (r *renderer) columns(cs ...*column) {
	r.text("(")
	for i, c := range cs {
		r.comma(i)
		c.qualified(r)
	}
	r.text(")")
}
