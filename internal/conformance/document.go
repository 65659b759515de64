package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Check returns every rule without a test and every test's key without a rule.
func Check(sections []Section, tests map[string][]Test) error {
	var problems []error
	known := map[string]bool{}
	for _, s := range sections {
		for _, r := range s.Rules {
			known[r.Key] = true
			if len(tests[r.Key]) == 0 {
				problems = append(problems, fmt.Errorf("no test holds %s: %s", r.Key, r.Sentence))
			}
		}
	}
	for key, by := range tests {
		if !known[key] {
			problems = append(problems, fmt.Errorf("%s in %s names no rule of rules.txt: %s", by[0].Name, by[0].Package, key))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// Document renders docs/conformance.md. It is the same for the same input,
// whatever the order in which tests were found.
func Document(sections []Section, tests map[string][]Test) string {
	var b strings.Builder
	b.WriteString("# Conformance\n\nEvery rule of the [protocol](protocol.md), sections 1 to 7, and the tests that hold it. Generated from\n" +
		"`internal/conformance/rules.txt` and the markers in the tests; rewritten with `make docs`.\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s. %s\n\n| rule | sentence | tests |\n| --- | --- | --- |\n", s.Number, s.Title)
		for _, r := range s.Rules {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Key, r.Sentence, testCell(tests[r.Key]))
		}
	}
	return b.String()
}

// testCell lists tests by package: "gateway: `TestA`, `TestB`; auth: `TestC`".
func testCell(tests []Test) string {
	tests = slices.Clone(tests)
	slices.SortFunc(tests, func(a, b Test) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name))
	})
	tests = slices.Compact(tests)
	var b strings.Builder
	for i, t := range tests {
		switch {
		case i == 0:
			b.WriteString(t.Package + ": ")
		case tests[i-1].Package != t.Package:
			b.WriteString("; " + t.Package + ": ")
		default:
			b.WriteString(", ")
		}
		b.WriteString("`" + t.Name + "`")
	}
	return b.String()
}
