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

// push takes a message unless the outbox is full, even without what has expired. expired is how many it dropped.
func (o *outbox) push(data []byte, now, until time.Time) (ok bool, expired int) {
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
		return false, expired
	}
	o.items = append(o.items, &waiting{data: data, until: until})
	o.bytes += len(data)
	return true, expired
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

// remove takes w out once it is written. Only the writer removes from the front, but a push may have dropped w as
// expired meanwhile.
func (o *outbox) remove(w *waiting) {
	if len(o.items) == 0 || o.items[0] != w {
		return
	}
	o.items[0] = nil
	o.items = o.items[1:]
	o.bytes -= len(w.data)
	if len(o.items) == 0 {
		o.items = nil // an idle node keeps no memory for its busiest moment
	}
}
