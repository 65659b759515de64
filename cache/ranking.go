package cache

import "math/bits"

// Owners are ranked by what they hold in classes an eighth of an octave wide, so that finding one of the largest takes constant time among any number.
// The last class is for those over a quarter of the bound: four at most while the bound holds, of which the very largest is looked for.
const (
	classBits  = 3
	maxClasses = 512 // more than 64 octaves of 8
	classOver  = maxClasses - 1
)

// sizeClass is the class of an owner that holds so many bytes: never lower for more bytes.
func sizeClass(held, quarter int64) int {
	if held > quarter {
		return classOver
	}
	octave := bits.Len64(uint64(held)) - 1 - classBits
	if octave <= 0 {
		return int(held)
	}
	return octave<<classBits + int(held>>octave)
}

// ranking orders owners by sizeClass.
type ranking[V any] struct {
	quarter int64
	classes [maxClasses]ring[account[V]] // each by the time its owners entered the class, the latest first
	present [maxClasses / 64]uint64      // one bit for each class: whether an owner is in it
}

func (r *ranking[V]) init(maxBytes int64) {
	r.quarter = maxBytes / 4
	for i := range r.classes {
		r.classes[i].init()
	}
}

// add ranks an owner that is not ranked yet.
func (r *ranking[V]) add(a *account[V]) {
	a.class = sizeClass(a.bytes, r.quarter)
	r.classes[a.class].pushFront(&a.rank)
	r.present[a.class/64] |= 1 << (a.class % 64)
}

func (r *ranking[V]) remove(a *account[V]) {
	a.rank.remove()
	if r.classes[a.class].empty() {
		r.present[a.class/64] &^= 1 << (a.class % 64)
	}
}

// update ranks an owner again whose bytes have changed.
func (r *ranking[V]) update(a *account[V]) {
	if sizeClass(a.bytes, r.quarter) != a.class {
		r.remove(a)
		r.add(a)
	}
}

// largest returns the owner to evict from: of those over a quarter the largest, else of the highest class the one that has been in it for the longest.
// Nil without owners.
func (r *ranking[V]) largest() *account[V] {
	if over := &r.classes[classOver]; !over.empty() {
		most := over.first()
		for n := over.next; n != over; n = n.next {
			if n.item.bytes > most.bytes {
				most = n.item
			}
		}
		return most
	}
	for word := len(r.present) - 1; word >= 0; word-- {
		if p := r.present[word]; p != 0 {
			return r.classes[word*64+bits.Len64(p)-1].last()
		}
	}
	return nil
}
