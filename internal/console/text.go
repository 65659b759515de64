package console

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Count is "1 problem", "2 problems".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Elapsed is a time span in output: milliseconds with one decimal, for people and
// in JSON. Below zero it is no time at all: "-" and null.
type Elapsed time.Duration

// Never is the Elapsed of what did not happen; Blank is that of what has no time.
const (
	Never Elapsed = -1
	Blank Elapsed = -2
)

// String implements fmt.Stringer.
func (e Elapsed) String() string {
	if e < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(e)/float64(time.Millisecond))
}

// MarshalJSON implements json.Marshaler.
func (e Elapsed) MarshalJSON() ([]byte, error) {
	if e < 0 {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.1f", float64(e)/float64(time.Millisecond)), nil
}

// Wrap splits text at spaces into lines of at most width characters, longer words
// aside.
func Wrap(text string, width int) []string {
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

// Table aligns the columns of consecutive rows; a row of one cell stands alone
// and does not widen the first column.
type Table struct {
	out  io.Writer
	rows [][]string
}

// NewTable returns an empty table that is written to out.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

// Row adds a row of at least one cell.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Flush writes the rows and forgets them.
func (t *Table) Flush() error {
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
