package query_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exports finds the compiled form of package query and of what it imports.
func exports(t *testing.T) types.Importer {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "dongate/storage/query")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err, "this test runs the go command")
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// check type-checks an expression in a file that knows a table and its columns.
func check(t *testing.T, imports types.Importer, expression string) error {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "x.go", `package x

import "dongate/storage/query"

var (
	t = query.NewTable("t")
	u = query.NewTable("u")
	a = query.NewColumn[int](t, "a")
	b = query.NewColumn[string](t, "b")
	c = a.Eq(1)
	by = query.SortBy(a, b)
	first = query.KeysetPage(0, 10)
	_ query.Statement = `+expression+"\n)\n", 0)
	require.NoError(t, err)
	_, err = (&types.Config{Importer: imports}).Check("x", files, []*ast.File{file}, nil)
	return err
}

// Clauses in the wrong place, and values of the wrong type, do not compile.
func TestWrongOrderDoesNotCompile(t *testing.T) {
	t.Parallel()
	imports := exports(t)
	for _, good := range []string{
		`query.Select(a).From(t)`,
		`query.Select(a).From(t).LeftJoin(u, c).CrossJoin(u).Where(c).OrderBy(a.Asc()).Limit(1).Offset(1).ForUpdateSkipLocked()`,
		`query.SelectDistinct(a, b).From(t).OrderBy(a.Asc()).Limit(1)`,
		`query.Select(a).From(t).Where(c).Limit(1).ForUpdateSkipLocked()`,
		`query.Select(a).From(t).Where(c).Paginate(by, first).ForUpdateSkipLocked()`,
		`query.UnionAll(query.Select(a).From(t), query.Select(a).From(t).Where(c)).OrderBy(a.Desc()).Limit(1)`,
		`query.InsertInto(t).Row(a.Set(1)).Row(a.Set(2)).OnConflict(a).Where(c).DoUpdate(b.Overwrite()).Where(c).Returning(a)`,
		`query.InsertInto(t).Row(a.Set(1)).OnConflict(a).DoNothing().Returning(a)`,
		`query.InsertInto(t).Rows([]query.Assignment{a.Set(1)}).OnConflictDoNothing()`,
		`query.Update(t).Set(a.Set(1), b.SetNull()).Where(c).Returning(a)`,
		`query.DeleteFrom(t).Where(c).Returning(a)`,
		`query.DeleteFrom(t).Where(query.InPairs(a, b, query.Pair[int, string]{1, "x"}))`,
	} {
		require.NoError(t, check(t, imports, good), good)
	}
	for _, bad := range []struct{ expression, says string }{
		// incomplete
		{`query.Select(a)`, "missing method Format"},
		{`query.InsertInto(t)`, "missing method Format"},
		{`query.InsertInto(t).Row(a.Set(1)).OnConflict(a)`, "missing method Format"},
		{`query.Update(t)`, "missing method Format"},
		{`query.Update(t).Set(a.Set(1))`, "missing method Format"},
		{`query.DeleteFrom(t)`, "missing method Format"},
		// in the wrong place
		{`query.Select(a).Where(c)`, "Where undefined"},
		{`query.Select(a).From(t).From(u)`, "From undefined"},
		{`query.Select(a).From(t).Where(c).LeftJoin(u, c)`, "LeftJoin undefined"},
		{`query.Select(a).From(t).Where(c).Where(c)`, "Where undefined"},
		{`query.Select(a).From(t).OrderBy(a.Asc()).Where(c)`, "Where undefined"},
		{`query.Select(a).From(t).OrderBy(a.Asc()).OrderBy(b.Asc())`, "OrderBy undefined"},
		{`query.Select(a).From(t).OrderBy(a.Asc()).Paginate(by, first)`, "Paginate undefined"},
		{`query.Select(a).From(t).Limit(1).OrderBy(a.Asc())`, "OrderBy undefined"},
		{`query.Select(a).From(t).Limit(1).Where(c)`, "Where undefined"},
		{`query.Select(a).From(t).Limit(1).Paginate(by, first)`, "Paginate undefined"},
		{`query.Select(a).From(t).Offset(1)`, "Offset undefined"},
		{`query.Select(a).From(t).Limit(1).Offset(1).Limit(1)`, "Limit undefined"},
		{`query.Select(a).From(t).Paginate(by, first).Limit(1)`, "Limit undefined"},
		{`query.Select(a).From(t).Paginate(by, first).OrderBy(a.Asc())`, "OrderBy undefined"},
		{`query.Select(a).From(t).ForUpdateSkipLocked().Limit(1)`, "Limit undefined"},
		{`query.UnionAll(query.Select(a).From(t).OrderBy(a.Asc()))`, "missing method member"},
		{`query.UnionAll(query.Select(a).From(t).Limit(1))`, "missing method member"},
		{`query.UnionAll(query.Select(a).From(t)).Where(c)`, "Where undefined"},
		{`query.UnionAll(query.Select(a).From(t)).Limit(1).OrderBy(a.Asc())`, "OrderBy undefined"},
		{`query.InsertInto(t).OnConflict(a)`, "OnConflict undefined"},
		{`query.InsertInto(t).Row(a.Set(1)).DoNothing()`, "DoNothing undefined"},
		{`query.InsertInto(t).Row(a.Set(1)).Returning(a).OnConflictDoNothing()`, "OnConflictDoNothing undefined"},
		{`query.InsertInto(t).Row(a.Set(1)).OnConflict(a).DoNothing().Where(c)`, "Where undefined"},
		{`query.InsertInto(t).Row(a.Set(1)).OnConflict(a).DoUpdate(a.Overwrite()).DoNothing()`, "DoNothing undefined"},
		{`query.InsertInto(t).Row(a.Set(1)).OnConflictDoNothing().Row(a.Set(1))`, "Row undefined"},
		{`query.Update(t).Where(c)`, "Where undefined"},
		{`query.Update(t).Set(a.Set(1)).Returning(a)`, "Returning undefined"},
		{`query.Update(t).Set(a.Set(1)).Where(c).Where(c)`, "Where undefined"},
		{`query.DeleteFrom(t).Returning(a)`, "Returning undefined"},
		// of the wrong type
		{`query.DeleteFrom(t).Where(a.Eq("x"))`, "cannot use"},
		{`query.DeleteFrom(t).Where(b.In("x", 1))`, "cannot use"},
		{`query.DeleteFrom(t).Where(a.EqColumn(b))`, "cannot use"},
		{`query.DeleteFrom(t).Where(query.EqLiteral(a, "x"))`, "cannot use"},
		{`query.DeleteFrom(t).Where(query.IsTrue(a))`, "does not satisfy"},
		{`query.DeleteFrom(t).Where(query.InPairs(a, b, query.Pair[string, string]{"x", "x"}))`, "does not match"},
		{`query.DeleteFrom(t).Where(query.InPairs(a, b, query.Triple[int, string, int]{1, "x", 1}))`, "does not match"},
		{`query.DeleteFrom(t).Where(query.InPairs(a, b, query.Pair[int, string]{1}))`, "too few values"},
		{`query.Update(t).Set(a.Set("x")).Where(c)`, "cannot use"},
		{`query.Select(a).From(t).Paginate(first, by)`, "cannot use"},
	} {
		err := check(t, imports, bad.expression)
		require.Error(t, err, bad.expression)
		require.ErrorContains(t, err, bad.says, bad.expression)
	}
}
