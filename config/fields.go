package config

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// maxDuration is the longest duration a file may name. Ten years never expires
// in practice and is far from overflowing a time.Duration or a deadline.
const maxDuration = 10 * 365 * 24 * time.Hour

// span is the default and the bounds of a number, in the unit of the file.
// A written 0 always means the default.
type span struct {
	def, min, max float64
	// off admits -1.
	off bool
}

// text is a string; "" means the default. check returns what the value becomes
// and, when it is not acceptable, what to write instead.
func text(name string, dst *string, def, doc string, check func(string) (string, string)) field {
	return field{
		name: name, kind: "a string", def: quoteDefault(def), doc: doc, scalar: 's',
		reset: func() { *dst = def },
		read: func(v value) {
			if v.n.kind != '"' {
				v.fail("a string in double quotes")
				return
			}
			if v.n.text == "" {
				return
			}
			s, want := check(v.n.text)
			if want != "" {
				v.fail(want)
				return
			}
			*dst = s
		},
		write: func(p *printer) { p.str(*dst) },
	}
}

// oneOf is a string out of a list.
func oneOf(name string, dst *string, doc string, def string, others ...string) field {
	all := append([]string{def}, others...)
	want := ""
	for i, s := range all {
		want += []string{"", ", "}[min(i, 1)] + strconv.Quote(s)
	}
	f := text(name, dst, def, doc, func(s string) (string, string) {
		for _, known := range all {
			if fold(s) == known {
				return known, ""
			}
		}
		if near := nearest(s, all); near != "" {
			return "", fmt.Sprintf("one of %s; did you mean %q?", want, near)
		}
		return "", "one of " + want
	})
	f.bounds = want
	return f
}

// hidden is a secret string: no message and no print shows it.
func hidden(name string, dst *Secret, doc string) field {
	return field{
		name: name, kind: "a string", doc: doc, scalar: 's', secret: true,
		reset: func() { *dst = "" },
		read: func(v value) {
			switch {
			case v.n.kind != '"':
				v.b.fail(v.path, "this secret is not a string; write it in double quotes")
			case v.n.text == secretMask:
				v.b.fail(v.path, "found %q, which a printed configuration holds in the place of a secret; write the secret itself, or set the variable %s",
					secretMask, envName(v.path))
			default:
				*dst = Secret(v.n.text)
			}
		},
		write: func(p *printer) {
			if p.reveal {
				p.str(dst.Reveal())
			} else {
				p.str(dst.String())
			}
		},
	}
}

func boolean(name string, dst *bool, doc string) field {
	return field{
		name: name, kind: "true or false", def: "false", doc: doc, scalar: 'b',
		reset: func() { *dst = false },
		read: func(v value) {
			if v.n.kind != 't' && v.n.kind != 'f' {
				v.fail("true or false, without quotes")
				return
			}
			*dst = v.n.kind == 't'
		},
		write: func(p *printer) { p.boolean(*dst) },
	}
}

// integer is a size or a count.
func integer[T int | int64 | uint64](name string, dst *T, s span, unit, doc string) field {
	kind := "an integer"
	if unit != "" {
		kind += " of " + unit
	}
	return number(name, s, kind, true, doc,
		func(x float64) { *dst = T(x) },
		func(p *printer) { p.integer(int64(*dst)) },
		func() bool { return *dst <= 0 })
}

// rps is a rate in events per second; fractions are welcome.
func rps(name string, dst *float64, s span, doc string) field {
	return number(name, s, "a number", false, doc,
		func(x float64) { *dst = x },
		func(p *printer) { p.float(*dst) },
		func() bool { return *dst <= 0 })
}

// duration is a whole number of units. A default of 0 stands for one that
// depends on other members; its text is in defText.
func duration(name string, dst *time.Duration, unit time.Duration, s span, defText, doc string) field {
	if s.max == 0 {
		s.max = float64(maxDuration / unit)
	}
	if s.min == 0 {
		s.min = 1
	}
	kind := "an integer of milliseconds"
	if unit == time.Second {
		kind = "an integer of seconds"
	}
	f := number(name, s, kind, true, doc,
		func(x float64) { *dst = time.Duration(x) * unit },
		func(p *printer) { p.integer(int64(*dst / unit)) },
		func() bool { return false })
	if defText != "" {
		f.def = defText
	}
	return f
}

// number is what all numbers share. Bounds are below 2^53, so that a float64
// holds every accepted integer exactly.
func number(name string, s span, kind string, whole bool, doc string, set func(float64), write func(*printer), isOff func() bool) field {
	want := fmt.Sprintf("%s from %s to %s", kind, plain(s.min), plain(s.max))
	if s.def > 0 {
		want += fmt.Sprintf(", or 0 for the default (%s)", plain(s.def))
	} else if !s.off {
		want += ", or 0 for the default"
	}
	if s.off {
		want += ", or -1 for off"
	}
	return field{
		name: name, kind: kind, def: plain(s.def), bounds: boundsText(s), doc: doc, scalar: 'n',
		reset: func() { set(s.def) },
		read: func(v value) {
			x, ok := v.float(whole)
			switch {
			case !ok, x != 0 && x != -1 && (x < s.min || x > s.max), x == -1 && !s.off:
				v.failNumber(want)
			case x != 0:
				set(x)
			}
		},
		write: func(p *printer) {
			if s.off && isOff() {
				p.integer(-1)
				return
			}
			write(p)
		},
	}
}

func boundsText(s span) string {
	t := plain(s.min) + " to " + plain(s.max)
	if s.off {
		t += "; -1 = off"
	}
	return t
}

