package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Op is what happened to a row.
type Op string

// The operations. OpChanged stands for anything, any number of times, to any rows: it is sent when events were lost.
const (
	OpInsert  Op = "insert"
	OpUpdate  Op = "update"
	OpDelete  Op = "delete"
	OpChanged Op = "changed"
)

// Event tells that a row was changed by a transaction that has been committed.
type Event struct {
	Table string
	Op    Op
	// Key has the row's key columns as text, in the order they were subscribed with: whole numbers in decimal, bytes as \x and hexadecimal
	// digits, NULL as "". It is nil with OpChanged.
	Key []string
}

// ErrNotifierClosed is returned by Subscribe after Close.
var ErrNotifierClosed = errors.New("storage: the notifier is closed")

// maxQueuedEvents is how many events wait for their callbacks at most. When there are more, they are dropped for one OpChanged per table.
const maxQueuedEvents = 4096

// Notifier tells of changes to tables, as a hint to look again and not as a log. Its events may come twice, or for a change that
// was taken back; when some were lost, an OpChanged says so. On PostgreSQL it tells of the changes of every process, through a trigger and
// a connection of its own; on SQLite of those made through [DB.Write] of its own handle, when their connection is given back. Nothing is
// installed and nothing runs before the first Subscribe. TRUNCATE is not told of.
//
// On PostgreSQL the triggers, named notify_ and 16 digits, stay when the notifier is closed, for others. A migration that drops or
// renames a key column must drop the table's first.
//
// It is safe for concurrent use.
type Notifier struct {
	db      *DB
	source  changeSource
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	wake    chan struct{} // capacity 1: there is something in queue
	errs    chan error

	// mu guards what follows. It is not held during callbacks or while the database is asked.
	mu      sync.Mutex
	topics  map[string]*topic
	queue   []queuedEvent
	started bool
	closed  bool
}

// changeSource finds out about changes and hands them to publish.
type changeSource interface {
	// watch returns when every later commit that concerns the topic will be published. It is called again for topics that are watched.
	watch(ctx context.Context, t *topic) error
}

// topic is what subscribers of one table, one set of key columns and one set of operations share.
type topic struct {
	id          string
	table       string
	keys        []string
	ops         []Op            // sorted
	subscribers []*subscription // replaced when it changes; guarded by Notifier.mu
}

type subscription struct {
	callback func(Event)
	ended    atomic.Bool
}

type queuedEvent struct {
	topic *topic
	event Event
}

// Notifier returns the handle's notifier, the same on every call. [DB.Close] closes it.
func (db *DB) Notifier() *Notifier {
	db.notifierOnce.Do(func() {
		n := &Notifier{db: db, wake: make(chan struct{}, 1), errs: make(chan error, 1), topics: map[string]*topic{}}
		n.ctx, n.cancel = context.WithCancelCause(context.Background())
		if db.backend == Postgres {
			n.source = &postgresChanges{n: n, ping: listenPing, channels: map[string]*channel{}}
		} else {
			db.changes.notifier.Store(n)
			n.source = db.changes
		}
		db.notifier = n
	})
	return db.notifier
}

// Subscribe has callback called for every event of the operations given (none: all three) on rows of the table, which must exist, and for
// OpChanged. When it returns, the changes committed from then on will be told of; ctx limits how long that may take and means nothing
// afterwards. Callbacks of all subscriptions are called one at a time, in the order of the events; a slow one delays the others. An update
// that changes the key is told of twice, with the old and the new one. The function returned ends the subscription, and may be
// called more than once and by a callback; one that runs already ends by itself.
func (n *Notifier) Subscribe(ctx context.Context, table string, keyColumns []string, ops []Op, callback func(Event)) (func(), error) {
	t, err := newTopic(table, keyColumns, ops)
	if err == nil && callback == nil {
		err = errors.New("a callback is needed")
	}
	if err != nil {
		return nil, fmt.Errorf("storage: subscribing to %q: %w", table, err)
	}
	s := &subscription{callback: callback}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil, ErrNotifierClosed
	}
	if known := n.topics[t.id]; known != nil {
		t = known
	}
	n.topics[t.id] = t
	t.subscribers = append(slices.Clip(t.subscribers), s)
	if !n.started {
		n.started = true
		n.running.Go(n.deliver)
	}
	n.mu.Unlock()

	end := func() { n.unsubscribe(t, s) }
	if err := n.source.watch(ctx, t); err != nil {
		end()
		if n.ctx.Err() != nil {
			return nil, ErrNotifierClosed
		}
		return nil, fmt.Errorf("storage: subscribing to %q: %w", table, err)
	}
	return end, nil
}

