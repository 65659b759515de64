// Package store keeps the relayer's requests in SQL: the tables, the state graph, and every operation on them, each of which is one
// transaction or one statement. It knows neither HTTP nor the chain: requests, results and events are bytes to it.
//
// The database is the queue. Whoever answers clients inserts rows; one dispatcher, which holds an epoch, claims them and moves them on. What
// decides whether something is sent is fenced by that epoch; what the chain has said is not. The edges of the graph, see [Edges], are enforced
// a second time by triggers, so that no program, ours included, can take a request anywhere else.
package store
