package connector

import "time"

// Stats is what a Connector has done so far.
type Stats struct {
	Gateways []GatewayStats // in the order of Config.Gateways
	Handling int            // requests being handled
	// HandlingBytes is the size of their messages.
	HandlingBytes int64
	Workflows     int // supported by the node
	Actions       int // that wait for their answers
}

// GatewayStats counts what happened with one gateway since the Connector was made.
type GatewayStats struct {
	Gateway   Gateway
	Connected bool
	Since     time.Time // of the current session; zero when there is none

	Attempts  uint64 // to connect
	Refused   uint64 // attempts the gateway answered with an HTTP status: 400, 401, 429, …
	Failed    uint64 // attempts that failed in any other way
	Sessions  uint64 // sessions the gateway has accepted
	Lost      uint64 // sessions that ended while Run was running
	LastError string // of the latest attempt or session that failed; "" when none has

	Received  uint64 // messages
	Malformed uint64 // messages dropped because they break the protocol
	Unhandled uint64 // requests for a method without a handler
	Busy      uint64 // requests refused because too many were being handled
	Panics    uint64 // handlers that panicked
	// Unsolicited counts answers to actions that nobody waited for: late, second or made up.
	Unsolicited uint64

	Sent      uint64 // messages written
	Pushes    uint64 // reports of single workflows begun
	Pulls     uint64 // requests for all workflows
	Actions   uint64 // queued
	QueueFull uint64 // answers and actions refused because too many were waiting
	Expired   uint64 // answers and actions dropped because the gateway was away for too long
	TooLarge  uint64 // answers and actions refused because of their size

	Queued      int // answers and actions waiting
	QueuedBytes int
}

// Stats returns the current counts. Those of one gateway belong together; it does not wait.
func (c *Connector) Stats() Stats {
	s := Stats{Gateways: make([]GatewayStats, len(c.links)), Workflows: c.store.len(), Actions: c.actions.count()}
	for i, l := range c.links {
		l.mu.Lock()
		s.Gateways[i] = l.stats
		s.Gateways[i].Queued, s.Gateways[i].QueuedBytes = len(l.outbox.items), l.outbox.bytes
		l.mu.Unlock()
	}
	c.admission.mu.Lock()
	s.Handling, s.HandlingBytes = c.admission.count, c.admission.bytes
	c.admission.mu.Unlock()
	return s
}
