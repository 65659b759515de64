package gateway

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestCrew(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var c crew
		waiting := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.idle)
		}
		const most = 200
		var done atomic.Int32
		release := make(chan struct{})
		for range most { // each waits for nobody
			c.run(func() {
				<-release
				done.Add(1)
			})
		}
		require.Zero(t, waiting())
		close(release)
		require.Equal(t, maxIdle, waiting(), "the others have ended")
		require.EqualValues(t, most, done.Load())

		block := make(chan struct{})
		for range 3 {
			c.run(func() { <-block })
		}
		require.Equal(t, maxIdle-3, waiting(), "jobs are done by those that waited")
		c.stop()
		c.stop()
		require.Zero(t, waiting())
		c.run(func() { done.Add(1) })
		close(block)
		require.Zero(t, waiting(), "nobody waits any more")
		require.EqualValues(t, most+1, done.Load())
	}) // which fails when a goroutine is left
}

// Who waits holds nothing of the last job.
func TestCrewForgetsItsJobs(t *testing.T) {
	t.Parallel()
	var c crew
	defer c.stop()
	freed, did := make(chan struct{}), make(chan struct{})
	func() {
		held := new([1 << 16]byte)
		runtime.AddCleanup(held, func(chan struct{}) { close(freed) }, nil)
		c.run(func() {
			held[0]++
			close(did)
		})
	}()
	<-did
	for {
		runtime.GC()
		select {
		case <-freed:
			return
		default:
		}
	}
}

// For the race detector: jobs from everywhere, and an end in the middle.
func TestCrewAtOnce(t *testing.T) {
	t.Parallel()
	var c crew
	var done sync.WaitGroup
	for worker := range 8 {
		done.Add(500)
		go func() {
			for i := range 500 {
				if worker == 0 && i == 250 {
					c.stop()
				}
				c.run(done.Done)
			}
		}()
	}
	done.Wait()
}
