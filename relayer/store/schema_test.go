package store

import (
	"testing"

	"dongate/storage/storagetest"
)

func TestSchemas(t *testing.T) {
	t.Parallel()
	storagetest.Schemas(t, Domain, "testdata")
}
