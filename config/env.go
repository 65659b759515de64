package config

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// EnvPrefix starts every variable that overrides a member of the file:
// EnvPrefix + the member's path in upper case, "_" between levels, such as
// DONGATE_USERSERVERCONFIG_PORT for userServerConfig.port.
const EnvPrefix = "DONGATE_"

// ReservedEnv are variables with our prefix that configure something else,
// the command-line clients above all. Parse leaves them alone, as it does
// everything that starts with ReservedEnvPrefix.
var ReservedEnv = []string{
	"DONGATE_CONFIG",
	"DONGATE_KEYSTORE_PASSWORD",
	"DONGATE_PRIVATE_KEY",
	"DONGATE_URL",
}

// ReservedEnvPrefix starts the variables that only tests read.
const ReservedEnvPrefix = "DONGATE_TEST_"

// envName is the variable that overrides the member at path: for
// "relayer.hostChains[0].rpcURL" DONGATE_RELAYER_HOSTCHAINS_0_RPCURL.
func envName(path string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "[", "_", "]", "").Replace(path))
}

// overridable is one member that a variable can set, or a list, which none can.
type overridable struct {
	path string
	f    *field
}

// collectEnv lists every member outside lists by its variable's name, and the
// secret URLs inside lists with "0" for the number of the element: a URL may
// hold a key, which is better kept out of the file.
func collectEnv(fields []field, path string, into map[string]overridable) {
	for i := range fields {
		f := &fields[i]
		at := join(path, f.name)
		switch {
		case f.fields != nil:
			collectEnv(f.fields, at, into)
		case strings.Contains(at, "[0]"):
			if f.secret {
				into[envName(at)] = overridable{at, f}
			}
		default:
			into[envName(at)] = overridable{at, f}
			if f.secret && f.scalar == 0 {
				element := at + "[0]"
				into[envName(element)] = overridable{element, &field{scalar: 's'}}
			} else if f.elem != nil && f.kind != "an object" {
				collectEnv(f.elem(), at+"[0]", into)
			}
		}
	}
}

// elementNumber is the number of an element of a list in a variable's name.
var elementNumber = regexp.MustCompile(`_([1-9][0-9]{0,3})(_|$)`)

// element finds the member of a list's element that a variable names.
func element(name string, known map[string]overridable) (overridable, bool) {
	m := elementNumber.FindStringSubmatchIndex(name)
	if m == nil {
		return overridable{}, false
	}
	o, ok := known[name[:m[2]]+"0"+name[m[3]:]]
	o.path = strings.Replace(o.path, "[0]", "["+name[m[2]:m[3]]+"]", 1)
	return o, ok && strings.Contains(o.path, "[")
}

// readEnv turns the overrides of environ ("NAME=text", the last of one name
// counts) into nodes by path and reports the names it does not know. An empty
// text is the same as no variable.
func (b *binder) readEnv(environ []string, fields []field) {
	known := make(map[string]overridable)
	collectEnv(fields, "", known)
	b.overrides = known
	texts := make(map[string]string)
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, EnvPrefix) && !strings.HasPrefix(name, ReservedEnvPrefix) && !slices.Contains(ReservedEnv, name) {
			texts[name] = text
		}
	}
	for name, text := range texts {
		o, ok := known[name]
		if !ok {
			o, ok = element(name, known)
		}
		switch {
		case !ok:
			b.strangeEnv = append(b.strangeEnv, name)
		case text == "":
		case o.f.scalar == 0 && o.f.secret:
			b.failEnv(name, "a variable holds one URL: write "+name+"_0 for the first, which the file must have")
		case o.f.scalar == 0:
			b.failEnv(name, "lists and whole sections are set in the file only")
		case !utf8.ValidString(text):
			b.failEnv(name, "the text is not valid UTF-8")
		default:
			b.env[o.path] = envNode(name, text, o.f.scalar)
		}
	}
}

func envNode(name, text string, scalar byte) *node {
	n := &node{kind: '"', raw: []byte(text), text: text, env: name}
	if scalar == 's' {
		return n
	}
	trimmed := strings.TrimSpace(text)
	if scalar == 'b' {
		switch trimmed = strings.ToLower(trimmed); trimmed {
		case "1":
			trimmed = "true"
		case "0":
			trimmed = "false"
		}
	}
	n.kind, n.raw = kindOf(trimmed), []byte(trimmed)
	return n
}

// finishEnv reports, once the file is read, the variables that replaced nothing:
// those of no member, unless the file says that a secret is in them, and those
// of elements that lists do not have.
func (b *binder) finishEnv() {
	for _, name := range b.strangeEnv {
		if !b.secretEnv[name] {
			b.unknownEnv(name, b.overrides)
		}
	}
	for path, n := range b.env {
		if list, _, inList := strings.Cut(path, "["); inList && b.seen[path] != n {
			b.failEnv(n.env, "names an element that "+list+" does not have: write the element in the file, or unset it")
		}
	}
}

func (b *binder) unknownEnv(name string, known map[string]overridable) {
	var names []string
	for k, o := range known {
		if o.f.scalar != 0 {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	// The common prefix is no evidence of likeness.
	short := strings.TrimPrefix(name, EnvPrefix)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], EnvPrefix)
	}
	if near := nearest(short, names); near != "" {
		b.failEnv(name, "unknown variable; did you mean "+EnvPrefix+near+"?")
		return
	}
	b.failEnv(name, "unknown variable; "+EnvPrefix+"… names a member of the file, such as "+envName("userServerConfig.port")+": unset it")
}

func (b *binder) failEnv(name, text string) {
	if len(b.problems) >= maxKept {
		b.moreProblems++
		return
	}
	b.problems = append(b.problems, Problem{Path: clip(name), Text: text})
}
