package query

import "time"

// Cond is a condition. The zero Cond is absent: it restricts nothing and takes no part in And, Or and Not.
type Cond struct {
	kind  condKind
	op    Op
	left  Expr
	right any // by kind: the bound value, an Expr, a condWriter or a Query
	conds []Cond
}

type condKind uint8

const (
	absent condKind = iota
	always
	never
	compareValue // left op $n
	compareExpr  // left op right
	isNull
	notNull
	truth  // left, which is boolean
	custom // right.(condWriter)
	exists // right.(Query)
	all    // conds
	some   // conds
	not    // conds[0]
)

// condWriter renders a condition that binds tighter than NOT, AND and OR.
type condWriter interface {
	cond(r *renderer)
}

// Op is a comparison.
type Op uint8

// The comparisons.
const (
	EQ Op = iota
	NE
	LT
	LE
	GT
	GE
)

var opText = [...]string{" = ", " <> ", " < ", " <= ", " > ", " >= "}

// Everything is the condition that is true of every row: 1 = 1. Unlike an absent condition it is said, so Or(c, Everything()) is true of
// every row and an UPDATE or DELETE takes it.
func Everything() Cond { return Cond{kind: always} }

// Nothing is the condition that is true of no row: 1 = 0.
func Nothing() Cond { return Cond{kind: never} }

// Compare compares any two expressions: Compare(a, LT, b) is a < b.
func Compare(left Expr, op Op, right Expr) Cond {
	return Cond{kind: compareExpr, op: op, left: left, right: right}
}

// EqLiteral is c = v with v in the text, for the predicate of a partial index, see [Literal].
func EqLiteral[T LiteralType](c Column[T], v T) Cond { return Compare(c, EQ, Literal(v)) }

// IsTrue is the boolean column itself as the condition: the form of a partial index declared WHERE c. Not(IsTrue(c)) fits WHERE NOT c.
func IsTrue[T ~bool](c Column[T]) Cond { return Cond{kind: truth, left: c} }

// Eq is c = v.
func (c Column[T]) Eq(v T) Cond { return c.compare(EQ, v) }

// Ne is c <> v.
func (c Column[T]) Ne(v T) Cond { return c.compare(NE, v) }

// Lt is c < v.
func (c Column[T]) Lt(v T) Cond { return c.compare(LT, v) }

// Le is c <= v.
func (c Column[T]) Le(v T) Cond { return c.compare(LE, v) }

// Gt is c > v.
func (c Column[T]) Gt(v T) Cond { return c.compare(GT, v) }

// Ge is c >= v.
func (c Column[T]) Ge(v T) Cond { return c.compare(GE, v) }

func (c Column[T]) compare(op Op, v T) Cond {
	return Cond{kind: compareValue, op: op, left: c, right: v}
}

// EqColumn is c = d, as joins need it.
func (c Column[T]) EqColumn(d Column[T]) Cond { return Compare(c, EQ, d) }

// IsNull is c IS NULL.
func (c Column[T]) IsNull() Cond { return Cond{kind: isNull, left: c} }

// NotNull is c IS NOT NULL.
func (c Column[T]) NotNull() Cond { return Cond{kind: notNull, left: c} }

// Between is from <= c <= to. A nil bound is none; without both the condition is absent.
func (c Column[T]) Between(from, to *T) Cond { return c.span(from, LE, to) }

// HalfOpen is from <= c < to. A nil bound is none; without both the condition is absent.
func (c Column[T]) HalfOpen(from, to *T) Cond { return c.span(from, LT, to) }

func (c Column[T]) span(from *T, op Op, to *T) Cond {
	switch {
	case from == nil && to == nil:
		return Cond{}
	case to == nil:
		return c.Ge(*from)
	case from == nil:
		return c.compare(op, *to)
	default:
		return And(c.Ge(*from), c.compare(op, *to))
	}
}

// InPast is e <= now by the database's clock. Of any time, exactly one of InPast and [InFuture] is true; the same goes for [OlderThan] and
// [NewerThan], and for [BeforeNext] and [AfterNext].
func InPast(e Expr) Cond { return Compare(e, LE, Now()) }

// InFuture is e > now, see [InPast].
func InFuture(e Expr) Cond { return Compare(e, GT, Now()) }

