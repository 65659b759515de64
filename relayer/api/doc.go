// Package api is the relayer's HTTP API: it takes requests, stores them, and tells what became of them (relayer reference §1).
//
// It neither sends anything to a chain nor waits for one, except for the signature of a unified user decryption, which is checked before the
// request is stored. Every replica serves it; the database is what they have in common. An answer is made of the job's row alone, so that any
// replica gives it.
//
// What a caller can make the API do is bounded: the body's size, the details and echoes in an answer, the signature checks at a time, the
// addresses and SDK versions remembered. What costs more than a look at a header comes after API key and quota. Slow bodies and the number of
// connections are the listener's to bound.
package api
