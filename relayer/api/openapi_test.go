package api

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
)

func TestDocumentOpenAPI(t *testing.T) {
	t.Parallel()
	if *updateDocs {
		require.NoError(t, os.WriteFile("openapi.yml", document(), 0o644))
		return
	}
	require.Equal(t, string(document()), string(openAPI), "run the test with -update-docs")
}

// Every route is documented and every operation has a route.
func TestDocumentRoutes(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	var routed, documented []string
	for _, r := range f.table() {
		if r.get != nil {
			routed = append(routed, fmt.Sprint("get ", r.path, r.open))
		}
		if r.post != nil {
			routed = append(routed, fmt.Sprint("post ", r.path, r.open))
		}
	}
	for _, op := range operations() {
		documented = append(documented, fmt.Sprint(op.method, " ", op.path, op.open))
	}
	slices.Sort(routed)
	slices.Sort(documented)
	require.Equal(t, routed, documented)
}

// The members of a body are those whose absence is refused, at every level, and what the document calls valid is accepted.
func TestDocumentRequests(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	for _, e := range fhevm.Endpoints {
		body := requests[e]
		require.Equal(t, required(body.members, ""), f.missing(t, e, "{}"), e)
		for _, m := range body.members {
			if m.kind == "object" {
				require.Equal(t, required(m.members, m.name+"."), only(f.missing(t, e, `{"`+m.name+`":{}}`), m.name+"."), e)
			}
			if m.entries != nil && m.entries.kind == "object" {
				require.Equal(t, required(m.entries.members, m.name+"[0]."), only(f.missing(t, e, `{"`+m.name+`":[{}]}`), m.name+"["), e)
			}
			for _, inner := range m.members {
				if inner.kind == "object" {
					require.Equal(t, required(inner.members, m.name+"."+inner.name+"."), only(f.missing(t, e, `{"`+m.name+`":{"`+inner.name+`":{}}}`), m.name+"."+inner.name+"."), e)
				}
				if inner.entries != nil && inner.entries.kind == "object" {
					require.Equal(t, required(inner.entries.members, m.name+"."+inner.name+"[0]."), only(f.missing(t, e, `{"`+m.name+`":{"`+inner.name+`":[{}]}}`), m.name+"."+inner.name+"["), e)
				}
			}
		}
		var v any
		decode(t, bodyOf(e, 1), &v)
		require.NoError(t, body.conforms(v), e)
	}
	require.Len(t, requests, len(fhevm.Endpoints))
}

func required(members []member, prefix string) (out []string) {
	for _, m := range members {
		out = append(out, prefix+m.name)
	}
	slices.Sort(out)
	return out
}

func only(names []string, prefix string) (out []string) {
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			out = append(out, n)
		}
	}
	return out
}

func (f *fixture) missing(t *testing.T, e fhevm.Endpoint, body string) (out []string) {
	a := f.do(t, "POST", string(e), body)
	require.Equal(t, fhevm.LabelMissingFields, a.body.Error.Label, a.raw)
	for _, d := range a.body.Error.Details {
		out = append(out, d.Field)
	}
	slices.Sort(out)
	return out
}

func TestDocsPage(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	page := f.do(t, "GET", "/docs", "")
	require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, page.raw, "<script")
	for _, op := range operations() {
		require.Contains(t, page.raw, op.path)
	}
	for _, want := range []string{"attestedPayload.requestValidity.durationSeconds", "handleContractPairs[].handle", "not_allowed_on_host_acl", "error.details[].issue"} {
		require.Contains(t, page.raw, want)
	}
	require.Equal(t, string(openAPI), f.do(t, "GET", "/openapi.yml", "").raw)
}
