package query_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

// The table of the property test: every combination of few values, NULLs among them.
var (
	facts = query.NewTable("facts")
	factK = query.NewColumn[int](facts, "k")
	factA = query.NewColumn[int](facts, "a")
	factB = query.NewColumn[int](facts, "b")
	factS = query.NewColumn[string](facts, "s")
	factF = query.NewColumn[bool](facts, "f")

	others = query.NewTable("others")
	otherA = query.NewColumn[int](others, "a")
	otherB = query.NewColumn[int](others, "b")
)

type fact struct {
	k    int
	a, b *int
	s    *string
	f    *bool
}

type other struct{ a, b *int }

var otherRows = []other{{ptr(0), ptr(1)}, {ptr(1), nil}, {ptr(2), ptr(0)}, {ptr(2), ptr(2)}}

func factRows() []fact {
	var rows []fact
	for _, a := range []*int{nil, ptr(0), ptr(1), ptr(2)} {
		for _, b := range []*int{nil, ptr(0), ptr(1)} {
			for _, s := range []*string{nil, ptr(""), ptr("a"), ptr("b")} {
				for _, f := range []*bool{nil, ptr(false), ptr(true)} {
					rows = append(rows, fact{len(rows), a, b, s, f})
				}
			}
		}
	}
	return rows
}

// truth is a truth value of SQL.
type truth int

const (
	no truth = iota
	unknown
	yes
)

func is(b bool) truth {
	if b {
		return yes
	}
	return no
}

// twin is a condition said a second time: what it says of a row, or nil if it is absent.
type twin func(fact) truth

type both struct {
	cond query.Cond
	twin twin
}

func compareTwin[T int | string](left func(fact) *T, op query.Op, right func(fact) *T) twin {
	return func(r fact) truth {
		l, r2 := left(r), right(r)
		if l == nil || r2 == nil {
			return unknown
		}
		switch op {
		case query.EQ:
			return is(*l == *r2)
		case query.NE:
			return is(*l != *r2)
		case query.LT:
			return is(*l < *r2)
		case query.LE:
			return is(*l <= *r2)
		case query.GT:
			return is(*l > *r2)
		default:
			return is(*l >= *r2)
		}
	}
}

func constant[T any](v T) func(fact) *T { return func(fact) *T { return &v } }

func allOf(twins ...twin) twin {
	return func(r fact) truth {
		out := yes
		for _, w := range twins {
			out = min(out, w(r))
		}
		return out
	}
}

func anyOf(twins ...twin) twin {
	return func(r fact) truth {
		out := no
		for _, w := range twins {
			out = max(out, w(r))
		}
		return out
	}
}

func negate(w twin) twin { return func(r fact) truth { return yes - w(r) } }

func aOf(r fact) *int    { return r.a }
func bOf(r fact) *int    { return r.b }
func sOf(r fact) *string { return r.s }

var (
	ops   = rapid.SampledFrom([]query.Op{query.EQ, query.NE, query.LT, query.LE, query.GT, query.GE})
	ints  = rapid.IntRange(-1, 3)
	texts = rapid.SampledFrom([]string{"", "a", "b", "it's; --"})
)

