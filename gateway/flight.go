package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"dongate/aggregation"
	"dongate/config"
)

// flight is one trigger from its claim to its answer. It owns everything the
// request needs: the bytes for the nodes, who was sent them, who answered what,
// and the decision.
//
// One goroutine, the client's, runs wait; sessions' readers call vote, sessions'
// writers report deliveries, and sessions coming and going call nodeConnected
// and nodeDisconnected. mu guards the fields below it and is never held across
// I/O; it may be held while a send queue's lock is taken, never the reverse.
type flight struct {
	service  *service
	config   *config.Handler // as of dispatch, as everything below is
	id       string
	workflow *aggregation.Workflow
	prepared *websocket.PreparedMessage
	size     int // bytes of prepared, accounted to the service's open bytes
	shards   []flightShard
	started  time.Time
	deadline time.Time
	poke     chan struct{} // capacity 1: "look again" for wait
	answered atomic.Bool   // decided or given up: nothing is sent any more

	mu       sync.Mutex
	trigger  *aggregation.Trigger
	answers  []*answer // distinct answers with at least one vote behind them
	held     int64     // bytes of answers, accounted to the service's open bytes
	armed    time.Time // when wait will look again by itself
	decision aggregation.Decision
}

// flightShard is one assigned shard: the members at dispatch.
type flightShard struct {
	roster     *roster
	deliveries []delivery // by node index
	votes      []*answer  // by node index: the answer this node's vote is for
}

// dispatch sends the request to every node of every assigned shard. The flight
// must already be registered, so that a node connecting meanwhile is not missed.
func (f *flight) dispatch() {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		fs := &f.shards[i]
		for j, n := range fs.roster.nodes {
			if n.removed.Load() { // a reload that came after the configuration was looked at
				f.trigger.Remove(i, j, now)
			}
		}
		f.trigger.Connected(i, fs.roster.connected(), now)
		for j := range fs.deliveries {
			f.sendLocked(&fs.deliveries[j], now)
		}
	}
}

// connectedLocked reads the count under mu, so that of two racing events the
// later one applied has the later count.
func (f *flight) connectedLocked(i int, now time.Time) {
	f.trigger.Connected(i, f.shards[i].roster.connected(), now)
	f.decideLocked(now)
}

// decideLocked asks for the decision and wakes the waiter when there is something
// for it to do sooner than it thinks.
func (f *flight) decideLocked(now time.Time) aggregation.Decision {
	if f.answered.Load() {
		return f.decision
	}
	d := f.trigger.Decide(now)
	if d.Outcome != aggregation.Undecided {
		f.decision = d
		f.answered.Store(true)
		f.look()
	} else {
		f.dueLocked(d.Wake)
	}
	return d
}

func (f *flight) look() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// wait runs the flight to its end: it keeps the retry schedule and returns when
// the nodes have decided, time is up, the client has gone (ctx) or the gateway
// gives up on open requests (killed).
func (f *flight) wait(ctx context.Context, killed <-chan struct{}) aggregation.Decision {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		f.mu.Lock()
		d := f.decideLocked(now)
		if d.Outcome != aggregation.Undecided {
			f.mu.Unlock()
			return d
		}
		f.armed = time.Time{} // nothing needs to wake the one who is awake
		next := f.retryLocked(now)
		f.armed = d.Wake
		if !next.IsZero() && next.Before(f.armed) {
			f.armed = next
		}
		timer.Reset(f.armed.Sub(now))
		f.mu.Unlock()
		select {
		case <-f.poke:
		case <-timer.C:
		case <-ctx.Done():
			return f.giveUp(aggregation.Decision{Outcome: outcomeAbandoned})
		case <-killed:
			return f.giveUp(aggregation.Decision{Outcome: outcomeKilled})
		}
	}
}

// Outcomes of a flight that the nodes did not decide.
const (
	outcomeAbandoned = aggregation.Outcome(254)
	outcomeKilled    = aggregation.Outcome(255)
)

// giveUp ends the flight with d unless the nodes have decided meanwhile.
func (f *flight) giveUp(d aggregation.Decision) aggregation.Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.answered.Swap(true) {
		f.decision = d
	}
	return f.decision
}

// mayHaveRun says, for an error text, whether any node was sent the request.
func (f *flight) mayHaveRun() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.shards {
		for j := range f.shards[i].deliveries {
			// Once an attempt was made, only its phase tells whether it got anywhere;
			// one that was lost on the way may have been read.
			if f.shards[i].deliveries[j].state.Load()>>2 > 0 {
				return "nodes that were may have run it"
			}
		}
	}
	return "none was sent it"
}

// states describes each assigned shard for a client that got no quorum.
func (f *flight) states() []shardState {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]shardState, len(f.shards))
	for i := range f.shards {
		q := f.trigger.Shard(i)
		out[i] = shardState{
			Threshold: q.Threshold(), Connected: f.shards[i].roster.connected(),
			Answered: q.Answered(), Groups: q.Groups(),
		}
		if out[i].Groups == nil {
			out[i].Groups = []int{}
		}
	}
	return out
}

// release gives back the memory the flight was accounted for.
func (f *flight) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.service.open.giveAnswer(f.held)
	f.held = 0
	f.answers = nil
}
