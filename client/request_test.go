package client_test

import (
	stdjson "encoding/json"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/auth"
	"dongate/client"
	"dongate/jsonrpc"
	"dongate/workflow"
)

func TestBuildRequestRefusesWhatAGatewayWould(t *testing.T) {
	t.Parallel()
	ok := workflow.Reference{ID: "0x1"}
	for name, c := range map[string]struct {
		request client.Request
		want    error
		text    string
	}{
		"no input":         {client.Request{Workflow: ok}, client.ErrInvalidParams, "params.input is null"},
		"empty raw":        {client.Request{Workflow: ok, Input: jsontext.Value(nil)}, client.ErrInvalidParams, "params.input is missing"},
		"scalar":           {client.Request{Workflow: ok, Input: 5}, client.ErrInvalidParams, "params.input is the number 5"},
		"bad raw":          {client.Request{Workflow: ok, Input: []byte(`{`)}, client.ErrInvalidParams, "not valid JSON"},
		"duplicate name":   {client.Request{Workflow: ok, Input: []byte(`{"a":1,"a":1}`)}, client.ErrInvalidParams, "twice"},
		"not encodable":    {client.Request{Workflow: ok, Input: func() {}}, client.ErrInvalidParams, "cannot be encoded"},
		"not a number":     {client.Request{Workflow: ok, Input: []float64{math.NaN()}}, client.ErrInvalidParams, "cannot be encoded"},
		"no workflow":      {client.Request{Input: jsontext.Value(`{}`)}, client.ErrInvalidParams, "names no workflow"},
		"no tag":           {client.Request{Workflow: workflow.Reference{Owner: "0x1", Name: "n"}, Input: jsontext.Value(`{}`)}, client.ErrInvalidParams, "names no workflow"},
		"upper case":       {client.Request{Workflow: workflow.Reference{ID: "0xAB"}, Input: jsontext.Value(`{}`)}, client.ErrInvalidParams, "params.workflow.workflowID"},
		"long name":        {client.Request{Workflow: workflow.Reference{ID: "1", Name: strings.Repeat("n", 65)}, Input: jsontext.Value(`{}`)}, client.ErrInvalidParams, "params.workflow.workflowName"},
		"inexact":          {client.Request{Workflow: ok, Input: struct{ N int64 }{9007199254740993}}, client.ErrInvalidParams, "9007199254740993"},
		"saturated":        {client.Request{Workflow: ok, Input: jsontext.Value(`[1e400]`)}, client.ErrInvalidParams, "1e400"},
		"slash in the id":  {client.Request{ID: "a/b", Workflow: ok, Input: jsontext.Value(`{}`)}, client.ErrInvalidRequest, "id"},
		"long id":          {client.Request{ID: strings.Repeat("i", 201), Workflow: ok, Input: jsontext.Value(`{}`)}, client.ErrInvalidRequest, "id"},
		"id not UTF-8":     {client.Request{ID: "\xff", Workflow: ok, Input: jsontext.Value(`{}`)}, client.ErrInvalidRequest, "UTF-8"},
		"method not UTF-8": {client.Request{Method: "\xff", Workflow: ok, Input: jsontext.Value(`{}`)}, client.ErrInvalidRequest, "UTF-8"},
		"deep":             {client.Request{Workflow: ok, Input: jsontext.Value(strings.Repeat("[", 63) + strings.Repeat("]", 63))}, client.ErrInvalidRequest, "64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.BuildRequest(c.request)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			var e *client.Error
			require.ErrorAs(t, err, &e)
			require.Zero(t, e.HTTPStatus)
			require.Less(t, len(err.Error()), 400)
		})
	}
	// The text for inexact numbers is the gateway's.
	_, err := client.BuildRequest(client.Request{Workflow: ok, Input: jsontext.Value(`{"n":9007199254740993}`)})
	want := jsonrpc.CheckExactNumbers(jsontext.Value(`{"input":{"n":9007199254740993},"workflow":{"workflowID":"0x1"}}`))
	require.ErrorContains(t, err, want.Error())
}

