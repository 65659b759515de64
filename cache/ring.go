package cache

// ring is a node of a circular list, or the sentinel that is the list. Its owner embeds it, so that a list costs no allocation.
type ring[T any] struct {
	prev, next *ring[T]
	item       *T // nil in the sentinel
}

// init makes r an empty list.
func (r *ring[T]) init() { r.prev, r.next = r, r }

func (r *ring[T]) empty() bool { return r.next == r }

// first and last return nil when the list is empty.
func (r *ring[T]) first() *T { return r.next.item }
func (r *ring[T]) last() *T  { return r.prev.item }

// pushFront puts n, which is in no list, first.
func (r *ring[T]) pushFront(n *ring[T]) {
	n.prev, n.next = r, r.next
	r.next.prev = n
	r.next = n
}

// moveToFront puts n, which is in the list, first.
func (r *ring[T]) moveToFront(n *ring[T]) {
	if r.next != n {
		n.remove()
		r.pushFront(n)
	}
}

// remove takes n out of its list.
func (n *ring[T]) remove() {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}
