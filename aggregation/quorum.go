package aggregation

import "slices"

// Digest is the SHA-256 by which two answers count as the same one (protocol §1).
type Digest = [32]byte

// Kind says whether a node answered with a result or with an error. The two never count together, whatever their digests.
type Kind uint8

// The kinds of answer.
const (
	Result  Kind = iota // the node ran the request
	Failure             // the node answered with a JSON-RPC error
)

// String names the kind for logs.
func (k Kind) String() string {
	if k == Result {
		return "result"
	}
	return "error"
}

// Vote is one node's answer, reduced to what is compared. Votes are comparable with ==.
type Vote struct {
	Kind   Kind
	Digest Digest
}

// Threshold is the number of equal votes that decide in a shard of n nodes of which at most f are faulty: (n+f)/2 + 1, integer division (protocol §5).
// Two groups of that size share at least one honest node, and for n >= 3f+1 the honest nodes alone reach it.
func Threshold(n, f int) int { return (n+f)/2 + 1 }

// State is where a shard's vote stands.
type State uint8

// The states of a shard's vote.
const (
	Pending    State = iota // some group could still win
	Agreed                  // a group holds the threshold
	Impossible              // no group could win even if every silent node joined the largest; a moved vote can still change that
)

// String names the state for logs.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Agreed:
		return "agreed"
	default:
		return "impossible"
	}
}

// MaxVotesPerNode is how many votes of one node are looked at in one request (protocol §4), repetitions included: a node may correct itself, but it
// cannot keep the gateway busy.
const MaxVotesPerNode = 8

// VoteStatus says what became of a vote.
type VoteStatus uint8

// What can become of a vote. Only Counted and Moved change anything; a caller drops the others and counts them.
const (
	Counted     VoteStatus = iota // the node's first vote
	Moved                         // the node's earlier vote was withdrawn and this one stands
	Repeated                      // the node had said exactly this already
	Superfluous                   // over MaxVotesPerNode
	NotAMember                    // not a node of this shard, or no longer one
	Late                          // the request was decided before (said by Trigger only)
)

// String names the status for logs and metric labels.
func (s VoteStatus) String() string {
	names := [...]string{"counted", "moved", "repeated", "superfluous", "not_a_member", "late"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Quorum is the identical-response aggregator of one shard: it counts one vote per node and knows whether a group of equal votes has won, may still
// win or cannot. It holds at most one group per member. Not safe for concurrent use.
type Quorum struct {
	members   []member
	groups    []group // slots of size 0 are free
	threshold int
	answered  int // members whose vote counts
	silent    int // members that can still join a group
}

type member struct {
	group   int32 // slot of the standing vote; meaningless while votes == 0
	votes   uint8 // messages looked at, at most MaxVotesPerNode
	removed bool
}

type group struct {
	vote Vote
	size int
}

// NewQuorum returns the aggregator of a shard whose members are 0..n-1. A threshold that is not a majority is raised to one, because otherwise two
// groups could win at once.
func NewQuorum(n, threshold int) *Quorum {
	q := newQuorum(n, threshold)
	return &q
}

func newQuorum(n, threshold int) Quorum {
	n = max(n, 0)
	return Quorum{members: make([]member, n), threshold: max(threshold, n/2+1), silent: n}
}

// Vote takes a node's answer. A node has one vote: a different later one moves it.
func (q *Quorum) Vote(node int, v Vote) VoteStatus {
	if node < 0 || node >= len(q.members) || q.members[node].removed {
		return NotAMember
	}
	m := &q.members[node]
	if m.votes == MaxVotesPerNode {
		return Superfluous
	}
	m.votes++
	if m.votes == 1 {
		q.answered++
		q.silent--
		m.group = q.join(v)
		return Counted
	}
	if q.groups[m.group].vote == v {
		return Repeated
	}
	q.groups[m.group].size--
	m.group = q.join(v)
	return Moved
}

// join adds one to the group of v, opening it where needed, and returns its slot.
func (q *Quorum) join(v Vote) int32 {
	free := -1
	for i := range q.groups {
		switch g := &q.groups[i]; {
		case g.size == 0:
			free = i
		case g.vote == v:
			g.size++
			return int32(i)
		}
	}
	if free < 0 {
		free = len(q.groups)
		q.groups = append(q.groups, group{})
	}
	q.groups[free] = group{vote: v, size: 1}
	return int32(free)
}

// Remove takes a node out: its vote stops counting and it is not waited for any more, while the threshold stays what it was at dispatch (protocol
// §5). Removing a node twice, or one that never was a member, does nothing.
func (q *Quorum) Remove(node int) {
	if node < 0 || node >= len(q.members) || q.members[node].removed {
		return
	}
	m := &q.members[node]
	m.removed = true
	if m.votes == 0 {
		q.silent--
		return
	}
	q.answered--
	q.groups[m.group].size--
}

// State says where the vote stands now. It can leave Agreed and Impossible again when votes move; Trigger is what makes decisions last.
func (q *Quorum) State() State {
	largest := 0
	for i := range q.groups {
		largest = max(largest, q.groups[i].size)
	}
	switch {
	case largest >= q.threshold:
		return Agreed
	case largest+q.silent < q.threshold:
		return Impossible
	}
	return Pending
}

// Agreed returns the vote that holds the threshold, if one does.
func (q *Quorum) Agreed() (Vote, bool) {
	for i := range q.groups {
		if q.groups[i].size >= q.threshold {
			return q.groups[i].vote, true
		}
	}
	return Vote{}, false
}

// CanAgreeOnResult reports whether a result has won or would if every silent node joined its largest group.
func (q *Quorum) CanAgreeOnResult() bool {
	largest := 0
	for i := range q.groups {
		if q.groups[i].vote.Kind == Result {
			largest = max(largest, q.groups[i].size)
		}
	}
	return largest+q.silent >= q.threshold
}

// Groups returns the sizes of the groups of equal votes, largest first; empty when nobody has voted. The slice is the caller's.
func (q *Quorum) Groups() []int {
	sizes := make([]int, 0, len(q.groups))
	for i := range q.groups {
		if q.groups[i].size > 0 {
			sizes = append(sizes, q.groups[i].size)
		}
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	return sizes
}

// Answered is the number of members whose vote counts now.
func (q *Quorum) Answered() int { return q.answered }

// Threshold is the number of equal votes that win.
func (q *Quorum) Threshold() int { return q.threshold }

// Voted reports whether the node has ever voted here, also when it has been removed since.
func (q *Quorum) Voted(node int) bool {
	return node >= 0 && node < len(q.members) && q.members[node].votes > 0
}
