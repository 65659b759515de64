package aggregation

import "time"

// Outcome is how a request ended, or that it has not yet.
type Outcome uint8

// The outcomes of a request (protocol §5, and the table of §2).
const (
	Undecided    Outcome = iota
	AgreedResult         // a shard agreed on a result
	AgreedError          // a shard agreed on an error and nothing better could come, or not in time
	NoQuorum             // in no shard could any group win, for the whole grace
	Timeout              // the deadline passed
	Unavailable          // nobody of any assigned shard was connected for long enough
)

// String names the outcome for logs and metric labels.
func (o Outcome) String() string {
	names := [...]string{"undecided", "result", "error", "no_quorum", "timeout", "don_unavailable"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// ShardSize is a shard at dispatch: N members, numbered 0..N-1, and the number of equal votes that decide (see Threshold).
type ShardSize struct{ N, Threshold int }

// TriggerConfig describes one request.
type TriggerConfig struct {
	Shards      []ShardSize   // the assigned shards; Trigger numbers them in this order
	Start       time.Time     // dispatch
	Deadline    time.Time     // when an undecided request ends; zero means never
	Grace       time.Duration // noQuorumGraceMs: for votes that may still change, and for another shard's result
	Unavailable time.Duration // donUnavailableMs: how long nobody at all may be connected
}

// Decision is what Trigger.Decide says.
type Decision struct {
	Outcome Outcome
	Shard   int       // the shard that agreed; -1 unless Outcome is AgreedResult or AgreedError
	Vote    Vote      // what it agreed on
	Wake    time.Time // while Undecided: the next instant at which time alone may decide; zero if it cannot
}

// Trigger decides one request over its assigned shards (protocol §5). Each shard counts for itself: no vote ever crosses from one to another.
//
//   - The first shard to agree on a result decides, at once.
//   - A shard's agreement on an error is latched, so that a faulty node cannot undo it by changing its mind. It is held back while another shard may still
//     agree on a result, for at most Grace; then it is the answer, the earliest if there are several.
//   - With no error held, Grace after no group in any shard could win any more: NoQuorum. A moved vote that reopens a shard stops that clock.
//   - With no error held, nobody connected for Unavailable: Unavailable. At the deadline: the held error, else Timeout.
//
// The decision depends only on the events and their instants, not on how often Decide is asked: whatever was due before an event happens before it. Time
// never runs backwards here; an earlier instant than the last one seen is taken as that. Not safe for concurrent use.
type Trigger struct {
	shards      []triggerShard
	deadline    time.Time
	grace       time.Duration
	unavailable time.Duration

	now        time.Time
	latches    int // latches so far: their order
	stuck      bool
	stuckSince time.Time // since when no group can win anywhere; a held error is then the answer at once
	down       bool
	downSince  time.Time // since when nobody is connected
	decision   Decision
}

type triggerShard struct {
	quorum    Quorum
	connected int
	latch     *latch
}

// latch is a shard's agreement on an error. It remembers who brought it about, because a node's change of mind leaves it standing while a node's removal
// from the configuration takes that node's vote out of it.
type latch struct {
	vote   Vote
	since  time.Time
	order  int
	backer []bool
	count  int
}

// NewTrigger starts a request. connected[i] is the number of members of shard i with a live session at dispatch; missing entries count as 0.
func NewTrigger(c TriggerConfig, connected []int) *Trigger {
	t := &Trigger{
		shards:      make([]triggerShard, len(c.Shards)),
		deadline:    c.Deadline,
		grace:       max(c.Grace, 0),
		unavailable: max(c.Unavailable, 0),
		now:         c.Start,
		decision:    Decision{Shard: -1},
	}
	for i, s := range c.Shards {
		t.shards[i].quorum = newQuorum(s.N, s.Threshold)
		if i < len(connected) {
			t.shards[i].connected = connected[i]
		}
	}
	t.observe()
	return t
}

// Vote takes a node's answer. Once the request is decided every vote is Late and changes nothing.
func (t *Trigger) Vote(shard, node int, v Vote, now time.Time) VoteStatus {
	t.advance(now)
	if t.decided() {
		return Late
	}
	if shard < 0 || shard >= len(t.shards) {
		return NotAMember
	}
	s := &t.shards[shard]
	status := s.quorum.Vote(node, v)
	if status != Counted && status != Moved {
		return status
	}
	agreed, ok := s.quorum.Agreed()
	switch {
	case ok && agreed.Kind == Result:
		t.decision = Decision{Outcome: AgreedResult, Shard: shard, Vote: agreed}
		return status
	case ok:
		t.hold(s, agreed)
	}
	if s.latch != nil && v == s.latch.vote {
		s.latch.add(node)
	}
	t.observe()
	return status
}

// Remove withdraws a node's membership: its votes stop counting, also towards an error that is held. Threshold and other members stay.
func (t *Trigger) Remove(shard, node int, now time.Time) {
	t.advance(now)
	if t.decided() || shard < 0 || shard >= len(t.shards) {
		return
	}
	s := &t.shards[shard]
	s.quorum.Remove(node)
	if s.latch != nil && s.latch.remove(node) < s.quorum.threshold {
		s.latch = nil
		if agreed, ok := s.quorum.Agreed(); ok {
			t.hold(s, agreed) // another error, agreed on meanwhile
		}
	}
	t.observe()
}

// hold latches the error a shard agreed on unless it holds one already.
func (t *Trigger) hold(s *triggerShard, agreed Vote) {
	if s.latch == nil {
		t.latches++
		s.latch = newLatch(&s.quorum, agreed, t.now, t.latches)
	}
}

// Connected says how many of the shard's members have a live session from now on.
func (t *Trigger) Connected(shard, count int, now time.Time) {
	t.advance(now)
	if t.decided() || shard < 0 || shard >= len(t.shards) {
		return
	}
	t.shards[shard].connected = count
	t.observe()
}

// Decide says what the request has come to. Once decided it stays decided.
func (t *Trigger) Decide(now time.Time) Decision {
	t.advance(now)
	d := t.decision
	if !t.decided() {
		_, d.Wake = t.next()
	}
	return d
}

// Shard returns the vote count of shard i, for reporting; nil if there is no such shard. It is the Trigger's own: read it only.
func (t *Trigger) Shard(i int) *Quorum {
	if i < 0 || i >= len(t.shards) {
		return nil
	}
	return &t.shards[i].quorum
}

// ConnectedCount is the last count given for shard i; 0 if there is no such shard.
func (t *Trigger) ConnectedCount(i int) int {
	if i < 0 || i >= len(t.shards) {
		return 0
	}
	return t.shards[i].connected
}

func (t *Trigger) decided() bool { return t.decision.Outcome != Undecided }

// advance moves time on and lets happen what was due until then.
func (t *Trigger) advance(now time.Time) {
	if now.After(t.now) {
		t.now = now
	}
	if t.decided() {
		return
	}
	if d, at := t.next(); !at.IsZero() && !at.After(t.now) {
		t.decision = d
	}
}

// observe is called after every event: it starts and stops the clocks and takes what is due already.
func (t *Trigger) observe() {
	stuck, down := true, true
	for i := range t.shards {
		s := &t.shards[i]
		stuck = stuck && s.quorum.State() == Impossible
		down = down && s.connected <= 0
	}
	if stuck && !t.stuck {
		t.stuckSince = t.now
	}
	if down && !t.down {
		t.downSince = t.now
	}
	t.stuck, t.down = stuck, down
	t.advance(t.now)
}

// next returns what time alone will decide and when; a zero time means never. Where two fall on one instant the more telling one is taken.
func (t *Trigger) next() (Decision, time.Time) {
	if i := t.earliestLatch(); i >= 0 {
		held := t.shards[i].latch
		at := held.since
		if t.resultPossibleBeside(i) {
			at = at.Add(t.grace)
		}
		if !t.deadline.IsZero() && t.deadline.Before(at) {
			at = t.deadline
		}
		return Decision{Outcome: AgreedError, Shard: i, Vote: held.vote}, at
	}
	d, at := Decision{Outcome: Timeout, Shard: -1}, t.deadline
	if t.down {
		if u := t.downSince.Add(t.unavailable); at.IsZero() || !u.After(at) {
			d.Outcome, at = Unavailable, u
		}
	}
	if t.stuck {
		if u := t.stuckSince.Add(t.grace); at.IsZero() || !u.After(at) {
			d.Outcome, at = NoQuorum, u
		}
	}
	return d, at
}

func (t *Trigger) earliestLatch() int {
	first := -1
	for i := range t.shards {
		if l := t.shards[i].latch; l != nil && (first < 0 || l.order < t.shards[first].latch.order) {
			first = i
		}
	}
	return first
}

// resultPossibleBeside reports whether a shard other than the given one may still agree on a result: it has no error of its own, its silent nodes could
// complete a result, and it has a quorum connected.
func (t *Trigger) resultPossibleBeside(shard int) bool {
	for i := range t.shards {
		s := &t.shards[i]
		if i != shard && s.latch == nil && s.connected >= s.quorum.threshold && s.quorum.CanAgreeOnResult() {
			return true
		}
	}
	return false
}

func newLatch(q *Quorum, v Vote, now time.Time, order int) *latch {
	l := &latch{vote: v, since: now, order: order, backer: make([]bool, len(q.members))}
	for node := range q.members {
		if m := &q.members[node]; m.votes > 0 && !m.removed && q.groups[m.group].vote == v {
			l.add(node)
		}
	}
	return l
}

func (l *latch) add(node int) {
	if !l.backer[node] {
		l.backer[node] = true
		l.count++
	}
}

// remove takes a node out and returns how many backers are left.
func (l *latch) remove(node int) int {
	if node >= 0 && node < len(l.backer) && l.backer[node] {
		l.backer[node] = false
		l.count--
	}
	return l.count
}
