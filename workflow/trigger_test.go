package workflow

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

func sum(b []byte) [32]byte { return sha256.Sum256(b) }

const (
	owner20 = "0x1234567890abcdef1234567890abcdef12345678"
	byID    = `{"workflowID":"0xab"}`
	byName  = `{"workflowOwner":"` + owner20 + `","workflowName":"my workflow","workflowTag":"v1"}`
)

var padded = "0x" + strings.Repeat("0", 62) + "ab"

// params returns a trigger's params with the given input and workflow, each left out if "".
func params(input, workflow string) string {
	var members []string
	if input != "" {
		members = append(members, `"input":`+input)
	}
	if workflow != "" {
		members = append(members, `"workflow":`+workflow)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// conformance: 2.select.either
func TestDecodeTriggerParams(t *testing.T) {
	t.Parallel()
	reference := Reference{Owner: owner20, Name: "my workflow", Tag: "v1"}
	both := reference
	both.ID = padded
	for _, c := range []struct {
		in    string
		input string
		want  Reference
	}{
		{params(`{}`, byID), `{}`, Reference{ID: padded}},
		{params(` [ 1.50, {"b":1,"a":2} ] `, byID), `[ 1.50, {"b":1,"a":2} ]`, Reference{ID: padded}},
		{params(`[]`, byName), `[]`, reference},
		{params(`{}`, strings.Replace(byName, "{", `{"workflowID":"ab",`, 1)), `{}`, both},
		{params(`{}`, `{"workflowID":"ab","workflowTag":"v1"}`), `{}`, Reference{ID: padded, Tag: "v1"}},
		{params(`{}`, `{"workflowID":"\u0061b","other":[null]}`), `{}`, Reference{ID: padded}},
		{`{"key":{"keyType":7},"extra":null,"input":{},"workflow":` + byID + `}`, `{}`, Reference{ID: padded}},
		{params(`{}`, `{"workflowOwner":"1","workflowName":"`+strings.Repeat("n", 64)+`","workflowTag":"`+strings.Repeat("t", 32)+`"}`), `{}`,
			Reference{Owner: "0x" + strings.Repeat("0", 39) + "1", Name: strings.Repeat("n", 64), Tag: strings.Repeat("t", 32)}},
		{params(`{}`, `{"workflowOwner":"1","workflowName":"`+strings.Repeat("é", 32)+`","workflowTag":" "}`), `{}`,
			Reference{Owner: "0x" + strings.Repeat("0", 39) + "1", Name: strings.Repeat("é", 32), Tag: " "}},
	} {
		got, err := DecodeTriggerParams(jsontext.Value(c.in))
		require.NoError(t, err, c.in)
		require.Equal(t, c.input, string(got.Input))
		require.Equal(t, c.want, got.Workflow)
		require.Equal(t, c.want.ID != "", got.Workflow.HasID())
	}
}

// refuseParams runs a table of params that must be refused with a text.
func refuseParams(t *testing.T, cases []struct{ in, says string }) {
	t.Helper()
	for _, c := range cases {
		got, err := DecodeTriggerParams(jsontext.Value(c.in))
		require.ErrorContains(t, err, c.says, "%.200s", c.in)
		require.Zero(t, got)
		require.Less(t, len(err.Error()), 300, "%.200s", c.in)
		require.NotContains(t, err.Error(), "json:")
		require.NotContains(t, err.Error(), "struct")
	}
}

// conformance: 2.params.input
func TestTriggerInput(t *testing.T) {
	t.Parallel()
	refuseParams(t, []struct{ in, says string }{
		{params(``, byID), "params.input is missing: send a JSON object or array"},
		{params(`null`, byID), "params.input is null"},
		{params(`true`, byID), "params.input is a boolean"},
		{params(`1.5`, byID), "params.input is the number 1.5"},
		{params(strings.Repeat("7", 5000), byID), "params.input is the number " + strings.Repeat("7", 40) + "…"},
		{params(`"x"`, byID), `params.input is the string "x"`},
		{params(`"`+strings.Repeat("é", 5000)+`"`, byID), `é"…`},
		{`{"Input":{},"workflow":` + byID + `}`, "params.input is missing"},
	})
}

// conformance: 2.params.name
// conformance: 2.params.tag
func TestTriggerReference(t *testing.T) {
	t.Parallel()
	workflow := func(members string) string { return params("{}", "{"+members+"}") }
	refuseParams(t, []struct{ in, says string }{
		{params("{}", ``), "params.workflow is missing"},
		{params("{}", `null`), "params.workflow is null"},
		{params("{}", `"0xab"`), `params.workflow is the string "0xab": send an object`},
		{params("{}", `[]`), "params.workflow is an array"},
		{workflow(``), "names no workflow: send workflowID, or all of workflowOwner, workflowName and workflowTag"},
		{workflow(`"WorkflowID":"ab"`), "names no workflow"},
		{workflow(`"workflowOwner":"1","workflowName":"n"`), "names no workflow"},
		{workflow(`"workflowOwner":"1","workflowTag":"t"`), "names no workflow"},
		{workflow(`"workflowName":"n","workflowTag":"t"`), "names no workflow"},
		{workflow(`"workflowID":""`), `params.workflow.workflowID "" is not 1 to 64`},
		{workflow(`"workflowID":"0x"`), "no digits"},
		{workflow(`"workflowID":"0xAB"`), `params.workflow.workflowID "0xAB" is not 1 to 64 lower-case hex digits, with or without 0x (write it in lower case)`},
		{workflow(`"workflowID":"` + strings.Repeat("1", 65) + `"`), "it has 65"},
		{workflow(`"workflowID":7`), "params.workflow.workflowID is the number 7: send a string"},
		{workflow(`"workflowID":null`), "params.workflow.workflowID is null"},
		{workflow(`"workflowID":{}`), "params.workflow.workflowID is an object"},
		{workflow(`"workflowID":["ab"]`), "params.workflow.workflowID is an array"},
		{workflow(`"workflowID":"ab","workflowOwner":"zz"`), `params.workflow.workflowOwner "zz" is not 1 to 40`},
		{workflow(`"workflowID":"ab","workflowOwner":"` + strings.Repeat("1", 41) + `"`), "workflowOwner"},
		{workflow(`"workflowID":"ab","workflowOwner":false`), "params.workflow.workflowOwner is a boolean"},
		{workflow(`"workflowID":"ab","workflowName":""`), `params.workflow.workflowName "" has 0 bytes, want 1 to 64`},
		{workflow(`"workflowID":"ab","workflowName":"` + strings.Repeat("n", 65) + `"`), "has 65 bytes, want 1 to 64"},
		{workflow(`"workflowID":"ab","workflowName":"` + strings.Repeat("é", 33) + `"`), "has 66 bytes"},
		{workflow(`"workflowID":"ab","workflowTag":""`), `params.workflow.workflowTag "" has 0 bytes, want 1 to 32`},
		{workflow(`"workflowID":"ab","workflowTag":"` + strings.Repeat("t", 33) + `"`), "has 33 bytes, want 1 to 32"},
		{workflow(`"workflowID":"ab","workflowTag":1`), "params.workflow.workflowTag is the number 1"},
	})
}

func TestTriggerParamsForm(t *testing.T) {
	t.Parallel()
	refuseParams(t, []struct{ in, says string }{
		{`[]`, "params is an array: send an object with input and workflow"},
		{`"x"`, `params is the string "x"`},
		{`null`, "params is null"},
		{`1`, "params is the number 1"},
		{`"\ud800"`, "params is a string"},
		{``, "params is not JSON"},
		{`x`, "params is not JSON"},
		{`{`, "params is not valid JSON"},
		{`{"input":{},"input":{}}`, `the member "/input" is there twice`},
		{params(`{}`, `{"workflowID":"ab","workflowID":"ab"}`), "there twice"},
		{params(`{"a":"\ud800"}`, byID), "not valid JSON"},
	})
}

func FuzzDecodeTriggerParams(f *testing.F) {
	for _, s := range []string{
		"", "{}", params("{}", byID), params("[1]", byName), params("1", byID), params("{}", `{"workflowID":null}`), params("{}", `{"workflowName":"\ud800"}`),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeTriggerParams(data)
		if err != nil {
			require.Less(t, len(err.Error()), 500)
			return
		}
		require.Contains(t, "{[", string(p.Input[0]))
		r := p.Workflow
		require.True(t, r.HasID() || r.Complete())
		if r.HasID() {
			require.True(t, isFixedHex(r.ID, MaxIDDigits))
		}
		if r.Owner != "" {
			require.True(t, isFixedHex(r.Owner, MaxOwnerDigits))
		}
		require.LessOrEqual(t, len(r.Name), MaxNameBytes)
		require.LessOrEqual(t, len(r.Tag), MaxTagBytes)
	})
}

func BenchmarkDecodeTriggerParams(b *testing.B) {
	data := jsontext.Value(params(`{"items":["`+strings.Repeat(`","`, 250)+`"]}`, byName))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeTriggerParams(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMetadataDigest(b *testing.B) {
	m := sample()
	b.ReportAllocs()
	for b.Loop() {
		m.Digest()
	}
}
