// Package chain is everything of the relayer that talks to chains: JSON-RPC over several nodes with failover, the reads and the sends the
// relayer needs, its key and its fees, and the questions put to contracts: access control, readiness, wallets' signatures, thresholds and
// the location of key material. It knows neither SQL nor the HTTP API.
//
// A [Pool] is one chain. Whatever needs a chain takes the pool. [Pool.Subscribe], [KeyURL.Run] and [Account.Run] run until their context ends; nothing
// else goes on in the background but a threshold's look-up, for a few calls' time. All types are safe for concurrent use. What a node answers is bounded in size and checked in form before
// it is used, and no error text of this package holds a node's URL or host: those may hold a key, and the texts may reach a client.
package chain
