// Package fhevm holds the words in which clients, the relayer and the gateway chain of the FHE network speak to each
// other: the requests of the HTTP API with their rules, the replies with their labels, the content hash that tells equal
// requests, and the calls, events and errors of the network's contracts.
//
// Everything here is a pure function of its arguments: nothing keeps state, starts a goroutine, reads a clock or does
// I/O, so all of it may be used from any number of goroutines. Bytes handed in may come straight from an outsider;
// no input makes a function panic, and what is built from it is bounded.
package fhevm
