// Package aggregation turns what many nodes say into one answer: the identical-response quorum of a trigger (protocol §5) and the agreement on
// workflow metadata (protocol §6).
//
// Everything here is a pure value: facts and instants go in, decisions come out. Nothing starts a goroutine, takes a lock, reads a clock or touches
// a socket, so nothing but a View may be used by several goroutines at once; the caller brings the mutex. The same facts in the same order always give
// the same decisions.
package aggregation
