package query

import (
	"fmt"
	"strconv"
	"sync"
)

// Statement is what can be rendered: every stage at which a statement is complete.
type Statement interface {
	// Format returns the statement's text for a backend and the values of its placeholders, in their order. The error, if any, is one of
	// this package's.
	Format(in Interpreter) (text string, args []any, err error)
}

// Expr is a scalar: a [Column], [Value], [Literal], [Now], [Excluded] or an aggregate.
type Expr interface {
	expr(r *renderer)
}

// renderer collects a statement's text and values. One counter numbers all placeholders, those of sub-selects included.
type renderer struct {
	in   Interpreter
	buf  []byte
	args []any
	err  error // the first
}

var renderers = sync.Pool{New: func() any { return &renderer{buf: make([]byte, 0, 1024), args: make([]any, 0, 16)} }}

// maxKept bounds the memory that a renderer waiting for its next statement holds, in bytes of text and in values.
const maxKept = 64 << 10

func newRenderer(in Interpreter) *renderer {
	r := renderers.Get().(*renderer)
	r.in = in
	if in != SQLite && in != Postgres {
		r.fail(ErrInterpreter, "unknown backend")
	}
	return r
}

// done returns what was rendered and gives r back.
func (r *renderer) done() (string, []any, error) {
	if most := r.in.MaxParameters(); len(r.args) > most {
		r.fail(ErrTooManyParameters, strconv.Itoa(len(r.args))+", at most "+strconv.Itoa(most))
	}
	var text string
	var args []any
	err := r.err
	if err == nil {
		text = string(r.buf)
		args = append(make([]any, 0, len(r.args)), r.args...)
	}
	clear(r.args)
	r.buf, r.args, r.err = r.buf[:0], r.args[:0], nil
	if cap(r.buf) <= maxKept && cap(r.args) <= maxKept {
		renderers.Put(r)
	}
	return text, args, err
}

func (r *renderer) fail(class error, detail string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", class, detail)
	}
}

func (r *renderer) failWith(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *renderer) text(s string) { r.buf = append(r.buf, s...) }

// comma separates the i-th member of a list from the one before it.
func (r *renderer) comma(i int) {
	if i > 0 {
		r.buf = append(r.buf, ", "...)
	}
}

// bind renders the next placeholder.
func (r *renderer) bind(v any) {
	r.args = append(r.args, v)
	r.buf = append(r.buf, '$')
	r.buf = strconv.AppendInt(r.buf, int64(len(r.args)), 10)
}

func (r *renderer) exprs(es []Expr) {
	for i, e := range es {
		r.comma(i)
		r.one(e)
	}
}

func (r *renderer) one(e Expr) {
	if e == nil {
		r.fail(ErrIncomplete, "an expression is nil")
		return
	}
	e.expr(r)
}