// OlderThan is e <= now - d, see [InPast].
func OlderThan(e Expr, d time.Duration) Cond { return Compare(e, LE, NowPlus(-d)) }

// NewerThan is e > now - d, see [InPast].
func NewerThan(e Expr, d time.Duration) Cond { return Compare(e, GT, NowPlus(-d)) }

// BeforeNext is e <= now + d, see [InPast].
func BeforeNext(e Expr, d time.Duration) Cond { return Compare(e, LE, NowPlus(d)) }

// AfterNext is e > now + d, see [InPast].
func AfterNext(e Expr, d time.Duration) Cond { return Compare(e, GT, NowPlus(d)) }

// Exists is EXISTS (q).
func Exists(q Query) Cond { return Cond{kind: exists, right: q} }

// And is true where each of its conditions is. Absent ones take no part; without any other, And is absent.
func And(conds ...Cond) Cond { return fold(all, always, never, conds) }

// Or is true where one of its conditions is. Absent ones take no part; without any other, Or is absent.
func Or(conds ...Cond) Cond { return fold(some, never, always, conds) }

// fold leaves out what changes nothing: absent conditions and neutral constants. A deciding constant decides.
func fold(kind, neutral, deciding condKind, conds []Cond) Cond {
	kept, last, said := 0, 0, false
	for i := range conds {
		switch conds[i].kind {
		case absent:
		case neutral:
			said = true
		case deciding:
			return Cond{kind: deciding}
		default:
			kept, last = kept+1, i
		}
	}
	switch {
	case kept == 0 && said:
		return Cond{kind: neutral}
	case kept == 0:
		return Cond{}
	case kept == 1:
		return conds[last]
	case kept < len(conds):
		rest := make([]Cond, 0, kept)
		for i := range conds {
			if k := conds[i].kind; k != absent && k != neutral {
				rest = append(rest, conds[i])
			}
		}
		conds = rest
	}
	return Cond{kind: kind, conds: conds}
}

// Not is true where c is false. Of an absent condition it is absent: excluding an empty list excludes nothing.
func Not(c Cond) Cond {
	switch c.kind {
	case absent:
		return c
	case always:
		return Nothing()
	case never:
		return Everything()
	case isNull:
		c.kind = notNull
		return c
	case notNull:
		c.kind = isNull
		return c
	case not:
		return c.conds[0]
	default:
		return Cond{kind: not, conds: []Cond{c}}
	}
}

// where renders the clause, or nothing for an absent condition.
func (c *Cond) where(r *renderer) {
	if c.kind != absent {
		r.text(" WHERE ")
		c.render(r)
	}
}

// render renders c so that it may stand alone or in parentheses. Absent is true here.
func (c *Cond) render(r *renderer) {
	switch c.kind {
	case absent, always:
		r.text("1 = 1")
	case never:
		r.text("1 = 0")
	case compareValue:
		r.one(c.left)
		r.text(opText[c.op])
		r.bind(c.right)
	case compareExpr:
		r.one(c.left)
		if int(c.op) >= len(opText) {
			r.fail(ErrIncomplete, "unknown comparison")
			return
		}
		r.text(opText[c.op])
		right, _ := c.right.(Expr)
		r.one(right)
	case isNull:
		r.one(c.left)
		r.text(" IS NULL")
	case notNull:
		r.one(c.left)
		r.text(" IS NOT NULL")
	case truth:
		r.one(c.left)
	case custom:
		c.right.(condWriter).cond(r)
	case exists:
		q, _ := c.right.(Query)
		r.text("EXISTS ")
		r.sub(q, 0)
	case all, some, not:
		c.renderLogic(r)
	}
}

// renderLogic sets only the parentheses that SQL needs: OR within AND, and whatever NOT is of.
func (c *Cond) renderLogic(r *renderer) {
	if c.kind == not {
		if c.conds[0].kind == exists {
			r.text("NOT ")
			c.conds[0].render(r)
			return
		}
		r.text("NOT (")
		c.conds[0].render(r)
		r.text(")")
		return
	}
	between := " AND "
	if c.kind == some {
		between = " OR "
	}
	for i := range c.conds {
		if i > 0 {
			r.text(between)
		}
		if c.kind == all && c.conds[i].kind == some {
			r.text("(")
			c.conds[i].render(r)
			r.text(")")
			continue
		}
		c.conds[i].render(r)
	}
}
