package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dongate/auth"
	"dongate/jsonrpc"
)

// defaultURL is where a gateway with the default configuration listens.
const defaultURL = "http://127.0.0.1:5002/"

// maxCurlBytes is the longest body that is put on curl's command line; systems
// take 128 KiB per argument.
const maxCurlBytes = 96 << 10

// tokenReport is what `token --json` prints.
type tokenReport struct {
	ID      string    `json:"id"`
	Signer  string    `json:"signer"`
	Digest  string    `json:"digest"`
	Expires time.Time `json:"expires"`
	URL     string    `json:"url"`
	Body    string    `json:"body"` // the bytes to send, exactly
	Token   string    `json:"token"`
	Curl    string    `json:"curl"`
}

func newToken(w *world) *cobra.Command {
	var (
		flags  requestFlags
		key    keyFlags
		url    string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "token (--workflow-id ID | --owner ADDRESS --name NAME --tag TAG) [flags]",
		Short: "Sign a trigger and print it instead of sending it",
		Long: `Sign a trigger and print it instead of sending it: the body, the token and a
curl command that sends both.

The token is good for this body only, byte by byte in its members' values, for
five minutes, and once. A request that the gateway refuses before it is handed
to nodes (a rate limit, say) does not use it up.

The key comes from a file or the environment, never from a flag's value.`,
		Example: `  gateway token --key-file key.hex --workflow-id 0x1234 --input '{"amount": "1000"}'
  gateway token --key-file key.hex --owner 0xabc… --name payout --tag v1 --input @input.json
  gateway token --keystore key.json --workflow-id 0x1234 --json | jq -r .curl | sh`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := signedRequest(w, cmd, &flags, &key)
			if err != nil {
				return err
			}
			r.URL = url
			if r.URL == "" {
				r.URL = firstURL(w.env(envURL))
			}
			r.Curl = r.curl()
			if asJSON {
				return w.printJSON(r)
			}
			return r.print(w)
		},
	}
	flags.add(cmd)
	key.add(cmd)
	cmd.Flags().StringVar(&url, "url", "", "the gateway's `URL`, for the curl command (default: $"+envURL+" or "+defaultURL+")")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: id, signer, digest, expires, url, body, token, curl")
	return cmd
}

// firstURL is the first of a list as DONGATE_URL holds it.
func firstURL(list string) string {
	if all := splitList(list); len(all) > 0 {
		return all[0]
	}
	return defaultURL
}

// splitList splits at commas and white space.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

func signedRequest(w *world, cmd *cobra.Command, flags *requestFlags, key *keyFlags) (*tokenReport, error) {
	req, _, err := flags.request(w, cmd)
	if err != nil {
		return nil, err
	}
	signer, err := key.signer(w)
	if err != nil {
		return nil, err
	}
	digest, err := req.Digest()
	if err != nil {
		return nil, usage(cmd, err)
	}
	now := time.Now()
	token, err := auth.NewToken(signer, digest, auth.TokenOptions{Now: now})
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return &tokenReport{
		ID: req.ID, Signer: address(signer), Digest: "0x" + hex.EncodeToString(digest[:]),
		Expires: now.Add(auth.MaxTokenTTL).UTC().Truncate(time.Second),
		Body:    string(jsonrpc.AppendRequest(nil, req)), Token: token,
	}, nil
}

// address is a signer's address as the protocol writes it.
func address(s auth.Signer) string { return strings.ToLower(s.Address().Hex()) }

func (r *tokenReport) curl() string {
	body := r.Body
	if len(body) > maxCurlBytes {
		body = "@body.json"
	}
	return fmt.Sprintf("curl -sS -H 'Content-Type: application/json' -H %s --data-binary %s %s",
		shellQuote("Authorization: Bearer "+r.Token), shellQuote(body), shellQuote(r.URL))
}

func (r *tokenReport) print(w *world) error {
	t := newTable(w.stdout)
	t.row("id", r.ID)
	t.row("signer", r.Signer)
	t.row("digest", r.Digest)
	t.row("expires", fmt.Sprintf("%s, in 5 minutes", r.Expires.Format(time.RFC3339)))
	if err := t.flush(); err != nil {
		return err
	}
	if len(r.Body) > maxCurlBytes {
		r.Curl += "\n\nThe body is too long for a command line: save it, without a line end, as body.json first."
	}
	_, err := fmt.Fprintf(w.stdout, "\nbody\n%s\n\ntoken\n%s\n\ncurl\n%s\n", r.Body, r.Token, r.Curl)
	return err
}
