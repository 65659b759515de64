package config

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxKept bounds the problems held while loading; later ones are counted.
// More are kept than shown because they are found in the order of the table
// and shown in the order of the file.
const maxKept = 2000

// maxShown is how much of a value a message repeats, in bytes.
const maxShown = 60

// field is one row of the table of members: it drives decoding, environment
// overrides, suggestions, printing, reloads and the written reference.
type field struct {
	name       string
	kind       string // what a value looks like: "an integer of milliseconds"
	def        string // the default as the reference shows it; "" for none
	bounds     string // "1 to 20"; "" when the kind says it all
	doc        string
	reloadable bool
	secret     bool
	required   bool
	// scalar is how an environment variable's text is read: 's' string,
	// 'n' number, 'b' boolean, 'd' number or string; 0 when it cannot be set.
	scalar byte

	fields []field        // members, when the value is an object
	elem   func() []field // a prototype of one element, for lists of objects

	reset func()         // puts the default in place; nil when there is none
	read  func(v value)  // takes a written value; not called for null or absent
	write func(*printer) // prints the effective value; nil leaves it out
}

// value is a written value on its way into a field.
type value struct {
	b    *binder
	n    *node
	path string
}

// fail reports that the value is not what the field wants.
func (v value) fail(want string) {
	v.b.fail(v.path, "found %s; write %s", v.n.shown(), want)
}

// binder carries a tree into the types and collects what is wrong with it.
type binder struct {
	lines *lineIndex
	env   map[string]*node    // overrides by path
	seen  map[string]*node    // written values by path, for positions
	bad   map[string]bool     // paths with a problem, so that rules can skip them
	known map[string][]string // where a name is documented, for misplaced ones

	overrides  map[string]overridable // every variable that replaces a member
	strangeEnv []string               // variables of ours that replace none
	secretEnv  map[string]bool        // variables that the file says hold a secret

	problems, warnings []Problem
	moreProblems       int
}

// fail records a problem at a path: at the value itself, or, when nothing was
// written there, at the object around it.
func (b *binder) fail(path, format string, args ...any) {
	b.bad[path] = true
	if len(b.problems) >= maxKept {
		b.moreProblems++
		return
	}
	b.problems = append(b.problems, b.problem(path, fmt.Sprintf(format, args...)))
}

// failAt records a problem at a position of the file.
func (b *binder) failAt(pos int, path, format string, args ...any) {
	if len(b.problems) >= maxKept {
		b.moreProblems++
		return
	}
	line, column := b.lines.at(pos)
	b.problems = append(b.problems, Problem{path, line, column, fmt.Sprintf(format, args...)})
}

// warn records something that was accepted.
func (b *binder) warn(path, format string, args ...any) {
	if len(b.warnings) < MaxProblems {
		b.warnings = append(b.warnings, b.problem(path, fmt.Sprintf(format, args...)))
	}
}

