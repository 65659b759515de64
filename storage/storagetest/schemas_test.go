package storagetest

import (
	"testing"
	"testing/fstest"

	"dongate/storage"
)

func TestSchemas(t *testing.T) {
	t.Parallel()
	Schemas(t, storage.Domain{Name: "example", Dir: "sql", FS: fstest.MapFS{
		"sql/00001_notes.sql": {Data: []byte("-- +goose Up\nCREATE TABLE notes (id INTEGER PRIMARY KEY, at {{.Time}} NOT NULL);\n")},
		"sql/00002_text.sql":  {Data: []byte("-- +goose Up\nALTER TABLE notes ADD COLUMN text TEXT NOT NULL DEFAULT '';\n")},
	}}, "testdata/schemas")
}
