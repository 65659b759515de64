package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"dongate/aggregation"
	"dongate/config"
	"dongate/internal/console"
	"dongate/relayer/chain"
	"dongate/storage"
)

// envConfig names the configuration file where --config does not.
const envConfig = "DONGATE_CONFIG"

func addConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "", "the configuration `file` (default: $"+envConfig+")")
}

// loaded is a configuration file as far as it could be used.
type loaded struct {
	file     string
	config   *config.Config   // nil when the file could not be used
	problems *config.Problems // nil when there are none
}

// loadConfig reads the configuration and the files it names. The error is about
// the command line; what is wrong with the configuration is in problems.
func loadConfig(w *world, cmd *cobra.Command, file string) (*loaded, error) {
	if file == "" {
		file = w.env(envConfig)
	}
	if file == "" {
		return nil, usage(cmd, errors.New("which configuration? give --config FILE or set "+envConfig))
	}
	return readConfig(w, file)
}

// readConfig is loadConfig for a file whose name is known.
func readConfig(w *world, file string) (*loaded, error) {
	c, err := config.Load(file, w.environ)
	l := &loaded{file: file, config: c}
	switch {
	case errors.As(err, &l.problems):
	case err != nil:
		return nil, err
	default:
		l.report(c.CheckFiles())
		if c.Storage.Driver == config.DriverPostgres {
			if err := storage.CheckPostgresDSN(c.Storage.DSN.Reveal()); err != nil {
				l.report([]config.Problem{{Path: "storage.dsn", Text: err.Error()}})
			}
		}
	}
	return l, nil
}

// checkSecrets looks for the keys and passwords that serve needs and other commands
// do not.
func (l *loaded) checkSecrets(w *world) {
	if l.config != nil {
		l.report(l.config.CheckSecrets(w.environ))
	}
}

// report adds problems that were found outside the file.
func (l *loaded) report(list []config.Problem) {
	if len(list) == 0 {
		return
	}
	if l.problems == nil {
		l.problems = &config.Problems{File: l.file}
	}
	l.problems.List = append(l.problems.List, list...)
}

// complain lists warnings and problems on stderr. The error is nil when there are
// no problems.
func (l *loaded) complain(w *world) error {
	if l.config != nil {
		for _, p := range l.config.Warnings {
			fmt.Fprintln(w.stderr, l.warning(p))
		}
	}
	if l.problems == nil {
		return nil
	}
	fmt.Fprintf(w.stderr, "%v\n%s: %s\n", l.problems, l.file, console.Count(len(l.problems.List)+l.problems.More, "problem"))
	return l.failure()
}

// failure is the error of a configuration whose problems have been shown.
func (l *loaded) failure() error {
	if l.problems == nil {
		return nil
	}
	return &exitError{code: exitConfig, err: l.problems, told: true}
}

// warning is "file:line:column: warning: path: text".
func (l *loaded) warning(p config.Problem) string {
	place := l.file
	if p.Line > 0 {
		place += fmt.Sprintf(":%d:%d", p.Line, p.Column)
	}
	p.Line, p.Column = 0, 0
	return fmt.Sprintf("%s: warning: %s", place, p)
}

