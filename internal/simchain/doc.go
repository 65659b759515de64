// Package simchain is a chain for tests and the demo of the relayer: go-ethereum with test contracts that take requests, check
// them and emit events as the network's do, nodes that answer, and everything that can go wrong between a relayer and its chain.
//
// [Start] makes a [Chain] in this process, [StartProcess] one in a process of its own. Both are steered by a [Control]: blocks,
// re-organisations, knobs of the contracts, how the nodes answer, and [Control.Judge], which says from the chain alone what was
// accepted how often. [NewProxy] stands between a relayer and a chain and spoils what passes. [Config.NewRequest] makes
// requests that the contracts accept.
//
// The chain plays gateway and host chain at once. Its clock gains a second with every block made within one, and every 32nd block
// is final as soon as it is there. It listens on the loopback interface alone; its keys are derived from names.
package simchain
