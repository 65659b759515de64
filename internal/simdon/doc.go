// Package simdon simulates a DON for the demo, the command line and end-to-end tests: real nodes over real sockets, with
// keys derived from a seed and behaviour that can be switched while they run.
//
// A [DON] has shards of [Node]s. [GatewayConfig] writes the configuration of a gateway that serves it, [DON.Start] connects
// the nodes, and an observer sees every trigger that reaches a node and every answer that leaves one, byte for byte.
// [Node.SetAction] gives nodes something to do when they run a workflow: a request that the gateway makes for them. For
// nodes that break the protocol there are [DialRaw] and [Upgrade], which hand out bare connections.
package simdon
