package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
)

// Errors of schemas that do not fit the program.
var (
	// ErrNewerSchema: a newer program migrated the database. This one cannot know what its tables mean.
	ErrNewerSchema = errors.New("the database has a newer schema than this program knows")
	// ErrOlderSchema: the database must be migrated first.
	ErrOlderSchema = errors.New("the database has an older schema than this program needs")
)

// Status is how far a domain's tables are.
type Status struct {
	Domain     string      // its name, with its prefix where it has one
	Version    int64       // of the newest migration applied; 0: none
	Latest     int64       // of the newest migration that the program has
	Migrations []Migration // those that the program has, in their order
}

// Migration is one step of a domain.
type Migration struct {
	Version int64
	Name    string // its file
	Applied time.Time
	Pending bool // Applied is not set
}

// err returns ErrNewerSchema or ErrOlderSchema where the schema is not the program's.
func (s Status) err() error {
	class := ErrOlderSchema
	switch {
	case s.Version == s.Latest:
		return nil
	case s.Version > s.Latest:
		class = ErrNewerSchema
	}
	return fmt.Errorf("%s is at version %d, not %d: %w", s.Domain, s.Version, s.Latest, class)
}

// Migrate brings the domains' tables up to date, in the order given. Any number of processes may do so at once: one works, the others wait,
// as long as their context allows, and find the work done. It returns ErrNewerSchema, having changed nothing, where one of the domains
// is newer than the program. After an error SQLite has the schema it had; PostgreSQL has the steps before the one that failed.
func (db *DB) Migrate(ctx context.Context, domains ...Domain) error {
	err := db.RequireSchema(ctx, domains...)
	if !errors.Is(err, ErrOlderSchema) {
		return err
	}
	if db.backend == Postgres {
		err = db.migratePostgres(ctx, domains)
	} else {
		err = db.migrateSQLite(ctx, domains)
	}
	if err != nil {
		return fmt.Errorf("storage: migrating: %w", err)
	}
	return nil
}

// RequireSchema returns ErrNewerSchema or ErrOlderSchema where the tables of a domain are not those of this program, ErrNewerSchema first. It
// changes nothing.
func (db *DB) RequireSchema(ctx context.Context, domains ...Domain) error {
	statuses, err := db.Status(ctx, domains...)
	if err != nil {
		return err
	}
	return CheckSchema(statuses)
}

// CheckSchema is [DB.RequireSchema] for what [DB.Status] returned.
func CheckSchema(statuses []Status) error {
	var older error
	for _, s := range statuses {
		err := s.err()
		if errors.Is(err, ErrNewerSchema) {
			return fmt.Errorf("storage: %w", err)
		}
		if older == nil && err != nil {
			older = fmt.Errorf("storage: %w", err)
		}
	}
	return older
}

// Status tells how far the tables of each domain are. It changes nothing.
func (db *DB) Status(ctx context.Context, domains ...Domain) ([]Status, error) {
	statuses := make([]Status, 0, len(domains))
	for _, d := range domains {
		s, err := db.status(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("storage: reading the schema's version: %w", err)
		}
		statuses = append(statuses, s)
	}
	return statuses, nil
}

func (db *DB) status(ctx context.Context, d Domain) (Status, error) {
	provider, err := db.provider(d, db.read)
	if err != nil {
		return Status{}, err
	}
	s := Status{Domain: d.String()}
	applied := map[int64]time.Time{}
	// goose's own status would create the table of versions.
	exists := "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1)"
	if db.backend == Postgres {
		exists = "SELECT to_regclass($1) IS NOT NULL"
	}
	var found bool
	if err := db.read.QueryRowContext(ctx, exists, d.versionTable()).Scan(&found); err != nil {
		return Status{}, err
	}
	if found {
		type row struct {
			version int64
			at      time.Time
		}
		scan := func(rows *sql.Rows) (r row, err error) {
			err = rows.Scan(&r.version, &r.at)
			return r, err
		}
		for r, err := range Query(ctx, db.read, scan, "SELECT version_id, tstamp FROM "+d.versionTable()) {
			if err != nil {
				return Status{}, err
			}
			applied[r.version] = r.at
			s.Version = max(s.Version, r.version)
		}
	}
	for _, source := range provider.ListSources() {
		at, ok := applied[source.Version]
		s.Migrations = append(s.Migrations, Migration{source.Version, source.Path, at, !ok})
		s.Latest = source.Version
	}
	return s, nil
}

// provider returns goose's for a domain.
func (db *DB) provider(d Domain, pool *sql.DB) (*goose.Provider, error) {
	files, err := d.render(db.backend)
	if err != nil {
		return nil, err
	}
	dialect := goose.DialectSQLite3
	if db.backend == Postgres {
		dialect = goose.DialectPostgres
	}
	provider, err := goose.NewProvider(dialect, pool, files, goose.WithTableName(d.versionTable()), goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	return provider, nil
}

// migratePostgres migrates under an advisory lock of the schema, on a connection of its own, so that the server takes it back
// whatever becomes of this process.
func (db *DB) migratePostgres(ctx context.Context, domains []Domain) error {
	conn, err := pgx.ConnectConfig(ctx, db.server.Copy())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// The key covers the schema: others in the same database have their own migrations.
	_, err = conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended('dongate migrations ' || current_schema(), 0))")
	if err != nil {
		return fmt.Errorf("waiting for others that migrate: %w", err)
	}
	return db.up(ctx, db.read, domains)
}

// up applies what is pending. Others are locked out.
func (db *DB) up(ctx context.Context, pool *sql.DB, domains []Domain) error {
	for _, d := range domains {
		provider, err := db.provider(d, pool)
		if err != nil {
			return err
		}
		results, err := provider.Up(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		for _, r := range results {
			db.log.Info("migrated", zap.Stringer("domain", d), zap.Int64("version", r.Source.Version), zap.String("file", r.Source.Path),
				zap.Duration("took", r.Duration))
		}
	}
	return nil
}
