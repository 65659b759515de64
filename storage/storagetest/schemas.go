package storagetest

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"dongate/storage"
)

var updateSchemas = flag.Bool("update-schemas", false, "write the schema dumps that tests compare with")

// Schemas runs a domain's migrations on each backend, one after the other, and compares the schema after each with the dump in dir, named
// <domain>-<number of migrations>.<backend>.txt, and with that of an empty database that all of them are run on at once. The flag
// -update-schemas writes the dumps; a dump of a released migration must never change.
func Schemas(t *testing.T, d storage.Domain, dir string) {
	t.Helper()
	names, err := fs.Glob(d.FS, path.Join(d.Dir, "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	slices.Sort(names)
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			stepwise := Open(t, Config(t, driver))
			for i := range names {
				first := d
				first.FS = only(t, d.FS, names[:i+1])
				schema := migrated(t, stepwise, first)
				require.Equal(t, migrated(t, Open(t, Config(t, driver)), first), schema, "%d migrations at once", i+1)
				dump := filepath.Join(dir, fmt.Sprintf("%s-%d.%s.txt", d.Name, i+1, driver))
				if *updateSchemas {
					require.NoError(t, os.MkdirAll(dir, 0o755))
					require.NoError(t, os.WriteFile(dump, []byte(schema), 0o644))
				}
				want, err := os.ReadFile(dump)
				require.NoError(t, err, "run the test with -update-schemas and review what it writes")
				require.Equal(t, string(want), schema, "after %s", names[i])
			}
		})
	}
}

func migrated(t *testing.T, db *storage.DB, d storage.Domain) string {
	t.Helper()
	require.NoError(t, db.Migrate(t.Context(), d))
	schema, err := db.Schema(t.Context())
	require.NoError(t, err)
	return schema
}

// only returns a file system with nothing but the named files of another.
func only(t *testing.T, all fs.FS, names []string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	for _, name := range names {
		data, err := fs.ReadFile(all, name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: data}
	}
	return files
}
