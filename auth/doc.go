// Package auth holds what proves identity on the wire: EIP-191 signatures, the request JWT of clients (protocol §3), the handshake
// bytes of nodes (protocol §4) and the claims that keep a token and a request id from being used twice.
//
// It knows no sockets and no SQL. Functions and methods are safe for concurrent use unless they say otherwise. Nothing is ever keyed on
// signature bytes: each signature has a second valid form (high s), which is accepted because some key services emit it.
package auth
