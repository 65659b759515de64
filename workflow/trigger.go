package workflow

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Reference says which workflow a client means (protocol §2): by ID, or by Owner, Name and Tag, or by all of them. A
// member that the client did not give is "".
type Reference struct {
	ID    string // normal form, see NormalizeID
	Owner string // normal form, see NormalizeOwner
	Name  string // in clear, 1 to MaxNameBytes bytes; looked up by HashName
	Tag   string // 1 to MaxTagBytes bytes
}

// HasID reports whether the client named the workflow's id.
func (r *Reference) HasID() bool { return r.ID != "" }

// Complete reports whether owner, name and tag are all there, so that the workflow can be looked up by them.
func (r *Reference) Complete() bool { return r.Owner != "" && r.Name != "" && r.Tag != "" }

// TriggerParams are the parameters of `workflows.execute` as a client sends them (protocol §2).
type TriggerParams struct {
	Input    jsontext.Value // a JSON object or array, as sent
	Workflow Reference
}

// DecodeTriggerParams decodes and checks the params of a client's trigger (protocol §2): `input` is there and is an object or an
// array; `workflow` carries workflowID, or all of workflowOwner, workflowName and workflowTag, each of its type and
// within its bounds. `key` and unknown members are ignored. The result shares no memory with raw. Every error is a
// sentence for the client: it names the member, repeats at most a few dozen bytes of its value and says what to send.
// Options are those of json.Unmarshal: who has already refused duplicate names spares looking for them again with
// jsontext.AllowDuplicateNames(true). Safe for concurrent use.
func DecodeTriggerParams(raw jsontext.Value, options ...json.Options) (TriggerParams, error) {
	if raw.Kind() != '{' {
		return TriggerParams{}, fmt.Errorf("params is %s: send an object with input and workflow", describe(raw))
	}
	var wire struct {
		Input    jsontext.Value `json:"input"`
		Workflow jsontext.Value `json:"workflow"`
	}
	if err := json.Unmarshal(raw, &wire, options...); err != nil {
		return TriggerParams{}, fmt.Errorf("params is not valid JSON: %w", bounded(err))
	}
	switch wire.Input.Kind() {
	case '{', '[':
	case 0:
		return TriggerParams{}, errors.New("params.input is missing: send a JSON object or array")
	default:
		return TriggerParams{}, fmt.Errorf("params.input is %s: send a JSON object or array", describe(wire.Input))
	}
	ref, err := decodeReference(wire.Workflow)
	if err != nil {
		return TriggerParams{}, err
	}
	return TriggerParams{Input: wire.Input, Workflow: ref}, nil
}

func decodeReference(raw jsontext.Value) (Reference, error) {
	switch raw.Kind() {
	case '{':
	case 0:
		return Reference{}, errors.New("params.workflow is missing: send an object with workflowID, or with workflowOwner, workflowName and workflowTag")
	default:
		return Reference{}, fmt.Errorf("params.workflow is %s: send an object with workflowID, or with workflowOwner, workflowName and workflowTag", describe(raw))
	}
	var wire struct {
		ID    jsontext.Value `json:"workflowID"`
		Owner jsontext.Value `json:"workflowOwner"`
		Name  jsontext.Value `json:"workflowName"`
		Tag   jsontext.Value `json:"workflowTag"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return Reference{}, fmt.Errorf("params.workflow is not valid JSON: %w", bounded(err))
	}
	var ref Reference
	for _, f := range []struct {
		name  string
		raw   jsontext.Value
		to    *string
		check func(string) (string, error)
	}{
		{"workflowID", wire.ID, &ref.ID, NormalizeID},
		{"workflowOwner", wire.Owner, &ref.Owner, NormalizeOwner},
		{"workflowName", wire.Name, &ref.Name, checkName},
		{"workflowTag", wire.Tag, &ref.Tag, checkTag},
	} {
		if f.raw == nil {
			continue
		}
		if f.raw.Kind() != '"' {
			return Reference{}, fmt.Errorf("params.workflow.%s is %s: send a string, or leave the member out", f.name, describe(f.raw))
		}
		text, err := jsontext.AppendUnquote(nil, f.raw)
		if err != nil { // cannot happen: the decoder has checked the string
			return Reference{}, fmt.Errorf("params.workflow.%s is not a valid string", f.name)
		}
		if *f.to, err = f.check(string(text)); err != nil {
			return Reference{}, fmt.Errorf("params.workflow.%s %w", f.name, err)
		}
	}
	if !ref.HasID() && !ref.Complete() {
		return Reference{}, errors.New("params.workflow names no workflow: send workflowID, or all of workflowOwner, workflowName and workflowTag")
	}
	return ref, nil
}

func checkName(s string) (string, error) { return s, textLength(s, MaxNameBytes) }
func checkTag(s string) (string, error)  { return s, textLength(s, MaxTagBytes) }

// describe names a value's JSON type, with a bounded piece of a scalar's text, for "x is …" sentences.
func describe(v jsontext.Value) string {
	switch v.Kind() {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '0':
		return "the number " + cut(string(v))
	case '"':
		if s, err := jsontext.AppendUnquote(nil, v); err == nil {
			return "the string " + quoteShort(string(s))
		}
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	default:
		return "not JSON"
	}
}

// cut bounds an ASCII text such as a number.
func cut(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	n := maxQuoted
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
