package storage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// busy is an error as SQLite's driver reports it; each is another, so that tests tell them apart.
type busy struct{ attempt int }

func (*busy) Error() string { return "busy" }
func (*busy) Code() int     { return 5 }

func TestRetryBusy(t *testing.T) {
	t.Parallel()
	failure := errors.New("no")
	for name, test := range map[string]struct {
		fail     int   // attempts that are busy
		then     error // what comes after them
		timeout  time.Duration
		attempts int
		min, max time.Duration
	}{
		"at once":        {0, nil, time.Hour, 1, 0, 0},
		"other error":    {0, failure, time.Hour, 1, 0, 0},
		"once busy":      {1, nil, time.Hour, 2, 10 * time.Millisecond, 15 * time.Millisecond},
		"then other":     {2, failure, time.Hour, 3, 30 * time.Millisecond, 45 * time.Millisecond},
		"at last":        {3, nil, time.Hour, 4, 70 * time.Millisecond, 105 * time.Millisecond},
		"for ever":       {100, nil, time.Hour, 4, 70 * time.Millisecond, 105 * time.Millisecond},
		"context ends":   {100, nil, 16 * time.Millisecond, 2, 16 * time.Millisecond, 16 * time.Millisecond},
		"context is bad": {100, nil, 0, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				core, logs := observer.New(zap.WarnLevel)
				attempts, start := 0, time.Now()
				var last error
				err := retryBusy(ctx, zap.New(core), func() error {
					attempts++
					last = test.then
					if attempts <= test.fail {
						last = &busy{attempts}
					}
					return last
				})
				require.True(t, last == err, "the error comes back as it was")
				require.Equal(t, test.attempts, attempts)
				require.Equal(t, min(test.fail, busyAttempts-1, test.attempts), logs.Len())
				require.GreaterOrEqual(t, time.Since(start), test.min)
				require.LessOrEqual(t, time.Since(start), test.max)
			})
		})
	}
}
