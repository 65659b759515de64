package gateway

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain also plays the processes that benchmarks measure from outside.
func TestMain(m *testing.M) {
	if role := os.Getenv(benchRole); role != "" {
		runBenchProcess(role)
		return
	}
	goleak.VerifyTestMain(m)
}
