package conformance

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Test is a test that holds a rule.
type Test struct {
	Package string // its directory in the module, with slashes
	Name    string // as `go test -run` knows it: TestX or TestX/case
}

// marker starts a comment line that names a rule.
const marker = "// conformance:"

// Markers reads every _test.go below fsys, which is the module's root, and returns
// the tests that name each rule. Directories that the go command leaves out are
// left out. The error joins every marker that is malformed or stands over no test.
func Markers(fsys fs.FS) (map[string][]Test, error) {
	tests := map[string][]Test{}
	var problems []error
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := path.Base(name)
			if name != "." && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		marked, err := scanFile(name, src)
		if err != nil {
			problems = append(problems, err)
		}
		for _, m := range marked {
			tests[m.key] = append(tests[m.key], Test{Package: path.Dir(name), Name: m.test})
		}
		return nil
	})
	return tests, errors.Join(append(problems, err)...)
}

// found is one marker over a test.
type found struct{ key, test string }

func scanFile(name string, src []byte) ([]found, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	line := func(p token.Pos) int { return fset.Position(p).Line }
	over := testLines(file, line)
	var out []found
	var problems []error
	for _, group := range file.Comments {
		test := over[line(group.End())+1]
		if fset.Position(group.Pos()).Column > 1+indent(src, fset.Position(group.Pos()).Offset) {
			test = "" // behind code, on its line
		}
		for _, c := range group.List {
			rest, ok := strings.CutPrefix(c.Text, marker)
			if !ok {
				continue
			}
			key := strings.TrimSpace(rest)
			switch {
			case !keyForm.MatchString(key):
				problems = append(problems, fmt.Errorf("%s:%d: a marker names one rule by its key, not %q", name, line(c.Pos()), key))
			case test == "":
				problems = append(problems, fmt.Errorf("%s:%d: the marker of %s is not directly above a test function or a t.Run", name, line(c.Pos()), key))
			default:
				out = append(out, found{key, test})
			}
		}
	}
	return out, errors.Join(problems...)
}

// indent counts the white space before offset on its line.
func indent(src []byte, offset int) int {
	n := 0
	for n < offset && (src[offset-1-n] == '\t' || src[offset-1-n] == ' ') {
		n++
	}
	return n
}

// testLines maps the line on which a test or a subtest begins to its name.
func testLines(file *ast.File, line func(token.Pos) int) map[int]string {
	lines := map[int]string{}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !isTest(fn) {
			continue
		}
		lines[line(fn.Pos())] = fn.Name.Name
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if stmt, ok := n.(*ast.ExprStmt); ok {
				if sub, ok := subtest(stmt.X); ok {
					lines[line(stmt.Pos())] = fn.Name.Name + sub
				}
			}
			return true
		})
	}
	return lines
}

// isTest reports whether the go command runs fn: a function TestX(*testing.T) or
// FuzzX(*testing.F).
func isTest(fn *ast.FuncDecl) bool {
	kind := "T"
	if strings.HasPrefix(fn.Name.Name, "Fuzz") {
		kind = "F"
	} else if !strings.HasPrefix(fn.Name.Name, "Test") {
		return false
	}
	if fn.Recv != nil || fn.Body == nil || fn.Type.Params.NumFields() != 1 {
		return false
	}
	star, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == kind
}

// subtest is what x adds to the name of the test it is in, if x is a t.Run: "/case"
// where the name is a literal, else nothing.
func subtest(x ast.Expr) (string, bool) {
	call, ok := x.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return "", false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Run" {
		return "", false
	}
	if recv, ok := sel.X.(*ast.Ident); !ok || recv.Name != "t" {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", true
	}
	name, err := strconv.Unquote(lit.Value)
	if err != nil {
		return "", true
	}
	return "/" + strings.ReplaceAll(name, " ", "_"), true
}