func (b *binder) problem(path, text string) Problem {
	p := Problem{Path: path, Text: text}
	for at := path; ; {
		if n := b.seen[at]; n != nil {
			if n.env != "" {
				p.Path = n.env
				return p
			}
			p.Line, p.Column = b.lines.at(n.pos)
			return p
		}
		if at == "" {
			return p
		}
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
}

// ok reports that none of the paths has a problem, so that a rule over them
// says something new.
func (b *binder) ok(paths ...string) bool {
	for _, p := range paths {
		if b.bad[p] {
			return false
		}
	}
	return true
}

// override is the value at path: n of the file, or the variable that replaces it.
func (b *binder) override(path string, n *node) *node {
	if o := b.env[path]; o != nil {
		n = o
	}
	b.seen[path] = n
	return n
}

// written reports whether a value stands at path, in the file or the
// environment.
func (b *binder) written(path string) bool { return b.seen[path] != nil }

// chosen is written, save for a 0, which only asks for the default.
func (b *binder) chosen(path string) bool {
	n := b.seen[path]
	return n != nil && (n.kind != '0' || !isZero(n.raw))
}

// members binds one object. n is nil when the object is absent: its fields
// then get their defaults, and overrides still apply.
func (b *binder) members(n *node, path string, fields []field) {
	if n != nil && n.kind != '{' {
		b.fail(path, "found %s; write an object {…}", n.shown())
		n = nil
	}
	found := make([]*member, len(fields))
	if n != nil {
		b.match(n, path, fields, found)
	}
	for i := range fields {
		f := &fields[i]
		at := join(path, f.name)
		var v *node
		if m := found[i]; m != nil && m.value.kind != 'n' {
			v = m.value
		}
		if override := b.env[at]; override != nil {
			v = override
		}
		if v != nil {
			b.seen[at] = v
		}
		b.bind(f, v, at)
	}
}

func (b *binder) bind(f *field, n *node, path string) {
	if f.fields != nil {
		b.members(n, path, f.fields)
		return
	}
	if f.reset != nil {
		f.reset()
	}
	if n != nil {
		f.read(value{b, n, path})
	}
}

// match finds each field's member, whatever the case of its name, and reports
// the members that are unknown or there twice.
func (b *binder) match(n *node, path string, fields []field, found []*member) {
	index := make(map[string]int, len(fields))
	for i := range fields {
		index[fold(fields[i].name)] = i
	}
	for i := range n.members {
		m := &n.members[i]
		k, known := index[fold(m.name)]
		switch {
		case !known:
			b.unknown(m, path, fields)
		case found[k] != nil:
			line, column := b.lines.at(found[k].pos)
			b.failAt(m.pos, join(path, fields[k].name), "given twice, first at %d:%d as %s; names match without regard to case: remove one",
				line, column, shownText(found[k].name))
			b.bad[join(path, fields[k].name)] = true
		default:
			found[k] = m
		}
	}
}

// unknown reports a member that is in no table, with the nearest name, or the
// place where the name belongs.
func (b *binder) unknown(m *member, path string, fields []field) {
	if len(b.problems) >= maxKept {
		b.moreProblems++
		return
	}
	at := join(path, shownName(m.name))
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	if near := nearest(m.name, names); near != "" {
		b.failAt(m.pos, at, "unknown member; did you mean %q?", near)
		return
	}
	if places := b.known[fold(m.name)]; len(places) > 0 {
		b.failAt(m.pos, at, "unknown member here; it belongs at %s", strings.Join(places, " or "))
		return
	}
	b.failAt(m.pos, at, "unknown member; known here: %s", strings.Join(names, ", "))
}

// checkRaw reports names given twice in a value that is kept as written.
func (b *binder) checkRaw(n *node, path string) {
	seen := make(map[string]bool, len(n.members))
	for _, m := range n.members {
		at := join(path, shownName(m.name))
		if seen[m.name] {
			b.failAt(m.pos, at, "given twice: remove one")
		}
		seen[m.name] = true
		b.checkRaw(m.value, at)
	}
	for i, item := range n.items {
		b.checkRaw(item, index(path, i))
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// shown describes a value in a message, bounded and without control characters.
func (n *node) shown() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return shownText(n.text)
	}
	return clip(string(n.raw))
}

func shownText(s string) string { return fmt.Sprintf("%q", clip(s)) }

// shownName keeps a strange member name readable inside a path.
func shownName(s string) string {
	for _, r := range s {
		if r <= ' ' || r == '.' || r == '[' || r == '"' || r > '~' {
			return shownText(s)
		}
	}
	if s == "" {
		return `""`
	}
	return clip(s)
}

func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// kindOf is the kind an environment variable's text has as JSON.
func kindOf(text string) jsontext.Kind {
	switch text {
	case "true":
		return 't'
	case "false":
		return 'f'
	}
	if v := jsontext.Value(text); v.IsValid() && v.Kind() == '0' && strings.TrimSpace(text) == text {
		return '0'
	}
	return '"'
}
