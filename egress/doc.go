// Package egress is the HTTP client of nodes' actions (protocol §7): it sends what a stranger asks for, from inside our network, and cannot be tricked
// into that network.
//
// Three layers decide, each without relying on the one before:
//
//   - Prepare checks everything that needs no network: URL, host, port, method, headers, client certificate. Numbers that only some resolvers take for
//     an address, and `localhost`, never get as far as a resolver.
//   - Every connection passes Dialer.ControlContext with the literal address that is about to be connected to, after DNS and for each address of a
//     name. Nothing resolves a name beforehand, so there is no moment between the check and the use.
//   - Limits bound what an origin can cost: a deadline for everything, header and body caps after decompression, a number of bytes per connection, a
//     number of connections.
//
// Classify, the decision about an address, is a pure function over tables of the IANA special-purpose registries.
//
// Errors are *Refused (we did not send) or *External (sending or receiving failed). Their texts are our own, at most MaxErrorBytes long and never hold
// the URL's path or query, a header's value, a body or key material; so an error may be logged.
//
// net/http itself prints to the standard logger of package log in a few cases, one of them with bytes of the origin: a program that uses this package
// and must not have those in its log calls log.SetOutput.
//
// A Client is safe for concurrent use. What it is given must not be changed afterwards, and what it returns belongs to the caller.
package egress