func TestRawInputIsSentAsItIs(t *testing.T) {
	t.Parallel()
	const raw = `{"z": 1.0, "a": [1e3, 0.1]}`
	for _, input := range []any{jsontext.Value(raw), stdjson.RawMessage(raw), []byte(raw)} {
		p, err := client.BuildRequest(client.Request{ID: "a", Workflow: workflow.Reference{ID: "1"}, Input: input})
		require.NoError(t, err)
		require.Contains(t, strings.ReplaceAll(string(p.Body), " ", ""), `"input":{"z":1.0,"a":[1e3,0.1]}`, "%T", input)
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	p, err := client.BuildRequest(byID("a"))
	require.NoError(t, err)
	now := time.Unix(1764500000, 999)
	s, err := client.Sign(p, testSigner(t), auth.TokenOptions{Now: now, TTL: time.Minute, ID: "jti"})
	require.NoError(t, err)
	require.Equal(t, testSigner(t).Address(), s.Signer)
	require.True(t, s.Expires.Equal(time.Unix(1764500060, 0)))
	token, err := auth.ParseToken(s.Token, now, 0)
	require.NoError(t, err)
	require.NoError(t, token.CheckDigest(p.Digest))
	_, err = client.Sign(p, testSigner(t), auth.TokenOptions{TTL: time.Hour})
	require.Error(t, err)
	s, err = client.Sign(p, testSigner(t), auth.TokenOptions{})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(auth.MaxTokenTTL), s.Expires, time.Minute)
}

// A shell hands curl exactly the body and the token, whatever they hold.
func TestCurlSurvivesTheShell(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("a'\"\\$`!;&|<>(){}*?~# \né"))).Draw(rt, "text")
		p, err := client.BuildRequest(client.Request{Workflow: workflow.Reference{ID: "1"}, Input: []string{text}})
		require.NoError(rt, err)
		s, err := client.Sign(p, testSigner(t), auth.TokenOptions{})
		require.NoError(rt, err)
		url := "http://127.0.0.1:5002/it's?a&b"
		out, err := exec.Command(sh, "-c", `curl() { for a in "$@"; do printf '%s\001' "$a"; done; }; `+s.Curl(url)).Output()
		require.NoError(rt, err)
		require.Equal(rt, []string{"-sS", "-H", "Content-Type: application/json", "-H", "Authorization: Bearer " + s.Token, "--data-binary", string(s.Body), url, ""},
			strings.Split(string(out), "\x01"))
	})
}

// Every request that is built is one that a gateway decodes to the same values, with the digest that was signed.
func TestBuiltRequestsDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := client.Request{
			ID:       rapid.StringN(0, 60, 200).Draw(t, "id"),
			Workflow: workflow.Reference{ID: rapid.StringMatching(`(0x)?[0-9a-f]{1,64}`).Draw(t, "workflow")},
			Input:    rapid.MapOf(rapid.String(), rapid.Float64Range(-1e15, 1e15)).Draw(t, "input"),
		}
		p, err := client.BuildRequest(r)
		if strings.Contains(r.ID, "/") {
			require.ErrorIs(t, err, client.ErrInvalidRequest)
			return
		}
		require.NoError(t, err)
		got, err := jsonrpc.DecodeRequest(p.Body)
		require.NoError(t, err)
		require.NoError(t, got.Validate())
		if r.ID != "" {
			require.Equal(t, r.ID, got.ID)
		}
		require.Equal(t, p.ID, got.ID)
		digest, err := got.Digest()
		require.NoError(t, err)
		require.Equal(t, p.Digest, digest)
		params, err := workflow.DecodeTriggerParams(got.Params)
		require.NoError(t, err)
		id, err := workflow.NormalizeID(r.Workflow.ID)
		require.NoError(t, err)
		require.Equal(t, workflow.Reference{ID: id}, params.Workflow)
	})
}
