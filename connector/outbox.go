package connector

import (
	"slices"
	"time"
)

// waiting is one message that waits for its gateway.
type waiting struct {
	data  []byte
	until time.Time // when nobody wants it any more
}

// outbox holds the messages for one gateway, oldest first, over all its connections. The link's mutex guards it.
type outbox struct {
	maxMessages, maxBytes int
	items                 []*waiting
	bytes                 int
}

// push takes a message; it returns nil when the outbox is full, even without what has expired. expired is how many it
// dropped.
func (o *outbox) push(data []byte, now, until time.Time) (w *waiting, expired int) {
	if !o.fits(data) {
		before := len(o.items)
		o.items = slices.DeleteFunc(o.items, func(w *waiting) bool {
			late := !now.Before(w.until)
			if late {
				o.bytes -= len(w.data)
			}
			return late
		})
		expired = before - len(o.items)
	}
	if !o.fits(data) {
		return nil, expired
	}
	w = &waiting{data: data, until: until}
	o.items = append(o.items, w)
	o.bytes += len(data)
	return w, expired
}

func (o *outbox) fits(data []byte) bool {
	return len(o.items) < o.maxMessages && (len(o.items) == 0 || o.bytes+len(data) <= o.maxBytes)
}

// first returns the oldest message that is still wanted, which stays in the outbox, and drops what is not.
func (o *outbox) first(now time.Time) (w *waiting, expired int) {
	for len(o.items) > 0 {
		if w := o.items[0]; now.Before(w.until) {
			return w, expired
		}
		o.remove(o.items[0])
		expired++
	}
	return nil, expired
}

// remove takes w out, once it is written or when it is withdrawn, if it is still there: a push may have dropped it as
// expired meanwhile.
func (o *outbox) remove(w *waiting) {
	switch i := slices.Index(o.items, w); i {
	case -1:
		return
	case 0: // as the writer has it: nothing is moved
		o.items[0] = nil
		o.items = o.items[1:]
	default:
		o.items = slices.Delete(o.items, i, i+1)
	}
	o.bytes -= len(w.data)
	if len(o.items) == 0 {
		o.items = nil // an idle node keeps no memory for its busiest moment
	}
}
