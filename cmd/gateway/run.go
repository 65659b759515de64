package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// world is what a command may touch of the outside besides files and sockets.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
}

// env returns a variable of the environment; "" when it is not set. As in the
// operating system's own lookups, the last one counts.
func (w *world) env(name string) string {
	value := ""
	for _, v := range w.environ {
		if n, text, ok := strings.Cut(v, "="); ok && n == name {
			value = text
		}
	}
	return value
}

// run executes one command line. The error, if any, is for report.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) error {
	root := newRoot(&world{stdin: stdin, stdout: stdout, stderr: stderr, environ: environ})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var coded *exitError
	if err == nil || errors.As(err, &coded) {
		return err
	}
	if s := (stopSignal{}); errors.As(err, &s) {
		return err
	}
	if strings.HasPrefix(err.Error(), "unknown command ") { // cobra has no type for it
		return usage(cmd, err)
	}
	return err
}

func newRoot(w *world) *cobra.Command {
	root := &cobra.Command{
		Use:   "gateway",
		Short: "The gateway between workflow clients and decentralised oracle networks",
		Long: `gateway is the door between the outside world and decentralised oracle
networks (DONs). Clients send it signed triggers over JSON-RPC; it hands each to
every node of the workflow's shards and returns the one answer on which enough
nodes agree.

Try it with no set-up at all:  gateway demo

` + exitCodeText(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           readVersion().Version,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("gateway {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, err)
	})
	root.AddCommand(newServe(w), newCheck(w), newReload(w), newDemo(w), newTrigger(w), newToken(w), newNode(w), newMigrate(w), newStore(w), newRelayer(w), newVersion(w))
	for _, cmd := range root.Commands() {
		tidy(cmd)
	}
	return root
}

// tidy sets what is the same for all commands, on cmd and those below it.
func tidy(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = noArguments
	}
	cmd.Flags().SortFlags = false
	cmd.DisableFlagsInUseLine = true
	for _, sub := range cmd.Commands() {
		tidy(sub)
	}
	if cmd.HasSubCommands() {
		cmd.RunE = func(*cobra.Command, []string) error { return usage(cmd, errors.New("say which: "+cmd.Use)) }
	}
}

// exitCodeText is the table of exit codes as the root help shows it.
func exitCodeText() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// usage is an error about the command line itself.
func usage(cmd *cobra.Command, err error) error {
	e := &exitError{code: exitUsage, err: err, hint: fmt.Sprintf("Run '%s --help' for usage.", cmd.CommandPath())}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && strings.Contains(unknown.GetSpecifiedName(), "key") && cmd.Flags().Lookup("key-file") != nil {
		e.hint = "A key is never taken from the command line, where other users of this machine can read it:\n" +
			"use --key-file, --keystore or " + envPrivateKey + ". " + e.hint
	}
	return e
}

// noArguments refuses anything that is not a flag.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(cmd, fmt.Errorf("unexpected argument %.100q", args[0]))
}
