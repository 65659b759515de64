package ttxdb_test

import (
	"testing"

	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/token/internal/records"
	"dongate/token/internal/records/suite"
	"dongate/token/ttxdb"
)

func TestMain(m *testing.M) {
	suite.FewerChecks()
	goleak.VerifyTestMain(m)
}

func TestTransactions(t *testing.T) {
	suite.Run(t, "", func(db *storage.DB, prefix string, o records.Options) *records.Store {
		return ttxdb.New(db, prefix, o).Store
	})
}
