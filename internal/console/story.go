package console

import (
	"fmt"
	"regexp"
	"strings"
)

// Heading begins a scene of a demo: its number and title, and what it shows.
func (s Style) Heading(number int, title string, about []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", s.Bold(fmt.Sprintf("%d  %s", number, title)))
	for _, line := range about {
		fmt.Fprintf(&b, "   %s\n", line)
	}
	b.WriteByte('\n')
	return b.String()
}

// Line is one thing that happened in a scene, at a time since its beginning. [Blank] leaves the time out.
func Line(name string, at Elapsed, text string) string {
	when := ""
	if at != Blank {
		when = at.String()
	}
	return strings.TrimRight(fmt.Sprintf("   %-9s %9s   %s", name, when, text), " ") + "\n"
}

// Indent is where the text of a [Line] begins.
const Indent = 25

// Verdict ends a scene: what was wrong, if anything.
func (s Style) Verdict(wrong []string) string {
	text := s.Green("as expected")
	if len(wrong) > 0 {
		text = s.Red("NOT AS EXPECTED: ") + strings.Join(wrong, "; ")
	}
	return Line("verdict", Blank, text)
}

// longHex matches what nobody reads to its end.
var longHex = regexp.MustCompile("(0x[0-9a-f]{8})[0-9a-f]{48,}")

// Shorten cuts hashes in a text short: 0x, eight digits, two dots.
func Shorten(text string) string { return longHex.ReplaceAllString(text, "$1..") }
