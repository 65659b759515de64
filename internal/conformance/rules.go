// Package conformance ties the protocol to the tests: rules.txt lists, in our own
// words, every sentence of protocol §1 to §7 that demands, bounds, refuses, drops
// or counts something, and a test says which of them it holds with a marker
//
//	// conformance: 4.handshake.pending
//
// a line of its own directly above a test function or above a t.Run inside one.
// The package's test fails when a rule has no test, when a marker names no rule or
// stands over no test, and when docs/conformance.md is not what both say.
package conformance

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed rules.txt
var rulesText string

// Rule is one sentence of the protocol.
type Rule struct {
	Key      string // stable; its first number is the section
	Sentence string // in Markdown, ends with a full stop
}

// Section is the section of the protocol the rule is in: "1" to "7".
func (r Rule) Section() string { return r.Key[:1] }

// Section is a heading of the list of rules.
type Section struct {
	Number, Title string
	Rules         []Rule
}

// Sections returns every rule in the order of the protocol. It panics when the
// embedded list is malformed, which the package's test holds it is not.
func Sections() []Section {
	s, err := parseRules(rulesText)
	if err != nil {
		panic(err)
	}
	return s
}

var keyForm = regexp.MustCompile(`^[1-7](\.[a-z0-9]+(-[a-z0-9]+)*)+$`)

// parseRules reads the form of rules.txt: "## 4 Title" opens a section, "key |
// sentence" is a rule, other lines that start with # are comments.
func parseRules(text string) ([]Section, error) {
	var out []Section
	seen := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			number, title, _ := strings.Cut(line[3:], " ")
			out = append(out, Section{Number: number, Title: title})
			continue
		case line == "", strings.HasPrefix(line, "#"):
			continue
		}
		key, sentence, ok := strings.Cut(line, "|")
		r := Rule{strings.TrimSpace(key), strings.TrimSpace(sentence)}
		switch {
		case !ok || !keyForm.MatchString(r.Key):
			return nil, fmt.Errorf("rules.txt:%d: want `key | sentence`, got %q", i+1, line)
		case len(out) == 0 || out[len(out)-1].Number != r.Section():
			return nil, fmt.Errorf("rules.txt:%d: %s is not in its section", i+1, r.Key)
		case seen[r.Key]:
			return nil, fmt.Errorf("rules.txt:%d: %s is listed twice", i+1, r.Key)
		case !strings.HasSuffix(r.Sentence, ".") || strings.Contains(r.Sentence, "|"):
			return nil, fmt.Errorf("rules.txt:%d: %s: a sentence ends with a full stop and has no |", i+1, r.Key)
		}
		seen[r.Key] = true
		out[len(out)-1].Rules = append(out[len(out)-1].Rules, r)
	}
	return out, nil
}
