package gateway

import (
	"sync"
)

// maxOpenPerWorkflow bounds the open requests of one workflow (protocol §5).
const maxOpenPerWorkflow = 1000

// flightRegistry finds the open flight that a node's answer is for. Safe for
// concurrent use; its lock is held for map operations only.
type flightRegistry struct {
	mu        sync.RWMutex
	byID      map[string][]*flight // request id → open flights, of different workflows
	workflows map[string]int       // workflow id → open and reserved
	count     int
}

func newFlightRegistry() *flightRegistry {
	return &flightRegistry{byID: map[string][]*flight{}, workflows: map[string]int{}}
}

// reserve takes one of the workflow's places; false: all are taken.
func (r *flightRegistry) reserve(workflowID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workflows[workflowID] >= maxOpenPerWorkflow {
		return false
	}
	r.workflows[workflowID]++
	return true
}

// unreserve gives a place back.
func (r *flightRegistry) unreserve(workflowID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workflows[workflowID]--; r.workflows[workflowID] <= 0 {
		delete(r.workflows, workflowID)
	}
}

func (r *flightRegistry) add(f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[f.id] = append(r.byID[f.id], f)
	r.count++
}

func (r *flightRegistry) remove(f *flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.byID[f.id]
	for i, x := range list {
		if x != f {
			continue
		}
		r.count--
		if len(list) == 1 {
			delete(r.byID, f.id)
			return
		}
		// A new slice: find may still be reading the old one.
		r.byID[f.id] = append(append([]*flight(nil), list[:i]...), list[i+1:]...)
		return
	}
}

// open reports whether any request is open under id.
func (r *flightRegistry) open(id string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.byID[id]) > 0
}

func (r *flightRegistry) len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.count
}

// all lists the open flights.
func (r *flightRegistry) all() []*flight {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*flight, 0, r.count)
	for _, list := range r.byID {
		out = append(out, list...)
	}
	return out
}

// find returns the flight that an answer of n under id is for, and the index of
// n's shard in it. With a workflow named it is that workflow's. Without one it is
// the only flight that n was sent and has not answered; of several, none
// (protocol §5). A nil flight comes with the reason for dropping the answer.
func (r *flightRegistry) find(id, workflowID string, n *node) (*flight, int, string) {
	r.mu.RLock()
	list := r.byID[id]
	r.mu.RUnlock()
	if len(list) == 0 {
		return nil, 0, dropLate
	}
	var found *flight
	var foundShard int
	for _, f := range list {
		i := f.shardOf(n)
		if i < 0 {
			continue
		}
		if workflowID != "" {
			if f.workflow.ID == workflowID {
				return f, i, ""
			}
			continue
		}
		if !f.awaits(i, n) {
			continue
		}
		if found != nil {
			return nil, 0, dropForeign
		}
		found, foundShard = f, i
	}
	if found == nil {
		return nil, 0, dropForeign
	}
	return found, foundShard, ""
}

// shardOf is the index of n's shard among the flight's; -1: n has no vote in it.
func (f *flight) shardOf(n *node) int {
	for i := range f.shards {
		if f.shards[i].roster.index(n) >= 0 {
			return i
		}
	}
	return -1
}

// awaits reports whether n was sent the request and has not answered it.
func (f *flight) awaits(shardIndex int, n *node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fs := &f.shards[shardIndex]
	j := fs.roster.index(n)
	p := fs.deliveries[j].phase()
	return (p == phaseWritten || p == phaseWriting) && fs.votes[j] == nil
}
