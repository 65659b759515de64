package main

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
)

const testKey = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"

// runCommand runs one command line in this process.
func runCommand(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(context.Background(), args, strings.NewReader(stdin), &out, &errs, []string{envPrivateKey + "=" + testKey})
	code = report(&errs, err)
	return out.String(), errs.String(), code
}

// The printed token must be one that the gateway accepts for the printed body.
func TestTokenSignsTheBody(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := runCommand(t, `{"text": "it's €5\n", "numbers": [1.0, 1e3, 0.1]}`,
		"token", "--json", "--owner", "0xAA", "--name", "it's", "--tag", "$(rm -rf /)", "--input", "-")
	require.Equal(t, exitOK, code, stderr)
	var r tokenReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))

	req, err := jsonrpc.DecodeRequest([]byte(r.Body))
	require.NoError(t, err)
	require.NoError(t, req.Validate())
	require.Equal(t, r.ID, req.ID)
	require.Contains(t, string(req.Params), `"numbers":[1.0,1e3,0.1]`, "numbers keep their digits")
	digest, err := req.Digest()
	require.NoError(t, err)
	token, err := auth.ParseToken(r.Token, time.Now(), 0)
	require.NoError(t, err)
	require.NoError(t, token.CheckDigest(digest))
	signer, err := token.Signer()
	require.NoError(t, err)
	require.Equal(t, r.Signer, strings.ToLower(signer.Hex()))
	require.WithinDuration(t, token.Expires, r.Expires, time.Second)

	// The curl line, as a shell sees it.
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	out, err := exec.Command(sh, "-c", `curl() { for a; do printf '%s\0' "$a"; done; }; `+r.Curl).Output()
	require.NoError(t, err)
	require.Equal(t, []string{"-sS", "-H", "Content-Type: application/json", "-H", "Authorization: Bearer " + r.Token,
		"--data-binary", r.Body, r.URL}, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
}

func TestTokenOfLongBody(t *testing.T) {
	t.Parallel()
	stdout, _, code := runCommand(t, `["`+strings.Repeat("x", maxCurlBytes)+`"]`, "token", "--workflow-id", "1", "--input", "-")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, "--data-binary '@body.json' 'http")
	require.Contains(t, stdout, "save it, without a line end, as body.json first")
}

func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	_, stderr, code := runCommand(t, strings.Repeat(" ", maxInputBytes+1), "token", "--workflow-id", "1", "--input", "-")
	require.Equal(t, exitLocal, code)
	require.Contains(t, stderr, "standard input is longer than")
}
