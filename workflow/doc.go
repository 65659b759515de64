// Package workflow holds the wire vocabulary of workflows that clients, nodes and the gateway share: identifiers and
// their normal forms, the selector, the metadata that nodes report and the parameters of a trigger.
//
// Everything here is a pure function of its arguments: nothing in this package keeps state, starts a goroutine, reads
// a clock or does I/O, so all of it may be used from any number of goroutines. Values handed in may come straight
// from an outsider; every error text is bounded and safe to send back to the one who sent the value.
package workflow
