package console

import (
	"io"
	"os"
)

// Style colours text on a terminal; the zero value leaves it plain.
type Style struct{ Colour bool }

// StyleFor is plain unless out is a terminal and NO_COLOR and TERM allow colour. env returns a variable of the environment, "" when it
// is not set.
func StyleFor(out io.Writer, env func(name string) string) Style {
	f, ok := out.(*os.File)
	if !ok || env("NO_COLOR") != "" || env("TERM") == "dumb" || env("TERM") == "" {
		return Style{}
	}
	info, err := f.Stat()
	return Style{Colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is for headings.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Dim is for what is there for completeness.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Green is for what is good.
func (s Style) Green(text string) string { return s.paint("32", text) }

// Yellow is for what was refused or is odd.
func (s Style) Yellow(text string) string { return s.paint("33", text) }

// Red is for what must not be.
func (s Style) Red(text string) string { return s.paint("31", text) }
