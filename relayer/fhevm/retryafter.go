package fhevm

import (
	"math"
	"math/bits"
	"time"
)

// RetryAfter computes when a client should ask again (relayer reference §1.7). Durations count in whole milliseconds.
type RetryAfter struct {
	Min, Max      time.Duration // bounds of every answer, in whole seconds and at least one second
	Margin        float64       // added to every estimate, 0.2 = a fifth
	Readiness     time.Duration // usual time of one readiness check
	InputProof    time.Duration // usual time from receipt to answer, per kind
	PublicDecrypt time.Duration
	UserDecrypt   time.Duration
	Confirmation  time.Duration // usual time of a transaction
}

// DefaultRetryAfter returns the network's figures.
func DefaultRetryAfter() RetryAfter {
	return RetryAfter{
		Min: time.Second, Max: 300 * time.Second, Margin: 0.2, Readiness: 4 * time.Second,
		InputProof: 2 * time.Second, PublicDecrypt: 6 * time.Second, UserDecrypt: 6 * time.Second, Confirmation: 250 * time.Millisecond,
	}
}

// Load is what stands before a job.
type Load struct {
	TxQueue        int64   // jobs to be sent before it
	TPS            float64 // jobs sent per second
	ReadinessQueue int64   // jobs to be checked before it
	Concurrency    int64   // checks at the same time
}

const (
	// stalled is the wait, in milliseconds, behind a queue that nothing takes from.
	stalled = 300_000
	// longest bounds every term, in milliseconds (30 years), so that no sum or product overflows.
	longest = 1_000_000_000_000
	// mostMargin bounds the margin.
	mostMargin = 1_000_000
)

// steps is the wait, in seconds, by how long the gateway chain has had the request.
var steps = []struct {
	age  time.Duration
	wait int64
}{{15 * time.Minute, 300}, {5 * time.Minute, 60}, {2 * time.Minute, 30}, {time.Minute, 10}, {math.MinInt64, 4}}

// ETA returns the estimate for a job in the state before margin and bounds; 0 in receipt_received and later, which have none.
func (c RetryAfter) ETA(k Kind, s State, l Load) time.Duration {
	return time.Duration(c.raw(k, s, l)) * time.Millisecond
}

func (c RetryAfter) raw(k Kind, s State, l Load) uint64 {
	work := milliseconds(c.UserDecrypt)
	switch k {
	case KindInputProof:
		work = milliseconds(c.InputProof)
	case KindPublicDecrypt:
		work = milliseconds(c.PublicDecrypt)
	}
	switch s {
	case StateQueued:
		if k == KindInputProof {
			return txWait(l) + work + milliseconds(c.Confirmation)
		}
		return readinessWait(l, milliseconds(c.Readiness)) + txWait(l) + work + milliseconds(c.Confirmation)
	case StateProcessing:
		return txWait(l) + work + milliseconds(c.Confirmation)
	case StateTxInFlight:
		return work
	}
	return 0
}

// Seconds returns the header's value for a job that has been in its state for age: always within the bounds, whatever the
// numbers. A POST passes the state its job was made in and age 0.
func (c RetryAfter) Seconds(k Kind, s State, age time.Duration, l Load) int {
	if s == StateReceiptReceived {
		for _, step := range steps {
			if age >= step.age {
				return c.clamp(uint64(step.wait))
			}
		}
	}
	// ceil(ceil(raw·(1+margin))/1000) = ceil(raw·(1+margin)/1000), in millionths so that 2.25 s and a fifth are 2.7 s exactly.
	const unit = 1_000_000
	margin := uint64(0)
	if c.Margin > 0 { // not for NaN
		margin = uint64(math.Round(min(c.Margin, mostMargin) * unit))
	}
	hi, lo := bits.Mul64(c.raw(k, s, l), unit+margin)
	lo, carry := bits.Add64(lo, unit*1000-1, 0)
	seconds, _ := bits.Div64(hi+carry, lo, unit*1000)
	return c.clamp(seconds)
}

// clamp keeps seconds within the bounds. A maximum below the minimum counts as the minimum.
func (c RetryAfter) clamp(seconds uint64) int {
	least := max(1, (milliseconds(c.Min)+999)/1000)
	most := max(least, milliseconds(c.Max)/1000)
	return int(min(max(seconds, least), most))
}

// Remaining returns the header's value for a wait of which d is left, within the bounds.
func (c RetryAfter) Remaining(d time.Duration) int { return c.clamp((milliseconds(d) + 999) / 1000) }

func txWait(l Load) uint64 {
	if !(l.TPS > 0) { // NaN, too
		return stalled
	}
	return uint64(min(longest, math.Ceil(float64(max(l.TxQueue, 0))*1000/l.TPS)))
}

func readinessWait(l Load, check uint64) uint64 {
	if l.Concurrency <= 0 {
		return stalled
	}
	rounds, rest := max(l.ReadinessQueue, 0)/l.Concurrency, max(l.ReadinessQueue, 0)%l.Concurrency
	if rest > 0 {
		rounds++
	}
	if hi, lo := bits.Mul64(uint64(rounds), check); hi == 0 {
		return min(longest, lo)
	}
	return longest
}

// milliseconds rounds down; nothing is below 0 or above longest.
func milliseconds(d time.Duration) uint64 { return uint64(min(max(d.Milliseconds(), 0), longest)) }

// SharesReady reports whether a completed user decryption is handed out: as soon as threshold + additional shares are stored or timeout
// has passed since its completion; additional or timeout of 0 mean at once, and so does a completion in the future, since nobody knows how long ago
// it was. Otherwise wait is how long it can still last at most.
func SharesReady(stored, threshold, additional int64, sinceCompletion, timeout time.Duration) (ready bool, wait time.Duration) {
	if additional <= 0 || timeout <= 0 || sinceCompletion < 0 || sinceCompletion >= timeout || stored-threshold >= additional {
		return true, 0
	}
	return false, timeout - sinceCompletion
}
