package console

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

func TestStyle(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	require.NoError(t, err)
	defer null.Close()
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	require.Equal(t, "\x1b[31mx\x1b[0m", StyleFor(null, env("TERM", "xterm")).Red("x"))
	for name, of := range map[string]struct {
		out io.Writer
		env func(string) string
	}{
		"NO_COLOR":    {null, env("TERM", "xterm", "NO_COLOR", "1")},
		"dumb":        {null, env("TERM", "dumb")},
		"no TERM":     {null, env()},
		"no terminal": {&bytes.Buffer{}, env("TERM", "xterm")},
	} {
		require.Equal(t, "x", StyleFor(of.out, of.env).Red("x"), name)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tb := NewTable(&out)
	tb.Row("a title longer than any cell")
	tb.Row("€", "b", "c")
	tb.Row("long", "bb", "c")
	require.NoError(t, tb.Flush())
	require.Equal(t, "a title longer than any cell\n€     b   c\nlong  bb  c\n", out.String())
	require.Equal(t, []string{"one two", "three", "a-very-long-word", "x"}, Wrap("one two three a-very-long-word x", 8))
	require.Equal(t, "1 node, 2 nodes", Count(1, "node")+", "+Count(2, "node"))
}

func TestElapsed(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal([]Elapsed{Elapsed(1500 * time.Microsecond), Never})
	require.NoError(t, err)
	require.Equal(t, "[1.5,null]", string(text))
	require.Equal(t, "1.5 ms -", Elapsed(1500*time.Microsecond).String()+" "+Never.String())
}

func TestScene(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\n3  A title\n   One line.\n   Another.\n\n", Style{}.Heading(3, "A title", []string{"One line.", "Another."}))
	require.Equal(t, "   answer       1.0 ms   yes\n", Line("answer", Elapsed(time.Millisecond), "yes"))
	require.Equal(t, "   answer            -\n", Line("answer", Never, ""))
	require.Equal(t, "   verdict               as expected\n", Style{}.Verdict(nil))
	require.Equal(t, "   verdict               \x1b[31mNOT AS EXPECTED: \x1b[0ma; b\n", Style{Colour: true}.Verdict([]string{"a", "b"}))
	require.Len(t, Line("", Blank, "x"), Indent+2)
	require.Equal(t, "of 0x01234567..", Shorten("of 0x0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"))
}
