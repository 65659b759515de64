package status

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"dongate/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a database that another process writes to.
type source struct {
	mu       sync.Mutex
	rows     map[string]Status
	changed  func(string) // nil: nobody subscribed
	reads    int
	read     []string // the transactions of the last read
	failRead error
	failSub  error
}

func (s *source) GetStatuses(_ context.Context, ids ...string) (map[string]Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	s.read = ids
	all := map[string]Status{}
	for _, id := range ids {
		if r, ok := s.rows[id]; ok {
			all[id] = r
		}
	}
	return all, s.failRead
}

func (s *source) Subscribe(_ context.Context, changed func(string)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failSub != nil {
		return nil, s.failSub
	}
	s.changed = changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed = nil
	}, nil
}

// set changes a row, and tells of it if notice is true.
func (s *source) set(id string, is token.TxStatus, notice bool) {
	s.mu.Lock()
	if s.rows == nil {
		s.rows = map[string]Status{}
	}
	s.rows[id] = Status{is, "said of " + id}
	changed := s.changed
	s.mu.Unlock()
	if notice && changed != nil {
		changed(id)
	}
}

func (s *source) subscribed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed != nil
}

func (w *Watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.listeners)
}

func bubble(t *testing.T, test func(t *testing.T, s *source, w *Watcher)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		w := NewWatcher(s, time.Second, nil)
		defer w.Close()
		test(t, s, w)
	})
}

// got returns what is in the channel.
func got(ch chan Event) *Event {
	synctest.Wait()
	select {
	case e := <-ch:
		return &e
	default:
		return nil
	}
}

// A waiter on another replica learns of an end by the notice, without a poll (weakness 13).
func TestLearnsAtOnceByNotice(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		ch := make(chan Event, 1)
		begin := time.Now()
		w.AddStatusListener("tx1", ch)
		require.Nil(t, got(ch))
		s.set("tx1", token.Pending, true)
		s.set("tx2", token.Confirmed, true)
		require.Nil(t, got(ch))
		s.set("tx1", token.Confirmed, true)
		require.Equal(t, &Event{"tx1", token.Confirmed, "said of tx1"}, got(ch))
		require.Equal(t, begin, time.Now(), "no time passed")
		s.set("tx1", token.Confirmed, true)
		require.Nil(t, got(ch), "each end is told once")
		reads := s.reads
		time.Sleep(time.Minute)
		require.Equal(t, reads, s.reads, "nobody waits: nothing is read")
	})
}

func TestLearnsByPollingWhereNoticesAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		s.failSub = errors.New("no listener")
		ch := make(chan Event, 1)
		w.AddStatusListener("tx1", ch)
		require.Nil(t, got(ch))
		s.set("tx1", token.Deleted, false)
		require.Nil(t, got(ch))
		time.Sleep(time.Second)
		require.Equal(t, token.Deleted, got(ch).Status)

		s.mu.Lock()
		s.failSub = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		require.True(t, s.subscribed(), "it subscribes when it can")
		w.AddStatusListener("tx2", ch)
		s.set("tx2", token.Deleted, true)
		require.Equal(t, "tx2", got(ch).TxID)
	})
}

func TestLearnsOfWhatHappenedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		s.set("tx1", token.Confirmed, false)
		e, err := w.Wait(t.Context(), "tx1")
		require.NoError(t, err)
		require.Equal(t, token.Confirmed, e.Status)
	})
}

func TestAllAreLookedAtWhenNoticesWereLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		a, b := make(chan Event, 1), make(chan Event, 1)
		w.AddStatusListener("tx1", a)
		w.AddStatusListener("tx2", b)
		synctest.Wait()
		s.set("tx1", token.Confirmed, false)
		s.set("tx2", token.Deleted, false)
		s.changed("")
		require.Equal(t, token.Confirmed, got(a).Status)
		require.Equal(t, token.Deleted, got(b).Status)
	})
}

func TestOrphanMayFollow(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		ch := make(chan Event, 1)
		w.AddStatusListener("tx1", ch)
		s.set("tx1", token.Orphan, true)
		require.Equal(t, token.Orphan, got(ch).Status)
		s.set("tx1", token.Confirmed, true)
		require.Equal(t, token.Confirmed, got(ch).Status)
	})
}

func TestFullChannelIsToldLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		full, other := make(chan Event), make(chan Event, 1)
		w.AddStatusListener("tx1", full)
		w.AddStatusListener("tx1", other)
		s.set("tx1", token.Confirmed, true)
		require.NotNil(t, got(other), "a slow one does not hold up the others")
		require.Equal(t, token.Confirmed, (<-full).Status)
	})
}

func TestClosedChannelIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		closed, other := make(chan Event), make(chan Event, 1)
		close(closed)
		w.AddStatusListener("tx1", closed)
		w.AddStatusListener("tx1", other)
		s.set("tx1", token.Confirmed, true)
		require.NotNil(t, got(other))
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Len(t, w.listeners["tx1"], 1)
	})
}

func TestDeletedListenerIsNotTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		a, b := make(chan Event, 1), make(chan Event, 1)
		w.AddStatusListener("tx1", a)
		w.AddStatusListener("tx1", b)
		w.DeleteStatusListener("tx1", a)
		w.DeleteStatusListener("none", a)
		s.set("tx1", token.Confirmed, true)
		require.Nil(t, got(a))
		require.NotNil(t, got(b))
		w.DeleteStatusListener("tx1", b)
		require.Zero(t, w.count())
	})
}

func TestFailedReadIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		s := &source{failRead: errors.New("down")}
		w := NewWatcher(s, time.Second, zap.New(core))
		defer w.Close()
		ch := make(chan Event, 1)
		w.AddStatusListener("tx1", ch)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, logs.Len(), "said once")
		s.mu.Lock()
		s.failRead = nil
		s.mu.Unlock()
		s.set("tx1", token.Confirmed, false)
		time.Sleep(time.Second)
		require.NotNil(t, got(ch))
	})
}

func TestWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.Wait(ctx, "tx1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, w.count())

		ended := make(chan error, 1)
		go func() {
			_, err := w.Wait(t.Context(), "tx1")
			ended <- err
		}()
		synctest.Wait()
		w.Close()
		w.Close()
		require.ErrorIs(t, <-ended, ErrClosed)
		_, err = w.Wait(t.Context(), "tx1")
		require.ErrorIs(t, err, ErrClosed)
		require.False(t, s.subscribed(), "the subscription ended")
	})
}

func TestNobodyWaitsNothingRuns(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		w.Changed("tx1")
		time.Sleep(time.Hour)
		require.False(t, s.subscribed())
		require.Zero(t, s.reads)
	})
}

func TestManyWaitForMany(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, w *Watcher) {
		var wg sync.WaitGroup
		names := "abcdefghij"
		for i := range 200 {
			wg.Go(func() {
				id := names[i%len(names) : i%len(names)+1]
				e, err := w.Wait(t.Context(), id)
				if err != nil || e.TxID != id {
					t.Error(id, e, err)
				}
			})
		}
		for i := range names {
			s.set(names[i:i+1], token.Confirmed, i%2 == 0)
		}
		wg.Wait()
		require.Zero(t, w.count())
	})
}