func leaf(t *rapid.T) both {
	op, v, w, text := ops.Draw(t, "op"), ints.Draw(t, "v"), ints.Draw(t, "w"), texts.Draw(t, "text")
	some := rapid.SliceOfN(ints, 0, 3).Draw(t, "list")
	eqA := func(v int) twin { return compareTwin(aOf, query.EQ, constant(v)) }
	eqB := func(v int) twin { return compareTwin(bOf, query.EQ, constant(v)) }
	switch rapid.IntRange(0, 19).Draw(t, "leaf") {
	case 0:
		return both{query.Cond{}, nil}
	case 1:
		return both{query.Everything(), func(fact) truth { return yes }}
	case 2:
		return both{query.Nothing(), func(fact) truth { return no }}
	case 3:
		method := map[query.Op]func(int) query.Cond{query.EQ: factA.Eq, query.NE: factA.Ne, query.LT: factA.Lt, query.LE: factA.Le, query.GT: factA.Gt, query.GE: factA.Ge}
		return both{method[op](v), compareTwin(aOf, op, constant(v))}
	case 4:
		return both{query.Compare(factS, op, query.Value(text)), compareTwin(sOf, op, constant(text))}
	case 5:
		return both{query.Compare(factA, op, factB), compareTwin(aOf, op, bOf)}
	case 6:
		return both{query.Compare(query.Value(v), op, factB), compareTwin(constant(v), op, bOf)}
	case 7:
		return both{factS.IsNull(), func(r fact) truth { return is(r.s == nil) }}
	case 8:
		return both{factA.NotNull(), func(r fact) truth { return is(r.a != nil) }}
	case 9:
		return both{factA.Between(&v, &w), allOf(compareTwin(aOf, query.GE, constant(v)), compareTwin(aOf, query.LE, constant(w)))}
	case 10:
		return both{factS.HalfOpen(nil, &text), compareTwin(sOf, query.LT, constant(text))}
	case 11:
		if len(some) == 0 {
			return both{factA.In(some...), nil}
		}
		var each []twin
		for _, v := range some {
			each = append(each, eqA(v))
		}
		return both{factA.In(some...), anyOf(each...)}
	case 12:
		var pairs []query.Pair[int, int]
		var each []twin
		for i, v := range some {
			pairs = append(pairs, query.Pair[int, int]{First: v, Second: i})
			each = append(each, allOf(eqA(v), eqB(i)))
		}
		if len(some) == 0 {
			return both{query.InPairs(factA, factB), nil}
		}
		return both{query.InPairs(factA, factB, pairs...), anyOf(each...)}
	case 13:
		var triples []query.Triple[int, string, int]
		var each []twin
		for i, v := range some {
			triples = append(triples, query.Triple[int, string, int]{First: v, Second: text, Third: i})
			each = append(each, allOf(eqA(v), compareTwin(sOf, query.EQ, constant(text)), eqB(i)))
		}
		if len(some) == 0 {
			return both{query.InTriples(factA, factS, factB), nil}
		}
		return both{query.InTriples(factA, factS, factB, triples...), anyOf(each...)}
	case 14:
		return both{query.EqLiteral(factF, v > 0), func(r fact) truth {
			if r.f == nil {
				return unknown
			}
			return is(*r.f == (v > 0))
		}}
	case 15:
		return both{query.IsTrue(factF), func(r fact) truth {
			if r.f == nil {
				return unknown
			}
			return is(*r.f)
		}}
	case 16:
		return both{query.InLiteral(factA, v, w), anyOf(eqA(v), eqA(w))}
	case 17:
		return both{query.EqLiteral(factS, "b"), compareTwin(sOf, query.EQ, constant("b"))}
	case 18: // a row of others with the same a, and b op w
		return both{query.Exists(query.Select(query.Literal(1)).From(others).Where(query.And(otherA.EqColumn(factA), query.Compare(otherB, op, query.Value(w))))),
			func(r fact) truth {
				for _, o := range otherRows {
					if r.a != nil && *r.a == *o.a && compareTwin(func(fact) *int { return o.b }, op, constant(w))(r) == yes {
						return yes
					}
				}
				return no
			}}
	default: // b among the b of others, of which one is NULL
		return both{query.InSelect(query.Select(otherB).From(others).Where(otherA.Ge(v)), factB), func(r fact) truth {
			var each []twin
			for _, o := range otherRows {
				if *o.a >= v {
					each = append(each, compareTwin(bOf, query.EQ, func(fact) *int { return o.b }))
				}
			}
			return anyOf(each...)(r)
		}}
	}
}

func tree(t *rapid.T, depth int) both {
	kind := 0
	if depth > 0 {
		kind = rapid.IntRange(0, 5).Draw(t, "kind")
	}
	switch kind {
	case 0, 1:
		return leaf(t)
	case 2:
		c := tree(t, depth-1)
		if c.twin == nil {
			return both{query.Not(c.cond), nil}
		}
		return both{query.Not(c.cond), negate(c.twin)}
	}
	var conds []query.Cond
	var twins []twin
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		c := tree(t, depth-1)
		conds = append(conds, c.cond)
		if c.twin != nil {
			twins = append(twins, c.twin)
		}
	}
	join, together := query.And, allOf
	if kind > 3 {
		join, together = query.Or, anyOf
	}
	if len(twins) == 0 {
		return both{join(conds...), nil}
	}
	return both{join(conds...), together(twins...)}
}

