package aggregation

import (
	"container/heap"
	"slices"
)

// reference is a name (owner, name, tag) of workflows. Nothing here takes longer than the logarithm of how many ids share the name: f+1 colluding nodes may put
// as many under it as they like, and what they do to it is done under the lock that other DONs' reports wait for.
type reference struct {
	key     referenceKey
	hash    uint64 // of key
	forms   int    // that carry it
	owner   *don
	holders []holder
	open    []*standing // the claims that could have it, see standing.wants; in no order
	shown   newestFirst // the subjects in the view under it
	entry   *Workflow   // what the view returns for it: the first of shown
}

// holder is a DON that holds a reference, and by how many claims; there are few DONs.
type holder struct {
	don    *don
	claims int
}

// hold adds n to a DON's claims.
func (r *reference) hold(d *don, n int) {
	i := slices.IndexFunc(r.holders, func(h holder) bool { return h.don == d })
	if i < 0 {
		r.holders = append(r.holders, holder{d, n})
		return
	}
	if r.holders[i].claims += n; r.holders[i].claims == 0 {
		r.holders = slices.Delete(r.holders, i, i+1)
	}
}

func (r *reference) heldBy(d *don) bool {
	return slices.ContainsFunc(r.holders, func(h holder) bool { return h.don == d })
}

// wants returns the reference that a claim could have if it were free: not while the shard agrees on nothing, nor while another DON owns the subject. Such a claim
// need not be looked at when the reference becomes free, however many there are.
func (st *standing) wants() *reference {
	s := st.party.subject
	if st.current == nil || s.owner != nil && s.owner != st.party.don {
		return nil
	}
	return st.claimed
}

// line puts a claim in the list of the reference that it wants.
func (st *standing) line() {
	r := st.wants()
	if r == st.lined {
		return
	}
	if old := st.lined; old != nil {
		last := len(old.open) - 1
		old.open[st.slot] = old.open[last]
		old.open[st.slot].slot = st.slot
		old.open[last] = nil
		old.open = shrunk(old.open[:last])
	}
	if r != nil {
		st.slot = len(r.open)
		r.open = append(r.open, st)
	}
	st.lined = r
}

// newestFirst is a heap of subjects, that which came under their reference last at the top.
type newestFirst []*subject

func (h newestFirst) Len() int           { return len(h) }
func (h newestFirst) Less(i, j int) bool { return h[i].publishedSeq > h[j].publishedSeq }

func (h newestFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is for package heap.
func (h *newestFirst) Push(s any) {
	s.(*subject).place = len(*h)
	*h = append(*h, s.(*subject))
}

// Pop is for package heap.
func (h *newestFirst) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = shrunk((*h)[:last])
	return s
}

// show brings a reference up to date after a subject came under it, left it or changed under it. One that stays keeps its place: when it came under the reference
// changes only with the DON that owns it, and between two owners it is not in the view.
func (m *Metadata) show(r *reference, s *subject, was, is bool) {
	switch {
	case is && !was:
		heap.Push(&r.shown, s)
	case was && !is:
		heap.Remove(&r.shown, s.place)
	}
	var first *Workflow
	if len(r.shown) > 0 {
		first = r.shown[0].published
	}
	if first != r.entry {
		m.names.replace(r.hash, r.entry, first)
		r.entry = first
	}
}

// shrunk gives memory back once a list uses less than a quarter of it: what a list once held is not counted any more.
func shrunk[T any](list []T) []T {
	if cap(list) < 32 || len(list) >= cap(list)/4 {
		return list
	}
	return append(make([]T, 0, 2*len(list)), list...)
}
