// Package demorelayer shows the relayer at work, as `make demo-relayer` does: a gateway in a process of its own, a simulated chain in
// this one, and requests over HTTP from the POST to the result. Between two of them the gateway is killed. What is told comes from
// the HTTP API, from the command `gateway relayer show` and from the chain; the chain alone decides at the end whether every request
// was sent exactly once.
//
// Only this program and tests link go-ethereum's node; the gateway does not.
package demorelayer
