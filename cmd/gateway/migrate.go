package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dongate/config"
	"dongate/storage"
)

// databaseFlags are those of every command that looks at the database.
type databaseFlags struct {
	file   string
	asJSON bool
}

func (f *databaseFlags) add(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.file)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object")
}

// run opens the configured database and calls use with it. A file that does not
// exist is not made, unless create says so.
func (f *databaseFlags) run(w *world, cmd *cobra.Command, create bool, use func(ctx context.Context, db *storage.DB, l *loaded) error) error {
	l, err := loadConfig(w, cmd, f.file)
	if err != nil {
		return err
	}
	if l.problems != nil {
		return l.complain(w)
	}
	c := storageConfig(w, l, nil)
	if c.Driver == config.DriverMemory {
		return fail(exitStorage, "storage.driver is %q: there is no database", c.Driver)
	}
	if file := missingDatabase(c); file != "" && !create {
		return fail(exitStorage, "there is no database yet: %s does not exist", file).
			withHint("'gateway serve' makes it, and so does 'gateway migrate up'.")
	}
	db, err := storage.Open(cmd.Context(), c)
	if err != nil {
		return storageFailure(err, l)
	}
	err = use(cmd.Context(), db, l)
	return errors.Join(err, db.Close())
}

func newMigrate(w *world) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate status|up",
		Short: "See or change the version of the database's schema",
		Long: `See or change the version of the database's schema.

'gateway serve' brings the schema up to date by itself, unless storage.migrate is
"manual": then it refuses to start until 'gateway migrate up' was run, for
example by another user who may change tables.

Schemas only go forward. A gateway refuses a schema that is newer than itself.`,
		Example: `  gateway migrate status --config gateway.json
  gateway migrate up --config gateway.json`,
	}
	cmd.AddCommand(newMigrateStatus(w), newMigrateUp(w))
	return cmd
}

// schemaStatus is the output of migrate.
type schemaStatus struct {
	OK      bool           `json:"ok"` // the schema is what this gateway needs
	Domains []domainStatus `json:"domains"`
}

type domainStatus struct {
	Domain  string            `json:"domain"`
	Version int64             `json:"version"`
	Latest  int64             `json:"latest"`
	Steps   []migrationStatus `json:"migrations"`
}

type migrationStatus struct {
	Version int64      `json:"version"`
	Name    string     `json:"name"`
	Applied *time.Time `json:"applied"` // null: pending
}

func newSchemaStatus(statuses []storage.Status) schemaStatus {
	out := schemaStatus{OK: true}
	for _, s := range statuses {
		d := domainStatus{Domain: s.Domain, Version: s.Version, Latest: s.Latest}
		for _, m := range s.Migrations {
			step := migrationStatus{Version: m.Version, Name: m.Name}
			if !m.Pending {
				step.Applied = &m.Applied
			}
			d.Steps = append(d.Steps, step)
		}
		out.OK = out.OK && s.Version == s.Latest
		out.Domains = append(out.Domains, d)
	}
	return out
}

// print shows s as a table or as JSON.
func (s schemaStatus) print(w *world, asJSON bool) error {
	if asJSON {
		return w.printJSON(s)
	}
	for _, d := range s.Domains {
		fmt.Fprintf(w.stdout, "%s: version %d, this gateway has %d\n", d.Domain, d.Version, d.Latest)
		for _, m := range d.Steps {
			when := "pending"
			if m.Applied != nil {
				when = m.Applied.UTC().Format("2006-01-02 15:04:05 UTC")
			}
			fmt.Fprintf(w.stdout, "  %-24s %s\n", when, m.Name)
		}
	}
	return nil
}

func newMigrateStatus(w *world) *cobra.Command {
	var f databaseFlags
	cmd := &cobra.Command{
		Use:   "status --config FILE [--json]",
		Short: "Tell which migrations were applied",
		Long: `Tell which migrations were applied, and which are pending. It changes nothing. The
exit code is 6 when the schema is not what this gateway needs.`,
		Example: `  gateway migrate status --config gateway.json
  gateway migrate status --config gateway.json --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(w, cmd, false, func(ctx context.Context, db *storage.DB, l *loaded) error {
				statuses, err := db.Status(ctx, domains(l.config)...)
				if err != nil {
					return storageFailure(err, l)
				}
				if err := newSchemaStatus(statuses).print(w, f.asJSON); err != nil {
					return err
				}
				if err := storage.CheckSchema(statuses); err != nil {
					return storageFailure(err, l)
				}
				return nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newMigrateUp(w *world) *cobra.Command {
	var f databaseFlags
	cmd := &cobra.Command{
		Use:   "up --config FILE [--json]",
		Short: "Bring the schema up to date",
		Long: `Bring the schema up to date. Running gateways need not be stopped; several may do
this at once, and one does it. On PostgreSQL the user needs the right to create
tables.`,
		Example: `  gateway migrate up --config gateway.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(w, cmd, true, func(ctx context.Context, db *storage.DB, l *loaded) error {
				if err := db.Migrate(ctx, domains(l.config)...); err != nil {
					return storageFailure(err, l)
				}
				statuses, err := db.Status(ctx, domains(l.config)...)
				if err != nil {
					return storageFailure(err, l)
				}
				return newSchemaStatus(statuses).print(w, f.asJSON)
			})
		},
	}
	f.add(cmd)
	return cmd
}