// port is the one number whose written 0 is not its default.
func port(name string, dst *int, def int, off bool, doc string) field {
	want, bounds := "a port from 1 to 65535, or 0 for any free one", "1 to 65535; 0 = any free port"
	if off {
		want, bounds = want+", or -1 for off", bounds+"; -1 = off"
	}
	return field{
		name: name, kind: "an integer", def: strconv.Itoa(def), bounds: bounds, doc: doc, scalar: 'n',
		reset: func() { *dst = def },
		read: func(v value) {
			x, ok := v.float(true)
			if !ok || x > math.MaxUint16 || x < -1 || (x == -1 && !off) {
				v.failNumber(want)
				return
			}
			*dst = int(x)
		},
		write: func(p *printer) { p.integer(int64(*dst)) },
	}
}

// timeout is integer nanoseconds or a Go duration, the one value of the
// network's files that comes in either form.
func timeout(name string, dst *time.Duration, def, least, most time.Duration, doc string) field {
	want := fmt.Sprintf(`a Go duration such as "5s", or an integer of nanoseconds, from %s to %s, or 0 for the default (%s)`, least, most, def)
	return field{
		name: name, kind: "an integer of nanoseconds or a Go duration", def: strconv.Quote(def.String()),
		bounds: least.String() + " to " + most.String(), doc: doc, scalar: 'd',
		reset: func() { *dst = def },
		read: func(v value) {
			var d time.Duration
			if v.n.kind == '"' {
				var err error
				if d, err = time.ParseDuration(v.n.text); err != nil {
					v.fail(want)
					return
				}
			} else {
				x, ok := v.float(true)
				if !ok || math.Abs(x) > float64(maxDuration) {
					v.fail(want)
					return
				}
				d = time.Duration(x)
			}
			if d == 0 {
				return
			}
			if d < least || d > most {
				v.fail(want)
				return
			}
			*dst = d
		},
		write: func(p *printer) { p.str(dst.String()) },
	}
}

// failNumber reports a value that is not the number wanted, and says so when
// quotes are all that is wrong with it.
func (v value) failNumber(want string) {
	if v.n.kind == '"' && v.n.env == "" && kindOf(v.n.text) == '0' {
		want += ", without quotes"
	}
	v.fail(want)
}

// float reads a number; with whole it must be an integer, in any notation
// (60000, 6e4, 60000.0), and one that a float64 holds exactly.
func (v value) float(whole bool) (float64, bool) {
	if v.n.kind != '0' {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(v.n.raw), 64)
	if err != nil { // out of range
		return 0, false
	}
	if whole && (x != math.Trunc(x) || math.Abs(x) > 1<<53) {
		return 0, false
	}
	if x == 0 && !isZero(v.n.raw) { // 1e-400 is no way to write 0
		return 0, false
	}
	return x, true
}

// isZero reports whether a JSON number's digits before the exponent are all 0.
func isZero(raw []byte) bool {
	for _, c := range raw {
		switch {
		case c == 'e' || c == 'E':
			return true
		case '1' <= c && c <= '9':
			return false
		}
	}
	return true
}

// list is a list of scalars. An empty one means the default.
func list[T any](name string, dst *[]T, kind string, def []T, doc string, parse func(*node) (T, string), write func(*printer, T)) field {
	return field{
		name: name, kind: "a list of " + kind, def: listDefault(def, write), doc: doc,
		reset: func() { *dst = append([]T(nil), def...) },
		read: func(v value) {
			if v.n.kind != '[' {
				v.fail("a list of " + kind + ": […]")
				return
			}
			if len(v.n.items) == 0 {
				return
			}
			*dst = make([]T, 0, len(v.n.items))
			for i, item := range v.n.items {
				at := index(v.path, i)
				v.b.seen[at] = item
				x, want := parse(item)
				if want != "" {
					v.b.bad[v.path] = true
					value{v.b, item, at}.fail(want)
					continue
				}
				*dst = append(*dst, x)
			}
		},
		write: func(p *printer) {
			p.open('[')
			for _, x := range *dst {
				write(p, x)
			}
			p.close(']')
		},
	}
}

// strs is a list of strings.
func strs(name string, dst *[]string, kind string, def []string, doc string, check func(string) (string, string)) field {
	return list(name, dst, kind, def, doc, func(n *node) (string, string) {
		if n.kind != '"' {
			return "", "a string in double quotes"
		}
		return check(n.text)
	}, (*printer).str)
}

// objects is a list of objects, each bound to one element of dst.
func objects[T any](name string, dst *[]T, doc string, fields func(*T) []field) field {
	return field{
		name: name, kind: "a list of objects", doc: doc,
		elem:  func() []field { return fields(new(T)) },
		reset: func() { *dst = nil },
		read: func(v value) {
			if v.n.kind != '[' {
				v.fail("a list of objects: [{…}]")
				return
			}
			if len(v.n.items) == 0 {
				return
			}
			*dst = make([]T, len(v.n.items))
			for i, item := range v.n.items {
				at := index(v.path, i)
				v.b.seen[at] = item
				v.b.members(item, at, fields(&(*dst)[i]))
			}
		},
		write: func(p *printer) {
			p.open('[')
			for i := range *dst {
				p.object(fields(&(*dst)[i]))
			}
			p.close(']')
		},
	}
}

func quoteDefault(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(s)
}

func listDefault[T any](def []T, write func(*printer, T)) string {
	if len(def) == 0 {
		return ""
	}
	p := newPrinter(false, "")
	p.open('[')
	for _, x := range def {
		write(p, x)
	}
	p.close(']')
	return string(p.bytes())
}

// plain writes a number of the table without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
