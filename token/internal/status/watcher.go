package status

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"dongate/token"
)

// ErrClosed: who would have told of the transaction's end is closed.
var ErrClosed = errors.New("token: nobody tells of ends of transactions any more")

// DefaultPoll is how often those statuses that somebody waits for are read although nothing told of a change: the notice was lost, or on
// SQLite another process made the change.
const DefaultPoll = time.Second

// Event tells that a transaction ended.
type Event struct {
	TxID    string
	Status  token.TxStatus // final
	Message string
}

// Source is where statuses come from.
type Source interface {
	GetStatuses(ctx context.Context, ids ...string) (map[string]Status, error)
	// Subscribe has changed called, which does not block, after each change of a transaction; with "" when any may have changed.
	Subscribe(ctx context.Context, changed func(txID string)) (stop func(), err error)
}

// Watcher tells those who wait for transactions of their ends, whoever brought them about: it goes by what is in the database. One
// goroutine does all the reading and telling; it begins with the first who waits, and so does the subscription, since being notified has
// its price for everybody who commits. It is safe for concurrent use.
type Watcher struct {
	source Source
	poll   time.Duration
	log    *zap.Logger
	wake   chan struct{} // holds one: there is something in changed
	end    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex // guards what follows
	listeners map[string][]*listener
	changed   map[string]bool // transactions to look at
	all       bool            // look at all of them
	started   bool
}

// listener is somebody's channel for the ends of one transaction.
type listener struct {
	ch   chan<- Event
	told token.TxStatus // what it was told last; Unknown: nothing
}

// settled: nothing can follow what it was told.
func (l *listener) settled() bool { return l.told == token.Confirmed || l.told == token.Deleted }

// NewWatcher returns a Watcher for whom nobody waits. poll 0: DefaultPoll; log nil: none.
func NewWatcher(source Source, poll time.Duration, log *zap.Logger) *Watcher {
	if poll <= 0 {
		poll = DefaultPoll
	}
	if log == nil {
		log = zap.NewNop()
	}
	end, cancel := context.WithCancel(context.Background())
	return &Watcher{source: source, poll: poll, log: log, wake: make(chan struct{}, 1), end: end, cancel: cancel,
		listeners: map[string][]*listener{}, changed: map[string]bool{}}
}

// AddStatusListener has the ends of the transaction sent to ch: the end it has already, an orphan's second one, each once. An event for
// which ch has no room is kept back until it has, or until a newer one replaces it; a channel with room for one learns at once. A channel
// that was closed is forgotten.
func (w *Watcher) AddStatusListener(txID string, ch chan<- Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end.Err() != nil {
		return
	}
	w.listeners[txID] = append(w.listeners[txID], &listener{ch: ch})
	if !w.started {
		w.started = true
		w.wg.Add(2)
		go w.subscribe()
		go w.run()
	}
	w.look(txID)
}

// DeleteStatusListener ends what AddStatusListener began. When it has returned, nothing is sent to ch any more.
func (w *Watcher) DeleteStatusListener(txID string, ch chan<- Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(txID, func(l *listener) bool { return l.ch == ch })
}

func (w *Watcher) remove(txID string, which func(*listener) bool) {
	rest := w.listeners[txID][:0]
	for _, l := range w.listeners[txID] {
		if !which(l) {
			rest = append(rest, l)
		}
	}
	clear(w.listeners[txID][len(rest):])
	w.listeners[txID] = rest
	if len(rest) == 0 {
		delete(w.listeners, txID)
		delete(w.changed, txID)
	}
}

// Wait returns how the transaction ended, at once if it has, be it as an orphan. It waits for one that is not stored, too.
func (w *Watcher) Wait(ctx context.Context, txID string) (Event, error) {
	ch := make(chan Event, 1)
	w.AddStatusListener(txID, ch)
	defer w.DeleteStatusListener(txID, ch)
	select {
	case e := <-ch:
		return e, nil
	case <-ctx.Done():
		return Event{}, context.Cause(ctx)
	case <-w.end.Done():
		return Event{}, ErrClosed
	}
}

// Changed has those who wait for the transaction told, if it ended; "": for any. It does not block.
func (w *Watcher) Changed(txID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(txID)
}

// look notes what has to be read, if anybody waits for it.
func (w *Watcher) look(txID string) {
	switch {
	case len(w.listeners) == 0:
		return
	case txID == "":
		w.all = true
	case len(w.listeners[txID]) == 0:
		return
	default:
		w.changed[txID] = true
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close ends the Watcher and returns when nothing is sent any more. It may be called more than once.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
}

// subscribe asks to be told of changes until that is granted, and takes it back at the end.
func (w *Watcher) subscribe() {
	defer w.wg.Done()
	for failures := 0; ; failures++ {
		stop, err := w.source.Subscribe(w.end, w.Changed)
		if err == nil {
			defer stop()
			w.Changed("") // what changed until now was not told of
			<-w.end.Done()
			return
		}
		if failures == 0 && w.end.Err() == nil {
			w.log.Warn("changes of transactions are found by polling alone for now", zap.Duration("every", w.poll), zap.Error(err))
		}
		select {
		case <-w.end.Done():
			return
		case <-time.After(w.poll << min(failures, 5)):
		}
	}
}

func (w *Watcher) run() {
	defer w.wg.Done()
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-w.end.Done():
			return
		case <-w.wake:
		case <-tick.C:
			w.Changed("")
			continue
		}
		ids := w.take()
		if len(ids) == 0 {
			continue
		}
		statuses, err := w.source.GetStatuses(w.end, ids...)
		if err != nil && !failed && w.end.Err() == nil {
			w.log.Warn("statuses of transactions that are waited for cannot be read for now", zap.Error(err))
		}
		failed = err != nil // what was not read is read at the next tick
		w.tell(statuses)
	}
}

// take returns the transactions to look at.
func (w *Watcher) take() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := func(id string) {
		for _, l := range w.listeners[id] {
			if !l.settled() {
				ids = append(ids, id)
				return
			}
		}
	}
	if w.all {
		for id := range w.listeners {
			waited(id)
		}
	} else {
		for id := range w.changed {
			waited(id)
		}
	}
	w.all = false
	clear(w.changed)
	return ids
}

// tell sends each listener what it does not know.
func (w *Watcher) tell(statuses map[string]Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end.Err() != nil {
		return
	}
	for id, s := range statuses {
		if !s.Status.Final() {
			continue
		}
		closed := map[*listener]bool{}
		for _, l := range w.listeners[id] {
			if l.told == s.Status {
				continue
			}
			sent, gone := send(l.ch, Event{id, s.Status, s.Message})
			if sent {
				l.told = s.Status
			}
			closed[l] = gone
		}
		w.remove(id, func(l *listener) bool { return closed[l] })
	}
}

// send sends without blocking. It survives a closed channel.
func send(ch chan<- Event, e Event) (sent, closed bool) {
	defer func() { closed = recover() != nil }()
	select {
	case ch <- e:
		return true, false
	default:
		return false, false
	}
}
