// Package cache is the response cache of outbound requests (protocol §7, Cache): values that several callers share, kept for a while, fetched once
// for all who ask at the same time. It knows neither HTTP nor nodes: a request is a [Key], an answer is any immutable value with a size.
//
// # What a call gets
//
//   - With MaxAge > 0, a stored value younger than both MaxAge and the time to live. Age counts from the arrival of the answer. Expiry is exact and
//     needs no [Cache.Sweep]; sweeping only gives memory back earlier.
//   - Else, with MaxAge > 0, the outcome of the fetch of the same key that is running, if it was started by such a call too.
//   - Else a fetch of its own. With MaxAge 0 (must fetch) that is always so, and nobody joins it: whoever asks for no caching gets an upstream call
//     that is his alone.
//
// # Shared fetches
//
// A fetch runs in a goroutine of its own under a context that keeps the values but neither the deadline nor the cancellation of the call that started
// it. Each caller, in [Cache.Do] or told by [Cache.Start], waits for it as long as its own Timeout and context allow and then leaves, on time, whatever
// the fetch does, and nothing of it is kept. The fetch goes on while anyone waits, so its deadline is the latest among theirs, and a short timeout
// fails no one but its owner; Call.Limit bounds that, and nobody joins a fetch that may end before his own time is up. The last one out cancels it;
// then its outcome is dropped and the next call starts afresh. A value is stored if any call that took part asked for it (Store), even one that has
// left since; its bytes are charged to the first that asked. What was fetched last wins: of two fetches of a key, the value of the one that began later
// stays, whichever ends first. Errors and values that Fetch calls not cacheable are handed out and never stored, and replace nothing.
//
// # Bounds
//
// MaxBytes bounds the charged bytes of all entries. Past it, expired entries go first, then the least recently used entry of an owner over a quarter of
// MaxBytes (the largest of them); with no owner over a quarter, of one that holds the most, give or take an eighth. So an owner that floods the cache
// evicts its own entries once it holds as much as anyone else, whoever holds no more than a quarter loses nothing while another holds more, and an
// owner alone may use everything. Fair among owners is fair only if owners are not for the making: whoever can make up many leaves little to each of
// the others, so Call.Owner says whom to charge, apart from the key. Stored, replaced, evicted or expired, an entry costs constant amortised time.
//
// Calls that share another's fetch are at most MaxWaitersPerOwner for one owner. How many fetches run at once is for Call.Admit to bound.
//
// # Concurrency
//
// One mutex guards a cache. It is never held during a fetch, and a hit holds it for a map lookup and a list move. Call.Admit is called under it, so
// what Admit locks comes after the cache's mutex in the order of locks.
package cache
