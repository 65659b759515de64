package sqlclaims

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dongate/auth"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// BenchmarkGroupCommit is the claims per second of 64 clients, with and without the ends of their requests, over those of the same clients
// when each claim and each end is a transaction of its own; median of alternating blocks.
func BenchmarkGroupCommit(b *testing.B) {
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		for _, ends := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/ends=%t", driver, ends), func(b *testing.B) { benchGroupCommit(b, driver, ends) })
		}
	}
}

func benchGroupCommit(b *testing.B, driver string, ends bool) {
	const blocks, clients = 7, 64
	var n atomic.Int64
	answer := make([]byte, 200)
	// rate has all clients make some claims, and returns claims/s and µs of CPU per claim.
	rate := func(c *Claims, each int) (float64, float64) {
		var wg sync.WaitGroup
		start, cpu := time.Now(), cpuTime()
		for range clients {
			wg.Go(func() {
				for range each {
					claim := example(time.Now(), int(n.Add(1)))
					if outcome, _, err := c.Claim(b.Context(), claim); err != nil || outcome != auth.Claimed {
						b.Error(outcome, err)
						return
					}
					if ends {
						c.End(claim.WorkflowID, claim.RequestID, auth.StateAnswered, answer, time.Now().Add(time.Hour), nil)
					}
				}
			})
		}
		wg.Wait()
		total := float64(clients * each)
		return total / time.Since(start).Seconds(), float64((cpuTime() - cpu).Microseconds()) / total
	}
	open := func(o Options) *Claims {
		db := storagetest.Open(b, storagetest.Config(b, driver))
		migrate(b, db)
		c := opened(b, db, o)
		rate(c, 10)
		return c
	}
	one := open(Options{oneByOne: true})
	group := open(Options{})
	b.ResetTimer()
	for range b.N {
		var ratios, alone, together, cpu, sizes []float64
		for range blocks {
			a, _ := rate(one, 10)
			before := group.Activity()
			many, used := rate(group, 100)
			after := group.Activity()
			sizes = append(sizes, float64(after.Claims-before.Claims)/float64(after.Transactions-before.Transactions))
			ratios, alone, together, cpu = append(ratios, many/a), append(alone, a), append(together, many), append(cpu, used)
		}
		b.ReportMetric(median(alone), "one-by-one/s")
		b.ReportMetric(median(together), "together/s")
		b.ReportMetric(median(cpu), "cpu-µs/claim")
		b.ReportMetric(median(sizes), "claims/batch")
		b.ReportMetric(median(ratios), "ratio")
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
