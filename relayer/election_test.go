package relayer

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// The lock on a file is one process's, and anybody's again when it is given back.
func TestFileLock(t *testing.T) {
	t.Parallel()
	l := FileLock{Path: filepath.Join(t.TempDir(), "lock")}
	held, err := l.Acquire(t.Context())
	require.NoError(t, err)
	_, err = l.Acquire(t.Context())
	require.ErrorIs(t, err, ErrLocked)
	held.Release()
	held.Release()
	held, err = l.Acquire(t.Context())
	require.NoError(t, err)
	held.Release()
	_, err = FileLock{Path: t.TempDir()}.Acquire(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrLocked)
}

// The lock of a PostgreSQL server is one session's: another gets it when it is given back or when the session ends, which the holder notices.
func TestPostgresLock(t *testing.T) {
	t.Parallel()
	dsn := storagetest.Config(t, storage.DriverPostgres).DSN
	l := PostgresLock{DSN: dsn, Poll: 5 * time.Millisecond, Heartbeat: 20 * time.Millisecond, QueryTimeout: 5 * time.Second}
	require.Equal(t, l.Heartbeat+l.QueryTimeout, l.Handover())
	first, err := l.Acquire(t.Context())
	require.NoError(t, err)
	type result struct {
		held Held
		err  error
	}
	second := make(chan result, 1)
	go func() {
		held, err := l.Acquire(t.Context())
		second <- result{held, err}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = l.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, second)

	// Another schema's is another lock.
	other := l
	other.DSN = storagetest.Config(t, storage.DriverPostgres).DSN
	elsewhere, err := other.Acquire(t.Context())
	require.NoError(t, err)
	elsewhere.Release()

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "+
		"WHERE l.locktype = 'advisory' AND l.classid = $1 AND l.granted AND l.objid = (SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = $2)",
		lockClass, first.(*postgresHeld).pid)
	require.NoError(t, err)
	<-first.Lost()
	got := <-second
	require.NoError(t, got.err)
	first.Release()
	got.held.Release()
	third, err := l.Acquire(t.Context())
	require.NoError(t, err)
	third.Release()
}

// idle_session_timeout frees the lock of a process that is stopped.
func TestPostgresLockOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	l := PostgresLock{DSN: storagetest.Config(t, storage.DriverPostgres).DSN, Poll: 5 * time.Millisecond, Heartbeat: time.Hour, IdleTimeout: 100 * time.Millisecond}
	first, err := l.Acquire(t.Context()) // whose heart does not beat
	require.NoError(t, err)
	second, err := l.Acquire(t.Context())
	require.NoError(t, err)
	second.Release()
	first.Release()
}

// stubLock is held from the start, and lost when the test says so.
type stubLock struct{ lost chan struct{} }

func (l stubLock) Acquire(context.Context) (Held, error) { return stubHeld(l), nil }
func (stubLock) Handover() time.Duration                 { return 0 }

type stubHeld struct{ lost chan struct{} }

func (h stubHeld) Lost() <-chan struct{} { return h.lost }
func (stubHeld) Release()                {}

// A dispatcher that has lost its lock without noticing writes and sends nothing any more: everything is the newer one's.
func TestStaleDispatcher(t *testing.T) {
	t.Parallel()
	each(t, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}}, func(t *testing.T, h *house) {
		old, _ := h.run()
		before := h.post(fhevm.EndpointUserDecrypt, 1)
		h.ends(before, fhevm.StateCompleted)
		_, epoch := old.Dispatches()
		newer, _ := h.run()
		h.until("elected", func() bool { holds, _ := newer.Dispatches(); return holds })
		_, next := newer.Dispatches()
		require.Equal(t, epoch+1, next)
		all := []request{before}
		for n, e := range fhevm.Endpoints {
			all = append(all, h.post(e, uint64(n+10)))
		}
		for _, r := range all[1:] {
			require.Equal(t, next, h.ends(r, fhevm.StateCompleted).OwnerEpoch)
		}
		holds, _ := old.Dispatches()
		require.True(t, holds, "it has not noticed")
		h.once(all...)
	})
}

// When the lock is lost the workers stop, and the relayer stands for election again with a new epoch.
func TestLockLost(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval, KMS: &simchain.KMSOptions{}})
	l := &changingLock{stubLock{make(chan struct{})}}
	h.o.Lock = l
	r, _ := h.run()
	h.ends(h.post(fhevm.EndpointInputProof, 1), fhevm.StateCompleted)
	_, first := r.Dispatches()
	l.lose()
	h.ends(h.post(fhevm.EndpointInputProof, 2), fhevm.StateCompleted)
	_, second := r.Dispatches()
	require.Greater(t, second, first)
}

// changingLock can be lost again and again.
type changingLock struct{ stubLock }

func (l *changingLock) Acquire(context.Context) (Held, error) {
	l.lost = make(chan struct{})
	return stubHeld(l.stubLock), nil
}

func (l *changingLock) lose() { close(l.lost) }

// Workers that do not stop in time are an error that the process must end for.
func TestStuck(t *testing.T) {
	t.Parallel()
	h := newHouse(t, storage.DriverSQLite, simchain.Options{Interval: interval})
	l := stubLock{make(chan struct{})}
	h.o.Lock, h.o.StopWithin = l, 10*time.Millisecond
	reached, leave := make(chan struct{}), make(chan struct{})
	h.o.pass = func(point string) {
		if point == pointClaimed {
			close(reached)
			<-leave
		}
	}
	r, err := New(h.options())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	h.post(fhevm.EndpointInputProof, 1)
	<-reached
	close(l.lost)
	require.ErrorIs(t, <-done, ErrStuck)
	close(leave)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	require.Error(t, err)
	require.False(t, errors.Is(err, ErrLocked))
}
