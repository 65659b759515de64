package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"dongate/internal/console"
	"dongate/storage"
)

func newStore(w *world) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store check",
		Short: "Look after the database",
		Long: `Look after the database that the configuration's storage section names: the file of
SQLite, or the schema on PostgreSQL.`,
		Example: `  gateway store check --config gateway.json`,
	}
	cmd.AddCommand(newStoreCheck(w))
	return cmd
}

// storeReport is the output of store check.
type storeReport struct {
	OK       bool     `json:"ok"`
	Driver   string   `json:"driver"`
	Problems []string `json:"problems"`
}

func newStoreCheck(w *world) *cobra.Command {
	var f databaseFlags
	cmd := &cobra.Command{
		Use:   "check --config FILE [--json]",
		Short: "Look for damage in the database",
		Long: `Look for damage in the database: in SQLite's file or in what PostgreSQL knows to be
broken, references to rows that do not exist, and a schema that is not this
gateway's. It reads everything and changes nothing; gateways may go on running.
The exit code is 6 when something was found.`,
		Example: `  gateway store check --config gateway.json
  gateway store check --config gateway.json --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(w, cmd, false, func(ctx context.Context, db *storage.DB, l *loaded) error {
				problems, err := db.Check(ctx, domains(l.config)...)
				if err != nil {
					return storageFailure(err, l)
				}
				if err := (storeReport{len(problems) == 0, l.config.Storage.Driver, append([]string{}, problems...)}).print(w, f.asJSON); err != nil {
					return err
				}
				if len(problems) > 0 {
					return &exitError{code: exitStorage, err: fmt.Errorf("the database has %s", console.Count(len(problems), "problem")), told: true}
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (r storeReport) print(w *world, asJSON bool) error {
	if asJSON {
		return w.printJSON(r)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w.stdout, p)
	}
	if r.OK {
		fmt.Fprintln(w.stdout, "the database is in order")
	} else {
		fmt.Fprintln(w.stdout, console.Count(len(r.Problems), "problem"))
	}
	return nil
}
