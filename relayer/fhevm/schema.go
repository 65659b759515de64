package fhevm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of what a request may make the relayer hold or answer.
const (
	// MaxBodyBytes bounds the body of a POST.
	MaxBodyBytes = 1 << 20
	// maxEntries bounds a list. A body of MaxBodyBytes has no room for as many valid entries, so that only lists which are
	// invalid anyway are cut.
	maxEntries = 1 << 15
	// maxDetails bounds the details of one answer: a list of 300 000 empty strings fits a body and is not worth 300 000 details.
	maxDetails = 100
	// maxNameEcho bounds, in bytes, how much of an unknown member's name is repeated.
	maxNameEcho = 64
)

// shape is a JSON form that a member may have.
type shape uint8

const (
	text         shape = iota // a string
	textOrNumber              // a string, or a number whose digits are taken as text
	list                      // an array
	object                    // an object
)

// rule returns what is wrong with a value, "" when it is right. It checks prefix, length, alphabet and value in this order, so that
// a field has one issue, the first.
type rule func(value string, o *Options) (issue string)

// field describes one member of a request body: the table of the rules is made of these.
type field struct {
	name   string
	shape  shape
	rule   rule    // of text and textOrNumber
	elem   *field  // of list; its name is not used
	fields []field // of object, in the order in which details name them
	closed bool    // of object: unknown members are refused
	// filled refuses an empty list.
	filled bool
	// limit returns the most entries a list may have; 0 or a nil limit: no limit.
	limit func(o *Options) int
	// whole is a rule for an object whose members are all right.
	whole func(n *node, o *Options) (issue string)
}

// node is what was read for one field: the text of a scalar, the entries of a list, or one node per field of an object.
type node struct {
	present bool
	text    string
	nodes   []node
	dropped bool // the list went on past maxEntries
}

// at returns the node of the object's i-th field.
func (n *node) at(i int) *node { return &n.nodes[i] }

// errShape wraps the answer to a body of another shape than its schema.
type errShape struct{ answer *Error }

func (e errShape) Error() string { return e.answer.Error() }

// parse reads body by the schema f and applies every rule. The error is nil or the answer for the client.
func parse(body []byte, f *field, o *Options) (*node, *Error) {
	if len(body) > MaxBodyBytes {
		return nil, ErrBodyTooLarge()
	}
	// The whole body first: syntax, UTF-8 and repeated names, so that what the reader below says is about a document with one meaning.
	if !jsontext.Value(body).IsValid() {
		return nil, errMalformedJSON()
	}
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true)) // no second look for repeated names
	n := new(node)
	if err := read(dec, f, n, ""); err != nil {
		var bad errShape
		if errors.As(err, &bad) {
			return nil, bad.answer
		}
		return nil, errMalformedJSON()
	}
	c := check{o: o}
	if c.missing(f, n, ""); len(c.details) > 0 {
		return nil, errMissing(c.details)
	}
	if c.rules(f, n, ""); len(c.details) > 0 {
		return nil, errValidation(c.details...)
	}
	return n, nil
}

// read reads one value into n. The first value of a wrong type and the first unknown member end it, whichever comes first in the body.
func read(dec *jsontext.Decoder, f *field, n *node, path string) error {
	n.present = true
	kind := dec.PeekKind()
	switch f.shape {
	case text, textOrNumber:
		if kind != '"' && (kind != '0' || f.shape == text) {
			if f.shape == textOrNumber {
				return errShape{errMalformedJSON()}
			}
			return errShape{errValidation(Detail{requestField, issueString})}
		}
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		n.text = token.String()
		return nil
	case list:
		if kind != '[' {
			return errShape{errValidation(Detail{requestField, issueType})}
		}
		return readList(dec, f, n, path)
	default:
		if kind != '{' {
			return errShape{errValidation(Detail{requestField, issueType})}
		}
		return readObject(dec, f, n, path)
	}
}

func readList(dec *jsontext.Decoder, f *field, n *node, path string) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; dec.PeekKind() != ']'; i++ {
		if i == maxEntries {
			n.dropped = true
		}
		if n.dropped {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		var entry node
		if err := read(dec, f.elem, &entry, path); err != nil {
			return err
		}
		n.nodes = append(n.nodes, entry)
	}
	_, err := dec.ReadToken()
	return err
}

func readObject(dec *jsontext.Decoder, f *field, n *node, path string) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	n.nodes = make([]node, len(f.fields))
	for dec.PeekKind() != '}' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		i := slices.IndexFunc(f.fields, func(f field) bool { return f.name == name })
		switch {
		case i >= 0:
			err = read(dec, &f.fields[i], n.at(i), join(path, name))
		case f.closed:
			err = errShape{errValidation(Detail{join(path, bounded(name, maxNameEcho)), issueUnknown})}
		default:
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// check gathers details, at most maxDetails.
type check struct {
	o       *Options
	details []Detail
}

func (c *check) full() bool { return len(c.details) >= maxDetails }

func (c *check) add(path, issue string) {
	if issue != "" && !c.full() {
		c.details = append(c.details, Detail{path, issue})
	}
}

// missing names every member that is absent, in the order of the schema.
func (c *check) missing(f *field, n *node, path string) {
	switch f.shape {
	case list:
		for i := 0; i < len(n.nodes) && !c.full() && f.elem.shape == object; i++ {
			c.missing(f.elem, &n.nodes[i], index(path, i))
		}
	case object:
		for i := range f.fields {
			at := join(path, f.fields[i].name)
			if member := n.at(i); member.present {
				c.missing(&f.fields[i], member, at)
			} else {
				c.add(at, issueMissing)
			}
		}
	}
}

// rules applies every rule, in the order of the schema.
func (c *check) rules(f *field, n *node, path string) {
	switch f.shape {
	case text, textOrNumber:
		c.add(path, f.rule(n.text, c.o))
	case list:
		c.add(path, f.size(n, c.o))
		for i := 0; i < len(n.nodes) && !c.full(); i++ {
			c.rules(f.elem, &n.nodes[i], index(path, i))
		}
	case object:
		before := len(c.details)
		for i := range f.fields {
			c.rules(&f.fields[i], n.at(i), join(path, f.fields[i].name))
		}
		if f.whole != nil && len(c.details) == before {
			c.add(path, f.whole(n, c.o))
		}
	}
}

// size returns what is wrong with the number of a list's entries.
func (f *field) size(n *node, o *Options) string {
	limit := maxEntries
	if f.limit != nil {
		if most := f.limit(o); most > 0 {
			limit = min(limit, most)
		}
	}
	switch {
	case f.filled && len(n.nodes) == 0:
		return issueEmpty
	case n.dropped || len(n.nodes) > limit:
		return fmt.Sprintf("Must not have more than %d entries", limit)
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// bounded returns s cut to at most n bytes of whole characters, with "…" where something was cut.
func bounded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