func newCheck(w *world) *cobra.Command {
	var (
		file                  string
		print, online, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "check --config FILE [--print] [--online] [--json]",
		Short: "Check a configuration file and list every problem",
		Long: `Check a configuration file, the environment variables that override it, the
certificates it names and, with relayer.enabled, the keys and passwords. Nothing
is started and, without --online, no socket is opened.

Every problem is listed, not only the first, as file:line:column: path: text.
Problems and warnings go to standard error. Exit code 0: the gateway would
start with it; 3: it would not.

--online also asks the relayer's chains, once the file has no problem: the chain id
of every node, the contracts, what the signer has and may spend, and whether
subscriptions are taken. It sends nothing. Each finding is a line; the exit code
is 3 when one is a problem.

--print shows the configuration in effect, with every default filled in and both
forms of the file brought into the newer one. It can be read back, save for
secrets, which are shown as "[secret]".`,
		Example: `  gateway check --config gateway.json
  gateway check --config gateway.json --print > effective.json
  gateway check --config gateway.json --online
  gateway check --config gateway.json --json | jq '.problems[].path'
  DONGATE_USERSERVERCONFIG_PORT=8443 gateway check --config gateway.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := loadConfig(w, cmd, file)
			if err != nil {
				return err
			}
			l.checkSecrets(w)
			if asJSON {
				return l.printJSON(cmd.Context(), w, print, online)
			}
			if err := l.complain(w); err != nil {
				return err
			}
			if print {
				_, err = fmt.Fprintf(w.stdout, "%s\n", strings.TrimRight(string(l.config.Print()), "\n"))
			} else {
				err = l.printSummary(w)
			}
			if err != nil || !online {
				return err
			}
			out := w.stdout
			if print { // which is to be read back
				out = w.stderr
			}
			found := l.online(cmd.Context(), w)
			for _, f := range found {
				fmt.Fprintln(out, f)
			}
			return onlineFailure(found)
		},
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&print, "print", false, "print the configuration in effect")
	cmd.Flags().BoolVar(&online, "online", false, "ask the relayer's chains, too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: ok, problems, warnings, summary and, with the flags, config and online")
	return cmd
}

// checkReport is what `check --json` prints.
type checkReport struct {
	OK       bool            `json:"ok"`
	File     string          `json:"file"`
	Problems []problemReport `json:"problems"`
	More     int             `json:"more,omitzero"` // problems found and not listed
	Warnings []problemReport `json:"warnings"`
	Summary  *summary        `json:"summary,omitzero"`
	Config   jsontext.Value  `json:"config,omitzero"`
	Online   []findingReport `json:"online,omitzero"` // nil without --online, or with problems
}

type problemReport struct {
	Path   string `json:"path"`
	Line   int    `json:"line,omitzero"`
	Column int    `json:"column,omitzero"`
	Text   string `json:"text"`
}

func problemReports(list []config.Problem) []problemReport {
	out := make([]problemReport, len(list))
	for i, p := range list {
		out[i] = problemReport(p)
	}
	return out
}

func (l *loaded) printJSON(ctx context.Context, w *world, print, online bool) error {
	r := checkReport{OK: l.problems == nil, File: l.file, Problems: []problemReport{}, Warnings: []problemReport{}}
	if l.problems != nil {
		r.Problems, r.More = problemReports(l.problems.List), l.problems.More
	}
	if l.config != nil {
		s := summarise(l.config)
		r.Warnings, r.Summary = problemReports(l.config.Warnings), &s
		if print {
			r.Config = l.config.Print()
		}
	}
	var found []chain.Finding
	if online && r.OK {
		found = l.online(ctx, w)
		r.OK, r.Online = failures(found) == 0, make([]findingReport, len(found))
		for i, f := range found {
			r.Online[i] = findingReport(f)
		}
	}
	if err := w.printJSON(r); err != nil {
		return err
	}
	return errors.Join(l.failure(), onlineFailure(found))
}

// summary says in a few lines what a configuration serves.
type summary struct {
	GatewayID string          `json:"gatewayId"`
	DONs      []donSummary    `json:"dons"`
	Services  []string        `json:"services"`
	Listeners listenerSummary `json:"listeners"`
	Relayer   *relayerSummary `json:"relayer,omitzero"` // nil when it is off
}

type donSummary struct {
	Name   string         `json:"name"`
	F      int            `json:"f"`
	Shards []shardSummary `json:"shards"`
}

type shardSummary struct {
	ID     string `json:"id"`
	Nodes  int    `json:"nodes"`
	Quorum int    `json:"quorum"` // equal answers that decide
}

type listenerSummary struct {
	User  string `json:"user"`
	Node  string `json:"node"`
	Admin string `json:"admin"` // "" when it is off
}

type relayerSummary struct {
	Listener   string   `json:"listener"`
	ChainID    uint64   `json:"chainId"`
	HostChains []uint64 `json:"hostChains"`
}

func summarise(c *config.Config) summary {
	s := summary{GatewayID: c.ConnectionManager.AuthGatewayID, Listeners: listenerSummary{
		User: listenerURL("http", &c.UserServer.Listener), Node: listenerURL("ws", &c.NodeServer.Listener),
	}}
	if c.Admin.Enabled() {
		s.Listeners.Admin = listenerURL("http", &config.Listener{Host: c.Admin.Host, Port: c.Admin.Port, Path: "/"})
	}
	if r := &c.Relayer; r.Enabled {
		s.Relayer = &relayerSummary{Listener: "http://" + r.Listen + "/", ChainID: r.Chain.ChainID}
		if r.Listen == "" {
			l := c.UserServer.Listener
			l.Path = "/"
			s.Relayer.Listener = listenerURL("http", &l)
		}
		for _, h := range r.HostChains {
			s.Relayer.HostChains = append(s.Relayer.HostChains, h.ChainID)
		}
	}
	for _, service := range c.Services {
		s.Services = append(s.Services, service.Name)
	}
	for _, d := range c.DONs {
		don := donSummary{Name: d.Name, F: d.F}
		for _, sh := range d.Shards {
			don.Shards = append(don.Shards, shardSummary{ID: sh.ID, Nodes: len(sh.Nodes), Quorum: aggregation.Threshold(len(sh.Nodes), d.F)})
		}
		s.DONs = append(s.DONs, don)
	}
	return s
}

func listenerURL(scheme string, l *config.Listener) string {
	if l.TLSEnabled {
		scheme += "s"
	}
	return fmt.Sprintf("%s://%s%s", scheme, net.JoinHostPort(l.Host, strconv.Itoa(l.Port)), l.Path)
}

func (l *loaded) printSummary(w *world) error {
	s := summarise(l.config)
	t := console.NewTable(w.stdout)
	t.Row(l.file + ": ok")
	t.Row("  gateway", s.GatewayID)
	for _, d := range s.DONs {
		for _, sh := range d.Shards {
			t.Row("  shard", sh.ID, fmt.Sprintf("%s, f = %d, quorum %d", console.Count(sh.Nodes, "node"), d.F, sh.Quorum))
		}
	}
	t.Row("  clients", s.Listeners.User)
	t.Row("  nodes", s.Listeners.Node)
	if s.Listeners.Admin == "" {
		s.Listeners.Admin = "off"
	}
	t.Row("  admin", s.Listeners.Admin)
	if r := s.Relayer; r != nil {
		t.Row("  relayer", fmt.Sprintf("%s, gateway chain %d, %s", r.Listener, r.ChainID, console.Count(len(r.HostChains), "host chain")))
	}
	return t.Flush()
}
