package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/storagetest"
)

// Steps of a domain whose second step, were it run twice, would be noticed.
var steps = []string{
	"CREATE TABLE {{.Prefix}}t (id INTEGER PRIMARY KEY, at {{.Time}}, body {{.Bytes}}, amount {{.Amount}} NOT NULL);",
	`CREATE TABLE {{.Prefix}}log (n INTEGER NOT NULL);
	INSERT INTO {{.Prefix}}log (n) VALUES (1);`,
	"CREATE INDEX {{.Prefix}}at ON {{.Prefix}}t (at){{if .Postgres}} INCLUDE (id){{end}};",
}

// domain returns one with the first n steps given.
func domain(n int, steps ...string) storage.Domain {
	files := fstest.MapFS{}
	for i, step := range steps[:n] {
		files[fmt.Sprintf("sql/%05d_step.sql", i+1)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + step + "\n")}
	}
	return storage.Domain{Name: "letters", FS: files, Dir: "sql"}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		all := domain(3, steps...)

		status, err := db.Status(ctx, all)
		require.NoError(t, err)
		require.Equal(t, "letters", status[0].Domain)
		require.EqualValues(t, 0, status[0].Version)
		require.EqualValues(t, 3, status[0].Latest)
		require.Len(t, status[0].Migrations, 3)
		schema, err := db.Schema(ctx)
		require.NoError(t, err)
		require.Empty(t, schema)
		require.ErrorIs(t, db.RequireSchema(ctx, all), storage.ErrOlderSchema)
		require.ErrorContains(t, db.RequireSchema(ctx, all), "letters is at version 0, not 3")

		require.NoError(t, db.Migrate(ctx, domain(2, steps...)))
		status, err = db.Status(ctx, all)
		require.NoError(t, err)
		require.EqualValues(t, 2, status[0].Version)
		require.False(t, status[0].Migrations[1].Pending)
		require.NotZero(t, status[0].Migrations[1].Applied)
		require.True(t, status[0].Migrations[2].Pending)
		require.ErrorIs(t, db.RequireSchema(ctx, all), storage.ErrOlderSchema)

		require.NoError(t, db.Migrate(ctx, all))
		require.NoError(t, db.Migrate(ctx, all))
		require.NoError(t, db.RequireSchema(ctx, all))
		require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM log"))

		require.ErrorIs(t, db.Migrate(ctx, domain(2, steps...)), storage.ErrNewerSchema)
		require.ErrorIs(t, db.RequireSchema(ctx, domain(2, steps...)), storage.ErrNewerSchema)
		require.ErrorContains(t, db.RequireSchema(ctx, domain(2, steps...)), "letters is at version 3, not 2")
	})
}

func TestSchema(t *testing.T) {
	t.Parallel()
	want := map[storage.Backend]string{
		storage.SQLite: "CREATE TABLE log (n INTEGER NOT NULL)\n" +
			"CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT, body BLOB, amount BLOB NOT NULL)\nCREATE INDEX at ON t (at)\n",
		storage.Postgres: "log.n integer NOT NULL\nt.id integer NOT NULL\nt.at timestamp with time zone\nt.body bytea\nt.amount numeric(78,0) NOT NULL\n" +
			"t: constraint t_pkey PRIMARY KEY (id)\nCREATE INDEX at ON t USING btree (at) INCLUDE (id)\nCREATE UNIQUE INDEX t_pkey ON t USING btree (id)\n",
	}
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		require.NoError(t, db.Migrate(t.Context(), domain(3, steps...)))
		schema, err := db.Schema(t.Context())
		require.NoError(t, err)
		require.Equal(t, want[db.Backend()], schema)
	})
}

// Each set of tables has its own version and does not see the others'.
func TestMigrateWithPrefixes(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		a, b := domain(3, steps...), domain(1, steps...)
		a.Prefix, b.Prefix = "net_a_", "net_b_"
		require.NoError(t, db.Migrate(ctx, a, b))
		status, err := db.Status(ctx, a, b)
		require.NoError(t, err)
		require.Equal(t, "letters (net_a_)", status[0].Domain)
		require.EqualValues(t, 3, status[0].Version)
		require.EqualValues(t, 1, status[1].Version)
		execute(t, db, "INSERT INTO net_b_t (id, amount) SELECT n, 1 FROM net_a_log")
	})
}

func TestMigrateFailure(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		require.NoError(t, db.Migrate(ctx, domain(1, steps...)))
		before, err := db.Schema(ctx)
		require.NoError(t, err)
		bad := domain(3, steps[0], "CREATE TABLE {{.Prefix}}u (id INTEGER PRIMARY KEY);", "CREATE TABLE {{.Prefix}}v (id INTEGER); SELECT nonsense;")
		err = db.Migrate(ctx, bad)
		require.ErrorContains(t, err, "migrating: letters")
		require.ErrorContains(t, err, "nonsense")
		after, err := db.Schema(ctx)
		require.NoError(t, err)
		require.NotContains(t, after, "v", "no half of a step")
		if db.Backend() == storage.SQLite {
			require.Equal(t, before, after, "no step at all")
		}
		// What failed can be mended and run again, by the same handle.
		require.NoError(t, db.Migrate(ctx, domain(3, steps[0], "CREATE TABLE {{.Prefix}}u (id INTEGER PRIMARY KEY);", "CREATE TABLE {{.Prefix}}v (id INTEGER);")))
	})
}

