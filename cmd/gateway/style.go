package main

import (
	"os"
)

// style colours text on a terminal; the zero value leaves it plain.
type style struct{ colour bool }

// styleFor is plain unless out is a terminal and NO_COLOR and TERM allow colour.
func styleFor(w *world) style {
	f, ok := w.stdout.(*os.File)
	if !ok || w.env("NO_COLOR") != "" || w.env("TERM") == "dumb" || w.env("TERM") == "" {
		return style{}
	}
	info, err := f.Stat()
	return style{colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string   { return s.paint("1", text) }
func (s style) dim(text string) string    { return s.paint("2", text) }
func (s style) green(text string) string  { return s.paint("32", text) }
func (s style) yellow(text string) string { return s.paint("33", text) }
func (s style) red(text string) string    { return s.paint("31", text) }
