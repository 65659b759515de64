// Package connector is the node's side of the gateway protocol as a library: it keeps a session open to every configured
// gateway, hands the gateways' requests to handlers, brings the answers back, reports the node's workflows and has gateways
// make HTTP requests ([Connector.Action]).
//
// A [Connector] dials each gateway independently of the others, proves the node's identity (protocol §4) and reconnects
// with exponential backoff and jitter for as long as [Connector.Run] runs. Per connection one goroutine reads and one
// writes; nothing else touches the socket.
//
// What is bounded, and what happens at the bound:
//
//   - answers and actions waiting for a gateway: [Config.QueueMessages] and [Config.QueueBytes]; the newest is refused
//     ([ErrQueueFull]) and counted. They outlive a lost connection: answers for [Config.AnswerTTL] at most, actions until
//     their caller gives up.
//   - reports of workflows: none are queued. Each connection remembers which workflows are still to be pushed and how far a
//     pull has come, and encodes the latest word on each when the socket takes it.
//   - requests being handled: [Config.MaxConcurrent] and [Config.MaxConcurrentBytes]; the next is answered at once with an
//     error that says the node is busy.
//   - actions waiting for their outcome: [Config.MaxActions]; the next is refused ([ErrTooManyActions]). An answer that
//     nobody waits for is dropped and counted.
//   - a message from a gateway: [Config.MaxReadBytes]; a longer one ends the connection.
//
// Gateways are not trusted: what does not parse is dropped and counted, and a challenge is signed only when it carries the
// timestamp and the gateway id that this node sent.
//
// Locks: Connector.mu guards the handlers, link.mu one gateway's state, store.mu the node's workflows, actions.mu those
// that wait for their answers, presence.mu and admission.mu their counts. store.mu may be taken while link.mu is held;
// apart from that, none is held while another is taken, and none while writing, calling a handler or logging.
package connector
