package gateway

import (
	"errors"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// The bounds of one session's queue of outgoing messages (protocol §4).
const (
	maxQueueMessages = 256
	maxQueueBytes    = 8 << 20
)

var (
	errQueueFull     = errors.New("the session's queue is full")
	errSessionClosed = errors.New("the session is closed")
)

// outgoing is one message for a node: prepared, which is shared by every node it
// goes to, or data, which is for this one. Neither changes.
type outgoing struct {
	prepared *websocket.PreparedMessage
	data     []byte
	size     int
	tracker  tracker // nil: nobody is told what became of it
	attempt  uint32  // what tracker calls this sending of it
}

// tracker is told what becomes of a queued message. wanted is called with the
// queue's lock held and must not block; the others are called by the session's
// goroutines with no lock held.
type tracker interface {
	wanted(attempt uint32) bool         // false: it need not be written any more
	beginWrite(attempt uint32) bool     // about to be written; false: do not
	endWrite(attempt uint32, err error) // written, or not
	dropped(attempt uint32)             // the session ended before it was written
	lost(attempt uint32)                // it was written to a session that has ended
}

// sendQueue holds the messages one writer goroutine has still to write: at most
// maxQueueMessages and maxQueueBytes. Pushing never waits. Safe for concurrent
// use; its lock is never held while writing.
type sendQueue struct {
	mu        sync.Mutex
	items     []outgoing
	head      int
	bytes     int
	closed    bool
	fullSince time.Time     // when the first push since the last pop was refused
	wake      chan struct{} // capacity 1: "something changed" for the writer
}

func newSendQueue() *sendQueue { return &sendQueue{wake: make(chan struct{}, 1)} }

// push queues m, or says errQueueFull or errSessionClosed. fullFor is how long
// the queue has refused messages.
func (q *sendQueue) push(m outgoing, now time.Time) (fullFor time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, errSessionClosed
	}
	if !q.fits(m) {
		q.dropAnswered()
	}
	if !q.fits(m) {
		if q.fullSince.IsZero() {
			q.fullSince = now
		}
		return now.Sub(q.fullSince), errQueueFull
	}
	q.items = append(q.items, m)
	q.bytes += m.size
	q.signal()
	return 0, nil
}

func (q *sendQueue) fits(m outgoing) bool {
	n := len(q.items) - q.head
	return n < maxQueueMessages && (n == 0 || q.bytes+m.size <= maxQueueBytes)
}

// dropAnswered removes messages that nobody wants any more, so that a node that
// stopped reading does not come back to a queue of old requests.
func (q *sendQueue) dropAnswered() {
	kept := q.items[:0]
	bytes := 0
	for _, m := range q.items[q.head:] {
		if m.tracker == nil || m.tracker.wanted(m.attempt) {
			kept = append(kept, m)
			bytes += m.size
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head, q.bytes = kept, 0, bytes
}

// pop takes the oldest message.
func (q *sendQueue) pop() (outgoing, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return outgoing{}, false
	}
	m := q.items[q.head]
	q.items[q.head] = outgoing{}
	q.head++
	q.bytes -= m.size
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 16 {
			q.items = nil // an idle session keeps no memory for its busiest moment
		}
	} else if q.head > maxQueueMessages {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.fullSince = time.Time{}
	return m, true
}

// close refuses further pushes and returns what was not written.
func (q *sendQueue) close() []outgoing {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	rest := q.items[q.head:]
	q.items, q.head, q.bytes = nil, 0, 0
	q.signal()
	return rest
}

func (q *sendQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
