// Package gateway is the server between workflow clients and the capability
// nodes of decentralised oracle networks (DONs).
//
// # Who calls whom
//
//	client ── HTTP ──► clientEndpoint ──► service.execute ──► flight.dispatch ──► sendQueue
//	                                            ▲                                     │
//	                                     flight.wait ◄── poke ── flight.vote          ▼
//	                                                                 ▲        session.write ──► node
//	node ── WebSocket ──► nodeEndpoint ──► session.read ──► Server.route
//	                                                                 ├─► service.push / pulled ──► view
//	                                                                 └─► actions.handle ──► cache, egress ──► node.deliver
//
// A request is one flight: the client's goroutine claims the token, registers the
// flight, queues the one encoded message to every node's session and then waits.
// The sessions' reading goroutines bring the nodes' answers to the flight, which
// asks its [aggregation.Trigger] for a decision and wakes the waiter. Retries,
// send timeouts and the decision's own deadlines share the waiter's one timer.
// Nothing polls, and nothing on this path waits for a socket.
//
// An action is checked by the session's reading goroutine, which does not wait for
// it. One that neither shares a call nor uses the cache goes past it. The answer is
// queued to the node's session by whoever learns the outcome: the goroutine of the
// upstream call, or the timer of a node's own timeout.
//
// # Goroutines
//
// One per client request (net/http's), two per session (one reads, one writes),
// one per service (expiry of metadata), one per listener, one per upstream call of
// an action (from a crew that keeps them for the next). A handshake runs in what
// becomes the session's reading goroutine.
//
// # Locks
//
// Taken in this order, never across I/O, encoding or logging:
//
//	flight.mu → sendQueue.mu
//	the cache's → actionSlots.mu, crew.mu
//	connections.mu → connection.mu
//	service.metaMu, flightRegistry.mu, node.mu, nodeEndpoint.mu: alone
//
// A reload takes any of them one at a time, with Server.reloading held throughout.
//
// A delivery's phase is one atomic word, because the flight's waiter and a
// session's writer race for it. The metadata view is replaced as a whole behind
// an atomic pointer, so that requests read it without a lock.
//
// # Reload
//
// What comes from the configuration and can change while running is in one snapshot
// behind an atomic pointer. A reload prepares another, which can fail and touches
// nothing, and then puts it in place, which cannot fail. Shards and nodes that stay
// are the same objects in both, so that sessions, used headers and counters go on; who
// belongs to a shard is the snapshot's, and a flight keeps the members, the threshold
// and the times it began with. What a limit has counted so far is kept, too.
//
// # Stop
//
// Leave turns readiness off and goes on serving; Shutdown refuses what is new, waits
// for open requests, gives up on the rest at the deadline, closes the listeners and
// the connections without a request, and the sessions last, since open requests need
// them.
//
// Section numbers in comments ("protocol §5") refer to docs/protocol.md.
package gateway
