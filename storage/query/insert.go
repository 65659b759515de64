package query

import "strconv"

// InsertInto begins an INSERT into t.
func InsertInto(t Table) InsertTable { return InsertTable{t} }

// InsertTable is an INSERT with its table; rows follow.
type InsertTable struct{ t Table }

// Row is the first row; more may follow.
func (i InsertTable) Row(as ...Assignment) InsertRows {
	return InsertRows{InsertEnd{t: i.t, first: as}}
}

// Rows is all rows, at least one. Each must set the same columns in the same order.
func (i InsertTable) Rows(rows ...[]Assignment) InsertRows {
	if len(rows) == 0 {
		return i.Row()
	}
	return InsertRows{InsertEnd{t: i.t, first: rows[0], more: rows[1:]}}
}

// InsertRows is an INSERT with rows.
type InsertRows struct{ InsertEnd }

// Row adds a row. It must set the columns of the first one in the same order.
func (i InsertRows) Row(as ...Assignment) InsertRows {
	n := len(i.more)
	i.more = append(i.more[:n:n], as) // never into the array of another stage
	return i
}

// OnConflictDoNothing leaves out rows that any unique constraint refuses.
func (i InsertRows) OnConflictDoNothing() InsertEnd {
	i.conflict = doNothing
	return i.InsertEnd
}

// OnConflict begins what happens to a row that the unique constraint or index over exactly these columns refuses.
func (i InsertRows) OnConflict(columns ...AnyColumn) ConflictTarget {
	i.target = columns
	if len(columns) == 0 {
		i.conflict = noTarget
	}
	return ConflictTarget{ConflictAction{i.InsertEnd}}
}

// ConflictTarget is an INSERT with its conflict target.
type ConflictTarget struct{ ConflictAction }

// Where is the predicate of the target when that is a partial unique index: literals, see [Literal].
func (c ConflictTarget) Where(predicate Cond) ConflictAction {
	c.i.predicate = predicate
	return c.ConflictAction
}

// ConflictAction is an INSERT that has yet to say what happens on conflict.
type ConflictAction struct{ i InsertEnd }

// DoNothing leaves such a row out.
func (c ConflictAction) DoNothing() InsertEnd {
	c.i.conflict |= doNothing
	return c.i
}

// DoUpdate changes the existing row instead: Set, SetExpr, SetNow, Increment, Overwrite, IncrementByNew.
func (c ConflictAction) DoUpdate(as ...Assignment) InsertUpdate {
	c.i.conflict |= doUpdate
	c.i.update = as
	return InsertUpdate{c.i}
}

// InsertUpdate is an INSERT that updates on conflict.
type InsertUpdate struct{ InsertEnd }

// Where updates only existing rows of which c is true, and leaves the others as they are. An absent condition restricts nothing.
func (i InsertUpdate) Where(c Cond) InsertEnd {
	i.updateWhere = c
	return i.InsertEnd
}

type conflictKind uint8

const (
	doNothing conflictKind = 1 << iota
	doUpdate
	noTarget // a mistake
)

// InsertEnd is a complete INSERT.
type InsertEnd struct {
	t           Table
	first       []Assignment
	more        [][]Assignment
	conflict    conflictKind
	target      []AnyColumn
	predicate   Cond
	update      []Assignment
	updateWhere Cond
	returning   []Expr
}

// Returning makes the statement return these of every row it inserted or updated, not of those it left out.
func (i InsertEnd) Returning(fields ...Expr) Statement {
	i.returning = fields
	return i
}

// Format implements [Statement].
func (i InsertEnd) Format(in Interpreter) (string, []any, error) {
	r := newRenderer(in)
	i.render(r)
	return r.done()
}

func (i *InsertEnd) render(r *renderer) {
	if len(i.first) == 0 {
		r.fail(ErrIncomplete, "an INSERT without rows")
		return
	}
	r.text("INSERT INTO ")
	i.t.target(r)
	r.text(" (")
	for n := range i.first {
		r.comma(n)
		i.first[n].c.bare(r)
	}
	r.text(") VALUES ")
	i.row(r, 0, i.first)
	for n, as := range i.more {
		r.comma(1)
		i.row(r, n+1, as)
	}
	i.renderConflict(r)
	returning(r, i.returning)
}

func (i *InsertEnd) row(r *renderer, row int, as []Assignment) {
	fits := len(as) == len(i.first)
	for n := 0; fits && n < len(as); n++ {
		c, first := as[n].c, i.first[n].c
		fits = c == first || c != nil && first != nil && c.name == first.name
	}
	if !fits {
		r.fail(ErrIncomplete, "row "+strconv.Itoa(row)+" does not set the columns of row 0 in their order")
		return
	}
	r.text("(")
	for n := range as {
		r.comma(n)
		as[n].value(r)
	}
	r.text(")")
}

func (i *InsertEnd) renderConflict(r *renderer) {
	if i.conflict == 0 {
		return
	}
	if i.conflict&noTarget != 0 {
		r.fail(ErrIncomplete, "a conflict target without columns: use OnConflictDoNothing for any conflict")
		return
	}
	r.text(" ON CONFLICT ")
	for n, c := range i.target {
		if c == nil {
			r.fail(ErrIncomplete, "a column is missing")
			return
		}
		if n == 0 {
			r.text("(")
		}
		r.comma(n)
		c.column().bare(r)
	}
	if len(i.target) > 0 {
		r.text(")")
		i.predicate.where(r)
		r.text(" ")
	}
	if i.conflict&doNothing != 0 {
		r.text("DO NOTHING")
		return
	}
	r.text("DO UPDATE SET ")
	setAll(r, i.update, true)
	i.updateWhere.where(r)
}