func newTopic(table string, keys []string, ops []Op) (*topic, error) {
	for _, name := range append([]string{table}, keys...) {
		if !namePattern.MatchString(name) || len(name) > MaxNameBytes {
			return nil, fmt.Errorf("the name %q must be lower-case letters, digits and underscores, at most %d", name, MaxNameBytes)
		}
	}
	if len(keys) == 0 || len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(keys) {
		return nil, errors.New("key columns are needed, each once")
	}
	if len(ops) == 0 {
		ops = []Op{OpInsert, OpUpdate, OpDelete}
	}
	t := &topic{table: table, keys: slices.Clone(keys), ops: slices.Compact(slices.Sorted(slices.Values(ops)))}
	t.id = table + "(" + strings.Join(keys, ",") + ")"
	for _, op := range t.ops {
		if op != OpInsert && op != OpUpdate && op != OpDelete {
			return nil, fmt.Errorf("%q is not an operation to subscribe to", op)
		}
		t.id += " " + string(op)
	}
	return t, nil
}

func (n *Notifier) unsubscribe(t *topic, s *subscription) {
	s.ended.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	t.subscribers = slices.DeleteFunc(slices.Clone(t.subscribers), func(other *subscription) bool { return other == s })
}

// UnsubscribeAll ends every subscription. New ones can be made.
func (n *Notifier) UnsubscribeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.topics {
		for _, s := range t.subscribers {
			s.ended.Store(true)
		}
		t.subscribers = nil
	}
}

// Errors returns a channel of what went wrong with the connection that brings events; the notifier goes on by itself, and an OpChanged
// follows once it is back. Only one error is kept for a reader who is late. The channel is closed by Close.
func (n *Notifier) Errors() <-chan error { return n.errs }

// Close ends everything and returns when no callback runs any more; therefore a callback must not call it. Events that still wait are
// dropped. It may be called more than once.
func (n *Notifier) Close() {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	n.mu.Unlock()
	n.cancel(ErrNotifierClosed)
	n.running.Wait()
	if first {
		close(n.errs) // those who send have ended
	}
}

// spawn runs f until it returns, unless the notifier is closed. f ends with n.ctx.
func (n *Notifier) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.running.Go(f)
	return true
}

// report puts err into the channel of errors when there is room. Only goroutines made by spawn call it.
func (n *Notifier) report(err error) {
	select {
	case n.errs <- err:
	default:
	}
}

// publish queues an event. It never waits.
func (n *Notifier) publish(t *topic, e Event) {
	n.mu.Lock()
	if len(n.queue) < maxQueuedEvents {
		n.queue = append(n.queue, queuedEvent{t, e})
	} else {
		n.queue = n.queue[:0]
		for _, t := range n.topics {
			n.queue = append(n.queue, queuedEvent{t, Event{Table: t.table, Op: OpChanged}})
		}
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// deliver calls the callbacks.
func (n *Notifier) deliver() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.wake:
		}
		n.mu.Lock()
		batch := n.queue
		n.queue = nil
		n.mu.Unlock()
		for _, q := range batch {
			n.mu.Lock()
			subscribers := q.topic.subscribers
			n.mu.Unlock()
			for _, s := range subscribers {
				if n.ctx.Err() != nil {
					return
				}
				if !s.ended.Load() {
					s.callback(q.event)
				}
			}
		}
	}
}
