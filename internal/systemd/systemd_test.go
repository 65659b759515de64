package systemd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manager is a socket that a Notifier finds in its environment.
func manager(t *testing.T, name string) (next func() string, environ []string) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		buf := make([]byte, 1000)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := conn.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}, []string{"NOTIFY_SOCKET=" + name}
}

func TestNotifier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{filepath.Join(t.TempDir(), "s"), "@dongate-test-" + strconv.Itoa(os.Getpid())} {
		next, environ := manager(t, name)
		n := New(environ, 1)
		require.NoError(t, n.Ready())
		require.Equal(t, "READY=1", next())
		require.NoError(t, n.Reloading())
		first := next()
		require.Regexp(t, regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=\d+$`), first)
		require.NoError(t, n.Reloading())
		require.NotEqual(t, first, next(), "the time goes on")
		require.NoError(t, n.Stopping())
		require.Equal(t, "STOPPING=1", next())
		n.Watch(t.Context()) // nobody asked for it
	}
	require.NoError(t, New(nil, 1).Ready(), "no manager")
	require.ErrorContains(t, New([]string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "none")}, 1).Ready(), "NOTIFY_SOCKET")
}

func TestWatch(t *testing.T) {
	t.Parallel()
	next, environ := manager(t, filepath.Join(t.TempDir(), "s"))
	require.Zero(t, New(append(environ, "WATCHDOG_USEC=20000", "WATCHDOG_PID=2"), 1).watchdog, "meant for another process")
	require.Zero(t, New(append(environ, "WATCHDOG_USEC=x"), 1).watchdog)
	n := New(append(environ, "WATCHDOG_USEC=20000", "WATCHDOG_PID=1"), 1)
	require.Equal(t, 20*time.Millisecond, n.watchdog)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Watch(ctx) }()
	for range 3 {
		require.Equal(t, "WATCHDOG=1", next())
	}
	cancel()
	<-ended
}
