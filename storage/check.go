package storage

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// maxProblems bounds what Check reports of one kind.
const maxProblems = 100

// Check looks for damage and returns what it finds, a line each: on SQLite in the file's structure, on PostgreSQL in what the server knows to
// be broken (data checksums, indexes, constraints that were never validated); on both, references to rows that do not exist, and
// domains whose tables are not those of this program. It reads everything, so it takes its time, and changes nothing. The error
// tells that it could not look.
func (db *DB) Check(ctx context.Context, domains ...Domain) ([]string, error) {
	check := db.checkSQLite
	if db.backend == Postgres {
		check = db.checkPostgres
	}
	problems, err := check(ctx)
	if class(err) == ErrCorrupt { // too badly to be looked through
		return append(problems, "damaged: "+err.Error()), nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage: checking: %w", err)
	}
	statuses, err := db.Status(ctx, domains...)
	if err != nil {
		return nil, err
	}
	for _, s := range statuses {
		if err := s.err(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems, nil
}

func (db *DB) checkSQLite(ctx context.Context) ([]string, error) {
	lines, err := collect[string](ctx, db.read, fmt.Sprintf("PRAGMA integrity_check(%d)", maxProblems))
	var problems []string
	for _, line := range lines {
		if line != "ok" {
			problems = append(problems, "damaged: "+line)
		}
	}
	if err != nil {
		return problems, err
	}
	dangling, err := foreignKeyProblems(ctx, db.read, maxProblems)
	return append(problems, dangling...), err
}

// foreignKeyProblems returns SQLite's references to rows that do not exist, at most limit.
func foreignKeyProblems(ctx context.Context, pool *sql.DB, limit int) ([]string, error) {
	return collect[string](ctx, pool, `SELECT 'table ' || "table" || ', row ' || coalesce(rowid, '?') || ': no such row in ' || parent
		FROM pragma_foreign_key_check LIMIT $1`, limit)
}

func (db *DB) checkPostgres(ctx context.Context) ([]string, error) {
	problems, err := collect[string](ctx, db.read, `
		SELECT 'damaged: ' || checksum_failures || ' pages with wrong checksums, the last found at ' || checksum_last_failure
		FROM pg_stat_database WHERE datname = current_database() AND checksum_failures > 0
		UNION ALL
		SELECT 'index ' || c.relname || ' is not valid: REINDEX it' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace
		UNION ALL
		SELECT 'table ' || conrelid::regclass || ': constraint ' || conname || ' was never validated' FROM pg_constraint
		WHERE NOT convalidated AND connamespace = current_schema()::regnamespace`)
	if err != nil {
		return nil, err
	}
	// One query per foreign key that counts the rows whose reference leads nowhere. A key with a NULL in it refers to nothing.
	queries, err := collect[string](ctx, db.read, `
		SELECT format('SELECT %L || count(*) FROM %s c WHERE (%s) IS NOT NULL AND NOT EXISTS (SELECT 1 FROM %s p WHERE (%s) = (%s))',
			'table ' || f.conrelid::regclass || ', ' || f.conname || ': rows that refer to none: ', f.conrelid::regclass,
			string_agg(format('c.%I', a.attname), ', ' ORDER BY n), f.confrelid::regclass,
			string_agg(format('p.%I', b.attname), ', ' ORDER BY n), string_agg(format('c.%I', a.attname), ', ' ORDER BY n))
		FROM pg_constraint f CROSS JOIN LATERAL unnest(f.conkey, f.confkey) WITH ORDINALITY AS k (child, parent, n)
		JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.child
		JOIN pg_attribute b ON b.attrelid = f.confrelid AND b.attnum = k.parent
		WHERE f.contype = 'f' AND f.connamespace = current_schema()::regnamespace
		GROUP BY f.oid, f.conrelid, f.confrelid, f.conname ORDER BY f.conname`)
	if err != nil {
		return nil, err
	}
	for _, query := range queries {
		lines, err := collect[string](ctx, db.read, query)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(lines[0], ": 0") {
			problems = append(problems, lines[0])
		}
	}
	return problems, nil
}

// collect returns the values of a query's one column, with an error those before it.
func collect[T any](ctx context.Context, q Querier, query string, args ...any) ([]T, error) {
	return Collect(Query(ctx, q, Column[T], query, args...))
}
