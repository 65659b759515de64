package conformance

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestRulesForm(t *testing.T) {
	t.Parallel()
	sections := Sections()
	require.Len(t, sections, 7)
	for i, s := range sections {
		require.Equal(t, string(rune('1'+i)), s.Number)
		require.NotEmpty(t, s.Title)
		require.NotEmpty(t, s.Rules)
	}
	for text, says := range map[string]string{
		"## 1 A\n1.a One.\n":             "want `key | sentence`",
		"## 1 A\n1.A | One.\n":           "want `key | sentence`",
		"## 1 A\n8.a | One.\n":           "want `key | sentence`",
		"## 1 A\n2.a | One.\n":           "not in its section",
		"1.a | One.\n":                   "not in its section",
		"## 1 A\n1.a | One.\n1.a | Two.": "rules.txt:3: 1.a is listed twice",
		"## 1 A\n1.a | One\n":            "full stop",
		"## 1 A\n1.a | One | two.\n":     "no |",
	} {
		_, err := parseRules(text)
		require.ErrorContains(t, err, says, text)
	}
}

// module is a source tree of one test file.
func module(name, body string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte("package p\n\nimport \"testing\"\n\n" + body)}}
}

func TestMarkersOverTests(t *testing.T) {
	t.Parallel()
	tests, err := Markers(module("a/b/x_test.go", `
// TestOne holds two.
//
// conformance: 1.a
// conformance: 1.b
func TestOne(t *testing.T) {
	// conformance: 1.c
	t.Run("a case", func(t *testing.T) {})
	for _, name := range []string{"x"} {
		// conformance: 1.d
		t.Run(name, func(t *testing.T) {
			// conformance: 1.a
			t.Run("deeper", func(t *testing.T) {})
		})
	}
}

// conformance: 1.a
func FuzzTwo(f *testing.F) {}

const text = `+"`\n// conformance: 9.nothing\n`"+`
`))
	require.NoError(t, err)
	require.Equal(t, map[string][]Test{
		"1.a": {{"a/b", "TestOne"}, {"a/b", "TestOne/deeper"}, {"a/b", "FuzzTwo"}},
		"1.b": {{"a/b", "TestOne"}},
		"1.c": {{"a/b", "TestOne/a_case"}},
		"1.d": {{"a/b", "TestOne"}},
	}, tests)
}

func TestMarkersElsewhere(t *testing.T) {
	t.Parallel()
	const misplaced = "is not directly above a test function or a t.Run"
	for body, says := range map[string]string{
		"// conformance: 1.a\n\nfunc TestOne(t *testing.T) {}\n":                              "x_test.go:5: the marker of 1.a " + misplaced,
		"// conformance: 1.a\nfunc helper(t *testing.T) {}\n":                                 misplaced,
		"// conformance: 1.a\nfunc BenchmarkOne(b *testing.B) {}\n":                           misplaced,
		"// conformance: 1.a\nfunc TestOne(t *testing.T, n int) {}\n":                         misplaced,
		"// conformance: 1.a\nfunc TestMain(m *testing.M) {}\n":                               misplaced,
		"func TestOne(t *testing.T) {\n\t// conformance: 1.a\n\tt.Parallel()\n}\n":            misplaced,
		"func helper(t *testing.T) {\n\t// conformance: 1.a\n\tt.Run(\"x\", nil)\n}\n":        misplaced,
		"func TestOne(t *testing.T) {\n\t_ = 1 // conformance: 1.a\n\tt.Run(\"x\", nil)\n}\n": misplaced,
		"// conformance: §1 free text\nfunc TestOne(t *testing.T) {}\n":                       "names one rule by its key",
		"// conformance: 1.a 1.b\nfunc TestOne(t *testing.T) {}\n":                            "names one rule by its key",
		"// conformance:\nfunc TestOne(t *testing.T) {}\n":                                    "names one rule by its key",
		"func TestOne(t *testing.T) {\n":                                                      "expected",
	} {
		_, err := Markers(module("x_test.go", body))
		require.ErrorContains(t, err, says, body)
	}
	for _, name := range []string{"testdata/x_test.go", ".git/x_test.go", "a/testdata/b/x_test.go", "x.go", "_a/x_test.go", "vendor/x_test.go"} {
		tests, err := Markers(module(name, "// conformance: 1.a\n"))
		require.NoError(t, err, name)
		require.Empty(t, tests)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	sections, err := parseRules("## 1 A\n1.a | One.\n1.b | Two.\n")
	require.NoError(t, err)
	test := []Test{{"p", "TestOne"}}
	require.NoError(t, Check(sections, map[string][]Test{"1.a": test, "1.b": test}))
	require.EqualError(t, Check(sections, map[string][]Test{"1.a": test, "1.c": test}),
		"TestOne in p names no rule of rules.txt: 1.c\nno test holds 1.b: Two.")
}

func TestRendering(t *testing.T) {
	t.Parallel()
	sections, err := parseRules("## 1 A\n1.a | One.\n")
	require.NoError(t, err)
	for _, order := range [][]Test{
		{{"q", "TestB"}, {"p", "TestC"}, {"p", "TestA"}, {"p", "TestC"}},
		{{"p", "TestC"}, {"p", "TestA"}, {"q", "TestB"}},
	} {
		require.Contains(t, Document(sections, map[string][]Test{"1.a": order}), "\n## 1. A\n\n| rule | sentence | tests |\n| --- | --- | --- |\n"+
			"| `1.a` | One. | p: `TestA`, `TestC`; q: `TestB` |\n")
	}
}
