// Package relayer sends the requests that its store holds to the gateway chain, each exactly once, and stores what the chain answers.
//
// The database is the queue. Any number of processes may answer clients (package api); one of them, elected by a [Lock], is the
// dispatcher. It claims rows with an epoch of its own and takes each through its states: a queued one is asked for until its
// ciphertexts are ready, a processing one is signed and stored before it is sent, one in flight is looked for by the receipts of all
// transactions that were ever signed for it. Responses come from the chain's logs, read range by range behind a cursor that moves once everything
// in a range is stored. What a process holds in memory only says where to look: whoever is killed, at whatever instruction, the next
// dispatcher finds the rest in the database and on the chain.
//
// A node's words are hints. What decides is a receipt, or a mined transaction of our account that is none of ours with the nonce in question.
package relayer
