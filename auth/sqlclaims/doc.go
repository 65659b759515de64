// Package sqlclaims keeps used tokens and request ids in a SQL database: it is [auth.Claims] for a gateway that restarts, and for several
// gateways on one database.
//
// All claims that arrive while a transaction is being written go into the next one together (group commit), so that sixty-four clients
// wait for one flush of the disk and not for sixty-four. A claim is durable before it is acknowledged. The end of a request is written with
// the next claims, or by itself within [FlushInterval]: an end that is lost in a crash leaves its id open until the time that the claim gave.
//
// A claim whose outcome nobody learnt, because its caller gave up or the connection was lost during the commit, is taken back
// as soon as the database answers: its request was not dispatched, and the client may send the same bytes again.
package sqlclaims
