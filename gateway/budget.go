package gateway

import "sync"

// byteBudget accounts the bytes that open requests hold: their own bodies and
// the nodes' answers. Answers take at most half, so that nodes cannot keep
// clients out by answering at length; and once half is taken, no owner's requests
// get more than a quarter, so that one whose nodes are silent leaves room for the
// others. Safe for concurrent use.
type byteBudget struct {
	mu      sync.Mutex
	limit   int64
	total   int64
	answers int64
	owners  map[string]int64
}

func newByteBudget(limit int64) *byteBudget {
	return &byteBudget{limit: limit, owners: map[string]int64{}}
}

// setLimit changes the limit. What is taken past a lower one stays so until given
// back.
func (b *byteBudget) setLimit(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = n
}

// takeBody reserves n bytes for a request of an owner; false: there is no room.
func (b *byteBudget) takeBody(owner string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total+n > b.limit || (b.total+n > b.limit/2 && b.owners[owner]+n > b.limit/4) {
		return false
	}
	b.total += n
	b.owners[owner] += n
	return true
}

func (b *byteBudget) giveBody(owner string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.owners[owner] -= n; b.owners[owner] <= 0 {
		delete(b.owners, owner)
	}
}

// takeAnswer reserves n bytes for a node's answer; false: there is no room.
// force takes them in any case.
func (b *byteBudget) takeAnswer(n int64, force bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !force && (b.answers+n > b.limit/2 || b.total+n > b.limit) {
		return false
	}
	b.answers += n
	b.total += n
	return true
}

func (b *byteBudget) giveAnswer(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers -= n
	b.total -= n
}

// held is how many bytes are reserved.
func (b *byteBudget) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}
