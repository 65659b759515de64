package auditdb_test

import (
	"testing"

	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/token/auditdb"
	"dongate/token/internal/records"
	"dongate/token/internal/records/suite"
)

func TestMain(m *testing.M) {
	suite.FewerChecks()
	goleak.VerifyTestMain(m)
}

func TestTransactions(t *testing.T) {
	suite.Run(t, "aud_", func(db *storage.DB, prefix string, o records.Options) *records.Store {
		return auditdb.New(db, prefix, o).Store
	})
}
