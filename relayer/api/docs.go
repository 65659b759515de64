package api

import (
	"bytes"
	"html/template"
	"strings"
)

// docsPage makes the page of /docs from the same tables as the OpenAPI document. It needs no script.
func docsPage() []byte {
	var out bytes.Buffer
	paragraphs := strings.Split(aboutAPI, "\n\n")
	if err := docsTemplate.Execute(&out, struct {
		About      []string
		Operations []operation
	}{paragraphs, operations()}); err != nil {
		panic(err) // only a mistake in the template, which every test would meet
	}
	return out.Bytes()
}

// The accessors below are the template's.

func (o operation) Method() string        { return strings.ToUpper(o.method) }
func (o operation) Path() string          { return o.path }
func (o operation) About() string         { return o.about }
func (o operation) Body() []row           { return o.body.rows("") }
func (o operation) Responses() []response { return o.responses }

func (r response) Status() int      { return r.status }
func (r response) Text() string     { return r.about }
func (r response) Members() []row   { return r.schema.rows("") }
func (r response) RetryAfter() bool { return r.retryAfter }
func (r response) Labels() (out []string) {
	for _, l := range r.labels {
		out = append(out, string(l))
	}
	return out
}

// row is one member in a table of members.
type row struct{ Name, Type, Rule string }

// rows lists the members of an object and of what is in it, under dotted names.
func (s *schema) rows(prefix string) (out []row) {
	if s == nil {
		return nil
	}
	for _, m := range s.members {
		out = append(out, m.rowsOf(prefix+m.name, m.optional)...)
	}
	return out
}

func (s *schema) rowsOf(name string, optional bool) []row {
	kind := s.kind
	if optional {
		kind += ", sometimes"
	}
	var rule []string
	if s.about != "" {
		rule = append(rule, s.about)
	}
	if s.filled {
		rule = append(rule, "Not empty.")
	}
	if s.enum != nil {
		rule = append(rule, "One of: "+strings.Join(s.enum, ", "))
	}
	if s.pattern != "" {
		rule = append(rule, s.pattern)
	}
	out := []row{{name, kind, strings.Join(rule, " ")}}
	switch {
	case s.entries != nil && s.kind == "array" && s.entries.members == nil:
		return append(out, s.entries.rowsOf(name+"[]", false)...)
	case s.entries != nil && s.kind == "array":
		return append(out, s.entries.rows(name+"[].")...)
	case s.entries != nil:
		return append(out, s.entries.rowsOf(name+".*", false)...)
	}
	return append(out, s.rows(name+".")...)
}

var docsTemplate = template.Must(template.New("docs").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Relayer API</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { border: 1px solid #8884; padding: .2rem .5rem; text-align: left; vertical-align: top }
code { overflow-wrap: anywhere } summary { cursor: pointer } section { margin-top: 2.5rem }
</style></head><body>
<h1>Relayer API</h1>
{{range .About}}<p>{{.}}</p>
{{end}}<p>For programs: <a href="openapi.yml">openapi.yml</a></p>
<ul>{{range .Operations}}<li><a href="#{{.Method}}{{.Path}}"><code>{{.Method}} {{.Path}}</code></a> {{.About}}</li>
{{end}}</ul>
{{range .Operations}}<section id="{{.Method}}{{.Path}}"><h2><code>{{.Method}} {{.Path}}</code></h2><p>{{.About}}</p>
{{with .Body}}<h3>Body</h3>{{template "members" .}}{{end}}
<h3>Answers</h3>
{{range .Responses}}<details><summary><b>{{.Status}}</b> {{.Text}}{{range .Labels}} <code>{{.}}</code>{{end}}{{if .RetryAfter}} (Retry-After){{end}}</summary>{{template "members" .Members}}</details>
{{end}}</section>
{{end}}</body></html>
{{define "members"}}<table><tr><th>Member</th><th>Type</th><th>Rule</th></tr>
{{range .}}<tr><td><code>{{.Name}}</code></td><td>{{.Type}}</td><td>{{.Rule}}</td></tr>
{{end}}</table>{{end}}`))
