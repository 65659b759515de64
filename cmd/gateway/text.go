package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// count is "1 problem", "2 problems".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// elapsed is a time span in output: milliseconds with one decimal, for people and
// in JSON. Below zero it is no time at all: "-" and null.
type elapsed time.Duration

// never is the elapsed of what did not happen.
const never elapsed = -1

func (e elapsed) String() string {
	if e < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(e)/float64(time.Millisecond))
}

// MarshalJSON implements json.Marshaler.
func (e elapsed) MarshalJSON() ([]byte, error) {
	if e < 0 {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.1f", float64(e)/float64(time.Millisecond)), nil
}

// wrap splits text at spaces into lines of at most width characters, longer words
// aside.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// table aligns the columns of consecutive rows; a row of one cell stands alone
// and does not widen the first column.
type table struct {
	out  io.Writer
	rows [][]string
}

func newTable(out io.Writer) *table { return &table{out: out} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// flush writes the rows and forgets them.
func (t *table) flush() error {
	var width []int
	for _, cells := range t.rows {
		for i, c := range cells[:len(cells)-1] {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range t.rows {
		for i, c := range cells {
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}
