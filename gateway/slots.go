package gateway

import "sync"

// The bounds of upstream calls besides maxConcurrentActions (protocol §7).
const (
	maxActionsPerNode  = 64
	maxActionsPerOwner = 64
	// maxActionsPerNodeAndOwner keeps one node from taking an owner's whole share.
	maxActionsPerNodeAndOwner = maxActionsPerOwner / 2
)

// actionOwner is whom an action counts for. An owner that metadata does not
// confirm is another one of the same name.
type actionOwner struct {
	don       string
	address   string
	confirmed bool
}

// actionSlots counts the upstream calls under way. Taking one never waits. Safe
// for concurrent use.
type actionSlots struct {
	most int

	mu     sync.Mutex
	total  int
	nodes  map[*node]int
	owners map[actionOwner]int
	both   map[nodeOwner]int
}

type nodeOwner struct {
	node  *node
	owner actionOwner
}

func newActionSlots(most int) *actionSlots {
	return &actionSlots{most: most, nodes: map[*node]int{}, owners: map[actionOwner]int{}, both: map[nodeOwner]int{}}
}

// take takes a slot for a call of n on behalf of o, or says which bound is
// reached.
func (s *actionSlots) take(n *node, o actionOwner) (release func(), bound string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	no := nodeOwner{n, o}
	switch {
	case s.total >= s.most:
		return nil, "the gateway's concurrent actions (maxConcurrentActions)"
	case s.nodes[n] >= maxActionsPerNode:
		return nil, "the node's concurrent actions"
	case s.owners[o] >= maxActionsPerOwner, s.both[no] >= maxActionsPerNodeAndOwner:
		return nil, "the owner's concurrent actions"
	}
	s.total++
	s.nodes[n]++
	s.owners[o]++
	s.both[no]++
	return func() { s.give(no) }, ""
}

func (s *actionSlots) give(no nodeOwner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	less(s.nodes, no.node)
	less(s.owners, no.owner)
	less(s.both, no)
}

// less takes one from a count and forgets it at zero.
func less[K comparable](m map[K]int, k K) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// underWay is how many calls there are.
func (s *actionSlots) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
