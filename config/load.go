package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Load reads the file at path and parses it. The error is a *Problems; when
// the file cannot be read it wraps the cause, so that errors.Is(err,
// fs.ErrNotExist) works.
func Load(path string, environ []string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		text := "the configuration cannot be read: " + err.Error()
		if errors.Is(err, os.ErrNotExist) {
			text = "there is no such file: name the configuration file"
		}
		return nil, &Problems{File: path, List: []Problem{{Text: text}}, cause: err}
	}
	return Parse(path, data, environ)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than Parse accepts, so that it is Parse that refuses.
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// Parse reads one configuration file of at most 16 MiB, applies the overrides
// of environ ("NAME=text" as os.Environ gives them; nil for none) and fills in
// the defaults. name is how messages call the file. The error is a *Problems
// with everything that is wrong: whoever fixes the whole list is done. Parse
// opens no file and no socket, keeps nothing of data, and may be called from
// any number of goroutines.
func Parse(name string, data []byte, environ []string) (*Config, error) {
	if len(data) > maxFileBytes {
		return nil, &Problems{File: name, List: []Problem{{Text: fmt.Sprintf("the file is larger than %d MiB", maxFileBytes>>20)}}}
	}
	b := &binder{
		lines: newLineIndex(data),
		env:   make(map[string]*node),
		seen:  make(map[string]*node),
		bad:   make(map[string]bool),
		known: documentedAt(),

		secretEnv: make(map[string]bool),
	}
	root, err := parseTree(data)
	if err != nil {
		syntax := err.(*syntaxError) // parseTree returns nothing else
		b.failAt(syntax.pos, "", "%s", syntax.text)
		return nil, b.report(name)
	}
	b.seen[""] = root
	c, t := &Config{}, &topology{}
	fields := table(c, t)
	b.readEnv(environ, fields)
	b.members(root, "", fields)
	if root.kind == '{' {
		b.rules(c, t)
	}
	b.finishEnv()
	if len(b.problems) > 0 {
		return nil, b.report(name)
	}
	sortProblems(b.warnings)
	c.Warnings = b.warnings
	return c, nil
}

// report is what was found, sorted and cut to MaxProblems.
func (b *binder) report(name string) *Problems {
	sortProblems(b.problems)
	shown := b.problems[:min(len(b.problems), MaxProblems)]
	return &Problems{File: name, List: slices.Clone(shown), More: len(b.problems) - len(shown) + b.moreProblems}
}