func createFacts(t *testing.T, db *storage.DB) []fact {
	for _, ddl := range []string{
		`CREATE TABLE facts (k INTEGER PRIMARY KEY, a INTEGER, b INTEGER, s TEXT, f BOOLEAN)`,
		`CREATE TABLE others (a INTEGER, b INTEGER)`,
	} {
		_, err := db.Write().ExecContext(t.Context(), ddl)
		require.NoError(t, err)
	}
	orNull := func(set bool, a query.Assignment, null query.Assignment) query.Assignment {
		if set {
			return a
		}
		return null
	}
	rows := factRows()
	var values [][]query.Assignment
	for _, r := range rows {
		values = append(values, []query.Assignment{
			factK.Set(r.k),
			orNull(r.a != nil, factA.SetExpr(query.Value(r.a)), factA.SetNull()),
			orNull(r.b != nil, factB.SetExpr(query.Value(r.b)), factB.SetNull()),
			orNull(r.s != nil, factS.SetExpr(query.Value(r.s)), factS.SetNull()),
			orNull(r.f != nil, factF.SetExpr(query.Value(r.f)), factF.SetNull()),
		})
	}
	require.EqualValues(t, len(rows), run(t, db, query.InsertInto(facts).Rows(values...)))
	for _, o := range otherRows {
		run(t, db, query.InsertInto(others).Row(otherA.Set(*o.a), orNull(o.b != nil, otherB.SetExpr(query.Value(o.b)), otherB.SetNull())))
	}
	return rows
}

// Random conditions say the same to the databases as to a twin that knows three truth values and no SQL.
func TestConditionsMeanWhatTheySay(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		rows := createFacts(t, db)
		rapid.Check(t, func(rt *rapid.T) {
			c := tree(rt, 4)
			var want []int
			for _, r := range rows {
				if c.twin == nil || c.twin(r) == yes {
					want = append(want, r.k)
				}
			}
			text, args, err := query.Select(factK).From(facts).Where(c.cond).OrderBy(factK.Asc()).Format(query.For(db.Backend()))
			require.NoError(rt, err)
			got, err := readText[int](t.Context(), db, text, args)
			require.NoError(rt, err, text)
			require.Equal(rt, want, got, "%s %v", text, args)
		})
	})
}

// The rules for what is absent and what is constant, one by one.
func TestAbsentAndConstantConditions(t *testing.T) {
	t.Parallel()
	x, y := idx.Eq(1), idx.Eq(2)
	absent, everything, nothing := query.Cond{}, query.Everything(), query.Nothing()
	const all, none, onlyX = "", ` WHERE 1 = 0`, ` WHERE "tokens"."idx" = $1`
	const said = ` WHERE 1 = 1`
	for i, c := range []struct {
		cond query.Cond
		want string
	}{
		{query.And(), all}, {query.Or(), all}, {query.And(absent), all}, {query.Or(absent, absent), all}, {query.Not(absent), all}, {query.Not(idx.In()), all},
		{query.And(everything), said}, {query.And(absent, everything), said}, {query.Or(everything), said}, {query.Or(x, everything), said}, {query.Or(everything, nothing), said},
		{query.Or(nothing), none}, {query.Or(absent, nothing), none}, {query.And(nothing), none}, {query.And(x, nothing), none}, {query.And(everything, nothing), none},
		{query.Not(everything), none}, {query.Not(nothing), said},
		{query.And(absent, x), onlyX}, {query.Or(absent, x), onlyX}, {query.And(everything, x), onlyX}, {query.Or(x, nothing), onlyX}, {query.And(x, query.And()), onlyX},
		{query.And(x, absent, y), onlyX + ` AND "tokens"."idx" = $2`}, {query.Or(nothing, x, y), onlyX + ` OR "tokens"."idx" = $2`},
	} {
		text, _, err := one(c.cond).Format(query.Postgres)
		require.NoError(t, err)
		require.Equal(t, oneText+c.want, text, strconv.Itoa(i))
	}
}
