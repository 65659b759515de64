package query

import "time"

// Assignment gives a column its value: in a row of an INSERT, in an UPDATE or on conflict.
type Assignment struct {
	c    *column
	kind assignKind
	v    any
}

type assignKind uint8

const (
	_            assignKind = iota
	setValue                // = $n
	setExpr                 // = v.(Expr)
	overwrite               // = excluded.c
	increment               // = c + $n
	incrementNew            // = c + excluded.c
)

// Set makes c v.
func (c Column[T]) Set(v T) Assignment { return Assignment{c.c, setValue, v} }

// SetNull makes c NULL.
func (c Column[T]) SetNull() Assignment { return Assignment{c.c, setValue, nil} }

// SetExpr makes c the value of e.
func (c Column[T]) SetExpr(e Expr) Assignment { return Assignment{c.c, setExpr, e} }

// SetNow makes c the database's time plus d, see [NowPlus].
func (c Column[T]) SetNow(d time.Duration) Assignment { return c.SetExpr(NowPlus(d)) }

// Increment adds v to c. Not for new rows.
func (c Column[T]) Increment(v T) Assignment { return Assignment{c.c, increment, v} }

// Overwrite makes c what the row that could not be inserted has. On conflict only.
func (c Column[T]) Overwrite() Assignment { return Assignment{c.c, overwrite, nil} }

// IncrementByNew adds to c what the row that could not be inserted has. On conflict only.
func (c Column[T]) IncrementByNew() Assignment { return Assignment{c.c, incrementNew, nil} }

// value renders the assignment's right side for a new row.
func (a *Assignment) value(r *renderer) {
	switch a.kind {
	case setValue:
		r.bind(a.v)
	case setExpr:
		e, _ := a.v.(Expr)
		r.one(e)
	default:
		r.fail(ErrIncomplete, "a row needs values")
	}
}

// set renders column = value for an existing row.
func (a *Assignment) set(r *renderer, onConflict bool) {
	a.c.bare(r)
	r.text(" = ")
	switch {
	case a.kind == increment:
		a.c.qualified(r)
		r.text(" + ")
		r.bind(a.v)
	case a.kind == overwrite && onConflict:
		r.text("excluded.")
		a.c.bare(r)
	case a.kind == incrementNew && onConflict:
		a.c.qualified(r)
		r.text(" + excluded.")
		a.c.bare(r)
	default:
		a.value(r)
	}
}

func setAll(r *renderer, as []Assignment, onConflict bool) {
	if len(as) == 0 {
		r.fail(ErrIncomplete, "nothing is set")
	}
	for i := range as {
		r.comma(i)
		as[i].set(r, onConflict)
	}
}

// Update begins an UPDATE of t.
func Update(t Table) UpdateTable { return UpdateTable{t} }

// UpdateTable is an UPDATE with its table.
type UpdateTable struct{ t Table }

// Set says what changes, at least one column.
func (u UpdateTable) Set(as ...Assignment) UpdateSet { return UpdateSet{u.t, as} }

// UpdateSet is an UPDATE that has yet to say which rows.
type UpdateSet struct {
	t  Table
	as []Assignment
}

// Where says which rows. It must not be absent, see [ErrUnrestricted].
func (u UpdateSet) Where(c Cond) ChangeEnd { return ChangeEnd{t: u.t, as: u.as, where: c} }

// DeleteFrom begins a DELETE from t.
func DeleteFrom(t Table) DeleteTable { return DeleteTable{t} }

// DeleteTable is a DELETE that has yet to say which rows.
type DeleteTable struct{ t Table }

// Where says which rows. It must not be absent, see [ErrUnrestricted].
func (d DeleteTable) Where(c Cond) ChangeEnd { return ChangeEnd{t: d.t, where: c, del: true} }

// ChangeEnd is a complete UPDATE or DELETE.
type ChangeEnd struct {
	t         Table
	as        []Assignment
	where     Cond
	del       bool
	returning []Expr
}

// Returning makes the statement return these of every row it changed.
func (c ChangeEnd) Returning(fields ...Expr) Statement {
	c.returning = fields
	return c
}

// Format implements [Statement].
func (c ChangeEnd) Format(in Interpreter) (string, []any, error) {
	r := newRenderer(in)
	c.render(r)
	return r.done()
}

func (c *ChangeEnd) render(r *renderer) {
	if c.del {
		r.text("DELETE FROM ")
		c.t.target(r)
	} else {
		r.text("UPDATE ")
		c.t.target(r)
		r.text(" SET ")
		setAll(r, c.as, false)
	}
	if c.where.kind == absent {
		r.fail(ErrUnrestricted, "table "+c.t.Name())
	}
	c.where.where(r)
	returning(r, c.returning)
}

func returning(r *renderer, fields []Expr) {
	if len(fields) > 0 {
		r.text(" RETURNING ")
		r.exprs(fields)
	}
}
