package main

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dongate/client"
	"dongate/internal/console"
)

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
			s, signer, err := flags.sign(w, cmd, &key)
			if err != nil {
				return err
			}
			r := tokenReport{
				ID: s.ID, Signer: address(signer), Digest: "0x" + hex.EncodeToString(s.Digest[:]), Expires: s.Expires.UTC(),
				URL: url, Body: string(s.Body), Token: s.Token,
			}
			if r.URL == "" {
				r.URL = gatewayURLs(w, nil)[0]
			}
			r.Curl = curl(s, r.URL)
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

// curl is the command that sends s; a body that is too long for a command line is
// left to a file.
func curl(s *client.Signed, url string) string {
	if len(s.Body) > maxCurlBytes {
		short := *s
		short.Body = []byte("@body.json")
		return short.Curl(url)
	}
	return s.Curl(url)
}

func (r *tokenReport) print(w *world) error {
	t := console.NewTable(w.stdout)
	t.Row("id", r.ID)
	t.Row("signer", r.Signer)
	t.Row("digest", r.Digest)
	t.Row("expires", fmt.Sprintf("%s, in 5 minutes", r.Expires.Format(time.RFC3339)))
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Body) > maxCurlBytes {
		r.Curl += "\n\nThe body is too long for a command line: save it, without a line end, as body.json first."
	}
	_, err := fmt.Fprintf(w.stdout, "\nbody\n%s\n\ntoken\n%s\n\ncurl\n%s\n", r.Body, r.Token, r.Curl)
	return err
}
