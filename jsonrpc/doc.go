// Package jsonrpc holds the envelope that clients, gateway and nodes exchange: JSON-RPC 2.0 requests and responses, their
// error codes, their canonical form and the digests over it (protocol §1). It knows no HTTP and no WebSocket.
//
// All decoders take bytes from outsiders. They accept one JSON value of valid UTF-8 without lone surrogates, without a
// repeated member name anywhere and nested at most [MaxDepth] levels; they use memory in proportion to the bytes they are given
// and never panic. Member names match case-exactly.
//
// Decoded values alias the bytes they were decoded from: keep those bytes unchanged for as long as the values are in use.
// All functions and methods are safe for concurrent use as long as nobody changes the values they read.
package jsonrpc
