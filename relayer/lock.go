package relayer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// Lock elects the dispatcher among the processes on one database.
type Lock interface {
	// Acquire waits until the lock is held, and fails if ctx ends or if waiting is useless.
	Acquire(ctx context.Context) (Held, error)
	// Handover is how long a new holder waits before it acts, so that the one before has noticed.
	Handover() time.Duration
}

// Held is a lock that is held.
type Held interface {
	// Lost is closed when the lock is lost.
	Lost() <-chan struct{}
	// Release gives the lock back. It may be called again.
	Release()
}

// ErrLocked: another process is the dispatcher of the same SQLite file. There is one process to a file.
var ErrLocked = errors.New("another process runs the relayer on this database")

// NoLock is for a database that no other process can reach. It is always held.
type NoLock struct{}

// Acquire implements [Lock].
func (NoLock) Acquire(context.Context) (Held, error) { return noneHeld{}, nil }

// Handover implements [Lock].
func (NoLock) Handover() time.Duration { return 0 }

type noneHeld struct{}

func (noneHeld) Lost() <-chan struct{} { return nil }
func (noneHeld) Release()              {}

// FileLock is a lock of the operating system on a file, which goes with the process that holds it.
type FileLock struct{ Path string }

// Acquire implements [Lock]: it does not wait, but fails with [ErrLocked] where the file is locked.
func (l FileLock) Acquire(context.Context) (Held, error) {
	f, err := os.OpenFile(l.Path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the relayer's lock: %w", err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (%s)", err, l.Path), f.Close())
	}
	return &fileHeld{f: f}, nil
}

// Handover implements [Lock]: the one before is dead.
func (FileLock) Handover() time.Duration { return 0 }

type fileHeld struct {
	once sync.Once
	f    *os.File
}

func (*fileHeld) Lost() <-chan struct{} { return nil }
func (h *fileHeld) Release()            { h.once.Do(func() { _ = h.f.Close() }) }

// PostgresLock is a session's advisory lock on a connection of its own, which the server takes back when the session ends: at once when the process
// dies, and after IdleTimeout when it is stopped or cut off. It must not go through a pooler that shares sessions.
type PostgresLock struct {
	DSN string
	Log *zap.Logger // nil: none

	Poll         time.Duration // between attempts to get it; 0: 1 s
	Heartbeat    time.Duration // between proofs that it is still held; 0: 2 s
	QueryTimeout time.Duration // for one such proof; 0: 2 s
	IdleTimeout  time.Duration // longer than Heartbeat and Poll; 0: 30 s
}

// The lock's first number is the network's own; the second tells schemas of one database apart (relayer reference §4.2).
const lockClass = 0x48415F31

func (l PostgresLock) poll() time.Duration         { return orElse(l.Poll, time.Second) }
func (l PostgresLock) heartbeat() time.Duration    { return orElse(l.Heartbeat, 2*time.Second) }
func (l PostgresLock) queryTimeout() time.Duration { return orElse(l.QueryTimeout, 2*time.Second) }
func (l PostgresLock) idle() time.Duration         { return orElse(l.IdleTimeout, 30*time.Second) }

func orElse(d, standard time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return standard
}

// Handover implements [Lock].
func (l PostgresLock) Handover() time.Duration { return l.heartbeat() + l.queryTimeout() }

// Acquire implements [Lock]: it tries until ctx ends, whatever the server says.
func (l PostgresLock) Acquire(ctx context.Context) (Held, error) {
	log := l.Log
	if log == nil {
		log = zap.NewNop()
	}
	var conn *pgx.Conn
	for said := ""; ; {
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = l.connect(ctx)
		}
		var got bool
		var pid uint32
		if err == nil {
			if got, pid, err = l.try(ctx, conn); got {
				h := &postgresHeld{pid: pid, lost: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
				go h.beat(l, conn)
				return h, nil
			}
		}
		if err != nil && ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			log.Warn("the relayer's lock cannot be asked for", zap.Error(err))
		}
		if !sleep(ctx, l.poll()) {
			if conn != nil {
				closeConn(conn, l.queryTimeout())
			}
			return nil, ctx.Err()
		}
	}
}

func (l PostgresLock) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.DSN)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("SET idle_session_timeout = %d", l.idle().Milliseconds())); err != nil {
		closeConn(conn, l.queryTimeout())
		return nil, err
	}
	return conn, nil
}

// try asks for the lock once.
func (l PostgresLock) try(ctx context.Context, conn *pgx.Conn) (got bool, pid uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.queryTimeout())
	defer cancel()
	var schema string
	if err := conn.QueryRow(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
		return false, 0, err
	}
	sum := sha256.Sum256([]byte(schema))
	key := int32(binary.BigEndian.Uint32(sum[:4]))
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2), pg_backend_pid()", int32(lockClass), key).Scan(&got, &pid)
	return got, pid, err
}

type postgresHeld struct {
	pid              uint32 // of the server's process
	once             sync.Once
	lost, stop, done chan struct{}
}

func (h *postgresHeld) Lost() <-chan struct{} { return h.lost }

func (h *postgresHeld) Release() {
	h.once.Do(func() { close(h.stop) })
	<-h.done
}

// beat proves again and again that the session is the one that got the lock.
func (h *postgresHeld) beat(l PostgresLock, conn *pgx.Conn) {
	defer close(h.done)
	defer closeConn(conn, l.queryTimeout())
	for {
		select {
		case <-h.stop:
			return
		case <-time.After(l.heartbeat()):
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.queryTimeout())
		var now uint32
		err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&now)
		cancel()
		if err != nil || now != h.pid {
			close(h.lost)
			return
		}
	}
}

func closeConn(conn *pgx.Conn, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = conn.Close(ctx)
}

// sleep waits and reports whether ctx is still open.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
