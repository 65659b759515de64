package aggregation

import (
	"sort"
	"time"
)

// The dumb twins: they keep the log of what happened and recompute everything from its start, as slowly as they please.

type event struct {
	what  string // "vote", "remove", "connected"
	shard int
	node  int
	vote  Vote
	count int
	at    time.Time
}

// quorumTwin is the dumb twin of Quorum.
type quorumTwin struct {
	n, threshold int
	log          []event
}

// standing replays the log: the vote that stands for each node, who is gone, and how often each node spoke.
func (q *quorumTwin) standing() (votes map[int]Vote, gone map[int]bool, spoke map[int]int) {
	votes, gone, spoke = map[int]Vote{}, map[int]bool{}, map[int]int{}
	for _, e := range q.log {
		if e.node < 0 || e.node >= q.n || gone[e.node] {
			continue
		}
		switch e.what {
		case "vote":
			if spoke[e.node]++; spoke[e.node] <= 8 {
				votes[e.node] = e.vote
			}
		case "remove":
			gone[e.node] = true
			delete(votes, e.node)
		}
	}
	return votes, gone, spoke
}

func (q *quorumTwin) sizes() map[Vote]int {
	votes, _, _ := q.standing()
	sizes := map[Vote]int{}
	for _, v := range votes {
		sizes[v]++
	}
	return sizes
}

func (q *quorumTwin) silent() int {
	_, gone, spoke := q.standing()
	silent := 0
	for node := range q.n {
		if !gone[node] && spoke[node] == 0 {
			silent++
		}
	}
	return silent
}

func (q *quorumTwin) state() State {
	best := 0
	for _, n := range q.sizes() {
		best = max(best, n)
	}
	if best >= q.threshold {
		return Agreed
	}
	if best+q.silent() < q.threshold {
		return Impossible
	}
	return Pending
}

func (q *quorumTwin) agreed() (Vote, bool) {
	for v, n := range q.sizes() {
		if n >= q.threshold {
			return v, true
		}
	}
	return Vote{}, false
}

func (q *quorumTwin) canAgreeOnResult() bool {
	best := 0
	for v, n := range q.sizes() {
		if v.Kind == Result {
			best = max(best, n)
		}
	}
	return best+q.silent() >= q.threshold
}

func (q *quorumTwin) groups() []int {
	sizes := []int{}
	for _, n := range q.sizes() {
		sizes = append(sizes, n)
	}
	sort.Sort(sort.Reverse(sort.IntSlice(sizes)))
	return sizes
}

// triggerTwin is the dumb twin of Trigger: it walks through time millisecond by millisecond and asks, at every one and after every event, what the page says.
// All instants must be whole milliseconds from the start.
type triggerTwin struct {
	c         TriggerConfig
	connected []int
	log       []event
}

// decide returns the decision at the given instant, Wake left out.
func (t *triggerTwin) decide(now time.Time) Decision {
	next := 0
	for tick := t.c.Start; !tick.After(now); tick = tick.Add(time.Millisecond) {
		if d := t.outcome(next, tick); d.Outcome != Undecided {
			return d
		}
		for next < len(t.log) && !t.log[next].at.After(tick) {
			next++
			if d := t.outcome(next, tick); d.Outcome != Undecided {
				return d
			}
		}
	}
	return Decision{Shard: -1}
}

// outcome applies the rules to the first n events at an instant.
func (t *triggerTwin) outcome(n int, now time.Time) Decision {
	for shard := range t.c.Shards {
		if v, ok := t.quorum(n, shard).agreed(); ok && v.Kind == Result {
			return Decision{Outcome: AgreedResult, Shard: shard, Vote: v}
		}
	}
	overdue := !t.c.Deadline.IsZero() && !now.Before(t.c.Deadline)
	first, firstVote, firstIndex := -1, Vote{}, 0
	for shard := range t.c.Shards {
		if v, i, ok := t.held(n, shard); ok && (first < 0 || i < firstIndex) {
			first, firstVote, firstIndex = shard, v, i
		}
	}
	if first >= 0 {
		hope := false
		for shard, s := range t.c.Shards {
			_, _, held := t.held(n, shard)
			if shard != first && !held && t.quorum(n, shard).canAgreeOnResult() && t.connectedAt(n, shard) >= s.Threshold {
				hope = true
			}
		}
		if !hope || overdue || !now.Before(t.log[firstIndex].at.Add(t.c.Grace)) {
			return Decision{Outcome: AgreedError, Shard: first, Vote: firstVote}
		}
		return Decision{Shard: -1}
	}
	// Among several clocks that have run out the one that did first counts; on the same instant no quorum, then unavailable.
	best, at := Decision{Shard: -1}, time.Time{}
	consider := func(o Outcome, due time.Time) {
		if !now.Before(due) && (best.Outcome == Undecided || due.Before(at)) {
			best.Outcome, at = o, due
		}
	}
	if since, ok := t.since(n, t.stuck); ok {
		consider(NoQuorum, since.Add(t.c.Grace))
	}
	if since, ok := t.since(n, t.nobody); ok {
		consider(Unavailable, since.Add(t.c.Unavailable))
	}
	if overdue {
		consider(Timeout, t.c.Deadline)
	}
	return best
}

func (t *triggerTwin) quorum(n, shard int) *quorumTwin {
	s := t.c.Shards[shard]
	q := &quorumTwin{n: s.N, threshold: s.Threshold}
	for _, e := range t.log[:n] {
		if e.shard == shard {
			q.log = append(q.log, e)
		}
	}
	return q
}

// held returns the error that is latched after n events and the index of the event that latched it: an agreement on an error stands from then on, until
// removals leave fewer than the threshold of those who ever stood behind it since.
func (t *triggerTwin) held(n, shard int) (vote Vote, index int, ok bool) {
	for i := range n {
		if ok && !t.backed(vote, index, i+1, shard) {
			ok = false
		}
		if v, agreed := t.quorum(i+1, shard).agreed(); !ok && agreed && v.Kind == Failure {
			vote, index, ok = v, i, true
		}
	}
	return vote, index, ok
}

func (t *triggerTwin) backed(vote Vote, from, to, shard int) bool {
	backers := map[int]bool{}
	for i := from; i < to; i++ {
		votes, _, _ := t.quorum(i+1, shard).standing()
		for node, v := range votes {
			if v == vote {
				backers[node] = true
			}
		}
	}
	_, gone, _ := t.quorum(to, shard).standing()
	for node := range gone {
		delete(backers, node)
	}
	return len(backers) >= t.c.Shards[shard].Threshold
}

func (t *triggerTwin) connectedAt(n, shard int) int {
	count := t.connected[shard]
	for _, e := range t.log[:n] {
		if e.what == "connected" && e.shard == shard {
			count = e.count
		}
	}
	return count
}

func (t *triggerTwin) stuck(n int) bool {
	for shard := range t.c.Shards {
		if _, _, held := t.held(n, shard); held || t.quorum(n, shard).state() != Impossible {
			return false
		}
	}
	return true
}

func (t *triggerTwin) nobody(n int) bool {
	for shard := range t.c.Shards {
		if t.connectedAt(n, shard) > 0 {
			return false
		}
	}
	return true
}

// since returns from when on the condition has held without a break until after the nth event.
func (t *triggerTwin) since(n int, condition func(n int) bool) (time.Time, bool) {
	if !condition(n) {
		return time.Time{}, false
	}
	for n > 0 && condition(n-1) {
		n--
	}
	if n == 0 {
		return t.c.Start, true
	}
	return t.log[n-1].at, true
}
