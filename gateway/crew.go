package gateway

import "sync"

// maxIdle is how many goroutines of a crew wait for a job at most; further ones end
// with theirs.
const maxIdle = 64

// crew runs jobs on goroutines that stay for the next job. A new goroutine's stack
// would have to be copied each time it doubles, up to what a call of net/http needs,
// at a tenth of the cost of the call. Safe for concurrent use; the zero value is
// ready.
type crew struct {
	mu      sync.Mutex
	idle    []chan func() // the one that has waited for the shortest time is last
	stopped bool
}

// run has job done and does not wait for it.
func (c *crew) run(job func()) {
	c.mu.Lock()
	n := len(c.idle)
	if n == 0 {
		c.mu.Unlock()
		go c.work(job)
		return
	}
	jobs := c.idle[n-1]
	c.idle = c.idle[:n-1]
	c.mu.Unlock()
	jobs <- job // has room: nobody else has it now
}

// stop ends the goroutines that wait; the others end with their jobs, and so do
// those of later jobs.
func (c *crew) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for _, jobs := range c.idle {
		close(jobs)
	}
	c.idle = nil
}

// work is a goroutine of the crew.
func (c *crew) work(job func()) {
	jobs := make(chan func(), 1)
	for job != nil {
		job()
		job = nil // and with it what it holds, while waiting
		if c.rest(jobs) {
			job = <-jobs
		}
	}
}

// rest puts a goroutine among those that wait; false: it is not needed.
func (c *crew) rest(jobs chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || len(c.idle) >= maxIdle {
		return false
	}
	c.idle = append(c.idle, jobs)
	return true
}
