package config

import (
	"fmt"
	"slices"
	"strings"
)

// MaxProblems is the most problems one report lists; the rest are counted.
const MaxProblems = 100

// Problem is one mistake in a configuration, or one warning about it.
type Problem struct {
	// Path is where it is, in the documented spelling: "userServerConfig.port",
	// "services[0].handlers[0].config.retryConfig.multiplier", or the name of
	// an environment variable. Empty for the file as a whole.
	Path string
	// Line and Column are 1-based and 0 when it does not come from the file.
	// A column counts characters (code points), not bytes.
	Line, Column int
	// Text says what was found and what to do.
	Text string
}

// String is "line:column: path: text", without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is the error of Load and Parse: everything that is wrong with one
// configuration, in the order of the file, what comes from the environment last.
type Problems struct {
	// File is the name that was given to Load or Parse.
	File string
	// List holds at most MaxProblems.
	List []Problem
	// More is how many further problems were found and left out.
	More int

	cause error
}

// Unwrap is why the file could not be read, nil when it could.
func (p *Problems) Unwrap() error { return p.cause }

// Error lists all problems, one a line, each prefixed with the file's name as
// editors and terminals expect it: "file:line:column: path: text".
func (p *Problems) Error() string {
	var b strings.Builder
	for i, problem := range p.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		switch {
		case problem.Line > 0:
			b.WriteString(p.File + ":" + problem.String())
		case strings.HasPrefix(problem.Path, EnvPrefix):
			b.WriteString("environment: " + problem.String())
		default:
			b.WriteString(p.File + ": " + problem.String())
		}
	}
	if p.More > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more", p.File, p.More)
	}
	return b.String()
}

// sortProblems orders by position; what has none comes last, by path.
func sortProblems(list []Problem) {
	slices.SortStableFunc(list, func(a, b Problem) int {
		switch {
		case (a.Line > 0) != (b.Line > 0):
			if a.Line > 0 {
				return -1
			}
			return 1
		case a.Line != b.Line:
			return a.Line - b.Line
		case a.Column != b.Column:
			return a.Column - b.Column
		}
		return strings.Compare(a.Path, b.Path)
	})
}