// On SQLite a table is changed by making another in its place. With foreign keys on, dropping it would delete the rows that refer to it.
func TestMigrateRebuildsTablesOnSQLite(t *testing.T) {
	t.Parallel()
	db, ctx := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite)), t.Context()
	first := `CREATE TABLE parent (id INTEGER PRIMARY KEY);
		CREATE TABLE child (parent INTEGER NOT NULL REFERENCES parent (id) ON DELETE CASCADE);
		INSERT INTO parent (id) VALUES (1);
		INSERT INTO child (parent) VALUES (1);`
	rebuild := `CREATE TABLE other (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '');
		INSERT INTO other (id) SELECT id FROM parent;
		DROP TABLE parent;
		ALTER TABLE other RENAME TO parent;`
	require.NoError(t, db.Migrate(ctx, domain(1, first)))
	require.ErrorContains(t, db.Migrate(ctx, domain(2, first, "DELETE FROM parent;")), "no such row in parent")
	require.NoError(t, db.Migrate(ctx, domain(2, first, rebuild)))
	require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM child"))
	_, err := db.Write().ExecContext(ctx, "INSERT INTO child (parent) VALUES (2)")
	require.ErrorIs(t, storage.Classify(err), storage.ErrForeignKey)
}

func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	long := strings.Repeat("n", storage.MaxNameBytes-1)
	for name, test := range map[string]struct {
		change func(d *storage.Domain)
		want   string
	}{
		"name":           {func(d *storage.Domain) { d.Name = "a b" }, "must be lower-case letters"},
		"prefix":         {func(d *storage.Domain) { d.Prefix = "a-b_" }, "must be lower-case letters"},
		"version table":  {func(d *storage.Domain) { d.Prefix = long }, "is longer than 63 bytes"},
		"table":          {func(d *storage.Domain) { *d = domain(1, "CREATE TABLE "+long+"nn (id INTEGER);") }, "is longer than 63 bytes"},
		"quoted":         {func(d *storage.Domain) { *d = domain(1, `CREATE TABLE "`+long+` é" (id INTEGER);`) }, "is longer than 63 bytes"},
		"nothing":        {func(d *storage.Domain) { d.Dir = "elsewhere" }, "has no migrations"},
		"template":       {func(d *storage.Domain) { *d = domain(1, "CREATE TABLE {{.Nothing}}t (id INTEGER);") }, "00001_step.sql"},
		"no transaction": {func(d *storage.Domain) { *d = domain(1, "-- +goose NO TRANSACTION\nSELECT 1;") }, "must run in a transaction"},
	} {
		t.Run(name, func(t *testing.T) {
			d := domain(1, steps...)
			test.change(&d)
			require.ErrorContains(t, db.Migrate(t.Context(), d), test.want)
		})
	}
	schema, err := db.Schema(t.Context())
	require.NoError(t, err)
	require.Empty(t, schema)
	require.NoError(t, db.Migrate(t.Context(), domain(1, "CREATE TABLE "+long+"n (id INTEGER);")))
}

// Four processes at once: each is this program again, see TestMain.
func TestMigrateInFourProcesses(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				config := storagetest.Config(t, driver)
				children := startChildren(t, 4, "migrate", config)
				for _, c := range children {
					require.NoError(t, c.Wait(), c.Stdout)
				}
				db := storagetest.Open(t, config)
				require.NoError(t, db.RequireSchema(t.Context(), domain(3, steps...)))
				require.Equal(t, 1, scan[int](t, db, "SELECT count(*) FROM log"))
				require.Equal(t, 4, scan[int](t, db, "SELECT count(*) FROM letters_migrations"), "three steps and goose's zeroth")
			}
		})
	}
}

// childMigrate is what such a process does.
func childMigrate(ctx context.Context, config storage.Config) error {
	db, err := storage.Open(ctx, config)
	if err != nil {
		return err
	}
	awaitOthers()
	if err := db.Migrate(ctx, domain(3, steps...)); err != nil {
		return err
	}
	return db.Close()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db, ctx := open(t), t.Context()
		parents := domain(1, `CREATE TABLE parent (a INTEGER, b INTEGER, PRIMARY KEY (a, b));
			CREATE TABLE child (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, FOREIGN KEY (a, b) REFERENCES parent (a, b));
			INSERT INTO parent (a, b) VALUES (1, 2);
			INSERT INTO child (id, a, b) VALUES (1, 1, 2), (2, NULL, 2), (3, NULL, NULL);`)
		require.NoError(t, db.Migrate(ctx, parents))
		problems, err := db.Check(ctx, parents)
		require.NoError(t, err)
		require.Empty(t, problems)

		conn, err := db.Write().Conn(ctx)
		require.NoError(t, err)
		off, on := "PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"
		if db.Backend() == storage.Postgres {
			off, on = "SET session_replication_role = replica", "RESET session_replication_role"
		}
		for _, statement := range []string{off, "DELETE FROM parent", on} {
			_, err := conn.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		require.NoError(t, conn.Close())
		older := domain(2, "SELECT 1;", "SELECT 2;")
		problems, err = db.Check(ctx, older)
		require.NoError(t, err)
		require.Len(t, problems, 2)
		require.Contains(t, problems[0], "table child")
		require.Equal(t, "letters is at version 1, not 2: the database has an older schema than this program needs", problems[1])
	})
}

func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	config := storagetest.Config(t, storage.DriverSQLite)
	db := storagetest.Open(t, config)
	execute(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
	execute(t, db, "CREATE INDEX t_body ON t (body)")
	execute(t, db, "INSERT INTO t (body) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000) SELECT 'row ' || i FROM n")
	page := scan[int64](t, db, "SELECT rootpage FROM sqlite_master WHERE name = 't_body'")
	execute(t, db, "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, db.Close())
	file, err := os.OpenFile(config.DSN, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 20), (page-1)*4096+12) // where the page says where its cells are
	require.NoError(t, err)
	require.NoError(t, file.Close())
	db = storagetest.Open(t, config)
	problems, err := db.Check(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, problems)
	require.Contains(t, problems[0], "damaged: ")
}
