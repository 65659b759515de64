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
	mu     sync.Mutex
	most   int
	total  int
	nodes  map[*node]int
	owners map[actionOwner]*ownerSlots
}

// ownerSlots are the calls of one owner, while there are any.
type ownerSlots struct {
	owner actionOwner
	total int
	nodes map[*node]int
}

func newActionSlots(most int) *actionSlots {
	return &actionSlots{most: most, nodes: map[*node]int{}, owners: map[actionOwner]*ownerSlots{}}
}

// setMost changes the most calls at one time. Those under way past it go on.
func (s *actionSlots) setMost(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = n
}

// take takes a slot for a call of n on behalf of o, or says which bound is
// reached.
func (s *actionSlots) take(n *node, o actionOwner) (release func(), bound string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.owners[o]
	switch {
	case s.total >= s.most:
		return nil, "the gateway's concurrent actions (maxConcurrentActions)"
	case s.nodes[n] >= maxActionsPerNode:
		return nil, "the node's concurrent actions"
	case own != nil && (own.total >= maxActionsPerOwner || own.nodes[n] >= maxActionsPerNodeAndOwner):
		return nil, "the owner's concurrent actions"
	}
	if own == nil {
		own = &ownerSlots{owner: o, nodes: map[*node]int{}}
		s.owners[o] = own
	}
	s.total++
	s.nodes[n]++
	own.total++
	own.nodes[n]++
	return func() { s.give(n, own) }, ""
}

func (s *actionSlots) give(n *node, own *ownerSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	less(s.nodes, n)
	less(own.nodes, n)
	if own.total--; own.total == 0 {
		delete(s.owners, own.owner)
	}
}

// less takes one from a count and forgets it at zero.
func less(m map[*node]int, n *node) {
	if m[n]--; m[n] <= 0 {
		delete(m, n)
	}
}

// underWay is how many calls there are.
func (s *actionSlots) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
