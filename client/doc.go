// Package client is the caller's side of the gateway protocol as a library: it builds a trigger, signs it and sends it,
// and turns the answer into a result or a typed error.
//
// A request is signed once. With several gateways the same bytes go to the next one, and only when nothing can have been
// dispatched: the connection was not made, or the gateway said so. What may have run is never sent again by itself:
// [ErrUnknownOutcome] says that the connection was lost, and [Client.Outcome] asks what became of the request.
//
// Three kinds of errors, to be told apart with errors.Is and errors.As:
//
//   - [*NodeError]: the DON ran the request and agreed that it failed.
//   - [*Error]: a gateway refused the request, or the DON came to no agreement. It matches one of the Err variables by its
//     reason, carries the time after which the same bytes may be sent again, and what else the gateway said. A request
//     that breaks a rule on its own is refused with the same errors before anything is sent.
//   - [ErrUnknownOutcome] and [ErrUnreachable]: no answer came, after sending and before.
package client
