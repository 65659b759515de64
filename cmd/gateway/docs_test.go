package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the generated documents")

// TestDocumentCommands keeps docs/commands.md equal to what --help says.
func TestDocumentCommands(t *testing.T) {
	t.Parallel()
	const path = "../../docs/commands.md"
	text := commandReference(newRoot(&world{}))
	if *updateDocs {
		require.NoError(t, os.MkdirAll("../../docs", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err, "run: make docs")
	require.Equal(t, string(written), text, "run: make docs")
}

// TestCommandHelp holds that every command explains itself.
func TestCommandHelp(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands(newRoot(&world{})) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.Greater(t, len(cmd.Long), len(cmd.Short), cmd.CommandPath())
		require.Contains(t, cmd.Example, cmd.CommandPath())
		cmd.Flags().VisitAll(func(f *pflag.Flag) { require.NotEmpty(t, f.Usage, "%s --%s", cmd.CommandPath(), f.Name) })
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 100, "%s: %s", cmd.CommandPath(), line)
		}
	}
}

// allCommands are the commands below cmd, each before those below itself.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		all = append(append(all, sub), allCommands(sub)...)
	}
	return all
}

func commandReference(root *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands\n\n<!-- Generated from the commands' own help by `make docs`. Do not edit. -->\n\n")
	about, _, _ := strings.Cut(root.Long, "\n\nExit codes:")
	fmt.Fprintf(&b, "%s\n\n| command | does |\n| --- | --- |\n", about)
	for _, cmd := range root.Commands() {
		fmt.Fprintf(&b, "| [%s](#gateway-%s) | %s |\n", cmd.Name(), cmd.Name(), cmd.Short)
	}
	b.WriteString("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", c.code, c.meaning)
	}
	for _, cmd := range allCommands(root) {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
		if rest := strings.TrimPrefix(cmd.Long, cmd.Short+"."); strings.TrimSpace(rest) != "" {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.TrimSpace(rest))
		}
		fmt.Fprintf(&b, "\nExamples:\n\n```sh\n%s\n```\n", unindent(cmd.Example))
		if cmd.HasSubCommands() {
			continue
		}
		fmt.Fprintf(&b, "\nFlags:\n\n```text\n%s\n```\n", strings.TrimRight(cmd.LocalFlags().FlagUsages(), "\n"))
	}
	return b.String()
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
