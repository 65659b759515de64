package config

import (
	"slices"
	"strings"
	"sync"
)

// Member is one row of the written reference, taken from the table that the
// loader itself uses.
type Member struct {
	// Path is the member's place, with [] for every element of a list:
	// "services[].handlers[].config.cleanUpPeriodMs".
	Path string
	// Type says what a value looks like; Bounds is empty where that says all.
	Type, Bounds string
	// Default is JSON, or words where it depends on other members, or empty.
	Default string
	// Env is the variable that overrides it, "" for none. Inside a list it is
	// that of the first element, with 0 for its number.
	Env string
	// Doc is one or two sentences.
	Doc string
	// Required members have no default. Reloadable ones take effect while
	// running. Secret ones are never shown.
	Required, Reloadable, Secret bool
}

// Reference lists every member of the file, sections before their members, in
// the order of Print. The configuration of a handler in the older form is the
// same as in the newer one and listed once.
func Reference() []Member {
	return slices.Clone(reference())
}

var reference = sync.OnceValue(func() []Member {
	var list []Member
	describe(table(&Config{}, &topology{}), "", &list)
	return list
})

func describe(fields []field, path string, list *[]Member) {
	for i := range fields {
		f := &fields[i]
		at := join(path, f.name)
		m := Member{
			Path: at, Type: f.kind, Default: f.def, Bounds: f.bounds, Doc: f.doc,
			Required: f.required, Reloadable: f.reloadable, Secret: f.secret,
		}
		switch {
		case !strings.Contains(at, "["):
			if f.scalar != 0 {
				m.Env = envName(at)
			} else if f.secret {
				m.Env = envName(at + "[0]")
			}
		case f.secret:
			m.Env = envName(strings.ReplaceAll(at, "[]", "[0]"))
		}
		*list = append(*list, m)
		switch {
		case f.fields != nil:
			describe(f.fields, at, list)
		case f.elem == nil, strings.HasPrefix(at, "dons[]") && f.kind == "an object":
		case f.kind == "an object":
			describe(f.elem(), at, list)
		default:
			describe(f.elem(), at+"[]", list)
		}
	}
}

// documentedAt is where each member name is known, at most two places each,
// for members that were written in the wrong one.
var documentedAt = sync.OnceValue(func() map[string][]string {
	places := make(map[string][]string)
	for _, m := range reference() {
		if strings.HasPrefix(m.Path, "dons[]") {
			continue
		}
		name := fold(m.Path[strings.LastIndexByte(m.Path, '.')+1:])
		if len(places[name]) < 2 {
			places[name] = append(places[name], m.Path)
		}
	}
	return places
})
