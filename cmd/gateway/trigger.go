package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"dongate/client"
	"dongate/internal/console"
)

// triggerReport is what `trigger --json` prints.
type triggerReport struct {
	OK     bool            `json:"ok"`
	ID     string          `json:"id"`
	Signer string          `json:"signer"`
	URL    string          `json:"url,omitzero"` // of the gateway that answered
	Took   console.Elapsed `json:"tookMs"`
	Result jsontext.Value  `json:"result,omitzero"`
	Error  *triggerError   `json:"error,omitzero"`
}

func newTrigger(w *world) *cobra.Command {
	var (
		flags   requestFlags
		key     keyFlags
		urls    []string
		timeout time.Duration
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "trigger (--workflow-id ID | --owner ADDRESS --name NAME --tag TAG) [flags]",
		Short: "Sign a trigger, send it and print the one answer",
		Long: `Sign a trigger, send it to a gateway and print the one answer on which the
workflow's nodes agreed.

The key comes from a file or the environment, never from a flag's value; its
address must be among the workflow's authorised keys.

With several --url the next one gets the same bytes when a gateway cannot be
reached or says that it has dispatched nothing. What may have run is never sent
twice: run the command again with the same --id, workflow and key, and the
gateway tells what became of that request instead of running it again.

Exit codes: 0 the nodes agreed on a result; 10 the request is wrong or the
workflow unknown; 11 not authorised; 12 rate limited; 13 the id is in use or was
used lately; 14 no agreement, or not in time, or the connection was lost: it may
have run; 15 nothing took it; 16 the nodes agreed on an error.`,
		Example: `  gateway trigger --key-file key.hex --workflow-id 0x1234 --input '{"amount": "1000"}'
  gateway trigger --key-file key.hex --owner 0xabc… --name payout --tag v1 --input @input.json
  echo '["a", "b"]' | DONGATE_URL=https://a.example/,https://b.example/ gateway trigger \
      --keystore key.json --password-file password --workflow-id 0x1234 --input - --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signed, signer, err := flags.sign(w, cmd, &key)
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usage(cmd, fmt.Errorf("--timeout is %v: give a time above 0", timeout))
			}
			c, err := client.New(client.Config{URLs: gatewayURLs(w, urls), Signer: signer, Timeout: timeout})
			if err != nil {
				return usage(cmd, fmt.Errorf("--url or %s: %s", envURL, strings.TrimPrefix(err.Error(), "client: ")))
			}
			defer c.CloseIdleConnections()
			r := triggerReport{ID: signed.ID, Signer: address(signer)}
			err = r.send(cmd.Context(), c, signed)
			if asJSON {
				return r.printJSON(w, err)
			}
			return r.print(w, err)
		},
	}
	cmd.Flags().StringArrayVar(&urls, "url", nil, "a gateway's client endpoint, may be repeated (default: $"+envURL+" or "+defaultURL+")")
	flags.add(cmd)
	key.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", client.DefaultTimeout, "how long to wait for the answer")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: ok, id, signer, url, tookMs and result or error")
	return cmd
}

// send fills in the report. The error is an *exitError.
func (r *triggerReport) send(ctx context.Context, c *client.Client, s *client.Signed) error {
	start := time.Now()
	resp, err := c.Send(ctx, s)
	r.Took = console.Elapsed(time.Since(start))
	if err != nil {
		r.Error = explain(ctx, err, r)
		return r.Error.exitError()
	}
	r.OK, r.URL, r.Result = true, resp.URL, resp.Result
	return nil
}

func (r *triggerReport) printJSON(w *world, err error) error {
	if failed := w.printJSON(r); failed != nil {
		return failed
	}
	var e *exitError
	if errors.As(err, &e) {
		e.told = true
	}
	return err
}

// print shows the answer on stdout; an error is left to report, which says more.
func (r *triggerReport) print(w *world, err error) error {
	if err != nil {
		if r.Error.Response != nil { // an earlier request under this id
			fmt.Fprintf(w.stdout, "%s\n", r.Error.Response)
		}
		return err
	}
	t := console.NewTable(w.stdout)
	resp := client.Response{Result: r.Result}
	if x, err := resp.Execution(); err == nil && x.Status != "" {
		t.Row(x.Status)
		t.Row("  workflow", x.WorkflowID)
		t.Row("  execution", x.ExecutionID)
	} else {
		t.Row(string(r.Result))
	}
	t.Row("  request", r.ID)
	t.Row("  signer", r.Signer)
	t.Row("  gateway", r.URL)
	t.Row("  took", r.Took.String())
	return t.Flush()
}
