package aggregation

// queue lists observations of one node, the oldest first. An observation is in at most one queue of each kind.
type queue struct {
	kind           uint8
	oldest, newest *observation
}

// The kinds of queue: node.all and node.alone.
const (
	queueAll = iota
	queueAlone
)

type links struct{ prev, next *observation }

// push appends o as the newest.
func (q *queue) push(o *observation) {
	o.links[q.kind] = links{prev: q.newest}
	if q.newest != nil {
		q.newest.links[q.kind].next = o
	} else {
		q.oldest = o
	}
	q.newest = o
}

func (q *queue) remove(o *observation) {
	l := o.links[q.kind]
	if l.prev != nil {
		l.prev.links[q.kind].next = l.next
	} else {
		q.oldest = l.next
	}
	if l.next != nil {
		l.next.links[q.kind].prev = l.prev
	} else {
		q.newest = l.prev
	}
}
