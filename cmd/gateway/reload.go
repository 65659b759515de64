package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dongate/config"
	"dongate/gateway"
	"dongate/internal/console"
)

const (
	// reloadTimeout is how long a gateway may take to reload.
	reloadTimeout = 30 * time.Second
	// maxReloadAnswer bounds what is read of its answer, in bytes.
	maxReloadAnswer = 16 << 20
)

func newReload(w *world) *cobra.Command {
	var (
		file, to string
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "reload --config FILE [--url URL] [--json]",
		Short: "Have a running gateway reload its configuration file",
		Long: `Have a running gateway reload its configuration file, as SIGHUP does, and say what
came of it: what is in effect now and what needs a restart.

Members marked R in docs/configuration.md can change while it runs: the DONs and
their nodes, limits, the log level, CORS, egress rules, TLS certificates (also when
a file holds a new one under its old name). They do so all together; a file with a
problem changes nothing. Open requests are not disturbed. A node that is no longer
listed is disconnected.

FILE, which is checked first, says where the gateway's admin listener is and which
token it wants; it should be the file that the gateway was started with. --url is
for an admin listener elsewhere: on any free port, or not where the file now says.

Exit code 3: the file has problems, or the gateway refused it; 15: no gateway
answered.`,
		Example: `  gateway reload --config gateway.json
  gateway reload --config gateway.json --url http://127.0.0.1:5004
  gateway reload --config gateway.json --json | jq '.needsRestart[]'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadConfig(w, cmd, file)
			if err != nil {
				return err
			}
			if l.problems != nil {
				return l.complain(w)
			}
			if to == "" {
				if to = adminURL(l.config.Admin); to == "" {
					return usage(cmd, fmt.Errorf("%s does not say where the admin listener is: give --url, or send SIGHUP", l.file))
				}
			}
			token, err := l.config.Admin.Token()
			if err != nil {
				return fail(exitLocal, "admin.tokenFile: %w", err)
			}
			out, err := askReload(cmd.Context(), to, token)
			if err != nil {
				return err
			}
			return printReloaded(w, l, out, asJSON)
		},
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().StringVar(&to, "url", "", "the admin listener's `URL` (default: where the file has it)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// adminURL is where an admin listener is reached from this machine; "" when the
// configuration does not tell.
func adminURL(a config.Admin) string {
	if a.Port <= 0 {
		return ""
	}
	host := a.Host
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(a.Port))
}

// askReload sends POST /reload.
func askReload(ctx context.Context, to string, token config.Secret) (*gateway.Reloaded, error) {
	u, err := url.Parse(to)
	if err != nil || u.Host == "" {
		return nil, &exitError{code: exitUsage, err: fmt.Errorf("--url %.100q is not a URL such as http://127.0.0.1:5004", to)}
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath("/reload").String(), nil)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	req.Host = "localhost" // what the listener asks of whoever means it
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fail(exitUnavailable, "no gateway answered: %w", err).withHint("Is it running? --url says where its admin listener is.")
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReloadAnswer))
	if err != nil {
		return nil, fail(exitUnavailable, "the answer did not come whole: %w", err)
	}
	var out gateway.Reloaded
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnprocessableEntity:
		if err := json.Unmarshal(body, &out); err != nil {
			return nil, fail(exitFailure, "the answer is not a gateway's: %w", err)
		}
		return &out, nil
	}
	return nil, fail(exitFailure, "the gateway did not reload: %s (%s)", strings.TrimSpace(string(body[:min(len(body), 300)])), resp.Status)
}

// printReloaded shows what came of a reload.
func printReloaded(w *world, l *loaded, out *gateway.Reloaded, asJSON bool) error {
	var err error
	if asJSON {
		err = w.printJSON(out)
	}
	if !out.OK {
		refused := &config.Problems{File: l.file}
		for _, p := range out.Problems {
			refused.List = append(refused.List, config.Problem(p))
		}
		if !asJSON {
			fmt.Fprintf(w.stderr, "%v\nthe gateway refused the file: %s\n", refused, console.Count(len(refused.List), "problem"))
		}
		return &exitError{code: exitConfig, err: refused, told: true}
	}
	if asJSON {
		return err
	}
	if len(out.Applied) == 0 {
		fmt.Fprintln(w.stdout, "nothing to apply")
	}
	for _, path := range out.Applied {
		fmt.Fprintln(w.stdout, "in effect now  ", path)
	}
	for _, path := range out.NeedsRestart {
		fmt.Fprintln(w.stdout, "needs a restart", path)
	}
	return nil
}
