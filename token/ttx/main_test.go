package ttx_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Lookup("rapid.checks").Value.Set("10") // each step is several transactions; the command line may say otherwise
	goleak.VerifyTestMain(m)
}
