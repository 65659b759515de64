package storage

import (
	"context"
	"fmt"
	"strings"
)

// Schema describes the tables of the database as text, a line per fact, in an order and a spelling that depend on nothing but the tables
// themselves: two databases have the same schema exactly if the texts are equal. Left out are goose's tables of versions and what a [Notifier]
// installed. The text is for comparison only; it does not make a database.
func (db *DB) Schema(ctx context.Context) (string, error) {
	lines, err := db.schemaLines(ctx)
	if err != nil {
		return "", fmt.Errorf("storage: describing the schema: %w", err)
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.Join(strings.Fields(line), " "))
		b.WriteByte('\n')
	}
	return b.String(), nil
}

func (db *DB) schemaLines(ctx context.Context) ([]string, error) {
	if db.backend == SQLite {
		return collect[string](ctx, db.read, `SELECT sql FROM sqlite_master
			WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND tbl_name NOT LIKE '%'||replace($1, '_', '\_') ESCAPE '\'
			ORDER BY tbl_name, type = 'table' DESC, name`, versionTableSuffix)
	}
	lines, err := collect[string](ctx, db.read, `
		WITH t AS (SELECT oid, relname, relkind FROM pg_class WHERE relnamespace = current_schema()::regnamespace
			AND relkind IN ('r', 'p', 'v', 'm') AND relname NOT LIKE '%'||replace($1, '_', '\_')),
		lines (relname, kind, pos, line) AS (
			SELECT relname, 1, attnum, format('%s.%s %s%s%s', relname, attname, format_type(atttypid, atttypmod),
				CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END, CASE attidentity WHEN '' THEN '' ELSE ' IDENTITY' END
				|| coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), ''))
			FROM t JOIN pg_attribute a ON attrelid = t.oid LEFT JOIN pg_attrdef d ON adrelid = t.oid AND adnum = attnum
			WHERE attnum > 0 AND NOT attisdropped
			UNION ALL SELECT relname, 2, 0, format('%s: constraint %s %s', relname, conname, pg_get_constraintdef(c.oid))
			FROM t JOIN pg_constraint c ON conrelid = t.oid WHERE contype <> 'n'
			UNION ALL SELECT relname, 3, 0, pg_get_indexdef(indexrelid) FROM t JOIN pg_index ON indrelid = t.oid
			UNION ALL SELECT relname, 4, 0, pg_get_triggerdef(g.oid) FROM t JOIN pg_trigger g ON tgrelid = t.oid
			WHERE NOT tgisinternal AND tgname NOT LIKE 'notify\_%'
			UNION ALL SELECT relname, 5, 0, format('%s: view %s', relname, pg_get_viewdef(oid)) FROM t WHERE relkind IN ('v', 'm'))
		SELECT replace(line, current_schema() || '.', '') FROM lines ORDER BY relname COLLATE "C", kind, pos, line COLLATE "C"`, versionTableSuffix)
	return lines, err
}
